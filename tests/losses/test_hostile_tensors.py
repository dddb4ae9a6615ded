"""Whatever tensor a loss is given: a finite value with finite gradients, or one sentence of ours that names it."""

import math
import traceback

import pytest
import torch
from test_loss_catalogue import make
from torch import Tensor

from campaign.tensors import FAIR, MAKERS, ODD
from counterpoint.losses import CATALOGUE, InfoNCE, SigmoidPair

N, D = 8, 6
SENTENCES = {
    "nested": "z0 must be a dense tensor, got a nested one; pad its rows to one length",
    "jagged": "z0 must be a dense tensor, got a nested one; pad its rows to one length",
    "sparse coo": "z0 must be a dense tensor, got one of layout sparse_coo; convert it with .to_dense()",
    "sparse csr": "z0 must be a dense tensor, got one of layout sparse_csr; convert it with .to_dense()",
    "mkldnn": "z0 must be a dense tensor, got one of layout _mkldnn; convert it with .to_dense()",
    "meta": "z0 is on the device meta and holds no numbers; make it on a real device",
    "quantized": "z0 must be a dense tensor, got a quantized one; convert it with .dequantize()",
    "int64": "z0 must be a floating-point tensor, got torch.int64; convert it with .float()",
    "no features": "z0 must have at least 1 feature, got shape (8, 0)",
}


def matrices(kind: str) -> tuple[Tensor, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return MAKERS[kind](N, D), MAKERS[kind](N, D)


def is_ours(error: Exception) -> bool:
    """Whether this package raised it, in one line."""
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    return "counterpoint" in raised_in and "\n" not in str(error)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.sampled(5)
def test_a_loss_takes_a_tensor_or_says_why_not(kind: str) -> None:
    for name in CATALOGUE:
        loss = make(name, D).float()
        z0, z1 = matrices(kind)
        if z0.is_floating_point() and not z0.is_inference() and z0.is_leaf and z0.layout == torch.strided:
            z0.requires_grad_()
        labels = torch.arange(len(z0) if z0.ndim and not z0.is_nested else N) % 2 if loss.uses_labels else None
        try:
            value = loss(z0, z1, labels)
        except (TypeError, ValueError) as error:
            assert is_ours(error), (name, error)
            assert kind not in FAIR, (name, error)
            continue
        assert bool(torch.isfinite(value)), name
        if value.requires_grad:
            value.backward()
            assert z0.grad is None or bool(torch.isfinite(z0.grad).all()), name


@pytest.mark.parametrize("kind", SENTENCES)
@pytest.mark.sampled(3)
def test_the_sentence_names_the_argument_the_fault_and_the_remedy(kind: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        InfoNCE()(*matrices(kind))
    assert str(caught.value) == SENTENCES[kind]


@pytest.mark.parametrize("kind", sorted(ODD.keys() & SENTENCES))
@pytest.mark.sampled(3)
def test_labels_of_that_kind_are_refused_alike(kind: str) -> None:
    z = torch.randn(N, D, generator=torch.Generator().manual_seed(0))
    with pytest.raises((TypeError, ValueError)) as caught:
        CATALOGUE["supcon"]()(z, z, matrices(kind)[0])
    assert is_ours(caught.value)
    assert "labels" in str(caught.value)


def test_tensors_made_in_inference_mode_are_copied() -> None:
    """A loss with a learned scale, or beside a view with a gradient, has something to save for the backward pass."""
    z0, z1 = matrices("inference")
    SigmoidPair()(z0, z1).backward()
    free = torch.ones(N, D, requires_grad=True)
    InfoNCE()(free, z1=z1).backward()
    assert free.grad is not None


@pytest.mark.parametrize("size", [1e-30, 1e-45])
def test_lengths_down_to_the_least_number_give_finite_gradients(size: float) -> None:
    z = (torch.eye(4, requires_grad=True) * size).detach().requires_grad_()
    value = InfoNCE(0.1)(z, z.detach().flip(1) + z.detach())
    value.backward()
    assert math.isfinite(value.item())
    assert z.grad is not None
    assert bool(torch.isfinite(z.grad).all())
