"""Tables of vectors as files: every text comes back, and no cell is run by a spreadsheet."""

import csv
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.evaluation.vector_table import WRITERS, Table, as_cell, from_cell, read_table

RUN_BY_SPREADSHEETS = [
    *(
        "=1+1",
        "+cmd",
        "-cmd",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =1",
        "  \u00a0=1",
        "\n=1",
        "a\n=1",
        "a\r\n -x",
        "a;=1",
        "a; @x",
    ),
    *("＝1+1", "＋cmd", "－cmd", "＠SUM", "a\n＝1", "'=1", "''=1", "a;'=1", "\n\n=1", "\t\t", "a,=1", "a|=1"),
]


@pytest.mark.parametrize("text", RUN_BY_SPREADSHEETS)
def test_no_cell_of_a_table_is_run_by_a_spreadsheet(tmp_path: Path, text: str) -> None:
    """Not at its start, nor behind what ends a line or, in other countries, a cell; and it is read as it was."""
    path = tmp_path / "table.csv"
    WRITERS[".csv"](Table((text, "tis"), np.ones((2, 1), np.float32), (text, "'tis")), path)
    with path.open(newline="", encoding="utf-8") as stream:
        cell = list(csv.reader(stream))[1][0]
    pieces = re.split(r"[\r\n\t;,|]", cell)
    assert not any(re.match(r"\s*[=+\-@＝＋－＠]", piece) for piece in pieces)
    assert not cell.startswith(("\t", "\r"))
    back = read_table(path)
    assert (back.names, back.labels) == ((text, "tis"), (text, "'tis"))


@given(st.text(alphabet="a1'=-＝ ;\t\n\r,é", max_size=12))
def test_every_text_comes_back_from_a_cell(text: str) -> None:
    assert from_cell(as_cell(text)) == text


@pytest.mark.parametrize("number", ["-1", "+3", "2.5", "-1e-3", "7"])
def test_numbers_stay_numbers(number: str) -> None:
    assert as_cell(number) == number


def test_names_that_are_no_utf8_are_written_as_they_are(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    for suffix in (".csv", ".npz"):
        path = tmp_path / f"table{suffix}"
        WRITERS[suffix](Table((name,), np.ones((1, 1), np.float32), None), path)
        assert read_table(path).names == (name,)
    assert b"caf\xe9.png" in (tmp_path / "table.csv").read_bytes()
