"""Loggers: what they write can be read back, a resumed run shows no epoch twice, and a missing package is named."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import EngineSettings
from counterpoint.engine import loggers
from counterpoint.engine.loggers import CATALOGUE, TensorBoardLogger, WandbLogger, build_loggers

# --- a stand-in for the package


class FakeRun:
    """Keeps what it is given."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self.logged: list[tuple[dict[str, Any], int]] = []
        self.is_finished = False

    def log(self, values: dict[str, Any], *, step: int) -> None:
        self.logged.append((values, step))

    def finish(self) -> None:
        self.is_finished = True


class FakeWandb(SimpleNamespace):
    """As much of the package as is used."""

    class Error(Exception):
        pass

    def __init__(self, problem: Exception | None = None) -> None:
        super().__init__(Settings=lambda **values: values, runs=[], problem=problem)

    def init(self, **arguments: Any) -> FakeRun:
        if self.problem is not None:
            raise self.problem
        self.runs.append(FakeRun(arguments))
        return self.runs[-1]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return fake


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    run = tmp_path / "some-run"
    run.mkdir()
    (run / "resolved.yaml").write_text("method: simclr\noptim:\n  name: sgd\n", encoding="utf-8")
    return RunFolder(run)


def record(epoch: int, loss: float, **more: float | None) -> dict[str, float | int | None]:
    return {"epoch": epoch, "step": 10 * epoch, "loss": loss, **more}


def curves(folder: RunFolder) -> dict[str, list[tuple[int, float]]]:
    """Every curve that TensorBoard shows."""
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed (extra `tensorboard`)",
    )
    events = accumulators.EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


# --- TensorBoard


def test_tensorboard_reads_back_what_was_logged(folder: RunFolder) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed (extra `tensorboard`)")
    logger = TensorBoardLogger(folder)
    assert not (folder.path / "tensorboard").exists()  # nothing before the first record
    logger(record(1, 2.5, floor=None, knn20=0.5))
    logger(record(2, 2.25, floor=None))
    written = curves(folder)  # before it is closed: a killed run loses nothing
    logger.close()
    expected = {"epoch": [(10, 1.0), (20, 2.0)], "loss": [(10, 2.5), (20, 2.25)], "knn20": [(10, 0.5)]}
    assert written == expected == curves(folder)


def test_a_resumed_run_shows_no_epoch_twice_in_tensorboard(folder: RunFolder) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed (extra `tensorboard`)")
    killed = TensorBoardLogger(folder)
    for epoch in (1, 2, 3, 4):
        killed(record(epoch, float(epoch)))
    resumed = TensorBoardLogger(folder)  # from a checkpoint after epoch 2
    for epoch in (3, 4, 5):
        resumed(record(epoch, 10.0 * epoch))
    resumed.close()
    killed.close()
    assert curves(folder)["loss"] == [(10, 1.0), (20, 2.0), (30, 30.0), (40, 40.0), (50, 50.0)]


def test_a_folder_that_cannot_be_written_is_named(folder: RunFolder) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed (extra `tensorboard`)")
    (folder.path / "tensorboard").write_text("in the way", encoding="utf-8")
    with pytest.raises(RunError, match=r"cannot write .*tensorboard: "):
        TensorBoardLogger(folder)(record(1, 1.0))


# --- Weights & Biases


def test_wandb_gets_each_record_at_its_step_and_is_offline_by_itself(folder: RunFolder, wandb: FakeWandb) -> None:
    logger = WandbLogger(folder)
    assert wandb.runs == []
    logger(record(1, 2.5, floor=None))
    logger(record(2, 2.25))
    logger.close()
    (run,) = wandb.runs
    assert run.logged == [({"epoch": 1, "step": 10, "loss": 2.5}, 10), ({"epoch": 2, "step": 20, "loss": 2.25}, 20)]
    assert run.is_finished
    given = run.arguments
    assert (given["mode"], given["project"], given["name"]) == ("offline", "counterpoint", "some-run")
    assert given["config"] == {"method": "simclr", "optim": {"name": "sgd"}}
    assert given["dir"] == str(folder.path)


def test_a_resumed_run_goes_on_under_the_id_of_the_run(folder: RunFolder, wandb: FakeWandb) -> None:
    folder.update_status(status="running", run_id="5c90")
    for epochs in ((1, 2), (2, 3)):
        logger = WandbLogger(folder)
        for epoch in epochs:
            logger(record(epoch, 1.0))
    first, second = wandb.runs
    assert first.arguments["id"] == second.arguments["id"] == "5c90"
    assert second.arguments["resume"] == "allow"


def test_a_wandb_that_cannot_start_is_one_line(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb(FakeWandb.Error("no key\nlong story")))
    with pytest.raises(RunError, match=r"^wandb cannot start: no key; WANDB_MODE=offline needs no account$"):
        WandbLogger(folder)(record(1, 1.0))


# --- which ones


def test_a_run_gets_the_loggers_it_asks_for(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda name: SimpleNamespace(origin=name))
    assert build_loggers(EngineSettings(), folder) == ()
    for name, kind in CATALOGUE.items():
        flag: dict[str, Any] = {name: True}
        assert [type(logger) for logger in build_loggers(EngineSettings(**flag), folder)] == [kind]
    both = build_loggers(EngineSettings(tensorboard=True, wandb=True), folder)
    assert [type(logger) for logger in both] == [TensorBoardLogger, WandbLogger]


@pytest.mark.parametrize("spec", [None, SimpleNamespace(origin=None)], ids=["none", "a folder of that name"])
@pytest.mark.parametrize("name", list(CATALOGUE))
def test_a_missing_package_is_named_with_its_extra(
    name: str, spec: Any, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda package: spec)
    flag: dict[str, Any] = {name: True}
    with pytest.raises(UsageError) as caught:
        build_loggers(EngineSettings(**flag), folder)
    assert str(caught.value) == (
        f"engine.{name} is true, but {name} is not installed; pip install {name}, or leave it out "
        "(metrics.jsonl is always written)"
    )
    assert build_loggers(EngineSettings(), folder) == ()
