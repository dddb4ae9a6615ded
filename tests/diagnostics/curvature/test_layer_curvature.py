"""The closed second derivative of a convolution is that of finite differences and of torch's own decomposition."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from small_problems import dense_hessian
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from counterpoint.diagnostics.curvature.coupled_loss import CoupledLoss
from counterpoint.diagnostics.curvature.hessian_products import chunked_products, kept_products
from counterpoint.diagnostics.curvature.layer_curvature import ShortSecondDerivatives
from counterpoint.losses import InfoNCE

Layer = Callable[..., Tensor]
N = 4
CASES: dict[str, tuple[Layer, tuple[tuple[int, ...], ...]]] = {
    "conv2d, strided, biased": (lambda x, w, b: F.conv2d(x, w, b, 2, 1), ((2, 2, 4, 3), (2, 2, 3, 3), (2,))),
    "conv2d, grouped": (lambda x, w: F.conv2d(x, w, None, (2, 1), 1, 1, 2), ((2, 2, 4, 3), (2, 1, 3, 3))),
    "conv2d, dilated": (lambda x, w: F.conv2d(x, w, None, 1, 1, 2), ((2, 2, 5, 4), (3, 2, 2, 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_first_and_second_derivatives_are_those_of_finite_differences(name: str) -> None:
    layer, shapes = CASES[name]
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(s, generator=generator, dtype=torch.float64, requires_grad=True) for s in shapes]

    def short(*given: Tensor) -> Tensor:
        with ShortSecondDerivatives():
            return layer(*given).sin()

    output = short(*inputs)
    assert "Backward" in type(output.grad_fn.next_functions[0][0]).__name__  # pyright: ignore[reportOptionalMemberAccess]
    assert torch.allclose(output, layer(*inputs).sin(), rtol=1e-12, atol=1e-12)
    assert gradcheck(short, inputs)
    assert gradgradcheck(short, inputs)


def test_the_closed_form_is_used() -> None:
    weight = torch.ones(4, 4, 1, 1, requires_grad=True)
    with ShortSecondDerivatives():
        found = F.conv2d(torch.randn(2, 4, 3, 3), weight)
    assert type(found.grad_fn).__name__ == "_ConvolutionBackward"


def test_batch_norm_leaves_its_statistics_as_they_are() -> None:
    layer, x = nn.BatchNorm2d(3), torch.randn(2, 3, 2, 2)
    with ShortSecondDerivatives():
        normed = layer(x)
    assert torch.equal(torch.as_tensor(layer.running_mean), torch.zeros(3))
    assert torch.equal(normed, layer(x))


def test_what_it_does_not_cover_goes_to_torch() -> None:
    x, ones = torch.randn(4, 3, 3), torch.ones(4)
    weight = torch.randn(4, 4, 3, 3)
    with ShortSecondDerivatives():
        assert torch.equal(F.conv2d(x, weight), torch.conv2d(x[None], weight)[0])
        assert F.conv2d(x[None], weight, padding="same").shape == (1, 4, 3, 3)
        assert torch.equal(F.group_norm(x[None], 2), torch.group_norm(x[None], 2))
        frozen = F.batch_norm(x[None], torch.zeros(4), ones, ones, ones, False)
        with pytest.raises(ValueError, match="more than 1 value"):
            F.batch_norm(torch.ones(1, 4), None, None, ones, ones, True)
    assert torch.allclose(frozen, x[None] + 1, atol=1e-4)


def convnet(norm: Callable[[], nn.Module]) -> nn.Module:
    """Two convolutions with what a layer may have, smooth."""
    torch.manual_seed(0)
    first, last = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 2, stride=2, bias=False)
    module = nn.Sequential(first, norm(), nn.Tanh(), last, norm(), nn.Flatten(), nn.Linear(16, 3)).double()
    for layer in (module[1], module[4]):
        nn.init.normal_(layer.get_parameter("weight"))
    return module


def maps_problem(module: nn.Module, *, is_separable: bool) -> CoupledLoss:
    """InfoNCE of pairs of small maps."""
    generator = torch.Generator().manual_seed(1)
    x0, noise = torch.randn(2, N, 2, 4, 4, generator=generator, dtype=torch.float64)
    loss = InfoNCE(0.5)

    def encode(parameters: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        return torch.stack([functional_call(module, parameters, (x,)) for x in inputs], dim=1)

    parameters = {name: value.detach() for name, value in module.named_parameters()}
    views = (x0, x0 + 0.4 * noise)
    return CoupledLoss(encode, lambda _, z: loss(z[:, 0], z[:, 1]), parameters, views, is_separable)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("norm", "is_separable"), [(lambda: nn.GroupNorm(2, 4), True), (lambda: nn.BatchNorm2d(4), False)]
)
def test_products_of_convnets_are_those_of_the_dense_hessian(
    norm: Callable[[], nn.Module], is_separable: bool, generator: torch.Generator
) -> None:
    coupled = maps_problem(convnet(norm), is_separable=is_separable)
    hessian_PP = dense_hessian(coupled)
    v_P = torch.randn(coupled.num_parameters, generator=generator, dtype=torch.float64)
    expected = hessian_PP @ v_P
    ways = [kept_products(coupled)]
    if is_separable:
        ways += [kept_products(coupled, part_size=3), chunked_products(coupled, 1), chunked_products(coupled, 3)]
    for operator in ways:
        assert float((operator @ v_P - expected).abs().max()) < 1e-10 * float(expected.abs().max())
        assert float((operator @ v_P - ways[0] @ v_P).abs().max()) < 1e-12 * float(expected.abs().max())
