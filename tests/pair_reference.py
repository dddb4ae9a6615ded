"""The definition: plain loops in float64. Slow on purpose; every other kernel is tested against it."""

# N anchors, M keys, D features

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairFunction, PairMask, PairScores, PerAnchor, ScoreTerms

Pair = tuple[int, int]


@torch.no_grad()  # its loops leave autograd, so a derivative through them must raise rather than be zero
def reduce(scores: PairScores, psi: PairFunction) -> PerAnchor:
    """See ``contract.PairKernel.reduce``; returns float64."""
    return PerAnchor(*(_statistic(reading, psi) for reading in _readings(scores)))


@torch.no_grad()
def gradient(scores: PairScores, psi: PairFunction, statistic: PerAnchor, weight: PerAnchor) -> ScoreTerms:
    """See ``contract.PairKernel.gradient``; returns float64."""
    gradients = _Gradients(scores)
    for reading, r, g in zip(_readings(scores), statistic.both(), weight.both(), strict=True):
        for (i, j), u in reading.scores.items():
            own = reading.own(i, j)
            # w_ij = g_i psi'(u_ij - h_i)
            gradients.add(reading, (i, j), float(g[own]) * _scalar(psi.slope, u - _shift(psi, r, own)))
    return gradients.as_terms()


@torch.no_grad()
def reduce_tangent(scores: PairScores, psi: PairFunction, statistic: PerAnchor, tangent: ScoreTerms) -> PerAnchor:
    """See ``contract.PairKernel.reduce_tangent``; returns float64."""
    results = []
    moves = _score_tangents(scores, tangent)
    for reading, move, r in zip(_readings(scores), moves, statistic.both(), strict=True):
        total = torch.zeros(reading.num_anchors, dtype=torch.float64)
        for (i, j), u in reading.scores.items():
            own = reading.own(i, j)
            total[own] += _scalar(psi.slope, u - _shift(psi, r, own)) * move[i, j]
        results.append(total)
    return PerAnchor(*results)


@torch.no_grad()
def gradient_tangent(
    scores: PairScores, psi: PairFunction, statistic: PerAnchor, weight: PerAnchor, tangent: ScoreTerms
) -> ScoreTerms:
    """See ``contract.PairKernel.gradient_tangent``; returns float64."""
    gradients = _Gradients(scores)
    readings, moves = _readings(scores), _score_tangents(scores, tangent)
    slopes = reduce_tangent(scores, psi, statistic, tangent).both()
    for reading, move, r, dr, g in zip(readings, moves, statistic.both(), slopes, weight.both(), strict=True):
        for (i, j), u in reading.scores.items():
            own = reading.own(i, j)
            v = u - _shift(psi, r, own)
            # In the log domain h_i is r_i, which moves along: v'_ij = u'_ij - r'_i.
            change = move[i, j] - (float(dr[own]) if psi.in_log_domain else 0.0)
            # Product rule on w_ij times vectors: w'_ij = g_i psi''(v_ij) v'_ij, then w_ij with the vectors' change.
            gradients.add(reading, (i, j), float(g[own]) * _scalar(psi.curvature, v) * change)
            gradients.add_products(tangent, (i, j), float(g[own]) * _scalar(psi.slope, v))
    return gradients.as_terms()


@dataclass(frozen=True)
class _Reading:
    """All pairs that count, read along the rows or along the columns."""

    scores: dict[Pair, float]
    num_anchors: int
    is_column: bool

    def own(self, i: int, j: int) -> int:
        """The anchor of a pair."""
        return j if self.is_column else i


class _Gradients:
    """Sums over pairs of weight times what each term contributes."""

    def __init__(self, scores: PairScores) -> None:
        self.scores = scores
        self.sums = {
            name: torch.zeros(value.shape, dtype=torch.float64)
            for name, value in vars(scores.terms).items()
            if value is not None
        }

    def add(self, reading: _Reading, pair: Pair, weight: float) -> None:
        """One pair of weight w_ij."""
        (i, j), terms = pair, self.scores.terms
        # A pair pulls at its anchor and at its key; where the anchors are the keys, both go into one sum.
        self._add_row("anchors_ND", i, weight * float(terms.scale) * self.scores.keys_MD[j].double())
        self._add_row(
            "anchors_ND" if self.scores.is_self else "keys_MD",
            j,
            weight * float(terms.scale) * terms.anchors_ND[i].double(),
        )
        self.sums["scale"] += weight * _dot(terms.anchors_ND[i], self.scores.keys_MD[j])
        own, other = ("column_own_M", "column_other_N") if reading.is_column else ("row_own_N", "row_other_M")
        self._add_row(own, j if reading.is_column else i, weight)
        self._add_row(other, i if reading.is_column else j, weight)

    def add_products(self, tangent: ScoreTerms, pair: Pair, weight: float) -> None:
        """What moves in s k_j, s a_i and <a_i, k_j> while the weight w_ij is held."""
        (i, j), terms, keys_MD = pair, self.scores.terms, self.scores.keys_MD
        moved_keys_MD = tangent.anchors_ND if self.scores.is_self else tangent.keys_MD
        assert moved_keys_MD is not None
        ds, s = float(tangent.scale), float(terms.scale)
        anchor, key = terms.anchors_ND[i].double(), keys_MD[j].double()
        moved_anchor, moved_key = tangent.anchors_ND[i].double(), moved_keys_MD[j].double()
        self._add_row("anchors_ND", i, weight * (ds * key + s * moved_key))
        name = "anchors_ND" if self.scores.is_self else "keys_MD"
        self._add_row(name, j, weight * (ds * anchor + s * moved_anchor))
        self.sums["scale"] += weight * (_dot(moved_anchor, key) + _dot(anchor, moved_key))

    def as_terms(self) -> ScoreTerms:
        """The sums as a record; terms that the scores lack are None."""
        return ScoreTerms(**{name: self.sums.get(name) for name in vars(self.scores.terms)})  # pyright: ignore[reportArgumentType]

    def _add_row(self, name: str, index: int, amount: Tensor | float) -> None:
        if name in self.sums:
            self.sums[name][index] += amount


