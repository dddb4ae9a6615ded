"""Flags and texts that ranks agree on, and how processes meet and part."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from counterpoint.core.dist import (
    barrier,
    broadcast_text,
    gather_texts,
    is_first_rank,
    join_ranks,
    leave_ranks,
    rank,
    ranks_that_differ,
    world_size,
)
from counterpoint.core.ranks import Ranks
from rank_processes import RankResult, Result, run_on_ranks

pytestmark = pytest.mark.thorough

ODD_TEXTS = ["", "line\nline", "Grüße 日本 \N{PILE OF POO}", os.fsdecode(b"name-\xff.png")]
ROOT = Path(__file__).resolve().parents[2]


def agree() -> Result:
    number = rank()
    found: Result = {
        "texts": repr(gather_texts(ODD_TEXTS[number] * (number + 1))),
        "none": repr(gather_texts("")),
        "broadcast": broadcast_text(f"from {number}"),
        "differ": f"{ranks_that_differ('same')} {ranks_that_differ(str(number // 2))}",
        "first": str(is_first_rank()),
    }
    barrier()
    return found


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> list[RankResult]:
    return run_on_ranks(agree, 4, tmp_path_factory.mktemp("four"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("texts", repr([text * (number + 1) for number, text in enumerate(ODD_TEXTS)])),
        ("none", repr([""] * 4)),
        ("broadcast", "from 0"),
        ("differ", "[] [2, 3]"),
    ],
)
def test_all_ranks_get_one_answer(four: list[RankResult], name: str, expected: str) -> None:
    assert [result.texts[name] for result in four] == [expected] * 4


def test_one_process_agrees_with_itself() -> None:
    join_ranks(Ranks(), torch.device("cpu"))
    assert world_size() == 1
    assert gather_texts(ODD_TEXTS[2]) == [ODD_TEXTS[2]]
    leave_ranks()


MEET = """
import os, sys, torch
from counterpoint.core.dist import broadcast_text, join_ranks, leave_ranks, sum_over_ranks, world_size
from counterpoint.core.ranks import read_ranks
ranks = read_ranks(os.environ)
join_ranks(ranks, torch.device("cpu"), timeout=60)
total = sum_over_ranks(torch.tensor([1.0 + ranks.rank]))
if "fail" in sys.argv:
    leave_ranks(is_orderly=False)
    sys.exit(7 + ranks.rank)
leave_ranks()
os.write(1, f"{ranks.rank} {total.item()} {world_size()}\\n".encode())  # in one piece
"""


def two_ranks(script: str, *words: str) -> list[subprocess.CompletedProcess[str]]:
    """Two processes at once, as torchrun starts them."""
    common = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    common |= {"TORCH_CPP_LOG_LEVEL": "FATAL"}  # as the command sets it
    command = [sys.executable, "-c", script, *words]
    processes = [
        subprocess.Popen(
            command, env={**common, "RANK": number, "LOCAL_RANK": number},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in ("0", "1")
    ]  # fmt: skip
    finished = []
    for process in processes:
        out, error = process.communicate(timeout=120)
        finished.append(subprocess.CompletedProcess(command, process.returncode, out, error))
    return finished


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_torchrun_meets_and_parts(tmp_path: Path) -> None:
    script = tmp_path / "meet.py"
    script.write_text(MEET, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stderr
    assert sorted(finished.stdout.splitlines()) == ["0 3.0 1", "1 3.0 1"]
    assert "destroy_process_group" not in finished.stderr
    assert "Traceback" not in finished.stderr


def test_after_an_error_a_rank_leaves_alone() -> None:
    finished = two_ranks(MEET, "fail")
    assert [process.returncode for process in finished] == [7, 8], finished


LATE = """
import os, sys, time, torch
from counterpoint.core.dist import rank
from counterpoint.core.errors import LoneTrainingError, TrainingError
from counterpoint.core.ranks import read_ranks
from counterpoint.engine.placement import Placement, ranks_joined
error = {"shared": TrainingError, "lone": LoneTrainingError}[sys.argv[1]]
try:
    with ranks_joined(Placement("cpu", "fp32", {}, read_ranks(os.environ))):
        time.sleep(1.5 * rank())
        arrived = time.monotonic()
        raise error("the loss is nan")
except error:
    os.write(1, f"{arrived} {time.monotonic()}\\n".encode())
"""


@pytest.mark.parametrize(("kind", "waits"), [("shared", True), ("lone", False)])
def test_a_rank_waits_for_the_others_after_an_error_of_all(kind: str, waits: bool) -> None:
    # One that left at once would break the connection through which the others hear what happened.
    finished = two_ranks(LATE, kind)
    assert [process.returncode for process in finished] == [0, 0], finished
    (_, left), (arrived, _) = (map(float, process.stdout.split()) for process in finished)
    assert (left >= arrived) == waits


LOST = """
import os, sys, torch
from counterpoint.core import dist
from counterpoint.core.errors import LoneTrainingError
from counterpoint.core.ranks import read_ranks
from counterpoint.engine.placement import Placement, on_all_ranks, ranks_joined
ranks, (victim, place) = read_ranks(os.environ), sys.argv[1:]
dist.JOIN_SECONDS = 3.0
is_victim = ranks.rank == int(victim)
if is_victim and place == "before":
    os._exit(9)
if is_victim and place == "meeting":
    torch.distributed.init_process_group = lambda *_, **__: os._exit(9)
try:
    with ranks_joined(Placement("cpu", "fp32", {}, ranks)):
        if is_victim:
            os._exit(9)
        on_all_ranks(lambda: None)
except LoneTrainingError as error:
    os.write(1, str(error).encode())
"""


@pytest.mark.parametrize("place", ["before", "meeting", "within"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_whose_peer_is_gone_ends_and_says_so(victim: int, place: str) -> None:
    """Whenever it is gone: before it came, as they meet, or at work; nobody waits as long as for a collective."""
    finished = two_ranks(LOST, str(victim), place)
    assert [process.returncode for process in finished] == [9 * (n == victim) for n in range(2)], finished
    assert finished[1 - victim].stdout.startswith("lost contact with another rank"), finished
    assert finished[1 - victim].stderr == ""
