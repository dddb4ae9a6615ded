"""Near samples: loops, copies with and without noise, and that isotropic samples have none."""

# N samples, D features

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics.pair_attention import COPY, near_samples
from oracles import pair_oracle as oracle
from oracles.number_checks import assert_numbers


def draw(n: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(n=st.integers(3, 9), width=st.integers(2, 4), seed=st.integers(0, 99), noise=st.sampled_from([0.1, 1.0]))
@settings(max_examples=30)
def test_figures_are_those_of_the_loops(n: int, width: int, seed: int, noise: float) -> None:
    plain = draw(n, width, seed)
    plain[1] = plain[0] + 0.01 * plain[1]
    first, second = plain + noise * draw(n, width, seed + 100), plain + noise * draw(n, width, seed + 200)
    found = near_samples(first, second, plain, num_pairs=3)
    views = oracle.view_cosines(first.tolist(), second.tolist())
    own = [oracle.cosine(a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    others = [(i, j) for i in range(n) for j in range(n) if i != j]
    limit = COPY * sorted(1 - c for c in own)[(n - 1) // 2]
    copies = {(i, j) for i, j in others if 1 - oracle.cosine(plain[i].tolist(), plain[j].tolist()) < limit}
    assert {tuple(pair) for pair in found.is_copy_NN.nonzero().tolist()} == copies
    best = sorted(((views[i][j], i, j) for i, j in others if i < j), reverse=True)[:3]
    assert found.pairs_P2.tolist() == [[i, j] for _, i, j in best]
    assert_numbers(found.cosine_P, [cosine for cosine, _, _ in best])
    assert_numbers(found.own_P, [(own[i] + own[j]) / 2 for _, i, j in best])


def test_each_sample_eight_times_is_found_and_isotropic_samples_have_no_copies() -> None:
    noise = 0.5 * draw(400, 32, 1), 0.5 * draw(400, 32, 2)
    copied = draw(50, 32).repeat_interleave(8, dim=0)
    near = copied + 1e-3 * draw(400, 32, 3)
    found = near_samples(near + noise[0], near + noise[1], near)
    assert found.copy_share == 1.0
    assert int(found.is_copy_NN.sum()) == 400 * 7
    apart = draw(400, 32)
    assert near_samples(apart + noise[0], apart + noise[1], apart).copy_share == 0.0


def test_exact_copies_are_counted_and_not_shown() -> None:
    plain = draw(10, 6)
    plain[7] = plain[2]
    found = near_samples(plain + 0.3 * draw(10, 6, 1), plain + 0.3 * draw(10, 6, 2), plain, num_pairs=45)
    assert found.is_copy_NN[2, 7]
    assert [2, 7] not in found.pairs_P2.tolist()
    assert len(found.pairs_P2) == 44


def test_equal_views_have_no_near_copies() -> None:
    plain = draw(10, 6)
    assert near_samples(plain, plain, plain).copy_share == 0.0


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape and at most 2048 rows"):
        near_samples(draw(4, 3), draw(4, 3), draw(4, 2))


def test_an_embedding_of_one_dimension_makes_no_copies_of_unlike_samples() -> None:
    raw = draw(300, 40)
    raw[1] = raw[0] + 0.01 * raw[1]
    plain = torch.cat([raw[:, :1], torch.ones(300, 1, dtype=torch.float64)], dim=1)
    first, second = plain + 0.5 * draw(300, 2, seed=1), plain + 0.5 * draw(300, 2, seed=2)
    assert near_samples(first, second, plain).copy_share > 0.9
    copies = near_samples(first, second, plain, raw).is_copy_NN.nonzero().tolist()
    assert copies == [[0, 1], [1, 0]]
