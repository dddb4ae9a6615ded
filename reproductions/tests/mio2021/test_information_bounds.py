"""MIO's losses and information: expansions, exact bounds, and each misprint beside what holds."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from counterpoint.losses.binary import MIOv1, MIOv2, MIOv3
from oracles import mio_bounds_oracle as oracle
from tolerances import assert_close

EXACT = 1e-12
VERSIONS = {1: MIOv1, 2: MIOv2, 3: MIOv3}
Matrix = NDArray[np.float64]
seeds = st.integers(0, 2**32 - 1)
temperatures = st.sampled_from([0.1, 0.2, 0.5, 1.0])
PAIRED = np.array([[0.4, 0.1], [0.1, 0.4]])  # pairs of one kind are likelier than by chance


def draw_joint(seed: int) -> Matrix:
    p_XY = np.random.default_rng(seed).uniform(0.02, 1.0, (3, 4)) ** 2
    return p_XY / p_XY.sum()


def draw_scores(seed: int) -> Matrix:
    return np.random.default_rng([seed, 1]).uniform(-4.0, 4.0, (3, 4))


def draw_views(seed: int, num_samples: int) -> Matrix:
    z_2ND = np.random.default_rng(seed).normal(size=(2, num_samples, 3))
    return z_2ND / np.linalg.norm(z_2ND, axis=2, keepdims=True)


def similarities(seed: int, num_samples: int) -> Matrix:
    """C of all 2N vectors, first views before second."""
    z_MD = np.concatenate(draw_views(seed, num_samples))
    return z_MD @ z_MD.T


def product_law(joint_XY: Matrix) -> Matrix:
    return np.outer(joint_XY.sum(1), joint_XY.sum(0))


def log_ratio(joint_XY: Matrix) -> Matrix:
    """ln r, the best scores of v1 and v3."""
    return np.log(joint_XY / product_law(joint_XY))


def loss(joint_XY: Matrix, scores_XY: Matrix, version: int) -> float:
    return oracle.population(joint_XY.tolist(), scores_XY.tolist(), version)


def divergence(p_XY: Matrix, q_XY: Matrix) -> float:
    return oracle.divergence(p_XY.tolist(), q_XY.tolist())


def least_v1(joint_XY: Matrix) -> float:
    """2 log 2 - 2 JS(joint, product)."""
    middle_XY = (joint_XY + product_law(joint_XY)) / 2
    return 2 * math.log(2) - divergence(joint_XY, middle_XY) - divergence(product_law(joint_XY), middle_XY)


def close(left: float, right: float) -> bool:
    return abs(left - right) <= EXACT * max(1.0, abs(left), abs(right))


# --- the losses and their expansions


@given(seeds, st.integers(2, 5), temperatures, st.sampled_from([1, 2, 3]))
@settings(max_examples=40)
def test_losses_that_train_are_the_papers_sums(seed: int, n: int, tau: float, version: int) -> None:
    """Eq. 4, 12 and 18."""
    z0, z1 = map(torch.from_numpy, draw_views(seed, n))
    assert close(oracle.batch(similarities(seed, n), tau, version), float(VERSIONS[version](tau)(z0, z1)))


@given(seeds, st.integers(2, 5), temperatures)
@settings(max_examples=40)
def test_version_1_expands_as_equation_11_and_not_as_equation_3_prints(seed: int, n: int, tau: float) -> None:
    similarity = similarities(seed, n)
    with_minus = oracle.batch(similarity, tau, 1)
    assert close(oracle.expanded_v1(similarity, tau), with_minus)
    as_printed = oracle.batch(similarity, tau, 1, printed_sign=True)
    mean_score = similarity.diagonal(n).mean() / tau
    assert abs(as_printed - with_minus - mean_score) < 1e-9  # ln(1 + e^s) = s + ln(1 + e^-s)
    assert abs(as_printed - with_minus) > 1e-6
    assert with_minus > oracle.batch(similarity, tau, 2)  # by the repulsion of positives


@pytest.mark.parametrize("n", [2, 3, 7, 128])
def test_pairs_are_counted_alike_by_all_formulas(n: int) -> None:
    """Sums over all 2N anchors need n' = (n + N) mod 2N; with n + N as printed half of them keep their positive."""
    positives, anchors = 2 * n, range(2 * n)
    negatives = sum(m not in (i, (i + n) % (2 * n)) for i in anchors for m in anchors)
    assert negatives == 4 * n**2 - 4 * n == 2 * n * (2 * n - 2) == positives**2 - 2 * positives
    assert sum(m not in (i, i + n) for i in anchors for m in anchors) == negatives + n


# --- information


@given(seeds)
@settings(max_examples=40)
def test_equation_10_holds_with_a_divergence_for_its_second_term(seed: int) -> None:
    """Its second term, E- log r, is <= 0; as a mutual information it would be >= 0, and the bound false."""
    joint_XY = draw_joint(seed)
    product_XY, ideal_XY = product_law(joint_XY), log_ratio(joint_XY)
    second_term = float((product_XY * ideal_XY).sum())
    assert close(second_term, -divergence(product_XY, joint_XY))
    assert second_term <= 0
    v1 = loss(joint_XY, ideal_XY, 1)
    assert v1 > 0 >= second_term - divergence(joint_XY, product_XY)  # never attained: any v1 is positive
    assert close(v1, least_v1(joint_XY))


