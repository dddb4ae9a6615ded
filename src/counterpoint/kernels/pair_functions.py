"""The elementwise functions psi of the known losses. A temperature or a margin is part of the scores, not of psi."""

import torch
import torch.nn.functional as F

from counterpoint.kernels.contract import PairFunction

# Above it torch.nn.functional.softplus is linear; its own 20 is off by 2e-9, this one by less than float64 holds.
SOFTPLUS_THRESHOLD = 40.0


def _sigmoid_slope(u: torch.Tensor) -> torch.Tensor:
    """Derivative of the logistic sigmoid, without cancellation in either tail."""
    return torch.sigmoid(u) * torch.sigmoid(-u)


EXPONENTIAL = PairFunction("exp", torch.exp, torch.exp, torch.exp, in_log_domain=True)
IDENTITY = PairFunction("identity", lambda u: u, torch.ones_like, torch.zeros_like)
SQUARE = PairFunction("square", torch.square, lambda u: 2 * u, lambda u: torch.full_like(u, 2.0))
# At 0 the hinge has slope 0, as torch.relu has.
HINGE = PairFunction("hinge", torch.relu, lambda u: (u > 0).to(u.dtype), torch.zeros_like)
SIGMOID = PairFunction(
    "sigmoid", torch.sigmoid, _sigmoid_slope, lambda u: _sigmoid_slope(u) * (torch.sigmoid(-u) - torch.sigmoid(u))
)
SOFTPLUS = PairFunction(
    "softplus", lambda u: F.softplus(u, threshold=SOFTPLUS_THRESHOLD), torch.sigmoid, _sigmoid_slope
)
