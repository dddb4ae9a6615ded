"""Numerical helpers that more than one layer needs."""

# N rows, D features

import torch
from torch import Tensor

# Lengths whose squares neither overflow nor vanish in float32.
ORDINARY_LENGTHS = (1e-15, 1e15)


def unit_rows(z_ND: Tensor) -> Tensor:
    """Scale each row to unit length; a zero row has no direction and stays zero, with zero gradient.

    Differs from ``torch.nn.functional.normalize``, whose gradient at a zero row is 1 / eps = 1e12: a single sample
    whose features are all silent would then wreck the optimiser's state.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000], [0.0000, 0.0000]])
    """
    # Dividing by the largest entry first keeps the squares from over- or underflowing.
    largest_N1 = z_ND.detach().abs().amax(dim=1, keepdim=True)
    is_zero_N1 = largest_N1 == 0
    scaled_ND = z_ND / torch.where(is_zero_N1, 1.0, largest_N1)
    norm_N1 = torch.where(
        is_zero_N1, 1.0, torch.linalg.vector_norm(torch.where(is_zero_N1, 1.0, scaled_ND), dim=1, keepdim=True)
    )
    return torch.where(is_zero_N1, 0.0, scaled_ND / norm_N1)


def take_radial(gradient_ND: Tensor, unit_ND: Tensor) -> Tensor:
    """Take from each row, in place, its part along a unit vector, which scaling to unit length has no slope in.

    Returns:
        The length of that part, (n, 1).

    >>> gradient, unit = torch.tensor([[2.0, 3.0]]), torch.tensor([[1.0, 0.0]])
    >>> take_radial(gradient, unit), gradient
    (tensor([[2.]]), tensor([[0., 3.]]))
    """
    radial_N1 = (unit_ND * gradient_ND).sum(1, keepdim=True)
    gradient_ND.addcmul_(unit_ND, radial_N1, value=-1)
    return radial_N1


def into_ball(z_ND: Tensor, radius: float) -> Tensor:
    """Shorten the rows that are longer than the radius, > 0, to that length; the others stay as they are.

    >>> into_ball(torch.tensor([[6.0, 8.0], [0.3, 0.4]]), 5.0)
    tensor([[3.0000, 4.0000], [0.3000, 0.4000]])
    """
    is_inside_N1 = torch.linalg.vector_norm(z_ND.detach(), dim=1, keepdim=True) <= radius
    return torch.where(is_inside_N1, z_ND, radius * unit_rows(z_ND))


def row_entropy(weight_NM: Tensor) -> Tensor:
    r"""Entropy of each row scaled to sum 1, :math:`-\sum_j p_{ij} \log p_{ij}` in nats; NaN for a row without weight.

    Args:
        weight_NM: finite weights (n, m), none negative.

    >>> row_entropy(torch.tensor([[2.0, 2.0, 0.0], [0.0, 3.0, 0.0]])).exp()
    tensor([2., 1.])
    """
    p_NM = weight_NM / weight_NM.amax(dim=1, keepdim=True)  # 0 / 0 is the NaN; sums of large weights stay finite
    p_NM = p_NM / p_NM.sum(dim=1, keepdim=True)
    return torch.special.entr(p_NM).sum(dim=1)
