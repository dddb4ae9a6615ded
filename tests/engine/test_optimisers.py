"""Optimisers with their weight-decay groups, and the schedule in closed form."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from counterpoint.core.settings import OptimSettings
from counterpoint.engine.optimisers import WarmupCosine, build_optimizer, set_learning_rate


def oracle_rate(step: int, peak: float, num_steps: int, num_warmup: int) -> float:
    """goyal2017's warm-up, then loshchilov2017's cosine to zero."""
    if step < num_warmup:
        return peak * (step + 1) / num_warmup
    return peak / 2 * (1 + math.cos(math.pi * (step - num_warmup) / (num_steps - num_warmup)))


@pytest.mark.parametrize(("num_steps", "num_warmup"), [(100, 10), (100, 0), (7, 3), (500, 1), (2, 1)])
def test_the_schedule_is_warm_up_then_cosine(num_steps: int, num_warmup: int) -> None:
    schedule = WarmupCosine(peak=0.02, num_steps=num_steps, num_warmup=num_warmup)
    rates = [schedule(step) for step in range(num_steps)]
    assert rates == pytest.approx([oracle_rate(step, 0.02, num_steps, num_warmup) for step in range(num_steps)])
    assert max(rates) == pytest.approx(0.02)
    assert min(rates) > 0  # no step is wasted
    assert schedule(num_steps) == pytest.approx(0.0, abs=1e-12)


def test_the_schedule_rises_then_falls() -> None:
    rates = [WarmupCosine(1.0, 60, 12)(step) for step in range(60)]
    assert all(a < b for a, b in pairwise(rates[:12]))
    assert all(a > b for a, b in pairwise(rates[12:]))


@pytest.mark.parametrize("num_warmup", [10, 25])
def test_a_warm_up_that_takes_the_whole_run_is_no_division_by_zero(num_warmup: int) -> None:
    schedule = WarmupCosine(1.0, 10, num_warmup)
    assert [schedule(step) for step in range(10)] == [(step + 1) / num_warmup for step in range(10)]


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_biases_and_norms_are_not_decayed_and_frozen_parameters_not_touched(name: str) -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3), nn.Linear(3, 3))
    for parameter in module[4].parameters():
        parameter.requires_grad_(False)
    optimizer = build_optimizer(module, OptimSettings(name=name, learning_rate=0.1, weight_decay=0.3, momentum=0.8))
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    expected = {
        id(p): 0.3 if name.endswith("weight") and p.ndim > 1 else 0.0
        for name, p in module.named_parameters()
        if p.requires_grad
    }
    assert decay == expected
    assert sorted(decay.values()) == [0.0, 0.0, 0.0, 0.0, 0.3, 0.3]
    assert {group["lr"] for group in optimizer.param_groups} == {0.1}


def test_settings_reach_the_optimiser() -> None:
    parameter = nn.Linear(2, 2)
    sgd = build_optimizer(parameter, OptimSettings(name="sgd", learning_rate=0.5, weight_decay=0.0, momentum=0.7))
    assert isinstance(sgd, torch.optim.SGD)
    assert sgd.param_groups[0]["momentum"] == 0.7
    adamw = build_optimizer(parameter, OptimSettings(name="adamw", learning_rate=0.5, weight_decay=0.0))
    assert isinstance(adamw, torch.optim.AdamW)
    set_learning_rate(adamw, 0.25)
    assert [group["lr"] for group in adamw.param_groups] == [0.25, 0.25]
