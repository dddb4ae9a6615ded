"""Theorem 2: the importance of an exponential loss solves its convex problem, among all feasible alphas."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint import losses
from counterpoint.losses import PairLoss
from counterpoint.losses.alpha_rules import Entropy
from oracles import alphacl_theory_oracle as oracle
from oracles.number_checks import assert_numbers
from reproductions.alphacl2022.importance_problem import ImportanceProblem, importance_problem
from tolerances import assert_close

seeds = st.integers(0, 2**31)
EXPONENTIAL: dict[str, Callable[..., PairLoss]] = {
    "infonce": losses.InfoNCE,
    "dcl": losses.DCL,
    "mine": losses.MINE,
    "soft-triplet": lambda **kwargs: losses.SoftTriplet(0.7, 0.4, **kwargs),
    "tuplet": losses.NPlusOneTuplet,
    "lifted": losses.LiftedStructured,
}


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def anchors_of(loss: PairLoss, z0: Tensor, z1: Tensor, problem: ImportanceProblem) -> Tensor:
    return loss.importance(z0, z1)[: len(problem.mass_A)]


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(EXPONENTIAL)),
    negatives=st.sampled_from(["two-view", "same-view", "cross-view"]),
    normalize=st.booleans(),
    seed=seeds,
    n=st.integers(2, 6),
)
def test_theorem_2_alpha_solves_its_problem(name: str, negatives: str, normalize: bool, seed: int, n: int) -> None:
    loss = EXPONENTIAL[name](negatives=negatives, normalize=normalize)
    z0, z1 = draw(seed, 2, n, 3)
    problem = importance_problem(loss, z0, z1)
    alpha = anchors_of(loss, z0, z1, problem)
    assert_close(alpha, problem.solution())
    scale = max(1.0, abs(problem.minimum()))
    assert abs(problem.gap(alpha)) <= 1e-12 * scale
    assert abs(problem.objective(alpha) - problem.minimum()) <= 1e-12 * scale
    assert problem.stationarity(alpha) <= 1e-10 * max(
        1.0, float(problem.cost_AV[problem.cost_AV < math.inf].abs().max())
    )


@settings(max_examples=60)
@given(seed=seeds, n=st.integers(3, 6), size=st.floats(1e-3, 3.0))
def test_every_other_feasible_alpha_costs_more_by_its_gap(seed: int, n: int, size: float) -> None:
    loss = losses.InfoNCE(0.5, 1.0)
    z0, z1 = draw(seed, 2, n, 3)
    problem = importance_problem(loss, z0, z1)
    solution = problem.solution()
    moved = solution * torch.exp(size * draw(seed + 1, *solution.shape))
    moved = moved * (problem.mass_A / moved.sum(1))[:, None]
    excess = problem.objective(moved) - problem.minimum()
    assert excess > 0
    assert problem.stationarity(moved) > 0
    assert problem.gap(moved) == pytest.approx(excess, rel=1e-6, abs=1e-10)  # the excess is a difference


def test_sparse_alphas_are_feasible_and_worse() -> None:
    problem = importance_problem(losses.DCL(0.5), *draw(2, 2, 4, 3))
    one_pair = torch.zeros_like(problem.cost_AV)
    one_pair[torch.arange(8), problem.cost_AV.argmin(dim=1)] = problem.mass_A
    assert problem.objective(one_pair) - problem.minimum() == pytest.approx(problem.gap(one_pair), rel=1e-12)
    assert problem.gap(one_pair) > 0


def test_problem_and_objective_are_the_papers_by_loops() -> None:
    """The paper's pairing and InfoNCE; our phi lacks its factor tau, which scales the mass."""
    tau, epsilon = 0.7, 0.3
    z = draw(3, 2, 5, 3)
    loss = losses.InfoNCE(tau, epsilon, "same-view", False, anchors="first", reduction="sum")
    problem = importance_problem(loss, z[0], z[1])
    phi, psi = oracle.nce(tau, epsilon)
    rows = (z[0].numpy(), z[1].numpy())
    xi = [complex(oracle.pair_sum(*rows, i, psi)).real for i in range(5)]
    assert_numbers(tau * problem.mass_A, [x * oracle.slope(phi, x) / tau for x in xi])  # Eq. 7
    assert_numbers(tau * problem.mass_A, [x / (x + epsilon) for x in xi])
    alpha = problem.solution()
    expected = oracle.entropy_objective(alpha.numpy(), problem.cost_AV.numpy(), tau)
    assert problem.objective(alpha) == pytest.approx(expected, rel=1e-12)
    assert_numbers(tau * alpha[:, :5], oracle.importance(*rows, phi, psi))


