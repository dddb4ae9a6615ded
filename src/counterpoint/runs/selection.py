"""Rank encoders without labels: faults first, then figures of the same samples and the same views of them."""

# N samples, D features, G groups of samples, F figures

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.data_settings import LookSettings
from counterpoint.core.errors import UsageError
from counterpoint.core.paired_shares import jackknife_half_width
from counterpoint.core.run import Run
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.validation import build
from counterpoint.core.written_tables import aligned
from counterpoint.diagnostics import alignment, crowding, spectra
from counterpoint.diagnostics.findings import find
from counterpoint.diagnostics.measure import GROUPS, measure_place
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.feature_tables import key_of
from counterpoint.evaluation.features import content_hashes, evenly_spaced, extract, view_pairs
from counterpoint.evaluation.load_subject import Samples, one_checkpoint, open_subject
from counterpoint.evaluation.subject import Subject, untrained_backbone
from counterpoint.evaluation.trained_run import steps_asked
from counterpoint.nn.layer_outputs import EMBEDDING, REPRESENTATION
from counterpoint.runs.run_evidence import from_folder, weight_change

LAYERS = (REPRESENTATION, EMBEDDING)
MOST_COMPARED = 1024  # samples: each figure is computed eleven times of them
FEWEST = 2 * GROUPS
WIDTH = 100  # columns of the text
DECIDING = ("score", "overlap", "effective_rank")  # figures that people see
Pair = tuple[Tensor, Tensor]
# One standard deviation of encoders of one set, on digits, drawn patterns and textures, of overlap and log of the rank.
OVERLAP_SCALE, RANK_SCALE = 0.047, 0.44


@dataclass(frozen=True)
class Ranker:
    """How one figure ranks encoders.

    Attributes:
        name: of the figure, a metric of ``diagnostics``.
        features: what it is a figure of.
        probe: Spearman's correlation with the linear probe of the representation, and the ends of its 95 % interval.
        knn: the same with its kNN accuracy.
    """

    name: str
    features: str
    probe: tuple[float, float, float]
    knn: tuple[float, float, float]

    @property
    def key(self) -> str:
        """Name and features."""
        return f"{self.name} of {self.features}"

    def __str__(self) -> str:
        ends = [f"{value:+.2f} ({low:+.2f} to {high:+.2f})" for value, low, high in (self.probe, self.knn)]
        return f"{self.key} {ends[0]}, {ends[1]}"


