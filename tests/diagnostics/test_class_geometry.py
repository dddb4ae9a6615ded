"""Class means beside an optimum: exact optima, intervals that cover, rare classes that merge, what must not matter."""

# N samples, D features, C classes

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics.class_geometry import (
    class_cosines,
    class_geometry,
    class_spreads,
    frequent_cosine,
    gram_distance,
    mean_interval,
    rare_classes,
    rare_cosine,
    within_share,
)
from counterpoint.diagnostics.evidence import Interval
from counterpoint.theory.geometry.optimal_geometry import optimal_geometry
from draws import draw
from oracles import class_directions_oracle as oracle
from oracles.number_checks import assert_numbers


def value_of(found: Interval) -> float:
    assert found.value is not None
    return found.value


def at_optimum(means_DC: Tensor, counts: list[int], d: int, noise: float = 0.0) -> tuple[Tensor, Tensor]:
    """Samples at given class means, turned at random, with noise."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    turn = torch.linalg.qr(draw(d, d, 3)).Q[: len(means_DC)]
    return means_DC.T[labels] @ turn + noise * draw(len(labels), d, 4), labels


@settings(max_examples=40, deadline=None)
@given(counts=st.lists(st.integers(1, 5), min_size=2, max_size=6), d=st.integers(2, 5), seed=st.integers(0, 99))
def test_figures_are_those_of_the_loops(counts: list[int], d: int, seed: int) -> None:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = torch.cat([labels, torch.tensor([-1])])
    z = draw(len(labels), d, seed)
    classes, known = class_geometry(z, labels), labels.tolist()
    optimum = torch.eye(len(counts), dtype=torch.float64)
    assert_numbers(class_cosines(classes), oracle.cosines(z.numpy(), known))
    assert_numbers(gram_distance(classes, optimum).value, oracle.distance(z.numpy(), known, optimum.numpy()))
    if max(counts) > 1:
        assert_numbers(within_share(classes), oracle.within_share(z.numpy(), known))
    expected = oracle.rare_cosine(z.numpy(), known)
    if expected is None:
        assert math.isnan(value_of(rare_cosine(classes)))
    else:
        assert_numbers(rare_cosine(classes).value, expected)
    is_rare_C = rare_classes(classes.counts_C)
    rare = set() if is_rare_C is None else set(classes.labels_C[is_rare_C].tolist())
    assert rare == oracle.rare_numbers(known)


@pytest.mark.parametrize(
    ("shares", "k", "expected"),
    [
        ([0.5, 0.25, 0.25], 1, -0.6578),
        ([0.5, 0.25, 0.25], 512, -0.6265),
        ([0.5, 0.25, 0.25], math.inf, -0.6264),
    ],
)
def test_samples_at_the_exact_optima_of_three_classes_are_at_distance_0(
    shares: list[float], k: float, expected: float
) -> None:
    """imbalanced2026, section 7.1."""
    geometry = optimal_geometry(shares, num_negatives=k)
    z, labels = at_optimum(geometry.means, [20, 10, 10], 7)
    classes = class_geometry(z, labels)
    assert float(class_cosines(classes)[0, 1]) == pytest.approx(expected, abs=1e-4)
    found = gram_distance(classes, geometry.gram)
    assert value_of(found) < 1e-7
    assert within_share(classes) < 1e-12


def test_a_simplex_is_as_far_from_the_imbalanced_optimum_as_its_cosines_say() -> None:
    a, b = -0.6265, -0.2151
    simplex = optimal_geometry([1 / 3] * 3)
    z, labels = at_optimum(simplex.means, [5, 5, 5], 4)
    optimum = torch.tensor([[1, a, a], [a, 1, b], [a, b, 1]], dtype=torch.float64)
    found = gram_distance(class_geometry(z, labels), optimum)
    assert found.value == pytest.approx(math.sqrt((2 * (a + 0.5) ** 2 + (b + 0.5) ** 2) / 3), abs=1e-9)


def test_merged_minorities_have_cosine_1_where_a_simplex_has_a_half_less_than_0() -> None:
    z, labels = at_optimum(torch.tensor([[1.0, -1.0, -1.0]]).double(), [90, 5, 5], 8, noise=0.05)
    found = rare_cosine(class_geometry(z, labels))
    assert value_of(found) > 0.9
    assert found.low is not None
    assert found.low > 0.8
    apart = rare_cosine(class_geometry(*at_optimum(optimal_geometry([1 / 3] * 3).means, [90, 5, 5], 8, noise=0.05)))
    assert apart.value == pytest.approx(-0.5, abs=0.1)
    assert math.isnan(frequent_cosine(class_geometry(z, labels)))


def test_random_labels_have_no_rare_classes_that_merge() -> None:
    for seed in range(30):
        z = draw(200, 16, seed) + 3
        labels = torch.arange(6).repeat_interleave(torch.tensor([80, 80, 10, 10, 10, 10]))
        found = rare_cosine(class_geometry(z, labels))
        assert found.low is not None
        assert found.low < 0.5


@pytest.mark.thorough
def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Three spread-out classes with known means; the truth is the distance of an endless sample."""
    means = torch.nn.functional.normalize(draw(3, 5, 1), dim=1)
    optimum = torch.eye(3, dtype=torch.float64)

    def sample(n: int, seed: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(3).repeat_interleave(n)
        return means[labels] + 0.4 * draw(3 * n, 5, seed), labels

    truth = value_of(gram_distance(class_geometry(*sample(200_000, 0)), optimum))
    found = [gram_distance(class_geometry(*sample(100, 10 + seed)), optimum) for seed in range(300)]
    covered = np.mean([each.low <= truth <= each.high for each in found if each.low is not None and each.high])
    assert abs(covered - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 300)


def test_the_interval_of_a_coordinate_is_that_of_a_mean() -> None:
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    found = mean_interval(class_geometry(z, torch.tensor([0, 0, 0, 0, 1])), lambda means_CD: means_CD[0, 0])
    error = np.std([1, 0, 1, 0], ddof=1) / 2
    assert found.high is not None
    assert found.high - value_of(found) == pytest.approx(1.959964 * error, rel=1e-6)


def test_spread_is_what_is_missing_from_a_means_length() -> None:
    z, labels = draw(40, 6), torch.arange(40) % 4
    unit = torch.nn.functional.normalize(z, dim=1)
    expected = [1 - float(unit[labels == c].mean(dim=0).square().sum()) for c in range(4)]
    assert class_spreads(class_geometry(z, labels)).tolist() == pytest.approx(expected, abs=1e-12)


def test_one_class_or_another_number_of_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="for each of at least 2 classes"):
        gram_distance(class_geometry(draw(4, 3), torch.zeros(4, dtype=torch.int64)), torch.eye(1))
    with pytest.raises(ValueError, match=r"got \(3, 3\) for 2"):
        gram_distance(class_geometry(draw(4, 3), torch.arange(4) % 2), torch.eye(3))


