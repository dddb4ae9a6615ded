"""phi and psi: what a pairwise loss does to each pair, and to each anchor's sum over its pairs.

Of a user's functions nothing but their values is known: who wants a class-level risk of them says what ``theory`` asks
for in a ``Psi`` or ``Phi``.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.kernels.contract import (
    EXPONENTIAL,
    HINGE,
    IDENTITY,
    SIGMOID,
    SOFTPLUS,
    Elementwise,
    PairFunction,
    identity,
    softplus,
)

INCREASING = (EXPONENTIAL, HINGE, IDENTITY, SIGMOID, SOFTPLUS)


@dataclass(frozen=True)
class Psi:
    r"""What is applied to each pair: psi(scale * gap + margin), the gap being :math:`d_i^2 - d_{ij}^2`.

    Attributes:
        function: the elementwise function and its derivatives.
        formula: psi as a formula in x, the gap.
        scale: factor of the gap, e.g. 1 / temperature.
        margin: what is added to the scaled gap.
        is_convex: allows the tighter bound of ``floor``.
        is_increasing: the function nowhere falls; known of those in ``INCREASING``. With ``is_convex`` it allows a
            class-level risk.
    """

    function: PairFunction
    formula: str
    scale: float = 1.0
    margin: float = 0.0
    is_convex: bool = True
    is_increasing: bool = False

    @property
    def rises_with_gap(self) -> bool:
        """Known to be an increasing function of the gap."""
        return self.scale > 0 and (self.is_increasing or self.function in INCREASING)


@dataclass(frozen=True)
class LogPlus:
    """The function phi(x) = factor * log(epsilon + x), in the log domain."""

    epsilon: float
    factor: float = 1.0

    def of_sum(self, xi: Tensor) -> Tensor:
        """As a function of the sum."""
        return self.factor * torch.log(self.epsilon + xi)

    def of_log_sum(self, log_xi: Tensor) -> Tensor:
        """As a function of its logarithm."""
        if self.epsilon == 0:
            return log_xi if self.factor == 1 else self.factor * log_xi
        offset = math.log(self.epsilon)
        # log(epsilon + x) = log epsilon + softplus(log x - log epsilon): x itself, which may overflow, is never formed.
        plus = softplus(log_xi) if offset == 0 else offset + softplus(log_xi - offset)
        return plus if self.factor == 1 else self.factor * plus

    def slope_of_log_sum(self, log_xi: Tensor) -> Tensor:
        """Derivative with respect to the logarithm."""
        if self.epsilon == 0:
            return torch.full_like(log_xi, self.factor)
        offset = math.log(self.epsilon)
        share = torch.sigmoid(log_xi if offset == 0 else log_xi - offset)
        return share if self.factor == 1 else self.factor * share


@dataclass(frozen=True)
class Phi:
    r"""What is applied to each anchor's sum xi.

    Attributes:
        of_sum: phi as a function of xi.
        formula: phi as a formula in x, the sum.
        of_log_sum: phi as a function of log xi, for exponential psi; None: ``of_sum`` after exp.
        slope_of_log_sum: derivative of ``of_log_sum``, for the shortcut of small batches; None: they do without.
        is_linear: phi(x) = factor * x: loss and gradient then take one pass over the pairs.
        is_convex: phi(c psi(x)) is convex in x for every c > 0 where psi is: allows the tighter bound of ``floor``.
        logarithm: the epsilon and factor of phi, where it is factor * log(epsilon + x).
        domain: the sums that phi is defined for, in words; empty where it cannot be left.
    """

    of_sum: Elementwise
    formula: str
    of_log_sum: Elementwise | None = None
    slope_of_log_sum: Elementwise | None = None
    is_linear: bool = False
    is_convex: bool = True
    logarithm: LogPlus | None = None
    domain: str = ""

    def of_statistic(self, statistic_N: Tensor, *, is_log: bool) -> Tensor:
        """Phi per anchor, from the sums or from their logarithms."""
        if not is_log:
            return self.of_sum(statistic_N)
        return self.of_sum(statistic_N.exp()) if self.of_log_sum is None else self.of_log_sum(statistic_N)


def log_plus(epsilon: float, factor: float = 1.0) -> Phi:
    """Return phi(x) = factor * log(epsilon + x), computed in the log domain where psi is exp."""
    formula = f"log({epsilon:g} + x)" if epsilon else "log(x)"
    phi, formula = LogPlus(epsilon, factor), formula if factor == 1 else f"{factor:g} {formula}"
    return Phi(phi.of_sum, formula, phi.of_log_sum, phi.slope_of_log_sum, logarithm=phi)


LINEAR = Phi(identity, "x", is_linear=True)

# What torch offers of the family's phi, kept in the log domain with an exponential psi.
# is_convex=False: the logarithm of a sum of a user's convex psi need not be convex.
LOG_PHI: dict[Elementwise, Phi] = {
    torch.log: Phi(
        torch.log, "log(x)", identity, torch.ones_like, is_convex=False, logarithm=LogPlus(0.0), domain="x > 0"
    ),
    torch.log1p: Phi(
        torch.log1p, "log(1 + x)", softplus, torch.sigmoid, is_convex=False, logarithm=LogPlus(1.0), domain="x > -1"
    ),
}


def user_psi(psi: Elementwise | Psi | PairFunction) -> Psi:
    """A user's psi: a function of a tensor, with derivatives given (``PairFunction``) or taken by autograd.

    ``torch.exp`` is recognised and computed in the log domain.

    Raises:
        TypeError: not callable.
        ValueError: not elementwise (the shape changes).
    """
    if isinstance(psi, Psi):
        return psi
    if psi is torch.exp:
        psi = EXPONENTIAL
    if isinstance(psi, PairFunction):
        # Only the exponential works in the log domain, and it is convex; of another function nothing is known.
        return Psi(psi, psi.name, is_convex=psi.in_log_domain)
    # The probe wants no gradient: a result that does comes from a tensor that psi holds.
    if _check_elementwise(psi, "psi").requires_grad:
        raise ValueError("psi must hold no learnable tensor: kernels do not differentiate for it; scale the vectors")
    slope = _derivative(psi)
    function = PairFunction(_name(psi), psi, slope, _derivative(slope))
    return Psi(function, function.name, is_convex=False)


def user_phi(phi: Elementwise | Phi) -> Phi:
    """A user's phi.

    Raises:
        TypeError: not callable.
        ValueError: not elementwise (the shape changes).
    """
    if isinstance(phi, Phi):
        return phi
    for known, kept in LOG_PHI.items():
        if phi is known:
            return kept
    _check_elementwise(phi, "phi")
    return Phi(phi, _name(phi), is_convex=False, domain="where it is a number")


def _derivative(function: Elementwise) -> Elementwise:
    """Elementwise derivative by reverse mode, which nests in every mode."""

    def derivative(u: Tensor) -> Tensor:
        return torch.func.grad(lambda v: function(v).sum())(u)

    return derivative


def _check_elementwise(function: Elementwise, name: str) -> Tensor:
    """Call the function once and return what it gave."""
    if not callable(function):
        raise TypeError(f"{name} must be a function of a tensor, got {type(function).__name__}")
    # Inside the domain of a logarithm, a root, an arcsine; not square, so that a transpose shows in the shape.
    probe = torch.linspace(0.1, 0.9, 6, dtype=torch.float64).view(2, 3)
    before = probe.clone()
    result = function(probe)
    if not torch.equal(probe, before):
        raise ValueError(f"{name} must leave its argument as it is, but works in place")
    if not isinstance(result, Tensor) or result.shape != probe.shape:
        shape = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"{name} must act on each element, but turned shape (2, 3) into {shape}")
    return result


def _name(function: Elementwise) -> str:
    return getattr(function, "__name__", type(function).__name__)
