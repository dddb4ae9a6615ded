r"""Tile by tile in torch operations, on any device: memory for a few tiles, whatever the number of pairs.

A tile is computed once and read in both directions where both count. The weight of a pair is
:math:`w_{ij} = g_i \psi'(u_{ij} - h_i)` (see ``contract.PairKernel``); gradients are sums of the total weight of both
readings, so that a symmetric matrix needs half of its products and one product with the vectors per pair.

Where all scores are known to lie close together, :math:`|u_{ij}| \le B`, one reference c serves all rows
(``tiles.common_reference``): no running maximum is needed, and one exponential :math:`e^{u_{ij} - c}` per pair
serves both readings. Unit vectors at temperature 0.1 have B = 10 and c = 0, at 0.01 B = 100 and c = 45.

Each tile is computed by one thread, and what they add to is added in a fixed order: results are the same bits in
every call, for any number of threads.
"""

# N anchors, M keys, D features, H tile rows, W tile columns, O own anchors of a reading, K keys of a reading

import torch
from torch import Tensor

from counterpoint.core.numerics import by_rows
from counterpoint.kernels.contract import PairFunction, PairScores, PerAnchor, ScoreTerms
from counterpoint.kernels.cpu.tiles import (
    Reading,
    TermSums,
    TermTangentSums,
    Tile,
    Tiles,
    add_biases,
    add_exponentials,
    common_reference,
    counted_readings,
    exp_or_zero_,
    exponentials_,
    is_exact,
    prepare,
    product_tangent,
    readings,
)


@torch.no_grad()
def reduce(scores: PairScores, psi: PairFunction) -> PerAnchor:
    """See ``contract.PairKernel.reduce``."""
    reference = _reference(scores, psi)
    statistic = None if reference is None else _log_sums(scores, reference)
    if statistic is not None:
        return statistic
    sums = _zeros(scores)
    tops = [torch.full_like(zeros, float("-inf")) for zeros in sums]

    def add(tile: Tile) -> None:
        prepare(tile, psi)
        for reading in counted_readings(scores, tile):
            u_OK = reading.scores(tile, scores.terms)
            place, own = reading.statistic, reading.own(tile)
            if psi.in_log_domain:
                add_exponentials(tops[place][own], sums[place][own], u_OK)
            else:
                values_OK = reading.orient(tile.filled(reading.orient(psi.value(u_OK)), 0.0))
                sums[place][own] += values_OK.sum(1)

    Tiles(scores).each(add)
    if psi.in_log_domain:  # minus infinity for an anchor without keys
        sums = [torch.where(top == float("-inf"), top, top + torch.log(s)) for top, s in zip(tops, sums, strict=True)]
    return PerAnchor(*sums)


@torch.no_grad()
def gradient(scores: PairScores, psi: PairFunction, statistic: PerAnchor, weight: PerAnchor) -> ScoreTerms:
    """See ``contract.PairKernel.gradient``."""
    reference = _reference(scores, psi)
    if reference is not None and _is_exact(scores, statistic, reference):
        return _log_sums_gradient(scores, statistic, weight, reference)
    sums = TermSums(scores)

    def add(tile: Tile) -> None:
        prepare(tile, psi)
        total_HW = tile.buffer("total")
        # Both readings, on the diagonal too: products need w + w^T there, and add_biases takes each pair once.
        for index, reading in enumerate(readings(scores)):
            v_OK = _shifted(reading, scores, tile, psi, statistic)
            weight_HW = _weighted(reading, tile, psi, psi.slope, v_OK, weight)
            add_biases(sums.biases, reading, tile, reading.orient(weight_HW))
            torch.add(total_HW, weight_HW, out=total_HW) if index else total_HW.copy_(weight_HW)
        sums.add_products(tile, total_HW)

    Tiles(scores).each(add)
    return sums.result()


