"""The solver on risks whose answers are known, and its certificate against matrices that had no part in it."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint import losses
from counterpoint.core.errors import UsageError
from counterpoint.kernels.contract import HINGE
from counterpoint.losses.pairs import LINEAR, Psi
from counterpoint.theory.geometry.class_risk import class_risk
from counterpoint.theory.geometry.correlation_dual import certify, finish_on_face
from counterpoint.theory.geometry.correlation_solver import descend, minimise_over_correlations, point_at, simplex
from counterpoint.theory.geometry.geometry_cases import coinciding, merge_what_coincides
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry
from counterpoint.theory.geometry.risk_rows import RiskAt


@dataclass(frozen=True)
class Quadratic:
    """Half the weighted squared distance from a symmetric matrix: the nearest correlation matrix is known for some."""

    target_CC: Tensor
    weight: float = 1.0

    @property
    def num_classes(self) -> int:
        return len(self.target_CC)

    def at(self, gram_CC: Tensor) -> RiskAt:
        apart_CC = (gram_CC - self.target_CC).fill_diagonal_(0.0)
        ones_CC = torch.ones_like(apart_CC).fill_diagonal_(0.0)
        return RiskAt(
            0.5 * self.weight * float(apart_CC.square().sum()),
            self.weight * apart_CC,
            lambda change_CC: self.weight * ones_CC * change_CC,
            self.weight * ones_CC,
            torch.zeros(len(gram_CC), dtype=torch.float64),
        )


@dataclass(frozen=True)
class Linear:
    """<G, A>: a maximum cut relaxed."""

    slope_CC: Tensor

    @property
    def num_classes(self) -> int:
        return len(self.slope_CC)

    def at(self, gram_CC: Tensor) -> RiskAt:
        zeros_CC = torch.zeros_like(self.slope_CC)
        return RiskAt(float((self.slope_CC * gram_CC).sum()), self.slope_CC, lambda _: zeros_CC, zeros_CC, zeros_CC[0])


def random_correlation(size: int, seed: int, rank: int | None = None) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(size, rank or size, generator=generator, dtype=torch.float64)
    factor = factor / factor.norm(dim=1, keepdim=True)
    return factor @ factor.T


def proportions(size: int, seed: int, spread: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(spread * torch.randn(size, generator=generator, dtype=torch.float64), dim=0)


@given(seed=st.integers(0, 10**6), size=st.integers(2, 7), rank=st.integers(1, 7))
@settings(max_examples=8, deadline=None)
@pytest.mark.thorough
def test_a_correlation_matrix_is_nearest_to_itself(seed: int, size: int, rank: int) -> None:
    target = random_correlation(size, seed, min(rank, size))
    solution = minimise_over_correlations(Quadratic(target))
    assert solution.value <= 1e-12
    torch.testing.assert_close(solution.gram_CC, target, rtol=0, atol=1e-5)


def test_the_nearest_correlation_matrix_of_higham() -> None:
    # Higham (2002), IMA Journal of Numerical Analysis 22, section 4: the tridiagonal example of size 3.
    target = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
    solution = minimise_over_correlations(Quadratic(target), tolerance=1e-10)
    known = torch.tensor([[1, 0.7607, 0.1573], [0.7607, 1, 0.7607], [0.1573, 0.7607, 1]], dtype=torch.float64)
    assert solution.is_certified
    torch.testing.assert_close(solution.gram_CC, known, rtol=0, atol=5e-5)


def test_a_linear_risk_is_the_relaxed_maximum_cut_of_a_pentagon() -> None:
    # Goemans and Williamson (1995): the relaxation of the 5-cycle has neighbours at 4 pi / 5.
    ring = torch.zeros(5, 5, dtype=torch.float64)
    for node in range(5):
        ring[node, (node + 1) % 5] = ring[(node + 1) % 5, node] = 0.5
    solution = minimise_over_correlations(Linear(ring))
    assert solution.is_certified
    assert abs(solution.value - 5 * math.cos(4 * math.pi / 5)) < 1e-7


@given(seed=st.integers(0, 10**6), size=st.integers(2, 6), supervised=st.booleans(), spread=st.floats(0, 3))
@settings(max_examples=25, deadline=None)
def test_no_correlation_matrix_is_below_the_bound(seed: int, size: int, supervised: bool, spread: float) -> None:
    risk = class_risk(proportions(size, seed, spread), num_negatives=math.inf, supervised=supervised and size > 2)
    anywhere = random_correlation(size, seed + 1)
    bound = certify(risk.at(anywhere), anywhere).lower_bound  # from a point that is not optimal
    solution = minimise_over_correlations(risk)
    for other in range(20):
        value = risk.value(random_correlation(size, seed + other, 1 + other % size))
        assert bound <= value + 1e-12
        assert solution.lower_bound <= solution.value <= value + 1e-12


@pytest.mark.parametrize("supervised", [False, True])
@pytest.mark.parametrize("spread", [0.0, 0.5, 1.5])
def test_the_face_and_the_descent_agree(supervised: bool, spread: float) -> None:
    risk = class_risk(proportions(8, 3, spread), num_negatives=math.inf, supervised=supervised)
    start = simplex(8)
    finish = finish_on_face(risk.at, start @ start.T)
    slow = descend(risk.at, start, slope=1e-10).point
    assert finish is not None
    torch.testing.assert_close(finish.gram_CC, slow.gram_CC, rtol=0, atol=1e-7)
    assert float(torch.linalg.eigvalsh(finish.gram_CC)[0]) > -1e-12
    assert certify(risk.at(finish.gram_CC), finish.gram_CC).relative_gap(slow.at.value) < 1e-11


def test_the_dual_of_a_mild_imbalance_has_rank_one() -> None:
    risk = class_risk(proportions(6, 5), num_negatives=64)
    solution = minimise_over_correlations(risk)
    at = risk.at(solution.gram_CC)
    dual = at.gradient_CC + torch.diag(-(at.gradient_CC * solution.gram_CC).sum(1))
    eigenvalues = torch.linalg.eigvalsh(dual)
    assert float(eigenvalues[:-1].abs().max()) < 1e-12 * float(eigenvalues[-1]) * 1e3
    assert float((dual @ solution.gram_CC).abs().max()) < 1e-12


def test_columns_that_the_answer_needs_are_added() -> None:
    target = random_correlation(5, 11)
    narrow = torch.ones(5, 1, dtype=torch.float64)  # all classes on one point: no first-order way out within a column
    solution = minimise_over_correlations(Quadratic(target), start=narrow)
    assert solution.value < 1e-10


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_few_columns_end_in_a_stationary_point_above_the_bound(rank: int) -> None:
    risk = class_risk(proportions(6, 2), num_negatives=math.inf)
    solution = minimise_over_correlations(risk, rank=rank)
    assert solution.factor_CR.shape[1] <= rank
    assert point_at(risk.at, solution.factor_CR).relative_slope < 1e-6
    assert solution.lower_bound <= solution.value
    assert not solution.is_certified


def test_classes_that_nearly_coincide_are_merged_exactly() -> None:
    risk = class_risk(torch.tensor([0.94, 0.02, 0.02, 0.02], dtype=torch.float64), supervised=True)
    rough = minimise_over_correlations(risk, tolerance=1e-2)
    merged = merge_what_coincides(risk, rough, 1e-8)
    assert merged.is_certified
    assert float((merged.gram_CC[1:, 1:] - 1).abs().max()) == 0.0


def test_classes_that_are_near_and_apart_stay_apart() -> None:
    risk = class_risk(torch.tensor([0.899, 0.0505, 0.0505], dtype=torch.float64))  # just below the threshold
    solution = minimise_over_correlations(risk, tolerance=1e-12)
    assert float(solution.gram_CC[1, 2]) > 0.99
    merged = merge_what_coincides(risk, solution, 1e-12)
    assert float(merged.gram_CC[1, 2]) == float(solution.gram_CC[1, 2]) < 1


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_groups_are_chained_whatever_the_order_of_the_classes(order: tuple[int, ...]) -> None:
    angles = torch.tensor([0.0, 0.04, 0.08, 2.0], dtype=torch.float64)[list(order)]
    gram = torch.cos(angles[:, None] - angles[None, :])
    groups = coinciding(gram, math.cos(0.05))
    apart = groups[order.index(3)]
    assert (groups == apart).sum() == 1
    assert len(groups.unique()) == 2


def test_rare_classes_are_settled_though_they_hardly_count() -> None:
    geometry = optimal_geometry([0.9, 0.1 - 2e-7, 1e-7, 1e-7], num_negatives=7)
    assert geometry.merged_classes == [[1, 2, 3]]
    assert float(geometry.gram[2, 3]) == pytest.approx(1.0, abs=1e-12)


TRIPLET_OF_THREE = ([0.0775, 0.3349, 0.5876], {"loss": losses.Triplet(2.0), "num_negatives": 1, "supervised": True})
MEANS = [
    TRIPLET_OF_THREE,
    ([0.5, 0.25, 0.25], {}),
    ([0.5, 0.25, 0.25], {"dimension": 5}),
    ([0.5, 0.3, 0.2], {"nonnegative": True, "dimension": 4}),
    ([0.4, 0.3, 0.2, 0.1], {"dimension": 2}),
    ([0.5, 0.3, 0.2], {"loss": losses.SpectralContrastive()}),
    ([0.5, 0.3, 0.2], {"loss": losses.InfoNCE(1e3), "num_negatives": 1, "supervised": True}),
    ([0.5, 0.3, 0.2], {"loss": losses.HardNegatives(losses.InfoNCE(0.5), 1.0), "num_negatives": 2}),
]


@pytest.mark.parametrize(("shares", "how"), MEANS)
@pytest.mark.sampled(2)
def test_the_means_have_the_matrix(shares: list[float], how: dict[str, Any]) -> None:
    geometry = optimal_geometry(shares, **how)
    torch.testing.assert_close(geometry.means.T @ geometry.means, geometry.gram, rtol=0, atol=2e-8)
    if how.get("dimension"):
        assert len(geometry.means) == how["dimension"]


def test_a_hinge_of_twice_the_slope_has_twice_the_risk_and_twice_the_bound() -> None:
    shares, how = TRIPLET_OF_THREE
    steep = losses.PairLoss(LINEAR, Psi(HINGE, "[2 x + 4]_+", scale=2.0, margin=4.0))
    plain, twice = (optimal_geometry(shares, **{**how, "loss": loss}) for loss in (how["loss"], steep))
    assert twice.is_certified
    assert (twice.risk, twice.lower_bound) == pytest.approx((2 * plain.risk, 2 * plain.lower_bound), rel=1e-7)


@pytest.mark.parametrize("loss", [losses.HardNegatives(losses.InfoNCE(0.5), 1.0), losses.SpectralContrastive()])
def test_two_classes_on_a_line_are_solved(loss: losses.Loss) -> None:
    geometry = optimal_geometry([0.5, 0.5], loss=loss, dimension=1, num_negatives=2)
    assert geometry.means.shape == (1, 2)
    assert not geometry.is_certified
    assert geometry.is_collapse_optimal is None


def test_more_room_is_no_worse_for_non_negative_means() -> None:
    loss = losses.HardNegatives(losses.InfoNCE(0.5), 2.0)
    risks = [
        optimal_geometry([0.5, 0.3, 0.2], loss=loss, num_negatives=8, nonnegative=True, dimension=dimension).risk
        for dimension in (2, 3)
    ]
    assert risks[1] <= risks[0] + 1e-9


def test_bad_arguments_are_refused() -> None:
    risk = class_risk(proportions(3, 0))
    with pytest.raises(UsageError, match=r"rank must be >= 1, got 0"):
        minimise_over_correlations(risk, rank=0)
    with pytest.raises(UsageError, match=r"tolerance must be > 0"):
        minimise_over_correlations(risk, tolerance=0.0)
