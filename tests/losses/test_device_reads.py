"""One read of device values per call of a loss, what is then named, and calls from inside ``torch.compile``."""

# N samples per view, D features

import re
from typing import Any

import pytest
import torch
from test_loss_catalogue import LABELS, draw_views, each_loss, make
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from counterpoint.core.errors import NonFiniteError
from counterpoint.losses import AlphaCL, CrossModal, InfoNCE, Loss, inputs
from counterpoint.losses.alpha_rules import AlphaRule, Direct, InversePower, Square
from tolerances import assert_close

READS = (torch.ops.aten._local_scalar_dense, torch.ops.aten.is_nonzero, torch.ops.aten.nonzero, torch.ops.aten._unique2)


class Reads(TorchDispatchMode):
    """Counts operations that wait for the values of a device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket in READS
        return func(*args, **(kwargs or {}))


def with_gradient(loss: Any, views: tuple[Tensor, Tensor], labels: Tensor = LABELS) -> tuple[Tensor, Tensor]:
    value = loss(*views, labels)
    return value.detach(), torch.cat([part.flatten() for part in torch.autograd.grad(value, views)])


def assert_same(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> None:
    for actual, expected in zip(ours, theirs, strict=True):
        assert_close(actual, expected)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that is treated as a device on which reading a value waits."""
    monkeypatch.setattr(inputs, "READS_ARE_FREE", ())


@pytest.mark.parametrize("loss", [InfoNCE(), AlphaCL()], ids=lambda loss: loss.card.name)
def test_compiled_code_leaves_its_graph_for_a_loss(loss: Loss) -> None:
    torch._dynamo.reset()

    def doubled(z0: Tensor, z1: Tensor, labels: Tensor) -> Tensor:
        return 2 * loss(2 * z0, z1, labels)

    ours = with_gradient(torch.compile(doubled, backend="eager"), draw_views())
    assert_same(ours, with_gradient(doubled, draw_views()))


each_rule = pytest.mark.parametrize("rule", [Direct(), Square(), InversePower()], ids=lambda rule: type(rule).__name__)


@each_rule
def test_rules_for_alpha_read_the_device_once(rule: AlphaRule, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = with_gradient(AlphaCL(rule), draw_views())
    monkeypatch.setattr(inputs, "READS_ARE_FREE", ())
    with Reads() as reads:
        found = with_gradient(AlphaCL(rule), draw_views())
    assert reads.count <= 1
    assert_same(found, expected)


@each_loss
def test_a_call_reads_the_device_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss = make(name)
    expected = with_gradient(loss, draw_views())
    monkeypatch.setattr(inputs, "READS_ARE_FREE", ())
    with Reads() as reads:
        found = with_gradient(loss, draw_views())
    assert reads.count <= 1
    assert_same(found, expected)


@each_loss
@pytest.mark.usefixtures("waiting")
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_not_finite_is_named_after_the_one_read(name: str, bad: float) -> None:
    z0, z1 = (z.detach() for z in draw_views())
    z1[3, 2] = bad
    with pytest.raises(NonFiniteError, match=r"z1 .*row 3"):
        make(name)(z0, z1, LABELS)


@pytest.mark.usefixtures("waiting")
def test_other_conditions_are_named_too() -> None:
    z0, z1 = (z.detach() for z in draw_views())
    for name, labels, words in [
        ("cross-entropy", LABELS + 1, "got 3 in row 2"),
        ("multi-positive", torch.zeros_like(LABELS), "MultiPositive"),
    ]:
        with pytest.raises(ValueError, match=re.escape(words)):
            make(name)(z0, z1, labels)
    loss = CrossModal().double()
    with torch.no_grad():
        loss.scale.log.fill_(800.0)  # pyright: ignore[reportOptionalMemberAccess]
    with pytest.raises(NonFiniteError, match=r"CrossModal is (nan|inf)"):
        loss(z0, z1)
    with pytest.raises(ValueError, match="z0 row 2"):
        make("spectral")(*((z.float() * torch.tensor([1, 1, 1e18, 1, 1, 1])[:, None]) for z in (z0, z1)))


@pytest.mark.usefixtures("waiting")
def test_zero_rows_are_as_they_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    z0, z1 = draw_views()
    z0 = z0.detach().index_fill(0, torch.tensor([1]), 0.0).requires_grad_()
    found = with_gradient(InfoNCE(), (z0, z1))
    monkeypatch.setattr(inputs, "READS_ARE_FREE", ("cpu",))
    assert_same(found, with_gradient(InfoNCE(), (z0, z1)))


@pytest.mark.usefixtures("waiting")
def test_a_zero_row_under_vmap_is_as_without() -> None:
    """Under a transform no condition is read, so that no way for ordinary rows alone may be tried."""
    z0, z1 = (z.detach().repeat(2, 1, 1) for z in draw_views())
    z0[0, 1] = 0.0
    together = torch.func.vmap(InfoNCE(0.5))(z0, z1)
    assert_close(together, torch.stack([InfoNCE(0.5)(*pair) for pair in zip(z0, z1, strict=True)]))


@pytest.mark.usefixtures("waiting")
def test_one_of_several_ranks_calls_no_loss_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its collectives would have no partners."""
    calls = []
    monkeypatch.setattr(inputs, "world_size", lambda: 2)

    def function() -> Tensor:
        calls.append(1)
        inputs.require(torch.tensor(False), lambda: None, "")
        return torch.zeros(())

    inputs.gathering(function)
    assert len(calls) == 1
