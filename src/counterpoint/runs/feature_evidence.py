"""What findings about features from anywhere are drawn from."""

# N samples, D features

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from counterpoint.core.array_layout import finite_vectors, to_samples
from counterpoint.core.errors import DataError
from counterpoint.data.formats.labels import Labels, number_labels
from counterpoint.data.order import split_source
from counterpoint.data.source import Source
from counterpoint.diagnostics.evidence import EMBEDDING, REPRESENTATION, ClassRecord, Evidence
from counterpoint.diagnostics.label_agreement import LabelAgreement
from counterpoint.diagnostics.measure import measure_place
from counterpoint.evaluation.subject import DEFAULT_HOLDOUT
from counterpoint.evaluation.vector_table import Table
from counterpoint.runs.accuracies import accuracies, chosen_samples, raw_input
from counterpoint.runs.class_comparison import class_record


@dataclass(frozen=True)
class GivenFeatures:
    """Features from anywhere, without the rows that are not finite.

    Attributes:
        z_ND: features.
        other_ND: of another view of the same samples; None without one.
        labels: of the samples; None without any.
        names: of the samples.
        not_finite: names of the rows that were left out.
        kept_N: positions of the others among all rows.
        source: what the features are of, row by row as they were given; None where it is not at hand.
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
    kept, odd = ([names[place] for place in part_N.nonzero()[:, 0].tolist()] for part_N in (is_finite_N, ~is_finite_N))
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
    numbered = None if own is None else number_labels(own, len(is_finite_N))
    if numbered is None and source is not None and source.labels is not None:
        numbered = Labels(source.labels, source.class_names)
    return GivenFeatures(
        z_ND=z_ND,
        other_ND=other_ND if other_ND is None or is_finite_N.all() else other_ND[is_finite_N],
        labels=numbered and replace(numbered, numbers=numbered.numbers[is_finite_N]),
        names=tuple(kept),
        not_finite=tuple(odd),
        kept_N=is_finite_N.nonzero()[:, 0],
        source=source,
    )


def evidence_of_features(given: GivenFeatures, threshold: float) -> Evidence:
    """What findings about features from anywhere are drawn from.

    Args:
        given: features as they were given.
        threshold: above which a feature of a unit-length vector counts as active.
    """
    z_ND, labels = given.z_ND, given.labels
    pair = None if given.other_ND is None else (z_ND, given.other_ND)
    place = measure_place(z_ND, views=pair, labels=labels.numbers if labels else None, threshold=threshold)
    votes, classes = (), None
    if labels is not None:
        asked = chosen_samples(labels.numbers, split_source(len(z_ND), labels.numbers, DEFAULT_HOLDOUT))
        raw = {} if given.source is None else raw_input(given.source, given.kept_N[asked.positions])
        votes = accuracies({REPRESENTATION: z_ND[asked.positions], **raw}, asked, labels.class_names)
        classes = class_record(z_ND, labels.numbers, labels.class_names)
        classes = with_clusters(classes, place.agreement, labels.class_names)
    return Evidence(
        {EMBEDDING: place.figures},
        votes=votes,
        is_nonnegative=is_rectified(z_ND),
        classes=classes,
        not_finite=given.not_finite,
        suspects=place.suspect_names(given.names),
    )


def with_clusters(
    record: ClassRecord | None, agreement: LabelAgreement | None, class_names: tuple[str, ...]
) -> ClassRecord | None:
    """The record with the names of classes that share a cluster, and of those that lie in two, where it is known."""
    if record is None or agreement is None:
        return record
    pairs = tuple((class_names[a], class_names[b]) for a, b in agreement.shared)
    return record.model_copy(update={"shared": pairs, "parted": tuple(class_names[c] for c in agreement.parted)})


def is_rectified(z_ND: Tensor) -> bool:
    """Whether features of unknown origin look like those of a non-negative map: values of 0, and none below."""
    return float(z_ND.min()) == 0
