"""The solvers on hard costs, also with the fixed number of steps taken where nobody can look whether they are done."""

# M keys

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from counterpoint.losses import conditions
from counterpoint.losses.simplex_solvers import inverse_power_root, inverse_powers, water_level
from tolerances import assert_close


def hard_costs(num: int, span: float) -> dict[str, Tensor]:
    """Costs above the least, up to the span: on these the solvers need most steps."""
    place_M = torch.arange(num, dtype=torch.float64)
    share_M = torch.rand(num, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    found = {
        "factorials": torch.lgamma(place_M + 1).exp().clamp(max=span),  # one key leaves in each step of the water level
        "powers": 3 ** place_M.clamp(max=80),
        "logarithmic": span**share_M,
        "uniform": span * share_M,
        "all but one": span * (place_M > 0),
        "two groups": span * (place_M < num // 2),
    }
    return {name: (cost_M - cost_M.min()).clamp(max=span)[None] for name, cost_M in found.items()}


HARD = {
    f"{name}, {num} keys, span {span:g}": cost_1M
    for num in (2, 31, 1000)
    for span in (1e-6, 1.0, 1e6, 1e30)
    for name, cost_1M in hard_costs(num, span).items()
}
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
each_costs = pytest.mark.parametrize("cost_1M", HARD.values(), ids=HARD)


@each_costs
@each_dtype
@pytest.mark.parametrize("can_look", [True, False])
def test_the_water_covers_the_costs_with_its_volume(
    cost_1M: Tensor, dtype: torch.dtype, can_look: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "READS_ARE_FREE", ("cpu",) if can_look else ())
    level = water_level(cost_1M.to(dtype), 1.0).double()
    assert_close(torch.relu(level - cost_1M.to(dtype).double()).sum(), torch.ones(()).double(), dtype=dtype)


@each_costs
@pytest.mark.parametrize("gamma", [0.1, 1.0, 3.0])
@each_dtype
def test_inverse_powers(cost_1M: Tensor, gamma: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    cost_1M = cost_1M.to(dtype)
    check(lambda: inverse_powers(cost_1M, gamma), monkeypatch)
    check(lambda: inverse_power_root(cost_1M, cost_1M < 0, gamma), monkeypatch)


def check(solve: Callable[[], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = solve()
    with monkeypatch.context() as unseen:
        unseen.setattr(conditions, "READS_ARE_FREE", ())
        found = solve()
    assert_close(found, expected)
