"""Negatives that have weight in a loss, in its batches, and samples that are as close as two views of one.

Weights are those of the loss itself: its ``importance`` is zero where a vector does not repel the anchor, so that no
positive is among them.
"""

# N samples of a batch, A anchors, M keys (A = M = 2N: first view before second), D features

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.numerics import row_entropy, unit_rows
from counterpoint.diagnostics.pair_record import PairRecord

HARDEST = 0.01  # of the negatives, at least one
MOST_COMPARED = 2048  # samples of which all pairs are looked at
COPY = 0.03  # of the median distance of two views: nearer samples are near-copies
ALIKE = 0.3  # of the median distance of two samples as they came: what is farther is not a copy, however it is encoded
SAME = 1e-7  # distance at unit length of samples that are the same up to rounding
NUM_PAIRS = 12


WeighingLoss = Any  # a ``losses.loss.Loss`` with ``importance``; that package lies beside this one


@dataclass(frozen=True)
class PairBatch:
    """Embeddings of a batch.

    Attributes:
        z0_ND: embeddings of the first view, (N, D), float64.
        z1_ND: embeddings of the second view, of the same shape.
        labels_N: class numbers, -1 where unknown; None without labels.
        is_copy_NN: bool (N, N), true where two different samples are near-copies.
    """

    z0_ND: Tensor
    z1_ND: Tensor
    labels_N: Tensor | None
    is_copy_NN: Tensor

    def asked_of(self, loss: WeighingLoss) -> tuple[Tensor, ...]:
        """Arguments of the loss; samples of unknown class are each a class of their own."""
        if self.labels_N is None or not loss.uses_labels:
            return (self.z0_ND, self.z1_ND)
        own_N = -1 - torch.arange(len(self.labels_N))
        return (self.z0_ND, self.z1_ND, torch.where(self.labels_N < 0, own_N, self.labels_N))


