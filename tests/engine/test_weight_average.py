"""The moving average of weights: its recursion, its early steps, checkpoints, and weights swapped in and back."""

import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.errors import RunError
from counterpoint.engine.weight_average import WeightAverage
from tolerances import assert_close


def method() -> nn.Module:
    """Weights, BatchNorm's statistics and its counter."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2)).double()


def step(module: nn.Module, number: int) -> None:
    """Weights and statistics that depend on the step's number only."""
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        module.train()(torch.randn(3, 2, 4, 4, generator=generator, dtype=torch.float64))


def copies(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in state.items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("decay", [0.3, 0.99])
def test_the_average_follows_its_recursion(decay: float) -> None:
    module = method()
    average, expected = WeightAverage(module.state_dict(), decay), copies(module.state_dict())
    for number in range(12):
        step(module, number)
        average.update(module.state_dict(), step=number)
        kept = min(decay, (1 + number) / (10 + number))
        for name, value in module.state_dict().items():
            is_mean = value.is_floating_point()
            expected[name] = kept * expected[name] + (1 - kept) * value if is_mean else value.clone()
    assert int(average.tensors()["1.num_batches_tracked"]) == 12
    for name, value in average.tensors().items():
        if value.is_floating_point():
            assert_close(value, expected[name])
        else:
            assert torch.equal(value, expected[name])


def test_the_weights_are_neither_changed_nor_shared() -> None:
    module = method()
    average = WeightAverage(module.state_dict(), 0.9)
    average.update(module.state_dict(), step=0)
    before, mean = copies(module.state_dict()), average.tensors()
    average.update({name: value + 1 for name, value in before.items()}, step=1)
    assert same(before, dict(module.state_dict()))
    step(module, 1)
    assert not same(mean, average.tensors())  # what was given out is not moved by the second update
    assert all(value.is_contiguous() and not value.requires_grad for value in mean.values())


def test_resuming_is_bitwise_exact() -> None:
    module = method()
    whole = WeightAverage(module.state_dict(), 0.99)
    for number in range(4):
        step(module, number)
        whole.update(module.state_dict(), step=number)
    resumed = WeightAverage(method().state_dict(), 0.99)
    resumed.load(copies(whole.tensors()))
    for number in range(4, 9):
        step(module, number)
        whole.update(module.state_dict(), step=number)
        resumed.update(module.state_dict(), step=number)
    assert same(whole.tensors(), resumed.tensors())


@pytest.mark.parametrize("fails", [False, True])
def test_averaged_weights_come_and_go_bit_for_bit(fails: bool) -> None:
    module = method().to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    average = WeightAverage(module.state_dict(), 0.5)
    step(module, 0)
    average.update(module.state_dict(), step=0)
    own, mean = copies(module.state_dict()), average.tensors()
    places = {name: value.data_ptr() for name, value in module.state_dict().items()}
    try:
        with average.applied(module):
            assert same(dict(module.state_dict()), mean)
            step(module, 1)  # an evaluation that changes what it should not
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert same(dict(module.state_dict()), own)
    assert same(average.tensors(), mean)
    assert {name: value.data_ptr() for name, value in module.state_dict().items()} == places


def test_a_part_of_the_state_may_be_averaged() -> None:
    module = method()
    average = WeightAverage({name: v for name, v in module.state_dict().items() if name.startswith("3.")}, 0.5)
    step(module, 0)
    average.update(module.state_dict(), step=0)
    step(module, 1)
    own = copies(module.state_dict())
    with average.applied(module):
        changed = {name for name, value in module.state_dict().items() if not torch.equal(value, own[name])}
    assert changed == {"3.weight", "3.bias"} == set(average.tensors())


def test_the_average_goes_to_where_the_weights_went() -> None:
    module = method()
    average = WeightAverage(module.state_dict(), 0.5)
    module.to("meta")
    average.update(module.state_dict(), step=0)
    assert {value.device.type for value in average._average.values()} == {"meta"}


@pytest.mark.parametrize(
    "saved",
    [{}, {"w": torch.ones(2), "v": torch.ones(1)}, {"w": torch.ones(3)}, {"w": torch.ones(2).double()}],
)
def test_an_average_of_another_model_is_refused(saved: dict[str, Tensor]) -> None:
    average = WeightAverage({"w": torch.zeros(2)}, 0.9)
    with pytest.raises(RunError, match="the saved average of weights is of another model; resume with"):
        average.load(saved)
    assert torch.equal(average.tensors()["w"], torch.zeros(2))