def _readings(scores: PairScores) -> list[_Reading]:
    """The scores read along the rows and, if they are read both ways, along the columns."""
    terms = scores.terms
    products = {(i, j): float(terms.scale) * _dot(terms.anchors_ND[i], scores.keys_MD[j]) for i, j in _pairs(scores)}
    counts = len(terms.anchors_ND), len(scores.keys_MD)
    read = _with_biases(products, terms, scores.is_two_way)
    return [_Reading(u, counts[column], is_column=bool(column)) for column, u in enumerate(read)]


def _score_tangents(scores: PairScores, tangent: ScoreTerms) -> list[dict[Pair, float]]:
    """u'_ij in each reading: the product rule over scale, anchor, key and biases."""
    terms, s, ds = scores.terms, float(scores.terms.scale), float(tangent.scale)
    moved_keys_MD = tangent.anchors_ND if scores.is_self else tangent.keys_MD
    assert moved_keys_MD is not None
    products = {}
    for i, j in _pairs(scores):
        anchor, key = terms.anchors_ND[i], scores.keys_MD[j]
        products[i, j] = ds * _dot(anchor, key) + s * (
            _dot(tangent.anchors_ND[i], key) + _dot(anchor, moved_keys_MD[j])
        )
    return _with_biases(products, tangent, scores.is_two_way)


def _with_biases(products: dict[Pair, float], terms: ScoreTerms, is_two_way: bool) -> list[dict[Pair, float]]:
    """Products and what both sides add to them, read along the rows and, if asked for, along the columns."""
    sides = [(terms.row_own_N, terms.row_other_M), (terms.column_other_N, terms.column_own_M)]
    return [
        {(i, j): u + _at(by_row_N, i) + _at(by_column_M, j) for (i, j), u in products.items()}
        for by_row_N, by_column_M in sides[: 1 + is_two_way]
    ]


def _pairs(scores: PairScores) -> Iterator[Pair]:
    """The pairs that count."""
    for i in range(len(scores.terms.anchors_ND)):
        yield from ((i, j) for j in range(len(scores.keys_MD)) if _counts(scores.mask, i, j))


def _counts(mask: PairMask, i: int, j: int) -> bool:
    """Whether a pair counts."""
    # No key has the number -1, which stands for none.
    if mask.excluded_NE is not None and j in mask.excluded_NE[i].tolist():
        return False
    if mask.anchor_labels_N is None or mask.key_labels_M is None:
        return True
    return bool(mask.anchor_labels_N[i] == mask.key_labels_M[j]) == mask.keeps_same_label


def _statistic(reading: _Reading, psi: PairFunction) -> Tensor:
    """Sum of psi, or log-sum-exp, per anchor."""
    per_anchor: list[list[float]] = [[] for _ in range(reading.num_anchors)]
    for (i, j), u in reading.scores.items():
        per_anchor[reading.own(i, j)].append(u)
    if psi.in_log_domain:
        return torch.tensor([_log_sum_exp(row) for row in per_anchor], dtype=torch.float64)
    # fsum rounds once, so that the error of the definition does not grow with the number of keys.
    return torch.tensor([math.fsum(_scalar(psi.value, u) for u in row) for row in per_anchor], dtype=torch.float64)


def _log_sum_exp(row: list[float]) -> float:
    """Log of the sum of exp; minus infinity for no terms."""
    if not row:
        return -math.inf
    top = max(row)
    # Relative to the largest: exp itself overflows above 709.
    return top + math.log(math.fsum(math.exp(u - top) for u in row))


def _scalar(function: object, u: float) -> float:
    """An elementwise tensor function at one number."""
    return float(function(torch.tensor(u, dtype=torch.float64)))  # pyright: ignore[reportCallIssue]


def _shift(psi: PairFunction, statistic: Tensor, index: int) -> float:
    """h_i."""
    return float(statistic[index]) if psi.in_log_domain else 0.0


def _dot(a_D: Tensor, b_D: Tensor) -> float:
    """Inner product in float64."""
    return float(torch.dot(a_D.double(), b_D.double()))


def _at(bias: Tensor | None, index: int) -> float:
    """One entry of a term that may be absent."""
    return 0.0 if bias is None else float(bias[index])
