"""Compare the class means of a labelled run with the optimum of its loss; proportions and loss come from the run."""

# N samples, D features, C classes

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.files import finite_or_null
from counterpoint.core.run import Run
from counterpoint.core.settings import LookSettings
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.order import thin
from counterpoint.diagnostics.class_geometry import (
    class_cosines,
    class_geometry,
    class_spreads,
    frequent_cosine,
    gram_distance,
    mean_cosine,
    rare_classes,
    rare_cosine,
    within_share,
)
from counterpoint.diagnostics.evidence import ClassRecord, ClassRow, OptimumRecord
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import EMBEDDING, extract
from counterpoint.evaluation.load_subject import Samples, is_encoder, one_checkpoint, open_subject
from counterpoint.evaluation.subject import Subject
from counterpoint.losses.class_level import COVERED, ClassLevel, LogOfSum
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.methods.catalogue import method_named
from counterpoint.runs.pair_inspection import learned_weights, settings_loss
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry

EASY_CLASSES = 50  # largest number for which a diagnosis solves the optimum: well below a second
MOST_CLASSES = 2048  # largest number of which a diagnosis keeps a table
TOLERANCE = 1e-8
MERGED = 1e-6  # distance of a class mean of an optimum from the centre, up to which it has no direction
OWN_POSITIVES = (
    "The optimum holds for positives drawn from the anchor's class; a sample's only positive here is its own second "
    "view, and spread-out classes may do better (docs/theory.md)."
)


@dataclass(frozen=True)
class ClassQuestion:
    """A question to ``theory.optimal_geometry``.

    Attributes:
        proportions_C: share of each class of ``numbers_C`` in what the run trains on.
        numbers_C: class numbers, ascending.
        positions_N: positions of the training samples that have a class.
        num_unlabelled: number of training samples without a class.
        record: effect of the loss on classes.
        num_negatives: number of independent negatives of an anchor, or infinity.
        dimension: width of the embedding if it may limit the optimum; else None.
        nonnegative: True if the embedding has no negative entries.
        notes: sentences that a reader must know.
    """

    proportions_C: Tensor
    numbers_C: Tensor
    positions_N: Tensor
    num_unlabelled: int
    record: ClassLevel
    num_negatives: float
    dimension: int | None
    nonnegative: bool
    notes: tuple[str, ...]

    @property
    def words(self) -> Mapping[str, str]:
        """The question in words."""
        record, number = self.record, self.num_negatives
        how_many = "infinitely many" if math.isinf(number) else f"{number:.0f}"
        words = {"loss": record.name, "negatives": f"{how_many}, of {'other' if record.supervised else 'any'} class"}
        if isinstance(record, LogOfSum):
            words |= {"temperature": f"{1 / record.scale:g}", "epsilon": f"{record.epsilon:g}"}
            words |= {"margin": f"{record.margin:.4g}"} if record.margin else {}
        else:
            words["scale"] = f"{record.scale:g}"
        words |= {"dimension": str(self.dimension)} if self.dimension is not None else {}
        return words | ({"features": "non-negative"} if self.nonnegative else {})


@dataclass(frozen=True)
class ClassComparison:
    """Measured classes beside the optimum.

    Attributes:
        question: the question to the theory.
        geometry: answer of the theory, with the certificate.
        record: measured classes and optimum, in plain values.
    """

    question: ClassQuestion
    geometry: Geometry
    record: ClassRecord


@usual_modes()
def compare_classes(
    run: Run | str | Path, *, checkpoint: str | None = None, tolerance: float = TOLERANCE, quiet: bool = False
) -> ClassComparison:
    """Measure the class means of a run, and solve for those that its loss would have at these class proportions.

    Args:
        run: the run or its folder; it must have labels.
        checkpoint: the step of a state that is kept; None takes the last one.
        tolerance: tolerance of the optimum; see ``optimal_geometry``.
        quiet: show no progress.

    Raises:
        UsageError: no run, no labels, or a loss that theory does not cover.
    """
    if is_encoder(run) or (isinstance(run, str | Path) and Path(run).is_file()):
        raise UsageError(f"{run} is not a run folder; only a run has a loss and proportions to compare with")
    settings = LookSettings(checkpoint=checkpoint)
    subject = one_checkpoint(open_subject(run, Samples(), settings, Reporter(quiet=quiet)), checkpoint)
    question = class_question(subject)  # first: cases outside of the theory are reported before anything is encoded
    features = extract(subject.encoder, subject.source, [EMBEDDING], cache=settings.cache)
    return _compare_with_optimum(subject, features.embedding, question, tolerance)


