"""Where a labelled run has its classes, beside where theory says that its loss would have them."""

# N samples, D features, C classes

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.data_settings import LookSettings
from counterpoint.core.errors import UsageError
from counterpoint.core.run import Run
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.validation import build
from counterpoint.data.formats.labels import Labels
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
from counterpoint.evaluation.feature_tables import key_of
from counterpoint.evaluation.features import EMBEDDING, extract
from counterpoint.evaluation.load_subject import Samples, is_encoder, one_checkpoint, open_subject
from counterpoint.evaluation.subject import Subject
from counterpoint.losses.loss import Loss
from counterpoint.runs.class_question import ClassQuestion, class_question, question_of_features
from counterpoint.runs.pair_inspection import USUAL_BATCH
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry

EASY_CLASSES = 50  # for which a diagnosis solves the optimum: well below a second
MOST_CLASSES = 2048  # of which a diagnosis keeps a table
TOLERANCE = 1e-8
MERGED = 1e-6  # distance of a class mean of an optimum from the centre, up to which it has no direction


@dataclass(frozen=True)
class ClassComparison:
    """Measured classes beside the optimum.

    Attributes:
        question: that was asked.
        geometry: its answer, with the certificate.
        record: both in plain values.
    """

    question: ClassQuestion
    geometry: Geometry
    record: ClassRecord


@usual_modes()
def compare_classes(
    run: Run | str | Path,
    *,
    data: Any = None,
    labels: Any = None,
    tolerance: float = TOLERANCE,
    quiet: bool = False,
    **look: Any,
) -> ClassComparison:
    """Measure the class means of a run, and solve for those that its loss would have at these class proportions.

    Args:
        run: with labels, or with ``labels``.
        data: other samples (anything ``train`` takes), or the array that it was trained on.
        labels: one class per sample.
        tolerance: see ``optimal_geometry``.
        quiet: show no progress.
        look: ``checkpoint`` (a step), ``device``, ``cache``, and what of the data is taken.

    Raises:
        UsageError: no run, no labels, or a loss that theory does not cover.
    """
    if is_encoder(run) or (isinstance(run, str | Path) and Path(run).is_file()):
        raise UsageError(f"{run} is no run folder; only a run has a loss and proportions to compare with")
    asked = build(LookSettings, look, "geometry")
    reporter = Reporter(quiet=quiet)
    judged = one_checkpoint(open_subject(run, Samples(data, labels), asked, reporter), asked.checkpoint)
    question = class_question(judged)  # first: what theory does not cover is said before anything is encoded
    key = key_of(judged.encoder) if asked.cache else None
    embedding_ND = extract(judged.encoder, judged.source, [EMBEDDING], key=key).embedding
    geometry = solve(question, tolerance)
    return ClassComparison(question, geometry, _compared_run(judged, embedding_ND, question, geometry))


def solve(question: ClassQuestion, tolerance: float = TOLERANCE) -> Geometry:
    """The optimum that a run's question asks for."""
    return optimal_geometry(
        question.proportions_C,
        loss=question.record,
        num_negatives=question.num_negatives,
        dimension=question.dimension,
        nonnegative=question.nonnegative,
        tolerance=tolerance,
    )


