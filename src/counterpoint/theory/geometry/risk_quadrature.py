r"""Nodes of the integral over s, and exp(-s x) at all of them for many x at once.

The integrand, in :math:`v = \log s`, is analytic for :math:`|\mathrm{Im}\, v| < \pi/2`: the trapezoidal rule of step h
errs by about :math:`e^{-\pi^2/h}`. Nodes follow from bounds of x alone, never from the Gram matrix, so that the risk is
smooth in it. Where s x is moderate, exp(-s x) is a short Chebyshev series in x, which is summed over negatives once for
all nodes; where the series would be long, every node takes its own exponentials.
"""

# B rows of a block, C classes, Q nodes, M basis functions of x

import math
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

STEP = 0.26  # e^(-pi^2 / h) = 3e-17; second derivatives lose a few digits of that
VANISHED = 38.0  # e^-38 = 3e-17
BEGINNING = 1e-6  # of s (epsilon + k x) at the first node: what lies left of it is of the size of its square
NEGLIGIBLE = 1e-17  # coefficient of a series that is left out
LONGEST_SERIES = 64
SERIES_CEILING = 1e4  # of k times what a series rounds, in units of float64's own rounding
POWER_CEILING = 1000  # of k, for a mean close to 1 that is rounded there
EPSILON = 2.0**-52
LEAST = 1e-300
FAINTEST = -350.0  # squares of exponentials above it are normal numbers; processors are slow at others


class Basis(Protocol):
    """Functions of x that make up exp(-s x) at every node.

    Attributes:
        coefficients_QM: of exp(-s_q x).
    """

    coefficients_QM: Tensor

    def values(self, x_BC: Tensor) -> Tensor:
        """The functions at x, (B, M, C)."""
        ...

    def log_mean(self, weights_BC: Tensor, x_BC: Tensor, values_BMC: Tensor) -> Tensor:
        """Log of the weighted mean of exp(-s x) over a row, (B, Q)."""
        ...

    def sum_of_squares(self, values_BMC: Tensor, weights_BQ: Tensor) -> Tensor:
        """Sum over nodes of weight times exp(-2 s_q x), (B, C)."""
        ...


class ChebyshevBasis:
    """Chebyshev polynomials between the bounds of x; as many as exp(-2 s x) takes, for the sum of squares.

    Args:
        s_Q: nodes.
        low: least x.
        high: largest x.
    """

    def __init__(self, s_Q: Tensor, low: float, high: float) -> None:
        self.middle, self.half = 0.5 * (high + low), max(0.5 * (high - low), LEAST)
        self.length = series_length(2 * float(s_Q[-1]) * self.half)
        order_M = torch.arange(self.length, dtype=s_Q.dtype)
        angle_M = math.pi * (order_M + 0.5) / self.length
        to_series_MM = (2.0 / self.length) * torch.outer(order_M, angle_M).cos()  # discrete cosine transform
        to_series_MM[0] /= 2
        x_M = self.middle + self.half * angle_M.cos()
        exponent_QM = -torch.outer(s_Q, x_M)
        self._chord_QM = (torch.expm1(exponent_QM) / x_M) @ to_series_MM.T
        self._squares_QM = torch.exp(2 * exponent_QM) @ to_series_MM.T
        self.coefficients_QM = torch.exp(exponent_QM) @ to_series_MM.T

    def values(self, x_BC: Tensor) -> Tensor:
        """See ``Basis``: T_0 ... T_(M-1) by their recurrence."""
        t_BC = (x_BC - self.middle) / self.half
        values_BMC = t_BC.new_empty(len(t_BC), self.length, t_BC.shape[1])
        values_BMC[:, 0] = 1.0
        if self.length > 1:
            values_BMC[:, 1] = t_BC
        for n in range(2, self.length):
            values_BMC[:, n] = 2 * t_BC * values_BMC[:, n - 1] - values_BMC[:, n - 2]
        return values_BMC

    def log_mean(self, weights_BC: Tensor, x_BC: Tensor, values_BMC: Tensor) -> Tensor:
        """See ``Basis``: (exp(-s x) - 1) / x has its own series, so that small x keep all their digits."""
        less_one_BQ = row_sums(values_BMC, weights_BC * x_BC) @ self._chord_QM.T
        return torch.log1p(less_one_BQ.clamp(min=EPSILON - 1))

    def sum_of_squares(self, values_BMC: Tensor, weights_BQ: Tensor) -> Tensor:
        """See ``Basis``."""
        return combined(values_BMC, weights_BQ @ self._squares_QM)


