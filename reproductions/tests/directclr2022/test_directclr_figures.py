"""The figures of directclr2022 at reduced size: what agrees, and what differs and is said to."""

import pytest

from reproductions.directclr2022 import directclr_figures as figures
from reproductions.reproduction import FigureRun, Reproduction

pytestmark = pytest.mark.thorough
QUICK = FigureRun(quick=True)


def differing(made: Reproduction) -> list[str]:
    return [claim.what for claim in made.claims if claim.agrees is False]


def test_fig4_live_directions_align_and_the_rest_is_said_to_differ() -> None:
    made = figures.figure_4(QUICK)
    assert len(made.claims) == 8
    assert all("diagonal" in statement for statement in differing(made))
    one_by_one = "Eq. 2: mean of |A|'s diagonal over the "
    assert [claim.agrees for claim in made.claims if claim.what.startswith(one_by_one)] == [True]


def test_fig5_small_singular_values_stay_behind() -> None:
    made = figures.figure_5(QUICK)
    assert differing(made) == []
    assert "Eq. 2, gradient flow: change of W1 W1ᵀ - W2ᵀ W2" in [claim.what for claim in made.claims]


def test_fig6_depth_collapses_and_relu_only_with_eq_2() -> None:
    assert differing(figures.figure_6(QUICK)) == ["released loss: live dimensions with ReLU, L = 2"]


def test_section_4_noise_leaves_a_gap_and_no_zero() -> None:
    made = figures.section_4(QUICK)
    assert differing(made) == ["noise 1.5: live dimensions"]
    assert made.panels != figures.section_4(FigureRun(1, quick=True)).panels
