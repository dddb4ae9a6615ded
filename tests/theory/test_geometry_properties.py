"""What the optimal geometry must be: known answers, theorems of imbalanced2026, certificates recomputed, bad input."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint import losses
from counterpoint.core.errors import UsageError
from counterpoint.losses.loss import Loss
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry
from oracles import cvx_geometry
from oracles.cvx_geometry import LogSum, Problem

EXACT = 1e-12  # what holds by construction
SIMPLEX = 1e-8
RELATIVE_GAP = 1e-8  # the default tolerance
AS_PRINTED = 2e-4
ANGLES = 1e-6  # of cosines that only the certificate pins down, through the curvature of the risk
SETTINGS = pytest.mark.parametrize("supervised", [False, True], ids=["UCL", "SCL"])
few = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
shares = st.lists(st.floats(0.05, 1.0), min_size=2, max_size=7).map(lambda w: [x / math.fsum(w) for x in w])
negatives = st.sampled_from([1, 2, 16, 512, math.inf])


def eigenvalues(geometry: Geometry) -> Tensor:
    return torch.linalg.eigvalsh(geometry.gram)


def off_diagonal(matrix_CC: Tensor) -> Tensor:
    size = len(matrix_CC)
    return matrix_CC[~torch.eye(size, dtype=torch.bool)].view(size, size - 1)


# --- known answers


@pytest.mark.parametrize(
    ("supervised", "k", "major", "minor"),
    [
        (False, 1, -0.6578, None),
        (False, 512, -0.6265, -0.2151),
        (False, math.inf, -0.6264, -0.2152),
        (True, 1, -0.7092, None),
        (True, 512, -0.6860, -0.0588),
        (True, math.inf, -0.6859, -0.0590),
    ],
)
def test_three_classes(supervised: bool, k: float, major: float, minor: float | None) -> None:
    gram = optimal_geometry([0.5, 0.25, 0.25], num_negatives=k, supervised=supervised).gram
    # Lemma 8: the optimum has rank 2, so that one cosine gives the other, b = 2 a^2 - 1.
    minor = 2 * major**2 - 1 if minor is None else minor
    assert float(gram[0, 1]) == pytest.approx(major, abs=AS_PRINTED)
    assert float(gram[0, 2]) == pytest.approx(major, abs=AS_PRINTED)
    assert float(gram[1, 2]) == pytest.approx(minor, abs=2 * AS_PRINTED)


@pytest.mark.parametrize(("supervised", "major", "minor"), [(True, -0.6889, -0.0480), (False, -0.6284, -0.2105)])
@pytest.mark.thorough
def test_the_printed_matrices_are_near_and_not_optimal(supervised: bool, major: float, minor: float) -> None:
    """imbalanced2026, section 7.1: off by up to 0.011, as k = 512 draws are; made feasible, of higher risk."""
    geometry = optimal_geometry([0.5, 0.25, 0.25], num_negatives=512, supervised=supervised)
    printed = torch.tensor([[1, major, major], [major, 1, minor], [major, minor, 1]], dtype=torch.float64)
    difference = float((geometry.gram - printed).abs().max())
    assert 1e-3 < difference < 0.015
    problem = Problem((0.5, 0.25, 0.25), LogSum(), 512, supervised)
    assert geometry.risk < cvx_geometry.risk(problem, cvx_geometry.made_feasible(printed.numpy()))


def test_minority_collapse() -> None:
    """imbalanced2026, section 7.2: complete in SCL at a share of 0.9; in UCL the threshold, 0.9002, is just above."""
    supervised = optimal_geometry([0.9, 0.05, 0.05], num_negatives=512, supervised=True)
    merged = torch.tensor([[1, -1, -1], [-1, 1, 1], [-1, 1, 1]], dtype=torch.float64)
    assert float((supervised.gram - merged).abs().max()) <= SIMPLEX
    assert supervised.rank == 1
    gram = optimal_geometry([0.9, 0.05, 0.05], num_negatives=512).gram
    assert float(gram[0, 1]) == pytest.approx(-0.9999, abs=AS_PRINTED)
    assert float(gram[1, 2]) == pytest.approx(0.9997, abs=AS_PRINTED)
    limit = optimal_geometry([0.9, 0.05, 0.05]).gram
    assert float(limit[0, 1]) == pytest.approx(-0.9996, abs=AS_PRINTED)
    assert float(limit[1, 2]) == pytest.approx(0.9986, abs=AS_PRINTED)


@SETTINGS
@pytest.mark.parametrize("num_minor", [2, 5, 9])
def test_extreme_proportions_merge_the_small_classes(num_minor: int, supervised: bool) -> None:
    geometry = optimal_geometry([0.97] + [0.03 / num_minor] * num_minor, supervised=supervised)
    assert geometry.rank == 1
    assert float((geometry.gram[1:, 1:] - 1).abs().max()) <= SIMPLEX
    assert float((geometry.gram[0, 1:] + 1).abs().max()) <= SIMPLEX
    assert geometry.duality_gap <= RELATIVE_GAP
    assert f"{', '.join(map(str, range(1, num_minor + 1)))} merge into one vector" in str(geometry)
    assert "no two classes merge" in str(optimal_geometry([0.5, 0.5], supervised=supervised))


@SETTINGS
@pytest.mark.parametrize("k", [1, 7, math.inf])
@pytest.mark.parametrize("num_classes", [2, 3, 5, 10, 40])
@pytest.mark.parametrize(
    "loss",
    [None, losses.InfoNCE(0.3), losses.DCL(0.5), losses.MIOv3(0.5), losses.SigmoidPair(5.0, -2.0)],
    ids=["paper", "InfoNCE", "DCL", "MIOv3", "SigmoidPair"],
)
@pytest.mark.sampled(3)
def test_balanced_classes_give_the_simplex(loss: Loss | None, num_classes: int, k: float, supervised: bool) -> None:
    """Corollary 5."""
    geometry = optimal_geometry([1 / num_classes] * num_classes, loss=loss, num_negatives=k, supervised=supervised)
    error = float((off_diagonal(geometry.gram) + 1 / (num_classes - 1)).abs().max())
    assert error <= SIMPLEX
    assert geometry.rank == num_classes - 1
    assert float(geometry.means.sum(1).norm()) <= 1e-7 * num_classes


def test_spectral_loss_wants_orthogonal_classes() -> None:
    """Its square has its least value at cosine 0, whatever the proportions."""
    geometry = optimal_geometry([0.6, 0.3, 0.1], loss=losses.SpectralContrastive(1.0), supervised=True)
    assert float(off_diagonal(geometry.gram).abs().max()) <= 1e-6
    assert geometry.rank == 3


def test_two_classes_are_opposite() -> None:
    for proportions in ([0.5, 0.5], [0.99, 0.01]):
        geometry = optimal_geometry(proportions)
        assert float(geometry.gram[0, 1]) == pytest.approx(-1, abs=EXACT)
        assert geometry.rank == 1


# --- theorems


@few
@given(shares=shares, k=negatives, supervised=st.booleans())
@pytest.mark.thorough
def test_gram_means_and_rank(shares: list[float], k: float, supervised: bool) -> None:
    geometry = optimal_geometry(shares, num_negatives=k, supervised=supervised)
    gram, size = geometry.gram, len(shares)
    assert float((gram.diagonal() - 1).abs().max()) <= EXACT
    assert torch.equal(gram, gram.mT)
    assert float(eigenvalues(geometry)[0]) >= -EXACT
    assert float((geometry.means.mT @ geometry.means - gram).abs().max()) <= EXACT
    assert geometry.means.shape[1] == size
    assert 1 <= geometry.rank <= size - 1  # Lemma 4
    assert int((eigenvalues(geometry) > 1e-7 * size).sum()) <= geometry.rank
    assert geometry.proportions.tolist() == pytest.approx(shares)


@SETTINGS
@pytest.mark.parametrize("k", [1, 512, math.inf])
def test_classes_of_one_size_are_equiangular(supervised: bool, k: float) -> None:
    """Corollary 4: one cosine among the classes of each size, and one between any two sizes."""
    weights = torch.tensor([4.0, 4, 2, 2, 2, 1, 1, 1, 1], dtype=torch.float64)
    gram = optimal_geometry(weights / weights.sum(), num_negatives=k, supervised=supervised).gram
    groups = (slice(0, 2), slice(2, 5), slice(5, 9))
    for one in groups:
        within = off_diagonal(gram[one, one])
        assert float(within.max() - within.min()) <= ANGLES
        for other in groups:
            between = gram[one, other]
            assert one == other or float(between.max() - between.min()) <= ANGLES


@few
@given(shares=shares, k=negatives, supervised=st.booleans(), seed=st.integers(0, 99))
def test_renaming_classes_renames_the_answer(shares: list[float], k: float, supervised: bool, seed: int) -> None:
    order = torch.randperm(len(shares), generator=torch.Generator().manual_seed(seed))
    asked: dict[str, Any] = {"num_negatives": k, "supervised": supervised}
    plain = optimal_geometry(shares, **asked)
    renamed = optimal_geometry(plain.proportions[order], **asked)
    assert float((renamed.gram - plain.gram[order][:, order]).abs().max()) <= ANGLES
    assert renamed.risk == pytest.approx(plain.risk, rel=2 * RELATIVE_GAP)


@SETTINGS
def test_nonnegative_features_are_orthonormal(supervised: bool) -> None:
    """Theorem 1; its value psi(-1, ..., -1) holds in SCL only, as a collision in UCL has the gap 0."""
    problem = Problem((0.7, 0.2, 0.1), LogSum(), 3, supervised)
    geometry = optimal_geometry(problem.proportions, num_negatives=3, supervised=supervised, nonnegative=True)
    identity = torch.eye(3, dtype=torch.float64)
    assert torch.equal(geometry.gram, identity)
    assert geometry.rank == 3
    assert float(geometry.means.min()) >= 0
    assert torch.equal(geometry.means.mT @ geometry.means, identity)
    assert geometry.risk == pytest.approx(cvx_geometry.enumerated_risk(problem, np.eye(3)), rel=1e-12)
    assert (abs(geometry.risk - math.log1p(math.exp(-1))) < EXACT) == supervised
    assert geometry.lower_bound <= geometry.risk


@pytest.mark.parametrize("dimension", [1, 2])
def test_too_few_dimensions_for_orthonormal_features(dimension: int) -> None:
    """Theorem 1 needs d >= C; below, classes share axes, the smallest two first."""
    geometry = optimal_geometry([0.5, 0.3, 0.2], supervised=True, nonnegative=True, dimension=dimension)
    assert "local" in geometry.status
    assert "certificate" in geometry.status
    assert geometry.means.shape == (dimension, 3)
    assert float(geometry.means.min()) >= 0
    assert geometry.merged_classes == ([[0, 1, 2]] if dimension == 1 else [[1, 2]])
    assert geometry.lower_bound < geometry.risk


@SETTINGS
def test_collapse_is_optimal_for_losses_of_gaps_only(supervised: bool) -> None:
    """A gap holds the length of a class's own mean: shorter means cost. MIO has positives apart from negatives."""
    asked: dict[str, Any] = {"proportions": [0.5, 0.25, 0.25], "supervised": supervised}
    assert all(optimal_geometry(**asked, num_negatives=k).is_collapse_optimal for k in (1, 512, math.inf))
    assert optimal_geometry(**asked, loss=losses.InfoNCE(0.1)).is_collapse_optimal
    assert optimal_geometry(**asked, loss=losses.MIOv2(0.2)).is_collapse_optimal
    assert optimal_geometry(**asked, loss=losses.MIOv1(0.2)).is_collapse_optimal == supervised


