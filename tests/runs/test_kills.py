"""SIGKILL anywhere, resumed again and again: the run ends as if nothing had happened, to the last bit.

Eight kills in the default suite, fifty in the slow one; half of them during a save. What each kill was is drawn from a
fixed seed, and each is shown to have landed.
"""

import json
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from kill_server import KillServer, SaveKill, rank_environments, said_by
from safetensors import safe_open

import counterpoint as cp
from counterpoint.engine.checkpoint import list_checkpoints
from counterpoint.engine.checkpoint_format import find_damage

pytestmark = pytest.mark.thorough

NUM_SAMPLES, EPOCHS, BATCH = 72, 8, 16
SECONDS = 120  # for one process; far more than it needs
SMALL = ["--projector.hidden", "16", "--projector.features", "8"]
COMMON = ["--epochs", str(EPOCHS), "--batch-size", str(BATCH), "--engine.checkpoint-steps", "3"]
COMMON += ["--engine.checkpoint-every", "1", "--engine.device", "cpu", *SMALL, "-q"]
METHODS = {
    "moco": ["--method", "moco", "--target.queue-size", "32"],
    "byol": ["--method", "byol"],
    "simclr": ["--method", "simclr", "--optim.name", "sgd"],
}


@dataclass(frozen=True)
class StepKill:
    """Killed from outside.

    Attributes:
        steps: steps that it begins before.
        delay: seconds from the beginning of the last of them.
        rank: the process that is killed; the others follow, as a launcher sees to it.
    """

    steps: int
    delay: float
    rank: int


@dataclass
class Drill:
    """One run that is killed and resumed.

    Attributes:
        server: starts its processes.
        run: its folder.
        world_size: its ranks.
        in_save: kills that hit a save, by what the dying process noted.
        unfinished: those of them that left a half-written checkpoint.
        landed: all kills.
    """

    server: KillServer
    run: Path
    world_size: int
    in_save: list[str] = field(default_factory=list)
    unfinished: int = 0
    landed: int = 0

    def go(self, words: list[str], kill: StepKill | SaveKill | None) -> None:
        """Run the command on all ranks until it ends or is killed."""
        files = [self.run.with_name(f"{self.run.name}-{rank}") for rank in range(self.world_size)]
        environments = rank_environments(self.world_size)
        pids = []
        for rank, environment in enumerate(environments):
            own = kill if isinstance(kill, SaveKill) and rank == 0 else None
            pids.append(self.server.start(words, files[rank], environment=environment, fate=own))
        try:
            if kill is None:
                codes = [self.server.wait(pid, SECONDS) for pid in pids]
                assert codes == [0] * self.world_size, said_by(files)
            else:
                self._kill(kill, pids, files)
        finally:
            for pid in pids:
                _kill_if_alive(pid)
            for pid in pids[1:] if kill is not None else []:
                self.server.wait(pid, SECONDS)

    def _kill(self, kill: StepKill | SaveKill, pids: list[int], files: list[Path]) -> None:
        """Let the kill happen, and see that it did."""
        victim = 0 if isinstance(kill, SaveKill) else kill.rank
        if isinstance(kill, StepKill):
            self._wait_for_steps(kill, pids[victim], files)
            time.sleep(kill.delay)
            os.kill(pids[victim], signal.SIGKILL)
        code = self.server.wait(pids[victim], SECONDS)
        assert code == -signal.SIGKILL, (kill, code, said_by(files))
        if victim != 0:
            _kill_if_alive(pids[0])
            self.server.wait(pids[0], SECONDS)
        self.landed += 1
        status = json.loads((self.run / "run.json").read_text())["status"]
        assert status == "running"  # it did not get to its end
        if isinstance(kill, SaveKill):
            note = files[0].with_suffix(".killed").read_text()
            assert note.startswith(f"save {kill.save} call ")
            self.in_save.append(note)
            self.unfinished += bool(list(self.run.glob("checkpoints/.step-*")))

    def _wait_for_steps(self, kill: StepKill, pid: int, files: list[Path]) -> None:
        """Until the process has begun so many steps."""
        path = files[kill.rank].with_suffix(".steps")
        while path.stat().st_size < kill.steps:
            code = self.server.wait(pid, 0.001)
            assert code is None, f"it ended by itself with code {code}:\n{said_by(files)}"


