"""What every entry of the loss catalogue owes: documentation with a source, a card, and what a curve is read with.

Entries are classes or functions. What one cannot be made without is given by name in ``ARGUMENTS``; all get labels, as
losses without labels only check them.
"""

# N samples per view, D features

import inspect
import math
import re
from typing import Any, get_args

import pytest
import torch
from loss_checks import BAD_INPUT, assert_half_precision_is_lifted, on_kernel, rotation
from torch import Tensor

from counterpoint.losses import CATALOGUE, InfoNCE, Loss, explain
from counterpoint.losses.loss import ROWS
from counterpoint.losses.pair_loss import REDUCTIONS, Reduction
from counterpoint.losses.pairs import ANCHORS, NEGATIVES, Anchors, Negatives
from memory_watch import LargestResult
from tolerances import assert_close, relative_error

N, D = 6, 4
LABELS = torch.tensor([0, 1, 2, 0, 1, 1])
ARGUMENTS: dict[str, Any] = {"num_classes": 3, "num_features": D, "loss": InfoNCE()}
ROUNDING = 1e-12

each_loss = pytest.mark.parametrize("name", CATALOGUE)


def make(name: str, num_features: int = D) -> Loss:
    """An entry with its defaults, and with what has none."""
    required = [p.name for p in inspect.signature(CATALOGUE[name]).parameters.values() if p.default is p.empty]
    arguments = {**ARGUMENTS, "num_features": num_features}
    return CATALOGUE[name](**{word: arguments[word] for word in required}).double()


def chance_of(loss: Loss, n: int) -> float:
    """Some losses are sums over features and have no chance without their number."""
    takes_features = "num_features" in inspect.signature(loss.chance).parameters
    return loss.chance(n, num_features=D) if takes_features else loss.chance(n)  # pyright: ignore[reportCallIssue]


