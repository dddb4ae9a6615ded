"""Learning rates against the closed form, torch's and lightly's schedulers, and what holds for every schedule."""

import math
import re
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import OptimSettings
from counterpoint.engine.optimisers import Schedule, build_schedule

NAMES = ("cosine", "epoch-cosine", "constant")


def settings(**changes: Any) -> OptimSettings:
    return OptimSettings(**{"learning_rate": 0.4, "weight_decay": 0.0, "warmup_epochs": 0.0, **changes})


def rates(schedule: Schedule) -> list[float]:
    return [schedule(step) for step in range(schedule.num_steps)]


def oracle_rate(step: int, peak: float, num_steps: int, num_warmup: int) -> float:
    """goyal2017's warm-up, then loshchilov2017's cosine to zero."""
    if step < num_warmup:
        return peak * (step + 1) / num_warmup
    return peak / 2 * (1 + math.cos(math.pi * (step - num_warmup) / (num_steps - num_warmup)))


@pytest.mark.parametrize(("num_steps", "num_warmup"), [(100, 10), (100, 0), (7, 3), (500, 1), (2, 1)])
def test_the_schedule_is_warm_up_then_cosine(num_steps: int, num_warmup: int) -> None:
    schedule = Schedule(peak=0.02, num_steps=num_steps, num_warmup=num_warmup)
    expected = [oracle_rate(step, 0.02, num_steps, num_warmup) for step in range(num_steps)]
    assert rates(schedule) == pytest.approx(expected, rel=1e-12)
    assert schedule(num_steps) == pytest.approx(0.0, abs=1e-12)


def test_the_warm_up_lasts_for_its_epochs() -> None:
    schedule = build_schedule(settings(warmup_epochs=1.5), num_epochs=4, batches_per_epoch=6)
    assert rates(schedule) == pytest.approx([oracle_rate(step, 0.4, 24, 9) for step in range(24)], rel=1e-12)


def test_a_cosine_of_its_own_length_is_that_of_the_released_alpha_cl_loop() -> None:
    """torch's scheduler as simclr_trainer.py calls it: T_max counts batches, and it steps from epoch 11 on."""
    num_batches, num_epochs = 39, 100
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=num_batches)
    expected = []
    for epoch in range(num_epochs):
        expected += [optimizer.param_groups[0]["lr"]] * num_batches
        optimizer.step()
        if epoch >= 10:
            scheduler.step()
    asked = settings(schedule="epoch-cosine", peak_epochs=10.0, cosine_epochs=float(num_batches))
    schedule = build_schedule(asked, num_epochs=num_epochs, batches_per_epoch=num_batches)
    assert rates(schedule) == pytest.approx(expected, rel=1e-9, abs=1e-15)
    assert min(expected) < 1e-12
    assert expected[-1] > 0.1  # it has risen again


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Schedule, str, int, int]:
    """A schedule, its name, epochs and batches per epoch."""
    name, num_epochs, batches = draw(st.sampled_from(NAMES)), draw(st.integers(1, 12)), draw(st.integers(1, 9))
    share = 0.0 if name == "constant" else draw(st.sampled_from([0.0, 0.001, 0.3, 1.0]))
    warmup = draw(st.floats(0, num_epochs))
    asked = settings(schedule=name, warmup_epochs=warmup, final_share=share)
    return build_schedule(asked, num_epochs=num_epochs, batches_per_epoch=batches), name, num_epochs, batches


@given(schedules())
def test_it_rises_to_the_peak_and_falls_to_its_share_of_it(drawn: tuple[Schedule, str, int, int]) -> None:
    schedule, name, num_epochs, batches = drawn
    curve, top = rates(schedule), schedule.num_warmup
    assert schedule.num_steps == num_epochs * batches == len(curve)
    assert all(a < b for a, b in pairwise(curve[:top]))
    assert all(a >= b for a, b in pairwise(curve[max(0, top - 1) :]))  # from the last step of the warm-up on
    if top > 0:
        assert curve[top - 1] == schedule.peak  # the warm-up ends where the cosine starts
    if top < len(curve):
        assert curve[top] == schedule.peak
        assert schedule(len(curve)) == pytest.approx(schedule.final_share * schedule.peak, abs=1e-12)
    assert min(curve) > 0  # no step is wasted
    assert max(curve) == schedule.peak
    if name == "constant":
        assert set(curve[top:]) <= {schedule.peak}


@given(schedules())
def test_per_epoch_the_cosine_keeps_its_value(drawn: tuple[Schedule, str, int, int]) -> None:
    schedule, name, num_epochs, batches = drawn
    curve, first = rates(schedule), math.ceil(schedule.num_warmup / batches)
    num_values = [len(set(curve[epoch * batches : (epoch + 1) * batches])) for epoch in range(first, num_epochs)]
    if name == "epoch-cosine":
        assert num_values == [1] * (num_epochs - first)
    if name == "cosine" and schedule.final_share < 1 and num_epochs > first:
        assert num_values == [batches] * (num_epochs - first)


def test_per_epoch_without_warm_up_it_is_torchs_cosine_annealing() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.4)
    peer = lr_scheduler.CosineAnnealingLR(optimizer, T_max=7, eta_min=0.4 * 0.1)
    schedule = build_schedule(settings(schedule="epoch-cosine", final_share=0.1), num_epochs=7, batches_per_epoch=3)
    for epoch in range(7):
        assert schedule(3 * epoch + 1) == pytest.approx(peer.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        peer.step()


def test_a_warm_up_longer_than_the_run_is_refused() -> None:
    message = "optim.warmup_epochs must be at most the number of epochs, 5, got 6; about"
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        build_schedule(settings(warmup_epochs=6.0), num_epochs=5, batches_per_epoch=2)
    assert "\n" not in str(caught.value)
