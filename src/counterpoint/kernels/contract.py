r"""The contract of every kernel: what it computes, and the records it works on.

All pairwise losses of the project are functions of one score

.. math:: u_{ij} = s \langle a_i, k_j \rangle + c_i + b_j

over anchors a_i and keys k_j, where some pairs (self, own positive, same class) are left out. In the gap form
:math:`d_i^2 - d_{ij}^2` of alphacl2022 the term :math:`|a_i|^2` cancels, which leaves
:math:`c_i = |p_i|^2/2 - \langle a_i, p_i\rangle` (p_i is the anchor's positive) and :math:`b_j = -|k_j|^2/2`; no two
distances are ever subtracted.

A loss sees its pairs through one statistic per anchor, :math:`r_i = \sum_j \psi(u_{ij})`, or its logarithm where psi is
the exponential. Where the keys are anchors too, as in CLIP, the same products are read in both directions; where the
two sets are one, as in SimCLR, each product serves both of its vectors. A kernel implements the statistic, its
gradient, and the derivative of both along a direction; it knows no loss by name.
"""

# N anchors, M keys, D features, E excluded keys per anchor

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

Elementwise = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class PairFunction:
    """An elementwise function psi with the two derivatives that gradients and Hessian-vector products need.

    Attributes:
        name: name by which fused kernels know it, and which ``losses.explain`` prints.
        value: psi, an elementwise function of a tensor.
        slope: derivative of psi.
        curvature: second derivative of psi.
        in_log_domain: whether psi is exp, whose row sums are kept as logarithms (log-sum-exp).
    """

    name: str
    value: Elementwise
    slope: Elementwise
    curvature: Elementwise
    in_log_domain: bool = False


@dataclass(frozen=True)
class ScoreTerms:
    r"""The tensors that scores are made of; a gradient or a tangent has the same fields.

    Read along a row, a pair scores :math:`s\langle a_i, k_j\rangle` + row_own_i + row_other_j; read along a column,
    where the keys are anchors in their turn, :math:`s\langle a_i, k_j\rangle` + column_own_j + column_other_i. A term
    that is None is zero.
    """

    anchors_ND: Tensor
    keys_MD: Tensor | None  # None: the anchors are the keys
    scale: Tensor  # shape (), usually 1 / temperature
    row_own_N: Tensor | None = None  # c_i
    row_other_M: Tensor | None = None  # b_j
    column_own_M: Tensor | None = None
    column_other_N: Tensor | None = None

    def flat(self) -> tuple[Tensor | None, ...]:
        """All fields in order, as autograd wants them."""
        return tuple(getattr(self, field.name) for field in fields(self))


NUM_TERMS = len(fields(ScoreTerms))


@dataclass(frozen=True)
class PairMask:
    """Pairs that do not count. Symmetric: a pair that is out in one direction is out in the other.

    An anchor whose keys are all out has the statistic 0, or minus infinity in the log domain, and no gradient; losses
    refuse such batches by their own names.

    Attributes:
        excluded_NE: int64 (n, e): distinct keys that do not enter the row of each anchor.
        anchor_labels_N: label of each anchor, int64 (n,), or None; if given, only keys of another label count.
        key_labels_M: label of each key, int64 (m,), given together with ``anchor_labels_N``.
        keeps_same_label: whether only keys of the anchor's own label count instead.
        is_ragged: whether some anchors exclude fewer keys than others; -1 means no key.
    """

    excluded_NE: Tensor | None = None  # distinct: `linear` subtracts each of them
    anchor_labels_N: Tensor | None = None
    key_labels_M: Tensor | None = None
    keeps_same_label: bool = False
    is_ragged: bool = False


@dataclass(frozen=True)
class PairScores:
    """All scores of some anchors against some keys.

    With ``keys_MD`` None the anchors are their own keys: row and column readings are then the same, ``is_two_way`` is
    False, and the terms ``column_own_M`` and ``column_other_N`` are None. With ``is_unit`` no vector is
    longer than 1, up to rounding.
    """

    terms: ScoreTerms
    mask: PairMask = PairMask()
    is_two_way: bool = False
    is_unit: bool = False

    @property
    def is_self(self) -> bool:
        """Tell whether the anchors are the keys."""
        return self.terms.keys_MD is None

    @property
    def keys_MD(self) -> Tensor:
        """The keys: the anchors themselves, or other vectors."""
        return self.terms.anchors_ND if self.terms.keys_MD is None else self.terms.keys_MD


