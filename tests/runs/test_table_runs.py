"""A run on a table keeps what its columns were, and takes other files the same way."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.core.errors import CounterpointError

pytest.importorskip("pyarrow", reason="needs the extra search")
from pyarrow import csv, feather

COLUMNS: dict[str, Any] = {"label_column": "grade", "drop_columns": "id"}


def write_table(path: Path, first: int, *, city: str = "Oslo", has_labels: bool = True) -> None:
    rng = np.random.default_rng(first)
    lines = ["id,size,age,city" + ",grade" * has_labels]
    for row in range(first, first + 60):
        cells = [
            str(row),
            f"{row % 2 + rng.normal():.3f}",
            "" if row % 9 == 0 else str(row % 7),
            ("Rome", city)[row % 2],
        ]
        lines.append(",".join([*cells, *["ab"[row % 2]] * has_labels]))
    path.write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """A run on a table, beside a table with another city and one without labels."""
    folder = tmp_path_factory.mktemp("table")
    write_table(folder / "x.csv", 0)
    write_table(folder / "new.csv", 60, city="Lima")
    write_table(folder / "bare.csv", 120, has_labels=False)
    return cp.train(folder / "x.csv", source=COLUMNS, epochs=1, out=folder / "run", quiet=True)


def test_other_files_are_taken_by_the_columns_of_training(trained: cp.Run, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trained.path.parent
    cp.evaluate(trained, data=folder / "new.csv")
    assert "unknown categories as zeros (city 30)" in " ".join(capsys.readouterr().err.split())
    encoder = cp.load(trained)
    table = cp.embed(trained, folder / "bare.csv", quiet=True)
    np.testing.assert_allclose(encoder.represent(folder / "bare.csv"), table.vectors, rtol=1e-5, atol=1e-6)
    with pytest.warns(UserWarning, match="unknown categories"):
        encoder.represent(str(folder / "new.csv"))


def test_tables_are_audited_diagnosed_and_evaluated(trained: cp.Run) -> None:
    path = trained.path.parent / "x.csv"
    told = str(cp.audit(path, label_column="grade", quiet=True))
    assert cp.diagnose(path, quiet=True, **COLUMNS).answer.startswith("above chance")
    assert {row.features for row in cp.evaluate(path, quiet=True, **COLUMNS).rows} == {"features"}
    feather.write_feather(csv.read_csv(path), path.with_suffix(".feather"))
    assert cp.diagnose(path.with_suffix(".feather"), quiet=True, **COLUMNS).answer.startswith("above chance")
    with pytest.raises(CounterpointError, match=r"cannot be used: id \(numbers its rows\)"):
        cp.train(path, epochs=1, quiet=True)
    assert "left out (training asks for --source.drop-columns unusable): id" in " ".join(told.split())
    settings = cp.recommend(path, minutes=0.01, quiet=True, label_column="grade").settings
    assert settings["source"] == {"label_column": "grade", "drop_columns": "unusable"}
    given = cp.recommend(path, minutes=0.01, quiet=True, **COLUMNS).settings
    assert given["source"] == COLUMNS


def test_a_second_table_is_taken_by_the_columns_of_the_first(
    trained: cp.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """By means and categories of its own, copies would be other numbers, and a shift of all rows would vanish."""
    folder = trained.path.parent
    lines = (folder / "x.csv").read_text(encoding="utf-8").splitlines()
    (folder / "part.csv").write_text("\n".join(lines[:41]), encoding="utf-8")
    found = cp.audit(folder / "x.csv", against=folder / "part.csv", label_column="grade", quiet=True)
    assert [each.count for each in found.observations if each.code == "leakage"] == [40]
    cp.evaluate(folder / "x.csv", test_data=folder / "new.csv", **COLUMNS)
    assert "unknown categories as zeros (city 30)" in " ".join(capsys.readouterr().err.split())


def test_training_goes_on_from_a_run_by_its_columns_only(trained: cp.Run) -> None:
    """Another city would be read as the one in its place."""
    folder = trained.path.parent
    settings = {"source": COLUMNS, "epochs": 1, "init": str(trained.path), "out": folder / "further", "quiet": True}
    with pytest.raises(CounterpointError, match=r"--source\.columns .*run"):
        cp.train(folder / "new.csv", **settings)


def test_a_fine_tuned_run_on_a_table_stands_without_the_run_before(
    trained: cp.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained.path, tmp_path / "base")
    shutil.copy(trained.path.parent / "new.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    cp.fine_tune("base", data="new.csv", source={"label_column": "grade"}, epochs=1, out="tuned", quiet=True)
    Path("base").rename("moved")
    assert cp.verify("tuned", quiet=True).is_intact


def test_the_model_card_tells_the_columns(trained: cp.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cp.export(trained, "safetensors", out=tmp_path / "x", quiet=True)
    text = (tmp_path / "x" / "README.md").read_text(encoding="utf-8")
    (age,) = re.findall(r"^\| age +\|.*", text, flags=re.MULTILINE)
    plan = cp.load(trained).card.table
    assert plan is not None
    column = next(each for each in plan.columns if each.name == "age")
    assert f"{column.median:.9g} | {column.mean:.9g} | {column.deviation:.9g}" in re.sub(" +", " ", age)
    assert '"Oslo", "Rome"' in text
    monkeypatch.chdir(tmp_path / "x")
    shutil.copy(trained.path.parent / "x.csv", "x.csv")
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], names)
    np.testing.assert_array_equal(names["representation"], cp.load(trained).represent("x.csv"))
