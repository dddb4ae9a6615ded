"""Accuracy that counts every class alike: balanced accuracy, and the many, medium and few of a long tail."""

import torch
from torch import Tensor

from counterpoint.core.metric import accuracy_metric
from counterpoint.evaluation.knn import knn_score
from counterpoint.evaluation.linear_probe import probe_score
from counterpoint.evaluation.metric_types import Score, mean_share

MANY, FEW = 100, 20  # labelled samples: classes with more are many-shot, with fewer few-shot (liu2019)


def balanced(score: Score, labels_N: Tensor) -> Score:
    """Mean over the classes that have queries of the share of each one's queries that are right.

    Args:
        score: an accuracy.
        labels_N: of the labelled samples; a class that has none there can never be right and counts as 0.
    """
    absent = sorted(score.classes.keys() - set(labels_N.tolist()))
    settings = {**score.settings, "classes": len(score.classes)}
    if absent:
        settings["classes without a labelled sample"] = ", ".join(map(str, absent))
    return Score(mean_share(list(score.classes.values())), settings, score.classes)


def of_sizes(score: Score, labels_N: Tensor, *, least: int, most: int | None) -> Score:
    """The same over classes with a number of labelled samples; NaN where there are none.

    Args:
        score: an accuracy.
        labels_N: of the labelled samples, >= 0.
        least: labelled samples of a class that counts.
        most: None for no limit.
    """
    size_C = torch.bincount(labels_N, minlength=max(score.classes, default=0) + 1).tolist()
    limit = len(labels_N) if most is None else most
    chosen = {label: share for label, share in score.classes.items() if least <= size_C[label] <= limit}
    sizes = f"{least} or more" if most is None else f"{least} to {most}"
    settings = {**score.settings, "classes": len(chosen), "labelled samples of each": sizes}
    return Score(mean_share(list(chosen.values())), settings, chosen)


METRICS = (
    accuracy_metric(
        name="balanced knn",
        title="Balanced kNN accuracy",
        short="balanced kNN",
        definition="Mean over the classes of the share of each class's queries that get it where the "
        "nearest labelled samples vote.",
        source="brodersen2010",
        measure=lambda known: balanced(knn_score(known), known.labels_N),
        interval="95 % interval of the mean of independent shares, from Wilson's of each class",
        wording="the mean over [{classes} ]classes of what the vote of the nearest samples gets right",
        in_parts=True,
        on_request=True,
    ),
    accuracy_metric(
        name="balanced probe",
        title="Balanced linear probe",
        short="balanced probe",
        definition="Mean over the classes of the share of each class's queries that get it from a linear "
        "classifier on frozen features.",
        source="brodersen2010",
        measure=lambda known: balanced(probe_score(known), known.labels_N),
        interval="95 % interval of the mean of independent shares, from Wilson's of each class",
        wording="the mean over [{classes} ]classes of what a linear classifier gets right",
        in_parts=True,
        on_request=True,
    ),
    accuracy_metric(
        name="tail many",
        title="Many-shot classes",
        short="many-shot classes",
        definition="Mean over the classes with more than 100 labelled samples of the share of each class's "
        "queries that get it from a linear classifier.",
        source="liu2019",
        measure=lambda known: of_sizes(probe_score(known), known.labels_N, least=MANY + 1, most=None),
        interval="95 % interval of the mean of independent shares, from Wilson's of each class",
        wording="the mean over[ {classes}] classes with more than 100 labelled samples of what a linear classifier "
        "gets right",
        in_parts=True,
        on_request=True,
    ),
    accuracy_metric(
        name="tail medium",
        title="Medium-shot classes",
        short="medium-shot classes",
        definition="Mean over the classes with 20 to 100 labelled samples of the share of each class's "
        "queries that get it from a linear classifier.",
        source="liu2019",
        measure=lambda known: of_sizes(probe_score(known), known.labels_N, least=FEW, most=MANY),
        interval="95 % interval of the mean of independent shares, from Wilson's of each class",
        wording="the mean over[ {classes}] classes with 20 to 100 labelled samples of what a linear classifier "
        "gets right",
        in_parts=True,
        on_request=True,
    ),
    accuracy_metric(
        name="tail few",
        title="Few-shot classes",
        short="few-shot classes",
        definition="Mean over the classes with fewer than 20 labelled samples of the share of each class's "
        "queries that get it from a linear classifier.",
        source="liu2019",
        measure=lambda known: of_sizes(probe_score(known), known.labels_N, least=0, most=FEW - 1),
        interval="95 % interval of the mean of independent shares, from Wilson's of each class",
        wording="the mean over[ {classes}] classes with fewer than 20 labelled samples of what a linear classifier "
        "gets right",
        in_parts=True,
        on_request=True,
    ),
)
