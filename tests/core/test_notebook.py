"""Records in notebooks: what comes from outside is escaped, nothing runs, no colour is our own, and they stay small."""

from html.parser import HTMLParser

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.core.markup import VOID_TAGS
from counterpoint.core.run_records import EvaluationRecord, EvaluationRow, EvaluationSplit
from counterpoint.evaluation.evaluation_result import with_interval

EVIL = "<script>alert(1)</script>"
ALLOWED = {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"}


class Page(HTMLParser):
    """Tags and text of a piece of HTML, whose tags must be closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.styles: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"style", "scope"}
        self.styles += [value or "" for name, value in attrs if name == "style"]
        self._open += [] if tag in VOID_TAGS else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(record: object) -> Page:
    """A record's page, which is small, runs nothing and has no colours of its own."""
    html = record._repr_html_()  # pyright: ignore[reportAttributeAccessIssue]
    page = Page(html)
    assert set(page.tags) <= ALLOWED
    assert len(html) < 20_000
    colours = "".join(page.styles).replace("color:inherit", "").replace("currentColor", "")
    assert "color" not in colours
    assert "background" not in colours
    assert page.tags.count("table") == sum("color:inherit" in style for style in page.styles)
    return page


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """A run on labelled vectors, one of whose classes has an evil name, in a folder with an evil name."""
    rng = np.random.default_rng(0)
    labels = np.array([EVIL, "b"])[np.arange(60) % 2]
    out = tmp_path_factory.mktemp("runs") / EVIL.replace("/", "")
    return cp.train(rng.normal(size=(60, 4)), labels=labels, out=str(out), epochs=2, seed=0, quiet=True)


def test_an_evaluation_is_a_table_with_features_in_columns(run: cp.Run) -> None:
    evaluation = cp.evaluate(run)
    page = read(evaluation)
    features = list(dict.fromkeys(row.features for row in evaluation.rows))
    assert page.texts[0] == evaluation.samples
    assert page.texts[1 : 2 + len(features)] == ["metric", *features]
    assert all(with_interval(row) in page.texts for row in evaluation.rows)


def test_names_in_an_evaluation_are_escaped() -> None:
    split = EvaluationSplit(source=EVIL, num_queries=1, num_bank=2, num_classes=2, num_unlabelled=0, how=EVIL)
    row = EvaluationRow(features=EVIL, protocol="knn", accuracy=0.5, low=0.1, high=0.9, correct=1, total=2)
    page = read(cp.Evaluation(EvaluationRecord(split=split, rows=(row,))))
    assert EVIL in page.texts
    assert page.texts[0].count(EVIL) == 2


def test_findings_open_without_a_script(rng: np.random.Generator) -> None:
    findings = cp.diagnose(np.tile(rng.normal(size=(1, 8)), (60, 1)) + 1e-4 * rng.normal(size=(60, 8)))
    page = read(findings)
    assert page.texts[0] == findings.verdict
    assert page.tags.count("details") == sum(bool(finding.details) for finding in findings.findings) > 0
    for finding in findings.findings:
        assert finding.title in page.texts
    evil = findings.findings[0].model_copy(update={"title": EVIL, "text": EVIL})
    told = read(findings.model_copy(update={"findings": (evil,)})).texts
    assert told.count(EVIL) == 1
    assert f"why: {EVIL}" in told
    assert "nothing was measured" in read(cp.Findings()).texts


@pytest.mark.parametrize("num_classes", [3, 40])
def test_a_geometry_is_its_certificate_and_its_matrix(num_classes: int) -> None:
    geometry = cp.theory.optimal_geometry([1 / num_classes] * num_classes)
    page = read(geometry)
    assert page.texts[0] == str(geometry).splitlines()[0]
    assert geometry.status in page.texts
    assert page.tags.count("tr") == 1 + min(num_classes, 12)
    assert page.texts.count("1.0000") == min(num_classes, 12)
    assert ("... and 28 more classes" in page.texts) == (num_classes == 40)
