"""A run whose files were changed or damaged: refused by name, or gone on with from what verifies."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import InterruptedRunError, RunError, UsageError
from counterpoint.core.files import read_sealed
from counterpoint.core.run_lock import lock_run
from counterpoint.core.rundir import RunFolder
from counterpoint.engine import loop
from counterpoint.runs import execution

SETTINGS: dict[str, Any] = {"epochs": 3, "batch_size": 8, "quiet": True, "engine": {"checkpoint_every": 1}}
LINES = ("metrics.jsonl", "timings.jsonl")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.npy"
    np.save(path, np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32))
    return path


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cp.train(data, out=tmp_path_factory.mktemp("whole") / "run", **SETTINGS).path


@pytest.fixture(scope="module")
def stopped_once(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that a signal stopped in its last epoch."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    original, calls = loop.take_step, [0]

    def stopping(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        outcome = original(*given, **named)
        return outcome if calls[0] < 12 else replace(outcome, stop_code=143)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "take_step", stopping)
        with pytest.raises(InterruptedRunError):
            cp.train(data, out=out, **SETTINGS)
    return out


@pytest.fixture
def stopped(stopped_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped_once, tmp_path / "run"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def assert_whole(run: Path, whole: Path) -> None:
    assert [name for name in ("metrics.jsonl", "encoder.safetensors", "encoder.json")
            if (run / name).read_bytes() != (whole / name).read_bytes()] == []  # fmt: skip
    assert RunFolder(run).read_status().status == "finished"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"status": "created", "format": 1}', None])
def test_a_damaged_record_is_written_again_from_the_checkpoint(
    stopped: Path, whole: Path, data: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    record = stopped / "run.json"
    if content is None:
        edit(record, '"seed": 0', '"seed": 8')
    else:
        record.write_text(content)
    before = sorted(path.name for path in (stopped / "checkpoints").iterdir())
    train = f"train --data {data} --out {stopped} --epochs 3 --batch-size 8 --engine.checkpoint-every 1 --resume"
    assert main(train.split()) == 2
    assert "run.json" in capsys.readouterr().err
    assert sorted(path.name for path in (stopped / "checkpoints").iterdir()) == before  # nothing is lost
    cp.resume(stopped, quiet=True)
    assert_whole(stopped, whole)
    assert RunFolder(stopped).read_status().seed == 0


def test_a_changed_setting_is_named_with_what_the_checkpoint_has(stopped: Path) -> None:
    for old, new in (("learning_rate: 0.001", "learning_rate: 0.01"), ("holdout: 0.0", "holdout: 0.999")):
        text = (stopped / "resolved.yaml").read_text()
        if old not in text:
            continue
        edit(stopped / "resolved.yaml", old, new)
        with pytest.raises(UsageError, match=rf"{new.split(': ')[1]} \(step-00000012 has {old.split(': ')[1]}\)"):
            cp.resume(stopped, quiet=True)
        (stopped / "resolved.yaml").write_text(text)
    edit(stopped / "resolved.yaml", "temperature: 0.2", "temperature: 0.3")
    with pytest.raises(UsageError, match=r"temperature 0\.3 \(step-00000012 has 0\.2\); put it back"):
        cp.resume(stopped, quiet=True)
    with pytest.raises(RunError, match=r"resolved\.yaml"):
        cp.evaluate(stopped, quiet=True)


def test_a_change_that_touches_no_weight_is_named_and_taken(
    stopped: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(stopped / "resolved.yaml", "workers: 0", "workers: 1")
    cp.resume(stopped)
    assert "engine.workers 1 (the newest checkpoint has 0)" in capsys.readouterr().err
    assert (stopped / "encoder.safetensors").read_bytes() == (whole / "encoder.safetensors").read_bytes()


@pytest.mark.parametrize("content", ["", "epochs: [3", "- 1", None])
def test_settings_that_cannot_be_read_come_from_the_checkpoint(stopped: Path, whole: Path, content: str | None) -> None:
    path = stopped / "resolved.yaml"
    path.unlink() if content is None else path.write_text(content)
    cp.resume(stopped, quiet=True)
    assert (stopped / "encoder.safetensors").read_bytes() == (whole / "encoder.safetensors").read_bytes()


@pytest.mark.parametrize("key", ["epochs", "batch_size", "seed", "optim", "reasons"])
def test_what_a_truncated_file_of_settings_lacks_comes_from_the_checkpoint(
    stopped: Path, whole: Path, key: str
) -> None:
    path = stopped / "resolved.yaml"
    above, _, _ = path.read_text().partition(f"\n{key}:")
    path.write_text(f"{above}\n" + "reasons: x\n" * (key == "reasons"))
    cp.resume(stopped, quiet=True)
    assert (stopped / "encoder.safetensors").read_bytes() == (whole / "encoder.safetensors").read_bytes()
    assert "\nepochs: 3\n" in path.read_text()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("epochs: 3", "epochs: auto", r"resolved\.yaml is damaged: it does not say what epochs is"),
        ("seed: 0", "seed: -1", r"resolved\.yaml: seed must be a whole number"),
    ],
)
def test_settings_of_a_file_that_are_none_are_named(stopped: Path, old: str, new: str, words: str) -> None:
    edit(stopped / "resolved.yaml", old, new)
    with pytest.raises(UsageError, match=words):
        cp.resume(stopped, quiet=True)


def mutations(content: bytes, draw: np.random.Generator) -> bytes:
    place = int(draw.integers(len(content)))
    match int(draw.integers(4)):
        case 0:
            return content[:place] + bytes([content[place] ^ (1 << int(draw.integers(8)))]) + content[place + 1 :]
        case 1:
            return content[:place] + bytes([int(draw.integers(48, 58))]) + content[place + 1 :]
        case 2:
            return content[:place] + content[place + 1 :]
    return content[:place]


@pytest.mark.parametrize("name", LINES)
def test_no_change_to_a_log_goes_unnoticed(stopped: Path, whole: Path, tmp_path: Path, name: str) -> None:
    draw, noticed = np.random.default_rng(1), 0
    run = RunFolder(Path(shutil.copytree(whole, tmp_path / "whole")))
    path = run.path / name
    original = path.read_bytes()
    for _ in range(100):
        path.write_bytes(content := mutations(original, draw))
        try:
            run.read_metrics()
        except RunError as error:
            noticed += 1
            assert str(error).startswith(f"{path} is damaged: ")
            assert content != original
    assert noticed > 90


def test_changed_figures_are_refused_and_may_be_moved_away(
    stopped: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stopped / "metrics.jsonl"
    edit(path, '"loss": ', '"loss": 1')
    damaged = path.read_bytes()
    with pytest.raises(RunError, match=r"lines up to step 12 are not those of the checkpoint.*move it"):
        cp.resume(stopped, quiet=True)
    assert path.read_bytes() == damaged
    assert "metrics.jsonl" in [
        check.what for check in cp.verify(stopped, quiet=True).checks if check.result == "failed"
    ]
    path.rename(stopped / "old.jsonl")
    cp.resume(stopped)
    assert "the figures of 2 epochs are lost" in capsys.readouterr().err
    assert [record["epoch"] for record in RunFolder(stopped).read_metrics()] == [3]
    assert (stopped / "encoder.safetensors").read_bytes() == (whole / "encoder.safetensors").read_bytes()


@pytest.mark.parametrize("change", ["a line is lost", "a line is no JSON"])
def test_damaged_figures_are_refused(stopped: Path, change: str) -> None:
    path = stopped / "metrics.jsonl"
    first, *others = path.read_bytes().split(b"\n")
    path.write_bytes(first + b"\n" if change == "a line is lost" else b"\n".join([b"{", *others]))
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged: "):
        cp.resume(stopped, quiet=True)


def test_a_run_of_an_earlier_version_has_a_seal_in_each_line(stopped: Path, whole: Path) -> None:
    path = stopped / "metrics.jsonl"
    path.write_text("".join(f'{line[:-1]}, "seal": "0"}}\n' for line in path.read_text().splitlines()))
    assert [sorted(record) for record in RunFolder(stopped).read_metrics()] == [
        sorted(record) for record in RunFolder(whole).read_metrics()[:2]
    ]


def test_a_killed_run_does_not_say_that_it_runs(stopped: Path) -> None:
    folder = RunFolder(stopped)
    folder.update_status(status="running")
    assert folder.is_killed(folder.read_status())
    with lock_run(stopped):
        assert not folder.is_killed(folder.read_status())


def test_a_beginning_says_what_is_missing_and_train_begins_again(tmp_path: Path, data: Path, whole: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    for path in run.iterdir():
        if path.name not in (".counterpoint", "checkpoints", "config.yaml", "resolved.yaml"):
            path.unlink()
    with pytest.raises(RunError, match=r"holds only the beginning of a run.*counterpoint train"):
        cp.resume(run, quiet=True)
    cp.train(data, out=run, **SETTINGS)
    assert_whole(run, whole)


def test_what_a_killed_save_left_is_cleared_when_the_run_is_next_held(stopped: Path) -> None:
    for name in (".step-00000008.trash", ".step-00000016.tmp"):
        (stopped / "checkpoints" / name).mkdir()
        (stopped / "checkpoints" / name / "state.json").touch()
    cp.resume(stopped, quiet=True)
    assert [path.name for path in (stopped / "checkpoints").iterdir() if path.name.startswith(".")] == []


@pytest.mark.thorough
def test_two_starts_in_one_folder_never_mix(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other starts when this one holds the folder and is about to make it."""
    out, original, said = tmp_path / "run", execution.create_run, []

    def interleaved(path: Path, *, overwrite: bool) -> RunFolder:
        words = [sys.executable, "-m", "counterpoint", "train", "--data", str(data), "--out", str(out), "--seed", "2"]
        said.append(subprocess.run(words, capture_output=True, text=True, check=False))
        return original(path, overwrite=overwrite)

    monkeypatch.setattr(execution, "create_run", interleaved)
    cp.train(data, out=out, seed=1, **SETTINGS)
    assert said[0].returncode == 2
    assert str(out) in said[0].stderr
    assert read_sealed(out / "run.json")["seed"] == 1
    assert cp.verify(out, quiet=True).is_intact


