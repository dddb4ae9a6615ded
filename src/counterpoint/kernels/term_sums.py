"""What the weights of pairs add up to for each term of the scores, one tile after the other."""

# N anchors, M keys, D features, H tile rows, W tile columns

from dataclasses import fields

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairScores, ScoreTerms
from counterpoint.kernels.readings import Reading
from counterpoint.kernels.tiles import Tile, moved_keys


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

    def result(self) -> ScoreTerms:
        """The gradient."""
        terms, keys_ND = self.scores.terms, self.weighted_keys_ND
        scale = (terms.anchors_ND * keys_ND).sum() * half_if_self(self.scores)
        anchors_MD = self.weighted_anchors_MD
        return ScoreTerms(
            terms.scale * keys_ND, None if anchors_MD is None else terms.scale * anchors_MD, scale, **self.biases
        )


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
        self.changed, self.held, self.held_moved = (self._zeros() for _ in range(3))

    def add_biases(self, reading: Reading, tile: Tile, change_OK: Tensor) -> None:
        """Take in how the weights of one reading change."""
        add_biases(self.biases, reading, tile, change_OK)

    def add_products(self, tile: Tile, weight_HW: Tensor, change_HW: Tensor) -> None:
        """Take in the total weight of a tile and its change."""
        add_both_ways(*self.changed, self.scores, tile, change_HW)
        add_both_ways(*self.held, self.scores, tile, weight_HW)
        add_both_ways(*self.held_moved, self.moved, tile, weight_HW)

    def result(self) -> ScoreTerms:
        """The change of the gradient."""
        terms, s, ds = self.scores.terms, self.scores.terms.scale, self.tangent.scale
        anchors_ND = s * (self.changed[0] + self.held_moved[0]) + ds * self.held[0]
        keys_MD = None
        if self.changed[1] is not None and self.held[1] is not None and self.held_moved[1] is not None:
            keys_MD = s * (self.changed[1] + self.held_moved[1]) + ds * self.held[1]
        scale = (terms.anchors_ND * (self.changed[0] + self.held_moved[0])).sum()
        scale = (scale + (self.tangent.anchors_ND * self.held[0]).sum()) * half_if_self(self.scores)
        return ScoreTerms(anchors_ND, keys_MD, scale, **self.biases)

    def _zeros(self) -> tuple[Tensor, Tensor | None]:
        keys_MD = None if self.scores.is_self else torch.zeros_like(self.scores.keys_MD)
        return torch.zeros_like(self.scores.terms.anchors_ND), keys_MD


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
