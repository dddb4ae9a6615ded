r"""Log-sum-exp over scores that are known to lie close together: one exponential per pair serves both readings.

If all :math:`|u_{ij}| \le B` and :math:`e^{2B}` is a number, :math:`e^{u_{ij} - B}` can neither overflow nor vanish in
any row, and no running maximum is needed. Unit vectors at temperature 0.1 have B = 10.
"""

# N anchors, M keys, D features, H tile rows, W tile columns

import torch
from torch import Tensor

from counterpoint.core.numerics import by_rows
from counterpoint.kernels.contract import PairScores, PerAnchor, ScoreTerms
from counterpoint.kernels.cpu.tiles import Tile, Tiles
from counterpoint.kernels.readings import counted_readings
from counterpoint.kernels.term_sums import TermSums

LARGEST_RANGE = {torch.float32: 80.0, torch.float64: 600.0}  # 2 B; exp(88) and exp(709) are the largest numbers


def common_reference(scores: PairScores) -> float | None:
    """B, a bound of all scores; None where it is too large, or where keys add to scores."""
    terms = scores.terms
    biases = (terms.row_own_N, terms.row_other_M, terms.column_own_M, terms.column_other_N)
    limit = LARGEST_RANGE.get(terms.anchors_ND.dtype)
    if limit is None or any(bias is not None for bias in biases):
        return None
    first, last = _longest(terms.anchors_ND), _longest(scores.keys_MD)
    bound = abs(float(terms.scale) * first * last)
    return bound if 2 * bound < limit else None


def log_sums(scores: PairScores, reference: float) -> PerAnchor:
    """Log-sum-exp per anchor."""
    counts = [len(scores.terms.anchors_ND), len(scores.keys_MD)][: 1 + scores.is_two_way]
    sums = [scores.terms.anchors_ND.new_zeros(count) for count in counts]

    def add(tile: Tile) -> None:
        exp_HW = _exponentials(tile, reference)
        for reading in counted_readings(scores, tile):
            sums[reading.statistic][reading.own(tile)] += reading.orient(exp_HW).sum(1)

    Tiles(scores).each(add)
    return PerAnchor(*(torch.log(s) + reference for s in sums))


def log_sums_gradient(scores: PairScores, statistic: PerAnchor, weight: PerAnchor, reference: float) -> ScoreTerms:
    """Gradient of the weighted statistics: the weight of a pair is its exponential times a number per anchor."""
    sums = TermSums(scores)
    size = _size(weight)  # taken out: exp(B - r) may be near the largest number already
    row_N = _factor(statistic.rows_N, weight.rows_N / size, reference)
    column_M = row_N if scores.is_self else None
    if statistic.columns_M is not None and weight.columns_M is not None:
        column_M = _factor(statistic.columns_M, weight.columns_M / size, reference)

    def add(tile: Tile) -> None:
        weight_HW = _exponentials(tile, reference)
        row_H1 = row_N[tile.rows, None]
        if column_M is None:
            weight_HW.mul_(row_H1)
        else:
            factor_HW = torch.add(row_H1, column_M[None, tile.columns], out=tile.buffer("factor"))
            weight_HW.mul_(factor_HW)
        sums.add_products(tile, weight_HW)

    Tiles(scores).each(add)
    return sums.result(size)


def _longest(vectors_ND: Tensor) -> float:
    """Largest length of a row."""
    length_N = vectors_ND.new_empty(len(vectors_ND))
    by_rows(vectors_ND, lambda rows: torch.linalg.vector_norm(vectors_ND[rows], dim=1, out=length_N[rows]))
    return float(length_N.amax())


def _size(weight: PerAnchor) -> Tensor:
    """Largest weight, or 1 if all are zero."""
    numbers = [numbers for numbers in (weight.rows_N, weight.columns_M) if numbers is not None]
    largest = torch.stack([n.abs().amax() for n in numbers]).amax()
    return torch.where(largest > 0, largest, 1.0)


def _exponentials(tile: Tile, reference: float) -> Tensor:
    """exp(u_ij - B), in place of the products."""
    return tile.mask.fill(tile.product_HW.sub_(reference).exp_(), 0.0)


def _factor(statistic_N: Tensor, weight_N: Tensor, reference: float) -> Tensor:
    """g_i exp(B - r_i): what turns an exponential into the pair's weight; 0 for an anchor without keys."""
    return torch.where(statistic_N == float("-inf"), 0.0, weight_N * torch.exp(reference - statistic_N))
