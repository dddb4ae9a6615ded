"""Weighted nearest-neighbour classification on cosine similarity."""

# N bank samples, Q queries, D features, K neighbours, C classes

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_labels, check_positive
from counterpoint.core.metric import Metric
from counterpoint.core.numerics import unit_rows
from counterpoint.core.thread_parts import side_by_side
from counterpoint.evaluation.scoring import Labelled, Score, share_correct

QUERY_CHUNK = 256  # one thread takes a chunk


def knn_predict(
    bank_ND: Tensor, labels_N: Tensor, queries_QD: Tensor, *, k: int = 20, temperature: float = 0.1
) -> Tensor:
    r"""Predict a class for each query by a weighted vote of its k nearest bank samples.

    .. math:: \hat y(q) = \arg\max_c \sum_{i \in \mathrm{kNN}(q)} [y_i = c]\, e^{\cos(q, b_i) / T}

    Source: wu2018, section 3.4 (there k = 200, T = 0.07).

    Args:
        bank_ND: features of labelled samples.
        labels_N: their classes, int64, from 0.
        queries_QD: features to classify.
        k: neighbours that vote, 1 <= k <= n.
        temperature: T > 0; small values trust only the nearest.

    Returns:
        Classes (q,), int64; ties go to the smaller class number.

    Raises:
        ValueError: k or temperature out of range, or shapes that do not fit.

    >>> bank = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> knn_predict(bank, torch.tensor([0, 0, 1]), torch.tensor([[1.0, 0.2], [0.1, 1.0]]), k=1)
    tensor([0, 1])
    """
    check_features(bank_ND, "bank", min_rows=1)
    check_features(queries_QD, "queries", min_rows=1)
    check_labels(labels_N, len(bank_ND))
    if queries_QD.shape[1] != bank_ND.shape[1]:
        raise ValueError(
            f"queries must have as many features as the bank, {bank_ND.shape[1]}, got {queries_QD.shape[1]}"
        )
    if int(labels_N.min()) < 0:
        raise ValueError(f"labels must be >= 0, got {int(labels_N.min())}; leave samples without a label out")
    labels_N = labels_N.long()
    check_positive(temperature, "temperature", hint="0.07 to 0.1 is usual")
    if not 1 <= k <= len(bank_ND):
        raise ValueError(f"k must be between 1 and the number of bank samples, {len(bank_ND)}, got {k}")
    bank_ND = unit_rows(bank_ND)
    num_classes = int(labels_N.max()) + 1

    def vote(queries: Tensor) -> Tensor:
        # (Q, N) for a chunk of the queries only: 60,000 x 10,000 cosines at once would take 2.4 GB.
        similarity_QK, neighbours_QK = (queries @ bank_ND.T).topk(k, dim=1)
        votes_QC = queries.new_zeros(len(queries), num_classes)
        # Measured from the nearest neighbour's cosine, so that votes vanish at no temperature; this changes no ranking.
        nearest_Q1 = similarity_QK[:, :1]
        votes_QC.scatter_add_(1, labels_N[neighbours_QK], torch.exp((similarity_QK - nearest_Q1) / temperature))
        # The first of equal votes, which is the smaller class number.
        return votes_QC.argmax(dim=1)

    # Chunks are fixed, not cut by the number of threads: all numbers of threads give the same bits.
    return torch.cat(side_by_side(vote, unit_rows(queries_QD).split(QUERY_CHUNK)))


def knn_score(known: Labelled) -> Score:
    """Accuracy of the vote on the queries."""
    predicted_Q = knn_predict(known.bank_ND, known.labels_N, known.queries_QD, k=known.k, temperature=known.temperature)
    settings = {"k": known.k, "temperature": known.temperature, "similarity": "cosine"}
    return Score(share_correct(predicted_Q, known.labels_Q), settings)


METRICS = (
    Metric(
        name="knn",
        title="kNN accuracy",
        short="kNN",
        definition="Share of queries that get their own class where the nearest labelled samples vote.",
        source="wu2018",
        measure=knn_score,
        low=0.0,
        high=1.0,
        unit="share",
        interval="95 % Wilson interval over the queries",
        is_higher_better=True,
        wording="the [{k} ]nearest samples of the bank[ by {similarity} similarity] vote on each query[, weighted by "
        "exp(similarity / {temperature})]",
        headline="representation",
        leads="is ahead",
    ),
)
