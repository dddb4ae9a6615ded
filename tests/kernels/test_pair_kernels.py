"""Both kernels against the definition: excluded pairs, unequal numbers of anchors and keys, large scores."""

# N anchors, M keys, D features, E excluded keys per anchor

import math
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.kernels import dense, reference
from counterpoint.kernels.contract import PairScores
from oracles import pair_reductions as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

KERNELS = [dense, reference]
DTYPES = [torch.float64, torch.float32]


def draw_scores(
    num_anchors: int, num_keys: int, num_excluded: int, *, seed: int = 0, dtype: torch.dtype = torch.float64
) -> PairScores:
    """Random scores; each anchor excludes distinct keys of its own."""
    generator = torch.Generator().manual_seed(seed)
    excluded = torch.rand(num_anchors, num_keys, generator=generator).argsort(1)[:, :num_excluded]
    anchors, keys = (torch.randn(n, 3, generator=generator, dtype=dtype) for n in (num_anchors, num_keys))
    biases = [torch.randn(n, generator=generator, dtype=dtype) for n in (num_anchors, num_keys)]
    return PairScores(anchors, keys, 1.7, *biases, excluded)


def as_pairs(scores: PairScores) -> oracle.Pairs:
    columns = (scores.anchors_ND, scores.keys_MD, scores.anchor_bias_N, scores.key_bias_M, scores.excluded_NE)
    anchors, keys, anchor_bias, key_bias, excluded = (column.tolist() for column in columns)
    return oracle.Pairs(anchors, keys, scores.scale, anchor_bias, key_bias, excluded)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@settings(max_examples=15)
def test_row_logsumexp_is_the_definition(kernel: ModuleType, dtype: torch.dtype, data: st.DataObject) -> None:
    num_keys = data.draw(st.integers(1, 6))
    scores = draw_scores(
        data.draw(st.integers(1, 5)),
        num_keys,
        data.draw(st.integers(0, num_keys - 1)),
        seed=data.draw(st.integers(0, 99)),
        dtype=dtype,
    )
    assert_numbers(kernel.row_logsumexp(scores), oracle.log_sums(as_pairs(scores)), dtype=dtype)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@settings(max_examples=15)
def test_pair_sums_are_the_definition(kernel: ModuleType, dtype: torch.dtype, data: st.DataObject) -> None:
    num_anchors, num_keys = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 6))
    scores = draw_scores(num_anchors, num_keys, data.draw(st.integers(0, num_keys - 1)), seed=1, dtype=dtype)
    generator = torch.Generator().manual_seed(2)
    row_weight, shift = (torch.randn(num_anchors, generator=generator, dtype=dtype) for _ in range(2))
    sums, pairs = kernel.pair_sums(scores, row_weight, shift), as_pairs(scores)
    w = oracle.weights(pairs, row_weight.tolist(), shift.tolist())
    w_transposed = oracle.transposed(w)
    assert_numbers(sums.row_sums_N, [math.fsum(row) for row in w], dtype=dtype)
    assert_numbers(sums.column_sums_M, [math.fsum(row) for row in w_transposed], dtype=dtype)
    assert_numbers(sums.weighted_keys_ND, oracle.weighted_sums(w, pairs.keys), dtype=dtype)
    assert_numbers(sums.weighted_anchors_MD, oracle.weighted_sums(w_transposed, pairs.anchors), dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_agrees_with_the_reference_kernel(dtype: torch.dtype) -> None:
    scores = draw_scores(7, 9, 3, seed=3, dtype=dtype)
    shift = dense.row_logsumexp(scores)
    assert_close(shift, reference.row_logsumexp(scores))
    row_weight = torch.linspace(-1.0, 2.0, 7, dtype=dtype)
    ours, theirs = (kernel.pair_sums(scores, row_weight, shift) for kernel in KERNELS)
    for name in ("row_sums_N", "column_sums_M", "weighted_keys_ND", "weighted_anchors_MD"):
        assert_close(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_an_excluded_key_has_no_say(kernel: ModuleType) -> None:
    scores = draw_scores(2, 4, 0)
    excluded = torch.tensor([[3], [3]])
    without = replace(scores, keys_MD=scores.keys_MD[:3], key_bias_M=scores.key_bias_M[:3], excluded_NE=excluded[:, :0])
    keys = scores.keys_MD.clone()
    keys[3] = 1e3
    loud = replace(scores, keys_MD=keys, excluded_NE=excluded)
    assert_close(kernel.row_logsumexp(loud), kernel.row_logsumexp(without))
    sums = kernel.pair_sums(loud, torch.ones(2).double(), torch.zeros(2).double())
    assert sums.column_sums_M[3] == 0
    assert bool((sums.weighted_anchors_MD[3] == 0).all())


def test_a_score_matrix_holds_every_u_and_minus_infinity_where_excluded() -> None:
    scores = draw_scores(3, 4, 2)
    u_NM, pairs = dense.score_matrix(scores), as_pairs(scores)
    for i in range(3):
        for j in range(4):
            expected = -math.inf if j in pairs.excluded[i] else oracle.score(pairs, i, j)
            assert_numbers(u_NM[i, j], expected)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_huge_scores_neither_overflow_nor_vanish(kernel: ModuleType, dtype: torch.dtype) -> None:
    """Whole numbers, so that even scores of 1e8 are exact: row i is the largest score plus log 2, as two keys tie."""
    anchors = torch.tensor([[1000.0, 0.0], [-1000.0, 0.0]], dtype=dtype)
    keys = torch.tensor([[1000.0, 0.0], [1000.0, 0.0], [-1000.0, 0.0], [-1000.0, 1.0]], dtype=dtype)
    scores = PairScores(
        anchors, keys, 100.0, torch.zeros(2, dtype=dtype), torch.zeros(4, dtype=dtype), torch.zeros(2, 0).long()
    )
    assert_numbers(kernel.row_logsumexp(scores), [1e8 + math.log(2)] * 2, dtype=dtype)
    sums = kernel.pair_sums(scores, torch.ones(2, dtype=dtype), torch.full((2,), 1e8, dtype=dtype))
    assert sums.row_sums_N.tolist() == [2.0, 2.0]
    assert sums.column_sums_M.tolist() == [1.0, 1.0, 1.0, 1.0]
