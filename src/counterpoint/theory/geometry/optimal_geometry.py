r"""The geometry of a perfect encoder: class means that minimise a loss for given class proportions."""

# C classes, D dimensions

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.thread_parts import one_thread
from counterpoint.losses.class_level import ClassLevel
from counterpoint.losses.loss import Loss
from counterpoint.theory.geometry.class_risk import MANY_CLASSES, ClassRisk, check_proportions, class_risk
from counterpoint.theory.geometry.correlation_dual import multipliers
from counterpoint.theory.geometry.correlation_solver import Solution
from counterpoint.theory.geometry.geometry_cases import (
    coinciding,
    solve_convex,
    solve_few_dimensions,
    solve_nonnegative,
    solve_not_convex,
)

_MERGED = 1 - 1e-6  # cosine of classes that share one vector
_VANISHES = 1e-10  # eigenvalue, as a share of the largest
_MOST_SHOWN = 12
_MOST_DIMENSIONS = 1_000_000
_SPREAD = "encoders that spread a class out do better still, since its vectors repel each other as negatives"


@dataclass(frozen=True)
class Geometry:
    r"""Optimal class means and how sure they are.

    Attributes:
        gram: cosines between class means, float64 (C, C).
        means: the class means as columns, (D, C): ``means.T @ means`` is ``gram``. Any rotation of them is as good.
        risk: class-level risk S of ``gram``: the loss of an encoder that maps each class to its mean.
        rank: number of dimensions that the means need.
        lower_bound: number that the risk of no unit class means is below, in any dimension; with ``nonnegative``, of no
            non-negative ones.
        duality_gap: ``risk`` minus ``lower_bound``, >= 0.
        status: certainty of the optimum, in words.
        iterations: number of Newton steps.
        proportions: share of each class, (C,).
        is_certified: whether the gap is within the tolerance asked for.
        is_collapse_optimal: whether collapsing each class to its mean is best among encoders whose positives are drawn
            independently from the anchor's class. False, possible for a loss that is not a function of gaps (MIO,
            sigmoid), says that classes of unit means are not the whole story: spread out they do better. None if it
            is not known: for local optima.
        scale: size that the tolerance is a share of, that of the risk or of its first-order change, whichever is more;
            for a triplet loss, that of a unit of its hinge.
    """

    gram: Tensor
    means: Tensor
    risk: float
    rank: int
    lower_bound: float
    duality_gap: float
    status: str
    iterations: int
    proportions: Tensor
    is_certified: bool
    is_collapse_optimal: bool | None
    scale: float

    @property
    def relative_gap(self) -> float:
        """The gap as a share of ``scale``."""
        return self.duality_gap / self.scale

    @property
    def angles(self) -> Tensor:
        """Angles between class means in degrees, (C, C)."""
        return torch.rad2deg(torch.acos(self.gram.clamp(-1, 1)))

    @property
    def merged_classes(self) -> list[list[int]]:
        """Groups of two or more classes, numbered from 0, that share one vector."""
        groups_C = coinciding(self.gram, _MERGED).tolist()
        groups = [[place for place, group in enumerate(groups_C) if group == name] for name in sorted(set(groups_C))]
        return [group for group in groups if len(group) > 1]

    def __str__(self) -> str:
        """Show the certificate, whether classes merge, and the matrix."""
        gap = f"lower bound {self.lower_bound:.10g}, gap {self.duality_gap:.1e}"
        counts = f"{len(self.gram)} classes, rank {self.rank}, risk {self.risk:.10g} ({gap})"
        groups = [f"classes {', '.join(map(str, group))} merge into one vector" for group in self.merged_classes]
        merging = f"{'; '.join(groups)} (numbered from 0)" if groups else "no two classes merge"
        corner = self.gram[:_MOST_SHOWN, :_MOST_SHOWN].tolist()
        more = [f"... and {len(self.gram) - _MOST_SHOWN} more classes"] if len(self.gram) > len(corner) else []
        matrix = ["  ".join(f"{value:8.4f}" for value in row) for row in corner]
        return "\n".join([counts, self.status, merging, *matrix, *more])