# --- certificates


@few
@given(shares=shares, k=st.sampled_from([1, 2, math.inf]), supervised=st.booleans(), tau=st.floats(0.1, 3.0))
@pytest.mark.thorough
def test_the_certificate_holds(shares: list[float], k: float, supervised: bool, tau: float) -> None:
    """The bound is below the risk of any correlation matrix, and near what the dual gives at the answer itself."""
    problem = Problem(tuple(shares), LogSum(tau, is_mean=False), k, supervised)
    geometry = optimal_geometry(shares, loss=losses.InfoNCE(tau), num_negatives=k, supervised=supervised)
    scale = max(1.0, abs(geometry.risk))
    assert geometry.lower_bound <= geometry.risk
    assert geometry.duality_gap == pytest.approx(geometry.risk - geometry.lower_bound, abs=1e-15 * scale)
    assert geometry.duality_gap <= RELATIVE_GAP * scale
    assert cvx_geometry.dual_bound(problem, geometry.gram.numpy()) >= geometry.risk - 1e-6 * scale
    rng = np.random.default_rng(len(shares))
    for rank in (1, 2, len(shares)):
        for _ in range(20):
            gram = cvx_geometry.random_gram(rng, len(shares), rank)
            near = cvx_geometry.made_feasible(0.999 * geometry.gram.numpy() + 0.001 * gram)
            assert geometry.lower_bound <= cvx_geometry.risk(problem, gram) + EXACT * scale
            assert geometry.lower_bound <= cvx_geometry.risk(problem, near) + EXACT * scale


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6, 1e-10])
def test_tolerance_bounds_the_relative_gap(tolerance: float) -> None:
    weights = 1 / torch.arange(1, 21, dtype=torch.float64)
    geometry = optimal_geometry(weights / weights.sum(), tolerance=tolerance)
    assert 0 <= geometry.duality_gap <= tolerance * max(1.0, abs(geometry.risk))
    assert geometry.iterations >= 1


