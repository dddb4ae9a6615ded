"""What a classifier that was fitted to clean samples loses under corruptions, as single figures."""

# Q queries, K conditions, C corruptions, S severities, B resamples

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from counterpoint.core.metric import Metric
from counterpoint.core.paired_shares import LEVEL
from counterpoint.core.run_records import unpacked_hits
from counterpoint.evaluation.metric_types import IntervalEstimate, Proportion, Score

NUM_RESAMPLES = 1000
RESAMPLES_AT_ONCE = 100
ERROR, MCE, RELATIVE = "corruption error", "mCE", "relative mCE"


@dataclass(frozen=True)
class Robustness:
    """Which queries a classifier gets right, clean and under corruptions.

    Attributes:
        clean: on clean queries.
        corrupted: under each corruption at each severity, in order.
        num_severities: of each corruption.
    """

    clean: Score
    corrupted: Mapping[tuple[str, int], Score]
    num_severities: int

    def hits(self) -> np.ndarray:
        """Whether each query is right, (q, 1 + k): clean, and then under each condition; float32."""
        columns = [_hits(self.clean), *map(_hits, self.corrupted.values())]
        return np.stack(columns, axis=1).astype(np.float32)


def _hits(score: Score) -> np.ndarray:
    """Which queries were right."""
    outcome = score.outcome
    assert isinstance(outcome, Proportion)
    return np.array(unpacked_hits(outcome.hits or "", outcome.total))


def mean_corruption_errors(
    own: Robustness, reference: Robustness | None, *, seed: int = 0
) -> dict[str, IntervalEstimate]:
    r"""Errors under corruptions as single figures, each with a bootstrap interval over the queries.

    With the error :math:`E_{s,c}` at severity s of corruption c, and :math:`E^r_{s,c}` of the reference,

    .. math:: \mathrm{mCE} = \frac1C \sum_c \frac{\sum_s E_{s,c}}{\sum_s E^r_{s,c}}, \qquad
        \text{relative mCE} = \frac1C \sum_c
        \frac{\sum_s (E_{s,c} - E_{\text{clean}})}{\sum_s (E^r_{s,c} - E^r_{\text{clean}})}

    and the corruption error itself is the mean of all :math:`E_{s,c}`. Differs from hendrycks2019 in the reference,
    AlexNet on ImageNet there, which says nothing about other pictures.

    Source: hendrycks2019, Eq. 1 and section 4.1; efron1993, section 13.3, for the interval.

    Args:
        own: of the classifier in question.
        reference: of another one on the same queries; None leaves the ratios out.
        seed: of the resamples.

    Returns:
        ``corruption error``, and with a reference ``mCE`` and ``relative mCE``; without those that do not exist, as the
        reference makes no error, or loses nothing under some corruption.
    """
    sides = [each.hits() for each in (own, reference) if each is not None]
    error_BK = [_resampled_errors(hits_QK, seed) for hits_QK in sides]
    found = {name: _estimate(value_B) for name, value_B in _figures(error_BK, own.num_severities).items()}
    return {name: estimate for name, estimate in found.items() if estimate is not None}


def _resampled_errors(hits_QK: np.ndarray, seed: int) -> np.ndarray:
    """Errors of the queries themselves and then of resamples of them, (1 + b, k); the same draws for each seed."""
    num_queries, generator = len(hits_QK), np.random.default_rng(seed)
    first_B1 = num_queries * np.arange(RESAMPLES_AT_ONCE)[:, None]
    parts = [hits_QK.mean(axis=0, dtype=np.float64)[None]]
    for _ in range(0, NUM_RESAMPLES, RESAMPLES_AT_ONCE):
        drawn_BQ = first_B1 + generator.integers(num_queries, size=(RESAMPLES_AT_ONCE, num_queries))
        count_BQ = np.bincount(drawn_BQ.ravel(), minlength=drawn_BQ.size).reshape(drawn_BQ.shape)
        # Counts are whole numbers, which float32 adds exactly.
        parts.append(count_BQ.astype(np.float32) @ hits_QK / num_queries)
    return 1.0 - np.concatenate(parts)


def _figures(error_BK: Sequence[np.ndarray], num_severities: int) -> dict[str, np.ndarray]:
    """Every figure from errors of one or two classifiers, for each resample."""
    clean_B11 = [each[:, :1, None] for each in error_BK]
    error_BCS = [each[:, 1:].reshape(len(each), -1, num_severities) for each in error_BK]
    figures = {ERROR: error_BCS[0].mean(axis=(1, 2))}
    if len(error_BK) > 1:
        lost_BC = [(error - clean).sum(axis=2) for error, clean in zip(error_BCS, clean_B11, strict=True)]
        sum_BC = [error.sum(axis=2) for error in error_BCS]
        figures |= {MCE: _ratio(*sum_BC), RELATIVE: _ratio(*lost_BC)}  # hendrycks2019, Eq. 1, and below it
    return figures


def _ratio(own_BC: np.ndarray, reference_BC: np.ndarray) -> np.ndarray:
    """Mean over corruptions; NaN where the reference has nothing to compare with."""
    is_there_BC = reference_BC > 0
    ratio_BC = np.divide(own_BC, reference_BC, out=np.full_like(own_BC, np.nan), where=is_there_BC)
    return ratio_BC.mean(axis=1)


def _estimate(value_B: np.ndarray) -> IntervalEstimate | None:
    """The first value, between quantiles of the others; without these where a resample has none."""
    if np.isnan(value_B[0]):
        return None
    if np.isnan(value_B).any():
        return IntervalEstimate(float(value_B[0]))
    low, high = np.quantile(value_B[1:], [LEVEL / 2, 1 - LEVEL / 2])
    return IntervalEstimate(float(value_B[0]), float(low), float(high))


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
    Metric(
        name="mCE",
        title="Mean corruption error",
        short="mCE",
        definition="Mean over corruptions of the error summed over severities, over that of a named reference. 1 means "
        "as many errors as the reference makes.",
        source="hendrycks2019",
        low=0.0,
        interval="95 % bootstrap interval over the queries",
        is_higher_better=False,
        wording="errors of the classifier[, {classifier},] over those[ on {reference}], under[ {corruptions}] "
        "corruptions at severities[ {severities}]",
        leads="has the lowest",
        on_request=True,
        needs="corruptions",
    ),
    Metric(
        name="relative mCE",
        title="Relative mean corruption error",
        short="relative mCE",
        definition="Mean over corruptions of what is lost against clean queries, summed over severities, over what a "
        "named reference loses.",
        source="hendrycks2019",
        interval="95 % bootstrap interval over the queries",
        is_higher_better=False,
        wording="errors that the classifier[, {classifier},] makes in addition, over those[ on {reference}], under"
        "[ {corruptions}] corruptions at severities[ {severities}]",
        leads="has the lowest",
        on_request=True,
        needs="corruptions",
    ),
)
