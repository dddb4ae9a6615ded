"""Pair scores as the fused programs want them: contiguous vectors, biases and statistics in one vector per side."""

# N anchors, M keys, D features

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairFunction, PairScores, PerAnchor, ScoreTerms
from counterpoint.kernels.triton.triton_records import Direction, Pairs, Side

LOG2_E = 1.4426950408889634


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Dtype of products, sums and statistics for vectors of a dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def as_pairs(
    scores: PairScores, psi: PairFunction, dtype: torch.dtype, *, given: tuple[PerAnchor, PerAnchor] | None = None
) -> Pairs:
    """All pairs with the anchors as owners.

    Args:
        scores: the scores.
        psi: the elementwise function; scores are in units of ln 2 where it is the exponential.
        dtype: of the vectors that are multiplied.
        given: statistic and weight, for a gradient.

    Returns:
        The pairs; the first direction reads along the rows, the second along the columns, also where anchors are keys.
    """
    terms, mask, unit = scores.terms, scores.mask, LOG2_E if psi.in_log_domain else 1.0
    prepared = _Prepared(accumulator(dtype), unit)
    labels_N, labels_M = mask.anchor_labels_N, mask.key_labels_M
    if labels_N is None or labels_M is None:
        labels_N = labels_M = None
    owner = Side(_vectors(terms.anchors_ND, dtype), len(terms.anchors_ND), _contiguous(labels_N))
    keys_MD = owner.vectors_CD if scores.is_self else _vectors(scores.keys_MD, dtype)
    other = Side(keys_MD, len(keys_MD), _contiguous(labels_M))
    excluded_NE = None if mask.excluded_NE is None else mask.excluded_NE.to(torch.int32).contiguous()
    factor = (terms.scale.to(owner.vectors_CD.device, prepared.dtype) * unit).reshape(())
    bound = _bound(terms, owner.vectors_CD, other.vectors_CD, factor) if psi.in_log_domain else None
    rows = prepared.direction(terms.row_own_N, terms.row_other_M, psi, _at(given, 0))
    columns = None
    if scores.is_two_way:
        columns = flipped(prepared.direction(terms.column_own_M, terms.column_other_N, psi, _at(given, 1)))
    elif scores.is_self:
        columns = flipped(rows)
    return Pairs(owner, other, factor, excluded_NE, rows, columns, bound)


def from_the_keys(pairs: Pairs) -> Pairs:
    """The same pairs with the keys as owners; directions stay what they are, excluded indices belong to the others."""
    return Pairs(
        pairs.other,
        pairs.owner,
        pairs.factor,
        pairs.excluded_CE,
        flipped(pairs.first),
        None if pairs.second is None else flipped(pairs.second),
        pairs.bound,
    )


def flipped(direction: Direction) -> Direction:
    """A direction with owners and others exchanged."""
    by_owner_O, by_other_K, owner_weight_O, other_weight_K = direction
    return Direction(by_other_K, by_owner_O, other_weight_K, owner_weight_O)


def _bound(terms: ScoreTerms, owner_ND: Tensor, other_MD: Tensor, factor: Tensor) -> Tensor | None:
    """No score is farther from 0, on the device: nothing waits for it. None where something is added to products."""
    if any(bias is not None for bias in terms.flat()[3:]) or not len(owner_ND) or not len(other_MD):
        return None
    sides = (owner_ND,) if other_MD is owner_ND else (owner_ND, other_MD)
    longest = [torch.linalg.vector_norm(side, dim=1, dtype=factor.dtype).amax() for side in sides]
    return (factor * longest[0] * longest[-1]).abs()


class _Prepared:
    """What is added to the scores, in the accumulator's dtype and unit."""

    def __init__(self, dtype: torch.dtype, unit: float) -> None:
        self.dtype, self.unit = dtype, unit

    def direction(
        self, own: Tensor | None, other: Tensor | None, psi: PairFunction, given: tuple[Tensor, Tensor] | None
    ) -> Direction:
        """One reading, the anchors as owners."""
        own, other = (None if value is None else value.to(self.dtype) for value in (own, other))
        weight = None
        if given is not None:
            statistic, weight = (value.to(self.dtype) for value in given)
            if psi.in_log_domain:
                shift = torch.where(statistic == float("-inf"), 0.0, statistic)  # an anchor without keys
                own = -shift if own is None else own - shift
            weight = weight.contiguous()
        own, other = (None if value is None else (value * self.unit).contiguous() for value in (own, other))
        return Direction(own, other, weight, None)


def _vectors(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    return vectors.detach().to(dtype).contiguous()


def _contiguous(values: Tensor | None) -> Tensor | None:
    return None if values is None else values.contiguous()


def _at(given: tuple[PerAnchor, PerAnchor] | None, index: int) -> tuple[Tensor, Tensor] | None:
    """Statistic and weight of one reading."""
    if given is None:
        return None
    statistic, weight = ((part.rows_N, part.columns_M)[index] for part in given)
    assert statistic is not None
    assert weight is not None
    return statistic, weight