def test_equation_10_is_false_with_a_mutual_information_for_its_second_term() -> None:
    """Pairs that nearly determine each other, and whose product law is far from them: -I + KL exceeds v1."""
    joint_XY = np.array([[0.5 - 1e-6, 1e-6], [1e-6, 0.5 - 1e-6]])
    product_XY = product_law(joint_XY)
    assert least_v1(joint_XY) < divergence(product_XY, joint_XY) - divergence(joint_XY, product_XY)


@given(seeds)
@settings(max_examples=40)
def test_no_scores_go_below_the_least_of_versions_1_and_3(seed: int) -> None:
    """2 log 2 - 2 JS and 1 - I; the second makes 1 - v3 a lower bound of the mutual information."""
    joint_XY, scores_XY = draw_joint(seed), draw_scores(seed)
    best_XY, mutual = log_ratio(joint_XY), divergence(joint_XY, product_law(joint_XY))
    for version, least in ((1, least_v1(joint_XY)), (3, 1 - mutual)):
        assert close(loss(joint_XY, best_XY, version), least)
        for other_XY in (scores_XY, best_XY + 0.01 * scores_XY):
            assert loss(joint_XY, other_XY, version) > least
    assert 1 - loss(joint_XY, scores_XY, 3) < mutual


def test_version_2_falls_without_end() -> None:
    """Pairs likelier than by chance gain more from a higher score than their chance costs; bounded scores stop it."""
    likely_XY = (product_law(PAIRED) <= PAIRED).astype(float)  # r >= 1: no score is best
    assert likely_XY.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    values = [loss(PAIRED, likely_XY * s, 2) for s in (1.0, 5.0, 10.0, 20.0)]
    assert values == sorted(values, reverse=True)
    # Each further unit of the score lowers v2 by as much again: joint less product law of the likely pairs.
    assert values[-1] == pytest.approx(values[-2] - 10 * 0.3, abs=1e-4)


@given(seeds, st.sampled_from([0.1, 0.2, 0.5, 2.0]))
@settings(max_examples=40)
def test_equations_5_to_9_need_the_temperature(seed: int, tau: float) -> None:
    """Eq. 9 prints e^C = r. Put into Eq. 2, which divides by tau, it is not v1's least; e^(C / tau) = r is."""
    joint_XY = draw_joint(seed)
    printed, right = (
        loss(joint_XY, cosine_XY / tau, 1) for cosine_XY in (log_ratio(joint_XY), tau * log_ratio(joint_XY))
    )
    assert close(right, least_v1(joint_XY))
    assert printed > right + EXACT


@pytest.mark.parametrize("n", [2, 3, 8])
def test_equation_17_needs_its_means(n: int) -> None:
    """Its last line prints sums over pairs: negatives then weigh T_N / T_P = 2N - 2 times what Eq. 18 gives them."""
    similarity = similarities(1, n)
    places = [(i, j) for i in range(2 * n) for j in range(2 * n) if i != j]
    positive = [similarity[place] / 0.5 for place in places if place[0] % n == place[1] % n]
    negative = [math.exp(similarity[place] / 0.5) for place in places if place[0] % n != place[1] % n]
    means = -math.fsum(positive) / len(positive) + math.fsum(negative) / len(negative)
    assert close(oracle.batch(similarity, 0.5, 3), means)
    printed = -math.fsum(positive) + math.fsum(negative)
    assert close(printed / len(positive), means + (2 * n - 3) * math.fsum(negative) / len(negative))


# --- surrogates


@given(seeds, st.integers(2, 4), temperatures)
@settings(max_examples=40)
def test_version_3_never_touches_version_2(seed: int, n: int, tau: float) -> None:
    """Eq. 14 asks L_v3(z | z_k) = L_v2(z_k); unit vectors keep a distance, least where all cosines are -1."""

    def gap(similarity: Matrix) -> float:
        return oracle.batch(similarity, tau, 3) - oracle.batch(similarity, tau, 2)

    x = math.exp(-1 / tau)
    least = x - math.log1p(x)  # x - ln(1 + x) rises with x
    assert gap(similarities(seed, n)) >= least * (1 - 1e-9) - EXACT
    assert close(gap(-np.ones((2 * n, 2 * n))), least)


def tangent(joint_XY: Matrix, scores_XY: Matrix, at_XY: Matrix) -> float:
    """The majorant of v2 in majorise-minimise: ln(1 + e^s) is replaced by its tangent in e^s, at e^t."""
    lines_XY = np.log1p(np.exp(at_XY)) + (np.exp(scores_XY) - np.exp(at_XY)) / (1 + np.exp(at_XY))
    return float((product_law(joint_XY) * lines_XY).sum() - (joint_XY * scores_XY).sum())


def test_minimising_the_tangent_again_and_again_lowers_version_2() -> None:
    """Each minimiser is e^s = r (1 + e^t): the descent that version 3 was meant to be. The tangent is above v2."""
    joint_XY, s_XY, other_XY = draw_joint(3), draw_scores(3), draw_scores(4)
    assert tangent(joint_XY, other_XY, s_XY) > loss(joint_XY, other_XY, 2)
    assert close(tangent(joint_XY, s_XY, s_XY), loss(joint_XY, s_XY, 2))  # and touches it
    values = []
    for _ in range(20):
        values.append(loss(joint_XY, s_XY, 2))
        s_XY = log_ratio(joint_XY) + np.log1p(np.exp(s_XY))
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
