"""The optimal geometry as imbalanced2026 states it: the risk by sums over negatives, CVXPY and scipy as solvers.

Given class proportions lambda, Eq. 14 is S(A) = sum_i lambda_i E psi(a_{i j_1} - 1, ..., a_{i j_k} - 1), the classes
j_t drawn independently with probabilities r_ij: lambda_j, or lambda_j / (1 - lambda_i) for j != i (appendix A.18). It
is minimised over matrices A that are positive semidefinite with unit diagonal (Eq. 13, 15). Sums over k draws are
written out twice: over all C^k of them (``enumerated_risk``), and over how often each class occurs (``risk``). Works on
numpy arrays in float64.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp

from oracles.collapse_oracle import counts

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
ABSENT = -60.0  # stands for a logarithm of zero inside a solver: e^-60 is below every tolerance


@dataclass(frozen=True)
class LogSum:
    """psi(t) = log(epsilon + w sum_t e^(t / temperature)), w = 1/k for a mean (Eq. 23) and 1 for a sum."""

    temperature: float = 1.0
    epsilon: float = 1.0
    is_mean: bool = True


@dataclass(frozen=True)
class PairSum:
    """psi = constant + w sum_t q(scale a_t + shift), a_t cosines; q: ``logistic``, ``hinge``, ``square`` or ``exp``."""

    shape: str
    scale: float = 1.0
    shift: float = 0.0
    constant: float = 0.0
    is_mean: bool = True


@dataclass(frozen=True)
class Problem:
    """Class proportions, what a loss makes of k cosines, k (whole, or math.inf for the limit), who is a negative."""

    proportions: tuple[float, ...]
    loss: LogSum | PairSum = LogSum()
    num_negatives: float = math.inf
    supervised: bool = False

    @property
    def num_classes(self) -> int:
        return len(self.proportions)


@dataclass(frozen=True)
class Terms:
    """S(A) = sum_t probability_t f_t with f_t = log(epsilon + sum_m weight_tm e^((a - 1) / tau)) or q(scale a + shift).

    ``anchor_T`` and ``class_TM`` say which entries of A a term reads.
    """

    anchor_T: Indices
    class_TM: Indices
    log_weight_TM: Array
    probability_T: Array


@dataclass(frozen=True)
class Answer:
    """What a solver found: its own objective and dual objective, its matrix made feasible, and the risk of that."""

    value: float
    dual_value: float
    gram: Array
    risk: float
    status: str


# --- the risk


def negative_shares(problem: Problem) -> Array:
    """r_ij: lambda_j (UCL), or lambda_j / (1 - lambda_i) away from the diagonal (SCL)."""
    share_CC = np.tile(np.asarray(problem.proportions, float), (problem.num_classes, 1))
    if problem.supervised:
        np.fill_diagonal(share_CC, 0.0)
        share_CC /= share_CC.sum(1, keepdims=True)
    return share_CC


def pair_function(shape: str) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """q and its derivative; the hinge has slope 0 at its corner."""
    return {
        "logistic": (lambda u: np.logaddexp(0, u), lambda u: 1 / (1 + np.exp(-u))),
        "hinge": (lambda u: np.maximum(u, 0), lambda u: (u > 0).astype(float)),
        "square": (lambda u: u**2, lambda u: 2 * u),
        "exp": (np.exp, np.exp),
    }[shape]


def enumerated_risk(problem: Problem, gram: Array) -> float:
    """Eq. 14 term by term: all C^k draws of negatives of each anchor."""
    shares, size, k = negative_shares(problem), problem.num_classes, int(problem.num_negatives)
    total = 0.0
    for i, weight in enumerate(problem.proportions):
        for draw in itertools.product(range(size), repeat=k):
            probability = math.prod(shares[i, j] for j in draw)
            total += weight * probability * _psi(problem.loss, [gram[i, j] for j in draw])
    return total


def risk(problem: Problem, gram: Array) -> float:
    """S(A); for k = inf and a sum over negatives, the limit of S - log k (a logarithm of it) or of S / k."""
    return _risk_and_slope(problem, terms(problem), gram)[0]


def gradient(problem: Problem, gram: Array) -> Array:
    """G with S(A + D) = S + sum_ij G_ij D_ij + ... for symmetric D of zero diagonal; G symmetric, zero diagonal."""
    slope = _risk_and_slope(problem, terms(problem), gram)[1]
    slope = (slope + slope.T) / 2
    np.fill_diagonal(slope, 0.0)
    return slope


def terms(problem: Problem) -> Terms:
    """The sum over draws of negatives, as a sum over how often each class occurs among them."""
    shares, blocks = negative_shares(problem), []
    for i, weight in enumerate(problem.proportions):
        drawn_J = np.flatnonzero(shares[i])
        row = _pair_row if isinstance(problem.loss, PairSum) else _log_sum_row
        class_TM, log_weight_TM, probability_T = row(problem, drawn_J, shares[i, drawn_J])
        blocks.append((np.full(len(class_TM), i), class_TM, log_weight_TM, weight * probability_T))
    return Terms(*(np.concatenate(arrays) for arrays in zip(*blocks, strict=True)))


def dual_bound(problem: Problem, gram: Array) -> float:
    """A number that no correlation matrix has its risk below, from convexity alone.

    S(B) >= S(A) + <G, B - A>, and <G, B> >= -sum y for any y with G + diag(y) positive semidefinite, since B has unit
    diagonal. Taken here: y_i = -(G A)_ii, the multiplier at an optimum, raised until the matrix is semidefinite.
    """
    G = gradient(problem, gram)
    y = -(G * gram).sum(1)
    y += max(0.0, -np.linalg.eigvalsh(G + np.diag(y))[0])
    return risk(problem, gram) - float((G * gram).sum()) - float(y.sum())


def random_gram(rng: np.random.Generator, size: int, rank: int | None = None) -> Array:
    """A correlation matrix of random unit vectors."""
    return _gram_of(rng.standard_normal((size, rank or size)))


def made_feasible(matrix: Array) -> Array:
    """The matrix with negative eigenvalues raised to 0 and rows scaled to unit diagonal: exactly feasible."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return _gram_of(vectors * np.sqrt(np.maximum(values, 0.0)))