def _kill_if_alive(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def draw_kills(draw: np.random.Generator, number: int, world_size: int) -> list[StepKill | SaveKill]:
    """Kills of one run: saves and steps in turn."""
    kills: list[StepKill | SaveKill] = []
    for index in range(number):
        if index % 2 == 0:
            kills.append(SaveKill(save=int(draw.integers(2, 4)), call=int(draw.integers(2, 30))))
        else:
            rank = int(draw.integers(world_size))
            kills.append(StepKill(int(draw.integers(1, 6)), float(draw.uniform(0, 0.01)), rank))
    return kills


def content_of(run: Path) -> dict[str, bytes]:
    """All that a run computed: every file of the last checkpoints, the encoder, the metrics."""
    names = ["metrics.jsonl", "encoder.safetensors", "encoder.json"]
    kept = [path for folder in list_checkpoints(run / "checkpoints") for path in sorted(folder.iterdir())]
    return {str(path.relative_to(run)): path.read_bytes() for path in [*kept, *(run / name for name in names)]}


def assert_same(actual: Path, expected: Path) -> None:
    found, wanted = content_of(actual), content_of(expected)
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if found[name] != wanted[name]] == []


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images: a convolution's weights lie in memory otherwise than a matrix does."""
    path = tmp_path_factory.mktemp("data") / "images.npy"
    np.save(path, np.random.default_rng(5).integers(0, 256, (NUM_SAMPLES, 8, 8), dtype=np.uint8))
    return path


@pytest.fixture(scope="module")
def undisturbed(
    server: KillServer, data: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, int], Path]:
    """Runs that nothing disturbed, made when they are first asked for."""
    folder = tmp_path_factory.mktemp("whole")

    class Whole(dict[tuple[str, int], Path]):
        def __missing__(self, key: tuple[str, int]) -> Path:
            method, world_size = key
            run = folder / f"{method}-{world_size}"
            Drill(server, run, world_size).go(train_words(data, method, run), None)
            self[key] = run
            return run

    return Whole()


def train_words(data: Path, method: str, run: Path) -> list[str]:
    return ["train", "--data", str(data), "--out", str(run), *METHODS[method], *COMMON]


def killed_run(drill: Drill, words: list[str], kills: list[StepKill | SaveKill]) -> None:
    """Train, with each kill in turn, resumed each time; at the end undisturbed."""
    for index, kill in enumerate(kills):
        drill.go(words if index == 0 else ["resume", str(drill.run), "-q"], kill)
    drill.go(["resume", str(drill.run), "-q"], None)
    hidden = [path.name for path in (*drill.run.glob(".*"), *drill.run.glob("checkpoints/.*"))]
    assert hidden == [".counterpoint"]  # and nothing was left behind


@pytest.mark.parametrize("world_size", [1, 2])
def test_eight_kills_change_no_bit(
    tmp_path: Path, server: KillServer, data: Path, undisturbed: dict[tuple[str, int], Path], world_size: int
) -> None:
    whole = undisturbed["moco", world_size]
    drill = Drill(server, tmp_path / "run", world_size)
    kills = draw_kills(np.random.default_rng(world_size), 4, world_size)
    killed_run(drill, train_words(data, "moco", drill.run), kills)
    assert drill.landed == 4
    assert len(drill.in_save) == 2
    assert drill.unfinished >= 1
    assert_same(drill.run, whole)
    newest = list_checkpoints(drill.run / "checkpoints")[0]
    assert find_damage(newest) is None
    with safe_open(newest / "model.safetensors", framework="pt") as stored:
        names = set(stored.keys())
    assert any("queue" in name for name in names), names
    assert len(cp.Run(drill.run).metrics) == EPOCHS


SLOW = [(method, world_size) for method in METHODS for world_size in (1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "world_size"), SLOW)
def test_fifty_kills_change_no_bit(
    tmp_path: Path,
    server: KillServer,
    data: Path,
    undisturbed: dict[tuple[str, int], Path],
    method: str,
    world_size: int,
) -> None:
    """Six groups of runs; with the eight above 50 kills and more."""
    draw = np.random.default_rng([world_size, len(method), 7])
    landed, in_save = 0, 0
    for number in range(2):
        drill = Drill(server, tmp_path / f"run-{number}", world_size)
        killed_run(drill, train_words(data, method, drill.run), draw_kills(draw, 4, world_size))
        assert_same(drill.run, undisturbed[method, world_size])
        landed, in_save = landed + drill.landed, in_save + len(drill.in_save)
    assert (landed, in_save) == (8, 4)
