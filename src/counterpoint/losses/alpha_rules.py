r"""Rules for the pairwise importance alpha of alphacl2022: each the exact minimiser of its own objective.

With :math:`c_{ij} = d_{ij}^2` the cost of a pair and alpha_i the weights of one anchor over its K negatives, the rules
of section 6 minimise the energy less a concave regulariser over the simplex,

.. math:: \min_{\alpha_i \ge 0,\ \sum_j \alpha_{ij} = 1} \sum_j \alpha_{ij} c_{ij} - \sum_j r(\alpha_{ij}).

The energy has :math:`c_{ij} - d_i^2` (Theorem 2); where the weights of a row have a fixed sum, :math:`d_i^2` changes
nothing. A rule maps rows to rows, so that it can work on some anchors at a time. All are written in differentiable
form: what a solver finds (a support, a multiplier) is held, and closed formulas around it carry the derivatives.
"""

# B anchors (rows), M keys (columns)

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive, check_weight
from counterpoint.core.numerics import is_transformed
from counterpoint.losses.simplex_solvers import (
    distance_power,
    excess,
    inverse_power_root,
    inverse_power_sum,
    inverse_powers,
    shares_with_slack,
    water_level,
)

LARGEST_LOG = 60.0  # of K^gamma: beyond it powers leave float32
EPSILON_HINT = "0 makes each row sum to 1"
TEMPERATURE_HINT = "common values are 0.1 to 0.5, for Square 5"


@dataclass(frozen=True)
class RowSum:
    """The sum of alpha over the negatives of an anchor: at most ``most``, and exactly that where it is constant."""

    most: float
    is_constant: bool


class AlphaRule(Protocol):
    """A rule from costs to importance, row by row.

    Attributes:
        can_stream: whether each row is decided independently, so that rows can be handed over in blocks.
        formula: alpha as a formula in d_ij^2 = c.
    """

    formula: ClassVar[str]

    @property
    def can_stream(self) -> bool:
        """Tell whether each row is decided independently."""
        ...

    def __call__(self, cost_BM: Tensor, own_B: Tensor) -> Tensor:
        """Importance of each pair.

        Args:
            cost_BM: d_ij^2 >= 0, half the squared distance; plus infinity where j does not repel i. Every row has a
                finite entry.
            own_B: d_i^2, half the squared distance from anchor to positive, (b,).

        Returns:
            alpha (b, m), >= 0, and 0 where the cost is infinite.
        """
        ...

    def row_sum(self, num_negatives: int) -> "RowSum | None":
        """Sum of a row; None if unknown. A known sum also says that alpha falls with the cost along a row."""
        ...


class _RowByRow:
    """Rules that decide each row independently, with weights that sum to 1 unless they say otherwise."""

    can_stream = True

    def row_sum(self, num_negatives: int) -> RowSum:
        """See ``AlphaRule``."""
        return RowSum(1.0, True)


@dataclass(frozen=True)
class Entropy(_RowByRow):
    r"""r_H: the softmax of minus the costs; with it AlphaCL has InfoNCE's gradient, times tau.

    .. math:: \min_\alpha \sum_j \alpha_j (c_j - d_i^2) + \tau \sum_j \alpha_j \log \alpha_j,\quad
        \sum_j \alpha_j = \frac{\xi}{\xi + \epsilon},\ \xi = \sum_j e^{(d_i^2 - c_j)/\tau};\qquad
        \alpha_j = \frac{e^{(d_i^2 - c_j)/\tau}}{\epsilon + \xi}

    Epsilon 0 is the simplex of section 6; epsilon > 0 is the set A of Eq. 7 for InfoNCE with that epsilon.

    Source: alphacl2022, Theorem 2, Eq. 6, Eq. 25 and section 6.

    Args:
        temperature: tau > 0.
        epsilon: weight of the positive pair in the denominator, as in ``InfoNCE``, >= 0.

    Raises:
        ValueError: an argument out of range.

    >>> Entropy(temperature=1.0)(torch.tensor([[0.0, math.log(3.0), math.inf]]), torch.zeros(1))
    tensor([[0.7500, 0.2500, 0.0000]])
    """

    temperature: float = 0.5
    epsilon: float = 0.0
    formula: ClassVar[str] = "exp(-c/tau) / (epsilon exp(-d_i^2/tau) + sum exp(-c/tau))"

    def __post_init__(self) -> None:
        check_positive(self.temperature, "temperature", hint=TEMPERATURE_HINT)
        check_weight(self.epsilon, "epsilon", hint=EPSILON_HINT)

    def __call__(self, cost_BM: Tensor, own_B: Tensor) -> Tensor:
        """See ``AlphaRule``."""
        if self.epsilon == 0:
            return torch.softmax(-cost_BM / self.temperature, dim=1)  # Eq. 6
        # The first form of Eq. 25: epsilon is alone, without e^(-d_i^2 / tau), which may underflow.
        u_BM = (own_B[:, None] - cost_BM) / self.temperature
        return shares_with_slack(u_BM, u_BM.new_full((len(u_BM),), math.log(self.epsilon)))  # Eq. 25

    def row_sum(self, num_negatives: int) -> RowSum:
        """See ``AlphaRule``."""
        return RowSum(1.0, self.epsilon == 0)  # Eq. 7 for InfoNCE: xi / (xi + epsilon)


