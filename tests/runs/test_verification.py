"""`verify` notices every kind of change to a run, replays a step to the last bit, and says what it cannot check."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from folder_snapshot import snapshot
from torch import nn

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.files import write_sealed
from counterpoint.core.rundir import RunFolder
from counterpoint.engine.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint

NUM_SAMPLES, BATCH, EPOCHS = 40, 8, 3
WORDS = ["--method", "moco", "--target.queue-size", "16", "--epochs", str(EPOCHS)]
WORDS += ["--batch-size", str(BATCH), "--engine.checkpoint-steps", "3", "--engine.device", "cpu", "-q"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run beside its data."""
    folder = tmp_path_factory.mktemp("finished")
    np.save(folder / "images.npy", np.random.default_rng(3).integers(0, 256, (NUM_SAMPLES, 8, 8), dtype=np.uint8))
    run = folder / "run"
    assert main(["train", "--data", str(folder / "images.npy"), "--out", str(run), *WORDS]) == 0
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy to tamper with; its data are those of the original."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def results(run: Path | cp.Run) -> dict[str, str]:
    return {check.what: check.result for check in cp.verify(run, quiet=True).checks}


def detail(run: Path | cp.Run, what: str) -> str:
    return next(check.detail for check in cp.verify(run, quiet=True).checks if check.what == what)


def newest(run: Path) -> Path:
    return list_checkpoints(run / "checkpoints")[0]


def replayed(run: Path) -> str:
    (name,) = [name for name in results(run) if name.startswith("replayed step")]
    return name


