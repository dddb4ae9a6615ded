"""alphacl2022, Figs. 2 and 3 at their quick size: what they claim and what they draw."""

import pytest
import torch
from torch import Tensor

from reproductions.alphacl2022.alphacl_figures import figure_2, figure_3
from reproductions.panels import LinePanel, MatrixPanel
from reproductions.reproduction import FigureRun

pytestmark = pytest.mark.thorough


def test_figure_2_reaches_the_largest_eigenvalue_with_layers_of_rank_one() -> None:
    made = figure_2(FigureRun(quick=True))
    assert made.agrees
    panels = {panel.title: panel.series for panel in made.panels if isinstance(panel, LinePanel)}
    for series in panels["objective over its maximum"]:
        assert series.y[-1] == pytest.approx(1, abs=1e-4)
        assert max(series.y) <= 1 + 1e-12
    ends = {series.name: series.y[-1] for series in panels["singular values of the layers, first start"]}
    assert [ends[f"W{layer} largest"] for layer in range(1, 6)] == pytest.approx([1.0] * 5, abs=1e-3)
    assert max(ends[f"W{layer} second"] for layer in range(1, 6)) < 0.05


def test_figure_3_has_one_mode_with_fixed_alpha_and_more_in_training() -> None:
    made = figure_3(FigureRun(quick=True))
    assert made.agrees
    drawn: dict[str, Tensor] = {p.title: torch.tensor(p.values) for p in made.panels if isinstance(p, MatrixPanel)}
    assert int((drawn["W1: ReLU, alpha fixed"] > 0.01).any(dim=0).sum()) == 1
    released = drawn["W1: ReLU, released set-up"]
    assert float(released.min()) >= 0
    assert int((released > 0.3).any(dim=0).sum()) > 5
    top_two = torch.linalg.svdvals(drawn["W1: linear, alpha fixed"])[:2]
    assert float(top_two[1] / top_two[0]) < 0.02  # two digits are drawn
