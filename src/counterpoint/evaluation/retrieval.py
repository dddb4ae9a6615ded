"""Retrieval by cosine similarity: how many of the nearest samples have the query's class, and how early they come."""

# N bank samples, Q queries, D features, K retrieved samples

import math
from collections.abc import Callable

import torch
from torch import Tensor

from counterpoint.core.checks import check_labels
from counterpoint.core.errors import DataError
from counterpoint.core.metric import Metric
from counterpoint.diagnostics.evidence import Interval
from counterpoint.evaluation.knn import nearest
from counterpoint.evaluation.metric_types import Z_95, Labelled, Score, check_known

RETRIEVED = 10


def retrieved_hits(
    queries_QD: Tensor, labels_Q: Tensor, bank_ND: Tensor, labels_N: Tensor, *, k: int = RETRIEVED
) -> Tensor:
    """Mark the hits among the k samples nearest to a query, nearest first: 1 if of its class, else 0; float64 (q, k).

    Their mean over the ranks is precision@k, which ncl2024 calls mAP@k. Differs from ncl2024's code, which measures
    squared distances between the kept dimensions of rows that had unit length before; the paper's text (appendix G.4)
    says cosine.

    Args:
        queries_QD: features of the queries.
        labels_Q: classes of the queries, from 0.
        bank_ND: features of the samples that are searched.
        labels_N: classes of these samples.
        k: number of samples that are retrieved, at most as many as the bank has.

    Raises:
        ValueError: an argument out of range, or shapes that do not fit.
    """
    check_known(bank_ND, labels_N, queries_QD)
    check_labels(labels_Q, len(queries_QD))
    if (labels_Q < 0).any():  # samples of unknown classes would be hits of each other
        raise ValueError(f"labels must be >= 0, got {int(labels_Q.min())}; leave samples without a label out")
    if not 1 <= k <= len(bank_ND):
        raise ValueError(f"k must be between 1 and the number of samples to choose from, {len(bank_ND)}, got {k}")
    return (labels_N[nearest(bank_ND, queries_QD, k).positions_QK] == labels_Q[:, None]).double()


def average_precision(hits_QK: Tensor, num_relevant_Q: Tensor) -> Tensor:
    r"""Average precision of the k samples nearest to each query, where those of its class are relevant.

    .. math:: \mathrm{AP@}k = \frac{1}{\min(k, R)} \sum_{r=1}^{k} h_r \, \frac{h_1 + \dots + h_r}{r}

    h_r is 1 if the sample of rank r is relevant, else 0, and R samples of the bank are: AP is 1 if all hits that are
    possible come first, as in pytorch-geometric. Differs from torchmetrics, which divides by the hits among the k, so
    that one hit at rank 1 is perfect.

    Args:
        hits_QK: result of ``retrieved_hits``.
        num_relevant_Q: number R of relevant samples in the bank, for each query.

    Returns:
        One value for each query, float64 (q,); NaN where R = 0. The mean of the others is mAP@k.

    >>> average_precision(torch.tensor([[1.0, 0.0, 1.0]]), torch.tensor([2]))
    tensor([0.8333])
    """
    k = hits_QK.shape[1]
    precision_QK = hits_QK.cumsum(dim=1) / torch.arange(1, k + 1)
    # 0 / 0 = NaN: a query that nothing in the bank belongs to is left out.
    return (hits_QK * precision_QK).sum(dim=1) / num_relevant_Q.clamp(max=k)


def mean_over_queries(value_Q: Tensor) -> Interval:
    r"""A mean and its 95 % interval, :math:`\bar v \pm 1.96\, s / \sqrt{n}`; NaN are left out.

    The interval is about other queries from the same source, with this bank and this encoder.

    Args:
        value_Q: one value for each query.

    Raises:
        DataError: all are NaN.

    >>> mean_over_queries(torch.tensor([0.0, 1.0, 0.0, 1.0, float("nan")]))
    Interval(value=0.5, low=-0.06..., high=1.06...)
    """
    value_Q = value_Q[~value_Q.isnan()].double()
    if len(value_Q) == 0:
        raise DataError("no query can be scored: the bank has no sample of their classes")
    mean = float(value_Q.mean())
    if len(value_Q) == 1:
        return Interval(mean)
    spread = Z_95 * float(value_Q.std()) / math.sqrt(len(value_Q))
    return Interval(mean, mean - spread, mean + spread)


def _retrieval_score(labelled: Labelled, of_hits: Callable[[Tensor], Tensor], definition: str) -> Score:
    if len(labelled.bank_ND) < RETRIEVED:
        raise DataError(
            f"{RETRIEVED} samples are to be retrieved, but the bank has only {len(labelled.bank_ND)} with a label; "
            "hold fewer out, or leave the metric out"
        )
    hits_QK = retrieved_hits(labelled.queries_QD, labelled.labels_Q, labelled.bank_ND, labelled.labels_N)
    mean = mean_over_queries(of_hits(hits_QK))
    low, high = (None if end is None else min(max(end, 0.0), 1.0) for end in (mean.low, mean.high))
    settings = {"definition": definition, "k": RETRIEVED, "similarity": "cosine"}
    return Score(Interval(mean.value, low, high), settings)


def _map_score(labelled: Labelled) -> Score:
    labels_Q = labelled.labels_Q.long()
    relevant_C = torch.bincount(labelled.labels_N, minlength=int(labels_Q.max()) + 1)
    return _retrieval_score(labelled, lambda hits: average_precision(hits, relevant_C[labels_Q]), "pytorch-geometric")


METRICS = (
    Metric(
        name="mAP@10",
        title="Mean average precision of 10",
        short="mAP@10",
        definition="Mean over the queries of the average precision of their 10 nearest labelled samples, where those "
        "of the query's class are relevant. 1 means that all 10, or all of the class if it has fewer, come first.",
        chance="p^2 + 0.29 p (1 - p) for a class that is a share p of the bank",
        source="ncl2024",
        measure=_map_score,
        low=0.0,
        high=1.0,
        interval="95 % normal interval over the queries",
        is_higher_better=True,
        wording="precision at the rank of each hit among the [{k} ]nearest samples of the bank[ by {similarity} "
        "similarity], over the number of hits that is possible",
        on_request=True,
    ),
    Metric(
        name="precision@10",
        title="Precision of 10",
        short="precision@10",
        definition="Mean share of the query's class among its 10 nearest labelled samples. ncl2024 calls it mAP@10.",
        chance="the mean share of the query's class in the bank",
        source="ncl2024",
        measure=lambda labelled: _retrieval_score(labelled, lambda hits_QK: hits_QK.mean(dim=1), "ncl2024"),
        low=0.0,
        high=1.0,
        interval="95 % normal interval over the queries",
        is_higher_better=True,
        wording="share of the query's class among the [{k} ]nearest samples of the bank[ by {similarity} similarity]",
        on_request=True,
    ),
)
