"""Optimisers by name: their groups, kernels and settings; each resumes bit for bit."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.settings import OptimSettings
from counterpoint.engine.optimisers import LARS, build_optimizer
from counterpoint.losses.bimodal import LogitScale
from tolerances import assert_close

NAMES = ("adamw", "adam", "sgd", "lars")


class Parts(nn.Module):
    """One of each kind of parameter."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.batch_norm = nn.BatchNorm2d(4)
        self.layer_norm = nn.LayerNorm([4, 6, 6])  # its weight has three dimensions
        self.head = nn.Linear(4 * 36, 5)
        self.diagonal = nn.Parameter(torch.ones(5))
        self.scale = LogitScale(10.0, is_learned=True)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.layer_norm(self.batch_norm(self.stem(x)))
        return self.scale(hidden) * self.frozen(self.diagonal * self.head(hidden.flatten(1)))


class Positions(nn.Module):
    """Names what it exempts, as timm's encoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.ones(1, 4, 3))
        self.body = nn.Linear(3, 3)

    def no_weight_decay(self) -> set[str]:
        return {"pos_embed"}


def settings(name: str, **changes: Any) -> OptimSettings:
    return OptimSettings(**{"name": name, "learning_rate": 0.05, "weight_decay": 0.3, **changes})


def batches(num: int, seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, 6, 6, generator=generator, dtype=dtype) for _ in range(num)]


def train(module: nn.Module, optimizer: torch.optim.Optimizer, data: list[Tensor]) -> None:
    for x in data:
        optimizer.zero_grad()
        module(x).square().mean().backward()
        optimizer.step()


def decay_by_name(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return {names[id(p)]: group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}


@pytest.mark.parametrize("name", NAMES)
def test_only_kernels_and_matrices_are_decayed_and_frozen_parameters_not_touched(name: str) -> None:
    module = Parts()
    optimizer = build_optimizer(module, settings(name))
    decay = decay_by_name(module, optimizer)
    assert decay == {
        "stem.weight": 0.3, "head.weight": 0.3, "stem.bias": 0.0, "head.bias": 0.0, "diagonal": 0.0, "scale.log": 0.0,
        "batch_norm.weight": 0.0, "batch_norm.bias": 0.0, "layer_norm.weight": 0.0, "layer_norm.bias": 0.0,
    }  # fmt: skip
    assert [[p.ndim for p in group["params"]] for group in optimizer.param_groups][2] == [0]  # scalars by themselves
    assert {group["lr"] for group in optimizer.param_groups} == {0.05}
    if name == "lars":
        assert [group["is_adapted"] for group in optimizer.param_groups] == [True, False, False]


def test_all_but_scalars_are_decayed_where_that_is_asked_for() -> None:
    module = Parts()
    decay = decay_by_name(module, build_optimizer(module, settings("sgd").model_copy(update={"decay_all": True})))
    assert {name for name, value in decay.items() if value == 0.0} == {"scale.log"}
    assert set(decay.values()) == {0.0, 0.3}


def test_a_part_may_exempt_its_own_parameters() -> None:
    module = nn.Sequential(Positions(), nn.Linear(3, 2))
    decay = decay_by_name(module, build_optimizer(module, settings("adamw")))
    assert decay == {"0.pos_embed": 0.0, "0.body.weight": 0.3, "0.body.bias": 0.0, "1.weight": 0.3, "1.bias": 0.0}


def reference_step(name: str, parameter: Tensor, gradient: Tensor, decay: float) -> Tensor:
    """A first step in closed form: momentum and Adam's corrections cancel."""
    if name == "sgd":
        return parameter - 0.05 * (gradient + decay * parameter)
    if name == "adam":
        total = gradient + decay * parameter
        return parameter - 0.05 * total / (total.abs() + 1e-8)
    return parameter * (1 - 0.05 * decay) - 0.05 * gradient / (gradient.abs() + 1e-8)


@pytest.mark.parametrize("is_sharded", [False, True])
@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_a_name_means_its_textbook_rule(name: str, is_sharded: bool) -> None:
    module = nn.Linear(7, 3, dtype=torch.float64)
    weight, bias = module.weight.detach().clone(), module.bias.detach().clone()
    gradient = torch.randn(3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    module.weight.grad, module.bias.grad = gradient.clone(), gradient[:, 0].clone()
    build_optimizer(module, settings(name), is_sharded=is_sharded).step()
    assert_close(module.weight, reference_step(name, weight, gradient, 0.3))
    assert_close(module.bias, reference_step(name, bias, gradient[:, 0], 0.0))


@pytest.mark.parametrize("name", NAMES)
def test_resuming_from_the_state_is_bitwise_exact(name: str) -> None:
    module, first, rest = Parts(), batches(3, seed=1), batches(4, seed=2)
    optimizer = build_optimizer(module, settings(name))
    train(module, optimizer, first)
    resumed = Parts()
    resumed.load_state_dict(copy.deepcopy(module.state_dict()))
    other = build_optimizer(resumed, settings(name, learning_rate=0.7))
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    train(module, optimizer, rest)
    train(resumed, other, rest)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), resumed.parameters(), strict=True))
    states = [o.state_dict()["state"] for o in (optimizer, other)]
    for number, entries in states[0].items():
        assert all(torch.equal(value, states[1][number][key]) for key, value in entries.items())


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_kernels_are_the_builders_choice_and_not_the_checkpoints(name: str) -> None:
    module = Parts()
    whole, sharded = (build_optimizer(module, settings(name), is_sharded=is_sharded) for is_sharded in (False, True))
    kernels = [[(group["fused"], group["foreach"]) for group in o.param_groups] for o in (whole, sharded)]
    assert kernels[0][0][0] is True
    assert (kernels[1][0][0] is True) == (name != "sgd")
    train(module, whole, batches(1, seed=0))
    sharded.load_state_dict(copy.deepcopy(whole.state_dict()))
    assert [(group["fused"], group["foreach"]) for group in sharded.param_groups] == kernels[1]
    train(module, sharded, batches(1, seed=0))


@pytest.mark.parametrize("name", NAMES)
def test_settings_reach_the_optimiser(name: str) -> None:
    changes: dict[str, Any] = {"sgd": {"momentum": 0.7}, "lars": {"momentum": 0.7, "trust": 0.02}}.get(name, {})
    optimizer = build_optimizer(nn.Linear(2, 2), settings(name, **changes))
    if name == "lars":
        clipped = build_optimizer(nn.Linear(2, 2), settings(name, trust_clip=True))
        assert [g["is_clipped"] for g in (*optimizer.param_groups, *clipped.param_groups)] == [False, False, True, True]
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD, "lars": LARS}
    assert type(optimizer) is kinds[name]
    for group in optimizer.param_groups:
        assert {key: group[key] for key in changes} == changes