def class_record(z_ND: Tensor, labels_N: Tensor | None, class_names: tuple[str, ...]) -> ClassRecord | None:
    """The classes of features from anywhere; None without two classes.

    Args:
        z_ND: features.
        labels_N: class numbers, -1 where a sample has none.
        class_names: by number.

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
        within_share=_known(within_share(classes)),
        rare_cosine=_known(rare.value),
        low=_known(rare.low),
        high=_known(rare.high),
        frequent_cosine=_known(frequent_cosine(classes)),
    )


def judged_classes(subject: Subject, embedding_ND: Tensor) -> ClassRecord | None:
    """The classes of a diagnosed subject, beside the optimum where that is known and soon found.

    Args:
        subject: a run or an encoder from elsewhere, with its samples.
        embedding_ND: of all samples.
    """
    source = subject.source
    try:
        question = class_question(subject)
        _check_easy(question, f"counterpoint geometry --run {subject.name}")
        return _compared_run(subject, embedding_ND, question, solve(question))
    except UsageError as error:
        found = class_record(embedding_ND, source.labels, source.class_names)
        return found and found.model_copy(update={"why_no_optimum": str(error)})


def classes_of_features(loss: Loss, z_ND: Tensor, labels: Labels, *, nonnegative: bool) -> ClassRecord | None:
    """The classes of features from anywhere, beside the optimum of a loss where that is known and soon found.

    Args:
        loss: any.
        z_ND: features.
        labels: of the samples.
        nonnegative: the features have no negative entries.
    """
    try:
        question = question_of_features(loss, labels.numbers, z_ND.shape[1], USUAL_BATCH, nonnegative=nonnegative)
        _check_easy(question, "cp.theory.optimal_geometry(proportions, loss=...)")
        return _compared(z_ND, labels, question, solve(question))
    except UsageError as error:
        found = class_record(z_ND, labels.numbers, labels.class_names)
        return found and found.model_copy(update={"why_no_optimum": str(error)})


def _check_easy(question: ClassQuestion, instead: str) -> None:
    """Require an optimum that takes well below a second."""
    num_classes = len(question.numbers_C)
    if num_classes > EASY_CLASSES or not question.is_easy:
        raise UsageError(f"the optimum of {num_classes} classes takes longer than a diagnosis: {instead}")


def _compared_run(subject: Subject, embedding_ND: Tensor, question: ClassQuestion, geometry: Geometry) -> ClassRecord:
    """Training samples of a run, measured beside the optimum; samples that were held out, too."""
    source = subject.source
    assert source.labels is not None
    record = _compared(embedding_ND, Labels(source.labels, source.class_names), question, geometry)
    assert record.optimum is not None
    held_out = _held_out(subject, embedding_ND, question, geometry)
    return record.model_copy(update={"optimum": record.optimum.model_copy(update={"held_out": held_out})})


def _compared(embedding_ND: Tensor, labels: Labels, question: ClassQuestion, geometry: Geometry) -> ClassRecord:
    """The samples that a question is about, measured beside the optimum."""
    positions_N = question.positions_N
    z_ND, labels_N = embedding_ND[positions_N], labels.numbers[positions_N]
    record = class_record(z_ND, labels_N, labels.class_names)
    assert record is not None
    classes, names = class_geometry(z_ND, labels_N), [row.name for row in record.rows]
    distance = gram_distance(classes, geometry.gram)
    is_rare_C = rare_classes(classes.counts_C)
    optimum = OptimumRecord(
        question=question.words,
        measured=_rows(class_cosines(classes)),
        optimum=_rows(geometry.gram),
        distance=distance.value,
        low=_known(distance.low),
        high=_known(distance.high),
        risk=geometry.risk,
        lower_bound=_known(geometry.lower_bound),
        relative_gap=_known(geometry.relative_gap),
        status=geometry.status,
        is_certified=geometry.is_certified,
        merged=tuple(tuple(names[place] for place in group) for group in geometry.merged_classes),
        rare_cosine=None
        if is_rare_C is None
        else _known(float(mean_cosine(geometry.means.T, is_rare_C, noise=MERGED))),
        notes=question.notes,
    )
    return record.model_copy(update={"optimum": optimum, "num_unlabelled": question.num_unlabelled})


def _held_out(subject: Subject, embedding_ND: Tensor, question: ClassQuestion, geometry: Geometry) -> float | None:
    """The distance of samples that were held out of training; None where they lack a class, or none were."""
    labels, settings = subject.source.labels, subject.settings
    assert labels is not None
    assert settings is not None
    if not subject.is_own_data or float(settings.source.holdout) == 0:
        return None
    held_N = subject.split.held_out
    held_N = held_N[torch.isin(labels[held_N], question.numbers_C)]
    if len(labels[held_N].unique()) < len(question.numbers_C):
        return None
    return gram_distance(class_geometry(embedding_ND[held_N], labels[held_N]), geometry.gram).value


def _rows(matrix_CC: Tensor) -> tuple[tuple[float, ...], ...]:
    """A matrix as plain numbers."""
    return tuple(map(tuple, matrix_CC.tolist()))


def _known(value: float | None) -> float | None:
    """A finite number, or None: JSON has nothing else."""
    return value if value is not None and math.isfinite(value) else None
