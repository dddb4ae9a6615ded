"""MIO's losses and information: expansions, exact bounds, and each misprint beside what holds."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.losses.binary import MIOv1, MIOv2, MIOv3
from oracles import mio_bounds_oracle as oracle
from reproductions.mio2021.information_bounds import (
    MioTerms,
    batch_terms,
    best_scores,
    information,
    least_surrogate_gap,
    pair_counts,
    population_terms,
    tangent_surrogate,
)
from tolerances import assert_close

EXACT = 1e-12
VERSIONS = {1: MIOv1, 2: MIOv2, 3: MIOv3}
seeds = st.integers(0, 2**32 - 1)
temperatures = st.sampled_from([0.1, 0.2, 0.5, 1.0])


def draw_joint(seed: int, rows: int = 3, columns: int = 4) -> Tensor:
    p_XY = torch.from_numpy(np.random.default_rng(seed).uniform(0.02, 1.0, (rows, columns)) ** 2)
    return p_XY / p_XY.sum()


def draw_scores(seed: int, rows: int = 3, columns: int = 4, largest: float = 4.0) -> Tensor:
    return torch.from_numpy(np.random.default_rng([seed, 1]).uniform(-largest, largest, (rows, columns)))


def draw_views(seed: int, num_samples: int, num_features: int = 3) -> tuple[Tensor, Tensor]:
    z_2ND = np.random.default_rng(seed).normal(size=(2, num_samples, num_features))
    z_2ND /= np.linalg.norm(z_2ND, axis=2, keepdims=True)
    return torch.from_numpy(z_2ND[0]), torch.from_numpy(z_2ND[1])


def value(terms: MioTerms, version: int) -> float:
    return (terms.v1, terms.v2, terms.v3)[version - 1]


def close(left: float, right: float, scale: float = 1.0) -> bool:
    return abs(left - right) <= EXACT * max(scale, abs(left), abs(right))


# --- the losses and their expansions


@given(seeds, st.integers(2, 5), temperatures, st.sampled_from([1, 2, 3]))
@settings(max_examples=40)
def test_terms_of_a_batch_add_up_to_the_losses_that_train(seed: int, n: int, tau: float, version: int) -> None:
    """Eq. 4, 12 and 18 three times: the loss objects, the terms, and loops."""
    z0, z1 = draw_views(seed, n)
    z_MD = torch.cat([z0, z1])
    found = value(batch_terms(z_MD @ z_MD.T, temperature=tau), version)
    assert close(found, float(VERSIONS[version](tau)(z0, z1)))
    assert close(found, oracle.batch((z_MD @ z_MD.T).numpy(), tau, version))


@given(seeds, st.integers(2, 5), temperatures)
@settings(max_examples=40)
def test_version_1_expands_as_equation_11_and_not_as_equation_3_prints(seed: int, n: int, tau: float) -> None:
    z_MD = torch.cat(draw_views(seed, n))
    similarity = (z_MD @ z_MD.T).numpy()
    with_minus = oracle.batch(similarity, tau, 1)
    assert close(oracle.expanded_v1(similarity, tau), with_minus)
    terms = batch_terms(z_MD @ z_MD.T, temperature=tau)
    assert close(terms.attraction + terms.own_repulsion + terms.softplus, with_minus)
    as_printed = oracle.batch(similarity, tau, 1, printed_sign=True)
    assert abs(as_printed - with_minus + terms.attraction) < 1e-9  # ln(1 + e^s) = s + ln(1 + e^-s)
    assert abs(as_printed - with_minus) > 1e-6


@given(seeds, st.sampled_from([1, 2, 3]))
@settings(max_examples=40)
def test_population_terms_are_expectations(seed: int, version: int) -> None:
    joint_XY, scores_XY = draw_joint(seed), draw_scores(seed)
    found = value(population_terms(scores_XY, joint_XY), version)
    assert close(found, oracle.population(joint_XY.tolist(), scores_XY.tolist(), version), math.exp(4))


@given(seeds)
@settings(max_examples=40)
def test_both_other_versions_are_above_version_2(seed: int) -> None:
    """v1 is v2 and the positives' repulsion; v3 is v2 with ln(1 + x) raised to x: Eq. 15 to 17."""
    terms = population_terms(draw_scores(seed), draw_joint(seed))
    assert terms.v2 < terms.v1
    assert terms.v2 < terms.v3


