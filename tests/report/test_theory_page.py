"""A reproduced figure on a page of their own: sealed, escaped, drawn true, told in words."""

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from page_scan import PageScan
from page_scan import scan_without_script as scan

from counterpoint.core.errors import RunError
from reproductions.drawings import draw_panels
from reproductions.panels import DotPanel, LinePanel, MatrixPanel, PointPanel, Series
from reproductions.reproduction import Claim, PictureGrid, PictureRow, Reproduction, panels_of
from reproductions.reproduction_page import render_reproduction, write_reproduction

ATTACK = "</title><script>alert(1)</script><img src=x onerror=\"alert('x')\">"
STEPS = [float(step) for step in range(50)]


def lines(count: int) -> LinePanel:
    """Decaying lines."""
    series = [Series(f"sigma {k + 1}", STEPS, [math.exp(-k * step / 20) for step in STEPS]) for k in range(count)]
    return LinePanel("Singular values", "step", "singular value", series)


def reproduction() -> Reproduction:
    """A record with a claim of each kind."""
    claims = [
        Claim("cosine of two classes", -0.5, -0.500001, True),
        Claim("live dimensions fall with depth", "fall", "rise", False, "the run is ten times shorter"),
        Claim("last loss", "not printed", 3.25, None),
    ]
    classes = [Series("cats", [1.0, 0.99], [0.0, 0.1]), Series("dogs", [-1.0], [0.0])]
    names, simplex = ["class 1", "class 2", "class 3"], [[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]
    panels = (lines(3), PointPanel("Features", "x", "y", classes), MatrixPanel("Cosines", simplex, names, names))
    return Reproduction(
        "toy-fig1", "A toy", "mio2021, Fig. 1", claims, panels, ["One remark."], {"seed": "0", "steps": "50"}
    )


def hostile() -> Reproduction:
    """Every text of the record is an attack."""
    series = [Series(ATTACK, [0.0, 1.0], [1.0, 2.0])]
    panels = [
        LinePanel(ATTACK, ATTACK, ATTACK, series),
        PointPanel(ATTACK, ATTACK, ATTACK, [*series, *series]),
        MatrixPanel(ATTACK, [[1.0]], [ATTACK], [ATTACK]),
    ]
    claims = [Claim(ATTACK, ATTACK, ATTACK, False, ATTACK)]
    return Reproduction(ATTACK, ATTACK, ATTACK, claims, panels, [ATTACK], {ATTACK: ATTACK})


# --- the record


def test_the_text_holds_every_claim_its_values_and_its_verdict() -> None:
    said = str(reproduction())
    for words in ("A toy (mio2021, Fig. 1)", "cosine of two classes", "-0.5 ", "-0.5 ", "agrees", "differs"):
        assert words in said
    assert re.search(r"live dimensions fall with depth +fall +rise +differs", said)
    for words in ("the run is ten times shorter", "One remark.", "Settings: seed 0, steps 50"):
        assert words in said
    assert max(len(line) for line in said.splitlines()) <= 110


def test_plain_data_is_json_and_names_each_kind() -> None:
    told = json.loads(json.dumps(reproduction().to_dict()))
    assert [panel["kind"] for panel in told["panels"]] == ["lines", "points", "matrix"]
    assert told["panels"][2]["values"][0] == [1.0, -0.5, -0.5]
    assert panels_of(told) == list(reproduction().panels)
    assert told["agrees"] is False
    assert [claim["agrees"] for claim in told["claims"]] == [True, False, None]


def test_arrays_become_plain_numbers_and_shapes_are_checked() -> None:
    assert Series("a", range(2), (True, 2)).y == (1.0, 2.0)
    with pytest.raises(ValueError, match="3 positions and 2 values"):
        Series("a", [1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="2 row and 1 column labels"):
        MatrixPanel("m", [[1.0], [2.0, 3.0]], ["a", "b"], ["c"])


# --- the page


def test_the_page_says_all_that_the_record_says(tmp_path: Path) -> None:
    path = write_reproduction(reproduction(), tmp_path / "toy-fig1.html")
    found = scan(path.read_text(encoding="utf-8"))
    for words in ("A toy", "mio2021, Fig. 1", "python -m reproductions toy-fig1", "1 of 2 claims agrees, 1 differs"):
        assert words in found.text
    for words in ("the run is ten times shorter", "One remark.", "toy-fig1.json", "steps", "−0.5"):
        assert words in found.text
    assert [a["class"] for a in found.named("span") if "verdict" in (a.get("class") or "")] == [
        "verdict level-good", "verdict level-warning", "verdict level-note",
    ]  # fmt: skip


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
    allowed |= {"img", "dl", "dt", "dd"}
    assert {tag for tag, _ in found.elements} <= allowed


# --- the drawing


def drawn(*panels: LinePanel | PointPanel | MatrixPanel | DotPanel) -> str:
    return draw_panels(panels, "toy")


def places(drawing: str, number: int) -> list[tuple[float, float]]:
    """Where the first line of that many vertices is."""
    paths = re.findall(r'<path d="((?:[ML] [-\d.]+ [-\d.]+\s*)+)"[^>]*style="fill: none', drawing)
    (found, *_) = (re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", path) for path in paths if path.count(" ") // 3 == number)
    return [(float(x), float(y)) for x, y in found]


def test_a_line_is_where_its_values_are() -> None:
    series = [Series("a", [0.0, 5.0, 10.0], [0.0, 1.0, 4.0])]
    (x0, y0), (x1, y1), (x2, y2) = places(drawn(LinePanel("t", "x", "y", series)), 3)
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.02)
    assert (y0 - y1) * 4 == pytest.approx(y0 - y2, abs=0.06)
    steep = [replace(series[0], y=[1, 10, 1000])]
    (_, y0), (_, y1), (_, y2) = places(drawn(LinePanel("t", "x", "y", steep, log_y=True)), 3)
    assert (y0 - y1) * 3 == pytest.approx(y0 - y2, abs=0.06)


def test_a_plane_has_one_scale_for_both_axes() -> None:
    turns = [2 * math.pi * k / 100 for k in range(100)]
    circle = Series("a", [math.cos(t) for t in turns], [math.sin(t) for t in turns])
    cloud = drawn(PointPanel("t", "x", "y", [circle]))
    found = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*fill-opacity', cloud)
    marks = [(float(x), float(y)) for x, y in found]
    assert len(marks) >= 100
    wide, high = (max(side) - min(side) for side in zip(*marks, strict=True))
    assert wide == pytest.approx(high, rel=0.01)


def test_what_has_no_value_is_drawn_empty_and_the_same_panels_give_the_same_bytes() -> None:
    empty = [Series("a", [1.0], [math.nan]), Series("b", [], [])]
    panels = [LinePanel("t", "x", "y", empty), LinePanel("t", "x", "y", empty, True, True)]
    panels += [PointPanel("t", "x", "y", empty), MatrixPanel("m", [[math.nan, 0.0]], ["a"], ["b", "c"])]
    panels += [DotPanel("d", {"arm": [1.0, 2.0]}), lines(20)]
    assert drawn(*panels) == drawn(*panels)
    assert drawn() == ""


def test_without_matplotlib_the_page_has_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "reproductions.drawings")
    found = scan(render_reproduction(reproduction()))
    for words in ("1 of 2 claims agrees, 1 differs", "Not drawn: a drawing needs matplotlib; install it with"):
        assert words in found.text


def test_names_are_text_and_no_formula() -> None:
    name = "<b>$\\frac{1}$ & $x</b>"
    text = drawn(LinePanel(name, name, name, [Series(name, STEPS, STEPS), Series("b", STEPS, STEPS)]))
    assert text.count("&lt;b&gt;$\\frac{1}$ &amp; $x&lt;/b&gt;") == 4
    ElementTree.fromstring(text)


# --- pictures

DOT = "data:image/png;base64,AAAA"


def test_pictures_stand_side_by_side_with_the_share_of_the_commonest_class_and_in_no_json() -> None:
    cats = PictureRow("dimension 3", [DOT] * 4, ["cat", "dog", "cat", "cat"])
    few = PictureRow("dimension 9", [DOT], ["dog"])
    grids = [PictureGrid("CL", [cats, few]), PictureGrid("NCL", (), "Remove ncl-seed-0.json.")]
    made = replace(reproduction(), pictures=grids)
    page = PageScan(str(render_reproduction(made)))
    assert [image["src"] for image in page.named("img")[1:]] == [DOT] * 5
    assert [image["alt"] for image in page.named("img")[1:]] == ["cat", "dog", "cat", "cat", "dog"]
    for words in ("75% of one class: cat 3, dog 1", "100% of one class: dog 1", "Remove ncl-seed-0.json."):
        assert words in page.text.replace("\u202f", "").replace("\u00a0", ""), words
    assert "88%" in page.text.replace("\u202f", "").replace("\u00a0", "")  # the mean over rows, 87.5
    assert DOT not in json.dumps(made.to_dict())


def test_class_names_of_pictures_are_escaped_and_pictures_without_classes_have_no_share() -> None:
    rows = [PictureRow("dimension 1", [DOT], [ATTACK]), PictureRow("dimension 2", [DOT], [""])]
    page = PageScan(str(render_reproduction(replace(reproduction(), pictures=[PictureGrid(ATTACK, rows)]))))
    assert page.named("script") == []
    assert page.text.count("of one class:") == 1
    assert page.named("img")[2]["alt"] == "no class"
