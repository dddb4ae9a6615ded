r"""The expectation of a logarithm over k negatives, as one integral per row instead of a sum over C^k terms.

Let x_1 ... x_k be drawn independently, each equal to x_ij with probability r_ij. Frullani's integral
:math:`\log b - \log a = \int_0^\infty (e^{-sa} - e^{-sb})\, ds/s` turns the logarithm into exponentials, whose
expectation over independent terms is a k-th power. With :math:`m_i = k \sum_j r_{ij} x_{ij}` the mean of the sum,

.. math:: E \log\Big(\epsilon + \sum_t x_t\Big) = \log(\epsilon + m_i) + \int_0^\infty
    \big(e^{-s m_i} - P_i(s)^k\big)\, e^{-\epsilon s}\, \frac{ds}{s}, \qquad P_i(s) = \sum_j r_{ij} e^{-s x_{ij}}.

What the integral adds to the logarithm of the mean is small; its integrand falls as s^2 on the left and as
exp(-s (epsilon + k min x)) on the right. Derivatives for x_ij are integrals of the same powers. Sums far below epsilon
keep their digits: log(epsilon) is left out, and 1 - P is summed as it is, so that the errors of all terms are small
against m_i / epsilon.

The integrand, in :math:`v = \log s`, is analytic for :math:`|\mathrm{Im}\, v| < \pi/2`: the trapezoidal rule of step h
errs by about :math:`e^{-\pi^2/h}`. Nodes follow from bounds of x alone, never from the Gram matrix, so that the risk is
smooth in it. Where s x is moderate, exp(-s x) is a short Chebyshev series in x, which is summed over negatives once for
all nodes; where the series would be long, every node takes its own exponentials.

The terms of a class-level risk are functions :math:`x(a) = \sum_p e^{c_p + b_p (a - 1)}` of a cosine. They are divided
by a unit, which keeps all numbers ordinary. What leaves the expectation as an offset is the logarithm of epsilon, or of
the unit where epsilon is 0: nothing is added to a small risk and taken away again.
"""

# B rows of a block, C classes, Q nodes, M basis functions of x

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.losses.class_level import LogOfSum
from counterpoint.theory.geometry.risk_rows import RowsAt

KEPT_NUMBERS = 1 << 26  # values of the basis that are kept for products with the Hessian: 512 MiB
BLOCK_NUMBERS = 1 << 20  # values of the basis that are computed at a time: 8 MiB
STEP = 0.26  # e^(-pi^2 / h) = 3e-17; second derivatives lose a few digits of that
VANISHED = 38.0  # e^-38 = 3e-17
BEGINNING = 1e-6  # of s (epsilon + k x) at the first node: what lies left of it is of the size of its square
NEGLIGIBLE = 1e-17  # coefficient of a series that is left out
LONGEST_SERIES = 64
SERIES_CEILING = 1e4  # of k times what a series rounds, in units of float64's own rounding
POWER_CEILING = 1000  # of k, for a mean close to 1 that is rounded there
EPSILON = 2.0**-52
LEAST = 1e-300
STEEPEST = 340.0  # e^(-2 * 340) is a number of float64
FAINTEST = -350.0  # squares of exponentials above it are normal numbers; processors are slow at others


