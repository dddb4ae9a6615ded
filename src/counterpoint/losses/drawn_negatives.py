r"""Negatives drawn at random with replacement, and the inner products with them.

Draws are a pure function of (seed, step, place of the anchor in the batch): no global state, the same on every device
and however a batch is shared among processes.

The products :math:`u_{iq} = \langle a_i, k_{x(i,q)} \rangle` with drawn keys x and the two sums that pull them back,
:math:`\sum_q g_{iq} k_{x(i,q)}` and :math:`\sum_{iq} g_{iq} a_i [x(i,q) = j]`, are bilinear and each other's
derivatives, so that all orders of differentiation stay within the three. None holds more than A x K numbers and a strip
of A x M.
"""

# A anchors, M keys, K draws per anchor, C classes, D features, H anchors of a strip

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.counter_random import PURPOSE_NEGATIVES, words
from counterpoint.core.numerics import is_transformed, row_entropy
from counterpoint.core.thread_parts import in_order
from counterpoint.kernels.differentiable import PerSlice, written_out
from counterpoint.losses.conditions import can_read
from counterpoint.losses.labelled import LabelledVectors

STRIP_NUMBERS = 1 << 20


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
        return (word_AK * num_keys) >> 32
    # In the order of classes an anchor's own class is one stretch, which is stepped over.
    by_class_M = torch.argsort(vectors.class_M, stable=True)
    start_A1 = (vectors.counts_C.cumsum(0) - vectors.counts_C)[vectors.classes(), None]
    num_own_A1 = vectors.num_same()[:, None]
    rank_AK = (word_AK * (num_keys - num_own_A1)) >> 32
    return by_class_M[rank_AK + num_own_A1 * (rank_AK >= start_A1)]


def drawn_products(anchors_AD: Tensor, keys_MD: Tensor, index_AK: Tensor) -> Tensor:
    """Inner product of each anchor with its drawn keys, (a, k); differentiable to any order and in both modes."""
    return _Products.apply(index_AK, anchors_AD, keys_MD)  # pyright: ignore[reportReturnType]


def drawn_entropy(weight_AK: Tensor, index_AK: Tensor, num_keys: int) -> Tensor:
    """Entropy of each anchor's weights, (a,), where several draws of one key count as one; not differentiable."""
    strips = _strips(index_AK, num_keys)
    return torch.cat([row_entropy(_spread(index_AK, weight_AK, rows, num_keys)) for rows in strips])


class _Products(PerSlice):
    """u_iq = <a_i, k_x(i,q)>."""

    @staticmethod
    def forward(index_AK: Tensor, *inputs: Tensor) -> Tensor:
        a_AD, k_MD = _numbers(inputs)
        products_AK = a_AD.new_empty(index_AK.shape)

        def compute(rows: slice) -> Tensor:
            return (a_AD[rows] @ k_MD.T).gather(1, index_AK[rows])

        _each_strip(index_AK, len(k_MD), compute, lambda rows, strip_HK: products_AK[rows].copy_(strip_HK))
        return products_AK

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _save(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        index_AK, a_AD, k_MD = ctx.saved_tensors
        g_AK = upstream[0]
        return None, _AnchorSums.apply(index_AK, g_AK, k_MD), _KeySums.apply(index_AK, g_AK, a_AD, len(k_MD))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        index_AK, a_AD, k_MD = ctx.saved_tensors
        return _product_rule(lambda a, k: _Products.apply(index_AK, a, k), (a_AD, k_MD), tangents[1:3])


class _AnchorSums(PerSlice):
    """sum_q g_iq k_x(i,q) for each anchor."""

    @staticmethod
    def forward(index_AK: Tensor, *inputs: Tensor) -> Tensor:
        g_AK, k_MD = _numbers(inputs)
        sums_AD = k_MD.new_empty(len(index_AK), k_MD.shape[1])

        def compute(rows: slice) -> Tensor:
            return _spread(index_AK, g_AK, rows, len(k_MD)) @ k_MD

        _each_strip(index_AK, len(k_MD), compute, lambda rows, strip_HD: sums_AD[rows].copy_(strip_HD))
        return sums_AD

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _save(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        index_AK, g_AK, k_MD = ctx.saved_tensors
        v_AD = upstream[0]
        return None, _Products.apply(index_AK, v_AD, k_MD), _KeySums.apply(index_AK, g_AK, v_AD, len(k_MD))

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        index_AK, g_AK, k_MD = ctx.saved_tensors
        return _product_rule(lambda g, k: _AnchorSums.apply(index_AK, g, k), (g_AK, k_MD), tangents[1:3])


class _KeySums(PerSlice):
    """sum_iq g_iq a_i over the draws x(i, q) = j, for each key j."""

    @staticmethod
    def forward(index_AK: Tensor, g_AK: Tensor, a_AD: Tensor, num_keys: int) -> Tensor:
        g_AK, a_AD = _numbers((g_AK, a_AD))
        sums_MD = a_AD.new_zeros(num_keys, a_AD.shape[1])

        def compute(rows: slice) -> Tensor:
            return _spread(index_AK, g_AK, rows, num_keys)

        _each_strip(index_AK, num_keys, compute, lambda rows, weight_HM: sums_MD.addmm_(weight_HM.T, a_AD[rows]))
        return sums_MD

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.num_keys = inputs[3]
        _save(ctx, inputs[:3])

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        index_AK, g_AK, a_AD = ctx.saved_tensors
        v_MD = upstream[0]
        return None, _Products.apply(index_AK, a_AD, v_MD), _AnchorSums.apply(index_AK, g_AK, v_MD), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        index_AK, g_AK, a_AD = ctx.saved_tensors
        return _product_rule(lambda g, a: _KeySums.apply(index_AK, g, a, ctx.num_keys), (g_AK, a_AD), tangents[1:3])


def _strips(index_AK: Tensor, num_keys: int) -> Iterator[slice]:
    """Anchors in strips of bounded size."""
    height = max(1, STRIP_NUMBERS // num_keys)
    for top in range(0, len(index_AK), height):
        yield slice(top, top + height)


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


def _product_rule(of: Any, factors: tuple[Tensor, Tensor], moves: Any) -> Tensor | None:
    """Change of a bilinear function along a direction."""
    changes = []
    if moves[0] is not None:
        changes.append(of(moves[0], factors[1]))
    if moves[1] is not None:
        changes.append(of(factors[0], moves[1]))
    return changes[0] + changes[1] if len(changes) == 2 else (changes or [None])[0]


def _numbers(inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """Autograd's symbolic zeros as numbers."""
    first, second = written_out(inputs)
    assert first is not None
    assert second is not None
    return first, second


def _save(ctx: Any, inputs: tuple[Any, ...]) -> None:
    """Keep all for both modes."""
    ctx.save_for_backward(*inputs)
    ctx.save_for_forward(*inputs)
