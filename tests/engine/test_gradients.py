"""Length, clipping and refusal of a gradient, against the same written out in plain arithmetic."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from counterpoint.core.errors import TrainingError
from counterpoint.engine.gradients import INITIAL, INTERVAL, LossScale, apply_update, check_all_used, read_gradients

RATE = 0.5


def method_with(gradients: list[list[float]], dtype: torch.dtype = torch.float64) -> nn.ParameterDict:
    """Parameters a, b, ... at zero with the gradients given."""
    method = nn.ParameterDict()
    for number, values in enumerate(gradients):
        parameter = nn.Parameter(torch.zeros(len(values), dtype=dtype))
        parameter.grad = torch.tensor(values, dtype=dtype)
        method[chr(ord("a") + number)] = parameter
    return method


def stepped(method: nn.Module, clip: float | None, scale: LossScale | None = None):
    optimizer = torch.optim.SGD(method.parameters(), lr=RATE)
    return apply_update(read_gradients(method), optimizer, clip=clip, scale=scale or LossScale())


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=4), min_size=1, max_size=3),
    st.one_of(st.none(), st.floats(1e-3, 1e3)),
    st.sampled_from([1.0, 1024.0]),
)
def test_a_step_is_the_gradient_scaled_to_the_limit(
    gradients: list[list[float]], clip: float | None, scale: float
) -> None:
    method = method_with([[value * scale for value in values] for values in gradients])
    update = stepped(method, clip, LossScale(scale, is_active=scale > 1))
    length = math.sqrt(sum(value * value for values in gradients for value in values))
    assert update.is_applied
    assert update.nonfinite is None
    assert update.gradient_norm == pytest.approx(length, rel=1e-12)
    factor = 1.0 if clip is None or length <= clip else clip / length
    for values, parameter in zip(gradients, method.parameters(), strict=True):
        assert parameter.grad is None
        assert parameter.tolist() == pytest.approx([-RATE * factor * value for value in values], rel=1e-10, abs=1e-300)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_the_first_parameter_that_is_not_finite_is_named(bad: float, clip: float | None) -> None:
    method = method_with([[1.0], [2.0, bad], [bad]])
    update = stepped(method, clip)
    assert (update.is_applied, update.nonfinite) == (False, "b")
    assert not math.isfinite(update.gradient_norm)
    assert all(parameter.tolist() == [0.0] * len(parameter) for parameter in method.parameters())
    assert all(parameter.grad is None for parameter in method.parameters())


def test_parameters_without_gradient_and_other_types_are_passed_over() -> None:
    method = method_with([[3.0], [4.0], [12.0]])
    method["b"].grad = None
    method["c"].data = method["c"].data.float()
    method["c"].grad = torch.tensor([4.0])
    gradients = read_gradients(method)
    assert gradients.names == ["a", "c"]
    assert gradients.norms == [3.0, 4.0]
    method["a"].grad = method["c"].grad = None
    assert stepped(method, None).gradient_norm == 0.0


def test_every_parameter_needs_a_gradient() -> None:
    method = method_with([[1.0], [1.0], [1.0]])
    check_all_used(method, 2)
    method["c"].grad = None
    method["b"].requires_grad_(False)
    with pytest.raises(TrainingError, match=r"^parameter c had no part in the loss; with 2 ranks"):
        check_all_used(method, 2)


def test_an_overflow_lowers_the_scale_until_none_is_left() -> None:
    scale = LossScale.for_precision("fp16")
    updates = [stepped(method_with([[math.inf]]), None, scale) for _ in range(20)]
    assert [update.nonfinite for update in updates] == [None] * int(math.log2(INITIAL)) + ["a"] * 4
    assert scale.value == 1.0


def test_the_scale_rises_after_enough_good_steps() -> None:
    scale = LossScale(8.0, is_active=True)
    for _ in range(INTERVAL - 1):
        scale.learn(is_finite=True)
    assert scale.value == 8.0
    restored = LossScale.for_precision("fp16")
    restored.restore(scale.state())
    restored.learn(is_finite=True)
    assert restored.value == 16.0
    restored.learn(is_finite=False)
    assert restored.state() == {"value": 8.0, "good_steps": 0.0}
    interrupted = LossScale(8.0, is_active=True, good_steps=5)
    interrupted.learn(is_finite=False)
    assert interrupted.state() == {"value": 4.0, "good_steps": 0.0}  # the count begins anew