@dataclass(frozen=True)
class InversePower(_RowByRow):
    r"""r_gamma, solved exactly: no weight ever reaches 0.

    .. math:: \min_\alpha \sum_j \alpha_j c_j - \frac{\tau}{1-\gamma} \sum_j \alpha_j^{1-\gamma},\quad
        \sum_j \alpha_j = 1;\qquad \alpha_j = \Big(\frac{\tau}{c_j + \mu}\Big)^{1/\gamma}

    (for gamma = 1 the regulariser is :math:`\tau \sum_j \log \alpha_j`); the multiplier mu makes the sum 1. With K
    negatives mu grows as :math:`\tau K^\gamma`, and where that is large beside the costs alpha is close to uniform:
    254 negatives, gamma = 2 and tau = 0.5 give a largest weight 1.00002 times the smallest. ``FixedInverse`` is what
    the released code does instead. Derivatives are exact up to the third.

    Source: alphacl2022, section 6.

    Args:
        temperature: tau > 0.
        gamma: exponent of the regulariser, gamma > 0; the paper has gamma > 1 and uses 2.

    Raises:
        ValueError: an argument out of range.

    >>> InversePower(temperature=1.0, gamma=1.0)(torch.tensor([[0.0, 1.5, math.inf]]), torch.zeros(1))
    tensor([[0.6667, 0.3333, 0.0000]])
    """

    temperature: float = 0.5
    gamma: float = 2.0
    formula: ClassVar[str] = "(tau / (c + mu))^(1/gamma), mu such that the sum is 1"

    def __post_init__(self) -> None:
        check_positive(self.temperature, "temperature", hint=TEMPERATURE_HINT)
        check_positive(self.gamma, "gamma", hint="alphacl2022 uses 2")

    def __call__(self, cost_BM: Tensor, own_B: Tensor) -> Tensor:
        """See ``AlphaRule``."""
        # No derivative is asked for, and K^gamma is an ordinary number: powers as they are, not in the log domain.
        if not (torch.is_grad_enabled() or is_transformed()) and self.gamma * math.log(cost_BM.shape[1]) < LARGEST_LOG:
            return inverse_powers((cost_BM - cost_BM.amin(dim=1, keepdim=True)) / self.temperature, self.gamma)
        # alpha_j = (e_j + e^t)^(-1/gamma) with e_j = (c_j - min c) / tau and e^t = (mu + min c) / tau.
        is_out_BM, excess_BM = excess(cost_BM)
        e_BM = excess_BM / self.temperature
        t_B = inverse_power_root(e_BM.detach(), is_out_BM, self.gamma)
        # Each step squares the error: of order 1 in a change of e for the held root, then of order 2, then 4.
        for _ in range(2):  # two Newton steps from the held root carry its derivatives, up to the third
            log_sum_B, slope_B, _ = inverse_power_sum(t_B, e_BM, is_out_BM, self.gamma)
            t_B = t_B - log_sum_B / slope_B
        return torch.exp(inverse_power_sum(t_B, e_BM, is_out_BM, self.gamma)[2])


@dataclass(frozen=True)
class Square(_RowByRow):
    r"""r_s: water-filling; pairs beyond the water level get no weight at all.

    .. math:: \min_\alpha \sum_j \alpha_j c_j + \frac{\tau}{2} \sum_j \alpha_j^2,\quad
        \sum_j \alpha_j = 1;\qquad \alpha_j = \frac{(\mu - c_j)_+}{\tau}

    Differs from the released code, which takes the mean of the active costs one key too far, and renormalises: up to
    5 % off at tau = 0.5. This is the exact solution.

    Source: alphacl2022, section 6 (tau = 5 there).

    Args:
        temperature: tau > 0.

    Raises:
        ValueError: the temperature is out of range.

    >>> Square(temperature=1.0)(torch.tensor([[0.0, 0.5, 9.0, math.inf]]), torch.zeros(1))
    tensor([[0.7500, 0.2500, 0.0000, 0.0000]])
    """

    temperature: float = 5.0
    formula: ClassVar[str] = "max(mu - c, 0) / tau, mu such that the sum is 1"

    def __post_init__(self) -> None:
        check_positive(self.temperature, "temperature", hint=TEMPERATURE_HINT)

    def __call__(self, cost_BM: Tensor, own_B: Tensor) -> Tensor:
        """See ``AlphaRule``."""
        # Held: mu moves with the least cost, and alpha does not.
        excess_BM = cost_BM - cost_BM.detach().amin(dim=1, keepdim=True)  # infinite where a pair does not count
        # The support is held: it is constant except for costs at the level itself, where alpha is 0 on both sides.
        is_active_BM = excess_BM < water_level(excess_BM.detach(), self.temperature)
        num_active_B1 = is_active_BM.sum(1, keepdim=True).to(cost_BM.dtype)
        mean_B1 = torch.where(is_active_BM, excess_BM, 0.0).sum(1, keepdim=True) / num_active_B1
        # (mu - c_j)_+ / tau with mu = mean + tau / K, K the active keys: the level that makes the sum 1, put in.
        alpha_BM = 1 / num_active_B1 + (mean_B1 - excess_BM) / self.temperature
        return torch.where(is_active_BM, alpha_BM.clamp(min=0.0), 0.0)  # a key at the water level may round below 0


