"""Every loss of the catalogue on a GPU beside float64: values, gradients, products with the Hessian, and bits.

Sizes are no multiples of tiles: sums held in registers (100 features), and weights written out (300 features).
"""

# N samples per view, D features

import pytest
import torch
from test_loss_catalogue import make
from torch import Tensor

from counterpoint.kernels import select
from counterpoint.losses import CATALOGUE, DCL, InfoNCE, Loss
from tolerances import RELATIVE, relative_error

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: losses are not run on one")
SIZES = [(331, 100), (517, 300)]
# Of float32 as everywhere; half precision rounds each factor of a product once, sums stay in float32.
LIMIT = {**RELATIVE, torch.bfloat16: 2.0**-6, torch.float16: 2.0**-9}


def draw(n: int, d: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Two views of which the second is near the first, and classes; on the CPU."""
    z = torch.randn(2, n, d, generator=torch.Generator().manual_seed(0))
    z0, z1 = z[0], z[0] + 0.5 * z[1]
    return z0.to(dtype), z1.to(dtype), torch.arange(n) % 3


def derivatives(loss: Loss, z0: Tensor, z1: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    views = z0.requires_grad_(), z1.requires_grad_()
    value = loss(*views, labels)
    upstream = torch.full_like(value, 1024.0)  # or float16 could not hold the gradients
    return value.detach(), torch.stack(torch.autograd.grad(value, views, upstream))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", CATALOGUE)
def test_values_and_gradients_are_those_of_float64(name: str, dtype: torch.dtype, size: tuple[int, int]) -> None:
    z0, z1, labels = draw(*size, dtype)
    torch.manual_seed(0)
    exact = make(name, size[1])
    truth = derivatives(exact, z0.double(), z1.double(), labels)
    loss = exact.to("cuda", torch.float64 if dtype == torch.float64 else torch.float32)
    with select.recording() as choices:
        ours = derivatives(loss, z0.cuda(), z1.cuda(), labels.cuda())
    assert not [choice for choice in choices if "did not start" in choice.reason]
    for actual, expected in zip(ours, truth, strict=True):
        assert relative_error(actual, expected) <= LIMIT[dtype]


@pytest.mark.parametrize("loss", [InfoNCE(0.02), InfoNCE(0.5), DCL(0.1)], ids=lambda loss: loss.card.name)
def test_fused_programs_are_chosen_and_give_the_same_bits_and_products_with_the_hessian(loss: Loss) -> None:
    z0, z1, labels = draw(700, 100, torch.float32)
    direction = torch.randn(2, 700, 100, generator=torch.Generator().manual_seed(1))

    def product(*given: Tensor) -> Tensor:
        z0, z1, labels, direction = given
        views = z0.requires_grad_(), z1.requires_grad_()
        slopes = torch.autograd.grad(loss(*views, labels), views, create_graph=True)
        return torch.stack(torch.autograd.grad((torch.stack(slopes) * direction).sum(), views))

    truth = product(z0.double(), z1.double(), labels, direction.double())
    on_gpu = [value.cuda() for value in (z0, z1, labels, direction)]
    with select.recording() as choices:
        first, second = (derivatives(loss, *(value.clone() for value in on_gpu[:3])) for _ in range(2))
    assert "triton" in {choice.name for choice in choices}
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    assert relative_error(product(*on_gpu), truth) <= 10 * RELATIVE[torch.float32]
