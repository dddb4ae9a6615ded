r"""Solutions of each kind of problem: convex, with a corner, of few dimensions, not convex, non-negative features.

At the end of a descent, classes whose vectors nearly coincide are merged, and the smaller problem is solved exactly;
the certificate of the full one says whether they may be. Let P in {0, 1}^(C x M) say which of M vectors each of C
classes has. The Gram matrix of all classes is then :math:`A = P A_M P^\top`, and S(P A_M P^T) is again convex in A_M:
the merged problem has the same kind of solution as the full one, with fewer classes.
"""

# C classes, M distinct vectors, D dimensions, R columns of a factor

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from counterpoint.theory.geometry.class_risk import ClassRisk
from counterpoint.theory.geometry.correlation_dual import certify
from counterpoint.theory.geometry.correlation_solver import Risk, Solution, descend, minimise_over_correlations, simplex
from counterpoint.theory.geometry.risk_rows import RiskAt, SeparableRows

CERTIFIED = "optimal: no unit class means have a smaller risk"
ORTHONORMAL = "optimal: cosines of non-negative means are at least 0, and the risk rises with each (Theorem 1)"
NOT_UNIQUE = ", though others may have the same"
_NUM_STARTS = 8
_WIDTHS = tuple(10.0**-power for power in range(1, 8))  # of the rounded corner
_FIXED_WIDTH = 1e-5  # where no certificate is sought
_CORNER_SLOPE = 1e-9
NEARLY_ONE = 1 - 1e-3  # cosine of classes that are tried as one
STRETCH = 1e-9  # of the certificate, up to which they are one


def solve_convex(risk: ClassRisk, tolerance: float) -> Solution:
    """Least S over all correlation matrices."""
    if not risk.is_smooth:
        return _solve_with_corner(risk, tolerance)
    solution = minimise_over_correlations(risk, tolerance=tolerance)
    solution = merge_what_coincides(risk, solution, tolerance)
    status = _gap_words(tolerance, solution.relative_gap)
    if solution.is_certified:
        status = CERTIFIED if risk.is_strictly_convex else CERTIFIED + NOT_UNIQUE
    return replace(solution, status=status, is_global=True)


def solve_few_dimensions(risk: ClassRisk, dimension: int, tolerance: float) -> Solution:
    """A local optimum in fewer than C - 1 dimensions, the best of some starts, beside the bound for all dimensions."""
    reason = (
        f"in {dimension} dimensions, fewer than the optimum of any dimension may need, the problem is not convex and "
        "no certificate exists; the lower bound is that of any dimension"
    )
    return _best_of_starts(risk, solve_convex(risk, tolerance), dimension, reason)


def solve_not_convex(risk: ClassRisk, dimension: int, tolerance: float) -> Solution:
    """A local optimum of a risk that is not convex, beside the bound of its convex minorant."""
    assert risk.lower is not None
    reason = (
        f"the risk of {risk.name} is not convex in the Gram matrix and no certificate exists; the lower bound is that "
        f"of {risk.lower.name} without weights, which is nowhere above"
    )
    relaxed = solve_convex(risk.lower, tolerance)
    return _best_of_starts(risk, relaxed, min(dimension, risk.num_classes), reason)


def solve_nonnegative(risk: ClassRisk, dimension: int) -> Solution:
    """Non-negative class means: orthonormal where there is room (imbalanced2026, Theorem 1), else a local optimum.

    Where S is convex and rises with every cosine at orthonormal means, S(A) >= S(I) for all A without negative entries.
    """
    orthonormal_CC = torch.eye(risk.num_classes, dtype=torch.float64)
    convex = risk.lower or risk
    at = convex.at(orthonormal_CC)
    # S(A) >= S(I) + <G, A - I> >= S(I): neither G nor A - I has an entry below 0
    is_bound = bool((at.gradient_CC >= 0).all())
    bound, scale = (at.value if is_bound else -math.inf), max(abs(at.value), torch.finfo(torch.float64).tiny)
    if dimension >= risk.num_classes and is_bound and risk.is_convex:
        return Solution(orthonormal_CC, orthonormal_CC, at.value, bound, scale, 0, True, ORTHONORMAL, is_global=True)
    smooth, _ = risk.smoothed(_FIXED_WIDTH)
    columns = min(dimension, risk.num_classes)
    generator = np.random.default_rng(0)
    tries = [_descend_nonnegative(smooth.at, generator.random((risk.num_classes, columns))) for _ in range(_NUM_STARTS)]
    if columns == risk.num_classes:
        # so that C columns never end above orthonormal means
        tries.append(orthonormal_CC)
    best = min(tries, key=lambda factor_CR: risk.value(factor_CR @ factor_CR.T))
    status = (
        f"local optimum, the best of {len(tries)} non-negative starts: no certificate exists for fewer than C = "
        f"{risk.num_classes} dimensions or a risk that is not convex; the lower bound is that of orthonormal means"
    )
    gram_CC = best @ best.T
    return Solution(gram_CC, best, risk.value(gram_CC), bound, scale, 0, False, status)


