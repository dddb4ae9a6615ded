"""A reproduced figure on a page of their own: sealed, escaped, drawn true, told in words."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from page_scan import PageScan
from page_scan import scan_without_script as scan
from theory_records import ATTACK, STEPS, hostile, lines, matrix, points, reproduction

from counterpoint.core.errors import RunError
from reproductions.matrix_figure import heat_map
from reproductions.panel_figures import MAX_LINES, line_figure, point_figure
from reproductions.panels import LinePanel, MatrixPanel, PointPanel, Series
from reproductions.reproduction import Claim, PictureGrid, PictureRow
from reproductions.reproduction_page import render_reproduction, verdict_words, write_reproduction

# --- the record


def test_the_text_holds_every_claim_its_values_and_its_verdict() -> None:
    said = str(reproduction())
    for words in ("A toy (mio2021, Fig. 1)", "cosine of two classes", "-0.5 ", "-0.5 ", "agrees", "differs"):
        assert words in said
    assert re.search(r"live dimensions fall with depth +fall +rise +differs", said)
    for words in ("the run is ten times shorter", "One remark.", "Settings: seed 0, steps 50"):
        assert words in said
    assert max(len(line) for line in said.splitlines()) <= 110


def test_long_texts_are_wrapped_and_none_is_lost() -> None:
    long = " ".join(f"word{number}" for number in range(40))
    said = str(replace(reproduction(), claims=[Claim(long, long, long, None, long)]))
    assert max(len(line) for line in said.splitlines()) <= 110
    assert said.split().count("word39") == 4


def test_the_titles_stand_on_one_line_whatever_the_widths() -> None:
    short = replace(reproduction(), claims=[Claim("a", 1.0, 2.0, True)])
    assert str(short).splitlines()[2].split() == ["claim", "paper", "ours", "verdict"]
    assert str(replace(short, claims=[])).splitlines()[2].split() == ["claim", "paper", "ours", "verdict"]


def test_plain_data_is_json_and_names_each_kind() -> None:
    told = json.loads(json.dumps(reproduction().to_dict()))
    assert [panel["kind"] for panel in told["panels"]] == ["lines", "points", "matrix"]
    assert told["panels"][2]["values"][0] == [1.0, -0.5, -0.5]
    assert told["agrees"] is False
    assert [claim["agrees"] for claim in told["claims"]] == [True, False, None]


def test_arrays_become_plain_numbers_and_shapes_are_checked() -> None:
    assert Series("a", range(2), (True, 2)).y == (1.0, 2.0)
    with pytest.raises(ValueError, match="3 positions and 2 values"):
        Series("a", [1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="2 row and 1 column labels"):
        MatrixPanel("m", [[1.0], [2.0, 3.0]], ["a", "b"], ["c"])


@pytest.mark.parametrize(
    ("verdicts", "words"),
    [
        ([], "Nothing was compared."),
        ([None], "1 has nothing printed to compare with."),
        ([True], "The one claim agrees."),
        ([False], "The one claim differs."),
        ([True, True, None, None], "All 2 claims agree; 2 have nothing printed to compare with."),
        ([True, False], "1 of 2 claims agrees, 1 differs."),
        ([True, True, False, False], "2 of 4 claims agree, 2 differ."),
        ([False, False], "All 2 claims differ."),
    ],
)
def test_the_verdict_in_words(verdicts: list[bool | None], words: str) -> None:
    assert verdict_words([Claim("", "", "", verdict) for verdict in verdicts]) == words


# --- the page


def test_the_page_says_all_that_the_record_says(tmp_path: Path) -> None:
    path = write_reproduction(reproduction(), tmp_path / "toy-fig1.html")
    found = scan(path.read_text(encoding="utf-8"))
    for words in ("A toy", "mio2021, Fig. 1", "python -m reproductions toy-fig1", "1 of 2 claims agrees, 1 differs"):
        assert words in found.text
    for words in ("the run is ten times shorter", "One remark.", "toy-fig1.json", "steps", "−0.5", "−0.5000"):
        assert words in found.text
    assert [a["class"] for a in found.named("span") if "verdict" in (a.get("class") or "")] == [
        "verdict level-good", "verdict level-warning", "verdict level-note",
    ]  # fmt: skip


def test_the_same_record_gives_the_same_bytes_and_replaces_an_earlier_page(tmp_path: Path) -> None:
    path = write_reproduction(reproduction(), tmp_path / "toy.html")
    before = path.read_bytes()
    write_reproduction(reproduction(lines()), path)
    assert path.read_bytes() != before
    assert write_reproduction(reproduction(), path).read_bytes() == before


def test_nothing_but_an_earlier_page_is_replaced(tmp_path: Path) -> None:
    other = tmp_path / "thesis.html"
    other.write_text("years of work")
    with pytest.raises(RunError, match="stays as it is"):
        write_reproduction(reproduction(), other)
    with pytest.raises(RunError, match="is a folder"):
        write_reproduction(reproduction(), tmp_path)
    assert other.read_text() == "years of work"
    assert list(tmp_path.iterdir()) == [other]


def test_no_text_of_a_record_becomes_markup() -> None:
    found = scan(render_reproduction(hostile()))
    assert ATTACK in found.text
    allowed = {"html", "head", "body", "meta", "title", "link", "style", "header", "main", "section", "p", "h1", "h2"}
    allowed |= {"bdi", "span", "div", "table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "strong"}
    allowed |= {"svg", "desc", "g", "path", "text", "rect", "details", "summary", "dl", "dt", "dd"}
    assert {tag for tag, _ in found.elements} <= allowed


# --- lines


def paths(drawing: str, class_: str) -> list[str]:
    return re.findall(rf'<path d="([^"]*)" class="{class_}[^"]*"', drawing)


def ends(figure: str) -> list[str]:
    """Names at the ends of the lines of the wide drawing."""
    return re.findall(r'class="label">([^<]+)<', figure.split('class="drawing narrow"', maxsplit=1)[0])


def test_few_lines_are_named_at_their_ends_and_more_in_a_legend() -> None:
    few, many = line_figure(lines(3), 470.0), line_figure(lines(10), 470.0)
    assert ends(few) == ["sigma 1", "sigma 2", "sigma 3"]
    assert 'class="legend"' not in few.split('class="drawing narrow"')[0]
    assert ends(many) == [f"sigma {k + 1}" for k in range(10)]
    assert 'class="legend"' in many


def test_of_very_many_lines_so_many_are_drawn_and_the_page_says_so() -> None:
    drawn = line_figure(lines(60), 620.0)
    assert len(paths(drawn.split('class="drawing narrow"')[0], "line ")) == MAX_LINES
    assert f"{MAX_LINES} of 60 lines, evenly chosen, are drawn." in drawn


def test_a_value_that_is_missing_leaves_a_gap_and_a_logarithm_leaves_out_what_it_has_not() -> None:
    values = [math.nan if step == 20 else 1.0 for step in STEPS]
    (gap,) = set(paths(line_figure(LinePanel("t", "x", "y", [Series("a", STEPS, values)]), 300.0), "line "))
    assert gap.count("M") == 2
    falling = [10.0 - step for step in STEPS]
    (kept,) = set(
        paths(line_figure(LinePanel("t", "x", "y", [Series("a", STEPS, falling)], log_y=True), 300.0), "line ")
    )
    assert len(re.findall("[ML]", kept)) == 10
    drawn = line_figure(lines(2, log_x=True), 300.0)
    assert all(len(re.findall("[ML]", path)) == 49 for path in paths(drawn, "line "))  # step 0 has no logarithm


def test_a_line_is_where_its_values_are() -> None:
    series = [Series("a", [0.0, 5.0, 10.0], [0.0, 1.0, 4.0])]
    (path,) = set(paths(line_figure(LinePanel("t", "x", "y", series), 300.0), "line "))
    (x0, y0), (x1, y1), (x2, y2) = ((float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path))
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.02)
    assert (y0 - y1) * 4 == pytest.approx(y0 - y2, abs=0.06)


def test_a_panel_without_a_single_value_is_drawn_empty() -> None:
    empty = [Series("a", [1.0], [math.nan]), Series("b", [], [])]
    for panel in (LinePanel("t", "x", "y", empty), LinePanel("t", "x", "y", empty, True, True)):
        assert "<svg" in line_figure(panel, 300.0)
    assert "<svg" in point_figure(PointPanel("t", "x", "y", empty), 300.0)


# --- points


def test_a_plane_has_one_scale_for_both_axes() -> None:
    circle = [2 * math.pi * k / 100 for k in range(100)]
    panel = PointPanel("t", "x", "y", [Series("a", [math.cos(t) for t in circle], [math.sin(t) for t in circle])])
    (cloud,) = paths(point_figure(panel, 300.0), "mark faint")
    starts = [(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)", cloud)]
    wide, high = (max(side) - min(side) for side in zip(*starts, strict=True))
    assert wide == pytest.approx(high, rel=0.01)


def test_points_in_the_unit_disc_are_drawn_from_minus_one_to_one() -> None:
    def ticks(*points: tuple[float, float]) -> list[str]:
        panel = PointPanel("t", "x", "y", [Series("a", [x for x, _ in points], [y for _, y in points])])
        return re.findall(r'class="tick [^"]*">([^<]+)<', point_figure(panel, 300.0))

    assert ticks((0.2, 0.97), (-0.2, -0.97)) == ["−1.0", "−0.5", "0", "0.5", "1.0"] * 2
    assert "−1.0" not in ticks((0.2, 1.7), (0.3, 0.1))
    assert "−1.0" not in ticks((0.2, 0.3), (0.3, 0.1))


def test_classes_of_points_have_a_legend() -> None:
    drawn = point_figure(points(), 300.0)
    assert re.findall(r'class="label">([^<]+)<', drawn) == ["cats", "dogs"]


# --- matrices


def cells(drawing: str) -> list[tuple[str, float]]:
    return [(c, float(o)) for c, o in re.findall(r'class="cell (\w+)" fill-opacity="([\d.]+)"', drawing)]


def test_colour_tells_the_sign_and_depth_the_size() -> None:
    drawn = heat_map(MatrixPanel("m", [[1.0, -0.5], [0.25, 0.0]], ["a", "b"], ["c", "d"]), 300.0)
    (one, half, quarter, nothing) = cells(drawn)
    assert [one[0], half[0], quarter[0], nothing[0]] == ["c1", "c2", "c1", "c1"]
    assert half[1] == pytest.approx(one[1] / 2, abs=1e-3)
    assert quarter[1] == pytest.approx(one[1] / 4, abs=1e-3)
    assert nothing[1] == 0.0
    assert re.findall(r'class="middle">([^<]+)<', drawn) == ["1", "−0.5000", "0.2500", "0"]


def test_what_is_no_number_is_an_empty_cell() -> None:
    drawn = heat_map(MatrixPanel("m", [[math.nan, 2.0]], ["a"], ["c", "d"]), 300.0)
    assert drawn.count("cell empty") == 1
    assert len(cells(drawn)) == 1
    assert "nan" not in render_reproduction(reproduction(MatrixPanel("m", [[math.nan]], ["a"], ["b"])))


def test_numbers_stay_out_of_cells_that_are_too_small_and_large_matrices_are_thinned() -> None:
    assert not re.search(r"−0\.\d", heat_map(matrix(20), 330.0))
    page = render_reproduction(reproduction(matrix(200)))
    assert "64 of 200 rows, evenly chosen, are drawn." in page
    assert len(cells(page)) <= 2 * 64 * 64
    assert len(page) < 2_500_000


def test_a_drawing_stays_within_its_width() -> None:
    for size in (1, 2, 3, 12, 64):
        panel = matrix(size) if size > 1 else MatrixPanel("m", [[1.0]], ["x" * 300], ["y" * 300])
        (width,) = map(float, re.findall(r'viewBox="0 0 ([\d.]+)', heat_map(panel, 330.0)))
        assert width <= 331


# --- pictures

DOT = "data:image/png;base64,AAAA"


def test_pictures_stand_side_by_side_with_the_share_of_the_commonest_class_and_in_no_json() -> None:
    cats = PictureRow("dimension 3", [DOT] * 4, ["cat", "dog", "cat", "cat"])
    few = PictureRow("dimension 9", [DOT], ["dog"])
    grids = [PictureGrid("CL", [cats, few]), PictureGrid("NCL", (), "Remove ncl-seed-0.json.")]
    made = replace(reproduction(), pictures=grids)
    page = PageScan(str(render_reproduction(made)))
    assert [image["src"] for image in page.named("img")] == [DOT] * 5
    assert [image["alt"] for image in page.named("img")] == ["cat", "dog", "cat", "cat", "dog"]
    for words in ("75% of one class: cat 3, dog 1", "100% of one class: dog 1", "Remove ncl-seed-0.json."):
        assert words in page.text.replace("\u202f", "").replace("\u00a0", ""), words
    assert "88%" in page.text.replace("\u202f", "").replace("\u00a0", "")  # the mean over rows, 87.5
    assert DOT not in json.dumps(made.to_dict())


def test_class_names_of_pictures_are_escaped_and_pictures_without_classes_have_no_share() -> None:
    rows = [PictureRow("dimension 1", [DOT], [ATTACK]), PictureRow("dimension 2", [DOT], [""])]
    page = PageScan(str(render_reproduction(replace(reproduction(), pictures=[PictureGrid(ATTACK, rows)]))))
    assert page.named("script") == []
    assert page.text.count("of one class:") == 1
    assert page.named("img")[1]["alt"] == "no class"
