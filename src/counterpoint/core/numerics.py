"""Numerical helpers that more than one layer needs."""

# N rows, D features

import torch
from torch import Tensor


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