# --- solvers


def solve_cvxpy(problem: Problem, solver: str = "CLARABEL") -> Answer:
    """The convex program of Eq. 15 by an interior-point (CLARABEL) or a splitting method (SCS), at tight tolerances."""
    import cvxpy as cp  # deferred: the test that has no cvxpy skips

    options = {
        "CLARABEL": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
        "SCS": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 100_000},
    }
    size, parts = problem.num_classes, terms(problem)
    A = cp.Variable((size, size), PSD=True)
    read = _entry_selector(parts, size) @ cp.vec(A, order="C")
    entry_TM = cp.reshape(read, parts.class_TM.shape, order="C")
    if isinstance(problem.loss, LogSum):
        exponent_TM = (entry_TM - 1) / problem.loss.temperature + np.maximum(parts.log_weight_TM, ABSENT)
        if _offset(problem) > 0:
            exponent_TM = cp.hstack([np.full((len(parts.anchor_T), 1), math.log(_offset(problem))), exponent_TM])
        objective = parts.probability_T @ cp.log_sum_exp(exponent_TM, axis=1)
    else:
        atom = {"logistic": cp.logistic, "hinge": cp.pos, "square": cp.square, "exp": cp.exp}[problem.loss.shape]
        factor, constant = _factor_and_constant(problem)
        pair_T = atom(problem.loss.scale * entry_TM[:, 0] + problem.loss.shift)
        objective = constant + factor * (parts.probability_T @ pair_T)
    program = cp.Problem(cp.Minimize(objective), [cp.diag(A) == 1])
    data, chain, inverse = program.get_problem_data(solver, solver_opts=options[solver])
    assert chain is not None
    raw = chain.solve_via_data(program, data, verbose=False, solver_opts=options[solver])
    program.unpack_results(raw, chain, inverse)
    gram, value = made_feasible(np.asarray(A.value)), float(np.real(program.value))  # pyright: ignore
    return Answer(value, value - _own_gap(raw), gram, risk(problem, gram), program.status)


def solve_by_descent(problem: Problem, rng: np.random.Generator, *, rank: int | None = None, starts: int = 3) -> Answer:
    """The best of some runs of scipy's L-BFGS over vectors whose directions are the class means; no certificate."""
    size, parts = problem.num_classes, terms(problem)
    rank = rank or size

    def value_and_slope(flat: Array) -> tuple[float, Array]:
        rows = flat.reshape(size, rank)
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        unit = rows / length
        value, slope = _risk_and_slope(problem, parts, unit @ unit.T)
        np.fill_diagonal(slope, 0.0)
        pull = (slope + slope.T) @ unit
        return value, ((pull - (pull * unit).sum(1, keepdims=True) * unit) / length).ravel()

    limits = {"maxiter": 5000, "maxfun": 10000, "ftol": 1e-16, "gtol": 1e-11}
    points = [rng.standard_normal(size * rank) for _ in range(starts)]
    found = [minimize(value_and_slope, point, jac=True, method="L-BFGS-B", options=limits) for point in points]
    best = min(found, key=lambda result: result.fun)
    gram = _gram_of(best.x.reshape(size, rank))
    return Answer(float(best.fun), -math.inf, gram, risk(problem, gram), str(best.message))


# --- parts


