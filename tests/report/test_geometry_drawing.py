"""A geometry on a page: which classes merge in words, the plane true to the angles, nothing of it markup."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from page_scan import PageScan
from test_theory_page import cells, scan

from counterpoint.core.errors import RunError
from counterpoint.report.theory_pages.collapse_sections import phase_line, phase_section, rebalancing_section
from counterpoint.report.theory_pages.geometry_drawing import (
    Remarks,
    class_groups,
    class_plane,
    merge_words,
    render_geometry,
    write_geometry,
)
from counterpoint.theory.collapse.phase import phase_diagram
from counterpoint.theory.collapse.rebalancing import rebalance
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry

QUESTION = {"loss": "InfoNCE", "negatives": "512"}


def solve(*shares: float, **settings: Any) -> Geometry:
    return optimal_geometry(torch.tensor(shares, dtype=torch.float64), **settings)


def page(geometry: Geometry, **question: str) -> str:
    return render_geometry(geometry, question=question or QUESTION)


def spokes(drawing: str) -> list[tuple[float, float]]:
    """Ends of the spokes of the first drawing, from the centre, in radii."""
    picture = re.findall(r"<svg[^>]*plane.*?</svg>", drawing, re.DOTALL)[0]
    x, y, radius = (float(re.findall(rf'<circle[^>]* {name}="([\d.]+)"', picture)[0]) for name in ("cx", "cy", "r"))
    ends = re.findall(r'<path d="M[\d.]+ [\d.]+L([\d.]+) ([\d.]+)" class="spoke', picture)
    return [((float(a) - x) / radius, (y - float(b)) / radius) for a, b in ends]


def test_the_plane_shows_the_angles() -> None:
    found = solve(0.5, 0.25, 0.25, num_negatives=512)
    drawn = torch.tensor(spokes(page(found)), dtype=torch.float64)
    assert drawn[0].tolist() == pytest.approx([0.0, 1.0], abs=1e-3)
    assert float(drawn[1, 0]) > 0
    assert torch.allclose(drawn @ drawn.T, found.gram, atol=5e-3)


def test_classes_that_merge_are_one_spoke_with_both_names() -> None:
    found = solve(0.96, 0.02, 0.02)
    told = page(found)
    assert spokes(told) == [pytest.approx((0.0, 1.0), abs=1e-3), pytest.approx((0.0, -1.0), abs=1e-3)]
    assert ">2 and 3</text>" in told
    assert "Classes 2 and 3 merge; the others stay apart." in scan(told).text
    assert [entry[0] for entry in cells(told)[:9]] == ["c1", "c2", "c2", "c2", "c1", "c1", "c2", "c1", "c1"]


def test_the_page_tells_certificate_question_and_proportions() -> None:
    found = scan(page(solve(0.5, 0.3, 0.2), loss="InfoNCE", negatives="512"))
    for words in ("duality gap", "lower bound", "rank", "InfoNCE", "512", "0.3", "Optimal geometry of 3 classes"):
        assert words in found.text


def test_more_than_two_dimensions_are_shown_by_their_principal_axes() -> None:
    plane = class_plane(solve(*[0.2] * 5).means.numpy())
    assert plane.share == pytest.approx(0.5, abs=1e-6)  # a simplex of five spreads evenly over four dimensions
    assert "Their first two principal axes, which hold 50" in page(solve(*[0.2] * 5))
    assert class_plane(solve(0.5, 0.5).means.numpy()).share == pytest.approx(1.0)
    assert class_plane(np.ones((1, 3))).points_C2.shape == (3, 2)


def test_without_a_certificate_the_page_says_so() -> None:
    geometry = solve(0.25, 0.25, 0.25, 0.25, dimension=2)
    assert not geometry.is_certified
    found = scan(page(replace(geometry, lower_bound=-math.inf, duality_gap=math.inf)))
    classes = [a.get("class") for a in found.named("span")]
    assert "verdict level-note" in classes
    assert "verdict level-good" not in classes
    assert geometry.status in found.text
    assert "none" in found.text
    assert "inf" not in found.text.split()


@pytest.mark.parametrize(
    ("gram", "groups", "words"),
    [
        ([[1, -1], [-1, 1]], [[0], [1]], "No classes merge: the closest two, 1 and 2, are 180.00° apart."),
        ([[1, 1], [1, 1]], [[0, 1]], "All classes merge: one point is the best there is."),
        ([[1, 0, 1], [0, 1, 0], [1, 0, 1]], [[0, 2], [1]], "Classes 1 and 3 merge; the others stay apart."),
        (
            [[1, 1, -1, -1], [1, 1, -1, -1], [-1, -1, 1, 1], [-1, -1, 1, 1]],
            [[0, 1], [2, 3]],
            "Classes 1 and 2; classes 3 and 4 merge.",
        ),
    ],
)
def test_which_classes_merge_in_words(gram: list[list[float]], groups: list[list[int]], words: str) -> None:
    gram_CC = torch.tensor(gram, dtype=torch.float64)
    size = len(gram)
    record = replace(solve(*[1 / size] * size), gram=gram_CC)
    assert class_groups(record) == groups
    assert merge_words(record) == words


def test_of_equal_classes_none_are_the_closest_two_and_no_plane_is_best() -> None:
    found = solve(*[1 / 40] * 40)
    assert merge_words(found) == "No classes merge: all are 91.47° apart."
    assert "one of many equally good planes" in page(found)
    assert "one of many" not in page(solve(0.4, 0.3, 0.2, 0.1))
    assert "one of many" not in page(solve(1 / 3, 1 / 3, 1 / 3))


def test_remarks_stand_on_the_page() -> None:
    told = scan(render_geometry(solve(0.5, 0.5), question=QUESTION, remarks=Remarks("risk, divided by k", ["Mind."])))
    assert "risk, divided by k" in told.text
    assert "Mind." in told.text


def test_a_loss_that_prefers_spread_classes_gets_a_warning() -> None:
    found = solve(0.5, 0.25, 0.25)
    assert "spread out" not in page(found)
    assert "spread out" not in page(replace(found, is_collapse_optimal=None))
    assert "classes that stay spread out do better" in page(replace(found, is_collapse_optimal=False))


def test_many_classes_make_a_page_of_bearable_size() -> None:
    told = page(solve(*[1 / 150] * 150))
    assert len(told) < 4_000_000
    assert "and 110 classes more" in told
    assert "64 of 150 rows" in told


def test_a_line_of_the_phase_diagram_ends_where_the_minorities_merge() -> None:
    diagram = phase_diagram([0.4, 0.6, 0.95, 0.99], [math.inf], [0.2, 1.0])
    merging, apart = phase_line(diagram, 0, 1), phase_line(diagram, 0, 0)
    assert merging.x == pytest.approx([0.4, 0.6, 0.9002], abs=5e-5)
    assert merging.y[-1] == 1
    first, second = (height for height in merging.y[:2] if height is not None)
    assert -0.5 < first < second < 1
    assert apart.x == pytest.approx([0.4, 0.6, 0.95, 0.99])
    assert all(height is not None and height < 1 for height in apart.y)


def test_the_charts_of_all_temperatures_share_their_axes() -> None:
    told = str(phase_section(phase_diagram([0.4, 0.9, 0.99], [1, math.inf], [0.2, 1.0])).content)
    found = re.findall(r"<svg.*?</svg>", told, re.DOTALL)
    ticks = [re.findall(r'class="tick[^>]*>([^<]*)<', drawing) for drawing in found]
    assert len(found) == 4  # two temperatures, for a wide screen and for a phone
    assert ticks[0] == ticks[2]
    assert {"1.0", "0.6"} <= set(ticks[0])
    assert [drawing.count('class="line ') for drawing in found] == [2, 2, 2, 2]
    for words in ("0.9002", "0.8075", "infinitely many", "between 0.8075 and 1 − 3.4×10⁻⁵ on"):
        assert words in " ".join(told.split())  # some spaces do not break


def test_more_sections_follow_the_pictures() -> None:
    plan = rebalance([0.6, 0.2, 0.2])
    told = render_geometry(plan.before, question=QUESTION, more=[rebalancing_section(plan)])
    order = [told.index(f'id="{name}"') for name in ("answer", "picture", "rebalancing", "question")]
    assert order == sorted(order)
    found = scan(told).text
    for factor in plan.sampling.repeat_factors_C.tolist():
        assert f"{factor:.4g}" in found


def test_of_many_classes_the_first_are_rebalanced_on_the_page() -> None:
    shares = torch.arange(1, 61, dtype=torch.float64).reciprocal()
    plan = replace(rebalance([0.6, 0.2, 0.2]), proportions_C=shares / shares.sum())
    many = torch.full((60,), 1 / 60, dtype=torch.float64)
    sampling = replace(plan.sampling, proportions_C=many, repeat_factors_C=many)
    weighting = replace(plan.weighting, anchor_weights_C=many, sample_weights_C=many, gram_CC=torch.eye(60))
    sampling = replace(sampling, geometry=replace(sampling.geometry, gram=torch.eye(60)))
    told = str(rebalancing_section(replace(plan, sampling=sampling, weighting=weighting)).content)
    assert "and 20 classes more" in told
    assert len(told) < 2_000_000


def test_nothing_asked_becomes_markup() -> None:
    attack = "</title><script>alert(1)</script>"
    found = PageScan(page(solve(0.5, 0.5), **{attack: attack}))
    assert found.named("script") == []
    assert attack in found.text


def test_the_file_is_replaced_only_if_it_is_ours(tmp_path: Path) -> None:
    found = solve(0.5, 0.5)
    path = write_geometry(found, tmp_path / "a.html", question=QUESTION)
    before = path.read_bytes()
    assert write_geometry(found, path, question=QUESTION).read_bytes() == before
    path.write_text("mine")
    with pytest.raises(RunError, match="stays as it is"):
        write_geometry(found, path, question=QUESTION)
    assert path.read_text() == "mine"
    assert math.isfinite(found.risk)
