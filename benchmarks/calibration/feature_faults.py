"""The faults that are put into good features, each in two forms: to choose limits by, and to publish figures of.

The second form has another severity or is made in another way, and goes into other features of other samples
(``feature_sets.good_features``). No limit of a check is chosen by it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibration import spoiled_features as spoiled
from calibration import spoiled_labels as labelled
from calibration.feature_sets import Draws, FeatureSet, World, good_features
from calibration.spoiled_features import Spoil

LABELS, VIEWS = ("labels",), ("views",)


@dataclass(frozen=True)
class FeatureFault:
    """A fault of features, their labels or their views, and the findings that name it.

    Attributes:
        summary: what is wrong, in words.
        found_as: codes of findings of which one must be among the first two; the catalogue of checks may lack some.
        choosing: puts it into features by which limits are chosen.
        publishing: puts it into features of which figures are published.
        needs: ``labels`` or ``views``, if the fault is of them; of other faults half of the cases have them.
        unknowable: which of these cases cannot be known from what a diagnosis is given, and why.
    """

    summary: str
    found_as: tuple[str, ...]
    choosing: Spoil
    publishing: Spoil
    needs: tuple[str, ...] = ()
    unknowable: str = ""


def faulty_features(world: World, fault: FeatureFault, kind: str, draws: Draws) -> FeatureSet:
    """Good features of one kind of data with a fault, in the form that goes with the world.

    Args:
        world: the data.
        fault: what is done to them.
        kind: of the data, one of ``world.kinds``.
        draws: of samples, map and fault.
    """
    good = good_features(world, kind, draws)
    parts = {name for name in (*LABELS, *VIEWS) if draws.integers(2)} | set(fault.needs)
    faulty = (fault.choosing, fault.publishing)[world.number](good, draws)
    left_out: dict[str, Any] = {name: None for name in (*LABELS, *VIEWS) if name not in parts}
    return replace(faulty, **left_out)


FAULTS: Mapping[str, FeatureFault] = {
    "outliers": FeatureFault(
        "1 to 30 rows far away",
        ("outliers",),
        spoiled.outliers(10, 20, 60),
        spoiled.outliers(30, 8, 500),
    ),
    "one strong direction": FeatureFault(
        "90 to 98 % of the variance in one direction",
        ("uneven-spectrum",),
        spoiled.strong_direction(0.92, 0.96, is_added=False),
        spoiled.strong_direction(0.90, 0.98, is_added=True),
    ),
    "scales": FeatureFault(
        "columns in other units",
        ("scales",),
        spoiled.scales(0.5, 10, 1000),
        spoiled.scales(0.25, 30, 10_000),
    ),
    "near-copies": FeatureFault(
        "5 to 100 % of the rows have another that is nearly equal",
        ("near-copies", "duplicates", "false-negatives"),
        spoiled.copies(0.1, 0.6, (1e-3, 3e-3)),
        spoiled.copies(0.05, 1.0, (1e-4, 1e-2)),
    ),
    "copies": FeatureFault(
        "5 to 100 % of the rows have another that is equal",
        ("duplicates", "near-copies"),
        spoiled.copies(0.2, 0.6, (0, 0)),
        spoiled.copies(0.05, 1.0, (0, 0)),
    ),
    "silent dimensions": FeatureFault(
        "25 to 80 % of the columns have one value",
        ("dead-dimensions", "dimensional-collapse"),
        spoiled.silent(0.5, 0.8, 0.0),
        spoiled.either(spoiled.silent(0.25, 0.75, 0.0), spoiled.silent(0.25, 0.75, 1.0)),
    ),
    "repeated dimensions": FeatureFault(
        "15 to 50 % of the columns say what others say",
        ("duplicate-dimensions",),
        spoiled.repeated(0.5, 1.0, 0.0),
        spoiled.repeated(0.2, 0.8, 0.02),
    ),
    "quantised": FeatureFault(
        "3 to 16 levels, or 30 to 80 % of the values at the ends",
        ("quantised", "saturated"),
        spoiled.rounded((4, 8)),
        spoiled.either(spoiled.rounded((3, 5, 12, 16)), spoiled.saturated(0.3, 0.8)),
    ),
    "hubs": FeatureFault(
        "a few rows are near all others",
        ("hubs",),
        spoiled.hubs(0.05, 0.005, 300),
        spoiled.hubs(0.25, 0.02, 150),
    ),
    "heavy tails": FeatureFault(
        "values, or lengths of rows, of a heavy-tailed distribution",
        ("heavy-tails",),
        spoiled.student(2.0),
        spoiled.either(spoiled.student(1.3), spoiled.raised(3.5), spoiled.uneven_lengths(1.2)),
    ),
    "drift": FeatureFault(
        "features move along the order of the rows",
        ("row-order",),
        spoiled.drift(lambda t: t, 1.0, 2.0, 1),
        spoiled.drift(lambda t: 1 - np.cos(np.pi * t**1.5), 0.4, 1.5, 4),
    ),
    "offset": FeatureFault(
        "a constant added to all rows",
        ("offset",),
        spoiled.offset(6, 8, is_one_value=True),
        spoiled.offset(4, 12, is_one_value=False),
    ),
    "full collapse": FeatureFault(
        "all rows are one point, but for noise",
        ("full-collapse",),
        spoiled.one_point(1e-3, 3e-3),
        spoiled.one_point(1e-5, 1e-2),
    ),
    "dimensional collapse": FeatureFault(
        "2 to 8 directions of 48 and more dimensions",
        ("dimensional-collapse",),
        spoiled.few_directions(3, 6, 0.0),
        spoiled.few_directions(2, 8, 1e-3),
    ),
    "clumps": FeatureFault(
        "rows fall together around a few points",
        ("cluster-collapse",),
        spoiled.clumps((8, 16), (0.02, 0.04)),
        spoiled.clumps((4, 30), (0.01, 0.08)),
    ),
    "label noise, up to 20 %": FeatureFault(
        "10 to 20 % of the labels are wrong",
        ("label-noise",),
        labelled.wrong_labels(0.15, 0.20, is_next=False),
        spoiled.either(
            labelled.wrong_labels(0.10, 0.20, is_next=False), labelled.wrong_labels(0.10, 0.20, is_next=True)
        ),
        LABELS,
        "of photographs whose classes neighbours tell in 8 of 10 cases, 10 % of wrong labels are within what is hard",
    ),
    "label noise, 20 to 50 %": FeatureFault(
        "20 to 50 % of the labels are wrong",
        ("label-noise",),
        labelled.wrong_labels(0.25, 0.40, is_next=False),
        spoiled.either(
            labelled.wrong_labels(0.20, 0.50, is_next=False), labelled.wrong_labels(0.20, 0.35, is_next=True)
        ),
        LABELS,
    ),
    "shuffled labels": FeatureFault(
        "labels are those of other rows",
        ("classes", "label-noise"),
        labelled.labels_moved_down,
        labelled.labels_in_other_order,
        LABELS,
        "labels that the features do not hold look the same",
    ),
    "two labels for one cluster": FeatureFault(
        "samples of a class have one of two labels at random",
        ("shared-cluster",),
        labelled.split(1, 0.5),
        labelled.split(2, 0.35),
        LABELS,
        "a true distinction that the features do not hold looks the same",
    ),
    "one label for several clusters": FeatureFault(
        "a label covers two or three classes",
        ("parted-label",),
        labelled.merged(1, 2),
        labelled.merged(1, 3),
        LABELS,
    ),
    "labels in the features": FeatureFault(
        "columns that hold the label",
        ("label-leak",),
        labelled.one_hot_labels(3.0),
        spoiled.either(labelled.label_column(0.05), labelled.one_hot_labels(1.0)),
        LABELS,
    ),
    "unequal classes": FeatureFault(
        "85 to 97 % of the samples are of one class",
        ("imbalance", "minority-collapse"),
        labelled.unequal_classes(0.88, 0.92, 2),
        labelled.unequal_classes(0.85, 0.97, 3),
        LABELS,
    ),
    "views that change nothing": FeatureFault(
        "60 to 100 % of the second views are equal to the first, or hardly differ",
        ("identical-views",),
        labelled.same_views(1.0, 1.0, 0.0),
        labelled.same_views(0.6, 1.0, 1e-3),
        VIEWS,
    ),
    "views partly moved": FeatureFault(
        "10 to 60 % of the second view's rows are in the wrong place",
        ("stray-views", "unrelated-views"),
        labelled.moved_views(0.3, 0.5, is_block=False),
        spoiled.either(labelled.moved_views(0.1, 0.6, is_block=False), labelled.moved_views(0.1, 0.6, is_block=True)),
        VIEWS,
    ),
    "views of other samples": FeatureFault(
        "all rows of the second view are in another order",
        ("unrelated-views", "stray-views"),
        labelled.other_views(is_shifted=False),
        labelled.other_views(is_shifted=True),
        VIEWS,
    ),
    "sources": FeatureFault(
        "two or three sources that move the features",
        ("batch-effect",),
        spoiled.groups(1.0, 1.5, 2),
        spoiled.either(spoiled.groups(0.8, 1.8, 2), spoiled.groups(1.2, 2.0, 3)),
        LABELS,
        "a true property of the samples that no label names looks the same",
    ),
    "odd dimension": FeatureFault(
        "one dimension of a Gaussian embedding has groups or tails",
        ("gaussian-slices",),
        spoiled.odd_dimension(lambda x, draws: np.sign(x) + draws.uniform(0.2, 0.4) * x, 1, 1),
        spoiled.either(
            spoiled.odd_dimension(lambda x, draws: 4 * (draws.random(x.shape) < 0.2) + x, 1, 2),
            spoiled.odd_dimension(lambda x, draws: np.sign(x) * np.abs(x) ** draws.uniform(2, 3), 1, 2),
        ),
    ),
    "odd directions": FeatureFault(
        "5 to 25 % of the directions of a Gaussian embedding have groups or tails, in mixed dimensions",
        ("gaussian-slices",),
        spoiled.odd_directions(lambda x, draws: np.sign(x) + draws.uniform(0.2, 0.4) * x, 0.1),
        spoiled.either(
            spoiled.odd_directions(lambda x, draws: 4 * (draws.random(x.shape) < 0.2) + x, 0.25),
            spoiled.odd_directions(lambda x, draws: np.sign(x) * np.abs(x) ** draws.uniform(2, 3), 0.05),
        ),
    ),
    "values that are no numbers": FeatureFault(
        "0.2 to 5 % of the rows hold NaN or infinity",
        ("not-finite",),
        spoiled.not_finite(0.02),
        spoiled.either(spoiled.not_finite(0.002), spoiled.not_finite(0.05)),
    ),
}
