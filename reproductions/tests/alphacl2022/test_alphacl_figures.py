"""alphacl2022, Figs. 2 and 3 at their quick size: what they claim, what they draw, and that a seed fixes both."""

from collections.abc import Callable

import pytest
import torch

from reproductions.alphacl2022.alphacl_figures import figure_2, figure_3
from reproductions.panels import LinePanel, MatrixPanel
from reproductions.reproduction import FigureRun, Reproduction

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def deep_linear() -> Reproduction:
    return figure_2(FigureRun(quick=True))


@pytest.fixture(scope="module")
def two_layers() -> Reproduction:
    return figure_3(FigureRun(quick=True))


def panel(made: Reproduction, title: str) -> LinePanel | MatrixPanel:
    (found,) = [p for p in made.panels if p.title == title]
    assert isinstance(found, LinePanel | MatrixPanel)
    return found


def test_figure_2_reaches_the_largest_eigenvalue_with_layers_of_rank_one(deep_linear: Reproduction) -> None:
    assert deep_linear.agrees
    objective = panel(deep_linear, "objective over its maximum")
    assert isinstance(objective, LinePanel)
    for series in objective.series:
        assert series.y[-1] == pytest.approx(1, abs=1e-4)
        assert max(series.y) <= 1 + 1e-12
    values = panel(deep_linear, "singular values of the layers, first start")
    assert isinstance(values, LinePanel)
    ends = {series.name: series.y[-1] for series in values.series}
    assert [ends[f"W{layer} largest"] for layer in range(1, 6)] == pytest.approx([1.0] * 5, abs=1e-3)
    assert max(ends[f"W{layer} second"] for layer in range(1, 6)) < 0.05


def test_figure_3_has_one_mode_with_fixed_alpha_and_more_in_training(two_layers: Reproduction) -> None:
    assert two_layers.agrees
    fixed = panel(two_layers, "W1: ReLU, alpha fixed")
    released = panel(two_layers, "W1: ReLU, released set-up")
    linear = panel(two_layers, "W1: linear, alpha fixed")
    assert isinstance(fixed, MatrixPanel)
    assert isinstance(released, MatrixPanel)
    assert isinstance(linear, MatrixPanel)
    sees = torch.tensor(fixed.values)
    assert int((sees > 0.01).any(dim=0).sum()) == 1
    assert float(torch.tensor(released.values).min()) >= 0
    assert int((torch.tensor(released.values) > 0.3).any(dim=0).sum()) > 5
    top_two = torch.linalg.svdvals(torch.tensor(linear.values))[:2]
    assert float(top_two[1] / top_two[0]) < 0.02  # two digits are drawn


@pytest.mark.parametrize("make", [figure_2, figure_3])
def test_a_seed_fixes_the_numbers_and_progress_is_told(
    make: Callable[[FigureRun], Reproduction], deep_linear: Reproduction, two_layers: Reproduction
) -> None:
    lines: list[str] = []
    state = torch.get_rng_state()
    again = make(FigureRun(quick=True, progress=lines.append))
    assert again.to_dict() == (deep_linear if make is figure_2 else two_layers).to_dict()
    assert lines
    assert torch.equal(torch.get_rng_state(), state)