def test_versions_1_and_3_have_no_order() -> None:
    """Where scores are large v3 is above, where they are small and negative pairs cost little it is below."""
    joint_XY = torch.eye(2).double() / 2
    high, low = (population_terms(torch.full((2, 2), s).double(), joint_XY) for s in (3.0, -3.0))
    assert high.v3 > high.v1
    assert low.v3 < low.v1


@pytest.mark.parametrize("n", [2, 3, 7, 128])
def test_pairs_are_counted_alike_by_all_formulas(n: int) -> None:
    """Sums over all 2N anchors need n' = (n + N) mod 2N; with n + N as printed half of them keep their positive."""
    counts = pair_counts(n)
    anchors = range(2 * n)
    assert counts.positives == 2 * n
    assert counts.negatives == 4 * n**2 - 4 * n == 2 * n * (2 * n - 2) == counts.positives**2 - 2 * counts.positives
    assert counts.negatives == sum(m not in (i, (i + n) % (2 * n)) for i in anchors for m in anchors)
    as_printed = sum(m not in (i, i + n) for i in anchors for m in anchors)
    assert as_printed == counts.negatives + n


# --- information


@given(seeds)
@settings(max_examples=40)
def test_information_is_that_of_its_definitions(seed: int) -> None:
    joint_XY = draw_joint(seed)
    joint, product_ = joint_XY.tolist(), oracle.product_law(joint_XY.tolist())
    middle = [
        [(a + b) / 2 for a, b in zip(row, other, strict=True)] for row, other in zip(joint, product_, strict=True)
    ]
    found = information(joint_XY)
    assert close(found.mutual, oracle.divergence(joint, product_))
    assert close(found.lautum, oracle.divergence(product_, joint))
    halves = oracle.divergence(joint, middle) + oracle.divergence(product_, middle)
    assert close(found.jensen_shannon, halves / 2)
    assert 0 <= found.jensen_shannon <= math.log(2)


@given(seeds)
@settings(max_examples=40)
def test_equation_10_holds_with_a_divergence_for_its_second_term(seed: int) -> None:
    """Its second term, E- log r, is <= 0; as a mutual information it would be >= 0, and the bound false."""
    joint_XY = draw_joint(seed)
    known = information(joint_XY)
    ideal = population_terms(best_scores(joint_XY, version=1), joint_XY)
    product_XY = joint_XY.sum(1)[:, None] * joint_XY.sum(0)
    second_term = float((product_XY * (joint_XY / product_XY).log()).sum())
    assert close(second_term, -known.lautum)
    assert second_term <= 0
    assert ideal.v1 > 0 >= known.printed_bound  # never attained: any v1 is positive
    assert close(ideal.v1, known.least_v1)


def test_equation_10_is_false_with_a_mutual_information_for_its_second_term() -> None:
    """Pairs that nearly determine each other, and whose product law is far from them: -I + KL exceeds v1."""
    joint_XY = torch.tensor([[0.5 - 1e-6, 1e-6], [1e-6, 0.5 - 1e-6]], dtype=torch.float64)
    known = information(joint_XY)
    assert known.least_v1 < -known.mutual + known.lautum


