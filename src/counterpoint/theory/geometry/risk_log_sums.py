r"""Rows of the class-level risk for the logarithm of a sum over a finite number of negatives.

The terms of the sum are functions :math:`x(a) = \sum_p e^{c_p + b_p (a - 1)}` of a cosine. They are divided by a unit,
which keeps all numbers ordinary. What leaves the expectation as an offset is the logarithm of epsilon, or of the unit
where epsilon is 0: nothing is added to a small risk and taken away again.
"""

# C classes

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.losses.class_level import LogOfSum
from counterpoint.theory.geometry.negatives_integral import LogSumIntegral
from counterpoint.theory.geometry.risk_rows import RowsAt

STEEPEST = 340.0  # e^(-2 * 340) is a number of float64


@dataclass(frozen=True)
class Exponential:
    """A summand exp(level + rate (a - 1)) of a term; rate >= 0."""

    level: float
    rate: float


@dataclass(frozen=True)
class ExpectedLog:
    """sign * E log(1 + sum of k terms / epsilon), as a function of cosines; the logarithm of the sum for epsilon 0.

    Attributes:
        sign: 1 or -1.
        summands: of a term, in its unit.
        integral: the expectation as a function of terms.
    """

    sign: float
    summands: Sequence[Exponential]
    integral: LogSumIntegral

    def value(self, gram_CC: Tensor) -> Tensor:
        """For each row, (C,)."""
        return self.sign * self.integral.value(self._terms(gram_CC, 0))

    def at(self, gram_CC: Tensor) -> RowsAt:
        """With derivatives for cosines, by the chain rule."""
        x_CC, first_CC, second_CC = (self._terms(gram_CC, order) for order in range(3))
        at, sign = self.integral.at(x_CC), self.sign
        # second derivative of f(x(a)): f'' x'_j x'_l for all pairs, and f' x'' on the diagonal alone
        bend_CC = at.slope_CC * second_CC
        diagonal_CC = at.diagonal_CC * first_CC**2 + bend_CC
        inner = at.hessian

        def times(direction_CC: Tensor) -> Tensor:
            return sign * (first_CC * inner(first_CC * direction_CC) + bend_CC * direction_CC)

        return RowsAt(sign * at.value_C, sign * at.slope_CC * first_CC, sign * diagonal_CC, times)

    def _terms(self, gram_CC: Tensor, order: int) -> Tensor:
        """Derivative of this order of x(a)."""
        summands = [each.rate**order * torch.exp(each.level + each.rate * (gram_CC - 1)) for each in self.summands]
        return torch.stack(summands).sum(0)


@dataclass(frozen=True)
class LogSumRows:
    """A factor times a sum of expected logarithms; see ``risk_rows.Rows``.

    Attributes:
        factor: of all.
        offset: what the logarithms leave out.
        logs: the expectations, one or two.
    """

    factor: float
    offset: float
    logs: Sequence[ExpectedLog]

    def value(self, gram_CC: Tensor) -> Tensor:
        """F_i for all rows, (C,)."""
        return self.factor * (self.offset + torch.stack([log.value(gram_CC) for log in self.logs]).sum(0))

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
    """An expectation in the unit of its largest ingredient, and what it leaves out."""
    unit = offset = max(each.level for each in summands)
    # the unit is the largest of epsilon and the terms, so that no exponential overflows
    if epsilon:
        offset = math.log(epsilon)
        unit = max(unit, offset)
        epsilon = math.exp(offset - unit)
    elif min(each.rate for each in summands) > STEEPEST:
        raise UsageError(
            f"temperature must be at least {1 / STEEPEST:.3g} for finitely many negatives without epsilon, whose terms "
            "leave float64 below; use num_negatives=math.inf"
        )
    scaled = [Exponential(each.level - unit, each.rate) for each in summands]
    # bounds of a term: a - 1 is between -2 and 0
    low, high = (sum(math.exp(each.level - drop * each.rate) for each in scaled) for drop in (2, 0))
    return ExpectedLog(sign, scaled, LogSumIntegral(weights_CC, num_negatives, epsilon, low, high)), offset