def _psi(loss: LogSum | PairSum, cosines: list[float]) -> float:
    """The loss of an anchor whose positive has cosine 1."""
    if isinstance(loss, LogSum):
        total = sum(math.exp((a - 1) / loss.temperature) for a in cosines)
        return math.log(loss.epsilon + (total / len(cosines) if loss.is_mean else total))
    value, _ = pair_function(loss.shape)
    total = sum(float(value(np.array(loss.scale * a + loss.shift))) for a in cosines)
    return loss.constant + (total / len(cosines) if loss.is_mean else total)


def _pair_row(problem: Problem, drawn_J: Indices, share_J: Array) -> tuple[Indices, Array, Array]:
    """Classes, logarithms of their weights and probability of each term of one anchor: a term is a class."""
    return drawn_J[:, None], np.zeros((len(drawn_J), 1)), share_J


def _log_sum_row(problem: Problem, drawn_J: Indices, share_J: Array) -> tuple[Indices, Array, Array]:
    """The same for a logarithm of a sum: a term is a way to draw k negatives, or the limit of all of them."""
    assert isinstance(problem.loss, LogSum)
    if math.isinf(problem.num_negatives):
        return drawn_J[None], np.log(share_J)[None], np.ones(1)
    k = int(problem.num_negatives)
    count_TJ = np.array(list(counts(k, len(drawn_J))))
    log_probability_T = gammaln(k + 1) + (count_TJ * np.log(share_J) - gammaln(count_TJ + 1)).sum(1)
    present_TM = np.argsort(-count_TJ, axis=1, kind="stable")[:, : min(k, len(drawn_J))]
    with np.errstate(divide="ignore"):
        log_count_TM = np.log(np.take_along_axis(count_TJ, present_TM, axis=1))
    return drawn_J[present_TM], log_count_TM - math.log(k if problem.loss.is_mean else 1), np.exp(log_probability_T)


def _factor_and_constant(problem: Problem) -> tuple[float, float]:
    """Of the mean over pairs: k times for a sum, which drops the constant where k is infinite (the limit of S / k)."""
    assert isinstance(problem.loss, PairSum)
    if problem.loss.is_mean:
        return 1.0, problem.loss.constant
    return (1.0, 0.0) if math.isinf(problem.num_negatives) else (problem.num_negatives, problem.loss.constant)


def _risk_and_slope(problem: Problem, parts: Terms, gram: Array) -> tuple[float, Array]:
    """S and its derivative for each entry, the matrix taken as not symmetric."""
    entry_TM = gram[parts.anchor_T[:, None], parts.class_TM]
    slope = np.zeros_like(gram)
    if isinstance(problem.loss, LogSum):
        exponent_TM = (entry_TM - 1) / problem.loss.temperature + parts.log_weight_TM
        log_sum_T, epsilon = logsumexp(exponent_TM, axis=1), _offset(problem)
        if epsilon > 0:
            log_sum_T = np.logaddexp(math.log(epsilon), log_sum_T)
        slope_TM = np.exp(exponent_TM - log_sum_T[:, None]) / problem.loss.temperature
        value_T, factor, constant = log_sum_T, 1.0, 0.0
    else:
        q, q_slope = pair_function(problem.loss.shape)
        score_TM = problem.loss.scale * entry_TM + problem.loss.shift
        factor, constant = _factor_and_constant(problem)
        value_T, slope_TM = q(score_TM)[:, 0], factor * problem.loss.scale * q_slope(score_TM)
    np.add.at(slope, (parts.anchor_T[:, None], parts.class_TM), parts.probability_T[:, None] * slope_TM)
    return constant + factor * float(parts.probability_T @ value_T), slope


def _gram_of(rows: Array) -> Array:
    """Cosines of the rows, the diagonal exactly 1."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    gram = unit @ unit.T
    np.fill_diagonal(gram, 1.0)
    return gram


def _offset(problem: Problem) -> float:
    """Epsilon; none in the limit of a sum over infinitely many negatives, beside which it vanishes."""
    assert isinstance(problem.loss, LogSum)
    is_limit_of_sum = math.isinf(problem.num_negatives) and not problem.loss.is_mean
    return 0.0 if is_limit_of_sum else problem.loss.epsilon


def _own_gap(raw: Any) -> float:
    """Primal less dual objective, as SCS (a dictionary) or Clarabel (a record) reports them."""
    if isinstance(raw, dict):
        return float(raw["info"]["pobj"] - raw["info"]["dobj"])
    return float(raw.obj_val - raw.obj_val_dual)


def _entry_selector(parts: Terms, size: int) -> csr_array:
    """Matrix (T M, C C) of zeros and ones that picks the entries of a matrix which the terms read, row after row."""
    column = (parts.anchor_T[:, None] * size + parts.class_TM).ravel()
    place = (np.ones(len(column)), (np.arange(len(column)), column))
    return csr_array(place, shape=(len(column), size * size))