def test_erratum_rows_sum_to_one_only_without_epsilon() -> None:
    """Section 6 puts every row's sum at 1; InfoNCE with the positive in the denominator is not in that set."""
    z0, z1 = draw(4, 2, 5, 3)
    loss = losses.InfoNCE(1.0, 1.0)  # tau 1: our phi is the paper's
    problem = importance_problem(loss, z0, z1)
    alpha = loss.importance(z0, z1)
    section_6 = ImportanceProblem(problem.cost_AV, torch.ones_like(problem.mass_A), 1.0)
    with pytest.raises(ValueError, match="must sum to"):
        section_6.gap(alpha)
    assert float((section_6.solution() - alpha).abs().max()) > 0.01
    decoupled = importance_problem(losses.InfoNCE(1.0, 0.0), z0, z1)
    assert_close(decoupled.mass_A, torch.ones(10, dtype=torch.float64))


def test_the_entropy_rule_of_alpha_cl_solves_the_same_problem() -> None:
    """Its alpha is tau times InfoNCE's: the paper's phi, with the factor tau."""
    z0, z1 = draw(5, 2, 5, 3)
    problem = importance_problem(losses.InfoNCE(0.5, 1.0), z0, z1)
    own_A = -problem.cost_AV.diagonal()  # c_ii = -d_i^2; such entries are left out, hence infinite
    assert torch.isinf(own_A).all()
    z = torch.nn.functional.normalize(torch.cat([z0, z1]), dim=1)
    own_A = 0.5 * (z - z.roll(5, 0)).square().sum(1)
    alpha = Entropy(0.5, epsilon=1.0)(problem.cost_AV + own_A[:, None], own_A)
    assert_close(alpha, 0.5 * problem.solution())


def test_a_dead_row_has_no_mass() -> None:
    """Far apart samples: the lifted structured loss is at 0, with slope 0."""
    z = 10 * torch.eye(3).double()
    loss = losses.LiftedStructured(normalize=False)
    problem = importance_problem(loss, z, z)
    assert not problem.mass_A.any()
    assert problem.gap(loss.importance(z, z)) == problem.minimum() == problem.stationarity(problem.solution()) == 0.0


def test_bad_input_is_refused_in_words() -> None:
    z0, z1 = draw(6, 2, 3, 2)
    with pytest.raises(ValueError, match=r"Theorem 2 needs psi\(x\) = exp"):
        importance_problem(losses.Triplet(), z0, z1)
    with pytest.raises(TypeError, match="got AlphaCL"):
        importance_problem(losses.AlphaCL(), z0, z1)  # type: ignore[arg-type]
    problem = importance_problem(losses.InfoNCE(), z0, z1)
    with pytest.raises(ValueError, match="alpha must be >= 0"):
        problem.gap(-problem.solution())
    with pytest.raises(ValueError, match="alpha must have shape"):
        problem.gap(problem.solution()[:2])
    with pytest.raises(ValueError, match="temperature must be > 0"):
        ImportanceProblem(problem.cost_AV, problem.mass_A, 0.0)
    with pytest.raises(ValueError, match="finite cost"):
        ImportanceProblem(torch.full((1, 2), math.inf), torch.ones(1), 1.0)
    with pytest.raises(ValueError, match="mass of a row"):
        ImportanceProblem(torch.ones(1, 2), -torch.ones(1), 1.0)
    with pytest.raises(ValueError, match="one number per row"):
        ImportanceProblem(torch.ones(1, 2), torch.ones(2), 1.0)
