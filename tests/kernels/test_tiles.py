"""Tiles: they cover every pair once, and hold little."""

# N anchors, M keys, D features, H tile rows, W tile columns

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from pair_cases import KINDS, inputs_of, make_scores, small_tiles, with_terms
from torch import Tensor

from counterpoint.kernels.contract import EXPONENTIAL, HINGE, PairFunction, PairMask, PairScores, ScoreTerms
from counterpoint.kernels.cpu import tiled, tiles
from counterpoint.kernels.cpu.tiles import Tile, Tiles
from counterpoint.kernels.differentiable import reduce
from counterpoint.kernels.select import use
from memory_watch import LargestResult
from oracles.number_checks import assert_numbers

SIDE = 16
COUNT = 200  # COUNT**2 = 40,000 pairs; a tile has 256

each_kind = pytest.mark.parametrize("kind", KINDS)


def large_scores(kind: str) -> PairScores:
    """As many anchors as keys; own keys left out, and labels."""
    generator = torch.Generator().manual_seed(6)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    biases = [draw(COUNT) for _ in range(4 if kind == "two-way" else 2)]
    terms = ScoreTerms(draw(COUNT, 3), None if kind == "self" else draw(COUNT, 3), draw(1)[0], *biases)
    labels = torch.arange(COUNT) % 7
    return PairScores(terms, PairMask(torch.arange(COUNT)[:, None], labels, labels), kind == "two-way")


def largest_of(function: Callable[[], Any]) -> int:
    with small_tiles(SIDE), LargestResult() as largest:
        function()
    return largest.num_elements


def derive_twice(scores: PairScores, value_of: Callable[[PairScores], Tensor]) -> None:
    """Forward, backward, Hessian-vector product in both modes."""
    inputs = inputs_of(scores)
    scores = with_terms(scores, inputs)
    slopes = torch.autograd.grad(value_of(scores), inputs, create_graph=True)
    torch.autograd.grad(torch.stack([(slope * slope.detach()).sum() for slope in slopes]).sum(), inputs)
    x = inputs[0].detach()

    def of_anchors(anchors: Tensor) -> Tensor:
        return value_of(replace(scores, terms=replace(scores.terms, anchors_ND=anchors)))

    torch.func.jvp(torch.func.grad(of_anchors), (x,), (x,))


@each_kind
@pytest.mark.parametrize("psi", [EXPONENTIAL, HINGE], ids=lambda psi: psi.name)
@pytest.mark.thorough
def test_no_tensor_of_all_pairs_is_ever_made(kind: str, psi: PairFunction) -> None:
    def value_of(scores: PairScores) -> Tensor:
        result = reduce(scores, psi, tiled)
        value = result.rows_N.square().sum()
        return value if result.columns_M is None else value + result.columns_M.square().sum()

    largest = largest_of(lambda: derive_twice(large_scores(kind), value_of))
    assert COUNT <= largest <= 8 * COUNT < COUNT**2 // 10


def test_the_measure_sees_a_matrix_of_all_pairs() -> None:
    """The test above can fail."""
    with use("dense"):
        assert largest_of(lambda: reduce(large_scores("self"), EXPONENTIAL)) >= COUNT**2


@each_kind
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (3, 2), (7, 8), (100, 100)])
def test_tiles_cover_each_pair_once(monkeypatch: pytest.MonkeyPatch, kind: str, size: tuple[int, int]) -> None:
    """A symmetric matrix is covered by the tiles on and above the diagonal, and each other one read both ways."""
    height, width = size if kind != "self" else (size[0], size[0])
    scores = make_scores(kind, "none", has_biases=False)
    seen = torch.zeros(7, len(scores.keys_MD), dtype=torch.int64)
    products = torch.zeros(seen.shape, dtype=torch.float64)

    def look(tile: Tile) -> None:
        seen[tile.rows, tile.columns] += 1
        products[tile.rows, tile.columns] = tile.product_HW
        if kind == "self" and not tile.is_on_diagonal:
            seen[tile.columns, tile.rows] += 1
            products[tile.columns, tile.rows] = tile.product_HW.mT

    monkeypatch.setattr(tiles, "TILE_ROWS", height)
    monkeypatch.setattr(tiles, "TILE_COLUMNS", width)
    Tiles(scores).each(look)
    assert bool((seen == 1).all())
    terms = scores.terms
    assert_numbers(products, terms.scale * terms.anchors_ND @ scores.keys_MD.mT)
