"""The optimal geometry beside CVXPY, scipy and sums over all draws of negatives, on random problems."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from counterpoint import losses
from counterpoint.losses.loss import Loss
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry
from oracles import cvx_geometry
from oracles.cvx_geometry import LogSum, PairSum, Problem

NUM_PROBLEMS, NUM_FAST = 50, 20
AGREEMENT = 1e-6  # in risk; what interior-point solvers reach on exponential cones
ROUNDING = 1e-12
LARGEST_SIZE = {1: 12, 2: 8, 3: 5}  # classes, by number of negatives: CVXPY has a cone for each way to draw them
Pair = tuple[Loss | None, LogSum | PairSum]


def _mio(name: str, tau: float) -> Pair:
    """A version of MIO and the same from its paper, whose positives have cosine 1."""
    pull = {"MIOv1": math.log1p(math.exp(-1 / tau)), "MIOv2": -1 / tau, "MIOv3": -1 / tau}[name]
    return getattr(losses, name)(tau), PairSum("exp" if name == "MIOv3" else "logistic", 1 / tau, constant=pull)


def _sigmoid(t: float) -> Pair:
    """Scale t and bias -t/2."""
    loss = losses.SigmoidPair(t, -t / 2, learnable=False)
    return loss, PairSum("logistic", t, -t / 2, math.log1p(math.exp(-t / 2)), is_mean=False)


FAMILIES: dict[str, Callable[[float], Pair]] = {
    "paper": lambda tau: (None, LogSum()),
    "InfoNCE": lambda tau: (losses.InfoNCE(tau), LogSum(tau, is_mean=False)),
    "DCL": lambda tau: (losses.DCL(tau), LogSum(tau, epsilon=0.0, is_mean=False)),
    "MIOv1": lambda tau: _mio("MIOv1", tau),
    "MIOv2": lambda tau: _mio("MIOv2", tau),
    "MIOv3": lambda tau: _mio("MIOv3", tau),
    "Triplet": lambda tau: (losses.Triplet(1 + tau), PairSum("hinge", 1.0, tau, is_mean=False)),
    "SigmoidPair": lambda tau: _sigmoid(2 / tau),
    "Spectral": lambda tau: (losses.SpectralContrastive(tau), PairSum("square", tau, 0.0, -2 * tau)),
}
NOT_SMOOTH = ("Triplet",)


def family_of(seed: int) -> str:
    return list(FAMILIES)[seed % len(FAMILIES)]


def random_problem(seed: int) -> tuple[Loss | None, Problem]:
    """Loss and number of negatives run through their combinations; setting, size, shares, temperature are random."""
    rng = np.random.default_rng(seed)
    family = family_of(seed)
    k = (math.inf, 1, 2, 3)[(seed // len(FAMILIES) + seed) % 4]
    size = int(rng.integers(2, LARGEST_SIZE.get(int(min(k, 9)), 12) + 1))
    proportions = 0.02 / size + 0.98 * rng.dirichlet(np.full(size, rng.choice([0.7, 2.0, 10.0])))
    loss, psi = FAMILIES[family](float(np.exp(rng.uniform(math.log(0.15), math.log(2.0)))))
    return loss, Problem(tuple(proportions / proportions.sum()), psi, k, supervised=bool(rng.integers(2)))


def ours(loss: Loss | None, problem: Problem) -> Geometry:
    return optimal_geometry(
        problem.proportions, loss=loss, num_negatives=problem.num_negatives, supervised=problem.supervised
    )


PROBLEMS = [
    pytest.param(seed, marks=[] if seed < NUM_FAST else pytest.mark.slow, id=f"{seed}-{family_of(seed)}")
    for seed in range(NUM_PROBLEMS)
]


@pytest.mark.parametrize("seed", PROBLEMS)
@pytest.mark.sampled(5)
def test_agrees_with_cvxpy(seed: int) -> None:
    pytest.importorskip("cvxpy", reason="cvxpy is not installed")
    loss, problem = random_problem(seed)
    found, peer = ours(loss, problem), cvx_geometry.solve_cvxpy(problem)
    scale = max(1.0, abs(peer.risk))
    own_tolerance = abs(peer.value - peer.dual_value) + abs(peer.value - peer.risk)
    assert abs(found.risk - peer.risk) <= AGREEMENT * scale, (problem, peer.status)
    # A feasible matrix is no better than the certificate says, and ours is no worse than theirs.
    assert found.lower_bound <= peer.risk + ROUNDING * scale
    assert found.lower_bound <= peer.value + own_tolerance
    assert found.risk <= peer.risk + 1e-8 * scale
    assert found.is_certified or family_of(seed) in NOT_SMOOTH
    assert cvx_geometry.risk(problem, found.gram.numpy()) == pytest.approx(found.risk, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("seed", range(8))
def test_no_descent_over_class_means_does_better(seed: int, rng: np.random.Generator) -> None:
    loss, problem = random_problem(seed)
    found, peer = ours(loss, problem), cvx_geometry.solve_by_descent(problem, rng, starts=2)
    scale = max(1.0, abs(peer.risk))
    assert found.lower_bound <= peer.risk + ROUNDING * scale
    assert found.risk <= peer.risk + 1e-8 * scale
    assert family_of(seed) in NOT_SMOOTH or abs(found.risk - peer.risk) <= AGREEMENT * scale


def test_cvxpy_finds_a_lower_risk_where_ours_is_spoilt() -> None:
    """The comparison can fail: a geometry 0.02 off the optimum is told from it."""
    problem = Problem((0.5, 0.25, 0.25))
    found = ours(None, problem)
    spoilt = found.gram + 0.02 * (torch.ones(3, 3, dtype=torch.float64) - torch.eye(3, dtype=torch.float64))
    assert cvx_geometry.risk(problem, cvx_geometry.made_feasible(spoilt.numpy())) > found.risk + 10 * AGREEMENT


@pytest.mark.parametrize("supervised", [False, True], ids=["UCL", "SCL"])
def test_oracle_sums_agree(supervised: bool, rng: np.random.Generator) -> None:
    for psi in (LogSum(0.3), LogSum(0.5, 0.0, is_mean=False), PairSum("hinge", 1.0, 0.2, is_mean=False)):
        problem = Problem((0.5, 0.3, 0.2), psi, 4, supervised)
        gram = cvx_geometry.random_gram(rng, 3)
        assert cvx_geometry.risk(problem, gram) == pytest.approx(cvx_geometry.enumerated_risk(problem, gram), rel=1e-12)
