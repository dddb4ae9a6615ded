"""Weighted nearest-neighbour classification."""

# N bank samples, Q queries, D features, K neighbours, C classes

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import UsageError
from counterpoint.core.metric import accuracy_metric
from counterpoint.core.stored_rows import Rows
from counterpoint.evaluation.metric_types import Labelled, Score, accuracy, check_known
from counterpoint.evaluation.nearest import QUERY_CHUNK, nearest


@dataclass(frozen=True)
class Vote:
    r"""How the nearest bank samples of a query vote: each by :math:`e^{\cos / T}`.

    Attributes:
        k: neighbours that vote, >= 1.
        temperature: T > 0; a small one trusts only the nearest.

    Raises:
        ValueError: a value out of its range.
    """

    k: int = 20
    temperature: float = 0.1

    def __post_init__(self) -> None:
        """Refuse what is no vote."""
        check_positive(self.temperature, "temperature", hint="0.07 to 0.1 is usual")
        if self.k < 1:
            raise ValueError(f"k must be >= 1, got {self.k}; 20 and 200 are usual")

    def settings(self) -> dict[str, Any]:
        """What the figure depends on."""
        return {"k": self.k, "temperature": self.temperature, "similarity": "cosine"}


def knn_predict(bank_ND: Rows, labels_N: Tensor, queries_QD: Tensor, vote: Vote | None = None) -> Tensor:
    r"""Predict a class for each query by a weighted vote of its nearest bank samples.

    .. math:: \hat y(q) = \arg\max_c \sum_{i \in \mathrm{kNN}(q)} [y_i = c]\, e^{\cos(q, b_i) / T}

    Source: wu2018, section 3.4 (there k = 200, T = 0.07).

    Exact, with ties defined: of equal similarities the smaller bank index is nearer, of equal votes the smaller class
    wins.

    Args:
        bank_ND: features of labelled samples, in memory or on disk.
        labels_N: their classes, int64, from 0.
        queries_QD: features to classify.
        vote: None for k = 20 and T = 0.1.

    Returns:
        Classes (q,), int64.

    Raises:
        ValueError: fewer samples than neighbours, shapes that do not fit, or rows that are not finite.

    >>> bank = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> knn_predict(bank, torch.tensor([0, 0, 1]), torch.tensor([[1.0, 0.2], [0.1, 1.0]]), Vote(k=1))
    tensor([0, 1])
    """
    vote = vote or Vote()
    check_known(bank_ND, labels_N, queries_QD)
    if vote.k > len(bank_ND):
        raise ValueError(f"k must be between 1 and the number of bank samples, {len(bank_ND)}, got {vote.k}")
    found = nearest(bank_ND, queries_QD, vote.k)
    labels_N, num_classes = labels_N.long(), int(labels_N.max()) + 1

    def elected(similarity_QK: Tensor, positions_QK: Tensor) -> Tensor:
        # Relative to the nearest neighbour, so that votes vanish at no temperature; this changes no ranking.
        weight_QK = torch.exp((similarity_QK - similarity_QK[:, :1]) / vote.temperature)
        votes_QC = weight_QK.new_zeros(len(weight_QK), num_classes)
        # The first of equal votes, which is the smaller class number.
        return votes_QC.scatter_add_(1, labels_N[positions_QK], weight_QK).argmax(dim=1)

    # A chunk at a time: with thousands of classes the votes would take more room than the features.
    chunks = zip(found.similarity_QK.split(QUERY_CHUNK), found.positions_QK.split(QUERY_CHUNK), strict=True)
    return torch.cat([elected(*chunk) for chunk in chunks])


def _score(known: Labelled, vote: Vote) -> Score:
    """Accuracy of a vote on the queries."""
    predicted_Q = knn_predict(known.bank_ND, known.labels_N, known.queries_QD, vote)
    return accuracy(predicted_Q, known.labels_Q, vote.settings())


def knn_score(known: Labelled) -> Score:
    """Accuracy of the vote that was asked for."""
    return known.once("knn", lambda: _score(known, Vote(known.k, known.temperature)))


def _preset(known: Labelled, k: int) -> Score:
    """Accuracy of a vote that has its number of neighbours in its name."""
    if len(known.bank_ND) < k:
        raise UsageError(f"knn-{k} needs at least {k} labelled samples, got {len(known.bank_ND)}; use knn with --k")
    return _score(known, Vote(k))


METRICS = (
    accuracy_metric(
        name="knn",
        title="kNN accuracy",
        short="kNN",
        definition="Share of queries that get their own class where the nearest labelled samples vote.",
        source="wu2018",
        measure=knn_score,
        wording="the [{k} ]nearest samples of the bank[ by {similarity} similarity] vote on each query[, weighted by "
        "exp(similarity / {temperature})]",
        headline="representation",
        in_parts=True,
    ),
    accuracy_metric(
        name="knn-20",
        title="kNN-20 accuracy",
        short="kNN-20",
        definition="Share of queries that get their own class where the 20 nearest labelled samples vote by cosine, "
        "at temperature 0.1.",
        source="wu2018",
        measure=lambda known: _preset(known, 20),
        wording="the [{k} ]nearest samples of the bank[ by {similarity} similarity] vote on each query[, weighted by "
        "exp(similarity / {temperature})]",
        in_parts=True,
        on_request=True,
    ),
    accuracy_metric(
        name="knn-200",
        title="kNN-200 accuracy",
        short="kNN-200",
        definition="Share of queries that get their own class where the 200 nearest labelled samples vote by cosine, "
        "at temperature 0.1, as in lightly's benchmarks and in MIO.",
        source="wu2018",
        measure=lambda known: _preset(known, 200),
        wording="the [{k} ]nearest samples of the bank[ by {similarity} similarity] vote on each query[, weighted by "
        "exp(similarity / {temperature})]",
        in_parts=True,
        on_request=True,
    ),
)
