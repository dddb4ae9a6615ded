"""What the weights of pairs add up to for each term of the scores, one tile after the other."""

# N anchors, M keys, D features, H tile rows, W tile columns

from dataclasses import fields

import torch
from torch import Tensor

from counterpoint.core.numerics import by_rows
from counterpoint.kernels.contract import PairScores, ScoreTerms
from counterpoint.kernels.cpu.tiles import Tile, moved_keys
from counterpoint.kernels.readings import Reading


class TermSums:
    """Gradient of the weighted statistics: w K, w^T A, and the row and column sums of w.

    Args:
        scores: the scores; only terms that are not None get a sum.
    """

    def __init__(self, scores: PairScores) -> None:
        self.scores = scores
        self.biases = empty_biases(scores)
        self.weighted_keys_ND = torch.zeros_like(scores.terms.anchors_ND)
        self.weighted_anchors_MD = None if scores.is_self else torch.zeros_like(scores.keys_MD)

    def add_biases(self, reading: Reading, tile: Tile, weight_OK: Tensor) -> None:
        """Take in the weights of one reading."""
        add_biases(self.biases, reading, tile, weight_OK)

    def add_products(self, tile: Tile, weight_HW: Tensor) -> None:
        """Take in the total weight of a tile."""
        add_both_ways(self.weighted_keys_ND, self.weighted_anchors_MD, self.scores, tile, weight_HW)

    def result(self, factor: Tensor | float = 1.0) -> ScoreTerms:
        """The gradient, times a factor where there are no biases."""
        anchors_ND, keys_ND, anchors_MD = self.scores.terms.anchors_ND, self.weighted_keys_ND, self.weighted_anchors_MD
        scale = half_if_self(self.scores) * factor * dot(anchors_ND, keys_ND)
        for sums in (keys_ND, anchors_MD):
            if sums is not None:
                scale_rows(sums, self.scores.terms.scale * factor)
        return ScoreTerms(keys_ND, anchors_MD, scale, **self.biases)


class TermTangentSums:
    """Change of that gradient: changed weights times vectors, and weights times changed vectors.

    Args:
        scores: the scores.
        tangent: direction in which their terms move.
    """

    def __init__(self, scores: PairScores, tangent: ScoreTerms) -> None:
        self.scores, self.tangent = scores, tangent
        self.moved = PairScores(
            ScoreTerms(tangent.anchors_ND, None if scores.is_self else moved_keys(scores, tangent), tangent.scale),
            scores.mask,
            scores.is_two_way,
        )
        self.biases = empty_biases(scores)
        self.changed, self.held = self._zeros(), self._zeros()

    def add_biases(self, reading: Reading, tile: Tile, change_OK: Tensor) -> None:
        """Take in how the weights of one reading change."""
        add_biases(self.biases, reading, tile, change_OK)

    def add_products(self, tile: Tile, weight_HW: Tensor, change_HW: Tensor) -> None:
        """Take in the total weight of a tile and its change."""
        add_both_ways(*self.changed, self.scores, tile, change_HW)
        add_both_ways(*self.changed, self.moved, tile, weight_HW)
        add_both_ways(*self.held, self.scores, tile, weight_HW)

    def result(self) -> ScoreTerms:
        """The change of the gradient."""
        terms, tangent = self.scores.terms, self.tangent
        (changed_ND, changed_MD), (held_ND, held_MD) = self.changed, self.held
        scale = dot(terms.anchors_ND, changed_ND) + dot(tangent.anchors_ND, held_ND)
        for changed, held in ((changed_ND, held_ND), (changed_MD, held_MD)):
            if changed is not None and held is not None:
                scale_rows(changed, terms.scale, plus=(held, tangent.scale))
        return ScoreTerms(changed_ND, changed_MD, scale * half_if_self(self.scores), **self.biases)

    def _zeros(self) -> tuple[Tensor, Tensor | None]:
        keys_MD = None if self.scores.is_self else torch.zeros_like(self.scores.keys_MD)
        return torch.zeros_like(self.scores.terms.anchors_ND), keys_MD


def dot(left_ND: Tensor, right_ND: Tensor) -> Tensor:
    """Inner product of two matrices, the same bits for any number of threads."""
    parts: dict[int, Tensor] = {}
    by_rows(left_ND, lambda rows: parts.update({rows.start: (left_ND[rows] * right_ND[rows]).sum()}))
    return torch.stack([parts[start] for start in sorted(parts)]).sum()


def scale_rows(sums_ND: Tensor, scale: Tensor, plus: tuple[Tensor, Tensor] | None = None) -> None:
    """Multiply in place, and add a multiple of another matrix."""

    def work(rows: slice) -> None:
        own_HD = sums_ND[rows].mul_(scale)
        if plus is not None:
            own_HD.add_(plus[1] * plus[0][rows])

    by_rows(sums_ND, work)


def half_if_self(scores: PairScores) -> float:
    """Where anchors are keys, total weights hold each pair twice."""
    return 0.5 if scores.is_self else 1.0


def empty_biases(scores: PairScores) -> dict[str, Tensor | None]:
    """Zeros for each bias that the scores have."""
    names = [field.name for field in fields(ScoreTerms)][3:]
    terms = scores.terms
    return {name: None if getattr(terms, name) is None else torch.zeros_like(getattr(terms, name)) for name in names}


def add_biases(biases: dict[str, Tensor | None], reading: Reading, tile: Tile, weight_OK: Tensor) -> None:
    """Add row and column sums of one reading's weights; a tile on the diagonal holds each pair once already."""
    if tile.is_on_diagonal and reading.is_column:
        return
    own_O, other_K = biases[reading.own_name], biases[reading.other_name]
    if own_O is not None:
        own_O[reading.own(tile)] += weight_OK.sum(1)
    if other_K is not None:
        other_K[reading.other(tile)] += weight_OK.sum(0)


def add_both_ways(
    to_anchors_ND: Tensor, to_keys_MD: Tensor | None, scores: PairScores, tile: Tile, weight_HW: Tensor
) -> None:
    """Add w K to the anchors and w^T A to the keys; where they are the same, off the diagonal only."""
    to_anchors_ND[tile.rows].addmm_(weight_HW, scores.keys_MD[tile.columns])
    if tile.is_on_diagonal:
        return
    (to_anchors_ND if to_keys_MD is None else to_keys_MD)[tile.columns].addmm_(
        weight_HW.mT, scores.terms.anchors_ND[tile.rows]
    )
