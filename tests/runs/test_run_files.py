"""What in a run folder is ours: making it, beginning it anew, and clearing it without losing a stranger's file."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from counterpoint.core.errors import RunError
from counterpoint.core.rundir import RunFolder, open_run
from counterpoint.runs.run_files import create_run, foreign_names, is_beginning
from refusals import refused


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run that has everything a run may have."""
    folder = create_run(tmp_path / "run", overwrite=False)
    folder.update_status(status="finished")
    for name in ("checkpoints/step-00000004", "second", "evaluations", "tensorboard", "wandb/run-1"):
        (folder.path / name).mkdir(parents=True)
    for name in (
        "config.yaml", "resolved.yaml", "metrics.jsonl", "timings.jsonl", "encoder.safetensors", "encoder.json",
        "evaluation.json", "findings.json", "arrays.npz", "report.html", "checkpoints/after-00000004.json",
        "checkpoints/step-00000004/model.safetensors", "checkpoints/step-00000004/MANIFEST.json",
        "checkpoints/step-00000004/state.json", "second/encoder.json", "evaluations/a.json", "wandb.json",
        "wandb/run-1/log", "tensorboard/events.out.tfevents.1", "metrics.jsonl.damaged-1", ".run.json.12.tmp.json",
    ):  # fmt: skip
        (folder.path / name).write_text("ours", encoding="utf-8")
    return folder


def refusal(path: Path, *, overwrite: bool) -> str:
    return refused(RunError, create_run, path, overwrite=overwrite)


def names_in(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*"))


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_new_run_folder_is_made_with_its_parents(tmp_path: Path, overwrite: bool) -> None:
    folder = create_run(tmp_path / "runs" / "deep" / "a", overwrite=overwrite)
    assert folder.path == tmp_path / "runs" / "deep" / "a"
    assert names_in(folder.path) == [".counterpoint", "checkpoints", "run.json"]
    assert folder.is_ours


def test_a_run_is_not_replaced_unasked(run: RunFolder) -> None:
    before = names_in(run.path)
    message = refusal(run.path, overwrite=False)
    assert message.startswith(f"{run.path} exists; ")
    assert all(remedy in message for remedy in ("counterpoint resume", "--overwrite", "--out"))
    assert names_in(run.path) == before
    assert run.read_status().status == "finished"


def test_a_run_is_replaced_when_asked_and_nothing_of_it_stays(run: RunFolder) -> None:
    create_run(run.path, overwrite=True)
    assert names_in(run.path) == [".counterpoint", "checkpoints", "run.json"]
    assert run.read_status().written() == {"format": 1, "status": "created"}


FOREIGN = ["thesis.txt", "notes/a.txt", "checkpoints/step-00000004 (copy)/x", "checkpoints/mine", "second/mine"]


def test_files_that_are_not_ours_survive_and_are_named(run: RunFolder) -> None:
    for name in FOREIGN:
        (run.path / name).parent.mkdir(exist_ok=True)
        (run.path / name).write_text("years of work", encoding="utf-8")
    create_run(run.path, overwrite=True)
    assert all((run.path / name).read_text(encoding="utf-8") == "years of work" for name in FOREIGN)
    assert foreign_names(run) == [
        "checkpoints/mine", "checkpoints/step-00000004 (copy)", "notes", "second", "thesis.txt"
    ]  # fmt: skip


def test_what_links_lead_to_is_never_deleted(run: RunFolder, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "runs").mkdir(parents=True)
    for name in ("metrics.jsonl", "a.json", "encoder.json", "runs/log"):
        (elsewhere / name).write_text("years of work", encoding="utf-8")
    for name, target in {"metrics.jsonl": "metrics.jsonl", "evaluations": ".", "second": ".", "wandb": "runs"}.items():
        place = run.path / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        place.symlink_to(elsewhere / target)
    create_run(run.path, overwrite=True)
    assert {path.read_text(encoding="utf-8") for path in elsewhere.rglob("*") if path.is_file()} == {"years of work"}
    assert len(list(elsewhere.rglob("*"))) == 5


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("status", [None, "{}", '{"status": "finished", "format": 1}', "[1]", "{"])
def test_what_is_not_a_run_is_never_touched(tmp_path: Path, overwrite: bool, status: str | None) -> None:
    """Other programs write a ``run.json``, too."""
    folder = tmp_path / "thesis"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "chapter.txt").write_text("years of work", encoding="utf-8")
    if status is not None:
        (folder / "run.json").write_text(status, encoding="utf-8")
    before = names_in(folder)
    assert refusal(folder, overwrite=overwrite).startswith(f"{folder} exists and is not a run folder")
    assert names_in(folder) == before
    if status in (None, "{}", "[1]"):
        with pytest.raises(RunError, match="thesis"):
            open_run(folder)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old", encoding="utf-8")
    path = tmp_path / "file" / "run"
    assert refusal(path, overwrite=False) == f"cannot create the run folder {path}: Not a directory"


def test_checkpoints_elsewhere_are_no_part_of_a_new_run(run: RunFolder, tmp_path: Path) -> None:
    shutil.move(run.checkpoints, tmp_path / "scratch")
    run.checkpoints.symlink_to(tmp_path / "scratch")
    assert "is a link" in refusal(run.path, overwrite=True)
    assert (tmp_path / "scratch" / "step-00000004" / "state.json").exists()


def test_a_run_of_the_first_release_bears_no_marker_and_is_known_by_its_record(run: RunFolder) -> None:
    run.marker.unlink()
    record = {"format": 1, "status": "finished", "data_fingerprint": "a"}
    run.status.write_text(json.dumps(record), encoding="utf-8")
    assert open_run(run.path).read_status().status == "finished"
    create_run(run.path, overwrite=True)
    assert names_in(run.path) == [".counterpoint", "checkpoints", "run.json"]


# --- beginnings


def killed_before_the_marker(path: Path) -> None:
    (path / ".lock").touch()
    (path / "..counterpoint.1a.tmp").touch()


def killed_before_the_record(path: Path) -> None:
    create_run(path, overwrite=False).status.unlink()
    (path / ".run.json.1a.tmp.json").touch()


def killed_before_the_first_step(path: Path) -> None:
    folder = create_run(path, overwrite=False)
    folder.config.touch()
    folder.resolved.touch()


def killed_while_it_was_replaced(path: Path) -> None:
    folder = create_run(path, overwrite=False)
    folder.weights.touch()
    (folder.checkpoints / "step-00000004").mkdir()


BEGINNINGS = [
    killed_before_the_marker, killed_before_the_record, killed_before_the_first_step, killed_while_it_was_replaced
]  # fmt: skip


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("begin", BEGINNINGS)
def test_a_beginning_may_be_started_again(tmp_path: Path, begin: Callable[[Path], None], overwrite: bool) -> None:
    begin(tmp_path)
    assert is_beginning(RunFolder(tmp_path))
    create_run(tmp_path, overwrite=overwrite)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".lock") == [
        ".counterpoint", "checkpoints", "run.json"
    ]  # fmt: skip
