"""Accuracy that counts every class alike."""

from torch import Tensor

from counterpoint.core.metric import accuracy_metric
from counterpoint.evaluation.knn import knn_score
from counterpoint.evaluation.linear_probe import probe_score
from counterpoint.evaluation.metric_types import Score, mean_share


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
)
