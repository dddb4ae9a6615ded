"""What a classifier that was fitted to clean samples gets wrong under corruptions, as a single figure."""

# Q queries, K conditions, B resamples

from collections.abc import Sequence

import numpy as np

from counterpoint.core.metric import Metric
from counterpoint.core.paired_shares import LEVEL
from counterpoint.core.run_records import unpacked_hits
from counterpoint.evaluation.metric_types import IntervalEstimate, Proportion, Score

NUM_RESAMPLES = 1000
RESAMPLES_AT_ONCE = 100


def corruption_error(scores: Sequence[Score], *, seed: int = 0) -> IntervalEstimate:
    """Mean error over conditions, with a percentile bootstrap interval over the queries.

    Source: hendrycks2019, section 4.1; efron1993, section 13.3, for the interval.

    Args:
        scores: accuracies of the same queries under each corruption at each severity.
        seed: of the resamples.
    """
    outcomes = [score.outcome for score in scores if isinstance(score.outcome, Proportion)]
    hits_QK = np.array([unpacked_hits(each.hits or "", each.total) for each in outcomes], np.float32).T
    num_queries, generator = len(hits_QK), np.random.default_rng(seed)
    first_B1, parts = num_queries * np.arange(RESAMPLES_AT_ONCE)[:, None], list[np.ndarray]()
    for _ in range(0, NUM_RESAMPLES, RESAMPLES_AT_ONCE):
        drawn_BQ = first_B1 + generator.integers(num_queries, size=(RESAMPLES_AT_ONCE, num_queries))
        count_BQ = np.bincount(drawn_BQ.ravel(), minlength=drawn_BQ.size).reshape(drawn_BQ.shape)
        # Counts are whole numbers, which float32 adds exactly.
        parts.append(1.0 - (count_BQ.astype(np.float32) @ hits_QK / num_queries).mean(axis=1, dtype=np.float64))
    low, high = np.quantile(np.concatenate(parts), [LEVEL / 2, 1 - LEVEL / 2])
    return IntervalEstimate(1.0 - float(hits_QK.mean(dtype=np.float64)), float(low), float(high))


METRICS = (
    Metric(
        name="corruption error",
        title="Mean error under corruptions",
        short="corruption error",
        definition="Mean over corruptions and severities of the share of corrupted queries that a classifier fitted to "
        "clean samples gets wrong.",
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