def draw_views(seed: int = 0) -> tuple[Tensor, Tensor]:
    z = torch.randn(2, N, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return z[0].requires_grad_(), (z[0].detach() + 0.3 * z[1]).requires_grad_()


@each_loss
def test_it_is_documented_with_equation_and_source(name: str) -> None:
    text = inspect.getdoc(CATALOGUE[name]) or ""
    assert ".. math::" in text
    assert re.search(r"Source: [a-z]+\d{4}, [^.]*(Eq|section|Section|Theorem|Algorithm|Fig|Table)", text)
    for section in ("Args:", "Raises:", ">>>"):
        assert section in text


@each_loss
def test_every_argument_is_documented(name: str) -> None:
    text = inspect.getdoc(CATALOGUE[name]) or ""
    undocumented = [word for word in inspect.signature(CATALOGUE[name]).parameters if f"    {word}: " not in text]
    assert undocumented == []


@each_loss
def test_its_card_is_filled_in_and_explained(name: str) -> None:
    loss = make(name)
    card = loss.card
    assert all(isinstance(text, str) and text for text in vars(card).values())
    assert re.match(r"[a-z]+\d{4}, ", card.source)
    assert card.second_derivative.startswith(("true", "autograd", "none, because"))
    assert card.fused in ("CPU, CUDA", "CPU", "no pairs")
    assert getattr(CATALOGUE[name], "__name__", "") == card.name.partition("(")[0]  # wrappers name what they wrap
    first, *rest = explain(loss).splitlines()
    assert first == card.name
    for line, (field, title) in zip(rest, ROWS.items(), strict=True):
        assert line.strip().startswith(title)
        assert line.endswith(f"  {getattr(card, field)}")


@each_loss
def test_it_gives_a_finite_scalar_with_a_gradient_in_the_dtype_it_gets(name: str) -> None:
    loss = make(name)
    for dtype in (torch.float64, torch.float32):
        z0, z1 = (z.detach().to(dtype).requires_grad_() for z in draw_views())
        value = loss.to(dtype)(z0, z1, LABELS)
        value.backward()
        assert value.shape == ()
        assert value.dtype == dtype
        assert bool(torch.isfinite(value))
        assert z0.grad is not None
        assert bool(torch.isfinite(z0.grad).all())
        assert float(z0.grad.abs().max()) > 0
        for parameter in loss.parameters():
            assert parameter.grad is not None
            assert bool(torch.isfinite(parameter.grad).all())
            parameter.grad = None


@each_loss
def test_it_answers_what_a_curve_is_read_with(name: str) -> None:
    loss = make(name)
    floor, of_nonnegative = loss.floor(N), loss.floor(N, nonnegative=True)
    assert floor <= of_nonnegative
    for seed in range(5):
        z0, z1 = (z.detach() for z in draw_views(seed))
        turned = z0 @ rotation(D)
        for a, b in ((z0, z1), (z0, z0), (z0, -z0), (z0, turned)):
            assert float(loss(a, b, LABELS)) >= floor - ROUNDING
            assert float(loss(a.abs(), b.abs(), LABELS)) >= of_nonnegative - ROUNDING
    chance = chance_of(loss, N)
    assert isinstance(chance, float)
    assert not math.isnan(chance)
    assert chance >= floor


@each_loss
def test_what_it_holds_is_learned(name: str) -> None:
    """Parameters, if any, and nothing else, so that a state can be kept and put back."""
    loss, other = make(name), make(name)
    assert set(loss.state_dict()) == {key for key, _ in loss.named_parameters()}
    with torch.no_grad():
        for parameter in loss.parameters():
            parameter.add_(0.1)
    other.load_state_dict(loss.state_dict())
    z0, z1 = (z.detach() for z in draw_views())
    assert torch.equal(loss(z0, z1, LABELS), other(z0, z1, LABELS))


@each_loss
def test_the_same_call_gives_the_same_number_and_no_input_is_changed(name: str) -> None:
    loss = make(name)
    z0, z1 = (z.detach() for z in draw_views())
    before = z0.clone(), z1.clone(), LABELS.clone()
    values = [loss(z0, z1, LABELS) for _ in range(2)]
    assert torch.equal(*values)
    assert all(torch.equal(a, b) for a, b in zip(before, (z0, z1, LABELS), strict=True))


@each_loss
def test_the_order_of_samples_does_not_matter_and_their_partners_do(name: str) -> None:
    loss, order = make(name), torch.randperm(N, generator=torch.Generator().manual_seed(3))
    z0, z1 = (z.detach() for z in draw_views())
    assert_close(loss(z0[order], z1[order], LABELS[order]), loss(z0, z1, LABELS))
    assert relative_error(loss(z0[order], z1, LABELS), loss(z0, z1, LABELS)) > 1e-3


@each_loss
def test_bad_input_is_named(name: str) -> None:
    loss = make(name, num_features=2)
    labels = torch.tensor([0, 0, 1, 1])
    for z0, z1, error, sentence in BAD_INPUT:
        with pytest.raises(error, match=sentence):
            loss(z0, z1, labels)
    z = torch.eye(4)[:, :2].clone()
    with pytest.raises(ValueError, match=r"labels must be one per sample, shape \(4,\), got \(2,\)"):
        loss(z, z, labels[:2])
    with pytest.raises(ValueError, match=r"labels must be whole numbers, got torch\.float32"):
        loss(z, z, labels.float())


@each_loss
def test_bounds_that_depend_on_the_batch_need_two_samples(name: str) -> None:
    loss = make(name)
    if (chance_of(loss, 3), loss.floor(3)) == (chance_of(loss, 9), loss.floor(9)):
        return
    odd: list[Any] = [1, 0, -3, 2.5, True]
    for ask in (loss.chance, loss.floor):
        for n in odd:
            with pytest.raises(ValueError, match=rf"at least 2 samples, got {n}"):
                ask(n)


@each_loss
def test_half_precision_is_lifted(name: str) -> None:
    assert_half_precision_is_lifted(make(name, num_features=3).float(), torch.tensor([0, 1, 0, 1, 2]))


@pytest.mark.parametrize("name", ["mio-v1", "mio-v2", "mio-v3", "cross-modal"])
@pytest.mark.thorough
def test_no_tensor_of_all_pairs_is_made(name: str) -> None:
    n, generator = 30, torch.Generator().manual_seed(0)
    loss, z = make(name), [torch.randn(n, D, generator=generator).double().requires_grad_() for _ in range(2)]
    with on_kernel("tiled"), LargestResult() as largest:
        slopes = torch.autograd.grad(loss(*z), z, create_graph=True)
        torch.autograd.grad(torch.stack([(slope * slope.detach()).sum() for slope in slopes]).sum(), z)
    assert largest.num_elements <= 2 * n * D
    with on_kernel("dense"), LargestResult() as dense:
        loss(*z)
    assert dense.num_elements >= n * n


@pytest.mark.parametrize(
    ("names", "kind"), [(NEGATIVES, Negatives), (ANCHORS, Anchors), (REDUCTIONS, Reduction)], ids=["who", "whom", "how"]
)
def test_names_are_those_of_the_type(names: Any, kind: Any) -> None:
    assert tuple(names) == get_args(kind)
