"""The row reduction as one autograd operation over any kernel: only the row statistics are kept for backward."""

# N anchors, M keys, D features

from typing import Any

import torch
from torch import Tensor

from counterpoint.kernels.contract import PairKernel, PairScores


def row_logsumexp(scores: PairScores, kernel: PairKernel) -> Tensor:
    r"""Per-anchor log-sum-exp with gradients for anchors, keys and both biases.

    Backward recomputes the pair weights :math:`w_{ij} = g_i e^{u_{ij} - \mathrm{lse}_i}` and needs nothing but their
    sums, so
    no n x m matrix outlives the forward pass. The backward pass is itself made of differentiable operations on the
    saved inputs *and on lse*, hence ``create_graph=True`` gives the true second derivative, not that of a held weight.

    Args:
        scores: the pair scores; ``scale`` is a constant.
        kernel: a module or object with the two operations of ``contract.PairKernel``; for second
            derivatives its ``pair_sums`` must be differentiable (``dense`` is).

    Returns:
        Tensor of shape (n,).
    """
    return _RowLogSumExp.apply(  # pyright: ignore[reportReturnType]
        scores.anchors_ND,
        scores.keys_MD,
        scores.anchor_bias_N,
        scores.key_bias_M,
        scores.excluded_NE,
        (scores.scale, kernel),
    )


class _RowLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        scores, kernel = _unpack(inputs)
        return kernel.row_logsumexp(scores)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, ctx.constants = inputs
        ctx.save_for_backward(*tensors, output)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, lse_N = ctx.saved_tensors
        scores, kernel = _unpack((*tensors, ctx.constants))
        sums = kernel.pair_sums(scores, grad_outputs[0], lse_N)
        grad_anchors_ND = scores.scale * sums.weighted_keys_ND
        grad_keys_MD = scores.scale * sums.weighted_anchors_MD
        return grad_anchors_ND, grad_keys_MD, sums.row_sums_N, sums.column_sums_M, None, None


def _unpack(flat: tuple[Any, ...]) -> tuple[PairScores, PairKernel]:
    """Rebuild the record from autograd's flat list."""
    anchors_ND, keys_MD, anchor_bias_N, key_bias_M, excluded_NE, (scale, kernel) = flat
    return PairScores(anchors_ND, keys_MD, scale, anchor_bias_N, key_bias_M, excluded_NE), kernel
