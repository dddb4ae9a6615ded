"""The row reduction under autograd: first and second derivatives, and which kernels may give them."""

# N anchors, M keys, D features

import math
from collections.abc import Callable, Iterable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from counterpoint.kernels import dense, reference
from counterpoint.kernels.contract import PairScores, PairSums
from counterpoint.kernels.differentiable import row_logsumexp
from tolerances import assert_close

EXCLUDED = torch.tensor([[0], [2], [4]])


def draw_inputs() -> tuple[Tensor, ...]:
    """Anchors (3, 2), keys (5, 2) and both biases, with gradients."""
    generator = torch.Generator().manual_seed(5)
    shapes = [(3, 2), (5, 2), (3,), (5,)]
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes)


def reduce(kernel: ModuleType, *inputs: Tensor) -> Tensor:
    anchors, keys, anchor_bias, key_bias = inputs
    return row_logsumexp(PairScores(anchors, keys, 1.3, anchor_bias, key_bias, EXCLUDED), kernel)


def flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors])


@pytest.mark.parametrize("kernel", [dense, reference], ids=lambda kernel: kernel.__name__)
def test_the_gradient_equals_finite_differences(kernel: ModuleType) -> None:
    assert torch.autograd.gradcheck(lambda *inputs: reduce(kernel, *inputs), draw_inputs())


def test_the_second_derivative_equals_finite_differences() -> None:
    assert torch.autograd.gradgradcheck(lambda *inputs: reduce(dense, *inputs), draw_inputs())


def test_gradient_and_hessian_equal_those_of_plain_autograd() -> None:
    """torch.logsumexp over the score matrix is the same function, differentiated by torch alone."""

    def plain(*inputs: Tensor) -> Tensor:
        anchors, keys, anchor_bias, key_bias = inputs
        u_NM = 1.3 * anchors @ keys.T + anchor_bias[:, None] + key_bias
        return torch.logsumexp(u_NM.masked_fill(torch.eye(5).bool()[EXCLUDED[:, 0]], -math.inf), dim=1)

    def derivatives(function: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        inputs = draw_inputs()
        value = (function(*inputs) * torch.tensor([1.0, -2.0, 0.5])).sum()
        first = flat(torch.autograd.grad(value, inputs, create_graph=True))
        return first, flat(torch.autograd.grad(first.square().sum(), inputs))

    ours, expected = derivatives(lambda *inputs: reduce(dense, *inputs)), derivatives(plain)
    assert_close(ours[0], expected[0])
    assert_close(ours[1], expected[1])


def test_the_gradient_is_the_reference_kernels_sums() -> None:
    """d lse_i / d a_i = scale * sum_j w_ij k_j with softmax weights w, and so on for keys and biases."""
    inputs, upstream = draw_inputs(), torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    reduce(dense, *inputs).backward(upstream)
    anchors, keys, anchor_bias, key_bias = (x.detach() for x in inputs)
    scores = PairScores(anchors, keys, 1.3, anchor_bias, key_bias, EXCLUDED)
    sums: PairSums = reference.pair_sums(scores, upstream, reference.row_logsumexp(scores))
    expected = [1.3 * sums.weighted_keys_ND, 1.3 * sums.weighted_anchors_MD, sums.row_sums_N, sums.column_sums_M]
    for x, gradient in zip(inputs, expected, strict=True):
        assert x.grad is not None
        assert_close(x.grad, gradient)
    assert_close(sums.row_sums_N, upstream)  # softmax weights sum to 1


def test_a_kernel_without_second_derivatives_raises_rather_than_hold_its_weights_fixed() -> None:
    """Second derivatives take the true route or raise (architecture page)."""
    anchors, keys, anchor_bias, key_bias = draw_inputs()
    total = reduce(reference, anchors, keys, anchor_bias, key_bias).sum()
    (slope,) = torch.autograd.grad(total, anchors, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(slope.square().sum(), keys)


def test_one_tensor_as_anchors_and_keys_gets_both_gradients() -> None:
    (z, *_) = draw_inputs()
    bias = torch.zeros(3, dtype=torch.float64)
    self_excluded = torch.arange(3)[:, None]
    assert torch.autograd.gradcheck(lambda z: row_logsumexp(PairScores(z, z, 2.0, bias, bias, self_excluded), dense), z)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_extreme_scores_keep_their_gradient(dtype: torch.dtype) -> None:
    """Temperature 0.01 and |z| = 1e3: scores of 1e8, yet the nearest key takes all the weight and none is lost."""
    anchors = torch.tensor([[1000.0, 0.0]], dtype=dtype, requires_grad=True)
    keys = torch.tensor([[1000.0, 0.0], [0.0, 1000.0], [-1000.0, 0.0]], dtype=dtype, requires_grad=True)
    anchor_bias, key_bias = torch.zeros(1, dtype=dtype), torch.zeros(3, dtype=dtype)
    scores = PairScores(anchors, keys, 100.0, anchor_bias, key_bias, torch.zeros(1, 0).long())
    row_logsumexp(scores, dense).sum().backward()
    assert anchors.grad is not None
    assert keys.grad is not None
    assert anchors.grad.tolist() == [[1e5, 0.0]]
    assert keys.grad.tolist() == [[1e5, 0.0], [0.0, 0.0], [0.0, 0.0]]
