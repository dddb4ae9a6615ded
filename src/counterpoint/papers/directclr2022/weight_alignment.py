"""Whether neighbouring layers agree on their singular vectors: one by one, in blocks, or as subspaces."""

# D width between the layers, K live directions

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_positive
from counterpoint.core.errors import UsageError


@dataclass(frozen=True)
class AlignmentBlock:
    """Neighbouring singular values that are too close to name their vectors one by one.

    Attributes:
        first: index of the largest, from 0.
        last: index after the smallest.
        share: of the block's squared alignment that lies inside it, 1 when both layers span the same directions.
    """

    first: int
    last: int
    share: float


def alignment_matrix(below_HD: Tensor, above_KH: Tensor) -> Tensor:
    r""":math:`|A|` (h, h) with :math:`A = V_2^\top U_1`: how W2's right singular vectors meet W1's left ones.

    Source: directclr2022, section 5.3 and Fig. 4. Signs of singular vectors are arbitrary, hence absolute values. Both
    sides are in descending order of singular values. Unchanged by scaling either matrix.

    Args:
        below_HD: W1, with at least h inputs.
        above_KH: W2, with at least h outputs.

    >>> alignment_matrix(torch.diag(torch.tensor([3.0, 1.0])), torch.diag(torch.tensor([1.0, 2.0])))
    tensor([[0., 1.],
            [1., 0.]], dtype=torch.float64)
    """
    return _signed_alignment(below_HD, above_KH).abs()


def live_alignment(below_HD: Tensor, above_KH: Tensor, num_live: int) -> Tensor:
    """Principal cosines (num_live,) between both sides' leading singular subspaces, descending; all 1 if they agree.

    The test to use where live singular values are nearly equal, since their vectors are then arbitrary within the
    subspace (remark after Theorem 2 of directclr2022).

    Args:
        below_HD: W1.
        above_KH: W2.
        num_live: number of leading directions, 1 ... h.

    >>> live_alignment(torch.diag(torch.tensor([3.0, 2.0, 0.0])), torch.diag(torch.tensor([2.0, 3.0, 0.0])), 2)
    tensor([1., 1.], dtype=torch.float64)
    """
    a_HH = _signed_alignment(below_HD, above_KH)
    if not 1 <= num_live <= len(a_HH):
        raise UsageError(f"num_live must be between 1 and {len(a_HH)}, got {num_live}")
    return torch.linalg.svdvals(a_HH[:num_live, :num_live]).clamp(max=1.0)


def alignment_blocks(below_HD: Tensor, above_KH: Tensor, *, separation: float = 0.1) -> tuple[AlignmentBlock, ...]:
    """Blocks of the alignment matrix, and how much of each stays inside.

    A block ends where the singular values of both layers fall by more than ``separation``, relative to the larger one.
    directclr2022, section 5.3, expects a block-diagonal alignment matrix, one block per group of equal singular values.

    Args:
        below_HD: W1.
        above_KH: W2.
        separation: > 0, below 1.

    >>> blocks = alignment_blocks(torch.diag(torch.tensor([3.0, 2.9, 1.0])), torch.diag(torch.tensor([2.9, 3.0, 1.0])))
    >>> [(block.first, block.last, round(block.share, 6)) for block in blocks]
    [(0, 2, 1.0), (2, 3, 1.0)]
    """
    check_positive(separation, "separation", hint="0.1 is common")
    squared_HH = _signed_alignment(below_HD, above_KH).square()
    below_H, above_H = (torch.linalg.svdvals(w.double())[: len(squared_HH)] for w in (below_HD, above_KH))
    is_apart = (_falls(below_H) > separation) & (_falls(above_H) > separation)
    edges = [0, *(int(place) + 1 for place in is_apart.nonzero()[:, 0]), len(squared_HH)]
    return tuple(
        AlignmentBlock(first, last, float(squared_HH[first:last, first:last].sum()) / (last - first))
        for first, last in pairwise(edges)
    )


def _falls(sigma_H: Tensor) -> Tensor:
    """Relative fall from each singular value to the next; 0 between zeros."""
    return torch.where(sigma_H[:-1] > 0, 1 - sigma_H[1:] / sigma_H[:-1], 0.0)


def _signed_alignment(below_HD: Tensor, above_KH: Tensor) -> Tensor:
    """V2^T U1 (h, h)."""
    check_features(below_HD, "below", min_rows=1)
    check_features(above_KH, "above", min_rows=1)
    if above_KH.shape[1] != below_HD.shape[0]:
        raise UsageError(f"above takes {above_KH.shape[1]} inputs, but below gives {below_HD.shape[0]}")
    u1_HH = torch.linalg.svd(below_HD.double(), full_matrices=True).U
    v2h_HH = torch.linalg.svd(above_KH.double(), full_matrices=True).Vh
    return v2h_HH @ u1_HH
