"""Products with the Hessian of convnets are those of the dense Hessian."""

from collections.abc import Callable

import pytest
import torch
from small_problems import dense_hessian
from torch import Tensor, nn
from torch.func import functional_call

from counterpoint.diagnostics.curvature.hessian_products import CoupledLoss, hessian_operator
from counterpoint.losses import InfoNCE

N = 4


def convnet(norm: Callable[[], nn.Module]) -> nn.Module:
    """Two convolutions with what a layer may have, smooth."""
    torch.manual_seed(0)
    first, last = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 4, 2, stride=2, bias=False)
    module = nn.Sequential(first, norm(), nn.Tanh(), last, norm(), nn.Flatten(), nn.Linear(16, 3)).double()
    for layer in (module[1], module[4]):
        nn.init.normal_(layer.get_parameter("weight"))
    return module


def maps_problem(module: nn.Module) -> CoupledLoss:
    """InfoNCE of pairs of small maps."""
    generator = torch.Generator().manual_seed(1)
    x0, noise = torch.randn(2, N, 2, 4, 4, generator=generator, dtype=torch.float64)
    loss = InfoNCE(0.5)

    def encode(parameters: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        return torch.stack([functional_call(module, parameters, (x,)) for x in inputs], dim=1)

    parameters = {name: value.detach() for name, value in module.named_parameters()}
    views = (x0, x0 + 0.4 * noise)
    return CoupledLoss(encode, lambda _, z: loss(z[:, 0], z[:, 1]), parameters, views)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("norm", [lambda: nn.GroupNorm(2, 4), lambda: nn.BatchNorm2d(4)])
def test_products_of_convnets_are_those_of_the_dense_hessian(
    norm: Callable[[], nn.Module], generator: torch.Generator
) -> None:
    coupled = maps_problem(convnet(norm))
    hessian_PP = dense_hessian(coupled)
    v_P = torch.randn(coupled.num_parameters, generator=generator, dtype=torch.float64)
    expected = hessian_PP @ v_P
    found = hessian_operator(coupled) @ v_P
    assert float((found - expected).abs().max()) < 1e-10 * float(expected.abs().max())
