r"""The class-level risk S(A): what a loss comes to where all vectors of a class are one unit vector.

.. math:: S(A) = \sum_i w_i \sum_{j_1 \dots j_k} \Big(\prod_t r_{i j_t}\Big)\, \psi(a_{i j_1} - 1, \dots, a_{i j_k} - 1)

A is the Gram matrix of the class means, w_i the weight of class i as anchor (its proportion), and :math:`r_{ij}` the
probability that a negative of class i is of class j: :math:`\lambda_j`, or :math:`\lambda_j/(1-\lambda_i)` for
:math:`j \ne i` where negatives are of other classes. The expectation over k negatives is exact: in closed form where
the loss is a sum over pairs or k is infinite, else one integral per row (``negatives_integral``).

The least S over unit diagonals bounds a loss of gaps for every encoder in the unit ball where negatives are of other
classes, or where positives are independent given their class: by Lemma 1 of imbalanced2026 the class means enter
through :math:`a_{ij} - 1` or :math:`a_{ij} - |\mu_i|^2`, and A + diag(1 - |mu_i|^2) has no larger gap. Differs from
Corollary 3 of the paper, which claims the bound for any positives: where negatives may share the class of an anchor
whose positive is tied to it (two views of a sample), spreading a class lowers the terms of collisions and can do better
than any collapsed geometry.
"""

# C classes

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.checks import require_numbers
from counterpoint.core.errors import NonFiniteError, UsageError
from counterpoint.kernels.contract import PairFunction
from counterpoint.losses.class_level import ClassLevel, LogOfSum, Separable
from counterpoint.losses.loss import Loss
from counterpoint.theory.geometry.negatives_integral import LogSumRows, hard_sum_rows, log_sum_rows
from counterpoint.theory.geometry.risk_rows import LogMeanRows, RiskAt, SeparableRows

PAPER = LogOfSum("the paper's InfoNCE", is_mean=True)  # imbalanced2026, Eq. 23
SYMMETRY_TOLERANCE = 1e-8
MANY_CLASSES = 512  # from here on an operation is long enough for several threads
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class ClassRisk:
    """S as a function of the Gram matrix; made by ``class_risk``.

    Attributes:
        name: name of the loss.
        anchor_weights_C: weights w of anchors by class.
        rows: risk of the anchors of each class, a function of its row of the Gram matrix.
        is_convex: whether S is convex on all symmetric matrices.
        is_strictly_convex: whether S is strictly convex; its minimiser is then unique.
        is_smooth: whether S has a continuous gradient.
        lower: convex risk that is nowhere above this one; None if this one is convex.
    """

    name: str
    anchor_weights_C: Tensor
    rows: SeparableRows | LogMeanRows | LogSumRows
    is_convex: bool = True
    is_strictly_convex: bool = True
    is_smooth: bool = True
    lower: "ClassRisk | None" = None

    @property
    def num_classes(self) -> int:
        """Number of classes, C."""
        return len(self.anchor_weights_C)

    def value(self, gram_CC: Tensor) -> float:
        """S at a Gram matrix; see ``at``."""
        return self.at(gram_CC).value

    def at(self, gram_CC: Tensor) -> RiskAt:
        """S (Eq. 14, and Eq. 10 for infinitely many negatives) and its derivatives at a matrix of unit diagonal.

        Raises:
            ValueError: not a finite symmetric matrix of this size.
        """
        return self.rows.at(self._checked(gram_CC)).weighed(self.anchor_weights_C)

    def smoothed(self, width: float) -> "tuple[ClassRisk, float]":
        r"""A risk with a continuous second derivative, nowhere below this one, and how far above it is at most.

        The hinge :math:`[u]_+` becomes :math:`h(3/16 + t/2 + 3t^2/8 - t^4/16)` with t = u/h for u between -h and h.

        Args:
            width: half width h > 0 of the rounded corner, in units of the scaled and shifted gap.
        """
        if self.is_smooth:
            return self, 0.0
        assert isinstance(self.rows, SeparableRows)
        record = replace(self.rows.record, repel=smooth_hinge(width), is_smooth=True)
        # the rounded hinge is farthest above the sharp one at its corner, by 3/16 of the width
        slack = self.rows.factor * float(self.anchor_weights_C.sum()) * 3 * width / 16
        return replace(self, rows=replace(self.rows, record=record), is_smooth=True), slack

    def _checked(self, gram_CC: Tensor) -> Tensor:
        require_numbers(gram_CC, "gram")
        if gram_CC.is_complex():
            raise UsageError(f"gram must be real, got {gram_CC.dtype}")
        size = self.num_classes
        if gram_CC.shape != (size, size):
            raise UsageError(f"gram must have shape ({size}, {size}), one row per class, got {tuple(gram_CC.shape)}")
        gram_CC = gram_CC.detach().to(self.anchor_weights_C)
        if not bool(torch.isfinite(gram_CC).all()):
            raise NonFiniteError("gram must be finite, but holds NaN or infinity")
        if float((gram_CC - gram_CC.mT).abs().max()) > SYMMETRY_TOLERANCE:
            raise UsageError("gram must be symmetric; take (gram + gram.T) / 2")
        # a copy: the matrix may be the caller's own
        return gram_CC.clone().fill_diagonal_(1.0)