@dataclass(frozen=True)
class LogSumIntegral:
    """E log(1 + sum of k terms x / epsilon), for terms between two bounds; E log(sum) where epsilon is 0.

    Attributes:
        weights_CC: probabilities r of the classes of a negative, a row for each anchor's class, float64, rows of sum 1.
        num_terms: number of terms, k >= 1.
        epsilon: number that is added to the sum of the terms, >= 0.
        low: lower bound of a term x, >= 0; above 0 if epsilon is 0.
        high: upper bound of a term x, > 0.
    """

    weights_CC: Tensor
    num_terms: int
    epsilon: float
    low: float
    high: float

    @cached_property
    def nodes(self) -> Tensor:
        """Values of s."""
        # The range goes from where the integrand begins to where it has vanished.
        first = BEGINNING / (self.epsilon + self.num_terms * self.high)
        last = VANISHED / (self.epsilon + self.num_terms * self.low)
        # steps are equal in log s
        num_nodes = max(1, math.ceil(math.log(last / first) / STEP))
        return torch.exp(math.log(first) + STEP * torch.arange(num_nodes + 1, dtype=torch.float64))

    @cached_property
    def basis(self) -> "Basis":
        """The shorter set of functions for exp(-s x) whose rounding neither a power of k nor a small sum shows."""
        last = float(self.nodes[-1])
        is_exact = self.num_terms * min(1.0, last * self.high) <= SERIES_CEILING
        if is_exact and series_length(last * (self.high - self.low)) <= min(LONGEST_SERIES, len(self.nodes)):
            return ChebyshevBasis(self.nodes, self.low, self.high)
        return ExponentialBasis(self.nodes, is_fine=self.epsilon > 0 or self.num_terms > POWER_CEILING)

    def at(self, x_CC: Tensor) -> RowsAt:
        """The expectation and its derivatives for each row, x (C, C)."""
        num_functions = self.basis.coefficients_QM.shape[1]
        is_kept = x_CC.numel() * num_functions <= KEPT_NUMBERS
        # rows whose basis values are computed together
        height = max(1, BLOCK_NUMBERS // (x_CC.shape[1] * num_functions))
        blocks = [slice(top, top + height) for top in range(0, len(x_CC), height)]
        parts = [self._block(x_CC[rows], self.weights_CC[rows], is_kept) for rows in blocks]
        hessians = [(part.hessian, rows) for part, rows in zip(parts, blocks, strict=True)]
        return RowsAt(
            torch.cat([part.value_C for part in parts]),
            torch.cat([part.slope_CC for part in parts]),
            torch.cat([part.diagonal_CC for part in parts]),
            lambda direction_CC: torch.cat([times(direction_CC[rows]) for times, rows in hessians]),
        )

    def _block(self, x_BC: Tensor, r_BC: Tensor, is_kept: bool) -> RowsAt:
        """Value, first and second derivatives of some rows; the sum's mean enters these by two numbers for each row."""
        k, s_Q, basis = self.num_terms, self.nodes, self.basis
        # step of the rule times exp(-epsilon s): ds / s is the step of v = log s
        w_Q = STEP * torch.exp(-self.epsilon * s_Q)
        values_BMC = basis.values(x_BC)
        log_p_BQ = basis.log_mean(r_BC, x_BC, values_BMC)
        # m_i, the mean of the sum
        mean_B1 = k * (r_BC * x_BC).sum(1, keepdim=True)
        # expm1, as both powers are near 1 at the first nodes, where their difference is of the order of s^2
        bracket_BQ = torch.expm1(-mean_B1 * s_Q) - torch.expm1(k * log_p_BQ)
        # log(epsilon) is left out; the caller adds it as an offset
        at_mean_B = torch.log1p(mean_B1[:, 0] / self.epsilon) if self.epsilon else mean_B1[:, 0].log()
        value_B = at_mean_B + bracket_BQ @ w_Q
        kr_BC, total_B1 = k * r_BC, self.epsilon + mean_B1
        at_mean_BQ = w_Q * s_Q * torch.exp(-mean_B1 * s_Q)
        # Derivatives for m of log(epsilon + m) and of exp(-s m): they cancel except in the part of the integral left of
        # the first node. The integral of P^(k-1) below lacks the same part, which this returns.
        first_B1 = 1 / total_B1 - at_mean_BQ.sum(1, keepdim=True)
        second_B1 = (at_mean_BQ @ s_Q)[:, None] - total_B1**-2
        # d/dx_j of -P^k: k r_j s exp(-s x_j) P^(k-1), the basis giving exp(-s x_j)
        once_BQ = w_Q * s_Q * torch.exp((k - 1) * log_p_BQ)
        # d2/dx_j dx_l: -k (k-1) r_j r_l s^2 exp(-s (x_j + x_l)) P^(k-2), written with k r_j and k r_l; 0 for k = 1
        pairs_BQ = (1 - 1 / k) * w_Q * s_Q**2 * torch.exp(max(k - 2, 0) * log_p_BQ)
        slope_BC = kr_BC * (first_B1 + combined(values_BMC, once_BQ @ basis.coefficients_QM))
        own_BC = -kr_BC * combined(values_BMC, (once_BQ * s_Q) @ basis.coefficients_QM)
        diagonal_BC = own_BC + kr_BC**2 * (second_B1 - basis.sum_of_squares(values_BMC, pairs_BQ))
        # Values that are not kept are computed again for each product, to keep memory small.
        kept_BMC = values_BMC if is_kept else None

        def times(direction_BC: Tensor) -> Tensor:
            basis_BMC = basis.values(x_BC) if kept_BMC is None else kept_BMC
            weighted_BC = kr_BC * direction_BC
            # the sum over l first, at each node: no row ever has its C x C matrix
            dot_BQ = row_sums(basis_BMC, weighted_BC) @ basis.coefficients_QM.T
            joint_BC = combined(basis_BMC, (pairs_BQ * dot_BQ) @ basis.coefficients_QM)
            return own_BC * direction_BC + kr_BC * (second_B1 * weighted_BC.sum(1, keepdim=True) - joint_BC)

        return RowsAt(value_B, slope_BC, diagonal_BC, times)


class ChebyshevBasis:
    """Chebyshev polynomials between the bounds of x; as many as exp(-2 s x) takes, for the sum of squares.

    Args:
        s_Q: nodes s of the integral, (Q,).
        low: lower bound of x.
        high: upper bound of x.
    """

    def __init__(self, s_Q: Tensor, low: float, high: float) -> None:
        self.middle, self.half = 0.5 * (high + low), max(0.5 * (high - low), LEAST)
        self.length = series_length(2 * float(s_Q[-1]) * self.half)
        order_M = torch.arange(self.length, dtype=s_Q.dtype)
        angle_M = math.pi * (order_M + 0.5) / self.length
        to_series_MM = (2.0 / self.length) * torch.outer(order_M, angle_M).cos()  # discrete cosine transform
        # the constant term counts half
        to_series_MM[0] /= 2
        x_M = self.middle + self.half * angle_M.cos()
        exponent_QM = -torch.outer(s_Q, x_M)
        # interpolation points lie inside the bounds, so that x > 0 also where low is 0
        self._chord_QM = (torch.expm1(exponent_QM) / x_M) @ to_series_MM.T
        self._squares_QM = torch.exp(2 * exponent_QM) @ to_series_MM.T
        self.coefficients_QM = torch.exp(exponent_QM) @ to_series_MM.T

    def values(self, x_BC: Tensor) -> Tensor:
        """T_0 ... T_(M-1) at x, (B, M, C), by their recurrence."""
        t_BC = (x_BC - self.middle) / self.half
        values_BMC = t_BC.new_empty(len(t_BC), self.length, t_BC.shape[1])
        values_BMC[:, 0] = 1.0
        if self.length > 1:
            values_BMC[:, 1] = t_BC
        for n in range(2, self.length):
            values_BMC[:, n] = 2 * t_BC * values_BMC[:, n - 1] - values_BMC[:, n - 2]
        return values_BMC

    def log_mean(self, weights_BC: Tensor, x_BC: Tensor, values_BMC: Tensor) -> Tensor:
        """Log of the weighted mean of exp(-s x) over a row, (B, Q).

        (exp(-s x) - 1) / x has its own series, so that small x keep all their digits.
        """
        less_one_BQ = row_sums(values_BMC, weights_BC * x_BC) @ self._chord_QM.T
        # P > 0 is an invariant that the rounding of a series may break where P is tiny
        return torch.log1p(less_one_BQ.clamp(min=EPSILON - 1))

    def sum_of_squares(self, values_BMC: Tensor, weights_BQ: Tensor) -> Tensor:
        """Sum over nodes of weight times exp(-2 s_q x), (B, C)."""
        return combined(values_BMC, weights_BQ @ self._squares_QM)


class ExponentialBasis:
    """exp(-s_q x) of every node itself.

    Args:
        s_Q: nodes s of the integral, (Q,).
        is_fine: whether the logarithm of a mean close to 1 is taken of its difference from 1, however small.
    """

    def __init__(self, s_Q: Tensor, *, is_fine: bool) -> None:
        self.s_Q, self.is_fine = s_Q, is_fine
        self.coefficients_QM = torch.eye(len(s_Q), dtype=s_Q.dtype)

    def values(self, x_BC: Tensor) -> Tensor:
        """See ``ChebyshevBasis.values``."""
        return torch.mul(-self.s_Q[:, None], x_BC[:, None]).clamp_(min=FAINTEST).exp_()

    def log_mean(self, weights_BC: Tensor, x_BC: Tensor, values_BMC: Tensor) -> Tensor:
        """See ``ChebyshevBasis.log_mean``; each way of taking the logarithm is used where it is accurate."""
        log_BQ = row_sums(values_BMC, weights_BC).clamp(min=LEAST).log()
        if not self.is_fine:
            return log_BQ
        less_one_BQ = row_sums(torch.mul(-self.s_Q[:, None], x_BC[:, None]).expm1_(), weights_BC)
        return torch.where(less_one_BQ > -0.5, torch.log1p(less_one_BQ.clamp(min=-0.5)), log_BQ)

    def sum_of_squares(self, values_BMC: Tensor, weights_BQ: Tensor) -> Tensor:
        """See ``ChebyshevBasis.sum_of_squares``."""
        return combined(values_BMC * values_BMC, weights_BQ)


Basis = ChebyshevBasis | ExponentialBasis  # functions of x that make up exp(-s x) at every node, by its coefficients


def row_sums(values_BMC: Tensor, weights_BC: Tensor) -> Tensor:
    """Sum of each basis function over a row with weights, (B, M)."""
    return (values_BMC @ weights_BC[:, :, None])[:, :, 0]


def combined(values_BMC: Tensor, coefficients_BM: Tensor) -> Tensor:
    """Sum of basis functions with coefficients of their row, (B, C)."""
    return (coefficients_BM[:, None] @ values_BMC)[:, 0]


def series_length(half_width: float) -> int:
    r"""Terms of the Chebyshev series of exp(-z (1 + t)) on [-1, 1], whose coefficients are 2 I_n(z) exp(-z).

    >>> series_length(0.0)
    1
    """
    if half_width > LONGEST_SERIES**2:
        return LONGEST_SERIES**2
    from scipy.special import ive  # deferred: SciPy's special functions take as long to load as the rest of the theory

    # ive is I_n(z) exp(-z) and does not overflow
    sizes = 2 * ive(np.arange(4 * LONGEST_SERIES), half_width)
    return int(np.count_nonzero(sizes > NEGLIGIBLE))


@dataclass(frozen=True)
class Exponential:
    """A summand exp(level + rate (a - 1)) of a term; rate >= 0."""

    level: float
    rate: float


@dataclass(frozen=True)
class ExpectedLog:
    """sign * E log(1 + sum of k terms / epsilon), as a function of cosines; the logarithm of the sum for epsilon 0.

    Attributes:
        sign: sign of the expectation, 1 or -1.
        summands: exponentials whose sum is a term, in the unit of the terms.
        integral: the expectation as a function of terms.
    """

    sign: float
    summands: Sequence[Exponential]
    integral: LogSumIntegral

    def at(self, gram_CC: Tensor) -> RowsAt:
        """Values with derivatives for cosines, by the chain rule."""
        terms = [(term.rate, torch.exp(term.level + term.rate * (gram_CC - 1))) for term in self.summands]
        # x(a) and its first two derivatives
        x_CC, first_CC, second_CC = (
            torch.stack([rate**order * term_CC for rate, term_CC in terms]).sum(0) for order in range(3)
        )
        at, sign = self.integral.at(x_CC), self.sign
        # second derivative of f(x(a)): f'' x'_j x'_l for all pairs, and f' x'' on the diagonal alone
        bend_CC = at.slope_CC * second_CC
        diagonal_CC = at.diagonal_CC * first_CC**2 + bend_CC
        inner = at.hessian

        def times(direction_CC: Tensor) -> Tensor:
            return sign * (first_CC * inner(first_CC * direction_CC) + bend_CC * direction_CC)

        return RowsAt(sign * at.value_C, sign * at.slope_CC * first_CC, sign * diagonal_CC, times)


@dataclass(frozen=True)
class LogSumRows:
    """A factor times a sum of expected logarithms.

    Attributes:
        factor: factor of the offset and of all logarithms.
        offset: number that the logarithms leave out.
        logs: expected logarithms, one or two.
    """

    factor: float
    offset: float
    logs: Sequence[ExpectedLog]

    def at(self, gram_CC: Tensor) -> RowsAt:
        """F_i and its derivatives for all rows."""
        parts = [log.at(gram_CC) for log in self.logs]
        value_C = self.offset + torch.stack([part.value_C for part in parts]).sum(0)
        slope_CC = self.factor * torch.stack([part.slope_CC for part in parts]).sum(0)
        diagonal_CC = self.factor * torch.stack([part.diagonal_CC for part in parts]).sum(0)
        factor, hessians = self.factor, [part.hessian for part in parts]

        def times(direction_CC: Tensor) -> Tensor:
            return factor * torch.stack([hessian(direction_CC) for hessian in hessians]).sum(0)

        return RowsAt(factor * value_C, slope_CC, diagonal_CC, times)


def log_sum_rows(record: LogOfSum, weights_CC: Tensor, num_negatives: int) -> LogSumRows:
    r"""Rows for :math:`f\,E \log(\epsilon + w \sum_t e^{u_t})`, u = scale (a - 1) + margin, w = 1, or 1/k for a mean.

    Source: imbalanced2026, Eq. 14.
    """
    # w as an exponent
    weight = -math.log(num_negatives) if record.is_mean else 0.0
    summands = [Exponential(weight + record.margin, record.scale)]
    log, offset = _expected_log(summands, record.epsilon, weights_CC, num_negatives)
    return LogSumRows(record.factor, offset, [log])


def hard_sum_rows(record: LogOfSum, weights_CC: Tensor, num_negatives: int) -> LogSumRows:
    r"""Rows for :math:`f\,E \log(\epsilon + W \sum_t e^{(1+\beta) u_t} / \sum_t e^{\beta u_t})`, W = k (mean: 1).

    It is the difference of two expectations: of :math:`\log \sum_t (\epsilon e^{\beta u_t} + W e^{(1+\beta) u_t})`, a
    single sum of independent terms, and of the logarithm of the denominator.
    """
    # epsilon + W a / b = (epsilon b + W a) / b, with a and b the two sums
    beta, weight = record.hardness, 0.0 if record.is_mean else math.log(num_negatives)
    blunt = Exponential(beta * record.margin, beta * record.scale)
    above = [Exponential(weight + (1 + beta) * record.margin, (1 + beta) * record.scale)]
    if record.epsilon:
        above.append(Exponential(math.log(record.epsilon) + blunt.level, blunt.rate))
    numerator, up = _expected_log(above, 0.0, weights_CC, num_negatives)
    denominator, down = _expected_log([blunt], 0.0, weights_CC, num_negatives, sign=-1.0)
    return LogSumRows(record.factor, up - down, [numerator, denominator])


def _expected_log(
    summands: Sequence[Exponential], epsilon: float, weights_CC: Tensor, num_negatives: int, *, sign: float = 1.0
) -> tuple[ExpectedLog, float]:
    """Return an expectation in the unit of its largest ingredient, and the offset that it leaves out."""
    unit = offset = max(term.level for term in summands)
    # the unit is the largest of epsilon and the terms, so that no exponential overflows
    if epsilon:
        offset = math.log(epsilon)
        unit = max(unit, offset)
        epsilon = math.exp(offset - unit)
    elif min(term.rate for term in summands) > STEEPEST:
        raise UsageError(
            f"temperature must be at least {1 / STEEPEST:.3g} for finitely many negatives without epsilon, whose terms "
            "leave float64 below; use num_negatives=math.inf"
        )
    scaled = [Exponential(term.level - unit, term.rate) for term in summands]
    # bounds of a term: a - 1 is between -2 and 0
    low, high = (sum(math.exp(term.level - drop * term.rate) for term in scaled) for drop in (2, 0))
    return ExpectedLog(sign, scaled, LogSumIntegral(weights_CC, num_negatives, epsilon, low, high)), offset
