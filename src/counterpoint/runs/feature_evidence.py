"""Gather the evidence about features from anywhere, and the accuracies for a diagnosis.

If there is no evaluation, accuracies of kNN and a linear probe are measured on few samples.
"""

# N samples, M of them that are looked at, B of the bank, Q queries, D features

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from sklearn.decomposition import PCA
from torch import Tensor

from counterpoint.core.array_layout import finite_vectors, to_samples, to_unit_float
from counterpoint.core.derived_files import read_derived
from counterpoint.core.errors import DataError
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.schemas import EvaluationRecord, EvaluationRow, read_record
from counterpoint.data.formats.labels import Labels, labels_as_asked
from counterpoint.data.order import Split, split_source
from counterpoint.data.source import Source
from counterpoint.diagnostics.evidence import (
    EMBEDDING,
    GREY_INPUT,
    RAW_INPUT,
    REPRESENTATION,
    UNTRAINED,
    ClassRecord,
    Evidence,
)
from counterpoint.diagnostics.gain import KNN, PROBE, UNTRAINED_ENCODER
from counterpoint.diagnostics.label_agreement import LabelAgreement
from counterpoint.diagnostics.measure import measure_place
from counterpoint.evaluation.features import PCA_DIMS
from counterpoint.evaluation.knn import Vote, knn_leave_one_out, knn_predict
from counterpoint.evaluation.linear_probe import fit_probe
from counterpoint.evaluation.metric_types import MIN_QUERIES, accuracy, row_of
from counterpoint.evaluation.subject import DEFAULT_HOLDOUT, Subject
from counterpoint.evaluation.vector_table import Table
from counterpoint.runs.class_comparison import class_record

MOST_BANK, MOST_QUERIES = 8000, 2000  # samples that vote, and queries
MOST_FITTED = 4000  # of the bank, that a probe is fitted to
WIDEST = 512  # dimensions of raw input up to which its components are exact
MOST_CLASSES = 500  # evenly spaced; a probe of 10,000 classes of two samples takes minutes, and tells no more
FEW = 1000  # labelled samples up to which each is a query in turn, rather than a fifth of them
NUM_FOLDS = 5
NEAREST, FEWEST_NEAREST, TEMPERATURE = 20, 5, 0.1

Accuracies = tuple[EvaluationRow, ...]


@dataclass(frozen=True)
class GivenFeatures:
    """Features from anywhere, without the rows that are not finite.

    Attributes:
        z_ND: features, all finite.
        other_ND: features of another view of the same samples; None if there is none.
        labels: labels of the samples; None if there are none.
        names: names of the samples.
        not_finite: names of the rows that were left out.
        kept_N: positions of the others among all rows.
        source: samples that the features were computed from, row by row as they were given; None if not at hand.
    """

    z_ND: Tensor
    other_ND: Tensor | None
    labels: Labels | None
    names: tuple[str, ...]
    not_finite: tuple[str, ...]
    kept_N: Tensor
    source: Source | None = None


def given_features(features: Any, labels: Any, views: Any, source: Source | None = None) -> GivenFeatures:
    """Check features, their labels and those of another view.

    Raises:
        DataError: fewer than two rows, or labels, views or samples that do not fit.
    """
    table = features if isinstance(features, Table) else None
    name = str(table.path) if table and table.path else "features"
    z_ND, is_finite_N = finite_vectors(table.vectors if table else features, name=name)
    if len(z_ND) < 2:
        raise DataError(f"{name} must have at least 2 rows, got {len(z_ND)}")
    names = table.names if table else tuple(map(str, range(len(is_finite_N))))
    finite, odd = ([names[row] for row in part_N.nonzero()[:, 0].tolist()] for part_N in (is_finite_N, ~is_finite_N))
    other_ND = None if views is None else to_samples(views, "vectors", name="views")
    if other_ND is not None and other_ND.shape != (shape := (len(is_finite_N), z_ND.shape[1])):
        raise DataError(f"views must have the shape of the features, {shape}, got {tuple(other_ND.shape)}")
    if source is not None and len(source) != len(is_finite_N):
        raise DataError(
            f"{name} has {len(is_finite_N)} rows and {source.name} {len(source)} samples; data of features must be "
            "what they were computed from, in their order"
        )
    # Labels that are given count more than those that came with the table, and these more than those of the samples.
    own = table.labels if table and labels is None else labels
    numbered = labels_as_asked(own, names, lambda: None)
    if numbered is None and source is not None and source.labels is not None:
        numbered = Labels(source.labels, source.class_names)
    return GivenFeatures(
        z_ND=z_ND,
        other_ND=other_ND if other_ND is None or is_finite_N.all() else other_ND[is_finite_N],
        labels=numbered and replace(numbered, numbers=numbered.numbers[is_finite_N]),
        names=tuple(finite),
        not_finite=tuple(odd),
        kept_N=is_finite_N.nonzero()[:, 0],
        source=source,
    )