@dataclass(frozen=True)
class Candidate:
    """One encoder.

    Attributes:
        name: of its run, with the step of a checkpoint.
        figures: by ``Ranker.key``.
        faults: titles of severe findings that need no labels; an encoder with one stands behind all without.
        behind: the deciding figure of the first one minus its own; 0 of the first one.
        low: of the 95 % interval of that difference, over samples.
        high: of the 95 % interval.
    """

    name: str
    figures: Mapping[str, float]
    faults: tuple[str, ...]
    behind: float
    low: float
    high: float

    @property
    def is_told_apart(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Selection:
    """Encoders in the order in which they are likely best.

    Attributes:
        candidates: the likely best one first.
        rankers: the figures that were looked at; the first one decides.
        source: name of the samples.
        num_samples: that were compared.
    """

    candidates: tuple[Candidate, ...]
    rankers: tuple[Ranker, ...]
    source: str
    num_samples: int

    @property
    def undecided(self) -> tuple[str, ...]:
        """Those of which nobody can tell whether they are as good as the first one."""
        first, *others = self.candidates
        alike = [each for each in others if bool(each.faults) == bool(first.faults)]
        return tuple(each.name for each in alike if not each.is_told_apart)

    @property
    def verdict(self) -> str:
        """One sentence."""
        first = self.candidates[0]
        if first.faults:
            return f"Every encoder has a serious fault; of the likely best one, {first.name}: {first.faults[0]}."
        if self.undecided:
            return f"Cannot tell {first.name} from {', '.join(self.undecided)} by these samples."
        return f"Likely best: {first.name}."

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        told = {"verdict": self.verdict, "undecided": list(self.undecided)}
        about = {"source": self.source, "num_samples": self.num_samples}
        candidates = [{**asdict(each), "told_apart": each.is_told_apart} for each in self.candidates]
        return {**told, **about, "candidates": candidates, "figures": [asdict(each) for each in self.rankers]}

    @property
    def _shown(self) -> list[Ranker]:
        """The figures that decide."""
        return [each for each in self.rankers if each.features == self.rankers[0].features and each.name in DECIDING]

    def __str__(self) -> str:
        shown = self._shown
        head = ["encoder", "behind", "95 % interval", *(ranker.name.replace("_", " ") for ranker in shown), "fault"]
        rows = [
            [
                each.name,
                f"{each.behind:.3f}" if place else "-",
                f"{each.low:+.3f} to {each.high:+.3f}" if place else "-",
                *(f"{each.figures[ranker.key]:.4g}" for ranker in shown),
                each.faults[0] if each.faults else "",
            ]
            for place, each in enumerate(self.candidates)
        ]
        lines = aligned([head, *rows], f"l{'r' * (len(head) - 2)}l")
        return "\n".join([self.verdict, "", *lines, "", *self._remarks()])

    def _remarks(self) -> Iterator[str]:
        """What a reader must know about the table, a paragraph each."""
        decides = self.rankers[0]
        words = (
            f"{self.num_samples:,} samples of {self.source}, the same for all, and the same views of them, the usual "
            f"ones of such samples. Figures are of the {decides.features}. Behind: how far its {decides.name}, which "
            "adds overlap of views and log of the effective rank, lies below the first one's, with the interval of "
            "that difference over samples; where it holds 0 nobody can tell. Encoders with a serious fault stand last.",
            "This is a guess, which orders encoders about as kNN does, and hardly as a linear probe: Spearman's "
            "correlation with the probe, then with kNN, over trainings on two sets of photographs (95 % interval): "
            f"{'; '.join(map(str, self._shown))}; other figures: --json. With labels of a few hundred samples "
            "counterpoint evaluate says more.",
        )
        yield from (textwrap.fill(each, WIDTH) for each in words)


def score(z_ND: Tensor, views: Pair) -> float:
    r"""What decides: views of one sample lie together, and samples spread in many directions.

    .. math:: \frac{a}{s_a} + \frac{\log r}{s_r}

    of the overlap a of the views and the effective rank r, both in standard deviations. Alone each chooses a fault: the
    rank an encoder that has hardly learned, the overlap one that tells few samples apart.
    """
    rank = spectra.effective_rank(spectra.covariance_spectrum(z_ND, normalize=True))
    return alignment.overlap(*views) / OVERLAP_SCALE + math.log(max(rank, 1.0)) / RANK_SCALE


# Of features and of two views; the same functions as the metrics of ``diagnostics``.
FIGURES: Mapping[str, Callable[[Tensor, Pair], float]] = {
    "score": score,
    "overlap": lambda z_ND, views: alignment.overlap(*views),
    "alignment": lambda z_ND, views: alignment.alignment(*views),
    "uniformity": lambda z_ND, views: alignment.uniformity(z_ND),
    "rankme": lambda z_ND, views: spectra.rankme(spectra.singular_values(z_ND)),
    "effective_rank": lambda z_ND, views: spectra.effective_rank(spectra.covariance_spectrum(z_ND, normalize=True)),
    "participation_ratio": lambda z_ND, views: spectra.participation_ratio(
        spectra.covariance_spectrum(z_ND, normalize=True)
    ),
    "lidar": lambda z_ND, views: spectra.lidar(*views),
    "hubness": lambda z_ND, views: crowding.hubness(crowding.neighbour_counts(z_ND)),
}
# Over 80 small encoders of CIFAR-10 and Caltech-101 (docs/evaluation.md): the mean over both sets of Spearman's
# correlations, with intervals by a bootstrap over encoders.
RANKERS = (
    Ranker("score", REPRESENTATION, (0.4, 0.22, 0.54), (0.86, 0.76, 0.9)),
    Ranker("overlap", REPRESENTATION, (0.5, 0.31, 0.66), (0.42, 0.19, 0.61)),
    Ranker("alignment", REPRESENTATION, (0.25, 0.03, 0.43), (-0.15, -0.38, 0.09)),
    Ranker("uniformity", REPRESENTATION, (0.18, -0.03, 0.37), (0.22, 0.04, 0.41)),
    Ranker("rankme", REPRESENTATION, (0.02, -0.15, 0.17), (0.82, 0.72, 0.86)),
    Ranker("effective_rank", REPRESENTATION, (-0.03, -0.16, 0.11), (0.78, 0.68, 0.84)),
    Ranker("participation_ratio", REPRESENTATION, (0.11, -0.07, 0.29), (0.88, 0.81, 0.92)),
    Ranker("lidar", REPRESENTATION, (0.01, -0.15, 0.15), (0.8, 0.71, 0.84)),
    Ranker("hubness", REPRESENTATION, (0.13, -0.03, 0.3), (-0.59, -0.71, -0.42)),
    Ranker("overlap", EMBEDDING, (0.48, 0.28, 0.65), (0.27, 0.05, 0.49)),
    Ranker("alignment", EMBEDDING, (-0.06, -0.29, 0.21), (-0.11, -0.31, 0.15)),
    Ranker("uniformity", EMBEDDING, (0.23, -0.02, 0.46), (0.24, 0.01, 0.46)),
    Ranker("rankme", EMBEDDING, (-0.07, -0.27, 0.14), (0.12, -0.12, 0.36)),
    Ranker("effective_rank", EMBEDDING, (-0.12, -0.33, 0.12), (0.1, -0.12, 0.34)),
    Ranker("participation_ratio", EMBEDDING, (0.12, -0.05, 0.3), (0.62, 0.43, 0.75)),
    Ranker("lidar", EMBEDDING, (-0.08, -0.28, 0.15), (0.01, -0.22, 0.23)),
    Ranker("hubness", EMBEDDING, (0.2, 0.07, 0.37), (-0.51, -0.67, -0.34)),
)
DECIDES = RANKERS[0]


@dataclass(frozen=True)
class _Measured:
    """An encoder with what it is ranked by.

    Attributes:
        name: for the table.
        faults: see ``Candidate.faults``.
        figures: of all samples, by ``Ranker.key``.
        left_out: the figure that decides, without each group of samples.
    """

    name: str
    faults: tuple[str, ...]
    figures: Mapping[str, float]
    left_out: tuple[float, ...]

    @property
    def score(self) -> float:
        """The figure that decides."""
        return self.figures[DECIDES.key]


@usual_modes()
def select(
    runs: Sequence[Run | str | Path | Any],
    *,
    data: Any = None,
    labels: Any = None,
    quiet: bool = False,
    **look: Any,
) -> Selection:
    """Say which of several encoders is likely best, without labels.

    Each passes the same samples and the same views of them, those of the usual preset, whatever it was trained with:
    an encoder trained with views that change nothing cannot tell its own apart from copies. Encoders with a severe
    finding that needs no labels stand last; the others are ranked by ``score`` of the representation, which orders
    encoders nearly as kNN does and much less well as a linear probe does (docs/evaluation.md). Differences are compared
    over samples, in pairs, by a jackknife of ten groups.

    Args:
        runs: two or more, each a run or its folder, ``FOLDER@STEP`` for a checkpoint, or an encoder from elsewhere as
            ``evaluate`` takes it.
        data: samples for all (anything ``train`` takes); None takes the runs' own, which must be the same.
        labels: that belong to the data; they are not looked at.
        quiet: show no progress.
        look: ``checkpoint`` (a step of every run, or ``all``), ``device``, ``cache`` and what of the data is taken, as
            of ``evaluate``.

    Raises:
        UsageError: fewer than two encoders, one twice, other samples, or a checkpoint that is not kept.
        RunError: not a run, or nothing was trained yet.
    """
    asked = build(LookSettings, look, "select")
    reporter = Reporter(quiet=quiet)
    subjects = [each for run in runs for each in _opened(run, Samples(data, labels), asked, reporter)]
    _check(subjects)
    with reporter.bar("selecting", len(subjects)) as advance:
        measured = []
        for subject in subjects:
            measured.append(_measured(subject, cache=asked.cache))
            advance()
    first, *others = sorted(measured, key=lambda each: (bool(each.faults), -each.score))
    source = subjects[0].source
    return Selection(
        candidates=(_candidate(first, first), *(_candidate(each, first) for each in others)),
        rankers=RANKERS,
        source=source.name,
        num_samples=min(len(source), MOST_COMPARED),
    )


def unlabelled_figures(
    layers: Mapping[str, Tensor], views: Mapping[str, Pair], only: Sequence[Ranker] = ()
) -> dict[str, float]:
    """Figures by ``Ranker.key``; 0 where one does not exist.

    Args:
        layers: features of some samples.
        views: of two views of the same samples.
        only: which figures; none for all.
    """
    found = {each.key: FIGURES[each.name](layers[each.features], views[each.features]) for each in only or RANKERS}
    return {key: value if math.isfinite(value) else 0.0 for key, value in found.items()}


def _opened(run: Any, samples: Samples, asked: LookSettings, reporter: Reporter) -> list[Subject]:
    """An encoder beside its samples, or several checkpoints of it, by their names."""
    step = asked.checkpoint
    if isinstance(run, str) and not Path(run).exists() and (parts := run.rpartition("@"))[2].isdigit():
        run, step = parts[0], parts[2]
    subject = open_subject(run, samples, asked.model_copy(update={"checkpoint": None}), reporter)
    if subject.is_features:
        raise UsageError(f"{run} is a file of features; select takes runs and encoders, whose views it can draw")
    if step is None:
        return [subject]
    if subject.folder is None:
        raise UsageError("checkpoint goes with a run; an encoder from elsewhere has the weights of its file")
    return [
        replace(one_checkpoint(subject, str(kept)), name=f"{subject.name}@{kept}")
        for kept in steps_asked(subject.folder, step)
    ]


def _check(subjects: Sequence[Subject]) -> None:
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


def _has_same_samples(one: Subject, other: Subject) -> bool:
    """Whether both look at the same content in the same order, with labels or without."""
    if one.source.fingerprint == other.source.fingerprint:
        return True
    if one.source.kind != other.source.kind or len(one.source) != len(other.source):
        return False
    hashes = [content_hashes(each.source.store.fetch(_chosen(each).tolist())).tolist() for each in (one, other)]
    return hashes[0] == hashes[1]


def _chosen(subject: Subject) -> Tensor:
    """Positions of the samples that are compared."""
    return evenly_spaced(torch.arange(len(subject.source)), MOST_COMPARED)


def _measured(subject: Subject, *, cache: bool) -> _Measured:
    """Pass samples and views through an encoder, and look for faults."""
    chosen_N, encoder = _chosen(subject), subject.encoder
    backbone = untrained_backbone(subject)
    features = extract(encoder, subject.source, LAYERS, key=key_of(encoder) if cache else None)
    layers = {REPRESENTATION: features.representation[chosen_N], EMBEDDING: features.embedding[chosen_N]}
    # Without the run's settings, the views are the usual ones of such samples, drawn by one seed.
    views = view_pairs(replace(subject, settings=None, own_views=None), encoder, LAYERS, chosen_N)
    own = view_pairs(subject, encoder, LAYERS, chosen_N) if subject.has_views else {}
    places = {name: measure_place(z_ND, views=own.get(name)).figures for name, z_ND in layers.items()}
    evidence = replace(from_folder(subject), places=places, weight_change=weight_change(subject, backbone))
    left_out = []
    for group in range(GROUPS):
        is_left_N = torch.arange(len(chosen_N)) % GROUPS != group
        parts = {name: z_ND[is_left_N] for name, z_ND in layers.items()}
        pairs = {name: (one[is_left_N], other[is_left_N]) for name, (one, other) in views.items()}
        left_out.append(unlabelled_figures(parts, pairs, [DECIDES])[DECIDES.key])
    return _Measured(
        name=subject.name,
        faults=tuple(finding.title for finding in find(evidence) if finding.level == "severe"),
        figures=unlabelled_figures(layers, views),
        left_out=tuple(left_out),
    )


def _candidate(own: _Measured, first: _Measured) -> Candidate:
    """An encoder with its difference to the first one."""
    behind = first.score - own.score
    gaps = [one - other for one, other in zip(first.left_out, own.left_out, strict=True)]
    half = jackknife_half_width(gaps)
    return Candidate(own.name, own.figures, own.faults, behind, behind - half, behind + half)
