"""The engine in low precision: float16's loss scale against torch's own scaler."""

from dataclasses import replace

import pytest
import torch
from engine_methods import build_method, optimizer_of, placement, views
from torch import Tensor

from counterpoint.engine.engine import Engine

CLIP = 0.8  # some of the steps' gradients are longer, some shorter


def losses_in(precision: str, num_steps: int = 6) -> list[float]:
    """Losses and lengths in mixed precision on the CPU; float32 weights."""
    engine = Engine(placement(precision))
    method = build_method(torch.float32)
    module = engine.setup(method, optimizer_of(method, "sgd"))
    found: list[float] = []
    for step in range(num_steps):
        with engine.in_precision():
            loss = module(*views(step, torch.float32))
        assert loss.dtype == torch.float32
        engine.backward(loss)
        found += [float(loss.detach()), engine.update(clip=CLIP).gradient_norm]
    return found


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_low_precision_is_near_the_full_one(precision: str) -> None:
    low, full = losses_in(precision), losses_in("fp32")
    assert low != full
    # Two or three digits of a low precision; what is asked here is that nothing is scaled by 65,536.
    assert max(abs(a - b) / abs(b) for a, b in zip(low, full, strict=True)) < 0.05


def with_torchs_scaler(num_steps: int) -> tuple[dict[str, Tensor], list[float]]:
    """The same steps with ``torch.amp.GradScaler``: what our loss scale is to equal."""
    method = build_method(torch.float32)
    method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimizer, scaler, scales = optimizer_of(method, "sgd"), torch.amp.GradScaler("cpu", init_scale=2.0**30), []
    for step in range(num_steps):
        with torch.autocast("cpu", torch.float16):
            loss = method(*views(step, torch.float32))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    return method.state_dict(), scales


def test_the_loss_scale_is_torchs() -> None:
    expected, scales = with_torchs_scaler(24)
    engine, method = Engine(placement("fp16")), build_method(torch.float32)
    module = engine.setup(method, optimizer_of(method, "sgd"))
    start = engine.full_state()
    engine.load_state(replace(start, scaler={"value": 2.0**30, "good_steps": 0.0}))
    applied: list[bool] = []
    for step, scale in enumerate(scales):
        with engine.in_precision():
            loss = module(*views(step, torch.float32))
        engine.backward(loss)
        update = engine.update(clip=None)
        applied.append(update.is_applied)
        assert update.nonfinite is None
        assert engine.full_state().scaler["value"] == scale
    assert not applied[0]
    assert applied[-1]
    for key, value in expected.items():
        assert torch.equal(method.state_dict()[key], value), key
