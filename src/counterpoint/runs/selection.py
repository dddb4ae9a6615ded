"""Rank encoders without labels, or with few: faults first, then figures of the same samples and views of them."""

# N samples, D features, G groups of samples

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.paired_shares import jackknife_half_width
from counterpoint.core.run import Run
from counterpoint.core.settings import LookSettings
from counterpoint.core.terminal_text import WIDTH, Printed, TextTable
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.validation import build
from counterpoint.diagnostics import alignment, spectra
from counterpoint.diagnostics.findings import find
from counterpoint.diagnostics.label_agreement import left_out_places
from counterpoint.diagnostics.measure import GROUPS, measure_place
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import content_hashes, extract, view_pairs
from counterpoint.evaluation.load_subject import Samples, one_checkpoint, open_subject
from counterpoint.evaluation.subject import Subject, untrained_backbone
from counterpoint.evaluation.trained_run import steps_asked
from counterpoint.nn.layer_outputs import EMBEDDING, REPRESENTATION
from counterpoint.runs.run_evidence import from_folder, weight_change

LAYERS = (REPRESENTATION, EMBEDDING)
MOST_COMPARED = 1024  # samples: each figure is computed eleven times of them
FEWEST = 2 * GROUPS
FEWEST_LABELLED = 40
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Ranker:
    """A figure of the representation that ranks encoders.

    Attributes:
        name: name of the figure.
        judge: criterion by which it says that an encoder is likely best.
        against: the accuracy with which it is correlated.
        correlation: Spearman's correlation in the benchmark, and the ends of its 95 % interval.
    """

    name: str
    judge: str
    against: str
    correlation: tuple[float, float, float]

    def __str__(self) -> str:
        value, low, high = self.correlation
        return f"{self.name} {value:+.2f} ({low:+.2f} to {high:+.2f}) with {self.against}"


