"""The figures of directclr2022 at reduced size: what agrees, and what differs and is said to."""

from collections.abc import Callable

import pytest

from reproductions.directclr2022 import directclr_figures as figures
from reproductions.panels import LinePanel, MatrixPanel
from reproductions.reproduction import FigureRun, Reproduction

pytestmark = pytest.mark.thorough


def made(figure: Callable[[FigureRun], Reproduction]) -> dict[str, bool | None]:
    """Verdicts by claim, after checking what all figures owe."""
    lines: list[str] = []
    reproduction = figure(FigureRun(quick=True, progress=lines.append))
    assert lines
    assert reproduction.source.startswith("directclr2022, ")
    assert reproduction.settings["dimensions"] == "16"
    for claim in reproduction.claims:
        assert claim.agrees is not False or claim.note or reproduction.remarks
    assert all(isinstance(panel, LinePanel | MatrixPanel) for panel in reproduction.panels)
    assert str(reproduction).count("agrees") >= 2
    return {claim.what: claim.agrees for claim in reproduction.claims}


def differing(verdicts: dict[str, bool | None]) -> list[str]:
    return [what for what, agrees in verdicts.items() if agrees is False]


def test_fig4_live_directions_align_and_the_rest_is_said_to_differ() -> None:
    verdicts = made(figures.figure_4)
    assert len(verdicts) == 8
    assert all("diagonal" in what for what in differing(verdicts))
    one_by_one = [what for what in verdicts if what.startswith("Eq. 2: mean of |A|'s diagonal over the ")]
    assert [verdicts[what] for what in one_by_one] == [True]


def test_fig5_small_singular_values_stay_behind() -> None:
    verdicts = made(figures.figure_5)
    assert differing(verdicts) == []
    assert "Eq. 2, gradient flow: change of W1 W1ᵀ - W2ᵀ W2" in verdicts


def test_fig6_depth_collapses_and_relu_only_with_eq_2() -> None:
    verdicts = made(figures.figure_6)
    assert differing(verdicts) == ["released loss: live dimensions with ReLU, L = 2"]


def test_section_4_noise_leaves_a_gap_and_no_zero() -> None:
    verdicts = made(figures.section_4)
    assert differing(verdicts) == ["noise 1.5: live dimensions"]


def test_a_seed_repeats_and_another_differs() -> None:
    first, again, other = (figures.section_4(FigureRun(seed, quick=True)) for seed in (0, 0, 1))
    assert first == again
    assert first.panels != other.panels


@pytest.mark.slow
def test_fig6_at_full_size_has_the_known_numbers_of_live_dimensions() -> None:
    claims = {claim.what: claim.ours for claim in figures.figure_6(FigureRun()).claims}
    depth = str(claims["released loss: live dimensions for L = 1, 2, 3, 4"]).split(", ")
    counts = [{int(count) for count in counts.split("-")} for counts in depth]
    for seen, known in zip(counts, ({16}, {12, 13}, {7, 8}, {4, 5}), strict=True):
        assert seen <= known
    assert claims["released loss: live dimensions with ReLU, L = 2"] == 15