class ExponentialBasis:
    """exp(-s_q x) of every node itself.

    Args:
        s_Q: nodes.
        is_fine: the logarithm of a mean close to 1 is that of what it lacks, however small.
    """

    def __init__(self, s_Q: Tensor, *, is_fine: bool) -> None:
        self.s_Q, self.is_fine = s_Q, is_fine
        self.coefficients_QM = torch.eye(len(s_Q), dtype=s_Q.dtype)

    def values(self, x_BC: Tensor) -> Tensor:
        """See ``Basis``."""
        return torch.mul(-self.s_Q[:, None], x_BC[:, None]).clamp_(min=FAINTEST).exp_()

    def log_mean(self, weights_BC: Tensor, x_BC: Tensor, values_BMC: Tensor) -> Tensor:
        """See ``Basis``: each way of taking the logarithm where it is the accurate one."""
        log_BQ = row_sums(values_BMC, weights_BC).clamp(min=LEAST).log()
        if not self.is_fine:
            return log_BQ
        less_one_BQ = row_sums(torch.mul(-self.s_Q[:, None], x_BC[:, None]).expm1_(), weights_BC)
        return torch.where(less_one_BQ > -0.5, torch.log1p(less_one_BQ.clamp(min=-0.5)), log_BQ)

    def sum_of_squares(self, values_BMC: Tensor, weights_BQ: Tensor) -> Tensor:
        """See ``Basis``."""
        return combined(values_BMC * values_BMC, weights_BQ)


def row_sums(values_BMC: Tensor, weights_BC: Tensor) -> Tensor:
    """Sum of each basis function over a row with weights, (B, M)."""
    return (values_BMC @ weights_BC[:, :, None])[:, :, 0]


def combined(values_BMC: Tensor, coefficients_BM: Tensor) -> Tensor:
    """Sum of basis functions with coefficients of their row, (B, C)."""
    return (coefficients_BM[:, None] @ values_BMC)[:, 0]


def choose_basis(s_Q: Tensor, low: float, high: float, num_terms: int, epsilon: float) -> Basis:
    """The shorter one whose rounding neither a power of k terms nor a sum far below epsilon shows."""
    last = float(s_Q[-1])
    is_exact = num_terms * min(1.0, last * high) <= SERIES_CEILING
    if is_exact and series_length(last * (high - low)) <= min(LONGEST_SERIES, len(s_Q)):
        return ChebyshevBasis(s_Q, low, high)
    return ExponentialBasis(s_Q, is_fine=epsilon > 0 or num_terms > POWER_CEILING)


def series_length(half_width: float) -> int:
    r"""Terms of the Chebyshev series of exp(-z (1 + t)) on [-1, 1], whose coefficients are 2 I_n(z) exp(-z).

    >>> series_length(0.0)
    1
    """
    if half_width > LONGEST_SERIES**2:
        return LONGEST_SERIES**2
    from scipy.special import ive  # deferred: SciPy's special functions take as long to load as the rest of the theory

    sizes = 2 * ive(np.arange(4 * LONGEST_SERIES), half_width)
    return int(np.count_nonzero(sizes > NEGLIGIBLE))


def integration_nodes(num_terms: int, epsilon: float, low: float, high: float) -> Tensor:
    """Values of s for a sum of k terms between two bounds, from where the integrand begins to where it has vanished."""
    first, last = BEGINNING / (epsilon + num_terms * high), VANISHED / (epsilon + num_terms * low)
    num_nodes = max(1, math.ceil(math.log(last / first) / STEP))
    return torch.exp(math.log(first) + STEP * torch.arange(num_nodes + 1, dtype=torch.float64))
