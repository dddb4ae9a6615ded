"""Samples that lie as near to each other as two views of one sample: pairs to look at, and near-copies."""

# N samples, D features

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.numerics import unit_rows

MOST_COMPARED = 2048  # samples of which all pairs are looked at
COPY = 0.03  # of the median distance of two views: nearer samples are near-copies
ALIKE = 0.3  # of the median distance of two samples as they came: what is farther is no copy, however it is encoded
SAME = 1e-7  # distance at unit length of samples that are the same but for rounding
NUM_PAIRS = 12


@dataclass(frozen=True)
class NearSamples:
    """What lies near what.

    Attributes:
        is_copy_NN: which other samples are near-copies; symmetric.
        pairs_P2: positions of the closest pairs of different samples, exact copies left out, closest first.
        cosine_P: their cosines, each the mean over both views of the one and of the other.
        own_P: mean cosine of the two views of either.
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
        z1_ND: of the second view.
        plain_ND: of the samples themselves, without augmentation.
        raw_NF: the samples, as numbers that can be compared (small pictures); None where they are not at hand.
        num_pairs: at most so many of the closest pairs are kept.

    Raises:
        ValueError: shapes differ, or too many samples.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> found = near_samples(z, z + torch.tensor([0.2, 0.1]), z)
    >>> round(found.copy_share, 2)
    0.67
    """
    for name, z_ND in (("z0", z0_ND), ("z1", z1_ND), ("plain", plain_ND)):
        check_features(z_ND, name)
    if not z0_ND.shape == z1_ND.shape == plain_ND.shape or len(z0_ND) > MOST_COMPARED:
        shapes = ", ".join(str(tuple(z_ND.shape)) for z_ND in (z0_ND, z1_ND, plain_ND))
        raise ValueError(f"z0, z1 and plain must have one shape and at most {MOST_COMPARED} rows, got {shapes}")
    first_ND, second_ND, unit_ND = (unit_rows(z_ND.double()) for z_ND in (z0_ND, z1_ND, plain_ND))
    own_N = (first_ND * second_ND).sum(1)
    both_ND = (first_ND + second_ND) / 2
    cosine_NN = (both_ND @ both_ND.T).fill_diagonal_(-torch.inf)
    distance_NN = (1 - unit_ND @ unit_ND.T).fill_diagonal_(torch.inf)
    typical = float((1 - own_N).median())
    # Of views that are equal nothing is nearer than they are.
    is_copy_NN = distance_NN < (COPY * typical if typical > SAME else -torch.inf)
    if raw_NF is not None:
        apart_NN = torch.cdist(raw_NF.double(), raw_NF.double())
        is_copy_NN &= apart_NN < ALIKE * apart_NN[torch.ones_like(apart_NN, dtype=torch.bool).triu(1)].median()
    # Each pair once, and none of exact copies.
    shown_NN = cosine_NN.masked_fill(distance_NN <= SAME, -torch.inf)
    shown_NN[torch.ones_like(shown_NN, dtype=torch.bool).tril()] = -torch.inf
    cosine_P, place_P = shown_NN.flatten().topk(min(num_pairs, len(own_N) * (len(own_N) - 1) // 2))
    is_there_P = torch.isfinite(cosine_P)
    cosine_P, place_P = cosine_P[is_there_P], place_P[is_there_P]
    pairs_P2 = torch.stack([place_P // len(own_N), place_P % len(own_N)], dim=1)
    return NearSamples(is_copy_NN, pairs_P2, cosine_P, own_N[pairs_P2].mean(1))