@pytest.mark.parametrize("num_classes", [4, 12])
@SETTINGS
def test_enough_dimensions_change_nothing(num_classes: int, supervised: bool) -> None:
    weights = 1 / torch.arange(1, num_classes + 1, dtype=torch.float64)
    asked = {"proportions": weights / weights.sum(), "supervised": supervised}
    free = optimal_geometry(**asked)
    for dimension in (num_classes - 1, num_classes + 5):
        held = optimal_geometry(**asked, dimension=dimension)
        assert held.means.shape == (dimension, num_classes)
        assert float((held.gram - free.gram).abs().max()) <= ANGLES
        assert held.duality_gap <= RELATIVE_GAP


@pytest.mark.parametrize("dimension", [1, 2, 3])
@SETTINGS
@pytest.mark.sampled(4)
def test_too_few_dimensions_give_a_local_optimum_and_say_so(dimension: int, supervised: bool) -> None:
    shares = [0.25, 0.2, 0.2, 0.15, 0.1, 0.1]
    free = optimal_geometry(shares, supervised=supervised)
    held = optimal_geometry(shares, supervised=supervised, dimension=dimension)
    assert held.means.shape == (dimension, 6)
    assert held.rank <= dimension
    assert float((held.means.mT @ held.means - held.gram).abs().max()) <= EXACT
    assert "local" in held.status
    assert "certificate" in held.status
    assert held.lower_bound <= free.risk <= held.risk + EXACT
    assert held.status != free.status
    assert not held.is_certified
    problem = Problem(tuple(shares), LogSum(), math.inf, supervised)
    peer = cvx_geometry.solve_by_descent(problem, np.random.default_rng(0), rank=dimension, starts=6)
    assert held.risk <= peer.risk + RELATIVE_GAP
    assert held.risk == pytest.approx(cvx_geometry.risk(problem, held.gram.numpy()), rel=1e-12)


