"""`counterpoint compare`: what is printed in which form, the page beside it, and one line where it is refused."""

import csv
import json
from pathlib import Path

import pytest

from counterpoint.cli.main import main
from evaluated_folders import REPRESENTATION, write_evaluated


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with two evaluated runs, and one on other queries."""
    monkeypatch.chdir(tmp_path)
    write_evaluated(Path("ncl"), {REPRESENTATION: range(90)}, method="ncl")
    write_evaluated(Path("simclr"), {REPRESENTATION: range(70)}, method="simclr")
    write_evaluated(Path("other"), {REPRESENTATION: range(70)}, fingerprint="other")


def test_compare_prints_a_table_and_writes_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "ncl", "simclr", "--out", "page.html"]) == 0
    captured = capsys.readouterr()
    assert " representation      90.00   70.00   +20.00" in captured.out
    assert "<0.001 yes" in captured.out
    assert captured.out.endswith("\nDrawn in page.html.\n")
    assert captured.err == ""
    assert Path("page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_compare_prints_json_csv_or_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    printed = {}
    for form in ("json", "csv", "markdown"):
        assert main(["compare", "ncl", "simclr", f"--{form}", "--metrics", "knn", "--features", "representation"]) == 0
        printed[form] = capsys.readouterr().out
    (row,) = json.loads(printed["json"])["comparisons"]
    (line,) = csv.DictReader(printed["csv"].splitlines())
    assert row["real"] == line["real"] == "yes"
    assert float(line["samples_p_value"]) == row["over_samples"]["p_value"]
    assert "| knn | representation | 90.00 | 70.00 | +20.00 |" in printed["markdown"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["ncl", "other"], "ncl (100 of digits) and other (100 of digits) were evaluated on different queries;"),
        (["ncl"], "compare needs at least two runs, got 1"),
        (["ncl", "ncl"], "compare got the same run or file twice"),
        (["ncl", "nowhere"], "run folder nowhere does not exist"),
        (["ncl", "simclr", "--metrics", "kmn"], "unknown metric 'kmn'; did you mean 'knn'?"),
        (["ncl", "simclr", "--out", "ncl/run.json"], "ncl/run.json exists and is not a page of a comparison"),
        (["ncl", "simclr", "--out", "no/page.html"], "no is not a folder; make it first or choose another --out"),
        (["ncl", "simclr", "--json", "--csv"], "argument --csv: not allowed with argument --json"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    try:
        code = main(["compare", *words])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert complaint in captured.err.splitlines()[-1]
    assert len(captured.err.splitlines()) == 1
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == before


def test_the_first_line_of_csv_opens_in_a_spreadsheet_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    write_evaluated(Path("=1+1"), {REPRESENTATION: range(70)}, method="odd")
    assert main(["compare", "ncl", "=1+1", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("ncl,'=1+1,knn")
