r"""Risk of the anchors of each class, as functions of their cosines with other classes: value and two derivatives.

Row i of the Gram matrix holds the cosines of class i with all classes; :math:`r_{ij}` is the probability that a
negative of an anchor of class i is of class j. Each F_i is a function of row i alone; ``class_risk`` weighs and adds.
Here are sums over pairs and infinitely many negatives; ``negatives_integral`` has finite numbers of them.
"""

# C classes; row i belongs to anchors of class i

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.losses.class_level import LogOfSum, Separable
from counterpoint.losses.pairs import LogPlus


@dataclass(frozen=True)
class RiskAt:
    r"""The risk and its derivatives at one Gram matrix.

    With :math:`\langle X, Y\rangle = \sum_{ij} X_{ij} Y_{ij}` and a symmetric change D whose diagonal is zero,
    :math:`S(A + D) = S + \langle G, D\rangle + \frac12 \langle D, H[D]\rangle + \dots`

    Attributes:
        value: value S of the risk.
        gradient_CC: gradient G, symmetric, with zero diagonal.
        curvature: second derivative H, a map of symmetric directions to symmetric matrices of zero diagonal.
        curvature_diagonal_CC: factor of D_ij in H[D]_ij; all of H if S is a sum over entries.
        own_slope_C: derivative of S for :math:`|\mu_i|^2`, positives being independent given their class. Where it is
            negative, together with what the constraint adds, a class does better collapsed than spread.
    """

    value: float
    gradient_CC: Tensor
    curvature: Callable[[Tensor], Tensor]
    curvature_diagonal_CC: Tensor
    own_slope_C: Tensor


@dataclass(frozen=True)
class RowsAt:
    """F_i, its slopes and its second derivatives, for all rows at one Gram matrix.

    Attributes:
        value_C: values F_i.
        slope_CC: derivative of F_i for a_ij.
        diagonal_CC: second derivative of F_i for a_ij.
        hessian: function of a direction (C, C) that gives the second derivatives of each row times that row of it.
        length_slope_C: derivative of F_i for |mu_i|^2, positives being independent given their class; None if all
            terms are gaps a_ij - |mu_i|^2.
    """

    value_C: Tensor
    slope_CC: Tensor
    diagonal_CC: Tensor
    hessian: Callable[[Tensor], Tensor]
    length_slope_C: Tensor | None = None

    def weighed(self, weights_C: Tensor) -> RiskAt:
        """The risk: rows by the weights of their anchors, and of each derivative what a symmetric matrix sees."""
        weights_C1, hessian, length_slope_C = weights_C[:, None], self.hessian, self.length_slope_C
        # A gap has the positive's length in every term; that of a colliding class is 0 at any length.
        if length_slope_C is None:
            length_slope_C = self.slope_CC.diagonal() - self.slope_CC.sum(1)
        return RiskAt(
            float(weights_C @ self.value_C),
            _between_classes(weights_C1 * self.slope_CC),
            lambda direction_CC: _between_classes(weights_C1 * hessian(_between_classes(direction_CC))),
            _between_classes(weights_C1 * self.diagonal_CC),
            weights_C * length_slope_C,
        )


@dataclass(frozen=True)
class SeparableRows:
    r"""Mean over single negatives, which is the same for any number of them.

    .. math:: F_i = p + f \sum_j r_{ij}\, q(s\,(a_{ij} - g) + m)

    Attributes:
        record: class-level record of the loss.
        weights_CC: probabilities r_ij that a negative of an anchor of class i is of class j.
        attract: weight of the positive's p: 1, or 0 where infinitely many negatives drown it.
        factor: f, which includes the number of negatives for a sum over them.
    """

    record: Separable
    weights_CC: Tensor
    attract: float
    factor: float

    def at(self, gram_CC: Tensor) -> RowsAt:
        """F_i and its derivatives for all rows."""
        record, u_CC = self.record, self.scores(gram_CC)
        value_C = self.attract * record.attract + self.factor * (self.weights_CC * record.repel.value(u_CC)).sum(1)
        weight_CC = self.factor * record.scale * self.weights_CC
        slope_CC = weight_CC * record.repel.slope(u_CC)
        curvature_CC = weight_CC * record.scale * record.repel.curvature(u_CC)
        # without gaps scores of positives and of collisions are |mu_i|^2 itself
        length_slope_C = None if record.is_gap else self.attract * record.attract_slope + slope_CC.diagonal()
        return RowsAt(value_C, slope_CC, curvature_CC, curvature_CC.mul, length_slope_C)

    def scores(self, gram_CC: Tensor) -> Tensor:
        """Scores that q is taken of, for each cosine."""
        return self.record.scale * (gram_CC - float(self.record.is_gap)) + self.record.margin


