"""The run folder: opening it, its status record and its metrics log."""

import json
from pathlib import Path

import pytest

from counterpoint.core.errors import RunError
from counterpoint.core.files import read_sealed
from counterpoint.core.run import Run, as_run, display_names
from counterpoint.core.rundir import RunFolder, append_line, open_run
from counterpoint.runs.run_files import create_run
from refusals import refused


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of which nothing but the status is known."""
    folder = create_run(tmp_path / "run", overwrite=False)
    folder.update_status(status="running")
    return folder


# --- opening


def test_a_missing_run_is_told(tmp_path: Path) -> None:
    assert refused(RunError, open_run, tmp_path / "none").startswith(f"{tmp_path / 'none'} does not exist")


@pytest.mark.parametrize("kind", ["empty folder", "file", "folder named run.json"])
def test_what_is_not_a_run_does_not_open(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    if kind == "file":
        path.write_text("x", encoding="utf-8")
    else:
        (path / "run.json" if "named" in kind else path).mkdir(parents=True)
    message = refused(RunError, open_run, path)
    assert message.startswith(f"{path} is not a run folder (it has no run.json); ")
    assert "counterpoint train --out a" in message


def test_a_run_is_known_by_its_record_or_its_path(run: RunFolder) -> None:
    for given_run in (Run(run.path), run.path, str(run.path)):
        assert as_run(given_run) == Run(run.path)
    assert as_run(run.path).folder == run
    carrying = Run(run.path, data=[1, 2], labels=[0, 1])
    assert as_run(carrying) is carrying


def test_runs_of_one_name_are_told_apart_by_the_folders_above_them() -> None:
    folders = [Path("x/a/run"), Path("y/a/run"), Path("z/b/run"), Path("other")]
    assert display_names(folders) == ["a/run (1)", "a/run (2)", "b/run", "other"]


# --- status


def test_status_entries_are_added_and_changed(run: RunFolder) -> None:
    run.update_status(seed=3, loader={"workers": "0"})
    run.update_status(status="finished")
    status = read_sealed(run.status)
    assert status == {"format": 1, "status": "finished", "seed": 3, "loader": {"workers": "0"}}
    assert run.read_status().written() == status


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 1}', r"run\.json: status is missing"),
        ('{"status": "finished", "method": {"a": 1}}', r"run\.json: method must be text, got \{'a': 1\}"),
        ('{"status": "finished", "skipped": [{"name": 3}]}', r"run\.json: skipped\[0\]\.name must be text, got 3"),
        ('{"status": "finished", "seconds": true}', r"run\.json: seconds must be a number or null, got True"),
        ("[1]", r"run\.json is damaged: it holds no named values"),
    ],
)
def test_a_field_of_a_wrong_type_is_named(run: RunFolder, text: str, message: str) -> None:
    run.marker.unlink()  # as 0.1.0 left it: without a seal that would be told first
    run.status.write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=message):
        run.read_status()


@pytest.mark.parametrize("old", ['"running"', '"status"', '"sha256"', '"format": 1'])
def test_a_status_that_was_changed_is_named_whatever_it_says_now(run: RunFolder, old: str) -> None:
    text = run.status.read_text(encoding="utf-8")
    run.status.write_text(text.replace(old, f"{old[:-1]}2{old[-1]}" if old.endswith('"') else f"{old}2"))
    with pytest.raises(RunError, match=r"run\.json is damaged: it was changed"):
        run.read_status()


def test_a_damaged_status_is_told_and_kept(run: RunFolder) -> None:
    run.status.write_text('{"status": ', encoding="utf-8")
    with pytest.raises(RunError, match=r"run\.json is damaged"):
        run.update_status(status="finished")
    assert run.status.read_text(encoding="utf-8") == '{"status": '


# --- metrics


def records(*steps: int) -> list[dict[str, float]]:
    return [{"step": step, "loss": 1 / 3 + step} for step in steps]


def log(run: RunFolder, *steps: int) -> None:
    for record in records(*steps):
        append_line(run.metrics, record)


def tear(run: RunFolder, torn: bytes) -> None:
    """What a crash in the middle of an append leaves behind."""
    with run.metrics.open("ab") as stream:
        stream.write(torn)


def test_metrics_are_one_json_line_each(run: RunFolder) -> None:
    log(run, 10, 20, 30)
    assert run.read_metrics() == records(10, 20, 30)
    lines = run.metrics.read_text(encoding="utf-8").split("\n")
    assert [json.loads(line) for line in lines[:-1]] == records(10, 20, 30)
    assert lines[-1] == ""


def test_a_full_disk_is_told(run: RunFolder) -> None:
    run.metrics.mkdir()  # any error of the system will do
    with pytest.raises(RunError, match=r"metrics\.jsonl"):
        log(run, 1)


@pytest.mark.parametrize("torn", [b"{", b'{"step": 30, "lo', b"\x00\x00\x00", b'{"step": 3\xc3'])
def test_a_torn_last_line_is_left_out(run: RunFolder, torn: bytes) -> None:
    log(run, 10, 20)
    tear(run, torn)
    assert run.read_metrics() == records(10, 20)


@pytest.mark.parametrize(
    ("last_step", "kept"), [(0, ()), (10, (10,)), (25, (10, 20)), (30, (10, 20, 30)), (99, (10, 20, 30))]
)
def test_truncation_keeps_the_lines_up_to_a_step(run: RunFolder, last_step: int, kept: tuple[int, ...]) -> None:
    log(run, 10, 20, 30)
    run.truncate_metrics(last_step)
    assert run.read_metrics() == records(*kept)


def test_after_truncation_a_torn_log_goes_on(run: RunFolder) -> None:
    log(run, 10, 20)
    tear(run, b'{"step": 30, "lo')
    run.truncate_metrics(20)
    log(run, 30, 40)
    assert run.read_metrics() == records(10, 20, 30, 40)
