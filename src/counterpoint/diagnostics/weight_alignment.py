"""Whether two adjacent linear layers use the same directions between them: singular vectors of their weights."""

# D inputs of the layer below, H width between both layers, K outputs of the layer above, L live directions

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.errors import UsageError
from counterpoint.diagnostics.layer_record import JointFigures
from counterpoint.diagnostics.spectra import without_rounding
from counterpoint.diagnostics.vanished import vanished_directions


def signed_alignment(below_HD: Tensor, above_KH: Tensor) -> Tensor:
    r""":math:`A = V_2^\top U_1` (h, h): how W2's right singular vectors meet W1's left ones.

    Source: directclr2022, section 5.3 and Fig. 4. Both sides are in descending order of singular values; signs are
    arbitrary. Unchanged by scaling either matrix.

    Args:
        below_HD: W1, weights of the layer that comes first, with h outputs.
        above_KH: W2, of the layer behind it, with h inputs.
    """
    check_features(below_HD, "below", min_rows=1)
    check_features(above_KH, "above", min_rows=1)
    if above_KH.shape[1] != below_HD.shape[0]:
        raise UsageError(f"above takes {above_KH.shape[1]} inputs, but below gives {below_HD.shape[0]}")
    # Full where a side has fewer vectors than the width: A is square for any number of inputs and outputs.
    width = len(below_HD)
    u1_HH = torch.linalg.svd(below_HD.double(), full_matrices=below_HD.shape[1] < width).U
    v2h_HH = torch.linalg.svd(above_KH.double(), full_matrices=len(above_KH) < width).Vh
    return v2h_HH @ u1_HH


def principal_cosines(block: Tensor) -> Tensor:
    """Cosines of principal angles between subspaces whose bases have these inner products."""
    # Rounding may take them above 1.
    return torch.linalg.svdvals(block).clamp(max=1.0)


@dataclass(frozen=True)
class Alignment:
    """How two adjacent layers meet.

    Attributes:
        figures: without the names of the layers.
        matrix_HH: :math:`|A|` of ``signed_alignment``.
    """

    figures: JointFigures
    matrix_HH: Tensor


def layer_alignment(below_HD: Tensor, above_KH: Tensor) -> Alignment:
    r"""Compare the live directions of two adjacent layers, as subspaces.

    .. math:: \frac{1}{L} \| V_{2,\mathrm{live}}^\top U_{1,\mathrm{live}} \|_F^2

    Index by index the matrix says less: where live singular values are nearly equal, as InfoNCE makes them, their
    vectors are arbitrary within the subspace; and where no gradient arrives, small singular directions need not align
    (directclr2022, remark after Theorem 2 and appendix B.5).

    Args:
        below_HD: W1, float weights of the layer that comes first.
        above_KH: W2, of the layer behind it.

    Returns:
        The comparison; an overlap of 0 where a layer has no live direction.

    >>> found = layer_alignment(torch.diag(torch.tensor([3.0, 2.0, 0.0, 0.0])), torch.eye(4)[:2])
    >>> found.figures.live_below, found.figures.live_above, found.figures.overlap, found.figures.chance
    (2, 2, 1.0, 0.5)
    """
    a_HH = signed_alignment(below_HD, above_KH)
    below, above = live_directions(below_HD), live_directions(above_KH.T)
    cosines_L = principal_cosines(a_HH[:above, :below])
    figures = JointFigures(
        width=len(a_HH),
        live_below=below,
        live_above=above,
        overlap=float(cosines_L.square().mean()) if len(cosines_L) else 0.0,
        chance=max(below, above) / len(a_HH),
    )
    return Alignment(figures, a_HH.abs())


def live_directions(weight_HD: Tensor) -> int:
    """How many of the h directions of its rows' side a matrix fills: those before a step in its singular values.

    Squared singular values are counted as variances of as many features, against those of independent entries, which
    follow the same law (``vanished.vanished_directions``).

    Args:
        weight_HD: weights (h, d).

    >>> live_directions(torch.diag(torch.tensor([3.0, 2.0, 1e-6, 0.0])))
    2
    """
    num_rows, num_columns = weight_HD.shape
    lambda_K = torch.linalg.svdvals(weight_HD.double()).square() / num_columns
    lambda_H = torch.cat([lambda_K, lambda_K.new_zeros(num_rows - len(lambda_K))])
    found = vanished_directions(without_rounding(lambda_H, 0.0), num_columns + 1)
    # Without a step all are alive, also the few smallest that the count leaves aside.
    return found.resolved - found.count if found.count else min(num_rows, num_columns)
