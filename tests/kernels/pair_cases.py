"""Pair scores of every kind for the tests of kernels: who meets whom, which terms there are, which pairs count."""

# N anchors, M keys, D features

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from counterpoint.kernels import contract
from counterpoint.kernels.contract import PairFunction, PairMask, PairScores, PerAnchor, ScoreTerms
from counterpoint.kernels.cpu import tiles
from oracles import pair_reductions as oracle

FUNCTIONS: dict[str, PairFunction] = {f.name: f for f in vars(contract).values() if isinstance(f, PairFunction)}
KINDS = ["self", "one-way", "two-way"]
MASKS = ["none", "excluded", "ragged", "other-label", "same-label", "other-label-excluded", "same-label-excluded"]
NUM_ANCHORS, NUM_KEYS = 7, 8
LABELS = torch.tensor([0, 0, 1, 1, 0, 1, 0, 1])
TILE = 3


@contextmanager
def small_tiles(side: int = TILE) -> Iterator[None]:
    """Tiles so small that a few vectors need several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "TILE_ROWS", side)
        patch.setattr(tiles, "TILE_COLUMNS", side)
        yield


def draw_terms(kind: str, *, has_biases: bool, seed: int = 0, dtype: torch.dtype = torch.float64) -> ScoreTerms:
    """Random terms; a tangent is drawn the same way."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    m = NUM_ANCHORS if kind == "self" else NUM_KEYS
    anchors, keys, scale = draw(NUM_ANCHORS, 2), draw(m, 2), draw()
    biases = [draw(NUM_ANCHORS), draw(m), draw(m), draw(NUM_ANCHORS)] if has_biases else []
    if kind != "two-way":
        biases = biases[:2]
    return ScoreTerms(anchors, None if kind == "self" else keys, scale, *biases)


def make_mask(name: str, kind: str) -> PairMask:
    """Every anchor keeps a key and every key an anchor; where anchors are keys, pairs are out both ways."""
    n, m = NUM_ANCHORS, NUM_ANCHORS if kind == "self" else NUM_KEYS
    own = torch.arange(n)
    excluded = {
        "none": None,
        "excluded": own[:, None] if kind == "self" else torch.stack([own, (own + 3) % m], 1),
        "ragged": torch.tensor([[0, -1], [-1, -1], [2, 4], [-1, 3], [2, -1], [6, 5], [-1, 5]]),
    }
    labels = {"anchor_labels_N": LABELS[:n], "key_labels_M": LABELS[:m]} if "label" in name else {}
    chosen = excluded[name] if name in excluded else own[:, None] if "excluded" in name else None
    return PairMask(chosen, **labels, keeps_same_label="same-label" in name, is_ragged=name == "ragged")


def make_scores(
    kind: str, mask: str, *, has_biases: bool, seed: int = 0, dtype: torch.dtype = torch.float64
) -> PairScores:
    terms = draw_terms(kind, has_biases=has_biases, seed=seed, dtype=dtype)
    return PairScores(terms, make_mask(mask, kind), kind == "two-way")


def inputs_of(scores: PairScores) -> tuple[Tensor, ...]:
    """The terms that are there, with gradients."""
    return tuple(term.clone().requires_grad_() for term in scores.terms.flat() if term is not None)


def with_terms(scores: PairScores, given: tuple[Tensor, ...]) -> PairScores:
    """The same scores of other values of the terms that are there."""
    rest = iter(given)
    flat = [None if term is None else next(rest) for term in scores.terms.flat()]
    return replace(scores, terms=ScoreTerms(*flat))  # pyright: ignore[reportArgumentType]


def flat(tensors: tuple[Tensor, ...]) -> Tensor:
    """All numbers of some tensors."""
    return torch.cat([tensor.flatten() for tensor in tensors])


def in_float64(record: Any) -> Any:
    """Scores or numbers per anchor."""
    if isinstance(record, PairScores):
        return replace(record, terms=in_float64(record.terms))
    return replace(record, **{name: value.double() for name, value in vars(record).items() if value is not None})


def counts(mask: PairMask, num_keys: int) -> list[list[bool]]:
    """Which pairs count, by the words of ``PairMask``."""
    rows = []
    for i in range(NUM_ANCHORS):
        row = [True] * num_keys
        for j in range(num_keys):
            if mask.excluded_NE is not None and j in mask.excluded_NE[i].tolist():
                row[j] = False
            if mask.anchor_labels_N is not None and mask.key_labels_M is not None:
                is_same = int(mask.anchor_labels_N[i]) == int(mask.key_labels_M[j])
                row[j] = row[j] and is_same == mask.keeps_same_label
        rows.append(row)
    return rows


def as_pairs(scores: PairScores, terms: ScoreTerms | None = None) -> oracle.Pairs:
    """The same scores, or other terms of the same layout, for the oracle."""
    flat: list[Any] = [None if t is None else t.tolist() for t in (terms or scores.terms).flat()]
    return oracle.Pairs(counts(scores.mask, len(scores.keys_MD)), *flat, is_two_way=scores.is_two_way)


def draw_weight(scores: PairScores, seed: int = 9) -> PerAnchor:
    """A number per anchor of each reading."""
    generator = torch.Generator().manual_seed(seed)
    like = scores.terms.anchors_ND
    rows, columns = (
        torch.randn(n, generator=generator, dtype=torch.float64).to(like.dtype)
        for n in (len(like), len(scores.keys_MD))
    )
    return PerAnchor(rows, columns if scores.is_two_way else None)


def as_lists(per_anchor: PerAnchor) -> list[list[float]]:
    numbers = [per_anchor.rows_N, per_anchor.columns_M]
    return [n.tolist() for n in numbers if n is not None]


def by_name(terms: ScoreTerms) -> dict[str, Tensor]:
    """Terms that are there, by the oracle's names (without shapes)."""
    named: dict[str, Any] = {f.name.rsplit("_", 1)[0]: getattr(terms, f.name) for f in fields(terms)}
    named["scale"] = terms.scale
    return {name: value for name, value in named.items() if value is not None}