def class_risk(
    proportions: Sequence[float] | np.ndarray | Tensor,
    *,
    loss: Loss | ClassLevel | None = None,
    num_negatives: float | None = None,
    supervised: bool = False,
    anchor_weights: Tensor | None = None,
) -> ClassRisk:
    r"""The class-level risk of a loss.

    Infinitely many negatives leave a loss that sums over them no finite risk. Its value is then the limit of the risk
    less factor * log k for a logarithm of the sum, and of the risk divided by k for a plain sum; the minimiser is the
    limit of the minimisers.

    Source: imbalanced2026, Eq. 10 (k infinite), 14 and appendix A.18 (negatives of other classes).

    Args:
        proportions: share of each class, (C,), positive, of sum 1.
        loss: one of ``counterpoint.losses``, taken as it trains, or the record of what it does to classes; None is
            the paper's InfoNCE of Eq. 23, log(1 + mean of k exponentials) at temperature 1.
        num_negatives: number of negatives, k >= 1, or math.inf; None is the loss's own number, or infinity.
        supervised: whether negatives are of other classes than the anchor.
        anchor_weights: weight of each class as anchor, >= 0; None is its proportion.

    Raises:
        UsageError: proportions that do not sum to 1, a loss without class-level risk (says why), k < 1 or not whole,
            weights of another shape or sign.

    >>> risk = class_risk([0.5, 0.5], supervised=True)
    >>> opposite = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    >>> abs(risk.value(opposite) - math.log(1 + math.exp(-2))) < 1e-15
    True
    """
    proportions_C = check_proportions(proportions)
    if loss is not None and not isinstance(loss, Loss | ClassLevel):
        raise UsageError(f"loss must be one of counterpoint.losses or None, got {type(loss).__name__}; build it first")
    record = loss.class_level() if isinstance(loss, Loss) else loss or PAPER
    k = record.num_negatives if num_negatives is None else num_negatives
    k = math.inf if k is None else k
    is_number = isinstance(k, Real) and not isinstance(k, bool)
    if not is_number or not (k == math.inf or (1 <= k < 2**63 and k % 1 == 0)):  # a whole number that torch holds
        expected = "a whole number >= 1 and < 2**63, or math.inf"
        raise UsageError(f"num_negatives must be {expected}, got {k!r:.40}; 512 is common")
    weights_CC = negative_weights(proportions_C, supervised=supervised or record.supervised)
    weights_C = proportions_C
    if anchor_weights is not None:
        weights_C = torch.as_tensor(anchor_weights).to(proportions_C).double()
        if weights_C.shape != proportions_C.shape:
            shapes = f"{tuple(proportions_C.shape)}, got {tuple(weights_C.shape)}"
            raise UsageError(f"anchor_weights must be one per class, shape {shapes}")
        if not bool(torch.isfinite(weights_C).all()) or float(weights_C.min()) < 0 or float(weights_C.sum()) == 0:
            raise UsageError(f"anchor_weights must be >= 0, finite and not all 0, got {weights_C.tolist()}")
    return _risk(record, weights_CC, weights_C, float(k))


def negative_weights(proportions_C: Tensor, *, supervised: bool) -> Tensor:
    r"""Probability that a negative of an anchor of class i (row) is of class j: lambda_j or lambda_j / (1 - lambda_i).

    >>> negative_weights(torch.tensor([0.5, 0.25, 0.25]), supervised=True)
    tensor([[0.0000, 0.5000, 0.5000],
            [0.6667, 0.0000, 0.3333],
            [0.6667, 0.3333, 0.0000]])
    """
    weights_CC = proportions_C.expand(len(proportions_C), -1).clone()
    # Eq. 3 (UCL): labels of negatives are independent of the anchor's
    if not supervised:
        return weights_CC
    weights_CC.fill_diagonal_(0.0)
    # Eq. 5 (SCL); rows are divided by their sum, as 1 - lambda_i loses digits of rare classes beside a large one
    return weights_CC / weights_CC.sum(1, keepdim=True)