@pytest.mark.thorough
def test_a_finished_run_verifies_and_stays_as_it_is(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(run)
    verification = cp.verify(run, quiet=True)
    assert verification.is_intact
    assert {check.result for check in verification.checks} == {"ok"}
    assert [check.what for check in verification.checks][2:] == [
        "run.json",
        "encoder.safetensors",
        "resolved.yaml",
        "config.yaml",
        "metrics.jsonl",
        "timings.jsonl",
        "data",
        "replayed step 12",  # the last step that was recorded: after 15 there is none
    ]
    assert main(["verify", str(run), "-q"]) == 0
    said = capsys.readouterr().out
    assert "samples, loss, gradient norm and weights are the same bits" in said
    assert len(said.splitlines()) == len(verification.checks)
    assert main(["verify", str(run), "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out) == verification.to_dict()
    assert snapshot(run) == before


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def forge(path: Path, old: str, new: str) -> None:
    """Edit a sealed file, and seal it again."""
    values = json.loads(path.read_text())
    del values["sha256"]
    text = json.dumps(values)
    assert old in text
    write_sealed(path, json.loads(text.replace(old, new, 1)))


TAMPERING: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "a weight of the newest checkpoint": (
        lambda run: flip(newest(run) / "model.safetensors"),
        "step-00000015",
        "model.safetensors does not match its hash",
    ),
    "a file of the older one is gone": (
        lambda run: (list_checkpoints(run / "checkpoints")[1] / "state.json").unlink(),
        "step-00000012",
        "state.json is missing",
    ),
    "the encoder": (lambda run: flip(run / "encoder.safetensors"), "encoder.safetensors", "does not match the hash"),
    "the encoder is gone": (lambda run: (run / "encoder.safetensors").unlink(), "encoder.safetensors", "missing"),
    "a setting": (
        lambda run: edit(run / "resolved.yaml", "temperature: 0.2", "temperature: 0.3"),
        "resolved.yaml",
        "temperature 0.3",
    ),
    "the settings say nonsense": (
        lambda run: edit(run / "resolved.yaml", "seed: 0", "seed: x"),
        "resolved.yaml",
        "seed",
    ),
    "a line of the metrics": (
        lambda run: edit(run / "metrics.jsonl", '{"epoch": 2', '{"epoch": 4'),
        "metrics.jsonl",
        "it was changed after the run was finished",
    ),
    "half a line of the metrics": (
        lambda run: (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text()[:-9]),
        "metrics.jsonl",
        "it was changed after the run was finished",
    ),
    "the data are not those": (
        lambda run: RunFolder(run).update_status(data_fingerprint="0"),
        "data",
        "the data changed since",
    ),
    "the record of the step": (
        lambda run: edit(run / "checkpoints" / "after-00000012.json", '"loss": "0x1.', '"loss": "0x1.0'),
        "after-00000012.json",
        "changed",
    ),
}


@pytest.mark.parametrize(("tamper", "what", "why"), TAMPERING.values(), ids=TAMPERING)
@pytest.mark.sampled(10)
@pytest.mark.thorough
def test_each_change_is_found_and_named(
    run: Path, tamper: Callable[[Path], Any], what: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tamper(run)
    assert results(run)[what] == "failed"
    assert why in detail(run, what)
    assert main(["verify", str(run), "-q"]) == 1
    assert any(line.split()[0] in what and "failed" in line for line in capsys.readouterr().out.splitlines())


def test_times_that_are_missing_at_the_end_are_found(run: Path) -> None:
    lines = (run / "timings.jsonl").read_text().splitlines(keepends=True)
    (run / "timings.jsonl").write_text("".join(lines[:-1]))
    assert results(run)["timings.jsonl"] == "failed"


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to(path.name)])
def test_what_stands_in_the_place_of_a_kept_array_is_named(run: Path, make: Callable[[Path], None]) -> None:
    cp.diagnose(run, quiet=True)
    (run / "collection.npz").unlink()
    make(run / "collection.npz")
    assert results(run)["collection.npz"] == "failed"


def test_an_encoder_of_another_run_with_a_card_of_its_own_is_found(run: Path, finished: Path) -> None:
    """Hash and card fit each other; the last checkpoint does not fit them."""
    path = newest(run)
    saved = load_checkpoint(path)
    saved.state.model["backbone.0.weight"].mul_(2)
    save_checkpoint(run / "checkpoints", saved, keep=2)
    assert detail(run, "encoder.safetensors") == "its weights are not those of step-00000015"


def test_a_checkpoint_whose_weights_do_not_lead_to_the_recorded_step_is_found(run: Path) -> None:
    """All hashes fit; only the replay can tell."""
    older = list_checkpoints(run / "checkpoints")[1]
    record = (run / "checkpoints" / "after-00000012.json").read_text()
    saved = load_checkpoint(older)
    saved.state.model["backbone.0.weight"][0, 0, 0, 0] += 2.0**-10
    shutil.rmtree(older)
    save_checkpoint(run / "checkpoints", saved, keep=9)
    (run / "checkpoints" / "after-00000012.json").write_text(record)
    assert results(run)["step-00000012"] == "ok"
    assert results(run)["replayed step 12"] == "failed"
    assert "weights" in detail(run, "replayed step 12")


def test_another_machine_is_no_failure_but_said(run: Path) -> None:
    path = run / "checkpoints" / "after-00000012.json"
    forge(path, f'"torch": "{torch.__version__}"', '"torch": "1.0"')
    assert results(run)["replayed step 12"] == "ok"  # the bits are the same all the same
    forge(path, '"loss": "0x1.', '"loss": "0x1.0')
    assert results(run)["replayed step 12"] == "not checked"
    assert "recorded with torch 1.0, " in detail(run, "replayed step 12")
    assert cp.verify(run, quiet=True).is_intact


def test_the_replay_takes_as_many_threads_as_the_run_had(run: Path) -> None:
    before = torch.get_num_threads()
    forge(run / "checkpoints" / "after-00000012.json", f'"threads": {before}', f'"threads": {before + 1}')
    assert f", {before + 1} threads, cpu" in detail(run, "replayed step 12")
    assert torch.get_num_threads() == before


def test_without_a_record_it_says_how_to_get_one(run: Path) -> None:
    for path in (run / "checkpoints").glob("after-*"):
        path.unlink()
    assert results(run)["replayed step"] == "not checked"
    assert "engine.keep >= 2" in detail(run, "replayed step")
    assert main(["verify", str(run), "-q"]) == 0


def test_a_record_that_is_a_link_to_itself_is_named(run: Path) -> None:
    (record,) = (run / "checkpoints").glob("after-*")
    record.unlink()
    record.symlink_to(record.name)
    assert results(run)[record.name] == "failed"


def test_steps_of_several_ranks_are_not_replayed_by_one(run: Path) -> None:
    for path in list_checkpoints(run / "checkpoints"):
        saved = load_checkpoint(path)
        saved.facts["world_size"] = 2
        record = path.parent / path.name.replace("step", "after")
        kept = record.with_suffix(".json").read_text() if record.with_suffix(".json").exists() else None
        shutil.rmtree(path)
        save_checkpoint(path.parent, saved, keep=9)
        if kept is not None:
            record.with_suffix(".json").write_text(kept)
    assert results(run)["replayed step 12"] == "not checked"
    assert "2 ranks" in detail(run, "replayed step 12")


def test_where_no_checkpoint_is_left_that_is_said(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    found = results(run)
    assert found["checkpoints"] == "failed"
    assert found["replayed step"] == "not checked"
    assert found["resolved.yaml"] == "not checked"


def test_an_array_and_a_module_of_the_users_own(tmp_path: Path, rng: np.random.Generator) -> None:
    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 8))

    images = rng.integers(0, 256, (NUM_SAMPLES, 8, 8), dtype=np.uint8)
    settings = {"epochs": 2, "batch_size": BATCH, "quiet": True, "engine": {"checkpoint_steps": 2}}
    run = cp.train(images, encoder=network(), out=tmp_path / "run", **settings)
    assert results(run.path)["data"] == "not checked"
    assert "data=" in detail(run.path, "data")
    found = results(cp.Run(run.path, data=images, encoder=network()))
    assert set(found.values()) == {"ok"}
    images[0, 0, 0] ^= 1
    assert results(cp.Run(run.path, data=images, encoder=network()))["data"] == "failed"
