"""From a labelled run to the question that theory answers: proportions, loss, negatives and limits, nothing retyped."""

# C classes

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.user_objects import CUSTOM
from counterpoint.data.long_tail import thin
from counterpoint.engine.checkpoint import list_checkpoints, load_checkpoint
from counterpoint.engine.checkpoint_format import step_of
from counterpoint.evaluation.subject import Subject
from counterpoint.losses.class_level import COVERED, ClassLevel, LogOfSum
from counterpoint.losses.loss import Loss
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.methods.catalogue import method_named
from counterpoint.methods.wiring import loss_of

OWN_POSITIVES = (
    "The optimum holds for positives drawn from the anchor's class; a sample's only positive here is its own second "
    "view, and spread-out classes may do better (docs/theory.md)."
)
PLAIN_SAMPLES = "Measured on samples as they are, not on their views."
OF_LOSS = "loss."  # before the names of the loss's own weights in a checkpoint


@dataclass(frozen=True)
class ClassQuestion:
    """What to ask ``theory.optimal_geometry``.

    Attributes:
        proportions_C: share of each class of ``numbers_C`` in what the run trains on.
        numbers_C: class numbers, ascending.
        positions_N: of the training samples with a class.
        num_unlabelled: training samples without one.
        record: what the loss does to classes.
        num_negatives: independent draws per anchor, or infinity.
        dimension: of the embedding where it may limit the optimum; else None.
        nonnegative: the embedding has no negative entries.
        notes: what a reader must know.
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
    def is_easy(self) -> bool:
        """Whether a certified answer takes no search."""
        is_convex = not isinstance(self.record, LogOfSum) or self.record.hardness == 0
        return is_convex and (self.dimension is None or self.nonnegative)

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


def class_question(subject: Subject) -> ClassQuestion:
    r"""Read the question from a run.

    A two-view batch of n samples has its negatives in n - 1 pairs of one class each: k = n - 1 draws with every term
    twice, a margin of log 2 (``docs/theory.md``, Two views; imbalanced2026, Eq. 14).

    Args:
        subject: of a run, with its samples.

    Raises:
        UsageError: no labels, fewer than two classes, or a loss that theory does not cover; says which it does.
    """
    settings = subject.settings
    if settings is None or subject.folder is None:
        raise UsageError("only a run has a loss and proportions to compare with; give a run folder")
    draws, known = _draws(subject), _labelled(subject)
    numbers_C, counts_C = known.labels_N.unique(return_counts=True)
    if len(numbers_C) < 2:
        raise UsageError(f"{subject.name} trains on {len(numbers_C)} labelled class; a geometry needs at least 2")
    notes = [*draws.notes, *([PLAIN_SAMPLES] if subject.has_views else [])]
    if settings.source.sampling == "balanced":
        counts_C = torch.ones_like(counts_C)
        notes.append("Classes are drawn equally often (source.sampling balanced).")
    if not subject.is_own_data:
        notes.append("Proportions are those of the samples given, not of the run's own.")
    width = subject.encoder.embedding_dims
    return ClassQuestion(
        proportions_C=counts_C.double() / counts_C.sum(),
        numbers_C=numbers_C,
        positions_N=known.positions_N,
        num_unlabelled=known.num_unlabelled,
        record=draws.record,
        num_negatives=draws.number,
        dimension=width if width < len(numbers_C) - 1 else None,
        nonnegative=settings.output.nonnegative not in ("none", "auto"),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Known:
    """Training samples with a class, and how many have none."""

    positions_N: Tensor
    labels_N: Tensor
    num_unlabelled: int


def _labelled(subject: Subject) -> _Known:
    """The labelled samples that the run trains on; of other data all labelled samples."""
    source, settings = subject.source, subject.settings
    if source.labels is None:
        raise UsageError(
            f"{subject.name} has no labels, which say what its classes are; give --labels FILE (Python: labels=), one "
            "per sample in the order of its data"
        )
    assert settings is not None
    positions_N = subject.split.train
    if not subject.is_own_data:
        positions_N = torch.arange(len(source))
    elif float(settings.source.holdout) == 0:  # what evaluations hold out was trained on, too
        positions_N = thin(torch.arange(len(source)), source.labels, settings.source, source.class_names).positions
    labels_N = source.labels[positions_N]
    is_known_N = labels_N >= 0
    return _Known(positions_N[is_known_N], labels_N[is_known_N], int((~is_known_N).sum()))


@dataclass(frozen=True)
class _Draws:
    """What the loss does to classes, with how many independent negatives."""

    record: ClassLevel
    number: float
    notes: tuple[str, ...]


def _draws(subject: Subject) -> _Draws:
    """Read loss and negatives from the settings."""
    settings, folder = subject.settings, subject.folder
    assert settings is not None
    assert folder is not None
    entry, counted = method_named(settings.method), folder.read_status().negatives_per_anchor
    if settings.loss.name == CUSTOM:
        raise UsageError(
            f"{subject.name} was trained with a loss of your own, of which a run folder holds no code; covered are "
            f"{COVERED}. With cp.theory.optimal_geometry(proportions, loss=...) you can ask for it yourself"
        )
    if entry.wiring == "cross-modal":
        raise UsageError(
            f"{subject.name} has two encoders, whose class means may differ; the comparison is of one: method "
            f"{settings.method} is not covered"
        )
    sizes = {"num_classes": len(subject.source.class_names), "num_features": subject.encoder.embedding_dims}
    further = sizes if entry.wiring == "classification" else None
    loss = loss_of(settings, num_classes=sizes["num_classes"], further=further)
    notes = () if entry.needs_labels or loss.uses_labels else (OWN_POSITIVES,)
    record = _with_learned(loss, subject).class_level()
    if entry.wiring == "queue":
        return _Draws(record, float(counted or settings.target.queue_size), notes)
    batch = min(int(settings.batch_size) // settings.engine.accumulate, len(subject.split.train))
    is_two_view = _is_two_view(loss)
    return _of_batch(record, batch - 1 if counted is None else counted // 2 if is_two_view else counted, loss, notes)


def _is_two_view(loss: Loss) -> bool:
    """Whether both views of the other samples are negatives."""
    pairing = next((part.pairing for part in loss.modules() if isinstance(part, PairLoss)), None)
    return pairing is not None and pairing.negatives == "two-view"


def _of_batch(record: ClassLevel, number: int, loss: Loss, notes: tuple[str, ...]) -> _Draws:
    """A batch whose other samples are so many draws, unless the loss says itself how many it takes."""
    if record.num_negatives is not None or (record.is_mean and isinstance(record, LogOfSum)):
        return _Draws(record, float(record.num_negatives or math.inf), notes)
    if _is_two_view(loss) and isinstance(record, LogOfSum):
        # docs/theory.md, Two views: n - 1 draws, every term twice.
        record = replace(record, margin=record.margin + math.log(2))
        notes = (f"Both views of {number} other samples are {number} draws, each twice: a margin of log 2.", *notes)
    return _Draws(record, float(number), notes)


def question_of_features(
    loss: Loss, labels_N: Tensor, width: int, batch_size: int, *, nonnegative: bool
) -> ClassQuestion:
    """What to ask for features from anywhere and a loss, as if batches of so many samples were drawn of them.

    Args:
        loss: any.
        labels_N: class numbers, -1 where a sample has none.
        width: features.
        batch_size: samples of a batch.
        nonnegative: the features have no negative entries.

    Raises:
        UsageError: fewer than two classes, or a loss that theory does not cover.
    """
    positions_N = (labels_N >= 0).nonzero()[:, 0]
    numbers_C, counts_C = labels_N[positions_N].unique(return_counts=True)
    if len(numbers_C) < 2:
        raise UsageError(f"a geometry needs at least 2 classes, got {len(numbers_C)}")
    notes = () if loss.uses_labels else (OWN_POSITIVES,)
    draws = _of_batch(loss.class_level(), min(batch_size, len(positions_N)) - 1, loss, notes)
    return ClassQuestion(
        proportions_C=counts_C.double() / counts_C.sum(),
        numbers_C=numbers_C,
        positions_N=positions_N,
        num_unlabelled=int((labels_N < 0).sum()),
        record=draws.record,
        num_negatives=draws.number,
        dimension=width if width < len(numbers_C) - 1 else None,
        nonnegative=nonnegative,
        notes=draws.notes,
    )


def _with_learned(loss: Loss, subject: Subject) -> Loss:
    """The loss with the scale that it has learned, from the newest checkpoint; as it is where it learns none."""
    if next(loss.parameters(), None) is None:
        return loss
    assert subject.folder is not None
    kept = list_checkpoints(subject.folder.checkpoints)
    if not kept:
        raise UsageError(
            f"{loss.card.name} learns its scale, and {subject.name} keeps no checkpoint that has it; train with "
            "--engine.keep 1 or more"
        )
    weights = load_checkpoint(max(kept, key=step_of)).state.model
    loss.load_state_dict({name[len(OF_LOSS) :]: value for name, value in weights.items() if name.startswith(OF_LOSS)})
    return loss