def evidence_of_features(features: GivenFeatures, threshold: float) -> Evidence:
    """Gather the evidence about features from anywhere, from which findings are drawn.

    Args:
        features: checked features, with their labels and views.
        threshold: value above which a feature of a unit-length vector counts as active.
    """
    z_ND, labels = features.z_ND, features.labels
    pair = None if features.other_ND is None else (z_ND, features.other_ND)
    place = measure_place(z_ND, views=pair, labels=labels.numbers if labels else None, threshold=threshold)
    votes, classes = (), None
    if labels is not None:
        # A probe that meets outliers says nothing of the other samples.
        numbers_N = labels.numbers.index_fill(0, place.suspects["outliers"], -1)
        samples = chosen_samples(numbers_N, split_source(len(z_ND), numbers_N, DEFAULT_HOLDOUT))
        raw = {} if features.source is None else raw_input(features.source, features.kept_N[samples.positions])
        votes = accuracies({REPRESENTATION: z_ND[samples.positions], **raw}, samples, labels.class_names)
        classes = class_record(z_ND, labels.numbers, labels.class_names)
        classes = with_clusters(classes, place.agreement, labels.class_names)
    return Evidence(
        {EMBEDDING: place.figures},
        votes=votes,
        is_nonnegative=is_rectified(z_ND),
        classes=classes,
        not_finite=features.not_finite,
        suspects=place.suspect_names(features.names),
    )


def with_clusters(
    record: ClassRecord | None, agreement: LabelAgreement | None, class_names: tuple[str, ...]
) -> ClassRecord | None:
    """Add the names of classes that share a cluster, and of classes that lie in two, if they are known."""
    if record is None or agreement is None:
        return record
    pairs = tuple((class_names[a], class_names[b]) for a, b in agreement.shared)
    return record.model_copy(update={"shared": pairs, "parted": tuple(class_names[c] for c in agreement.parted)})


def is_rectified(z_ND: Tensor) -> bool:
    """Tell whether features of unknown origin look like those of a non-negative map: values of 0, and none below."""
    return float(z_ND.min()) == 0


@dataclass(frozen=True)
class AskedSamples:
    """Labelled samples and how they are divided.

    Attributes:
        positions: positions of all samples that are looked at.
        labels_M: class numbers of these samples.
        num_bank: size of the bank, which comes first; the others are queries. None if each sample is a query in turn.
    """

    positions: Tensor
    labels_M: Tensor
    num_bank: int | None

    @property
    def queries(self) -> slice:
        """The queries, among the positions."""
        return slice(self.num_bank or 0, None)


def chosen_samples(labels_N: Tensor, split: Split, *, in_turn: bool = True) -> AskedSamples:
    """Choose labelled samples to measure accuracies with; many samples or classes are thinned evenly.

    Args:
        labels_N: class numbers of all samples, -1 for a sample without a label.
        split: samples of the bank, and queries.
        in_turn: True makes each sample a query in turn if there are few samples, independent of the split.
    """
    classes = labels_N[labels_N >= 0].unique()
    is_chosen_N = torch.isin(labels_N, evenly_spaced(classes, MOST_CLASSES))
    chosen = is_chosen_N.nonzero()[:, 0]
    if in_turn and len(chosen) <= FEW:
        return AskedSamples(chosen, labels_N[chosen], None)
    bank, queries = (part[is_chosen_N[part]] for part in (split.train, split.held_out))
    bank, queries = evenly_spaced(bank, MOST_BANK), evenly_spaced(queries, MOST_QUERIES)
    positions = torch.cat([bank, queries])
    return AskedSamples(positions, labels_N[positions], len(bank))


