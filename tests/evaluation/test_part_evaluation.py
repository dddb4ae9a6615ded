"""An evaluation whose samples were encoded in parts is that of one process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import UsageError
from counterpoint.core.ranks import WorkPart
from counterpoint.data.manifest import cache_folder
from counterpoint.evaluation import features, shared_tables
from counterpoint.evaluation.part_evaluation import encode_part

METRICS = ("knn", "linear probe")


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Samples that are three pieces of a table; pieces are whole chunks."""
    monkeypatch.setattr(shared_tables, "PIECE_ROWS", 512)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 1200)
    centres = rng.normal(size=(3, 6))
    return {"data": (centres[labels] + rng.normal(size=(1200, 6))).astype(np.float32), "labels": labels}


def one_process(run: cp.Run, data: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    with monkeypatch.context() as patch:
        patch.setenv("COUNTERPOINT_CACHE", str(path.parent / "own-cache"))
        cp.evaluate(run, **data, metrics=METRICS, out=str(path), quiet=True)
    return json.loads(path.read_text())


def in_part(run: cp.Run, data: dict[str, Any], number: int, **settings: Any) -> None:
    encode_part(run, WorkPart(number, 3), **data, metrics=METRICS, quiet=True, **settings)


def measured(run: cp.Run, data: dict[str, Any], path: Path) -> dict[str, Any]:
    cp.evaluate(run, **data, metrics=METRICS, out=str(path), quiet=True)
    return json.loads(path.read_text())


def hidden() -> list[Path]:
    return [path for path in (cache_folder() / "features").iterdir() if path.name.startswith(".")]


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[slice]:
    """Rows that pass an encoder."""
    found: list[slice] = []
    original = features.pass_rows

    def follow(*args: Any, rows: slice, **options: Any) -> None:
        found.append(rows)
        original(*args, rows=rows, **options)

    monkeypatch.setattr(features, "pass_rows", follow)
    return found


@pytest.mark.parametrize("numbers", [(1, 2, 3), (3, 2, 1), (2,)])
def test_the_record_is_that_of_one_process(
    run: cp.Run, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]
) -> None:
    expected = one_process(run, data, tmp_path / "one.json", monkeypatch)
    for number in numbers:
        in_part(run, data, number)
    assert hidden()
    assert measured(run, data, tmp_path / "parts.json") == expected
    assert not hidden()


def test_a_part_passes_its_own_samples_and_those_that_are_there_pass_no_more(
    run: cp.Run, data: dict[str, Any], tmp_path: Path, passed: list[slice]
) -> None:
    in_part(run, data, 2)
    # Of the encoder and of the untrained one: its piece, and one row that says how wide all are.
    assert passed == 2 * [slice(512, 1024), slice(0, 1)]
    passed.clear()
    in_part(run, data, 2)
    assert passed == 2 * [slice(0, 1)]
    passed.clear()
    measured(run, data, tmp_path / "parts.json")
    assert passed == 2 * [slice(0, 512), slice(1024, 1200)]


def test_a_damaged_piece_is_made_again(
    run: cp.Run, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, passed: list[slice]
) -> None:
    expected = one_process(run, data, tmp_path / "one.json", monkeypatch)
    for number in (1, 2, 3):
        in_part(run, data, number)
    for path in (cache_folder() / "features").glob(".*/000001.npz"):
        path.write_bytes(path.read_bytes()[:200])
    passed.clear()
    assert measured(run, data, tmp_path / "parts.json") == expected
    assert passed == 2 * [slice(512, 1024)]


def test_what_parts_cannot_share_is_refused(
    run: cp.Run, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="part goes with an encoder"):
        encode_part(data["data"], WorkPart(1, 2), labels=data["labels"], quiet=True)
    with pytest.raises(UsageError, match="leave --no-cache out"):
        in_part(run, data, 1, cache=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"meet in .*file, which cannot be written; evaluate it without --part"):
        in_part(run, data, 1)


def test_the_verb_of_a_part_prints_no_table(
    run: cp.Run, data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "data.npz", X=data["data"], labels=data["labels"])
    words = ["evaluate", str(run.path), "--data", str(tmp_path / "data.npz"), "--out", str(tmp_path / "e.json")]
    assert main([*words, "--metrics", "knn", "--part", "2/2"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "part 2/2: its samples are encoded; once all parts are, the same without --part measures" in shown.err
    assert main([*words, "--metrics", "knn", "--part", "3/2"]) == 2
    assert "part must be NUMBER/TOTAL" in capsys.readouterr().err