@dataclass(frozen=True)
class Direct(_RowByRow):
    r"""alpha-CL-direct: weights fall with a power of the distance.

    .. math:: \alpha_j = \frac{e^{-d_j^p/\tau}}{\sum_k e^{-d_k^p/\tau} + \epsilon K}, \qquad d_j^p = c_j^{p/2}

    or without the denominator for ``normalised=False`` (Eq. 43). It does not minimise the energy less a regulariser;
    it is the exact minimiser of :math:`\sum_j \alpha_j d_j^p + \tau \sum_j \alpha_j \log \alpha_j`, over the simplex at
    epsilon 0, over row sums W / (W + epsilon K) with W the sum of the exponentials at epsilon > 0, and, with
    :math:`\tau \sum_j \alpha_j (\log \alpha_j - 1)` in the last term's place, over all alpha >= 0 when not normalised.

    Source: alphacl2022, Eq. 12, 43 and 44; epsilon is the released code's, whose ``alpha_exponent`` is p / 2. Differs
        from the printed sum over j, which must leave out the anchor and its positive. d is the root of *half* the
        squared distance.

    Args:
        temperature: tau > 0.
        exponent: power of the distance, p > 0; the paper has p > 1 and uses 4.
        epsilon: weight of a constant pair in the denominator, >= 0; needs ``normalised``.
        normalised: whether alpha is divided by the sum.

    Raises:
        ValueError: an argument out of range.

    >>> Direct(temperature=1.0, exponent=4)(torch.tensor([[0.0, math.log(3.0) ** 0.5]]), torch.zeros(1))
    tensor([[0.7500, 0.2500]])
    """

    temperature: float = 0.5
    exponent: float = 4.0
    epsilon: float = 0.0
    normalised: bool = True
    formula: ClassVar[str] = "exp(-c^(p/2)/tau) / (sum exp(-c^(p/2)/tau) + epsilon K)"

    def __post_init__(self) -> None:
        check_positive(self.temperature, "temperature", hint=TEMPERATURE_HINT)
        check_positive(self.exponent, "exponent", hint="alphacl2022 uses 4")
        check_weight(self.epsilon, "epsilon", hint=EPSILON_HINT)
        if self.epsilon > 0 and not self.normalised:
            raise ValueError(f"epsilon must be 0 where alpha is not normalised, got {self.epsilon}; it is in the sum")

    def __call__(self, cost_BM: Tensor, own_B: Tensor) -> Tensor:
        """See ``AlphaRule``."""
        is_out_BM = torch.isinf(cost_BM)
        u_BM = (-distance_power(cost_BM, is_out_BM, self.exponent) / self.temperature).masked_fill(is_out_BM, -math.inf)
        if not self.normalised:
            return torch.exp(u_BM)  # Eq. 43
        if self.epsilon == 0:
            return torch.softmax(u_BM, dim=1)  # Eq. 44
        # The released code's denominator; K counts the negatives of the row.
        return shares_with_slack(u_BM, torch.log(self.epsilon * is_out_BM.logical_not().sum(1).to(u_BM.dtype)))

    def row_sum(self, num_negatives: int) -> RowSum:
        """See ``AlphaRule``."""
        if not self.normalised:
            return RowSum(float(num_negatives), False)  # no exponential exceeds 1
        return RowSum(1 / (1 + self.epsilon), self.epsilon == 0)  # W / (W + epsilon K), where W is at most K