@pytest.mark.parametrize("name", ["metrics.jsonl", "timings.jsonl", "arrays.npz", "run.json"])
@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_what_is_no_regular_file_is_not_read(stopped: Path, name: str, kind: str) -> None:
    path = stopped / name
    path.unlink(missing_ok=True)
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(RunError, match=name):
        cp.report(stopped, out=stopped / "page.html", bare=True, quiet=True)


def test_checkpoints_with_an_endless_file_are_passed_over(stopped: Path) -> None:
    state = max((stopped / "checkpoints").glob("step-*")) / "state.json"
    state.unlink()
    state.symlink_to("/dev/zero")
    assert not cp.verify(stopped, quiet=True).is_intact
    cp.resume(stopped, quiet=True)
    assert RunFolder(stopped).read_status().status == "finished"


def test_the_disk_that_fails_again_does_not_hide_the_first_cause(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = [0]
    write = RunFolder.write_status

    def write_status(folder: RunFolder, status: Any) -> None:
        calls[0] += 1
        if calls[0] > 3:
            raise RunError("cannot write run.json: second cause")
        write(folder, status)

    def save_checkpoint(*given: Any, **named: Any) -> None:
        raise RunError("cannot save: first cause")

    monkeypatch.setattr(RunFolder, "write_status", write_status)
    monkeypatch.setattr(loop, "save_checkpoint", save_checkpoint)
    with pytest.raises(RunError, match="first cause"):
        cp.train(data, out=tmp_path / "run", **{**SETTINGS, "quiet": False})
    assert "second cause" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "running"
