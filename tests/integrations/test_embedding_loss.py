"""Losses of (embeddings, labels): those of pytorch-metric-learning, and what they refuse."""

from typing import Any

import pytest
import torch
from pytorch_metric_learning.losses import NTXentLoss, SupConLoss
from torch import Tensor

from counterpoint.core.errors import DataError, UsageError
from counterpoint.integrations.trainer_losses import EmbeddingLoss
from counterpoint.losses import AlphaCL, HardNegatives, InfoNCE, PairLoss, SupCon, Triplet
from counterpoint.nn.heads import OutputMap
from tolerances import assert_close

LABELS = {
    "views": [0, 1, 2, 3, 0, 1, 2, 3],
    "classes": [5, 5, 5, 2, 2, 9, 9, 2],
    "one alone": [0, 0, 1, 1, 1, 2, 3, 3],
}
each_labels = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)


def embeddings(n: int = 8) -> Tensor:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()


@each_labels
@pytest.mark.parametrize(("ours", "theirs"), [(InfoNCE(0.1), NTXentLoss(0.1)), (SupCon(0.1), SupConLoss(0.1))])
def test_value_and_gradient_are_theirs(labels: list[int], ours: Any, theirs: Any) -> None:
    z, y = embeddings(), torch.tensor(labels)
    value, expected = EmbeddingLoss(ours)(z, y), theirs(z, y)
    assert_close(value, expected)
    assert_close(torch.autograd.grad(value, z)[0], torch.autograd.grad(expected, z)[0])


@each_labels
def test_any_phi_and_psi_are_taken_over_the_positive_pairs(labels: list[int]) -> None:
    z, margin = embeddings(), 0.3
    unit = z.detach() / z.detach().norm(dim=1, keepdim=True)
    terms = []
    for i, own in enumerate(labels):
        for p, other in enumerate(labels):
            if p != i and other == own:
                gaps = [unit[i] @ (unit[j] - unit[p]) for j, label in enumerate(labels) if label != own]
                terms.append(sum((gap + margin).clamp(min=0) for gap in gaps))
    assert_close(EmbeddingLoss(Triplet(margin))(z, torch.tensor(labels)), torch.stack(terms).mean())  # pyright: ignore[reportArgumentType]


def test_other_losses_take_the_two_vectors_of_each_label_as_views() -> None:
    z, y = embeddings(6), torch.tensor([7, 3, 3, 5, 7, 5])
    views = z[[1, 3, 0]], z[[2, 5, 4]]  # in the order of labels
    for loss in (AlphaCL(), HardNegatives(InfoNCE(0.2)), PairLoss(torch.log1p, torch.exp)):
        assert_close(EmbeddingLoss(loss)(z, y), loss(*views))


def test_the_output_map_comes_first() -> None:
    z, y = embeddings(), torch.tensor(LABELS["classes"])
    loss = EmbeddingLoss(InfoNCE(0.2), output=OutputMap(nonnegative="relu", normalize=False))
    assert_close(loss(z, y), NTXentLoss(0.2)(z.relu(), y))


@pytest.mark.parametrize(
    ("loss", "labels", "error", "words"),
    [
        (InfoNCE(), [0, 1], ValueError, r"labels .*\(8,\), got \(2,\)"),
        (InfoNCE(), range(8), DataError, "two vectors of one label and one of another"),
        (InfoNCE(), [4] * 8, DataError, "two vectors of one label and one of another"),
        (AlphaCL(), LABELS["classes"], DataError, "AlphaCL needs labels of which each occurs twice"),
        (AlphaCL(), range(8), DataError, "AlphaCL needs labels of which each occurs twice"),
        (AlphaCL(), [0] * 8, DataError, "AlphaCL needs labels of which each occurs twice"),
    ],
)
def test_labels_that_leave_no_pairs_are_refused(loss: Any, labels: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        EmbeddingLoss(loss)(embeddings(), torch.tensor(list(labels)))


def test_empty_batches_miners_and_things_that_are_no_loss_are_refused() -> None:
    for n in (0, 1):
        for loss in (InfoNCE(), SupCon(), AlphaCL()):
            with pytest.raises(ValueError, match=f"2 rows, got {n}|each occurs twice"):
                EmbeddingLoss(loss)(embeddings(n), torch.zeros(n, dtype=torch.long))
    with pytest.raises(UsageError, match="indices_tuple must be None: all pairs count"):
        EmbeddingLoss(InfoNCE())(embeddings(), torch.tensor(LABELS["views"]), (torch.tensor([0]),) * 3)
    with pytest.raises(UsageError, match="NTXentLoss"):
        EmbeddingLoss(NTXentLoss())  # pyright: ignore[reportArgumentType]
