"""Pair reductions inside compiled code: the matrix as plain operations where it is small, else one opaque operator.

``torch.compile`` sees through ``dense`` and fuses it. Loops over tiles, threads and launches of fused programs are
hidden in operators that it calls as they are; the kernel is chosen when they run. First derivatives only: compiled code
has no others.
"""

# N anchors, M keys

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from counterpoint.kernels import contract, dense
from counterpoint.kernels.contract import NUM_TERMS, PairFunction, PairMask, PairScores, PerAnchor, ScoreTerms
from counterpoint.kernels.cpu import linear
from counterpoint.kernels.select import DENSE_PAIRS, select

# An operator takes tensors, numbers and texts: psi travels by its name.
BY_NAME = {f.name: f for f in vars(contract).values() if isinstance(f, PairFunction)}


def reduce(scores: PairScores, psi: PairFunction) -> PerAnchor:
    """Statistic of each anchor; see ``differentiable.reduce``. A user's own psi takes the matrix at any size."""
    if psi is contract.IDENTITY and not scores.is_two_way and scores.mask.anchor_labels_N is None:
        return linear.reduce(scores, psi)
    num_pairs = len(scores.terms.anchors_ND) * len(scores.keys_MD)
    if num_pairs <= DENSE_PAIRS or BY_NAME.get(psi.name) != psi:
        return dense.reduce(scores, psi)
    rows_N, columns_M = torch.ops.counterpoint.pair_statistic(*_packed(scores), psi.name)
    return PerAnchor(rows_N, columns_M if scores.is_two_way else None)


def _packed(scores: PairScores) -> tuple[list[Tensor], list[bool]]:
    """Scores as an operator takes them, which must have a tensor where there is none: one without numbers."""
    mask, nothing = scores.mask, scores.terms.anchors_ND.new_empty(0)
    given = (*scores.terms.flat(), mask.excluded_NE, mask.anchor_labels_N, mask.key_labels_M)
    return [nothing if t is None else t for t in given], [mask.keeps_same_label, mask.is_ragged, scores.is_two_way]


def _unpacked(tensors: Sequence[Tensor], flags: Sequence[bool]) -> PairScores:
    """The scores again."""
    # So many pairs (above DENSE_PAIRS) have no empty term: the shape is free to stand for None.
    given: list[Any] = [None if t.shape == (0,) else t for t in tensors]
    return PairScores(ScoreTerms(*given[:NUM_TERMS]), PairMask(*given[NUM_TERMS:], *flags[:2]), flags[2])


@torch.library.custom_op("counterpoint::pair_statistic", mutates_args=())
def _statistic(tensors: Sequence[Tensor], flags: Sequence[bool], psi: str) -> tuple[Tensor, Tensor]:
    scores = _unpacked(tensors, flags)
    result = select(scores, BY_NAME[psi]).kernel.reduce(scores, BY_NAME[psi])
    return _own(result.rows_N, scores), _own(result.columns_M, scores)


@torch.library.custom_op("counterpoint::pair_gradient", mutates_args=())
def _gradient(
    tensors: Sequence[Tensor], flags: Sequence[bool], psi: str, statistics: Sequence[Tensor], weights: Sequence[Tensor]
) -> list[Tensor]:
    scores = _unpacked(tensors, flags)
    count = 1 + scores.is_two_way
    kernel, given = select(scores, BY_NAME[psi]).kernel, (PerAnchor(*statistics[:count]), PerAnchor(*weights[:count]))
    return [_own(part, scores) for part in kernel.gradient(scores, BY_NAME[psi], *given).flat()]


def _own(value: Tensor | None, scores: PairScores) -> Tensor:
    """Memory that nobody else has, as operators must return it; no numbers for None."""
    return scores.terms.anchors_ND.new_empty(0) if value is None else value.clone(memory_format=torch.contiguous_format)


@_statistic.register_fake
def _(tensors: Sequence[Tensor], flags: Sequence[bool], psi: str) -> tuple[Tensor, Tensor]:
    anchors_ND, keys_MD = tensors[:2]
    # flags[2] is `is_two_way`: column statistics, or none.
    return anchors_ND.new_empty(len(anchors_ND)), anchors_ND.new_empty(len(keys_MD) if flags[2] else 0)


@_gradient.register_fake
def _(tensors: Sequence[Tensor], *_: Any) -> list[Tensor]:
    # An absent term has the gradient of its stand-in, which has no numbers either.
    return [term.new_empty(term.shape) for term in tensors[:NUM_TERMS]]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """What the gradient is made of."""
    tensors, *ctx.how = inputs
    ctx.save_for_backward(*tensors, *output)


def _pull_back(ctx: Any, *weights: Tensor) -> tuple[Any, ...]:
    """Gradient of the weighted statistics for each term."""
    *tensors, rows_N, columns_M = ctx.saved_tensors
    found = torch.ops.counterpoint.pair_gradient(tensors, *ctx.how, [rows_N, columns_M], list(weights))
    # Indices and labels have no gradient.
    return [*found, *(None for _ in tensors[NUM_TERMS:])], None, None


_statistic.register_autograd(_pull_back, setup_context=_keep)