@given(seeds)
@settings(max_examples=40)
def test_no_scores_go_below_the_least_of_versions_1_and_3(seed: int) -> None:
    """2 log 2 - 2 JS and 1 - I; the second makes 1 - v3 a lower bound of the mutual information."""
    joint_XY, known = draw_joint(seed), information(draw_joint(seed))
    for version, least in ((1, known.least_v1), (3, known.least_v3)):
        best_XY = best_scores(joint_XY, version=version)
        assert close(value(population_terms(best_XY, joint_XY), version), least)
        for other_XY in (draw_scores(seed), best_XY + 0.01 * draw_scores(seed)):
            assert value(population_terms(other_XY, joint_XY), version) > least
    assert 1 - population_terms(draw_scores(seed), joint_XY).v3 < known.mutual


def test_version_2_falls_without_end() -> None:
    """Pairs likelier than by chance gain more from a higher score than their chance costs; bounded scores stop it."""
    joint_XY = torch.tensor([[0.4, 0.1], [0.1, 0.4]], dtype=torch.float64)
    likely_XY = (best_scores(joint_XY, version=2) == math.inf).double()
    assert likely_XY.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    values = [population_terms(likely_XY * s, joint_XY).v2 for s in (1.0, 10.0, 100.0, 1000.0)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < -250


@given(seeds, st.sampled_from([0.1, 0.2, 0.5, 2.0]))
@settings(max_examples=40)
def test_equations_5_to_9_need_the_temperature(seed: int, tau: float) -> None:
    """Eq. 9 prints e^C = r. Put into Eq. 2, which divides by tau, it is not v1's least; e^(C / tau) = r is."""
    joint_XY = draw_joint(seed)
    log_ratio_XY = (joint_XY / (joint_XY.sum(1)[:, None] * joint_XY.sum(0))).log()
    printed, right = (
        oracle.population(joint_XY.tolist(), (cosine_XY / tau).tolist(), 1)
        for cosine_XY in (log_ratio_XY, tau * log_ratio_XY)
    )
    assert close(right, information(joint_XY).least_v1)
    assert printed > right + EXACT


@pytest.mark.parametrize("n", [2, 3, 8])
def test_equation_17_needs_its_means(n: int) -> None:
    """Its last line prints sums over pairs: negatives then weigh T_N / T_P = 2N - 2 times what Eq. 18 gives them."""
    similarity = torch.cat(draw_views(1, n)) @ torch.cat(draw_views(1, n)).T
    terms, counts = batch_terms(similarity, temperature=0.5), pair_counts(n)
    s_MM = (similarity / 0.5).tolist()
    places = [(i, j) for i in range(2 * n) for j in range(2 * n) if i != j]
    positive = [s_MM[i][j] for i, j in places if i % n == j % n]
    negative = [math.exp(s_MM[i][j]) for i, j in places if i % n != j % n]
    means = -math.fsum(positive) / counts.positives + math.fsum(negative) / counts.negatives
    assert close(terms.v3, means)
    printed = -math.fsum(positive) + math.fsum(negative)
    assert close(printed / counts.positives, terms.v3 + (2 * n - 3) * math.fsum(negative) / counts.negatives)


# --- surrogates


@given(seeds, st.integers(2, 4), temperatures)
@settings(max_examples=40)
def test_version_3_never_touches_version_2(seed: int, n: int, tau: float) -> None:
    """Eq. 14 asks L_v3(z | z_k) = L_v2(z_k); unit vectors keep a distance, least where all cosines are -1."""
    z_MD = torch.cat(draw_views(seed, n))
    terms = batch_terms(z_MD @ z_MD.T, temperature=tau)
    assert terms.v3 - terms.v2 >= least_surrogate_gap(tau) * (1 - 1e-9) > 0
    opposite_MM = -torch.ones(2 * n, 2 * n)
    at_least = batch_terms(opposite_MM, temperature=tau)
    assert close(at_least.v3 - at_least.v2, least_surrogate_gap(tau))


@given(seeds)
@settings(max_examples=40)
def test_the_tangent_is_above_version_2_and_touches_it(seed: int) -> None:
    joint_XY, scores_XY, at_XY = draw_joint(seed), draw_scores(seed), draw_scores(seed + 1)
    loss = population_terms(scores_XY, joint_XY).v2
    assert tangent_surrogate(scores_XY, joint_XY, at_XY=at_XY) >= loss - EXACT
    assert close(tangent_surrogate(scores_XY, joint_XY, at_XY=scores_XY), loss)
    nearby_XY = at_XY + 1e-4 * scores_XY
    distance = tangent_surrogate(nearby_XY, joint_XY, at_XY=at_XY) - population_terms(nearby_XY, joint_XY).v2
    assert -EXACT <= distance < 1e-6  # of second order, as slopes agree too


def test_minimising_the_tangent_again_and_again_lowers_version_2() -> None:
    """Each minimiser is e^s = r (1 + e^t): the descent that version 3 was meant to be."""
    joint_XY, s_XY = draw_joint(3), draw_scores(3)
    ratio_XY = best_scores(joint_XY, version=3).exp()
    values = []
    for _ in range(20):
        values.append(population_terms(s_XY, joint_XY).v2)
        s_XY = (ratio_XY * (1 + s_XY.exp())).log()
    assert all(after <= before + EXACT for before, after in pairwise(values))
    assert values[-1] < values[0] - 0.1


# --- second derivatives


def hessian_of(version: int, h_MF: Tensor, psi_FD: Tensor, tau: float, *, normalize: bool) -> np.ndarray:
    """Hessian of our loss in the weights of a linear projector."""
    loss = VERSIONS[version](tau, normalize)

    def of_weights(flat: Tensor) -> Tensor:
        z_MD = h_MF @ flat.reshape(psi_FD.shape)
        half = len(z_MD) // 2
        return loss(z_MD[:half], z_MD[half:])

    flat_HH = torch.autograd.functional.hessian(of_weights, psi_FD.flatten())
    assert isinstance(flat_HH, Tensor)
    return flat_HH.reshape(*psi_FD.shape, *psi_FD.shape).numpy()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_second_derivatives_need_equal_columns_and_raw_products(version: int, rng: np.random.Generator) -> None:
    """B^(l)(k) is non-zero for l = k (Eq. 18), not for l != k (after Eq. 28 and 34); and only for dot products."""
    h_MF, psi_FD, tau = rng.normal(size=(6, 3)), rng.normal(size=(3, 2)) / 2, 0.8
    tensors: tuple[Any, Any] = (torch.from_numpy(h_MF), torch.from_numpy(psi_FD))
    ours = torch.from_numpy(hessian_of(version, *tensors, tau, normalize=False))
    assert_close(ours, torch.from_numpy(oracle.projector_hessian(h_MF, psi_FD, tau, version)))
    printed = torch.from_numpy(oracle.projector_hessian(h_MF, psi_FD, tau, version, oracle.other_column))
    assert float((ours - printed).abs().max()) > 1e-2 * float(ours.abs().max())
    of_cosines = torch.from_numpy(hessian_of(version, *tensors, tau, normalize=True))
    assert float((ours - of_cosines).abs().max()) > 1e-2 * float(ours.abs().max())


# --- what is refused


@pytest.mark.parametrize(
    ("joint", "message"),
    [
        (torch.ones(2, 2), "joint must sum to 1, got 4; divide by the sum"),
        (torch.tensor([[1.5, -0.5]]), "joint must be a matrix of probabilities"),
    ],
)
def test_no_joint_distribution(joint: Tensor, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        information(joint)


def test_other_arguments_out_of_range() -> None:
    joint = torch.eye(2) / 2
    with pytest.raises(UsageError, match=r"scores must be finite and of shape \(2, 2\), got \(3, 2\)"):
        population_terms(torch.zeros(3, 2), joint)
    with pytest.raises(UsageError, match="version must be 1, 2 or 3, got 4"):
        best_scores(joint, version=4)
    with pytest.raises(UsageError, match=r"similarities must be \(2n, 2n\) with n >= 2, got \(3, 3\)"):
        batch_terms(torch.eye(3), temperature=0.2)