@dataclass(frozen=True)
class Gap:
    """A figure of one encoder, and how far it lies behind the largest.

    Attributes:
        value: the figure.
        behind: the largest figure of an encoder without a fault minus this one.
        low: lower end of the 95 % interval of that difference, over samples.
        high: upper end of the interval.
    """

    value: float
    behind: float
    low: float
    high: float

    @property
    def is_told_apart(self) -> bool:
        """True if the interval leaves out 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Candidate:
    """One encoder with its figures and faults.

    Attributes:
        name: name of its run, with the step of a checkpoint.
        figures: figures of the encoder, by ``Ranker.name``.
        faults: titles of severe findings that need no labels; an encoder with one ranks below all without.
    """

    name: str
    figures: Mapping[str, Gap]
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Selection(Printed):
    """Encoders in the order in which they are likely best.

    Attributes:
        candidates: the likely best one first, by the first of ``rankers``.
        rankers: the figures that were looked at.
        source: name of the samples.
        num_samples: number of samples that were compared.
        num_labelled: number of samples whose labels were used.
    """

    candidates: tuple[Candidate, ...]
    rankers: tuple[Ranker, ...]
    source: str
    num_samples: int
    num_labelled: int = 0

    def likely_best(self, ranker: Ranker) -> tuple[str, ...]:
        """The best one by a figure, and those that these samples cannot tell from it."""
        alike = [each for each in self.candidates if bool(each.faults) == bool(self.candidates[0].faults)]
        ordered = sorted(alike, key=lambda each: each.figures[ranker.name].behind)
        return tuple(each.name for each in ordered if each is ordered[0] or not each.figures[ranker.name].is_told_apart)

    @property
    def verdict(self) -> str:
        """One sentence that names the likely best encoders."""
        first = self.candidates[0]
        if first.faults:
            return f"Every encoder has a serious fault; of the likely best one, {first.name}: {first.faults[0]}."
        best: dict[tuple[str, ...], list[str]] = {}
        for ranker in self.rankers:
            best.setdefault(self.likely_best(ranker), []).append(ranker.judge)
        parts = [
            f"by {' and '.join(judges)}: {name}" + f" (cannot tell it from {', '.join(alike)})" * bool(alike)
            for (name, *alike), judges in best.items()
        ]
        return f"Likely best {'; '.join(parts)}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        best = {ranker.judge: list(self.likely_best(ranker)) for ranker in self.rankers}
        return {"verdict": self.verdict, "likely_best": best, **asdict(self)}

    @property
    def table(self) -> TextTable:
        """The figures of each candidate, the best first."""
        head = ["encoder", *(word for each in self.rankers for word in (each.name, "behind (95 % interval)")), "fault"]
        rows = []
        for each in self.candidates:
            row = [each.name]
            for ranker in self.rankers:
                gap = each.figures[ranker.name]
                interval = f"{gap.behind:.3g} ({gap.low:+.3g} to {gap.high:+.3g})" if gap.behind else "-"
                row += [f"{gap.value:.4g}", interval]
            rows.append([*row, each.faults[0] if each.faults else ""])
        return TextTable(head, rows, f"l{'r' * (len(head) - 2)}l")

    def __str__(self) -> str:
        return "\n".join([self.verdict, "", *self.table.lines, "", *self._remarks()])

    def _remarks(self) -> Iterator[str]:
        labelled = f", {self.num_labelled:,} of them with their labels" if self.num_labelled else ""
        notes = [
            f"{self.num_samples:,} samples of {self.source}{labelled}, the same for all, and the same views of them, "
            "the usual ones for such samples. Figures describe the representation; `behind` is the difference to the "
            "largest, with its interval over samples; the order is uncertain where the interval contains 0. "
            "Encoders with a serious fault are ranked last.",
            "Spearman's correlation over trainings on two sets of photographs (95 % interval): "
            f"{'; '.join(map(str, self.rankers))}. On other data it can have either sign "
            "(docs/evaluation-reference.md).",
        ]
        if not self.num_labelled:
            notes.append("This is a guess; 400 labels (--labels) order photographs as well, and other data far better.")
        yield from (textwrap.fill(each, WIDTH) for each in notes)


# Over 40 small encoders of CIFAR-10 and Caltech-101 (docs/evaluation-reference.md).
IDENTIFIED = Ranker("identified", "linear probe", "the linear probe", (0.73, 0.52, 0.85))
PARTICIPATION = Ranker("participation ratio", "kNN", "kNN", (0.75, 0.52, 0.9))
LABELLED = Ranker("labelled", "labels", "the linear probe where 400 samples have labels", (0.73, 0.57, 0.83))
# Each figure is computed from features and two views of the same samples.
FIGURES: Mapping[str, Callable[[Tensor, Pair], float]] = {
    IDENTIFIED.name: lambda z_ND, views: alignment.identified(z_ND, *views),
    PARTICIPATION.name: lambda z_ND, views: spectra.participation_ratio(
        spectra.covariance_spectrum(z_ND, normalize=True)
    ),
}


@dataclass(frozen=True)
class _Measured:
    """An encoder with the figures that rank it, of all samples and without each group of them."""

    name: str
    faults: tuple[str, ...]
    figures: Mapping[str, float]
    left_out: tuple[Mapping[str, float], ...]


@usual_modes()
def select(
    runs: Sequence[Run | str | Path | Any],
    *,
    data: Any = None,
    labels: Any = None,
    quiet: bool = False,
    **look: Any,
) -> Selection:
    """Say which of several encoders is likely best, without labels or with few.

    All encoders get the same samples and the same views, those of the usual preset, because with its own views an
    encoder whose views change nothing would always win. Encoders with a severe
    finding that needs no labels are ranked last. The others are ranked for a linear probe by how many samples a linear
    classifier identifies from a view that it has not seen, and for kNN by the participation ratio; with labels, by the
    rank that a linear classifier gives to the class of an unseen sample. Differences are compared over
    samples, in pairs, by a jackknife of ten groups; docs/evaluation-reference.md says how far to trust each figure.

    Args:
        runs: two or more, each a run or its folder, ``FOLDER@STEP`` for a checkpoint, or an encoder from elsewhere as
            ``evaluate`` takes it.
        data: samples for all (anything ``train`` takes); None takes the runs' own, which must be the same.
        labels: one per sample, with -1, None or "" for unlabelled ones, and at least 40 labels; None uses no labels,
            not even those of the data. A file for named data.
        quiet: show no progress.
        look: ``checkpoint`` (a step of every run, or ``all``), ``device``, ``cache`` and which data are used, as in
            ``evaluate``.

    Raises:
        UsageError: fewer than two encoders, one twice, other samples, or a checkpoint that is not kept.
        RunError: not a run, or nothing was trained yet.
    """
    look_settings = build(LookSettings, look, "select")
    reporter = Reporter(quiet=quiet)
    subjects = [each for run in runs for each in _open_subjects(run, Samples(data, labels), look_settings, reporter)]
    _check_subjects(subjects, labelled=labels is not None)
    with reporter.bar("selecting", len(subjects)) as advance:
        measured = []
        for subject in subjects:
            measured.append(_measure_subject(subject, labelled=labels is not None, cache=look_settings.cache))
            advance()
    rankers = (IDENTIFIED, PARTICIPATION) if labels is None else (LABELLED, IDENTIFIED, PARTICIPATION)
    sound = [each for each in measured if not each.faults] or measured
    best = {name: max(sound, key=lambda encoder: encoder.figures[name]) for name in (each.name for each in rankers)}
    candidates = [
        Candidate(each.name, {name: _gap(each, first, name) for name, first in best.items()}, each.faults)
        for each in measured
    ]
    source = subjects[0].source
    return Selection(
        candidates=tuple(
            sorted(candidates, key=lambda each: (bool(each.faults), each.figures[rankers[0].name].behind))
        ),
        rankers=rankers,
        source=source.name,
        num_samples=min(len(source), MOST_COMPARED),
        num_labelled=0 if labels is None else len(_labelled_positions(subjects[0])),
    )


def _open_subjects(run: Any, samples: Samples, look_settings: LookSettings, reporter: Reporter) -> list[Subject]:
    step = look_settings.checkpoint
    if isinstance(run, str) and not Path(run).exists() and (parts := run.rpartition("@"))[2].isdigit():
        run, step = parts[0], parts[2]
    subject = open_subject(run, samples, look_settings.model_copy(update={"checkpoint": None}), reporter)
    if subject.is_features:
        raise UsageError(f"{run} is a file of features; select takes runs and encoders, whose views it can draw")
    if step is None:
        return [subject]
    if subject.folder is None:
        raise UsageError("checkpoint goes with a run; an encoder from elsewhere has the weights of its file")
    return [
        replace(one_checkpoint(subject, str(kept_step)), name=f"{subject.name}@{kept_step}")
        for kept_step in steps_asked(subject.folder, step)
    ]


def _check_subjects(subjects: Sequence[Subject], *, labelled: bool) -> None:
    if len(subjects) < 2:
        raise UsageError(
            f"select needs at least two encoders, got {len(subjects)}; the checkpoints of one run: --checkpoint all"
        )
    paths = [(each.folder.path.resolve(), each.name) for each in subjects if each.folder is not None]
    if len(set(paths)) < len(paths):
        raise UsageError("select got the same run twice; name each once")
    first = subjects[0]
    for other in subjects[1:]:
        if not _has_same_samples(first, other):
            raise UsageError(
                f"{first.name} ({len(first.source):,} samples of {first.source.name}) and {other.name} "
                f"({len(other.source):,} of {other.source.name}) have different samples; give those on which all are "
                "compared: --data DATA"
            )
    if len(first.source) < FEWEST:
        raise UsageError(f"select needs at least {FEWEST} samples, got {len(first.source)}")
    if not labelled:
        return
    labelled_M = _labelled_positions(first)
    num_classes = len(first.source.labels[labelled_M].unique()) if first.source.labels is not None else 0
    if len(labelled_M) < FEWEST_LABELLED or num_classes < 2:
        raise UsageError(
            f"select needs the labels of at least {FEWEST_LABELLED} samples of two classes, got those of "
            f"{len(labelled_M)} of {num_classes}; without --labels it needs none"
        )


def _has_same_samples(first: Subject, other: Subject) -> bool:
    """Tell whether both subjects have the same content in the same order, with labels or without."""
    if first.source.fingerprint == other.source.fingerprint:
        return True
    if first.source.kind != other.source.kind or len(first.source) != len(other.source):
        return False
    hashes = [content_hashes(each.source.store.fetch(_positions(each).tolist())).tolist() for each in (first, other)]
    return hashes[0] == hashes[1]


def _positions(subject: Subject) -> Tensor:
    return evenly_spaced(torch.arange(len(subject.source)), MOST_COMPARED)


def _labelled_positions(subject: Subject) -> Tensor:
    labels_N = subject.source.labels
    return torch.arange(0) if labels_N is None else evenly_spaced((labels_N >= 0).nonzero()[:, 0], MOST_COMPARED)


def _measure_subject(subject: Subject, *, labelled: bool, cache: bool) -> _Measured:
    chosen_N, encoder = _positions(subject), subject.encoder
    backbone = untrained_backbone(subject)
    features = extract(encoder, subject.source, LAYERS, cache=cache)
    layers = {REPRESENTATION: features.representation[chosen_N], EMBEDDING: features.embedding[chosen_N]}
    own_views = view_pairs(subject, encoder, LAYERS, chosen_N) if subject.has_views else {}
    places = {name: measure_place(z_ND, views=own_views.get(name)).figures for name, z_ND in layers.items()}
    evidence = replace(from_folder(subject), places=places, weight_change=weight_change(subject, backbone))
    # Without the settings of the run the views are the usual ones of such samples, drawn by one seed.
    usual = replace(subject, settings=None, own_views=None)
    z_ND, views = layers[REPRESENTATION], view_pairs(usual, encoder, [REPRESENTATION], chosen_N)[REPRESENTATION]
    score_M = torch.zeros(0)
    if labelled and subject.source.labels is not None:
        rows_M = _labelled_positions(subject)
        score_M = -left_out_places(features.representation[rows_M], subject.source.labels[rows_M]).double().log1p()

    def figures(group: int) -> dict[str, float]:
        """Compute the figures without one group of samples; -1 leaves out none."""
        is_kept_N = torch.arange(len(chosen_N)) % GROUPS != group
        pair = (views[0][is_kept_N], views[1][is_kept_N])
        values = {name: figure(z_ND[is_kept_N], pair) for name, figure in FIGURES.items()}
        return values | {LABELLED.name: float(score_M[torch.arange(len(score_M)) % GROUPS != group].mean())}

    return _Measured(
        name=subject.name,
        faults=tuple(finding.title for finding in find(evidence) if finding.level == "severe"),
        figures=figures(-1),
        left_out=tuple(figures(group) for group in range(GROUPS)),
    )


def _gap(own: _Measured, first: _Measured, name: str) -> Gap:
    """A figure with its difference to the encoder whose figure is largest."""
    behind = first.figures[name] - own.figures[name]
    half = jackknife_half_width([one[name] - two[name] for one, two in zip(first.left_out, own.left_out, strict=True)])
    return Gap(own.figures[name], behind, behind - half, behind + half)