@torch.no_grad()
def total_and_gradient(scores: PairScores, psi: PairFunction, weight: float) -> tuple[Tensor, ScoreTerms]:
    """Weighted total g sum_i r_i and its gradient in one pass, for a psi that is summed."""
    tiles, sums = Tiles(scores), TermSums(scores)
    # One total per block of rows, to which its tiles add in turn: the same bits for any number of threads.
    totals = {rows.start: scores.terms.anchors_ND.new_zeros((), dtype=torch.float64) for rows in tiles.rows}

    def add(tile: Tile) -> None:
        prepare(tile, psi)
        total_HW = torch.zeros_like(tile.product_HW)
        for reading in readings(scores):
            u_OK = reading.scores(tile, scores.terms)
            if not (tile.is_on_diagonal and reading.is_column):
                totals[tile.rows.start] += tile.filled(reading.orient(psi.value(u_OK)), 0.0).sum()
            weight_HW = tile.fill(reading.orient(weight * psi.slope(u_OK)), 0.0)
            add_biases(sums.biases, reading, tile, reading.orient(weight_HW))
            total_HW += weight_HW
        sums.add_products(tile, total_HW)

    tiles.each(add)
    # The order is that of rows, in which the dictionary was filled.
    total = torch.stack(list(totals.values())).sum()
    return (weight * total).to(scores.terms.anchors_ND.dtype), sums.result()


@torch.no_grad()
def reduce_tangent(scores: PairScores, psi: PairFunction, statistic: PerAnchor, tangent: ScoreTerms) -> PerAnchor:
    """See ``contract.PairKernel.reduce_tangent``."""
    sums = _zeros(scores)

    def add(tile: Tile) -> None:
        prepare(tile, psi)
        moved_HW = product_tangent(scores, tangent, tile)
        for reading in counted_readings(scores, tile):
            v_OK = _shifted(reading, scores, tile, psi, statistic)
            slope_OK = exp_or_zero_(v_OK) if psi.in_log_domain else psi.slope(v_OK)
            slope_HW = tile.filled(reading.orient(slope_OK), 0.0)
            # A copy: biases of the tangent differ between readings.
            change_OK = reading.add_biases(reading.orient(moved_HW.clone()), tangent, tile)
            sums[reading.statistic][reading.own(tile)] += change_OK.mul_(reading.orient(slope_HW)).sum(1)

    Tiles(scores).each(add)
    return PerAnchor(*sums)


@torch.no_grad()
def gradient_tangent(
    scores: PairScores, psi: PairFunction, statistic: PerAnchor, weight: PerAnchor, tangent: ScoreTerms
) -> ScoreTerms:
    """See ``contract.PairKernel.gradient_tangent``: two passes, as the statistic of an exponential moves too."""
    # Pass one: r', as v' = u' - r' in the log domain.
    moved_statistic = reduce_tangent(scores, psi, statistic, tangent) if psi.in_log_domain else None
    sums = TermTangentSums(scores, tangent)

    def add(tile: Tile) -> None:
        prepare(tile, psi)
        moved_HW = product_tangent(scores, tangent, tile)
        slopes_HW, changes_HW = torch.zeros_like(moved_HW), torch.zeros_like(moved_HW)
        for reading in readings(scores):
            v_OK = _shifted(reading, scores, tile, psi, statistic)
            # A copy: the exponential is made in place, and the slope needs v again.
            curvature_HW = _weighted(reading, tile, psi, psi.curvature, v_OK.clone(), weight)
            slopes_HW += _weighted(reading, tile, psi, psi.slope, v_OK, weight)
            change_OK = reading.add_biases(reading.orient(moved_HW.clone()), tangent, tile)
            if moved_statistic is not None:
                change_OK -= moved_statistic.both()[reading.statistic][reading.own(tile), None]
            # w' = g psi''(v) v'
            change_OK *= reading.orient(curvature_HW)
            add_biases(sums.biases, reading, tile, change_OK)
            changes_HW += reading.orient(change_OK)
        sums.add_products(tile, slopes_HW, changes_HW)

    Tiles(scores).each(add)
    return sums.result()


