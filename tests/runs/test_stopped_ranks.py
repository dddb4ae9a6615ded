"""Two ranks stop together: at a signal to either, at NaN on either, and where one runs out of memory."""

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from kill_server import KillServer, Plant, SaveKill, rank_environments, said_by

from counterpoint.engine.checkpoint import list_checkpoints, load_checkpoint
from counterpoint.engine.checkpoint_format import find_damage, step_of

pytestmark = pytest.mark.thorough

NUM_SAMPLES, BATCH, EPOCHS = 64, 16, 6
NUM_STEPS = EPOCHS * (NUM_SAMPLES // BATCH)
SECONDS = 120
WORDS = ["--method", "simclr", "--encoder", "mlp", "--epochs", str(EPOCHS), "--batch-size", str(BATCH), "-q"]
WORDS += ["--engine.checkpoint-every", "1", "--engine.device", "cpu"]
SIGNALS = {signal.SIGTERM: 143, signal.SIGUSR1: 138, signal.SIGINT: 130}


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("data") / "vectors.npy"
    np.save(path, np.random.default_rng(5).standard_normal((NUM_SAMPLES, 6)).astype(np.float32))
    return ["train", "--data", str(path), *WORDS]


class Ranks:
    """The processes of one command."""

    def __init__(self, server: KillServer, words: Sequence[str], folder: Path, fates: dict[int, Plant]) -> None:
        self.server = server
        self.files = [folder / f"rank-{rank}" for rank in range(2)]
        self.pids = [
            server.start(words, path, environment=environment, fate=fates.get(rank))
            for rank, (path, environment) in enumerate(zip(self.files, rank_environments(2), strict=True))
        ]

    def codes(self) -> list[int | None]:
        return [self.server.wait(pid, SECONDS) for pid in self.pids]

    def steps(self, rank: int) -> int:
        return self.files[rank].with_suffix(".steps").stat().st_size

    def wait_for_steps(self, rank: int, steps: int) -> None:
        while self.steps(rank) < steps:
            code = self.server.wait(self.pids[rank], 0.001)
            assert code is None, f"ended with {code}: {said_by(self.files)}"


def newest_step(run: Path) -> int:
    return step_of(list_checkpoints(run / "checkpoints")[0])


@pytest.fixture(scope="module")
def whole(server: KillServer, train: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert Ranks(server, [*train, "--out", str(folder / "run")], folder, {}).codes() == [0, 0]
    return folder / "run"


def assert_same(run: Path, whole: Path) -> None:
    names = ["encoder.safetensors", "metrics.jsonl"]
    names += [str(path.relative_to(whole)) for path in list_checkpoints(whole / "checkpoints")[0].iterdir()]
    assert [name for name in names if (run / name).read_bytes() != (whole / name).read_bytes()] == []


def test_a_signal_to_either_rank_saves_on_both_at_the_same_step(
    tmp_path: Path, server: KillServer, train: list[str], whole: Path
) -> None:
    run, words = tmp_path / "run", [*train, "--out", str(tmp_path / "run")]
    draw, before = np.random.default_rng(3), 0
    for number, code in SIGNALS.items():
        ranks = Ranks(server, words, tmp_path, {})
        victim = int(draw.integers(2))
        ranks.wait_for_steps(victim, int(draw.integers(1, 6)))
        begun = ranks.steps(victim)
        os.kill(ranks.pids[victim], number)
        assert ranks.codes() == [code, code], said_by(ranks.files)
        assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
        after = newest_step(run)
        assert before < after <= before + begun + 1  # at the end of the step in progress, or of the one after it
        assert f"step {after} of {NUM_STEPS}" in said_by(ranks.files)
        assert "Traceback" not in said_by(ranks.files)
        before, words = after, ["resume", str(run), "-q"]
    assert Ranks(server, words, tmp_path, {}).codes() == [0, 0]
    assert_same(run, whole)


NOT_FINITE = {
    "loss": r"the loss is nan at step 6 \(epoch 2\): on rank 1 the views are finite; samples \[",
    "view": r"the loss is nan at step 6 \(epoch 2\): on rank 1 view 0 of the data is not finite; samples "
    r"\[\d+\]",
    "gradient": r"the gradient of projector\.0\.weight is not finite at step 6 \(epoch 2\): samples \[",
}


@pytest.mark.parametrize("kind", NOT_FINITE)
def test_nan_on_one_rank_stops_both_before_the_update_and_is_named(
    tmp_path: Path, server: KillServer, train: list[str], whole: Path, kind: str
) -> None:
    run = tmp_path / "run"
    ranks = Ranks(server, [*train, "--out", str(run)], tmp_path, {1: Plant(kind, 7)})
    assert ranks.codes() == [1, 1], said_by(ranks.files)
    said = said_by(ranks.files)
    assert re.search(NOT_FINITE[kind], said), said
    assert "Traceback" not in said
    assert [ranks.steps(rank) for rank in range(2)] == [7, 7]  # neither went on
    assert json.loads((run / "run.json").read_text())["status"] == "failed"
    assert newest_step(run) == 4
    assert find_damage(list_checkpoints(run / "checkpoints")[0]) is None
    if kind == "loss":  # and where the cause is gone, the run is what it would have been
        assert Ranks(server, ["resume", str(run), "-q"], tmp_path, {}).codes() == [0, 0]
        assert_same(run, whole)


def test_a_rank_without_memory_ends_the_run_and_says_what_to_change(
    tmp_path: Path, server: KillServer, train: list[str]
) -> None:
    run = tmp_path / "run"
    ranks = Ranks(server, [*train, "--out", str(run)], tmp_path, {1: Plant("memory", 7)})
    code = server.wait(ranks.pids[1], SECONDS)
    said = said_by(ranks.files[1:])
    assert code == 1
    assert "rank 1: out of memory with 8 samples per step" in said
    assert "--engine.chunk-size" in said
    assert "Traceback" not in said
    os.kill(ranks.pids[0], signal.SIGKILL)  # as torchrun does
    server.wait(ranks.pids[0], SECONDS)
    assert newest_step(run) == 4


def test_memory_that_runs_out_in_one_process_is_one_line(tmp_path: Path, server: KillServer, train: list[str]) -> None:
    pid = server.start(
        [*train, "--out", str(tmp_path / "run")], tmp_path / "one", environment={}, fate=Plant("memory", 1)
    )
    assert server.wait(pid, SECONDS) == 1
    (line,) = said_by([tmp_path / "one"]).splitlines()
    assert line.startswith("counterpoint train: error: out of memory with 16 samples per step")
    assert "--engine.chunk-size 8" in line
    assert line.endswith("(CUDA out of memory. Tried to allocate 2.00 GiB.)")


def test_a_second_run_in_the_same_folder_is_refused_while_the_first_goes_on(
    tmp_path: Path, server: KillServer, train: list[str], whole: Path
) -> None:
    run = tmp_path / "run"
    first = Ranks(server, [*train, "--out", str(run)], tmp_path, {})
    first.wait_for_steps(0, 2)
    for pid in first.pids:  # it goes on when the others have been refused, however long that takes
        os.kill(pid, signal.SIGSTOP)
    for number, words in enumerate((["resume", str(run), "-q"], [*train, "--out", str(run), "--overwrite"])):
        files = tmp_path / f"second-{number}"
        pid = server.start(words, files, environment={})
        assert server.wait(pid, SECONDS) == 2
        (line,) = said_by([files]).splitlines()
        assert f"process {first.pids[0]} on " in line
    for pid in first.pids:
        os.kill(pid, signal.SIGCONT)
    assert first.codes() == [0, 0], said_by(first.files)
    assert_same(run, whole)


def test_a_run_killed_before_its_first_checkpoint_can_be_begun_again(
    tmp_path: Path, server: KillServer, train: list[str]
) -> None:
    run = tmp_path / "run"
    words = [*train, "--out", str(run)]
    pid = server.start(words, tmp_path / "one", environment={}, fate=SaveKill(1, 20))
    assert server.wait(pid, SECONDS) == -signal.SIGKILL
    assert list_checkpoints(run / "checkpoints") == []
    pid = server.start([*words, "--overwrite"], tmp_path / "one", environment={})
    assert server.wait(pid, SECONDS) == 0, said_by([tmp_path / "one"])
    assert load_checkpoint(list_checkpoints(run / "checkpoints")[0]).position.step == NUM_STEPS