def accuracies(features: Mapping[str, Tensor], samples: AskedSamples, class_names: tuple[str, ...]) -> Accuracies:
    """Accuracies of kNN and a linear probe on the same queries; empty with too few queries or fewer than two classes.

    Args:
        features: features of the samples at ``samples.positions``, by their names in the rows.
        samples: bank and queries.
        class_names: names of all classes.
    """
    _, counts = samples.labels_M[: samples.num_bank].unique(return_counts=True)
    fewest = 2 if samples.num_bank is None else 1  # of a class, as each is left out in turn
    if len(samples.labels_M[samples.queries]) < MIN_QUERIES or int((counts >= fewest).sum()) < 2:
        return ()
    rows = []
    for name, features_MD in features.items():
        z_MD = features_MD
        if name in (RAW_INPUT, GREY_INPUT):  # by the principal components of the bank, as in an evaluation
            bank_BD = z_MD[: samples.num_bank]
            count = min(PCA_DIMS, z_MD.shape[1], len(bank_BD) - 1)
            solver = "randomized" if z_MD.shape[1] > WIDEST else "full"
            model = PCA(count, svd_solver=solver, random_state=0).fit(bank_BD.numpy())
            z_MD = torch.from_numpy(model.transform(z_MD.numpy())).float()
        predictions = {KNN: _predict_by_knn(z_MD, samples)}
        if name != GREY_INPUT:
            predictions[PROBE] = _predict_by_probe(z_MD, samples)
        for protocol, (predicted_Q, settings) in predictions.items():
            score = accuracy(predicted_Q, samples.labels_M[samples.queries], settings)
            rows.append(row_of(name, protocol, score, class_names))
    return tuple(rows)


def accuracies_of_subject(judged: Subject, features: Mapping[str, Tensor]) -> Accuracies:
    """Return the accuracies of the subject's evaluation, or measure them beside those of the raw input.

    Args:
        judged: an encoder beside samples; samples without labels give no accuracies.
        features: features of all samples, by place.
    """
    source = judged.source
    if judged.folder is not None and judged.is_own_record and judged.folder.evaluation.exists():
        file = judged.folder.evaluation
        record = read_record(EvaluationRecord, read_derived(judged.folder, file), str(file))
        # Without labels they were given to `evaluate` alone; with them the samples may have changed since.
        if source.labels is None or record.split.data_fingerprint in (None, source.fingerprint):
            return record.rows
    if source.labels is None:
        return ()
    # The training samples of a run say nothing about new samples if the run learned from labels.
    samples = chosen_samples(source.labels, judged.split, in_turn=judged.folder is None and len(judged.sources) == 1)
    positions = samples.positions
    named = {UNTRAINED_ENCODER if name == UNTRAINED else name: z_ND[positions] for name, z_ND in features.items()}
    return accuracies({**named, **raw_input(source, positions)}, samples, source.class_names)


def raw_input(source: Source, positions: Tensor) -> dict[str, Tensor]:
    """Return samples before any encoder as rows, and pictures also without their colours."""
    raw = to_unit_float(source.store.fetch(positions.tolist()))
    rows = {RAW_INPUT: raw.flatten(1)}
    if source.kind == "images" and raw.shape[1] > 1:
        rows[GREY_INPUT] = raw.mean(dim=1).flatten(1)
    return rows


def _predict_by_knn(z_MD: Tensor, samples: AskedSamples) -> tuple[Tensor, dict[str, Any]]:
    bank_B = samples.labels_M[: samples.num_bank]
    # Fewer than the smallest class has, or a rare class never wins.
    smallest = int(torch.bincount(bank_B)[bank_B.unique()].min())
    vote = Vote(min(NEAREST, max(smallest, FEWEST_NEAREST), len(bank_B) - (samples.num_bank is None)), TEMPERATURE)
    if samples.num_bank is None:
        return knn_leave_one_out(z_MD, bank_B, vote), {"k": vote.k, "queries": "each left out in turn"}
    return knn_predict(z_MD[: samples.num_bank], bank_B, z_MD[samples.num_bank :], vote), {"k": vote.k}


def _predict_by_probe(z_MD: Tensor, samples: AskedSamples) -> tuple[Tensor, dict[str, Any]]:
    labels_M, num_bank = samples.labels_M, samples.num_bank
    if num_bank is not None:
        fitted = evenly_spaced(torch.arange(num_bank), MOST_FITTED)
        return fit_probe(z_MD[fitted], labels_M[fitted]).predict(z_MD[num_bank:]), {}
    # The n-th sample of each class goes to fold n mod 5: all folds have all classes that are large enough.
    order_M = labels_M.argsort(stable=True)
    fold_M, predicted_M = torch.empty_like(labels_M), torch.empty_like(labels_M)
    fold_M[order_M] = torch.arange(len(labels_M)) % NUM_FOLDS
    for fold in range(NUM_FOLDS):
        is_query_M = fold_M == fold
        probe = fit_probe(z_MD[~is_query_M], labels_M[~is_query_M])
        predicted_M[is_query_M] = probe.predict(z_MD[is_query_M])
    return predicted_M, {"queries": f"each in one of {NUM_FOLDS} folds"}
