"""Every kernel against the definition: each psi, who meets whom, with and without biases, all masks, two dtypes."""

# N anchors, M keys, D features

import math
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import dense_derivatives
import pytest
import torch
from pair_cases import (
    FUNCTIONS,
    KINDS,
    MASKS,
    as_lists,
    as_pairs,
    by_name,
    draw_terms,
    draw_weight,
    make_scores,
    small_tiles,
)

from counterpoint.kernels.contract import (
    EXPONENTIAL,
    HINGE,
    IDENTITY,
    PairFunction,
    PairMask,
    PairScores,
    PerAnchor,
    ScoreTerms,
)
from counterpoint.kernels.cpu import linear, tiled
from oracles import pair_reductions as oracle
from oracles.number_checks import as_float64, assert_numbers
from tolerances import assert_close

DTYPES = [torch.float64, torch.float32]
derived = {name: getattr(dense_derivatives, name) for name in ("gradient", "reduce_tangent", "gradient_tangent")}
CPU_KERNELS: dict[str, Any] = {
    "dense": dense_derivatives,
    "linear": SimpleNamespace(reduce=linear.reduce, **derived),
    "tiled": tiled,
}

TAKEN = [(name, psi) for name in CPU_KERNELS for psi in FUNCTIONS.values() if name != "linear" or psi is IDENTITY]

each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float64", "float32"])
each_psi = pytest.mark.parametrize("psi", FUNCTIONS.values(), ids=lambda psi: psi.name)
each_kind = pytest.mark.parametrize("kind", KINDS)


@cache
def expected(psi: str, kind: str, mask: str, has_biases: bool, dtype: torch.dtype) -> dict[str, Any]:
    """What the loops say, once for all kernels."""
    scores = make_scores(kind, mask, has_biases=has_biases, dtype=dtype)
    tangent = draw_terms(kind, has_biases=has_biases, seed=1, dtype=dtype)
    pairs, move, function = as_pairs(scores), as_pairs(scores, tangent), oracle.PSI[psi]
    weight = as_lists(draw_weight(scores))
    return {
        "reduce": [[complex(r).real for r in row] for row in oracle.statistics(pairs, function)],
        "gradient": oracle.gradient(pairs, function, weight),
        "reduce_tangent": oracle.statistics_tangent(pairs, function, move),
        "gradient_tangent": oracle.gradient_tangent(pairs, function, weight, move),
    }


def assert_terms(ours: ScoreTerms, theirs: dict[str, Any], dtype: torch.dtype) -> None:
    """The gradient is one vector: an entry that is 0 but for rounding is compared with the others' size."""
    named = {name: value for name, value in theirs.items() if value is not None}
    actual, truth = by_name(ours), {name: as_float64(real(value)) for name, value in named.items()}
    assert {name: value.shape for name, value in actual.items()} == {name: v.shape for name, v in truth.items()}
    assert_numbers(
        *(torch.cat([side[name].flatten().double() for name in truth]) for side in (actual, truth)), dtype=dtype
    )


def real(values: Any) -> Any:
    return [real(v) for v in values] if isinstance(values, list) else complex(values).real


def assert_per_anchor(ours: PerAnchor, theirs: list[list[float]], dtype: torch.dtype) -> None:
    rows = as_lists(ours)
    assert len(rows) == len(theirs)
    for row, other in zip(rows, theirs, strict=True):
        assert_numbers(row, other, dtype=dtype)


@pytest.mark.parametrize(("name", "psi"), TAKEN, ids=[f"{name}-{psi.name}" for name, psi in TAKEN])
@each_dtype
@each_kind
@pytest.mark.sampled(84)
def test_all_four_operations_are_the_definition(name: str, dtype: torch.dtype, kind: str, psi: PairFunction) -> None:
    kernel = CPU_KERNELS[name]
    for mask in MASKS:
        if name == "linear" and "label" in mask:
            continue
        for has_biases in (False, True):
            scores = make_scores(kind, mask, has_biases=has_biases, dtype=dtype)
            tangent = draw_terms(kind, has_biases=has_biases, seed=1, dtype=dtype)
            weight, truth = draw_weight(scores), expected(psi.name, kind, mask, has_biases, dtype)
            with small_tiles():
                statistic = kernel.reduce(scores, psi)
                assert_per_anchor(statistic, truth["reduce"], dtype)
                held = PerAnchor(*(torch.tensor(r, dtype=dtype) for r in truth["reduce"]))
                assert_terms(kernel.gradient(scores, psi, held, weight), truth["gradient"], dtype)
                moved = kernel.reduce_tangent(scores, psi, held, tangent)
                assert_per_anchor(moved, truth["reduce_tangent"], dtype)
                assert_terms(
                    kernel.gradient_tangent(scores, psi, held, weight, tangent), truth["gradient_tangent"], dtype
                )


