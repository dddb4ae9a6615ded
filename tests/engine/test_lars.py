"""LARS against the paper's formula in loops, a peer, and what must hold for any layer."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightly.utils.lars import LARS as PEER
from torch import Tensor, nn

from counterpoint.engine import optimisers
from counterpoint.engine.optimisers import LARS
from oracles import lars_oracle
from tolerances import assert_close

SHAPES = [(3, 4), (2, 3, 2, 2), (5,)]


def draw(shapes: list[tuple[int, ...]], num_steps: int, seed: int) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Weights, and gradients per step, in float64."""
    rng = np.random.default_rng(seed)
    weights = [torch.from_numpy(rng.normal(size=shape)) for shape in shapes]
    return weights, [[torch.from_numpy(rng.normal(size=shape)) for shape in shapes] for _ in range(num_steps)]


def train(optimizer: torch.optim.Optimizer, weights: list[nn.Parameter], gradients: list[list[Tensor]]) -> None:
    for step in gradients:
        for weight, gradient in zip(weights, step, strict=True):
            weight.grad = gradient.clone()
        optimizer.step()


def parameters(weights: list[Tensor]) -> list[nn.Parameter]:
    return [nn.Parameter(weight.clone()) for weight in weights]


@given(
    seed=st.integers(0, 1000),
    momentum=st.sampled_from([0.0, 0.9]),
    decay=st.sampled_from([0.0, 1e-4, 0.5]),
    trust=st.sampled_from([0.001, 0.02, 3.0]),
    adapted=st.booleans(),
    clipped=st.booleans(),
)
def test_steps_follow_the_paper(
    seed: int, momentum: float, decay: float, trust: float, adapted: bool, clipped: bool
) -> None:
    weights, gradients = draw(SHAPES, 4, seed)
    rates, own = [0.1, 0.4, 0.2, 0.3], parameters(weights)
    flags = {"is_adapted": adapted, "is_clipped": clipped}
    optimizer = LARS(own, lr=1.0, momentum=momentum, weight_decay=decay, trust=trust, **flags)
    for rate, step in zip(rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        train(optimizer, own, [step])
    for i, weight in enumerate(weights):
        flat = [step[i].flatten().tolist() for step in gradients]
        expected = lars_oracle.run(
            weight.flatten().tolist(), flat, rates=rates, momentum=momentum, decay=decay, trust=trust,
            adapted=adapted, clipped=clipped,
        )  # fmt: skip
        assert_close(own[i].flatten(), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("zero", ["weights", "gradient", "both"])
def test_without_a_length_the_step_is_that_of_sgd(zero: str, clipped: bool) -> None:
    weight = torch.tensor([[1.0, -2.0]], dtype=torch.float64) * (zero == "gradient")
    gradient = torch.tensor([[3.0, 0.5]], dtype=torch.float64) * (zero == "weights")
    own, plain = parameters([weight]), parameters([weight])
    train(LARS(own, lr=0.1, momentum=0.9, weight_decay=0.01, is_clipped=clipped), own, [[gradient]])
    train(torch.optim.SGD(plain, lr=0.1, momentum=0.9, weight_decay=0.01), plain, [[gradient]])
    assert torch.equal(own[0], plain[0])
    assert bool(torch.isfinite(own[0]).all())
    assert zero == "both" or not torch.equal(own[0].detach(), weight)  # zero weights can leave zero


def test_it_is_lightlys_where_both_define_the_same() -> None:
    weights, gradients = draw(SHAPES, 5, seed=3)
    own, peer = parameters(weights), parameters(weights)
    train(LARS(own, lr=0.3, momentum=0.9, weight_decay=1e-3, trust=0.02), own, gradients)
    # lightly adds eps to the length of the gradient; the paper does not.
    other = PEER(peer, lr=0.3, momentum=0.9, weight_decay=1e-3, trust_coefficient=0.02, eps=0.0)
    train(other, peer, gradients)
    for ours, theirs in zip(own, peer, strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("is_at_once", [False, True])
def test_all_layers_at_once_and_one_by_one_are_bitwise_the_same(
    is_at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, gradients = draw([(4, 3), (2, 2), (7,), ()], 3, seed=6)
    if is_at_once:  # as on a GPU
        monkeypatch.setattr(optimisers, "_at_once", len)
    together, alone = parameters(weights), parameters(weights)
    train(LARS(together, lr=0.1, momentum=0.9, weight_decay=0.1), together, gradients)
    for i, weight in enumerate(alone):
        train(LARS([weight], lr=0.1, momentum=0.9, weight_decay=0.1), [weight], [[step[i]] for step in gradients])
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": 0.0}, "lr must be > 0 and finite, got 0.0"),
        ({"lr": float("nan")}, "lr must be > 0 and finite, got nan"),
        ({"lr": 1.0, "momentum": 1.0}, "momentum must be >= 0 and < 1, got 1.0"),
        ({"lr": 1.0, "weight_decay": -1.0}, "weight_decay must be >= 0 and finite, got -1.0"),
        ({"lr": 1.0, "trust": float("inf")}, "trust must be > 0 and finite, got inf"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LARS(parameters([torch.ones(2)]), **values)