@dataclass(frozen=True)
class MergedRisk:
    r"""S(P A_M P^T) as a function of A_M.

    With a direction D of zero diagonal, the gradient is :math:`P^\top G P` and the curvature
    :math:`P^\top H[P D P^\top] P`, both without their diagonal: classes of one vector have cosine 1 whatever A_M is.

    Attributes:
        risk: risk S on all C classes.
        members_CM: matrix P, which has one 1 in each row, at the vector that the class has.
    """

    risk: Risk
    members_CM: Tensor

    @property
    def num_classes(self) -> int:
        """Number of merged classes, M."""
        return self.members_CM.shape[1]

    def at(self, gram_CC: Tensor) -> RiskAt:
        """S and its derivatives at the merged Gram matrix A_M, (M, M): to a solver, M is the number of classes."""
        full = self.risk.at(self.expand(gram_CC))
        return replace(
            full,
            gradient_CC=self._pull_back(full.gradient_CC),
            curvature=lambda direction_MM: self._pull_back(full.curvature(self.expand(direction_MM))),
            curvature_diagonal_CC=self._pull_back(full.curvature_diagonal_CC),
            own_slope_C=self.members_CM.T @ full.own_slope_C,
        )

    def expand(self, matrix_MM: Tensor) -> Tensor:
        """Return P X P^T."""
        return self.members_CM @ matrix_MM.to(self.members_CM) @ self.members_CM.T

    def _pull_back(self, matrix_CC: Tensor) -> Tensor:
        """Return P^T X P without its diagonal."""
        return (self.members_CM.T @ matrix_CC @ self.members_CM).fill_diagonal_(0.0)


def merge_what_coincides(risk: ClassRisk, solution: Solution, tolerance: float) -> Solution:
    """The exact solution in which nearly equal class means are equal, if the certificate prefers it."""
    groups_C = coinciding(solution.gram_CC, NEARLY_ONE)
    num_groups = int(groups_C.max()) + 1
    # all coincide, or none do: no smaller problem to solve
    if num_groups in (1, risk.num_classes):
        return solution
    members_CM = torch.nn.functional.one_hot(groups_C, num_groups).double()
    merged = MergedRisk(risk, members_CM)
    # solved further than asked: the full certificate's stretch must come out below 1e-9
    small = minimise_over_correlations(merged, tolerance=min(tolerance, 1e-12))
    gram_CC = merged.expand(small.gram_CC)
    at = risk.at(gram_CC)
    certificate = certify(at, gram_CC)
    bound = max(certificate.lower_bound, solution.lower_bound)
    if certificate.stretch > STRETCH:
        return solution  # they are near, and yet apart
    return replace(
        solution,
        gram_CC=gram_CC,
        factor_CR=members_CM @ small.factor_CR,
        value=at.value,
        lower_bound=min(bound, at.value),
        scale=certificate.scale,
        iterations=solution.iterations + small.iterations,
        is_certified=True,
    )


def coinciding(gram_CC: Tensor, cosine: float) -> Tensor:
    """Number of each class's group, (C,), where classes of at least this cosine are of one group, also through others.

    >>> coinciding(torch.tensor([[1.0, -1.0, -1.0], [-1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]]), 0.999)
    tensor([0, 1, 1])
    """
    from scipy.sparse.csgraph import connected_components  # deferred: it loads as slowly as the rest of the theory

    return torch.from_numpy(connected_components((gram_CC >= cosine).numpy(), directed=False)[1]).long()