def optimal_geometry(  # noqa: PLR0913 (its signature is published)
    proportions: Sequence[float] | np.ndarray | Tensor,
    *,
    loss: Loss | ClassLevel | None = None,
    num_negatives: float | None = None,
    supervised: bool = False,
    dimension: int | None = None,
    nonnegative: bool = False,
    tolerance: float = 1e-8,
) -> Geometry:
    r"""Class means that minimise a loss, given how frequent the classes are.

    .. math:: \min_A S(A) \quad \text{over} \quad A \succeq 0, \; A_{ii} = 1

    with the class-level risk S of the loss (``class_risk``): by imbalanced2026, Lemmas 1 to 4 and Theorem 2, no encoder
    of unit-length features whose positives are drawn independently from the anchor's class does better, and in C - 1
    dimensions one does as well. The problem is convex; every answer carries a lower bound from its dual, whatever
    method found it. Equal proportions give equal rows (Theorem 3), balanced classes a simplex (Corollary 5).

    Below C - 1 dimensions, and for losses whose risk is not convex (hard negatives), the answer is a local optimum;
    ``status`` says so.

    Source: imbalanced2026, Eq. 7, 10, 14, 15 and Theorem 1; A.18 for negatives of other classes.

    Args:
        proportions: share of each class, > 0, of sum 1; at least 2.
        loss: one of ``counterpoint.losses``, taken as it trains (InfoNCE sums over its negatives, at its temperature),
            or what its ``class_level`` returns; None is the paper's: the mean over k negatives, temperature 1.
        num_negatives: number k >= 1 of negatives of an anchor, or math.inf; None is the loss's own number, or infinity.
        supervised: whether negatives are of other classes (SCL); else of all, the anchor's own included (UCL).
        dimension: number of dimensions of the features; None leaves it free.
        nonnegative: whether features have no negative entries (NCL).
        tolerance: largest gap that counts as certified, as a share of ``Geometry.scale``, > 0.

    Raises:
        UsageError: proportions that do not sum to 1 (offers the normalised ones), k < 1, dimension < 1, tolerance <=
            0, or a loss without class-level risk (says why).

    Permuting the classes permutes the answer.

    >>> geometry = optimal_geometry([0.5, 0.25, 0.25], num_negatives=512)
    >>> [round(float(cosine), 4) for cosine in (geometry.gram[0, 1], geometry.gram[1, 2])]
    [-0.6265, -0.2151]
    """
    proportions_C = check_proportions(proportions)
    num_classes = len(proportions_C)
    if dimension is not None and (isinstance(dimension, bool) or not isinstance(dimension, Integral) or dimension < 1):
        raise UsageError(
            f"dimension must be a whole number >= 1, got {dimension!r}; C - 1 = {num_classes - 1} suffices"
        )
    if dimension is not None and dimension > _MOST_DIMENSIONS:  # the means are written out in all of them
        raise UsageError(
            f"dimension must be at most {_MOST_DIMENSIONS:,}, got {dimension}; C - 1 = {num_classes - 1} suffices"
        )
    if not isinstance(tolerance, Real) or not 0 < tolerance < math.inf:
        raise UsageError(f"tolerance must be > 0, got {tolerance!r}; 1e-8 is common")
    # threads would wait for each other longer than operations of this size take
    with one_thread(is_wanted=num_classes < MANY_CLASSES):
        risk = class_risk(proportions_C, loss=loss, num_negatives=num_negatives, supervised=supervised)
        solution = _solve(
            risk, num_classes if dimension is None else int(dimension), nonnegative=nonnegative, tolerance=tolerance
        )
        return _geometry(risk, solution, proportions_C, dimension=dimension, nonnegative=nonnegative)


def _solve(risk: ClassRisk, dimension: int, *, nonnegative: bool, tolerance: float) -> Solution:
    if nonnegative:
        return solve_nonnegative(risk, dimension)
    if not risk.is_convex:
        return solve_not_convex(risk, dimension, tolerance)
    if dimension < risk.num_classes - 1:
        return solve_few_dimensions(risk, dimension, tolerance)
    solution = solve_convex(risk, tolerance)
    # Only a loss that does not rise with every cosine (spectral) may need all C dimensions.
    return solution if solution.factor_CR.shape[1] <= dimension else solve_few_dimensions(risk, dimension, tolerance)


def _geometry(
    risk: ClassRisk, solution: Solution, proportions_C: Tensor, *, dimension: int | None, nonnegative: bool
) -> Geometry:
    # cosines in [-1, 1] and 1 on the diagonal, whatever rounding says
    gram_CC = (solution.factor_CR @ solution.factor_CR.T).clamp(-1, 1).fill_diagonal_(1.0)
    gram_CC = 0.5 * (gram_CC + gram_CC.T)
    # Theorem 2: columns of U sqrt(Sigma), the longest axis first, then zeros
    eigenvalues_C, axes_CC = torch.linalg.eigh(gram_CC)
    rank = int((eigenvalues_C > _VANISHES * eigenvalues_C[-1]).sum())
    means_RC = (axes_CC * eigenvalues_C.clamp_min(0).sqrt()).T.flip(0)[: rank if dimension is None else int(dimension)]
    if nonnegative:
        means_RC = solution.factor_CR.T  # principal axes would have other signs
    missing = 0 if dimension is None else max(0, int(dimension) - len(means_RC))
    is_collapsed = None
    if solution.is_global:
        at = risk.at(gram_CC)
        y_C = multipliers(at.gradient_CC, gram_CC)
        # KKT for |mu_i|^2 <= 1: the multiplier of the length, y_i less the own slope, must not be negative
        is_collapsed = bool((at.own_slope_C <= y_C + 1e-9 * float(y_C.abs().max())).all())
    status = f"{solution.status}; {_SPREAD}" if is_collapsed is False else solution.status
    return Geometry(
        gram=gram_CC,
        means=torch.nn.functional.pad(means_RC, (0, 0, 0, missing)),
        risk=solution.value,
        rank=rank,
        lower_bound=min(solution.lower_bound, solution.value),
        duality_gap=max(0.0, solution.value - solution.lower_bound),
        status=status,
        iterations=solution.iterations,
        proportions=proportions_C,
        is_certified=solution.is_certified,
        is_collapse_optimal=is_collapsed,
        scale=solution.scale,
    )
