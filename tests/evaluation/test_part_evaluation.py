"""An evaluation in parts: tables that are made together are those of one process, and the first part measures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.work_parts import Part
from counterpoint.data.manifest import cache_folder
from counterpoint.evaluation import features, shared_tables
from counterpoint.evaluation.part_evaluation import evaluate_part

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


def in_part(run: cp.Run, data: dict[str, Any], number: int, path: Path, **settings: Any) -> cp.Evaluation | None:
    return evaluate_part(run, Part(number, 3), **data, metrics=METRICS, out=str(path), quiet=True, **settings)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1)])
def test_the_record_is_that_of_one_process(
    run: cp.Run, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    expected = one_process(run, data, tmp_path / "one.json", monkeypatch)
    found = [in_part(run, data, number, tmp_path / "parts.json") for number in order]
    assert [evaluation is not None for evaluation in found] == [number == 1 for number in order]
    assert json.loads((tmp_path / "parts.json").read_text()) == expected
    assert not [path for path in (cache_folder() / "features").iterdir() if path.name.startswith(".")]


def test_a_piece_that_is_there_is_not_made_again(
    run: cp.Run, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[slice] = []
    original = features.pass_rows

    def stop_at_the_third(*args: Any, rows: slice, **options: Any) -> None:
        if len(passed) == 2:
            raise KeyboardInterrupt
        passed.append(rows)
        original(*args, rows=rows, **options)

    monkeypatch.setattr(features, "pass_rows", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        in_part(run, data, 2, tmp_path / "parts.json")
    assert passed == [slice(512, 1024), slice(1024, 1200)]
    monkeypatch.setattr(
        features, "pass_rows", lambda *a, rows, **o: (passed.append(rows), original(*a, rows=rows, **o))
    )
    assert in_part(run, data, 1, tmp_path / "parts.json") is not None
    # The encoder's first piece, then those of the untrained encoder.
    assert passed[2:] == [slice(0, 512), slice(0, 512), slice(512, 1024), slice(1024, 1200)]


def test_a_damaged_piece_is_removed_and_named(
    run: cp.Run, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = shared_tables.SharedTable._read

    def harm(self: shared_tables.SharedTable, *args: Any) -> None:
        path = self._file(1)
        path.write_bytes(path.read_bytes()[:200])
        original(self, *args)

    monkeypatch.setattr(shared_tables.SharedTable, "_read", harm)
    with pytest.raises(RunError, match=r"000001\.npz was damaged and is removed"):
        in_part(run, data, 1, tmp_path / "parts.json")
    monkeypatch.setattr(shared_tables.SharedTable, "_read", original)
    expected = one_process(run, data, tmp_path / "one.json", monkeypatch)
    in_part(run, data, 1, tmp_path / "parts.json")
    assert json.loads((tmp_path / "parts.json").read_text()) == expected


def test_what_parts_cannot_share_is_refused(
    run: cp.Run, data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="part goes with an encoder"):
        evaluate_part(data["data"], Part(1, 2), labels=data["labels"], quiet=True)
    with pytest.raises(UsageError, match="leave --no-cache out"):
        in_part(run, data, 1, tmp_path / "parts.json", cache=False)
    (tmp_path / "file").touch()
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"meet in .*file, which cannot be written; evaluate it without --part"):
        in_part(run, data, 1, tmp_path / "parts.json")


def test_the_verb_of_a_later_part_prints_no_table(
    run: cp.Run, data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "data.npz", X=data["data"], labels=data["labels"])
    words = ["evaluate", str(run.path), "--data", str(tmp_path / "data.npz"), "--out", str(tmp_path / "e.json")]
    assert main([*words, "--metrics", "knn", "--part", "2/2"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "part 2/2: all samples are encoded; part 1/2 measures" in shown.err
    assert main([*words, "--metrics", "knn", "--part", "3/2"]) == 2
    assert "part must be NUMBER/TOTAL" in capsys.readouterr().err