@dataclass(frozen=True)
class LogMeanRows:
    r"""Infinitely many negatives: the logarithm of an expectation, imbalanced2026, Eq. 10.

    .. math:: F_i = f \log(\epsilon + e^{\ell_i}), \qquad \ell_i = \log \sum_j r_{ij} e^{u_{ij}}

    and with hardness beta :math:`\ell_i = \log\sum_j r_{ij} e^{(1+\beta) u_{ij}} - \log\sum_j r_{ij}
    e^{\beta u_{ij}}`. A sum over k negatives grows with log k: F is then the limit of the risk less f log k, which
    leaves no epsilon.

    Attributes:
        record: class-level record of the loss.
        weights_CC: probabilities r_ij that a negative of an anchor of class i is of class j.
    """

    record: LogOfSum
    weights_CC: Tensor

    @property
    def epsilon(self) -> float:
        """The epsilon that remains for infinitely many negatives."""
        return self.record.epsilon if self.record.is_mean else 0.0

    def at(self, gram_CC: Tensor) -> RowsAt:
        r"""F_i and its derivatives; with p and q the shares in the two sums, the slope of l is (1 + beta) p - beta q.

        The Hessian of a row is, up to a factor and with t = p - q,
        :math:`\mathrm{diag}((1 + \beta) p - \beta q) - p p^\top + q q^\top + (1 - \mathrm{share})\, t t^\top`.
        """
        record, beta = self.record, self.record.hardness
        sharp_CC = self._tilted(gram_CC, 1 + beta)
        # l_i, the logarithm of the expectation
        p_CC, level_C = (1 + beta) * sharp_CC.softmax(1), sharp_CC.logsumexp(1)
        q_CC = torch.zeros_like(p_CC)
        if beta:
            blunt_CC = self._tilted(gram_CC, beta)
            q_CC, level_C = beta * blunt_CC.softmax(1), level_C - blunt_CC.logsumexp(1)
        plus = LogPlus(self.epsilon)  # Eq. 10 has epsilon 1
        # share of the negatives in epsilon + e^l
        value_C, share_C1 = plus.of_log_sum(level_C), plus.slope_of_log_sum(level_C)[:, None]
        tilt_CC = p_CC - q_CC
        slope_CC = record.factor * record.scale * share_C1 * tilt_CC
        scale_C1 = record.factor * record.scale**2 * share_C1

        def bent(v_CC: Tensor, dot: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
            own_CC = ((1 + beta) * p_CC - beta * q_CC) * v_CC - p_CC * dot(p_CC, v_CC) + q_CC * dot(q_CC, v_CC)
            return scale_C1 * (own_CC + (1 - share_C1) * tilt_CC * dot(tilt_CC, v_CC))

        def times(direction_CC: Tensor) -> Tensor:
            return bent(direction_CC, lambda x_CC, v_CC: (x_CC * v_CC).sum(1, keepdim=True))

        diagonal_CC = bent(torch.ones_like(p_CC), torch.mul)
        return RowsAt(record.factor * value_C, slope_CC, diagonal_CC, times)

    def _tilted(self, gram_CC: Tensor, power: float) -> Tensor:
        """Logarithms of a power of the terms, times r."""
        u_CC = self.record.scale * (gram_CC - 1) + self.record.margin
        # log 0 = -inf for classes that are not negatives: their shares become 0
        return self.weights_CC.log() + power * u_CC


def _between_classes(matrix_CC: Tensor) -> Tensor:
    """Symmetric part without diagonal."""
    # a_ij and a_ji are one variable, and a_ii is none
    return (0.5 * (matrix_CC + matrix_CC.mT)).fill_diagonal_(0.0)
