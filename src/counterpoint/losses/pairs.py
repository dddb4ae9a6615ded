r"""phi and psi: what a pairwise loss does to each pair, and to each anchor's sum over its pairs.

Of a user's functions, what ``theory`` asks for is read from their derivatives. Autograd gives those, a grid the places:
all gaps that unit vectors can have, -2 to 2, and sums from 1e-3 to 1e3. That is evidence and no proof; who knows better
says so in a ``Psi`` or ``Phi`` of their own.
"""

# N anchors, K places of a grid

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
        if psi.in_log_domain:
            return Psi(psi, psi.name)
        return Psi(with_given_derivatives(psi), psi.name, is_convex=False)
    # The probe wants no gradient: a result that does comes from a tensor that psi holds.
    if _check_elementwise(psi, "psi").requires_grad:
        raise ValueError("psi must hold no learnable tensor: kernels do not differentiate for it; scale the vectors")
    slope = _derivative(psi)
    function = PairFunction(_name(psi), psi, slope, _derivative(slope))
    return Psi(function, function.name, is_convex=False)


def with_given_derivatives(psi: PairFunction) -> PairFunction:
    """The same psi, whose value has the given slope and whose slope has the given curvature under autograd.

    Kernels that hold all pairs differentiate ``value``; the others call ``slope`` and ``curvature``.

    >>> from counterpoint.kernels.contract import HINGE
    >>> u = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> torch.autograd.grad(with_given_derivatives(HINGE).value(u).sum(), u)[0]
    tensor([0., 1.])
    """
    # The slope is wrapped first: differentiating the value twice then ends in the given curvature.
    slope = partial(_given, psi.slope, psi.curvature)
    return replace(psi, value=partial(_given, psi.value, slope), slope=slope)


def _given(function: Elementwise, derivative: Elementwise, u: Tensor) -> Tensor:
    """Value of a function whose derivative is given."""
    return _WithDerivative.apply(u, function, derivative)  # pyright: ignore[reportReturnType]


class _WithDerivative(torch.autograd.Function):
    """f(u) with f' given as a function of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(u: Tensor, function: Any, derivative: Any) -> Tensor:
        return function(u.clone())  # a function that works in place must not reach the scores

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        u, _, ctx.derivative = inputs
        ctx.save_for_backward(u)
        ctx.save_for_forward(u)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        (u,) = ctx.saved_tensors
        return upstream[0] * ctx.derivative(u), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        (u,) = ctx.saved_tensors
        return tangents[0] * ctx.derivative(u)


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
    """What a user's function is called."""
    return getattr(function, "__name__", type(function).__name__)


NUM_GAPS, NUM_SUMS = 4001, 61  # odd: the middle gap is 0
TOLERANCE = 1e-9  # relative, of what must be constant or not negative
LARGEST_JUMP = 0.25  # of a slope between neighbours, over its whole range: a larger one is a kink


def read_phi(phi: Phi) -> Phi:
    """Phi, known as factor * x or factor * log(epsilon + x) if it is one of them.

    >>> read_phi(Phi(lambda x: 3 * torch.log(2 + x), "mine")).logarithm
    LogPlus(epsilon=2.0, factor=3.0)
    """
    if phi.is_linear or phi.logarithm is not None:
        return phi
    sum_K = torch.logspace(-3, 3, NUM_SUMS, dtype=torch.float64)
    value_K, slope_K = phi.of_sum(sum_K), _slope(phi.of_sum, sum_K)
    # Is it factor * x?
    factor = float(slope_K[0])
    if _agree(value_K, factor * sum_K):
        return replace(phi, is_linear=True)
    inverse_K = 1 / slope_K  # (epsilon + x) / factor
    # The inverse slope of a logarithm is a straight line: slope 1 / factor, epsilon / factor at 0.
    factor = float((sum_K[-1] - sum_K[0]) / (inverse_K[-1] - inverse_K[0]))
    epsilon = float(factor * inverse_K[0] - sum_K[0])
    # epsilon = 0 may come out below 0 by rounding.
    known = LogPlus(_rounded(max(epsilon, 0.0)), _rounded(factor))
    return replace(phi, logarithm=known) if _agree(value_K, known.of_sum(sum_K)) else phi


def read_psi(psi: Psi) -> Psi:
    """Psi, known as an exponential, or as convex and increasing, if it is.

    >>> from counterpoint.losses.pairs import user_psi
    >>> found = read_psi(user_psi(lambda gap: torch.exp(2 * gap)))
    >>> found.function.name, found.scale, found.is_convex
    ('exp', 2.0, True)
    """
    function = psi.function
    if function == EXPONENTIAL or (psi.is_convex and psi.rises_with_gap):
        return psi
    gap_K = torch.linspace(-2, 2, NUM_GAPS, dtype=torch.float64)
    u_K = psi.scale * gap_K + psi.margin

    def of_gap(gap: Tensor) -> Tensor:
        return function.value(psi.scale * gap + psi.margin)

    value_K, slope_K, bend_K = of_gap(gap_K), psi.scale * function.slope(u_K), psi.scale**2 * function.curvature(u_K)
    middle = NUM_GAPS // 2
    # An exponential has its scale as slope over value, and its margin as the logarithm of its value at 0.
    if bool((value_K > 0).all()):
        scale, margin = float(slope_K[middle] / value_K[middle]), float(value_K[middle].log())
        scale, margin = _rounded(scale), _rounded(margin)
        if scale > 0 and _agree(value_K, torch.exp(scale * gap_K + margin)):
            return Psi(EXPONENTIAL, psi.formula, scale, margin)
    # A straight line has no range of slopes but rounding, by which jumps would look large: it is asked for itself.
    is_smooth = float(slope_K.diff().abs().max()) <= LARGEST_JUMP * float(slope_K.max() - slope_K.min())
    is_straight = _agree(slope_K, slope_K[middle].expand_as(slope_K))
    # Beside a kink the second derivative is that of either side: it says nothing of convexity across it.
    if not (is_smooth or is_straight):
        return psi
    is_convex = psi.is_convex or bool((bend_K >= -TOLERANCE * bend_K.abs().max()).all())
    return replace(psi, is_convex=is_convex, is_increasing=bool((slope_K >= -TOLERANCE * slope_K.abs().max()).all()))


def _slope(function: Elementwise, x_K: Tensor) -> Tensor:
    """Derivative by autograd; 0 where the function does not depend on its argument."""
    x_K = x_K.clone().requires_grad_()
    with torch.enable_grad():
        total = function(x_K).sum()
    found = torch.autograd.grad(total, x_K)[0] if total.requires_grad else None
    return torch.zeros_like(x_K) if found is None else found


def _agree(found_K: Tensor, expected_K: Tensor) -> bool:
    """The same numbers up to rounding, each to its own size and to that of the largest."""
    size_K = expected_K.abs().clamp(min=1e-3 * float(expected_K.abs().max()))
    return bool(((found_K - expected_K).abs() <= TOLERANCE * size_K).all())


def _rounded(value: float) -> float:
    """Without the last digits, which derivatives at a grid do not know."""
    return float(f"{value:.11g}") if abs(value) > TOLERANCE else 0.0
