"""Retrieval by cosine similarity: how many of the nearest samples have the query's class, and how early they come."""

# N bank samples, Q queries, D features, K retrieved samples

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice, check_features, check_labels
from counterpoint.core.errors import DataError
from counterpoint.core.metric import Metric
from counterpoint.evaluation.nearest import nearest
from counterpoint.evaluation.scoring import Z_95, Estimate, Labelled, Score

Definition = Literal["pytorch-geometric", "torchmetrics", "pytorch-metric-learning", "ncl2024"]
RETRIEVED = 10


def average_precision(
    queries_QD: Tensor,
    labels_Q: Tensor,
    bank_ND: Tensor | None = None,
    labels_N: Tensor | None = None,
    *,
    k: int = RETRIEVED,
    definition: Definition = "pytorch-geometric",
) -> Tensor:
    r"""Average precision of the k samples nearest to each query, where those of its class are relevant.

    .. math:: \mathrm{AP@}k = \frac{1}{n} \sum_{r=1}^{k} h_r \, \frac{h_1 + \dots + h_r}{r}

    h_r is 1 where the sample of rank r is relevant, else 0. Sources differ in n, and in what becomes of a query without
    any relevant sample in the bank (R of them are relevant):

    - ``pytorch-geometric``: n = min(k, R); R = 0 is left out. 1 where all hits that are possible come first.
    - ``torchmetrics``: n = hits among the k; none, and R = 0, count 0. 1 already for a single hit, at rank 1.
    - ``pytorch-metric-learning``: n = R; R = 0 is left out. At most k / R.
    - ``ncl2024``: n = k, and each summand is h_r alone, which is precision@k; R = 0 counts 0.

    Differs from torchmetrics, which takes samples of a score <= 0 for irrelevant, whatever their class: for cosines
    this has no meaning. Differs from ncl2024's code, which measures squared distances between the kept dimensions of
    rows that had unit length before; the paper's text (appendix G.4) says cosine.

    Source: ncl2024, appendix G.4, and the three libraries.

    Args:
        queries_QD: features of the samples that are asked about.
        labels_Q: their classes, from 0.
        bank_ND: features of the samples that are searched; None for the other queries.
        labels_N: their classes; None with the bank.
        k: samples that are retrieved, at most as many as the bank has.
        definition: as above.

    Returns:
        One value for each query, float64 (q,); NaN where the definition leaves the query out. The mean of the others
        is mAP@k, and with ``ncl2024`` precision@k, which that paper calls mAP@k.

    Raises:
        ValueError: an argument out of range, or shapes that do not fit.

    >>> bank, labels = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), torch.tensor([0, 1, 0])
    >>> query = torch.tensor([[1.0, 0.1]]), torch.tensor([0])
    >>> definitions = "pytorch-geometric", "torchmetrics", "pytorch-metric-learning", "ncl2024"
    >>> [average_precision(*query, bank, labels, k=2, definition=each).item() for each in definitions]
    [0.5, 1.0, 0.5, 0.5]
    """
    check_choice(definition, "definition", get_args(Definition))
    hits_QK, relevant_Q = _hits(queries_QD, labels_Q, bank_ND, labels_N, k)
    if definition == "ncl2024":
        return hits_QK.mean(dim=1)
    precision_QK = hits_QK.cumsum(dim=1) / torch.arange(1, k + 1)
    total_Q = (hits_QK * precision_QK).sum(dim=1)
    if definition == "torchmetrics":
        return total_Q / hits_QK.sum(dim=1).clamp(min=1.0)
    # 0 / 0 = NaN: a query that nothing in the bank belongs to is left out.
    return total_Q / (relevant_Q.clamp(max=k) if definition == "pytorch-geometric" else relevant_Q)


def _hits(
    queries_QD: Tensor, labels_Q: Tensor, bank_ND: Tensor | None, labels_N: Tensor | None, k: int
) -> tuple[Tensor, Tensor]:
    """Which of the retrieved samples are relevant, float64 (q, k), and how many of the bank are, (q,)."""
    is_own = bank_ND is None
    if is_own != (labels_N is None):
        raise ValueError("give the bank and its labels, or neither to search among the queries")
    bank_labels_N = labels_Q if labels_N is None else labels_N
    check_labels(labels_Q, len(queries_QD))
    check_labels(bank_labels_N, len(queries_QD if bank_ND is None else bank_ND))
    for labels in (labels_Q, bank_labels_N):
        # Samples of unknown classes would be hits of each other.
        if (labels < 0).any():
            raise ValueError(f"labels must be >= 0, got {int(labels.min())}; leave samples without a label out")
    place_QK = _retrieved(queries_QD, bank_ND, k)
    counts_C = torch.bincount(bank_labels_N, minlength=int(labels_Q.max()) + 1)
    hits_QK = bank_labels_N[place_QK] == labels_Q[:, None]
    return hits_QK.double(), counts_C[labels_Q.long()] - int(is_own)


