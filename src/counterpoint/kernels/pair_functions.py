"""The elementwise functions psi of the known losses. A temperature or a margin is part of the scores, not of psi."""

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.kernels.contract import PairFunction

# Above it torch.nn.functional.softplus is linear; its own 20 is off by 2e-9, this one by less than float64 holds.
SOFTPLUS_THRESHOLD = 40.0


def softplus(u: Tensor) -> Tensor:
    """Return log(1 + e^u), exact to float64.

    >>> softplus(torch.tensor(0.0)) == torch.log(torch.tensor(2.0))
    tensor(True)
    """
    return F.softplus(u, threshold=SOFTPLUS_THRESHOLD)


def identity(u: Tensor) -> Tensor:
    """Return u."""
    return u


def _twice(u: Tensor) -> Tensor:
    return 2 * u


def _two(u: Tensor) -> Tensor:
    return torch.full_like(u, 2.0)


def _is_positive(u: Tensor) -> Tensor:
    """Slope of the hinge: 0 at 0, as torch.relu has it."""
    return (u > 0).to(u.dtype)


def _sigmoid_slope(u: Tensor) -> Tensor:
    """Derivative of the logistic sigmoid, without cancellation in either tail."""
    return torch.sigmoid(u) * torch.sigmoid(-u)


def _sigmoid_curvature(u: Tensor) -> Tensor:
    """Second derivative of the logistic sigmoid."""
    return _sigmoid_slope(u) * (torch.sigmoid(-u) - torch.sigmoid(u))


EXPONENTIAL = PairFunction("exp", torch.exp, torch.exp, torch.exp, in_log_domain=True)
IDENTITY = PairFunction("identity", identity, torch.ones_like, torch.zeros_like)
SQUARE = PairFunction("square", torch.square, _twice, _two)
HINGE = PairFunction("hinge", torch.relu, _is_positive, torch.zeros_like)
SIGMOID = PairFunction("sigmoid", torch.sigmoid, _sigmoid_slope, _sigmoid_curvature)
SOFTPLUS = PairFunction("softplus", softplus, torch.sigmoid, _sigmoid_slope)
