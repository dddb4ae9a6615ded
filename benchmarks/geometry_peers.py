"""The optimal geometry by CVXPY and by scipy, and its risk in numpy: one quadrature for finitely many negatives.

The problem is that of imbalanced2026, Eq. 10, 14, 15 and 23: InfoNCE with the mean over k negatives at temperature 1,
minimised over correlation matrices. With k infinite CVXPY has a row of log-sum-exp per class. With k finite its risk
needs a term for each way to draw k negatives; scipy minimises it through the integral
E log(1 + x) = int_0^inf (1 - E e^(-s x)) e^-s / s ds, whose k-fold expectation is a k-th power.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp

from counterpoint.theory.geometry.class_risk import class_risk
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry

Array = NDArray[np.float64]
OURS = "counterpoint"
STEP = 0.25  # of log s: the trapezoidal rule then errs by e^(-pi^2 / STEP)
LOG_NODES = np.arange(-37.0, 4.0, STEP)  # below, the integrand is under 1e-16; above, e^-s is


@dataclass(frozen=True)
class Task:
    """Proportions 1/rank; k negatives, of other classes (supervised) or of all; the relative gap asked for."""

    num_classes: int
    num_negatives: float = math.inf
    supervised: bool = False
    tolerance: float = 1e-8

    @property
    def title(self) -> str:
        setting, k = ("SCL" if self.supervised else "UCL"), self.num_negatives
        return f"{setting}, k = {'infinity' if math.isinf(k) else int(k)}, C = {self.num_classes}"

    @property
    def proportions(self) -> Array:
        weights = 1.0 / np.arange(1, self.num_classes + 1)
        return weights / weights.sum()

    @property
    def shares(self) -> Array:
        """Probability that a negative of class i (row) is of class j."""
        share_CC = np.tile(self.proportions, (self.num_classes, 1))
        if self.supervised:
            np.fill_diagonal(share_CC, 0.0)
            share_CC /= share_CC.sum(1, keepdims=True)
        return share_CC


@dataclass(frozen=True)
class Solved:
    """A correlation matrix, the gap its solver claims (nan: none) and what it says of itself."""

    gram: Array
    own_gap: float = math.nan
    lower_bound: float = -math.inf
    status: str = ""


Solver = Callable[[Task], Solved]


# --- the risk, in numpy


def risk_and_gradient(task: Task, gram: Array) -> tuple[float, Array]:
    """S(A) and its derivative for each entry, the matrix taken as not symmetric; zero on the diagonal."""
    rows = _infinite if math.isinf(task.num_negatives) else _finite
    value_C, slope_CC = rows(gram, task.shares, task.num_negatives)
    slope_CC = task.proportions[:, None] * slope_CC
    np.fill_diagonal(slope_CC, 0.0)
    return float(task.proportions @ value_C), slope_CC


def dual_bound(task: Task, gram: Array) -> float:
    """A lower bound of the least risk: S(A) - <G, A> - sum y with y = -(G A)_ii, raised until G + diag(y) >= 0."""
    value, slope = risk_and_gradient(task, gram)
    G = (slope + slope.T) / 2
    y = -(G * gram).sum(1)
    y += max(0.0, -np.linalg.eigvalsh(G + np.diag(y))[0])
    return value - float((G * gram).sum() + y.sum())


def _infinite(gram: Array, share_CC: Array, k: float) -> tuple[Array, Array]:
    """Rows log(1 + sum_j r_ij e^(a_ij - 1)) and their slopes."""
    with np.errstate(divide="ignore"):
        exponent_CC = gram - 1 + np.log(share_CC)
    value_C = np.logaddexp(0, logsumexp(exponent_CC, axis=1))
    return value_C, np.exp(exponent_CC - value_C[:, None])


def _finite(gram: Array, share_CC: Array, k: float) -> tuple[Array, Array]:
    """Rows E log(1 + mean of k) and their slopes, by the trapezoidal rule in log s."""
    x_CC = np.exp(gram - 1)
    value_C, slope_CC = np.zeros(len(gram)), np.zeros_like(gram)
    for s in np.exp(LOG_NODES):
        less_CC = np.expm1(-s / k * x_CC)
        log_phi_C = np.log1p((share_CC * less_CC).sum(1))
        weight = STEP * math.exp(-s)
        value_C -= weight * np.expm1(k * log_phi_C)
        slope_CC += (weight * s * np.exp((k - 1) * log_phi_C))[:, None] * (less_CC + 1)
    return value_C, share_CC * x_CC * slope_CC


# --- solvers


def solve_ours(task: Task) -> Solved:
    """Solve by ``optimal_geometry``."""
    geometry = optimal_geometry(
        torch.from_numpy(task.proportions),
        num_negatives=task.num_negatives,
        supervised=task.supervised,
        tolerance=task.tolerance,
    )
    return Solved(geometry.gram.numpy(), geometry.duality_gap, geometry.lower_bound, geometry.status)


def solve_scipy(task: Task) -> Solved:
    """Minimise by L-BFGS over C - 1 coordinates of each class mean, whose directions count; knows no gap."""
    size, rank = task.num_classes, task.num_classes - 1

    def value_and_slope(flat: Array) -> tuple[float, Array]:
        rows = flat.reshape(size, rank)
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        unit = rows / length
        value, slope = risk_and_gradient(task, unit @ unit.T)
        pull = (slope + slope.T) @ unit
        return value, ((pull - (pull * unit).sum(1, keepdims=True) * unit) / length).ravel()

    start = np.random.default_rng(0).standard_normal(size * rank)
    limits = {"maxiter": 100_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-10}
    result = minimize(value_and_slope, start, jac=True, method="L-BFGS-B", options=limits)
    return Solved(_gram_of(result.x.reshape(size, rank)), status=f"{result.nit} iterations")


def solve_clarabel(task: Task) -> Solved:
    """Solve by CVXPY with an interior-point method."""
    return _solve_cvxpy(task, "CLARABEL", {f"tol_{kind}": task.tolerance for kind in ("gap_abs", "gap_rel", "feas")})


def solve_scs(task: Task) -> Solved:
    """Solve by CVXPY with a splitting method."""
    options = {"eps_abs": task.tolerance, "eps_rel": task.tolerance, "max_iters": 1_000_000}
    return _solve_cvxpy(task, "SCS", options)


SOLVERS: Mapping[str, Solver] = {
    OURS: solve_ours,
    "cvxpy, Clarabel": solve_clarabel,
    "cvxpy, SCS": solve_scs,
    "scipy, L-BFGS": solve_scipy,
}


def why_not(task: Task, name: str) -> str:
    """Reason to leave a solver out unseen, or nothing."""
    if not name.startswith("cvxpy") or math.isinf(task.num_negatives):
        return ""
    k, drawn = int(task.num_negatives), task.num_classes - task.supervised
    count = task.num_classes * math.comb(k + drawn - 1, drawn - 1)
    terms = f"1e{len(str(count)) - 1} terms or more"
    return f"left out: its risk would be a sum of {terms}, one for each way to draw {k} negatives"


def risks_at(task: Task, gram: Array) -> dict[str, float]:
    """The risk of one matrix as each side computes it."""
    share_C = torch.from_numpy(task.proportions)
    ours = class_risk(share_C, num_negatives=task.num_negatives, supervised=task.supervised)
    risks = {OURS: ours.value(torch.from_numpy(gram)), "scipy, L-BFGS": risk_and_gradient(task, gram)[0]}
    if math.isinf(task.num_negatives):
        program, variable = _program(task)
        variable.value = gram
        risks["cvxpy"] = float(program.objective.value)
    return risks


def random_gram(task: Task, seed: int) -> Array:
    """Cosines of random vectors."""
    return _gram_of(np.random.default_rng(seed).standard_normal((task.num_classes, task.num_classes)))


def _program(task: Task) -> tuple[Any, Any]:
    """The convex program for infinitely many negatives, and its matrix."""
    import cvxpy as cp  # deferred: a peer that may be missing

    size, share_CC = task.num_classes, task.shares
    A = cp.Variable((size, size), PSD=True)
    columns = [np.zeros((size, 1)), A - 1 + np.log(np.maximum(share_CC, 1e-30))]
    objective = task.proportions @ cp.log_sum_exp(cp.hstack(columns), axis=1)
    return cp.Problem(cp.Minimize(objective), [cp.diag(A) == 1]), A


def _solve_cvxpy(task: Task, solver: str, options: dict[str, float]) -> Solved:
    """Solve, then make the matrix exactly feasible: eigenvalues >= 0, unit diagonal."""
    program, variable = _program(task)
    data, chain, inverse = program.get_problem_data(solver, solver_opts=options)
    raw = chain.solve_via_data(program, data, solver_opts=options)
    program.unpack_results(raw, chain, inverse)
    info = raw["info"] if isinstance(raw, dict) else {"pobj": raw.obj_val, "dobj": raw.obj_val_dual}
    values, vectors = np.linalg.eigh(variable.value)
    status = f"{program.status}, {program.solver_stats.num_iters} iterations"
    return Solved(_gram_of(vectors * np.sqrt(np.maximum(values, 0))), abs(info["pobj"] - info["dobj"]), status=status)


def _gram_of(rows: Array) -> Array:
    """Cosines of the rows."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    gram = unit @ unit.T
    np.fill_diagonal(gram, 1.0)
    return gram