def _retrieved(queries_QD: Tensor, bank_ND: Tensor | None, k: int) -> Tensor:
    """Positions of the k nearest samples, (q, k), nearest first; among the queries themselves none finds itself."""
    check_features(queries_QD, "queries", min_rows=1)
    if bank_ND is not None:
        check_features(bank_ND, "bank", min_rows=1)
        if queries_QD.shape[1] != bank_ND.shape[1]:
            raise ValueError(
                f"queries must have as many features as the bank, {bank_ND.shape[1]}, got {queries_QD.shape[1]}"
            )
    num_others = len(queries_QD) - 1 if bank_ND is None else len(bank_ND)
    if not 1 <= k <= num_others:
        raise ValueError(f"k must be between 1 and the number of samples to choose from, {num_others}, got {k}")
    if bank_ND is not None:
        return nearest(bank_ND, queries_QD, k).positions_QK
    place_QK1 = nearest(queries_QD, queries_QD, k + 1).positions_QK
    is_other_QK1 = place_QK1 != torch.arange(len(queries_QD))[:, None]
    # Where k + 1 copies of a query come before it, the last of them is one too many.
    is_other_QK1[is_other_QK1.all(dim=1), -1] = False
    return place_QK1[is_other_QK1].view(-1, k)


def mean_over_queries(value_Q: Tensor) -> Estimate:
    r"""A mean and its 95 % interval, :math:`\bar v \pm 1.96\, s / \sqrt{n}`; NaN are left out.

    The interval is about other queries from the same source, with this bank and this encoder.

    Args:
        value_Q: one value for each query.

    Raises:
        DataError: all are NaN.

    >>> mean_over_queries(torch.tensor([0.0, 1.0, 0.0, 1.0, float("nan")]))
    Estimate(value=0.5, low=-0.06..., high=1.06...)
    """
    value_Q = value_Q[~value_Q.isnan()].double()
    if len(value_Q) == 0:
        raise DataError("no query can be scored: the bank has no sample of their classes")
    mean = float(value_Q.mean())
    if len(value_Q) == 1:
        return Estimate(mean)
    spread = Z_95 * float(value_Q.std()) / math.sqrt(len(value_Q))
    return Estimate(mean, mean - spread, mean + spread)


def _score(known: Labelled, definition: Definition) -> Score:
    """Mean over the queries, for each of which the bank is searched."""
    if len(known.bank_ND) < RETRIEVED:
        raise DataError(
            f"{RETRIEVED} samples are to be retrieved, but the bank has only {len(known.bank_ND)} with a label; hold "
            "fewer out, or leave the metric out"
        )
    features = known.queries_QD, known.labels_Q, known.bank_ND, known.labels_N
    mean = mean_over_queries(average_precision(*features, k=RETRIEVED, definition=definition))
    low, high = (None if end is None else min(max(end, 0.0), 1.0) for end in (mean.low, mean.high))
    return Score(Estimate(mean.value, low, high), {"definition": definition, "k": RETRIEVED, "similarity": "cosine"})


METRICS = (
    Metric(
        name="mAP@10",
        title="Mean average precision of 10",
        short="mAP@10",
        definition="Mean over the queries of the average precision of their 10 nearest labelled samples, where those "
        "of the query's class are relevant. 1 means that all 10, or all of the class if it has fewer, come first.",
        source="ncl2024",
        measure=lambda known: _score(known, "pytorch-geometric"),
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
        source="ncl2024",
        measure=lambda known: _score(known, "ncl2024"),
        low=0.0,
        high=1.0,
        interval="95 % normal interval over the queries",
        is_higher_better=True,
        wording="share of the query's class among the [{k} ]nearest samples of the bank[ by {similarity} similarity]",
        on_request=True,
    ),
)