# --- bad input


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"dimension": 0}, "dimension must be .*>= 1.*0"),
        ({"dimension": 1.5}, "dimension must be .*1.5"),
        ({"tolerance": 0.0}, "tolerance must be > 0.*0"),
        ({"loss": "infonce"}, "loss must be .*str"),
    ],
)
def test_bad_requests_are_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        optimal_geometry([0.5, 0.3, 0.2], **asked)


@pytest.mark.parametrize("num_negatives", [math.inf, 512])
def test_a_hundred_classes_give_the_same_bits_for_any_number_of_threads(num_negatives: float) -> None:
    shares_C = 1 / torch.arange(1, 101, dtype=torch.float64)
    found, before = [], torch.get_num_threads()
    try:
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            found.append(optimal_geometry(shares_C / shares_C.sum(), num_negatives=num_negatives))
            assert torch.get_num_threads() == num_threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each.gram, found[0].gram) and each.risk == found[0].risk for each in found)


def test_as_many_dimensions_as_the_simplex_needs_leave_the_certificate() -> None:
    """C unit vectors whose mean is 0 span C - 1 dimensions; with one less nothing can be certified."""
    free, enough, few = (optimal_geometry([0.4, 0.3, 0.2, 0.1], dimension=dimension) for dimension in (None, 3, 2))
    assert (free.is_certified, enough.is_certified, few.is_certified) == (True, True, False)
    assert float((enough.gram - free.gram).abs().max()) <= EXACT
    assert few.risk > free.risk