def smooth_hinge(width: float) -> PairFunction:
    """The hinge, its corner rounded off within ``width`` on either side; at most 3/16 of the width above it.

    Raises:
        UsageError: width <= 0 or not finite.

    >>> smooth_hinge(0.5).value(torch.tensor([-0.5, 0.0, 0.5]))
    tensor([0.0000, 0.0938, 0.5000])
    """
    if not 0 < width < math.inf:
        raise UsageError(f"width must be > 0 and finite, got {width}; 1e-3 of the margin is common")

    def value(u: Tensor) -> Tensor:
        t = (u / width).clamp(-1, 1)
        return torch.relu(u - width) + width * (3 / 16 + t / 2 + 3 * t**2 / 8 - t**4 / 16)

    def slope(u: Tensor) -> Tensor:
        t = (u / width).clamp(-1, 1)
        return 0.5 + 0.75 * (t - t**3 / 3)

    def curvature(u: Tensor) -> Tensor:
        t = (u / width).clamp(-1, 1)
        return 0.75 * (1 - t**2) / width

    return PairFunction(f"hinge rounded by {width:g}", value, slope, curvature)


def _risk(record: ClassLevel, weights_CC: Tensor, anchor_weights_C: Tensor, k: float) -> ClassRisk:
    """The risk of a record, with its convex lower bound where it needs one."""
    if isinstance(record, Separable):
        # A sum over k negatives is k times their mean; over infinitely many, the limit of the sum / k.
        is_limit = record.is_mean or math.isinf(k)
        attract, factor = (float(record.is_mean), record.factor) if is_limit else (1.0, k * record.factor)
        return ClassRisk(
            record.name,
            anchor_weights_C,
            SeparableRows(record, weights_CC, attract, factor),
            is_strictly_convex=record.is_strictly_convex,
            is_smooth=record.is_smooth,
        )
    # Weights that grow with the terms raise their mean (Chebyshev's sum inequality): the risk without weights is
    # nowhere above.
    if record.hardness:
        plain = _risk(replace(record, hardness=0.0), weights_CC, anchor_weights_C, k)
        rows = LogMeanRows(record, weights_CC) if math.isinf(k) else hard_sum_rows(record, weights_CC, int(k))
        return ClassRisk(record.name, anchor_weights_C, rows, is_convex=False, is_strictly_convex=False, lower=plain)
    if math.isinf(k):
        rows = LogMeanRows(record, weights_CC)
        is_offset = rows.epsilon > 0
    else:
        rows, is_offset = log_sum_rows(record, weights_CC, int(k)), record.epsilon > 0
    # Without epsilon the logarithm is linear along equal changes of all gaps; a collision, of gap 0, prevents them.
    is_strict = is_offset or (k > 1 and float(weights_CC.diagonal().min()) > 0)
    return ClassRisk(record.name, anchor_weights_C, rows, is_strictly_convex=is_strict)


def check_proportions(proportions: Sequence[float] | np.ndarray | Tensor) -> Tensor:
    """Class proportions as float64 (C,), of sum 1 to rounding.

    Raises:
        UsageError: no real numbers, fewer than 2, not finite, not positive, or not of sum 1.

    >>> check_proportions([2, 1, 1])
    Traceback (most recent call last):
    counterpoint.core.errors.UsageError: proportions must sum to 1, got 4; divided by their sum they are 0.5, 0.25, 0.25
    """
    require_numbers(proportions, "proportions")
    try:
        if isinstance(proportions, Tensor):
            proportions_C = proportions.detach()
        else:
            numbers_C = np.array(proportions, order="C")  # torch takes no views of negative strides
            if numbers_C.dtype == object:
                numbers_C = numbers_C.astype(np.float64)
            proportions_C = torch.from_numpy(np.atleast_1d(numbers_C))
        if proportions_C.is_complex():
            raise TypeError("complex")  # in float64 they would lose their imaginary parts
        proportions_C = proportions_C.double()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"proportions must be real numbers, one per class, got {proportions!r}") from error
    if proportions_C.ndim != 1 or len(proportions_C) < 2:
        raise UsageError(f"proportions must be one per class for at least 2 classes, got {few(proportions_C)}")
    if not bool(torch.isfinite(proportions_C).all()):
        raise UsageError(f"proportions must be finite, got {few(proportions_C)}")
    if float(proportions_C.min()) <= 0:
        raise UsageError(
            f"proportions must be > 0, got {float(proportions_C.min()):g}; leave out classes that do not occur"
        )
    total = float(proportions_C.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        offer = few(proportions_C / total)
        raise UsageError(f"proportions must sum to 1, got {total:g}; divided by their sum they are {offer}")
    # proportions in float32 sum to 1 to about 1e-7 only
    return proportions_C / total


def few(values: Tensor, most: int = 12, digits: int = 6) -> str:
    """The first values as text."""
    flat = values.flatten().tolist()
    text = ", ".join(f"{value:.{digits}g}" for value in flat[:most])
    return f"{text}, ..." if len(flat) > most else text or "none"
