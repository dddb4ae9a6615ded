"""What every loss does when it is called: autocast leaves it alone, NaN does not pass, related views, pickling."""

import copy
import io
import math

import numpy as np
import pytest
import torch
from test_loss_catalogue import LABELS, draw_views, each_loss, make
from torch import Tensor

from counterpoint import losses
from counterpoint.core.errors import NonFiniteError
from counterpoint.kernels.select import recording, use
from counterpoint.losses import InfoNCE
from counterpoint.losses.loss import Loss
from tolerances import assert_close


def single_views() -> tuple[Tensor, Tensor]:
    z0, z1 = (z.detach().float().requires_grad_() for z in draw_views())
    return z0, z1


@each_loss
@pytest.mark.parametrize("named", [False, True])
def test_autocast_does_not_touch_it(name: str, named: bool) -> None:
    loss, (z0, z1) = make(name).float(), single_views()
    expected = loss(z0, z1, LABELS)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(z0=z0, z1=z1, labels=LABELS) if named else loss(z0, z1, LABELS)
    assert value.dtype == torch.float32
    assert torch.equal(value, expected)
    for actual, wanted in zip(torch.autograd.grad(value, (z0,)), torch.autograd.grad(expected, (z0,)), strict=True):
        assert torch.equal(actual, wanted)


@each_loss
def test_it_survives_a_pickle(name: str) -> None:
    """Processes are handed modules that way."""
    loss, (z0, z1) = make(name).float(), single_views()
    file = io.BytesIO()
    torch.save(loss, file)
    file.seek(0)
    copy = torch.load(file, weights_only=False)
    values, kernels = [], []
    for module in (copy, loss):
        with recording() as choices:
            values.append(module(z0, z1, LABELS))
        kernels.append([choice.name for choice in choices])
    assert kernels[0] == kernels[1]
    assert torch.equal(*values)


def test_finite_inputs_that_leave_the_dtype_are_refused() -> None:
    z0, z1 = single_views()
    with pytest.raises(ValueError, match=r"z1 row 2 has length .*, whose square leaves float32; divide the inputs"):
        InfoNCE(normalize=False)(z0, z1 * torch.tensor([[1.0], [1], [1e25], [1], [1], [1]]))


def test_a_value_that_is_no_number_is_refused() -> None:
    class Diverged(Loss):
        card = InfoNCE().card

        def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: object = None) -> Tensor:
            return z0.sum() * math.nan

        def chance(self, n: int) -> float:
            return 0.0

        def floor(self, n: int, *, nonnegative: bool = False) -> float:
            return 0.0

    with pytest.raises(NonFiniteError, match=r"InfoNCE is nan for finite inputs: they are too large for float32"):
        Diverged()(*single_views())


@pytest.mark.parametrize("kernel", ["small batch", "dense", "tiled"])
@pytest.mark.thorough
def test_a_view_may_be_a_function_of_the_other(kernel: str) -> None:
    """With and without create_graph the gradient is the same, and its derivative that of all paths."""
    (z0, _), w = draw_views(), torch.randn(4, 4, generator=torch.Generator().manual_seed(1)).double()

    def loss(z: Tensor) -> Tensor:
        if kernel == "small batch":
            return InfoNCE()(z, z @ w)
        with use(kernel):
            return InfoNCE()(z, z @ w)

    (plain,) = torch.autograd.grad(loss(z0), z0)
    (graphed,) = torch.autograd.grad(loss(z0), z0, create_graph=True)
    assert_close(graphed, plain)
    assert torch.autograd.gradcheck(loss, z0)
    assert torch.autograd.gradgradcheck(loss, z0)


def test_long_raw_vectors_in_tight_clusters_keep_their_digits() -> None:
    """Gaps of a few units between squared lengths of 1e6: float32 products alone would lose them."""
    generator = torch.Generator().manual_seed(0)
    centres = 1e3 * torch.randn(1, 4, 16, generator=generator).repeat(1, 10, 1)
    z0, z1 = torch.randn(2, 40, 16, generator=generator) + centres
    z0.requires_grad_()
    loss = InfoNCE(normalize=False)
    value, exact = loss(z0, z1), loss(z0.double(), z1.double())
    assert value.dtype == torch.float32
    assert abs(float(value.detach()) / float(exact.detach()) - 1) < 1e-5
    slope, exact_slope = torch.autograd.grad(value, z0)[0], torch.autograd.grad(exact, z0)[0]
    assert float((slope - exact_slope).abs().max()) < 1e-5 * float(exact_slope.abs().max())


@pytest.mark.parametrize(
    "code",
    [
        "InfoNCE(temperature=0.2)",
        "DCL()",
        "Triplet(margin=0.5, negatives='cross-view')",
        "MIOv3()",
        "AlphaCL(rule=Entropy(temperature=0.5, epsilon=0.0))",
        "HardNegatives(loss=InfoNCE(temperature=0.1), beta=2.0)",
        "SupCon(temperature=0.3)",
        "VICReg()",
    ],
)
def test_a_loss_shows_the_call_that_makes_it(code: str) -> None:
    loss = eval(code, {**vars(losses)})
    assert repr(loss) == code
    assert repr(copy.deepcopy(loss)) == code
    assert repr(losses.InfoNCE(0.2)) == "InfoNCE(temperature=0.2)"


def test_labels_in_place_of_the_second_view_are_told_where_they_belong(rng: np.random.Generator) -> None:
    z_ND, labels_N = torch.from_numpy(rng.normal(size=(6, 3))), torch.arange(6) % 2
    for loss in (losses.InfoNCE(0.2), losses.SupCon(0.2), losses.VICReg()):
        with pytest.raises(TypeError, match="labels=labels"):
            loss(z_ND, labels_N)
    assert torch.isfinite(losses.SupCon(0.2)(z_ND, labels=labels_N))
