"""Hubness: loops, the simplex, one hub, and that the order of samples does not matter."""

# N samples, D features

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics.hubness import MOST_COMPARED, antihub_share, hubness, neighbour_counts
from oracles import pair_oracle as oracle
from oracles.number_checks import assert_numbers


def draw(n: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def star(num_spokes: int) -> Tensor:
    """Orthogonal samples, and one that is equally close to all of them."""
    return torch.cat([torch.ones(1, num_spokes), torch.eye(num_spokes)]).double()


@given(n=st.integers(2, 14), width=st.integers(1, 4), k=st.integers(1, 12), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_counts_are_those_of_the_loops(n: int, width: int, k: int, seed: int) -> None:
    z = draw(n, width, seed).round(decimals=1)  # many ties, and zero rows
    counts = oracle.neighbour_counts(z.tolist(), k)
    found = neighbour_counts(z, k)
    assert_numbers(found, counts)
    assert_numbers(hubness(found), oracle.skewness(counts))
    assert antihub_share(found) == pytest.approx(sum(count <= 1e-9 for count in counts) / n)


def test_a_simplex_and_copies_have_no_hub() -> None:
    for z in (torch.eye(40), torch.ones(40, 3), torch.eye(4).repeat(10, 1)):
        assert hubness(neighbour_counts(z)) == 0.0
        assert antihub_share(neighbour_counts(z)) == 0.0


@pytest.mark.parametrize("num_spokes", [3, 20, 400])
def test_one_hub_is_as_skewed_as_can_be(num_spokes: int) -> None:
    count = neighbour_counts(star(num_spokes), k=1)
    assert float(count[0]) == num_spokes
    n = num_spokes + 1
    assert hubness(count) == pytest.approx((n - 2) / (n - 1) ** 0.5)


def test_isotropic_features_get_hubs_with_the_number_of_dimensions() -> None:
    """radovanovic2010, section 3: with many dimensions the skewness grows, without structure in the data."""
    found = [hubness(neighbour_counts(draw(2000, width, 1) + 1.0)) for width in (3, 100)]
    assert found[0] < 0.5 < found[1]


def test_blocks_and_the_order_of_samples_do_not_matter() -> None:
    z = draw(700, 6)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(3))
    counts = neighbour_counts(z)
    assert_numbers(neighbour_counts(z[order]), counts[order])
    assert float(counts.sum()) == pytest.approx(7000.0)


def test_at_most_so_many_samples_are_compared() -> None:
    assert len(neighbour_counts(draw(3000, 3))) == MOST_COMPARED
    with pytest.raises(ValueError, match="k must be >= 1"):
        neighbour_counts(draw(5, 2), k=0)