def class_record(z_ND: Tensor, labels_N: Tensor | None, class_names: tuple[str, ...]) -> ClassRecord | None:
    """The record of the classes of features from anywhere; None unless they are 2 to ``MOST_CLASSES``.

    Args:
        z_ND: features.
        labels_N: class numbers, -1 for a sample without a label.
        class_names: names of the classes, by class number.

    >>> z, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 1, -1])
    >>> [(row.name, row.count) for row in class_record(z, labels, ("cat", "dog")).rows]
    [('cat', 1), ('dog', 1)]
    """
    if labels_N is None or not 2 <= len(labels_N[labels_N >= 0].unique()) <= MOST_CLASSES:
        return None
    classes = class_geometry(z_ND, labels_N)
    is_rare_C, rare = rare_classes(classes.counts_C), rare_cosine(classes)
    is_rare = [False] * len(classes.counts_C) if is_rare_C is None else is_rare_C.tolist()
    per_class = zip(
        classes.labels_C.tolist(), classes.counts_C.tolist(), class_spreads(classes).tolist(), is_rare, strict=True
    )
    return ClassRecord(
        rows=tuple(
            ClassRow(name=class_names[number], count=count, spread=spread, is_rare=rare_one)
            for number, count, spread, rare_one in per_class
        ),
        num_unlabelled=int((labels_N < 0).sum()),
        within_share=finite_or_null(within_share(classes)),
        rare_cosine=finite_or_null(rare.value),
        low=finite_or_null(rare.low),
        high=finite_or_null(rare.high),
        frequent_cosine=finite_or_null(frequent_cosine(classes)),
    )


def judged_classes(subject: Subject, embedding_ND: Tensor) -> ClassRecord | None:
    """The record of the classes of a diagnosed subject, beside the optimum if that is known and fast to compute.

    Args:
        subject: a run or an encoder from elsewhere, with its samples.
        embedding_ND: embeddings of all samples.
    """
    try:
        question = class_question(subject)
        is_convex = not isinstance(question.record, LogOfSum) or question.record.hardness == 0
        needs_search = not is_convex or not (question.dimension is None or question.nonnegative)
        if (num_classes := len(question.numbers_C)) > EASY_CLASSES or needs_search:
            raise UsageError(
                f"the optimum of {num_classes} classes takes longer than a diagnosis: counterpoint geometry --run "
                f"{subject.name}"
            )
        return _compare_with_optimum(subject, embedding_ND, question).record
    except UsageError as error:
        record = class_record(embedding_ND, subject.source.labels, subject.source.class_names)
        return record and record.model_copy(update={"why_no_optimum": str(error)})


def class_question(subject: Subject) -> ClassQuestion:
    r"""Read the question from a run.

    A two-view batch of n samples has its negatives in n - 1 pairs of one class each: k = n - 1 draws with every term
    twice, a margin of log 2 (``docs/theory-reference.md``, Two views; imbalanced2026, Eq. 14).

    Args:
        subject: subject opened from a run, with its samples.

    Raises:
        UsageError: no labels, fewer than two classes, or a loss that theory does not cover; says which it does.
    """
    settings, source = subject.settings, subject.source
    if settings is None or subject.folder is None:
        raise UsageError("only a run has a loss and proportions to compare with; give a run folder")
    draws = _read_draws(subject, subject.folder.read_status().negatives_per_anchor)
    if source.labels is None:
        raise UsageError(
            f"{subject.name} has no labels, which say what its classes are; give --labels FILE (Python: labels=), one "
            "per sample in the order of its data"
        )
    positions_N = subject.split.train
    if not subject.is_own_data:
        positions_N = torch.arange(len(source))
    elif float(settings.source.holdout) == 0:  # what evaluations hold out was trained on, too
        positions_N = thin(torch.arange(len(source)), source.labels, settings.source, source.class_names)
    is_balanced = settings.source.sampling == "balanced"
    notes = {
        OWN_POSITIVES: not (method_named(settings.method).needs_labels or draws.uses_labels),
        "Measured on samples as they are, not on their views.": subject.has_views,
        "Classes are drawn equally often (source.sampling balanced).": is_balanced,
        "Proportions are those of the samples given, not of the run's own.": not subject.is_own_data,
    }
    has_label_N = source.labels[positions_N] >= 0
    numbers_C, counts_C = source.labels[positions_N[has_label_N]].unique(return_counts=True)
    if len(numbers_C) < 2:
        raise UsageError(f"a geometry needs at least 2 classes, and these samples have {len(numbers_C)}")
    proportions_C = counts_C.double() / counts_C.sum()
    width = subject.encoder.embedding_dims
    return ClassQuestion(
        proportions_C=torch.full_like(proportions_C, 1 / len(numbers_C)) if is_balanced else proportions_C,
        numbers_C=numbers_C,
        positions_N=positions_N[has_label_N],
        num_unlabelled=int((~has_label_N).sum()),
        record=draws.record,
        num_negatives=draws.number,
        dimension=width if width < len(numbers_C) - 1 else None,
        nonnegative=settings.output.nonnegative not in ("none", "auto"),
        notes=(*draws.notes, *(note for note, holds in notes.items() if holds)),
    )