@dataclass(frozen=True)
class FixedInverse(_RowByRow):
    r"""The released code's replacement for r_gamma: the multiplier mu is set to tau instead of solved for.

    .. math:: \alpha_j = \frac{(d_j^p + \tau)^{-e}}{\sum_k (d_k^p + \tau)^{-e}}, \qquad d_j^p = c_j^{p/2}

    Differs from ``InversePower``, the paper's rule: e is 1 / gamma, and as mu does not grow with the number of
    negatives, alpha stays far from uniform. It is the exact minimiser over the simplex of
    :math:`\sum_j \alpha_j e \log(d_j^p + \tau) + \sum_j \alpha_j \log \alpha_j`.

    Source: alphacl2022, released code (loss type "inverse") for section 6.

    Args:
        temperature: tau > 0.
        power: power of the weights, e > 0.
        exponent: power of the distance, p > 0.

    Raises:
        ValueError: an argument out of range.

    >>> FixedInverse(temperature=1.0)(torch.tensor([[0.0, 2.0]]), torch.zeros(1))
    tensor([[0.7500, 0.2500]])
    """

    temperature: float = 0.5
    power: float = 1.0
    exponent: float = 2.0
    formula: ClassVar[str] = "(c^(p/2) + tau)^-e / sum (c^(p/2) + tau)^-e"

    def __post_init__(self) -> None:
        check_positive(self.temperature, "temperature", hint=TEMPERATURE_HINT)
        check_positive(self.power, "power", hint="the released code uses 1")
        check_positive(self.exponent, "exponent", hint="the released code uses 2")

    def __call__(self, cost_BM: Tensor, own_B: Tensor) -> Tensor:
        """See ``AlphaRule``."""
        is_out_BM = torch.isinf(cost_BM)
        log_BM = torch.log(distance_power(cost_BM, is_out_BM, self.exponent) + self.temperature)
        # A softmax of logarithms is the normalised power, which alone may leave float32.
        return torch.softmax((-self.power * log_BM).masked_fill(is_out_BM, -math.inf), dim=1)


@dataclass(frozen=True)
class OwnRule:
    r"""A user's own rule.

    .. math:: \alpha = f(d_{ij}^2, d_i^2)

    Where the function gives :math:`\alpha_{ij} = \phi'(\xi_i)\,\psi'(d_i^2 - d_{ij}^2)`, AlphaCL has the gradient of
    the pairwise loss of phi and psi.

    Source: alphacl2022, Definition 1 ("a direct mapping") and Theorem 1.

    Args:
        function: function from costs (b, m), infinite where there is no negative, and own costs (b,) to alpha (b, m).
        can_stream: whether the function treats each row independently. If not, it gets all 2n anchors and 2n vectors at
            once, first view before second.

    Raises:
        TypeError: the function is not callable, or does not return a floating tensor.
        ValueError: on use: alpha has another shape, dtype or device, is negative or not finite, or weighs a pair
            that does not count.

    >>> def nearest_only(cost_BM, own_B):
    ...     return (cost_BM == cost_BM.amin(1, keepdim=True)).to(cost_BM.dtype)
    >>> OwnRule(nearest_only, can_stream=True)(torch.tensor([[0.5, 0.1, math.inf]]), torch.zeros(1))
    tensor([[0., 1., 0.]])
    """

    function: Callable[[Tensor, Tensor], Tensor]
    can_stream: bool = False
    formula: ClassVar[str] = "the user's own"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(
                f"function must be callable, got {type(self.function).__name__}; give f(cost, own) -> alpha"
            )

    def __call__(self, cost_BM: Tensor, own_B: Tensor) -> Tensor:
        """See ``AlphaRule``."""
        alpha_BM = self.function(cost_BM, own_B)
        if not isinstance(alpha_BM, Tensor) or not alpha_BM.is_floating_point():
            kind = alpha_BM.dtype if isinstance(alpha_BM, Tensor) else type(alpha_BM).__name__
            raise TypeError(f"alpha must be a floating-point tensor, got {kind}; compute it from the costs")
        ours, theirs = ((tuple(z.shape), z.dtype, z.device) for z in (cost_BM, alpha_BM))
        if ours != theirs:
            raise ValueError(f"alpha must be of the shape, dtype and device of the costs, {ours}, got {theirs}")
        value_BM = alpha_BM.detach()
        # NaN fails both comparisons.
        is_good_BM = torch.where(torch.isfinite(cost_BM), (value_BM >= 0) & (value_BM < math.inf), value_BM == 0)
        is_bad_B = is_good_BM.all(dim=1).logical_not()
        if bool(is_bad_B.any()):
            raise ValueError(
                "alpha must be >= 0 and finite, and 0 where the cost is infinite (not a negative), but row "
                f"{int(is_bad_B.nonzero()[0])} is not; clamp it, mask it with torch.isinf(cost), or look for 0 / 0"
            )
        return alpha_BM

    def row_sum(self, num_negatives: int) -> None:
        """See ``AlphaRule``."""
        return


RULES: Mapping[str, Callable[..., AlphaRule]] = {
    "entropy": Entropy,
    "inverse-power": InversePower,
    "square": Square,
    "direct": Direct,
    "fixed-inverse": FixedInverse,
}