def _solve_with_corner(risk: ClassRisk, tolerance: float) -> Solution:
    """Round the corner off more and more, until the rounded risk's slopes certify the answer of the sharp one."""
    factor_CR, bound, iterations, value = simplex(risk.num_classes), -math.inf, 0, math.inf
    best_CR, scale, is_certified = factor_CR, 1.0, False
    for width in _WIDTHS:
        smooth, slack = risk.smoothed(width)
        # from the answer of the wider corner
        descent = descend(smooth.at, factor_CR, slope=_CORNER_SLOPE)
        factor_CR, iterations = descent.point.factor_CR, iterations + descent.iterations
        gram_CC, at = descent.point.gram_CC, descent.point.at
        # The slopes of the rounded hinge belong to lines nowhere above the sharp one: the bound is the sharp risk's.
        assert isinstance(smooth.rows, SeparableRows)
        # f r q'(u): the slope for a cosine has the factor scale
        slope_CC = smooth.rows.at(gram_CC).slope_CC / smooth.rows.record.scale
        tangent = float(smooth.anchor_weights_C @ (slope_CC * smooth.rows.scores(gram_CC)).sum(dim=1))
        bound = max(bound, certify(replace(at, value=tangent), gram_CC).lower_bound)
        # slack / width is 3/16 of all weights, a unit of the hinge: where all margins are kept the risk itself is 0
        if (sharp := risk.value(gram_CC)) < value:
            best_CR, value, scale = factor_CR, sharp, max(abs(sharp), slack / width)
        is_certified = value - bound <= tolerance * scale
        if is_certified:
            break
    status = CERTIFIED + NOT_UNIQUE if is_certified else _gap_words(tolerance, (value - bound) / scale)
    gram_CC = best_CR @ best_CR.T
    return Solution(gram_CC, best_CR, value, bound, scale, iterations, is_certified, status, is_global=True)


def _gap_words(tolerance: float, gap: float) -> str:
    return f"the certified relative gap is {gap:.1e}, not the requested {tolerance:.0e}"


def _best_of_starts(risk: ClassRisk, related: Solution, columns: int, reason: str) -> Solution:
    """The best of the descents from the principal axes of a related optimum and from random factors."""
    smooth, _ = risk.smoothed(_FIXED_WIDTH)
    missing = max(0, columns - related.factor_CR.shape[1])
    axes_CR = torch.nn.functional.pad(related.factor_CR, (0, missing))[:, :columns]
    # The axes of the related optimum, turned a little off their symmetry, and some random factors.
    generator = torch.Generator().manual_seed(0)
    noise = [torch.randn(axes_CR.shape, generator=generator, dtype=torch.float64) for _ in range(_NUM_STARTS)]
    starts = [axes_CR + 1e-3 * noise[0], *noise[1:]]
    tries = [minimise_over_correlations(smooth, rank=columns, start=start) for start in starts]
    best = min(tries, key=lambda solution: solution.value)
    status = f"local optimum, the best of {len(tries)} starts: {reason}"
    iterations = related.iterations + sum(solution.iterations for solution in tries)
    value, bounds = risk.value(best.gram_CC), {"lower_bound": related.lower_bound, "scale": related.scale}
    return replace(best, value=value, **bounds, iterations=iterations, is_certified=False, status=status)


def _descend_nonnegative(risk: Callable[[Tensor], RiskAt], start_CR: np.ndarray) -> Tensor:
    """Descend over factors without negative entries, rows brought to unit length."""

    def unit(entries: np.ndarray) -> tuple[Tensor, Tensor]:
        factor_CR = torch.from_numpy(entries).view(start_CR.shape)
        length_C1 = factor_CR.norm(dim=1, keepdim=True).clamp_min(1e-12)
        return factor_CR / length_C1, length_C1

    def value_and_slope(entries: np.ndarray) -> tuple[float, np.ndarray]:
        factor_CR, length_C1 = unit(entries)
        at = risk(factor_CR @ factor_CR.T)
        # chain rule through v / |v|: the part along v drops out
        slope_CR = 2 * at.gradient_CC @ factor_CR
        slope_CR = (slope_CR - (slope_CR * factor_CR).sum(1, keepdim=True) * factor_CR) / length_C1
        return at.value, slope_CR.flatten().numpy()

    from scipy.optimize import minimize  # deferred: SciPy's optimisers take as long to load as the rest of the theory

    bounds = [(0.0, None)] * start_CR.size
    result = minimize(
        value_and_slope, start_CR.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14}
    )
    return unit(result.x)[0]