@dataclass(frozen=True)
class PerAnchor:
    """One number per anchor: a statistic, its tangent, or the weight that a gradient gives it."""

    rows_N: Tensor
    columns_M: Tensor | None = None  # the keys as anchors; None unless scores are read both ways

    def both(self) -> list[Tensor]:
        """Rows and, if there are, columns."""
        return [self.rows_N] if self.columns_M is None else [self.rows_N, self.columns_M]


class PairReduction(Protocol):
    """The statistic of each anchor, differentiable by autograd in whatever it is made of."""

    def reduce(self, scores: PairScores, psi: PairFunction) -> PerAnchor:
        """The statistic r_i: sum of psi(u_ij) over the keys, or log-sum-exp of u_ij."""
        ...


class PairKernel(PairReduction, Protocol):
    r"""One implementation of the pair reductions with its own derivatives.

    With :math:`h_i` the statistic where psi works in the log domain and 0 elsewhere, the weight of a pair is
    :math:`w_{ij} = g_i \psi'(u_{ij} - h_i)`.
    """

    def gradient(self, scores: PairScores, psi: PairFunction, statistic: PerAnchor, weight: PerAnchor) -> ScoreTerms:
        """Gradient of sum_i g_i r_i for every term of the scores; terms that are None have gradient None."""
        ...

    def reduce_tangent(
        self, scores: PairScores, psi: PairFunction, statistic: PerAnchor, tangent: ScoreTerms
    ) -> PerAnchor:
        """Change of r_i when the terms move along the tangent: sum_j psi'(u_ij - h_i) u'_ij."""
        ...

    def gradient_tangent(
        self, scores: PairScores, psi: PairFunction, statistic: PerAnchor, weight: PerAnchor, tangent: ScoreTerms
    ) -> ScoreTerms:
        """Change of ``gradient`` along the tangent with g held: the Hessian of sum_i g_i r_i times the tangent."""
        ...


# The elementwise functions psi of the known losses. A temperature or a margin is part of the scores, not of psi.

# Above it torch.nn.functional.softplus is linear; its own 20 is off by 2e-9, this one by less than float64 holds.
SOFTPLUS_THRESHOLD = 40.0


def softplus(u: Tensor) -> Tensor:
    """log(1 + e^u), exact to float64; a function of the module, so that a pickled loss has the same one."""
    return F.softplus(u, threshold=SOFTPLUS_THRESHOLD)


def identity(u: Tensor) -> Tensor:
    """Return u."""
    return u


def _twice(u: Tensor) -> Tensor:
    return 2 * u


def _two(u: Tensor) -> Tensor:
    return torch.full_like(u, 2.0)


def _is_positive(u: Tensor) -> Tensor:
    """Slope of the hinge: 0 at 0, as torch.relu has it."""
    return (u > 0).to(u.dtype)


def _sigmoid_slope(u: Tensor) -> Tensor:
    """Derivative of the logistic sigmoid, without cancellation in either tail."""
    return torch.sigmoid(u) * torch.sigmoid(-u)


def _sigmoid_curvature(u: Tensor) -> Tensor:
    # The last factor is 1 - 2 sigmoid(u), from both tails.
    return _sigmoid_slope(u) * (torch.sigmoid(-u) - torch.sigmoid(u))


# Slope and curvature are taken at u - h, h the log-sum-exp: they are softmax weights, at most 1.
EXPONENTIAL = PairFunction("exp", torch.exp, torch.exp, torch.exp, in_log_domain=True)
IDENTITY = PairFunction("identity", identity, torch.ones_like, torch.zeros_like)
SQUARE = PairFunction("square", torch.square, _twice, _two)
# The second derivative at the kink, which does not exist, is taken to be 0 as well.
HINGE = PairFunction("hinge", torch.relu, _is_positive, torch.zeros_like)
SIGMOID = PairFunction("sigmoid", torch.sigmoid, _sigmoid_slope, _sigmoid_curvature)
SOFTPLUS = PairFunction("softplus", softplus, torch.sigmoid, _sigmoid_slope)
