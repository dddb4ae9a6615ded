"""The command under torchrun: two processes train one run, a lost one is replaced, and mistakes take one line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from counterpoint.core.rundir import RunFolder
from runs.folder_snapshot import snapshot

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
TORCHRUN = "torch.distributed.run --standalone --monitor-interval 0.1 --nproc-per-node"
SETTINGS = "--batch-size 16 --source.holdout 0 --projector.features 8 --engine.device cpu --seed 3"
LIMIT = 1e-5  # float32; 64-bit parity is in tests/runs/test_world_sizes.py
SECONDS = 240


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    images = np.random.default_rng(1).integers(0, 256, (64, 8, 8), dtype=np.uint8)
    np.savez(folder / "data.npz", images=images)
    return folder


def command(words: str, num_ranks: int, launch: str = "") -> list[str]:
    launcher = f"-m {TORCHRUN} {num_ranks} {launch}" if num_ranks > 1 else ""
    return [sys.executable, *f"{launcher} -m counterpoint {words}".split()]


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "SLURM"))}
    return {**own, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def run(workplace: Path, words: str, num_ranks: int = 2, launch: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(words, num_ranks, launch), cwd=workplace, env=environment(), capture_output=True, text=True,
        check=False, timeout=SECONDS,
    )  # fmt: skip


@contextmanager
def running(workplace: Path, words: str, said: Path, launch: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run that goes on beside the test; what is left of it at the end is ended."""
    with said.open("wb") as out:
        process = subprocess.Popen(
            command(words, 2, launch), cwd=workplace, env=environment(), stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def train(out: str, more: str = "") -> str:
    return f"train --data data.npz --out {out} {SETTINGS} --epochs 2 {more}"


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def weights_differ(first: Path, second: Path) -> float:
    """Largest difference of the encoders' tensors over the largest entry of each."""
    one, two = (load_file(folder / "encoder.safetensors") for folder in (first, second))
    assert one.keys() == two.keys()
    pairs = [(one[name].double(), two[name].double()) for name in one]
    return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in pairs)


# --- one run


def test_two_processes_train_the_run_of_one(workplace: Path) -> None:
    optimizer = "--optim.name sgd"  # Adam divides rounding errors of zero gradients by themselves
    finished = run(workplace, train("pair", optimizer))
    assert finished.returncode == 0, finished.stderr
    assert run(workplace, train("alone", optimizer), 1).returncode == 0
    status = json.loads((workplace / "pair" / "run.json").read_text(encoding="utf-8"))
    assert (status["status"], status["world_size"]) == ("finished", 2)
    assert losses(workplace / "pair") == pytest.approx(losses(workplace / "alone"), rel=LIMIT)
    assert weights_differ(workplace / "pair", workplace / "alone") < 10 * LIMIT
    assert (finished.stdout + finished.stderr).count("trained in") == 1  # rank 0 speaks for all
    assert "rank1" not in finished.stderr
    assert "Traceback" not in finished.stderr
    assert [path.name for path in (workplace / "pair").glob("encoder*")]


# --- a lost rank


def processes_of(launcher: int) -> dict[int, int]:
    """Process ids of the ranks that a launcher started, by rank."""
    found: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            parent = int((folder / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
            variables = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        ranks = [int(variable[5:]) for variable in variables if variable.startswith(b"RANK=")]
        if parent == launcher and ranks:
            found[ranks[0]] = int(folder.name)
    return found


def wait_for(condition, process: subprocess.Popen[bytes], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, f"ended before {what}"
        assert time.monotonic() < deadline, f"no {what} in {SECONDS} s"
        time.sleep(0.02)


LONG = "--epochs 40 --engine.checkpoint-steps 3"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the ranks in /proc")
@pytest.mark.parametrize("lost", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_killed_rank_is_replaced_and_the_weights_are_the_same(
    workplace: Path, tmp_path: Path, lost: int, undisturbed: Path
) -> None:
    out, said = workplace / f"lost-{lost}", tmp_path / "said.txt"
    with running(workplace, train(out.name, LONG), said, "--max-restarts 1") as process:
        wait_for(lambda: (out / "metrics.jsonl").exists() and len(losses(out)) >= 3, process, "epoch 3")
        ranks = processes_of(process.pid)
        os.kill(ranks[lost], signal.SIGKILL)
        steps_then = len(losses(out))
        assert process.wait(SECONDS) == 0, said.read_text(encoding="utf-8")[-3000:]
    text = said.read_text(encoding="utf-8")
    assert steps_then < 40  # it was lost in the middle
    assert "resuming from step-" in text
    assert losses(out) == losses(undisturbed)
    assert weights_differ(out, undisturbed) == 0.0
    assert (out / "encoder.safetensors").read_bytes() == (undisturbed / "encoder.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(workplace: Path) -> Path:
    finished = run(workplace, train("undisturbed", LONG))
    assert finished.returncode == 0, finished.stderr
    return workplace / "undisturbed"


# --- one line per mistake


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("--batch-size 15", ["batch_size must be a multiple of 2 (2 ranks)", "got 15", "--batch-size 14"]),
        pytest.param("--encoder nosuch", ["unknown encoder 'nosuch'"], marks=pytest.mark.slow),
    ],
)
def test_a_mistake_takes_one_line_and_writes_nothing(workplace: Path, more: str, words: list[str]) -> None:
    before = snapshot(workplace)
    finished = run(workplace, train("never", more))
    own = [line for line in finished.stderr.splitlines() if line.startswith("counterpoint train:")]
    assert len(own) == 1, finished.stderr
    assert all(word in own[0] for word in words), own
    assert finished.returncode != 0
    assert "exitcode  : 2" in finished.stderr
    assert not (workplace / "never").exists()
    assert snapshot(workplace) == before


@pytest.mark.slow
def test_three_ranks_go_on_to_the_last_bit(workplace: Path) -> None:
    """More than two are summed in an order, which must be the same in the first step after resuming."""
    settings = "--batch-size 48 --engine.checkpoint-steps 1 --engine.keep 99 -q"
    for out in ("three", "three-again"):
        assert run(workplace, train(out, settings), 3).returncode == 0
    halved = workplace / "three-again"
    for path in [*halved.glob("encoder*"), *halved.glob("checkpoints/after-*"), *halved.glob("checkpoints/step-*")]:
        if path.is_file():
            path.unlink()
        elif int(path.name.removeprefix("step-")) > 1:
            shutil.rmtree(path)
    RunFolder(halved).update_status(status="interrupted")
    finished = run(workplace, "resume three-again", 3)
    assert finished.returncode == 0, finished.stderr
    assert "resuming from step-00000001" in finished.stderr
    assert "unused parameters" not in finished.stderr
    assert weights_differ(halved, workplace / "three") == 0.0


# --- several seeds


def test_several_seeds_on_two_processes(workplace: Path) -> None:
    finished = run(workplace, "train --data data.npz --out seeds --epochs 1 --seeds 2 " + SETTINGS)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[-1] == "seeds"
    assert (finished.stdout + finished.stderr).count("seed 4, 2 of 2") == 1  # rank 0 speaks for all
    for seed in (3, 4):
        assert RunFolder(workplace / "seeds" / f"seed-{seed}").read_status().world_size == 2
