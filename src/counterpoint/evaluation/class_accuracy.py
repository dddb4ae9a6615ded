"""Accuracy that counts every class alike, of the encoder's own classifier, and over all corruptions."""

# Q queries, K conditions, B resamples

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from counterpoint.core.errors import DataError
from counterpoint.core.metric import Metric, accuracy_metric
from counterpoint.core.paired_shares import LEVEL
from counterpoint.core.schemas import unpacked_hits
from counterpoint.diagnostics.evidence import Interval
from counterpoint.evaluation.knn import knn_score
from counterpoint.evaluation.linear_probe import probe_score
from counterpoint.evaluation.metric_types import Labelled, Proportion, Score, accuracy, mean_share

CLASSIFIER = "classifier"
NUM_RESAMPLES = 1000
RESAMPLES_AT_ONCE = 100


def balanced(score: Score, labels_N: Tensor) -> Score:
    """Mean, over the classes that have queries, of the share of the class's queries that are right.

    Args:
        score: an accuracy.
        labels_N: classes of the labelled samples; a class without labelled samples can never be right and counts as 0.
    """
    absent = sorted(score.classes.keys() - set(labels_N.tolist()))
    settings = {**score.settings, "classes": len(score.classes)}
    if absent:
        settings["classes without a labelled sample"] = ", ".join(map(str, absent))
    return Score(mean_share(list(score.classes.values())), settings, score.classes)


def classifier_score(labelled: Labelled) -> Score:
    """Accuracy on all queries; one of a class that the classifier does not know counts as wrong."""
    if labelled.predicted_Q is None:
        raise DataError("this run has no classifier; supervised, nonnegative-supervised and fine-tune keep one")
    return accuracy(labelled.predicted_Q, labelled.labels_Q, {"trained": "with the encoder"})


def corruption_error(scores: Sequence[Score]) -> Interval:
    """Mean error over conditions, with a percentile bootstrap interval over the queries.

    Source: hendrycks2019, section 4.1; efron1993, section 13.3, for the interval.

    Args:
        scores: accuracies of the same queries under each corruption at each severity.
    """
    outcomes = [score.outcome for score in scores if isinstance(score.outcome, Proportion)]
    hits_QK = np.array([unpacked_hits(share.hits or "", share.total) for share in outcomes], np.float32).T
    num_queries, generator = len(hits_QK), np.random.default_rng(0)
    first_B1, parts = num_queries * np.arange(RESAMPLES_AT_ONCE)[:, None], list[np.ndarray]()
    for _ in range(0, NUM_RESAMPLES, RESAMPLES_AT_ONCE):
        drawn_BQ = first_B1 + generator.integers(num_queries, size=(RESAMPLES_AT_ONCE, num_queries))
        count_BQ = np.bincount(drawn_BQ.ravel(), minlength=drawn_BQ.size).reshape(drawn_BQ.shape)
        # Counts are whole numbers, which float32 adds exactly.
        parts.append(1.0 - (count_BQ.astype(np.float32) @ hits_QK / num_queries).mean(axis=1, dtype=np.float64))
    low, high = np.quantile(np.concatenate(parts), [LEVEL / 2, 1 - LEVEL / 2])
    return Interval(1.0 - float(hits_QK.mean(dtype=np.float64)), float(low), float(high))


METRICS = (
    accuracy_metric(
        name="balanced knn",
        title="Balanced kNN accuracy",
        short="balanced kNN",
        definition="Mean over the classes of the share of queries that the vote of the nearest labelled samples "
        "classifies correctly.",
        chance="1 / number of classes",
        source="brodersen2010",
        measure=lambda labelled: balanced(knn_score(labelled), labelled.labels_N),
        interval="95 % interval of the mean of independent shares, from Wilson's of each class",
        wording="the mean over [{classes} ]classes of what the vote of the nearest samples gets right",
        in_parts=True,
        on_request=True,
    ),
    accuracy_metric(
        name="balanced probe",
        title="Balanced linear probe",
        short="balanced probe",
        definition="Mean over the classes of the share of queries that a linear classifier on frozen features "
        "classifies correctly.",
        chance="1 / number of classes",
        source="brodersen2010",
        measure=lambda labelled: balanced(probe_score(labelled), labelled.labels_N),
        interval="95 % interval of the mean of independent shares, from Wilson's of each class",
        wording="the mean over [{classes} ]classes of what a linear classifier gets right",
        in_parts=True,
        on_request=True,
    ),
    accuracy_metric(
        name="classifier",
        title="Own classifier",
        short="own classifier",
        definition="Share of queries that the classifier trained with the encoder classifies correctly; only for "
        "runs that learn from labels.",
        source="ncl2024",
        measure=classifier_score,
        wording="the classifier that was trained with the encoder names each query",
    ),
    Metric(
        name="corruption error",
        title="Mean error under corruptions",
        short="corruption error",
        definition="Mean over corruptions and severities of the share of corrupted queries that a classifier fitted to "
        "clean samples gets wrong.",
        chance="1 minus the share of the commonest class",
        source="hendrycks2019",
        low=0.0,
        high=1.0,
        unit="share",
        interval="95 % bootstrap interval over the queries",
        is_higher_better=False,
        wording="the classifier[, {classifier},] under[ {corruptions}] corruptions at severities[ {severities}]",
        leads="has the lowest",
        on_request=True,
        needs="corruptions",
    ),
)
