"""Shards under torchrun and in several processes, some of which are killed: one table, whoever made it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="pyarrow (extra `search`) is not installed")
pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node 2"


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, and an encoder of them."""
    folder = tmp_path_factory.mktemp("work")
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, 2000)
    images = rng.integers(0, 128, (2000, 8, 8), dtype=np.uint8) + (30 * labels[:, None, None]).astype(np.uint8)
    np.savez(folder / "data.npz", images=images, labels=labels)
    run(folder, "-m counterpoint train --data data.npz --epochs 1 --batch-size 64 --out run")
    run(folder, "-m counterpoint embed run --out one.parquet")
    return folder


def run(folder: Path, words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "SLURM"))}
    environment = {**own, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **variables}
    environment["COUNTERPOINT_CACHE"] = str(folder / "cache")
    finished = subprocess.run(
        [sys.executable, *words.split()], cwd=folder, env=environment, capture_output=True, text=True, check=False,
        timeout=SECONDS,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    return finished


def test_two_ranks_of_torchrun_write_the_table_of_one_process(workplace: Path) -> None:
    said = run(workplace, f"{TORCHRUN} -m counterpoint embed run --out ranks --shards 250")
    assert said.stdout.strip() == "ranks"  # one line of all ranks
    assert "part 1/2: 4 of 8 shards" in said.stderr
    assert "part 2/2: 4 of 8 shards" in said.stderr
    run(workplace, "-m counterpoint embed --merge ranks --out ranks.parquet")
    assert (workplace / "ranks.parquet").read_bytes() == (workplace / "one.parquet").read_bytes()


def test_what_ranks_have_encoded_is_evaluated_as_one_process_does(workplace: Path) -> None:
    metrics = "--metrics knn,linear-probe"
    one = run(workplace, f"-m counterpoint evaluate run {metrics} --no-cache")
    record = workplace / "run" / "evaluation.json"
    expected = json.loads(record.read_text())
    record.unlink()
    assert run(workplace, f"{TORCHRUN} -m counterpoint evaluate run {metrics}").stdout == ""
    assert not record.exists()
    two = run(workplace, f"-m counterpoint evaluate run {metrics}")
    assert json.loads(record.read_text()) == expected
    assert two.stdout == one.stdout


def test_killed_processes_leave_no_row_twice_or_missing() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "killed_embedding.py"), "--pictures", "4000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines() if re.match(r"\| [123] \|", line)]
    assert [row[0].strip() for row in rows] == ["1", "2", "3"]
    assert len({row[-1] for row in rows}) == 1
    assert {row[-2].strip() for row in rows} == {"4,000"}