@dataclass(frozen=True)
class _LossDraws:
    """The effect of the loss on classes, and its number of independent negatives."""

    record: ClassLevel
    number: float
    uses_labels: bool
    notes: tuple[str, ...] = ()


def _read_draws(subject: Subject, num_negatives: int | None) -> _LossDraws:
    settings = subject.settings
    assert settings is not None
    wiring = method_named(settings.method).wiring
    if settings.loss.name == CUSTOM:
        raise UsageError(
            f"{subject.name} was trained with a loss of your own, of which a run folder holds no code; covered are "
            f"{COVERED}. With cp.theory.optimal_geometry(proportions, loss=...) you can ask for it yourself"
        )
    if wiring == "cross-modal":
        raise UsageError(
            f"{subject.name} has two encoders, whose class means may differ; the comparison is of one: method "
            f"{settings.method} is not covered"
        )
    loss = settings_loss(subject, settings)
    if next(loss.parameters(), None) is not None:  # a scale that it has learned
        loss.load_state_dict(learned_weights(subject))
    record = loss.class_level()
    if wiring == "queue":
        return _LossDraws(record, float(num_negatives or settings.target.queue_size), loss.uses_labels)
    batch = min(int(settings.batch_size), len(subject.split.train))
    pairing = next((part.pairing for part in loss.modules() if isinstance(part, PairLoss)), None)
    is_two_view = pairing is not None and pairing.negatives == "two-view"
    number = float(batch - 1 if num_negatives is None else num_negatives // (1 + is_two_view))
    if record.num_negatives is not None or (record.is_mean and isinstance(record, LogOfSum)):  # it says itself how many
        return _LossDraws(record, float(record.num_negatives or math.inf), loss.uses_labels)
    if not (is_two_view and isinstance(record, LogOfSum)):
        return _LossDraws(record, number, loss.uses_labels)
    # docs/theory-reference.md, Two views: n - 1 draws, every term twice.
    record = replace(record, margin=record.margin + math.log(2))
    words = f"Both views of {number:.0f} other samples are {number:.0f} draws, each twice: a margin of log 2."
    return _LossDraws(record, number, loss.uses_labels, (words,))


def _compare_with_optimum(
    subject: Subject, embedding_ND: Tensor, question: ClassQuestion, tolerance: float = TOLERANCE
) -> ClassComparison:
    """Measure the samples of a question, and those that its run held out, beside the optimum."""
    source = subject.source
    assert source.labels is not None
    geometry = optimal_geometry(
        question.proportions_C,
        loss=question.record,
        num_negatives=question.num_negatives,
        dimension=question.dimension,
        nonnegative=question.nonnegative,
        tolerance=tolerance,
    )
    z_ND, labels_N = embedding_ND[question.positions_N], source.labels[question.positions_N]
    record = class_record(z_ND, labels_N, source.class_names)
    assert record is not None
    classes, names = class_geometry(z_ND, labels_N), [row.name for row in record.rows]
    distance = gram_distance(classes, geometry.gram)
    is_rare_C = rare_classes(classes.counts_C)
    rare = None if is_rare_C is None else float(mean_cosine(geometry.means.T, is_rare_C, noise=MERGED))
    optimum = OptimumRecord(
        question=question.words,
        measured=tuple(map(tuple, class_cosines(classes).tolist())),
        optimum=tuple(map(tuple, geometry.gram.tolist())),
        distance=distance.value,
        low=finite_or_null(distance.low),
        high=finite_or_null(distance.high),
        held_out=_held_out_gap(subject, embedding_ND, question, geometry),
        risk=geometry.risk,
        lower_bound=finite_or_null(geometry.lower_bound),
        relative_gap=finite_or_null(geometry.relative_gap),
        status=geometry.status,
        is_certified=geometry.is_certified,
        merged=tuple(tuple(names[place] for place in group) for group in geometry.merged_classes),
        rare_cosine=finite_or_null(rare),
        notes=question.notes,
    )
    record = record.model_copy(update={"optimum": optimum, "num_unlabelled": question.num_unlabelled})
    return ClassComparison(question, geometry, record)


def _held_out_gap(subject: Subject, embedding_ND: Tensor, question: ClassQuestion, geometry: Geometry) -> float | None:
    """The distance of held-out samples from the optimum; None if they lack a class, or nothing was held out."""
    labels, settings = subject.source.labels, subject.settings
    if labels is None or settings is None or not subject.is_own_data or float(settings.source.holdout) == 0:
        return None
    held_out_N = subject.split.held_out
    held_out_N = held_out_N[torch.isin(labels[held_out_N], question.numbers_C)]
    if len(labels[held_out_N].unique()) < len(question.numbers_C):
        return None
    return gram_distance(class_geometry(embedding_ND[held_out_N], labels[held_out_N]), geometry.gram).value
