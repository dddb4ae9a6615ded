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
"""

# B rows of a block, C classes, Q nodes, M basis functions of x

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from counterpoint.theory.geometry.risk_quadrature import (
    STEP,
    Basis,
    choose_basis,
    combined,
    integration_nodes,
    row_sums,
)

KEPT_NUMBERS = 1 << 26  # values of the basis that are kept for products with the Hessian: 512 MiB
BLOCK_NUMBERS = 1 << 20  # values of the basis that are computed at a time: 8 MiB


@dataclass(frozen=True)
class LogSumAt:
    """The expected logarithm of each row, as ``LogSumIntegral`` has it, and its derivatives for the x_ij of that row.

    Attributes:
        value_C: the expectation.
        slope_CC: first derivatives.
        diagonal_CC: second derivatives, each for one x_ij.
        product: from directions (C, C) to the Hessian of each row times that row.
    """

    value_C: Tensor
    slope_CC: Tensor
    diagonal_CC: Tensor
    product: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LogSumIntegral:
    """E log(1 + sum of k terms x / epsilon), for terms between two bounds; E log(sum) where epsilon is 0.

    Attributes:
        weights_CC: r, float64, rows of sum 1.
        num_terms: k >= 1.
        epsilon: >= 0.
        low: least x, >= 0; above 0 where epsilon is 0.
        high: largest x, > 0.
    """

    weights_CC: Tensor
    num_terms: int
    epsilon: float
    low: float
    high: float

    @cached_property
    def nodes(self) -> Tensor:
        """Values of s."""
        return integration_nodes(self.num_terms, self.epsilon, self.low, self.high)

    @cached_property
    def node_weights(self) -> Tensor:
        """Step of the rule, times exp(-epsilon s)."""
        return STEP * torch.exp(-self.epsilon * self.nodes)

    @cached_property
    def basis(self) -> Basis:
        """What exp(-s x) is made of."""
        return choose_basis(self.nodes, self.low, self.high, self.num_terms, self.epsilon)

    def value(self, x_CC: Tensor) -> Tensor:
        """The expectation for each row, (C,)."""
        return torch.cat([self._block(rows, x_CC).value_B for rows in self._blocks(x_CC)])

    def at(self, x_CC: Tensor) -> LogSumAt:
        """The expectation and its derivatives for each row, x (C, C)."""
        is_kept = x_CC.numel() * self.basis.coefficients_QM.shape[1] <= KEPT_NUMBERS
        parts = [self._derivatives(self._block(rows, x_CC), is_kept) for rows in self._blocks(x_CC)]

        def product(direction_CC: Tensor) -> Tensor:
            return torch.cat([part.product(direction_CC[part.rows]) for part in parts])

        return LogSumAt(
            torch.cat([part.value_B for part in parts]),
            torch.cat([part.slope_BC for part in parts]),
            torch.cat([part.diagonal_BC for part in parts]),
            product,
        )

    def _blocks(self, x_CC: Tensor) -> Iterator[slice]:
        """Rows whose basis values are computed together."""
        height = max(1, BLOCK_NUMBERS // (x_CC.shape[1] * self.basis.coefficients_QM.shape[1]))
        for top in range(0, len(x_CC), height):
            yield slice(top, top + height)

    def _block(self, rows: slice, x_CC: Tensor) -> "_Block":
        """Powers and value of some rows."""
        k, x_BC, r_BC = self.num_terms, x_CC[rows], self.weights_CC[rows]
        values_BMC = self.basis.values(x_BC)
        log_p_BQ = self.basis.log_mean(r_BC, x_BC, values_BMC)
        mean_B1 = k * (r_BC * x_BC).sum(1, keepdim=True)
        bracket_BQ = torch.expm1(-mean_B1 * self.nodes) - torch.expm1(k * log_p_BQ)
        at_mean_B = torch.log1p(mean_B1[:, 0] / self.epsilon) if self.epsilon else mean_B1[:, 0].log()
        value_B = at_mean_B + bracket_BQ @ self.node_weights
        return _Block(rows, x_BC, values_BMC, log_p_BQ, mean_B1, value_B)

    def _derivatives(self, block: "_Block", is_kept: bool) -> "_BlockDerivatives":
        """First and second derivatives of some rows; the sum's mean enters by two numbers for each row."""
        k, s_Q, w_Q = self.num_terms, self.nodes, self.node_weights
        kr_BC, total_B1 = k * self.weights_CC[block.rows], self.epsilon + block.mean_B1
        at_mean_BQ = w_Q * s_Q * torch.exp(-block.mean_B1 * s_Q)
        first_B1 = 1 / total_B1 - at_mean_BQ.sum(1, keepdim=True)
        second_B1 = (at_mean_BQ @ s_Q)[:, None] - total_B1**-2
        once_BQ = w_Q * s_Q * torch.exp((k - 1) * block.log_p_BQ)
        pairs_BQ = (1 - 1 / k) * w_Q * s_Q**2 * torch.exp(max(k - 2, 0) * block.log_p_BQ)
        slope_BC = kr_BC * (first_B1 + combined(block.values_BMC, once_BQ @ self.basis.coefficients_QM))
        own_BC = -kr_BC * combined(block.values_BMC, (once_BQ * s_Q) @ self.basis.coefficients_QM)
        diagonal_BC = own_BC + kr_BC**2 * (second_B1 - self.basis.sum_of_squares(block.values_BMC, pairs_BQ))
        x_BC, kept_BMC = block.x_BC, block.values_BMC if is_kept else None  # the block itself would keep its basis

        def product(direction_BC: Tensor) -> Tensor:
            values_BMC = self.basis.values(x_BC) if kept_BMC is None else kept_BMC
            weighted_BC = kr_BC * direction_BC
            dot_BQ = row_sums(values_BMC, weighted_BC) @ self.basis.coefficients_QM.T
            joint_BC = combined(values_BMC, (pairs_BQ * dot_BQ) @ self.basis.coefficients_QM)
            return own_BC * direction_BC + kr_BC * (second_B1 * weighted_BC.sum(1, keepdim=True) - joint_BC)

        return _BlockDerivatives(block.rows, block.value_B, slope_BC, diagonal_BC, product)


@dataclass(frozen=True)
class _Block:
    """Rows, their terms, the basis at them, log P at the nodes, the mean of the sum, and the expectation."""

    rows: slice
    x_BC: Tensor
    values_BMC: Tensor
    log_p_BQ: Tensor
    mean_B1: Tensor
    value_B: Tensor


@dataclass(frozen=True)
class _BlockDerivatives:
    """As ``LogSumAt``, for some rows."""

    rows: slice
    value_B: Tensor
    slope_BC: Tensor
    diagonal_BC: Tensor
    product: Callable[[Tensor], Tensor]