def _shifted(reading: Reading, scores: PairScores, tile: Tile, psi: PairFunction, statistic: PerAnchor) -> Tensor:
    """u_ij - h_i in a reading's orientation."""
    v_OK = reading.scores(tile, scores.terms)
    if not psi.in_log_domain:
        return v_OK
    h_O = statistic.both()[reading.statistic][reading.own(tile)]
    return v_OK.sub_(torch.where(h_O == float("-inf"), 0.0, h_O)[:, None])  # an anchor without keys has no weights


def _weighted(reading: Reading, tile: Tile, psi: PairFunction, function, v_OK: Tensor, weight: PerAnchor) -> Tensor:
    """g_i psi'(v_ij) in the tile's own orientation, zero where a pair does not count."""
    values_OK = exp_or_zero_(v_OK) if psi.in_log_domain else function(v_OK)
    weight_O1 = weight.both()[reading.statistic][reading.own(tile), None]
    return tile.fill(reading.orient(values_OK * weight_O1), 0.0)


def _zeros(scores: PairScores) -> list[Tensor]:
    """Return a zero for each anchor: for the rows and, if they are anchors too, for the columns."""
    counts = [len(scores.terms.anchors_ND), len(scores.keys_MD)][: 1 + scores.is_two_way]
    return [scores.terms.anchors_ND.new_zeros(count) for count in counts]


def _reference(scores: PairScores, psi: PairFunction) -> float | None:
    """Return c; None if psi is summed, if scores have too large a bound B, or if keys add to scores."""
    terms = scores.terms
    if not psi.in_log_domain or any(bias is not None for bias in terms.flat()[3:]):
        return None
    first, last = _longest(terms.anchors_ND), _longest(scores.keys_MD)
    return common_reference(abs(float(terms.scale) * first * last), terms.anchors_ND.dtype)


def _is_exact(scores: PairScores, statistic: PerAnchor, reference: float) -> bool:
    num_keys = max(len(scores.terms.anchors_ND), len(scores.keys_MD))
    return not reference or all(is_exact(numbers - reference, num_keys) for numbers in statistic.both())


def _log_sums(scores: PairScores, reference: float) -> PerAnchor | None:
    # One sum of exponentials per statistic, all relative to e^c.
    sums = _zeros(scores)

    def add(tile: Tile) -> None:
        exp_HW = _exponentials(tile, reference)
        for reading in counted_readings(scores, tile):
            sums[reading.statistic][reading.own(tile)] += reading.orient(exp_HW).sum(1)

    Tiles(scores).each(add)
    # log 0 is minus infinity: the statistic of an anchor without keys.
    statistic = PerAnchor(*(torch.log(s) + reference for s in sums))
    return statistic if _is_exact(scores, statistic, reference) else None


def _log_sums_gradient(scores: PairScores, statistic: PerAnchor, weight: PerAnchor, reference: float) -> ScoreTerms:
    """Gradient of the weighted statistics: the weight of a pair is its exponential times a number per anchor."""
    sums = TermSums(scores)
    # The largest weight, or 1 if all are zero, is taken out: exp(c - r) may be near the largest number already.
    size = torch.stack([numbers.abs().amax() for numbers in weight.both()]).amax()
    size = torch.where(size > 0, size, 1.0)
    row_N = _factor(statistic.rows_N, weight.rows_N / size, reference)
    # e_ij = e_ji where anchors are keys: both readings weigh (row_i + row_j) e_ij.
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
    length_N = vectors_ND.new_empty(len(vectors_ND))
    by_rows(vectors_ND, lambda rows: torch.linalg.vector_norm(vectors_ND[rows], dim=1, out=length_N[rows]))
    return float(length_N.amax())


def _exponentials(tile: Tile, reference: float) -> Tensor:
    """exp(u_ij - c), in place of the products."""
    return tile.fill(exponentials_(tile.product_HW, reference), 0.0)


def _factor(statistic_N: Tensor, weight_N: Tensor, reference: float) -> Tensor:
    """g_i exp(c - r_i): what turns an exponential into the pair's weight; 0 for an anchor without keys."""
    return torch.where(statistic_N == float("-inf"), 0.0, weight_N * torch.exp(reference - statistic_N))
