"""`counterpoint compare`: what is printed in which form, and one line where it is refused."""

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


def test_compare_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "ncl", "simclr"]) == 0
    captured = capsys.readouterr()
    assert "knn     representation  90.00  70.00  +20.00" in captured.out
    assert "<0.001  yes" in captured.out
    assert captured.err == ""


def test_compare_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "ncl", "simclr", "--json", "--metrics", "knn", "--features", "representation"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert row["real"] == "yes"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["ncl", "other"], "ncl (100 of digits) and other (100 of digits) were evaluated on different queries;"),
        (["ncl"], "compare needs at least two runs, got 1"),
        (["ncl", "ncl"], "compare got the same run or file twice"),
        (["ncl", "nowhere"], "nowhere does not exist"),
        (["ncl", "simclr", "--metrics", "kmn"], "unknown metric 'kmn'; did you mean 'knn'?"),
        (["ncl", "simclr", "--out", "page.html"], "compare --out is gone: "),
        (["ncl", "simclr", "--csv"], "csv is gone: "),
        (["ncl", "simclr", "--evaluation", "other"], "compare --evaluation is gone: name the files"),
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
