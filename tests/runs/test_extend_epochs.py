"""More epochs for a run: the optimiser goes on, the schedule is laid over all of them, and every record says so."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from test_resuming import stop_after
from torch import nn

import counterpoint as cp
from counterpoint.core.errors import InterruptedRunError, RunError, UsageError
from counterpoint.core.run_files import create_run
from counterpoint.core.settings import OptimSettings
from counterpoint.core.validation import read_yaml_mapping
from counterpoint.engine.checkpoint import list_checkpoints, load_checkpoint
from counterpoint.engine.loop import replay_step
from counterpoint.engine.progress import Reporter
from counterpoint.engine.schedules import build_schedule
from counterpoint.runs import one_run
from counterpoint.runs.one_run import open_job

NUM_SAMPLES, BATCH = 60, 24
BATCHES = 2  # of the 48 that are not held out
SMALL = {"batch_size": BATCH, "views": {"preset": "none"}, "projector": {"hidden": 8, "features": 8}}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 6))


class Trained:
    """A run of two epochs on little, which can be opened again with what its folder does not hold."""

    def __init__(self, path: Path, rng: np.random.Generator) -> None:
        self.path = path
        self.images = rng.integers(0, 256, (NUM_SAMPLES, 4, 4), dtype=np.uint8)
        self.labels = np.arange(NUM_SAMPLES) % 2

    @property
    def given(self) -> dict[str, Any]:
        return {"data": self.images, "labels": self.labels, "encoder": network()}

    @property
    def run(self) -> cp.Run:
        return cp.Run(self.path, **self.given)

    def train(self, **settings: Any) -> cp.Run:
        return cp.train(out=self.path, quiet=True, **self.given, **{"epochs": 2, **SMALL, **settings})

    def resume(self, **asked: Any) -> cp.Run:
        return cp.resume(self.run, quiet=True, **asked)

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.path / "run.json").read_text())


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    made = Trained(tmp_path_factory.mktemp("template") / "run", np.random.default_rng(20240607))
    made.train()
    return made


@pytest.fixture
def trained(tmp_path: Path, template: Trained) -> Trained:
    """A finished run of two epochs."""
    made = Trained(tmp_path / "run", np.random.default_rng(20240607))
    shutil.copytree(template.path, made.path)
    return made


def stopped(monkeypatch: pytest.MonkeyPatch, num_steps: int, work: Callable[[], Any]) -> None:
    """Let Ctrl-C arrive after some steps of the work."""
    with monkeypatch.context() as patch:
        stop_after(patch, num_steps)
        with pytest.raises(InterruptedRunError):
            work()


def rates(run: cp.Run) -> list[float]:
    return [record["learning_rate"] for record in run.metrics]


def expected_rates(num_epochs: int) -> list[float]:
    """At the end of each epoch, with the warm-up of 5 % of two epochs, which stays."""
    settings = OptimSettings(learning_rate=2e-3, weight_decay=0.0, warmup_epochs=0.1)
    schedule = build_schedule(settings, num_epochs=num_epochs, batches_per_epoch=BATCHES)
    return [schedule(BATCHES * epoch - 1) for epoch in range(1, num_epochs + 1)]


def test_a_finished_run_goes_on_and_says_so(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    before = trained.run.metrics
    cp.resume(trained.run, epochs=4)
    said = capsys.readouterr().err
    assert "continues from epoch 2 to 4 (planned before: 2); the learning rate follows its schedule over all 4" in said
    run = trained.run
    assert [record["epoch"] for record in run.metrics] == [1, 2, 3, 4]
    assert run.metrics[:2] == before
    assert rates(run) == expected_rates(2) + expected_rates(4)[2:]
    kept = trained.record["continuations"]
    assert [(each["from_epoch"], each["from_step"], each["planned"], each["to_epoch"]) for each in kept] == [
        (2, 4, 2, 4)
    ]
    assert {"version", "started"} <= kept[0].keys()
    assert (trained.record["status"], trained.record["num_epochs"]) == ("finished", 4)
    resolved = read_yaml_mapping(trained.path / "resolved.yaml")
    assert resolved["epochs"] == 4
    assert resolved["reasons"]["epochs"].startswith("continued: 2 at first, to 4 from epoch 2 on")
    assert read_yaml_mapping(trained.path / "config.yaml")["epochs"] == 4
    assert "# epochs: continued: 2 at first" in (trained.path / "config.yaml").read_text()


@pytest.mark.thorough
def test_it_goes_on_from_the_last_weights_and_the_optimisers_state(trained: Trained) -> None:
    """By hand: one more step from the last checkpoint of before, whose optimiser has moments."""
    saved = load_checkpoint(list_checkpoints(trained.run.folder.checkpoints)[0])
    assert saved.state.optimizer["state"]
    trained.resume(epochs=3)
    step = replay_step(open_job(trained.run, Reporter(quiet=True)), saved)
    kept = json.loads((trained.path / "checkpoints" / "after-00000004.json").read_text())["record"]
    assert (kept["step"], kept["loss"], kept["weights_sha256"]) == (4, step.loss, step.weights_sha256)


def test_verify_takes_a_continued_run_as_sound(trained: Trained) -> None:
    trained.resume(epochs=4)
    checks = {check.what: check.result for check in cp.verify(trained.run, quiet=True).checks}
    assert set(checks.values()) == {"ok"}, checks
    assert any(name.startswith("replayed step") for name in checks)


@pytest.mark.thorough
def test_a_run_that_was_stopped_goes_on_to_more_and_so_does_one_that_goes_on(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Trained(tmp_path / "run", rng)
    stopped(monkeypatch, BATCHES + 1, lambda: made.train(epochs=3))
    stopped(monkeypatch, 2, lambda: made.resume(epochs=4))
    made.resume(epochs=5)
    assert [(each["from_step"], each["planned"], each["to_epoch"]) for each in made.record["continuations"]] == [
        (3, 3, 4),
        (5, 4, 5),
    ]
    assert len(made.run.metrics) == 5
    assert cp.verify(made.run, quiet=True).is_intact


@pytest.mark.thorough
@pytest.mark.parametrize("stop", ["continue_run", "keep_changes", "execute"])
def test_killed_as_it_goes_on_it_goes_on_all_the_same(
    trained: Trained, stop: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = Trained(tmp_path / "whole", np.random.default_rng(20240607))
    shutil.copytree(trained.path, whole.path)
    whole.resume(epochs=4)
    original = getattr(one_run, stop)

    def killed(*given: Any, **known: Any) -> None:
        if stop == "continue_run":  # it is the last that is written
            original(*given, **known)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(one_run, stop, killed)
        with pytest.raises(KeyboardInterrupt):
            trained.resume(epochs=4)
    assert cp.verify(trained.run, quiet=True).is_intact  # no step is held to a schedule that it was not taken by
    trained.resume()
    assert trained.run.metrics == [{**line, **_times(trained.run, at)} for at, line in enumerate(whole.run.metrics)]
    names = ("encoder.safetensors", "metrics.jsonl", "resolved.yaml")
    for name in names[:2]:
        assert (trained.path / name).read_bytes() == (whole.path / name).read_bytes()
    assert read_yaml_mapping(trained.path / "resolved.yaml")["epochs"] == 4
    assert read_yaml_mapping(trained.path / "config.yaml")["epochs"] == 4


def _times(run: cp.Run, at: int) -> dict[str, Any]:
    return {name: run.metrics[at][name] for name in ("images_per_second", "seconds")}


def test_fewer_epochs_than_were_begun_are_refused(trained: Trained) -> None:
    before = {path: path.read_bytes() for path in trained.path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"epochs must be at least 2, as many as .* has begun, got 1"):
        trained.resume(epochs=1)
    with pytest.raises(UsageError, match="epochs"):
        trained.resume(epochs=0)
    assert {path: path.read_bytes() for path in trained.path.rglob("*") if path.is_file()} == before


@pytest.mark.thorough
def test_fewer_epochs_than_planned_but_not_than_begun(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = Trained(tmp_path / "half", rng)
    stopped(monkeypatch, BATCHES + 1, lambda: half.train(epochs=4))
    with pytest.raises(UsageError, match="at least 2"):
        half.resume(epochs=1)
    half.resume(epochs=3)
    assert len(half.run.metrics) == 3


def test_as_many_epochs_as_there_are_change_nothing(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.path.rglob("*")}
    cp.resume(trained.run, epochs=2)
    assert "is finished; nothing to resume" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in trained.path.rglob("*")} == before


def test_train_with_resume_says_how_to_go_on_to_more_epochs(trained: Trained) -> None:
    with pytest.raises(UsageError, match=r"epochs 3 \(the run has 2\).*counterpoint resume \S+ --epochs 3"):
        trained.train(epochs=3, resume=True)


@pytest.mark.thorough
def test_what_was_found_out_about_the_earlier_encoder_stays_with_it(trained: Trained) -> None:
    cp.evaluate(trained.run, k=3, metrics=["knn"], quiet=True)
    (trained.path / "notes.txt").write_text("mine")
    earlier = {name: (trained.path / name).read_bytes() for name in ("evaluation.json", "encoder.safetensors")}
    trained.resume(epochs=3)
    assert not (trained.path / "evaluation.json").exists()
    assert (trained.path / "encoder.safetensors").read_bytes() != earlier["encoder.safetensors"]
    for name, content in earlier.items():
        assert (trained.path / "epochs-2" / name).read_bytes() == content
    trained.resume(epochs=4)
    assert sorted(path.name for path in trained.path.glob("epochs-*")) == ["epochs-2", "epochs-3"]
    create_run(trained.path, overwrite=True)
    assert sorted(path.name for path in trained.path.iterdir()) == [
        ".counterpoint", "checkpoints", "notes.txt", "run.json",
    ]  # fmt: skip


Damage = Callable[[Path], Any]
DAMAGES: dict[str, Damage] = {
    "run.json": lambda path: (path / "run.json").write_text("{"),
    "resolved.yaml": lambda path: (path / "resolved.yaml").unlink(),
    "config.yaml": lambda path: (path / "config.yaml").unlink(),
}


@pytest.mark.thorough
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_record_of_a_continued_run_comes_back_with_its_continuations(
    trained: Trained, damage: Damage
) -> None:
    trained.resume(epochs=4)
    (trained.path / "encoder.safetensors").unlink()  # so that there is something left to do
    damage(trained.path)
    trained.resume()
    assert [each["to_epoch"] for each in trained.record["continuations"]] == [4]
    assert read_yaml_mapping(trained.path / "resolved.yaml")["epochs"] == 4


@pytest.mark.thorough
def test_epochs_that_someone_writes_into_the_settings_are_no_continuation(trained: Trained) -> None:
    trained.resume(epochs=4)
    path = trained.path / "resolved.yaml"
    path.write_text(path.read_text().replace("epochs: 4", "epochs: 2", 1))
    with pytest.raises(UsageError, match=r"resolved.yaml was changed: epochs 2"):
        trained.resume()
    with pytest.raises(RunError, match="was changed after it was written"):
        cp.evaluate(trained.run, quiet=True)


def test_reasons_keep_their_form_where_settings_are_written_anew(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(size=(48, 4)).astype("float32")
    run = cp.train(data, out=tmp_path / "run", epochs=1, batch_size=16, quiet=True)
    before = yaml.safe_load(run.folder.resolved.read_text())["reasons"]
    cp.resume(cp.Run(run.path, data=data), epochs=2, quiet=True)
    after = yaml.safe_load(run.folder.resolved.read_text())["reasons"]
    assert "optim.learning_rate" in before
    assert {**after, **before} == after
    assert all(isinstance(reason, str) for reason in after.values())
