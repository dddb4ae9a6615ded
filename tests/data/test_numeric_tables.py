"""Tables of numbers and categories: what each column becomes, and which files are refused with which remedy."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint.core.errors import CounterpointError, DataError, UsageError
from counterpoint.core.table_columns import Columns, encoded, plan_of, read_columns
from counterpoint.data.formats.arrow_and_csv import is_columns
from counterpoint.data.source import Source
from data.opened_data import open_data, samples_of
from refusals import refused

pa = pytest.importorskip("pyarrow", reason="needs the extra search")
import pyarrow.parquet as pq  # noqa: E402

CLEAN = "age,city,grade\n20,Rome,a\n40,Oslo,b\n,Rome,a\n30,NA,b\n"


def written(folder: Path, text: str, name: str = "x.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder / name


def rows_of(source: Source) -> np.ndarray:
    return samples_of(source).numpy()


def test_numbers_categories_and_missing_values_become_numbers(tmp_path: Path) -> None:
    source = open_data(written(tmp_path, CLEAN), label_column="grade")
    scale = np.std([20, 40, 30])
    expected = [[-10 / scale, 0, 0, 1, 0], [10 / scale, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1]]
    np.testing.assert_allclose(rows_of(source), expected, rtol=1e-6)
    assert source.classes() == ("a", "b", "a", "b")
    said = source.notes["source.columns"]
    words = ("one-hot (city 2)", "by the median, with an indicator (age 1)", "zeros, with an indicator (city 1)")
    assert all(word in said for word in (*words, "labels: grade"))
    bare = open_data(tmp_path / "x.csv", label_column="grade", labels="none").notes["source.columns"]
    assert "labels" not in bare
    assert "left out: grade" in bare


def test_other_rows_get_the_categories_and_medians_of_training() -> None:
    plan, _ = plan_of({"age": ["20", "40", ""], "city": ["Rome", "Oslo", "Rome"]}, "none", "x")
    rows_ND, said = plan.encode({"city": ["Lima", "Oslo"], "more": [1, 2], "age": [None, 50]}, "new.csv")
    np.testing.assert_allclose(rows_ND, [[0, 1, 0, 0], [2, 0, 1, 0]])
    assert "unknown categories as zeros (city 1)" in said
    with pytest.raises(DataError, match=r"no column age, .*add it"):
        plan.encode({"city": ["Rome", "Oslo"]}, "new.csv")
    with pytest.raises(DataError, match=r"'age' must hold finite numbers, got 'old'"):
        plan.encode({"city": ["Rome", "Oslo"], "age": ["old", "3"]}, "new.csv")
    with pytest.raises(DataError, match="'age' holds numbers too large"):
        plan.encode({"city": ["Rome", "Oslo"], "age": [1e300, 3]}, "new.csv")


@pytest.mark.parametrize(
    "text",
    [
        CLEAN.replace(",", ";"),
        CLEAN.replace(",", "\t"),
        "\ufeff" + CLEAN.replace("\n", "\r\n"),
        "\r\n\r\n" + CLEAN.replace(",", ";"),
        "sep=;\r\n" + CLEAN.replace(",", ";"),
    ],
)
def test_spreadsheets_write_csv_in_several_ways(tmp_path: Path, text: str) -> None:
    plain, other = (open_data(written(tmp_path, each, "x.csv"), label_column="grade") for each in (CLEAN, text))
    np.testing.assert_array_equal(rows_of(plain), rows_of(other))


def test_cells_may_hold_quoted_newlines(tmp_path: Path) -> None:
    source = open_data(written(tmp_path, 'note,v\n"two\nlines",1\nx,2\n"two\nlines",3\n'))
    assert source.shape == (3,)


def test_parquet_gives_the_numbers_of_csv(tmp_path: Path) -> None:
    columns = {"age": [20, 40, None, 30], "city": ["Rome", "Oslo", "Rome", None], "grade": list("abab")}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    found = open_data(tmp_path / "x.parquet", label_column="grade")
    np.testing.assert_array_equal(rows_of(found), rows_of(open_data(written(tmp_path, CLEAN), label_column="grade")))
    assert found.classes() == ("a", "b", "a", "b")


def test_many_columns_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [
        ",".join(f"v{i}" for i in range(10_000)),
        *(",".join(map(str, row)) for row in rng.normal(size=(3, 10_000))),
    ]
    assert open_data(written(tmp_path, "\n".join(lines))).shape == (10_000,)


def odd_columns() -> Columns:
    rows = range(60)
    return {
        "when": [f"2024-01-{row % 28 + 1:02d}" for row in rows],
        "note": [f"text {max(row, 1)}" for row in rows],
        "number": list(rows),
        "fixed": ["1"] * 60,
        "gone": [""] * 60,
        "price": [f"{row},5" for row in rows],
        "far": [1.0, float("inf")] * 30,
        "good": [row % 7 for row in rows],
    }


def test_what_cannot_be_used_is_named_with_its_reason_and_the_remedy() -> None:
    message = refused(DataError, plan_of, odd_columns(), "none", "x.csv")
    words = ("when (dates)", "note (text", "number (numbers its rows)", "fixed (one value", "gone (all missing)")
    assert all(word in message for word in (*words, "2 more", "--source.drop-columns 'unusable'"))
    assert "far" not in message
    plan, dropped = plan_of(odd_columns(), "unusable", "x.csv")
    assert ([column.name for column in plan.columns], len(dropped)) == (["good"], 7)
    with pytest.raises(DataError, match=r"decimal commas; save it with points\), far \(infinity\)"):
        plan_of(odd_columns(), "when, note, number,fixed,gone", "x.csv")


@pytest.mark.parametrize(
    ("text", "settings", "kind", "words"),
    [
        ("a,label\n1,2\n3,1e400\n", {}, DataError, "holds infinity"),
        ("a,b\n1e308,1\n-1e308,2\n", {}, DataError, "a (numbers too large)"),
        ("a,b\n1,2\n\n\n3\n", {}, DataError, "row 5 has 1 cells"),
        ("", {}, DataError, "is empty"),
        ("a,b\n", {}, DataError, "0 row"),
        ("a,b\n1,2\n", {}, DataError, "1 row"),
        ("a,a\n1,2\n3,4\n", {}, DataError, "more than one column a"),
        ("1,2\n3,4\n5,6\n", {}, DataError, "names of the columns"),
        ("a,b\n1,2\n3\n", {}, DataError, "row 3 has 1 cells"),
        ("a,b\n1,1\n1,1\n", {}, DataError, "--source.drop-columns 'a,b'"),
        ("a,b\n1,2\n3,4\n", {"label_column": "c"}, UsageError, "no column 'c'"),
        ("a,b\n1,2\n3,4\n", {"drop_columns": "c"}, UsageError, "no column 'c'"),
        ("a,b\n1,2\n3,4\n", {"drop_columns": "a,b"}, DataError, "no column of numbers"),
        ("a,y\n1,2.5\n3,4\n", {"label_column": "y"}, DataError, "fractions"),
        ("a,b\n1,2\n3,4\0\n", {}, DataError, "NUL"),
    ],
)
def test_bad_tables_get_one_line(
    tmp_path: Path, text: str, settings: dict[str, Any], kind: type[CounterpointError], words: str
) -> None:
    assert words in refused(kind, open_data, written(tmp_path, text), **settings)


def test_a_column_without_a_name_is_called_by_its_place(tmp_path: Path) -> None:
    assert "column 1" in read_columns(written(tmp_path, ",b\n0,2\n1,4\n"))


@pytest.mark.parametrize(("header", "expected"), [("name,label,v0", False), ("name,label,age", True), ("v0,v1", True)])
def test_only_vectors_of_embed_are_no_columns(tmp_path: Path, header: str, expected: bool) -> None:
    assert is_columns(written(tmp_path, f"{header}\r\n")) == expected


def test_empty_lines_of_one_column_are_rows_without_a_value(tmp_path: Path) -> None:
    assert list(read_columns(written(tmp_path, "a\n1\n\n3\n"))["a"]) == ["1", "", "3"]


def test_one_value_with_gaps_is_divided_by_one() -> None:
    (column,) = plan_of({"a": ["0.1", "0.1", "0.1", ""]}, "none", "x")[0].columns
    assert column.deviation == 1.0
    (column,) = plan_of({"a": [1.7e12, 1.7e12 + 20, 1.7e12 + 50]}, "none", "x")[0].columns
    assert column.deviation == pytest.approx(20.5, abs=0.1)


def test_truth_and_whole_numbers_are_one_thing_in_files_and_frames() -> None:
    plan, _ = plan_of({"is_new": ["TRUE", "false", "True"], "code": ["1", "2", "x"]}, "none", "x.csv")
    expected = plan.encode({"is_new": ["TRUE", "FALSE"], "code": ["1", "2"]}, "x.csv")[0]
    for truth in ([True, False], [np.True_, np.False_], [1, 0.0]):
        np.testing.assert_array_equal(plan.encode({"is_new": truth, "code": [1.0, 2]}, "frame")[0], expected)
    assert plan_of({"is_new": [True, False, True], "code": [1, 2, "x"]}, "none", "x.parquet")[0] == plan


def test_the_remedy_for_a_name_with_a_comma_works() -> None:
    table = {"a, b": ["1", "1"], " c": ["1", "1"], "it's": ["1", "1"], "good": [1, 2]}
    message = refused(DataError, plan_of, table, "none", "x")
    asked = shlex.split(message.split("--source.drop-columns ")[1])[0]
    assert plan_of(table, asked, "x")[1] == ["a, b", " c", "it's"]


TRAINED_ON = {"age": [20, 40, 30], "city": ["Rome", "Oslo", "Rome"]}


def test_values_in_memory_are_read_by_column(tmp_path: Path) -> None:
    plan, _ = plan_of(TRAINED_ON, "none", "x")
    expected = plan.encode({"age": [20], "city": ["Oslo"]}, "x")[0]
    np.testing.assert_array_equal(encoded(plan, pa.table({"age": [20], "city": ["Oslo"]})), expected)
    np.testing.assert_array_equal(encoded(plan, written(tmp_path, "city,age\nOslo,20\n")), expected)
    with pytest.warns(UserWarning, match=r"by the median, without an indicator.*\(age 1\)"):
        encoded(plan, {"age": [None, 30], "city": ["Rome", "Oslo"]})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"age": [20, 30], "city": ["Rome"]}, "age 2, city 1"),
        ({"age": 20, "city": "Rome"}, "'age' must be a list"),
        ({"age": "12", "city": ["a", "b"]}, "'age' must be a list"),
        ({"age": [], "city": []}, "at least one"),
        (pa.table([[1], [2]], names=["age", "age"]), "more than one column age"),
    ],
)
def test_odd_values_in_memory_get_one_line(table: Any, words: str) -> None:
    assert words in refused(DataError, encoded, plan_of(TRAINED_ON, "none", "x")[0], table)