@pytest.mark.parametrize("change", ["gaps", "rotation", "rows", "lengths", "unlabelled"])
def test_what_does_not_matter_to_classes(change: str) -> None:
    z, labels = draw(60, 6), torch.arange(6).repeat_interleave(torch.tensor([20, 14, 10, 8, 5, 3]))
    z = z + 2 * draw(6, 6, 1)[labels]
    order = torch.randperm(60, generator=torch.Generator().manual_seed(3))
    other_z, other_labels = {
        "gaps": (z, 1000 * labels + 7),
        "rotation": (z @ torch.linalg.qr(draw(6, 6, 2)).Q, labels),
        "rows": (z[order], labels[order]),
        "lengths": (z * torch.linspace(0.1, 9, 60)[:, None], labels),
        "unlabelled": (torch.cat([10 + draw(30, 6, 4), z]), torch.cat([torch.full((30,), -1), labels])),
    }[change]
    before, after = class_geometry(z, labels), class_geometry(other_z, other_labels)
    optimum = torch.eye(6, dtype=torch.float64)
    for measure in (within_share, lambda classes: rare_cosine(classes).value, frequent_cosine):
        assert_numbers(measure(after), measure(before))
    here, there = gram_distance(before, optimum), gram_distance(after, optimum)
    assert (there.value, there.low) == pytest.approx((here.value, here.low), abs=1e-12)


def test_classes_that_all_coincide_have_all_variance_within_and_constant_features_none() -> None:
    half = draw(500, 5)
    # The same rows in another order and twice, so that means differ by rounding.
    labels = torch.arange(2).repeat_interleave(torch.tensor([500, 1000]))
    classes = class_geometry(torch.cat([half, half.flip(0), half.flip(0)]), labels)
    assert float(classes.means_CD.abs().max()) > 0
    assert within_share(classes) == 1.0
    assert math.isnan(within_share(class_geometry(torch.full((99, 3), 0.1), torch.arange(99) % 3)))


@pytest.mark.parametrize("labels", [[0] * 6, [-1] * 6, [0, 1, 2, 3, 4, 5]])
def test_one_class_none_or_single_samples_have_no_scatter(labels: list[int]) -> None:
    assert math.isnan(within_share(class_geometry(draw(6, 3), torch.tensor(labels))))
