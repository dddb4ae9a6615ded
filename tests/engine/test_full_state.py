"""The state that goes into a checkpoint and back: no bit of what follows depends on the pause."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_methods import SmallMethod, build_method, placement, views
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from counterpoint.core.settings import OptimSettings
from counterpoint.engine.engine import Engine, FullState
from counterpoint.engine.optimisers import build_optimizer

Builder = Callable[[nn.Module], Optimizer]
OPTIMISERS: dict[str, Builder] = {
    "fused adamw": lambda method: AdamW(trained(method), lr=0.01, fused=True),
    "fused adam": lambda method: Adam(trained(method), lr=0.01, fused=True),
    "fused sgd": lambda method: SGD(trained(method), lr=0.1, momentum=0.9, fused=True),
    "loops": lambda method: AdamW(trained(method), lr=0.01, foreach=False, fused=False),
    "lists": lambda method: AdamW(trained(method), lr=0.01, foreach=True),
    "ours": lambda method: build_optimizer(method, OptimSettings(learning_rate=0.01, weight_decay=1e-4)),
    "lars": lambda method: build_optimizer(method, OptimSettings(name="lars", learning_rate=0.1, weight_decay=1e-4)),
}


def trained(method: nn.Module) -> list[nn.Parameter]:
    return [p for p in method.parameters() if p.requires_grad]


def started(build: Builder) -> tuple[Engine, SmallMethod, nn.Module]:
    engine, method = Engine(placement()), build_method(torch.float32)
    module = engine.setup(method, build(method))
    return engine, method, module


def go_on(parts: tuple[Engine, SmallMethod, nn.Module], steps: range) -> FullState:
    engine, method, module = parts
    for step in steps:
        engine.backward(module(*views(step, torch.float32)))
        engine.update(clip=None)
        method.after_step(0.5)
    return engine.full_state()


def packed(state: FullState) -> FullState:
    """As it comes out of a file: contiguous."""
    moments = {
        number: {name: torch.as_tensor(value).contiguous().clone() for name, value in entries.items()}
        for number, entries in state.optimizer["state"].items()
    }
    model = {name: value.contiguous().clone() for name, value in state.model.items()}
    return FullState(model, {**state.optimizer, "state": moments}, state.scaler)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_pause_changes_no_bit(optimiser: str) -> None:
    build = OPTIMISERS[optimiser]
    expected = go_on(started(build), range(6))
    saved = packed(go_on(started(build), range(3)))
    again = started(build)
    again[0].load_state(saved)
    actual = go_on(again, range(3, 6))
    for key, value in expected.model.items():
        assert torch.equal(actual.model[key], value), key
    for number, entries in expected.optimizer["state"].items():
        for key, value in entries.items():
            assert torch.equal(torch.as_tensor(actual.optimizer["state"][number][key]), torch.as_tensor(value)), key


def test_state_lies_in_memory_as_its_weights_do() -> None:
    """torch's fused optimisers on the CPU walk both side by side, whatever their strides say."""
    saved = packed(go_on(started(OPTIMISERS["fused adamw"]), range(2)))
    engine, method, _ = started(OPTIMISERS["fused adamw"])
    engine.load_state(saved)
    kernels = [p for p in trained(method) if p.ndim == 4]
    assert kernels
    for kernel in kernels:
        assert not kernel.is_contiguous()
        assert {engine.optimizer.state[kernel][key].stride() for key in ("exp_avg", "exp_avg_sq")} == {kernel.stride()}


def test_another_models_state_is_refused() -> None:
    engine, _, _ = started(OPTIMISERS["loops"])
    state = engine.full_state()
    del state.model["heat"]
    with pytest.raises(RuntimeError, match="heat"):
        engine.load_state(state)


FORGED = {
    "no entry": lambda state: state["state"][0].pop(next(iter(state["state"][0]))),
    "a number": lambda state: state["state"][0].update(dict.fromkeys(state["state"][0], 1.0)),
    # A fused kernel would read beyond the end of it.
    "another shape": lambda state: state["state"][0].update(dict.fromkeys(state["state"][0], torch.zeros(3))),
    "no such parameter": lambda state: state["state"].update({10**30: state["state"][0]}),
    "no mapping": lambda state: state.update(state=None),
    "other groups": lambda state: state["param_groups"].pop(),
    "a group without parameters": lambda state: state["param_groups"][0].pop("params"),
}


@pytest.mark.parametrize("optimiser", ["ours", "lars", "fused sgd"])
@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_state_that_is_not_of_this_optimiser_is_refused(optimiser: str, forge: Callable[[Any], object]) -> None:
    saved = go_on(started(OPTIMISERS[optimiser]), range(2))
    forge(saved.optimizer)
    engine, _, _ = started(OPTIMISERS[optimiser])
    with pytest.raises((RuntimeError, ValueError), match=r"optimi|state"):
        engine.load_state(saved)


def test_rates_and_decays_come_from_the_settings_not_from_the_state() -> None:
    saved = go_on(started(OPTIMISERS["fused adamw"]), range(2))
    engine, _, _ = started(OPTIMISERS["fused adamw"])
    expected = engine.optimizer.state_dict()["param_groups"]
    for group in saved.optimizer["param_groups"]:
        group.update(weight_decay=9.0, eps="x", betas=None)
    engine.load_state(saved)
    assert engine.optimizer.state_dict()["param_groups"] == expected