def drawn_batches(num_samples: int, batch_size: int, *, at_most: int, generator: torch.Generator) -> list[Tensor]:
    """Positions of random batches of distinct samples, none of which is in two; one smaller batch of too few samples.

    >>> [len(batch) for batch in drawn_batches(10, 4, at_most=9, generator=torch.Generator().manual_seed(0))]
    [4, 4]
    """
    order_N = torch.randperm(num_samples, generator=generator)
    size = min(batch_size, num_samples)
    return [order_N[number * size : (number + 1) * size] for number in range(min(at_most, num_samples // size))]


def num_negatives(loss: WeighingLoss, batch: PairBatch) -> int:
    """Vectors that repel each anchor of a batch; with labels those of the anchor that has most."""
    if hasattr(loss, "num_negatives"):
        return int(loss.num_negatives(len(batch.z0_ND)))
    return int((loss.importance(*batch.asked_of(loss)) > 0).sum(1).max())


def batch_attention(loss: WeighingLoss, batch: PairBatch) -> PairRecord:
    r"""Measure how a loss spreads its weight over the negatives of a batch: means over the anchors that weigh any.

    .. math:: p_{ij} = \alpha_{ij} / \sum_k \alpha_{ik}, \qquad H_i = -\sum_j p_{ij} \log p_{ij}

    with :math:`e^{H_i}` the effective number of negatives.

    Source: alphacl2022, Eq. 4 (alpha). Memory of one batch: (2n, 2n).
    """
    with torch.no_grad():
        # Below 0, as hard-negative weighting has for the easiest pairs, they attract.
        alpha_AM = loss.importance(*batch.asked_of(loss)).clamp(min=0.0)
    total_A1 = alpha_AM.sum(1, keepdim=True)
    # A satisfied hinge weighs nothing, and some losses have one view's anchors only.
    is_anchor_A = total_A1[:, 0] > 0
    share_AM = alpha_AM[is_anchor_A] / total_A1[is_anchor_A]
    count = num_negatives(loss, batch)
    most_AK = share_AM.topk(min(max(1, round(HARDEST * count)), share_AM.shape[1]), dim=1).values
    label_N, is_same_NN = batch.labels_N, None
    if not loss.uses_labels and label_N is not None and bool((label_N >= 0).any()):
        is_same_NN = ((label_N[:, None] == label_N) & (label_N >= 0)).fill_diagonal_(False)
    copies, own_class = (_mass(share_AM, is_anchor_A, is_it_NN) for is_it_NN in (batch.is_copy_NN, is_same_NN))
    return PairRecord(
        num_negatives=float(count),
        effective_negatives=float(row_entropy(share_AM).exp().mean()),
        hardest_share=float(most_AK.sum(1).mean()),
        copy_mass=copies[0],
        copy_chance=copies[1],
        class_mass=own_class[0],
        class_chance=own_class[1],
    )


def _mass(share_AM: Tensor, is_anchor_A: Tensor, is_it_NN: Tensor | None) -> tuple[float | None, float | None]:
    """Return the share of the weight that falls on the marked pairs, and their share of all pairs."""
    if is_it_NN is None or not len(share_AM):
        return None, None
    n = len(is_it_NN)
    is_it_AM = is_it_NN.repeat(2, 2)[is_anchor_A]
    return float((share_AM * is_it_AM).sum(1).mean()), float(is_it_NN.double().sum()) / (n * (n - 1))


@dataclass(frozen=True)
class NearSamples:
    """Close pairs of samples.

    Attributes:
        is_copy_NN: bool (N, N), true where two different samples are near-copies; symmetric.
        pairs_P2: positions of the closest pairs of different samples, exact copies left out, closest first.
        cosine_P: cosines of these pairs, each the mean over both views of the one and of the other.
        own_P: cosine of the two views of one sample, the mean over both samples of a pair.
    """

    is_copy_NN: Tensor
    pairs_P2: Tensor
    cosine_P: Tensor
    own_P: Tensor

    @property
    def copy_share(self) -> float:
        """Share of samples that have a near-copy."""
        return float(self.is_copy_NN.any(1).double().mean())


def near_samples(
    z0_ND: Tensor, z1_ND: Tensor, plain_ND: Tensor, raw_NF: Tensor | None = None, num_pairs: int = NUM_PAIRS
) -> NearSamples:
    r"""Find samples that lie as near to each other as the views of one sample.

    .. math:: c_{ij} = \tfrac14 \langle \hat z_i + \hat z_i', \hat z_j + \hat z_j' \rangle

    is the cosine of a pair. Two samples are near-copies where, without augmentation, their distance
    :math:`1 - \cos` is below 3 % of the median of that between two views of one sample. An embedding that has lost its
    dimensions puts unlike samples together; so the samples themselves must be near, too: below three tenths of the
    median Euclidean distance between two of them.

    Args:
        z0_ND: embeddings of the first view, N <= ``MOST_COMPARED``.
        z1_ND: embeddings of the second view.
        plain_ND: embeddings of the samples themselves, without augmentation.
        raw_NF: the samples, as numbers that can be compared (small pictures); None if they are not at hand.
        num_pairs: largest number of closest pairs that are kept.

    Raises:
        ValueError: shapes differ, or too many samples.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> near = near_samples(z, z + torch.tensor([0.2, 0.1]), z)
    >>> round(near.copy_share, 2)
    0.67
    """
    for name, z_ND in (("z0", z0_ND), ("z1", z1_ND), ("plain", plain_ND)):
        check_features(z_ND, name)
    if not z0_ND.shape == z1_ND.shape == plain_ND.shape or len(z0_ND) > MOST_COMPARED:
        shapes = ", ".join(str(tuple(z_ND.shape)) for z_ND in (z0_ND, z1_ND, plain_ND))
        raise ValueError(f"z0, z1 and plain must have one shape and at most {MOST_COMPARED} rows, got {shapes}")
    first_ND, second_ND, unit_ND = (unit_rows(z_ND.double()) for z_ND in (z0_ND, z1_ND, plain_ND))
    own_N = (first_ND * second_ND).sum(1)
    mean_ND = (first_ND + second_ND) / 2
    cosine_NN = (mean_ND @ mean_ND.T).fill_diagonal_(-torch.inf)
    distance_NN = (1 - unit_ND @ unit_ND.T).fill_diagonal_(torch.inf)
    typical = float((1 - own_N).median())
    # Nothing is nearer than two views that are equal.
    is_copy_NN = distance_NN < (COPY * typical if typical > SAME else -torch.inf)
    if raw_NF is not None:
        apart_NN = torch.cdist(raw_NF.double(), raw_NF.double())
        is_copy_NN &= apart_NN < ALIKE * apart_NN[torch.ones_like(apart_NN, dtype=torch.bool).triu(1)].median()
    # Each pair once, and none of exact copies.
    distinct_NN = cosine_NN.masked_fill(distance_NN <= SAME, -torch.inf)
    distinct_NN[torch.ones_like(distinct_NN, dtype=torch.bool).tril()] = -torch.inf
    cosine_P, place_P = distinct_NN.flatten().topk(min(num_pairs, len(own_N) * (len(own_N) - 1) // 2))
    is_there_P = torch.isfinite(cosine_P)
    cosine_P, place_P = cosine_P[is_there_P], place_P[is_there_P]
    pairs_P2 = torch.stack([place_P // len(own_N), place_P % len(own_N)], dim=1)
    return NearSamples(is_copy_NN, pairs_P2, cosine_P, own_N[pairs_P2].mean(1))