@pytest.mark.parametrize("side", [1, 2, 7, 512])
@pytest.mark.parametrize("psi", [EXPONENTIAL, HINGE], ids=lambda psi: psi.name)
def test_the_size_of_tiles_does_not_matter(side: int, psi: PairFunction) -> None:
    for kind in KINDS:
        scores = make_scores(kind, "ragged", has_biases=True)
        with small_tiles(side):
            ours = tiled.reduce(scores, psi)
            slopes = tiled.gradient(scores, psi, ours, draw_weight(scores))
        truth = expected(psi.name, kind, "ragged", True, torch.float64)
        assert_per_anchor(ours, truth["reduce"], torch.float64)
        assert_terms(slopes, truth["gradient"], torch.float64)


@each_dtype
@pytest.mark.parametrize("name", ["dense", "tiled"])
@pytest.mark.parametrize("has_key_bias", [False, True])
def test_huge_scores_neither_overflow_nor_vanish(name: str, dtype: torch.dtype, has_key_bias: bool) -> None:
    """Whole numbers, so that even scores of 1e8 are exact: row i is the largest score plus log 2, as two keys tie."""
    kernel = CPU_KERNELS[name]
    anchors = torch.tensor([[1000.0, 0.0], [-1000.0, 0.0]], dtype=dtype)
    keys = torch.tensor([[1000.0, 0.0], [1000.0, 0.0], [-1000.0, 0.0], [-1000.0, 1.0]], dtype=dtype)
    bias = torch.zeros(4, dtype=dtype) if has_key_bias else None
    scores = PairScores(ScoreTerms(anchors, keys, torch.tensor(100.0, dtype=dtype), None, bias))
    with small_tiles():
        statistic = kernel.reduce(scores, EXPONENTIAL)
        assert_numbers(statistic.rows_N, [1e8 + math.log(2)] * 2, dtype=dtype)
        if name == "dense":
            return  # its gradient is autograd's, which takes no statistic
        exact = PerAnchor(torch.full((2,), 1e8, dtype=dtype))
        slopes = kernel.gradient(scores, EXPONENTIAL, exact, PerAnchor(torch.ones(2, dtype=dtype)))
    assert slopes.anchors_ND.tolist() == [[2e5, 0.0], [-2e5, 100.0]]
    assert slopes.keys_MD is not None
    assert slopes.keys_MD.tolist() == [[1e5, 0.0], [1e5, 0.0], [-1e5, 0.0], [-1e5, 0.0]]


@pytest.mark.parametrize("name", ["dense", "tiled"])
@each_psi
def test_a_pair_that_does_not_count_has_no_say_however_large_it_is(name: str, psi: PairFunction) -> None:
    scores = make_scores("one-way", "none", has_biases=True)
    anchors, keys, *_ = scores.terms.flat()
    assert anchors is not None
    assert keys is not None
    loud = keys.clone()
    loud[3] = 1e200  # its square is infinite
    mask = PairMask(torch.full((len(anchors), 1), 3))
    outcomes = []
    for k in (keys, loud):
        masked = PairScores(replace(scores.terms, keys_MD=k), mask)
        with small_tiles():
            statistic = CPU_KERNELS[name].reduce(masked, psi)
            slopes = CPU_KERNELS[name].gradient(masked, psi, statistic, draw_weight(masked))
        assert slopes.keys_MD is not None
        assert not slopes.keys_MD[3].any()
        assert slopes.row_other_M is not None
        assert slopes.row_other_M[3] == 0
        outcomes.append((statistic.rows_N, slopes.row_own_N))
    assert_close(outcomes[1][0], outcomes[0][0])
    assert_close(outcomes[1][1], outcomes[0][1])
