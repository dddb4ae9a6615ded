r"""Negatives drawn at random with replacement, and the inner products with them.

Draws are a pure function of (seed, step, place of the anchor in the batch): no global state, the same on every device
and however a batch is shared among processes.

The products :math:`u_{iq} = \langle a_i, k_{x(i,q)} \rangle` with drawn keys x, and the two sums that pull them back,
:math:`\sum_q g_{iq} k_{x(i,q)}` and :math:`\sum_{iq} g_{iq} a_i [x(i,q) = j]`, are the slopes of one sum that is linear
in each of three factors, :math:`F(g, a, k) = \sum_{iq} g_{iq} \langle a_i, k_{x(i,q)} \rangle`: all orders of
differentiation stay within the three. None holds more than A x K numbers and a strip of A x M.
"""

# A anchors, M keys, K draws per anchor, C classes, D features, H anchors of a strip

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.counter_random import PURPOSE_NEGATIVES, words
from counterpoint.core.numerics import is_transformed
from counterpoint.core.thread_parts import in_order
from counterpoint.kernels.differentiable import PerSlice, written_out
from counterpoint.losses.inputs import can_read
from counterpoint.losses.labelled import LabelledVectors

STRIP_NUMBERS = 1 << 20  # 4 MiB of float32


def draw_negatives(
    vectors: LabelledVectors, num_draws: int, *, seed: int, step: int, other_labels_only: bool
) -> Tensor:
    """Draw keys for each anchor, uniformly and with replacement, from all vectors or from those of other labels.

    Args:
        vectors: the batch.
        num_draws: keys per anchor.
        seed: non-negative int below 2**64.
        step: non-negative int below 2**32; each step has its own draws.
        other_labels_only: never draw a vector of the anchor's label.

    Returns:
        int64 tensor (a, num_draws) of places among all vectors. A probability is off by less than 2**-32.
    """
    word_AK = words(seed, step, vectors.index_A, PURPOSE_NEGATIVES, num_draws)
    num_keys = len(vectors.all_MD)
    if not other_labels_only:
        # Words have 32 bits: the product fits int64, and its high half is uniform over the keys.
        return (word_AK * num_keys) >> 32
    # In the order of classes an anchor's own class is one stretch, which is stepped over.
    # Stable, so that ties, and with them the draws, are the same on every device.
    by_class_M = torch.argsort(vectors.class_M, stable=True)
    start_A1 = (vectors.counts_C.cumsum(0) - vectors.counts_C)[vectors.classes(), None]
    num_own_A1 = vectors.num_same()[:, None]
    rank_AK = (word_AK * (num_keys - num_own_A1)) >> 32
    return by_class_M[rank_AK + num_own_A1 * (rank_AK >= start_A1)]


def drawn_products(anchors_AD: Tensor, keys_MD: Tensor, index_AK: Tensor) -> Tensor:
    """Inner product of each anchor with its drawn keys, (a, k); differentiable to any order and in both modes."""
    # F is linear in g: its slope for g_iq is the product u_iq.
    return _Slope.apply(index_AK, len(keys_MD), None, anchors_AD, keys_MD)  # pyright: ignore[reportReturnType]


class _Slope(PerSlice):
    """Slope of the sum F for one of its three factors, the one that is None; it is made of the other two."""

    @staticmethod
    def forward(index_AK: Tensor, num_keys: int, *factors: Tensor | None) -> Tensor:
        g_AK, a_AD, k_MD = written_out(factors)
        if g_AK is None:
            return _products(index_AK, a_AD, k_MD)
        if a_AD is None:
            return _anchor_sums(index_AK, g_AK, k_MD)
        return _key_sums(index_AK, g_AK, a_AD, num_keys)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        index_AK, ctx.num_keys, *factors = inputs
        ctx.save_for_backward(index_AK, *factors)
        ctx.save_for_forward(index_AK, *factors)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        index_AK, *factors = ctx.saved_tensors
        filled = [upstream[0] if factor is None else factor for factor in factors]  # F itself is linear in what comes
        slopes = [
            None if factor is None else _Slope.apply(index_AK, ctx.num_keys, *_with(filled, place, None))
            for place, factor in enumerate(factors)
        ]
        return None, None, *slopes

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        index_AK, *factors = ctx.saved_tensors
        changes = [
            # The product rule: the slope is linear in either of the two factors that are given.
            _Slope.apply(index_AK, ctx.num_keys, *_with(factors, place, move))
            for place, move in enumerate(tangents[2:])
            if move is not None
        ]
        return sum(changes[1:], changes[0]) if changes else None


def _with(factors: Sequence[Tensor | None], place: int, factor: Tensor | None) -> list[Tensor | None]:
    """All factors, with another one in one place."""
    return [factor if at == place else kept for at, kept in enumerate(factors)]


def _products(index_AK: Tensor, a_AD: Any, k_MD: Any) -> Tensor:
    """u_iq = <a_i, k_x(i,q)>."""
    products_AK = a_AD.new_empty(index_AK.shape)

    def compute(rows: slice) -> Tensor:
        # All products of a strip, then those drawn: gathering K keys per anchor first would take A K D numbers.
        return (a_AD[rows] @ k_MD.T).gather(1, index_AK[rows])

    _each_strip(index_AK, len(k_MD), compute, lambda rows, strip_HK: products_AK[rows].copy_(strip_HK))
    return products_AK


def _anchor_sums(index_AK: Tensor, g_AK: Tensor, k_MD: Any) -> Tensor:
    """sum_q g_iq k_x(i,q) for each anchor."""
    sums_AD = k_MD.new_empty(len(index_AK), k_MD.shape[1])

    def compute(rows: slice) -> Tensor:
        # As a matrix of weights at the keys, so that a sum over draws is a product of matrices.
        return _spread(index_AK, g_AK, rows, len(k_MD)) @ k_MD

    _each_strip(index_AK, len(k_MD), compute, lambda rows, strip_HD: sums_AD[rows].copy_(strip_HD))
    return sums_AD


def _key_sums(index_AK: Tensor, g_AK: Tensor, a_AD: Tensor, num_keys: int) -> Tensor:
    """sum_iq g_iq a_i over the draws x(i, q) = j, for each key j."""
    sums_MD = a_AD.new_zeros(num_keys, a_AD.shape[1])

    def compute(rows: slice) -> Tensor:
        return _spread(index_AK, g_AK, rows, num_keys)

    # All strips add to the same keys; their order is fixed, so that the bits do not depend on the number of threads.
    _each_strip(index_AK, num_keys, compute, lambda rows, weight_HM: sums_MD.addmm_(weight_HM.T, a_AD[rows]))
    return sums_MD


def _strips(index_AK: Tensor, num_keys: int) -> Iterator[slice]:
    height = max(1, STRIP_NUMBERS // num_keys)
    for top in range(0, len(index_AK), height):
        yield slice(top, top + height)  # the last may reach beyond the end


def _each_strip(
    index_AK: Tensor, num_keys: int, compute: Callable[[slice], Tensor], add: Callable[[slice, Tensor], Any]
) -> None:
    """What is computed of each strip, handed on in their order."""
    is_parallel = can_read(index_AK) and not is_transformed()
    in_order(_strips(index_AK, num_keys), compute, add, is_parallel=is_parallel)


def _spread(index_AK: Tensor, g_AK: Tensor, rows: slice, num_keys: int) -> Tensor:
    """Weights of a strip's draws at the keys they drew, added up; (h, m)."""
    g_HK = g_AK[rows]
    return g_HK.new_zeros(len(g_HK), num_keys).scatter_add_(1, index_AK[rows], g_HK)
