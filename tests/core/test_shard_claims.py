"""Tasks are done once by any number of processes, and those of killed processes are done by others."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.core.errors import RunError
from counterpoint.core.shard_claims import TORN, Claims, visiting_order, work_through
from counterpoint.core.work_parts import Part

ROOT = Path(__file__).resolve().parents[2]
# Does tasks that take a moment, and writes a line when one begins and a file when it is done.
WORKER = """
import os, sys, time
from pathlib import Path
from counterpoint.core.shard_claims import Claims, work_through
from counterpoint.core.work_parts import Part
folder, part = Path(sys.argv[1]), Part(*map(int, sys.argv[2:4]))
num_tasks, seconds = int(sys.argv[4]), float(sys.argv[5])
def work(number):
    with (folder / "begun").open("a") as stream:
        stream.write(f"{number} {part.number}\\n")
    time.sleep(seconds)
    os.close(os.open(folder / f"done-{number}", os.O_CREAT | os.O_EXCL))
with Claims(folder / "claims") as claims:
    work_through(num_tasks, part, claims, is_done=lambda n: (folder / f"done-{n}").exists(), work=work)
"""


def start(folder: Path, part: Part, num_tasks: int, seconds: float) -> subprocess.Popen[bytes]:
    words = [str(folder), str(part.number), str(part.total), str(num_tasks), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen([sys.executable, "-c", WORKER, *words], env=environment, stderr=subprocess.PIPE)


def begun(folder: Path) -> list[tuple[int, int]]:
    """Tasks in the order in which they were begun, each with the part that began it."""
    path = folder / "begun"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def wait_for(folder: Path, num_begun: int, part: int) -> None:
    end = time.monotonic() + 60
    while sum(who == part for _, who in begun(folder)) < num_begun:
        assert time.monotonic() < end
        time.sleep(0.01)


@given(st.integers(0, 60), st.integers(1, 12), st.data())
def test_each_part_looks_at_every_task_once_and_at_its_own_first(
    num_tasks: int, total: int, data: st.DataObject
) -> None:
    part = Part(data.draw(st.integers(1, total)), total)
    order = list(visiting_order(num_tasks, part))
    assert sorted(order) == list(range(num_tasks))
    own = [number for number in range(num_tasks) if number % total == part.number - 1]
    assert order[: len(own)] == own


def test_three_processes_do_each_task_once(tmp_path: Path) -> None:
    workers = [start(tmp_path, Part(number, 3), 30, 0.02) for number in (1, 2, 3)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert Counter(number for number, _ in begun(tmp_path)) == dict.fromkeys(range(30), 1)


def test_what_two_killed_processes_had_claimed_is_done_by_the_third(tmp_path: Path) -> None:
    first, second, third = (start(tmp_path, Part(number, 3), 24, 0.1) for number in (1, 2, 3))
    wait_for(tmp_path, 2, part=1)
    first.kill()
    wait_for(tmp_path, 3, part=2)
    second.send_signal(signal.SIGKILL)
    assert (first.wait(60), second.wait(60)) == (-9, -9)
    assert third.wait(60) == 0
    assert {path.name for path in tmp_path.glob("done-*")} == {f"done-{number}" for number in range(24)}
    # What was done before the kill stays: only the two tasks in hand were begun twice.
    twice = {number for number, times in Counter(number for number, _ in begun(tmp_path)).items() if times > 1}
    assert len(twice) <= 2
    assert {who for number, who in begun(tmp_path) if number in twice} >= {3}


def test_two_processes_with_the_same_part_share_it(tmp_path: Path) -> None:
    workers = [start(tmp_path, Part(1, 1), 20, 0.02) for _ in range(2)]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert Counter(number for number, _ in begun(tmp_path)) == dict.fromkeys(range(20), 1)


def forge(folder: Path, name: str, seconds_ago: float) -> Path:
    """A claim of a process on another machine, which showed life some time ago."""
    path = folder / name
    path.write_text('{"pid": 1, "host": "elsewhere", "since": "yesterday"}')
    then = time.time() - seconds_ago
    os.utime(path, (then, then))
    return path


def test_a_claim_from_another_machine_counts_until_it_shows_no_life(tmp_path: Path) -> None:
    with Claims(tmp_path, patience=30) as claims:
        path = forge(tmp_path, "000004-1", seconds_ago=20)
        assert not claims.take(4)
        forge(tmp_path, path.name, seconds_ago=40)
        assert claims.take(4)
        assert (tmp_path / "000004-2").exists()


def test_of_two_that_take_over_one_succeeds(tmp_path: Path) -> None:
    with Claims(tmp_path) as one, Claims(tmp_path) as other:
        forge(tmp_path, "000000-1", seconds_ago=1000)
        assert [one.take(0), other.take(0), one.take(0)] == [True, False, False]
        assert one.take(1)


def test_a_long_task_shows_life_all_the_time(tmp_path: Path) -> None:
    with Claims(tmp_path, patience=0.4) as holder, Claims(tmp_path, patience=0.4) as other:
        assert holder.take(0)
        for _ in range(10):
            time.sleep(0.1)
            assert not other.take(0)


def test_an_error_gives_the_task_back(tmp_path: Path) -> None:
    def fail(number: int) -> None:
        raise ValueError(f"task {number}")

    with pytest.raises(ValueError, match="task 0"), Claims(tmp_path) as claims:
        work_through(3, Part(), claims, is_done=lambda _: False, work=fail)
    with Claims(tmp_path) as claims:
        assert claims.take(0)


def test_who_is_waited_for_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    done: set[int] = set()
    forge(tmp_path, "000000-1", seconds_ago=0)
    forge(tmp_path, "000001-1", seconds_ago=0)
    timer = threading.Timer(0.5, done.update, [[0, 1]])
    with Claims(tmp_path, said.append) as claims:
        timer.start()
        work_through(2, Part(), claims, is_done=done.__contains__, work=done.add)
    assert said == ["waiting for number 0 and 1 more, which process 1 on elsewhere (since yesterday) does"]


def test_own_tasks_only(tmp_path: Path) -> None:
    done: set[int] = set()
    with Claims(tmp_path) as claims:
        work_through(5, Part(2, 2), claims, is_done=done.__contains__, work=done.add, takes_over=False)
    assert done == {1, 3}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot write claims in .*file"):
        Claims(tmp_path / "file")


def test_a_folder_that_is_removed_while_others_look_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "claims"
    with Claims(folder) as claims:
        for step in ("_create", "_is_stale"):
            folder.mkdir(exist_ok=True)
            forge(folder, "000000-1", seconds_ago=0)
            original = getattr(Claims, step)

            def removing(self: Claims, path: Path, original: Callable[[Claims, Path], bool] = original) -> bool:
                shutil.rmtree(folder)
                return original(self, path)

            with monkeypatch.context() as patch:
                patch.setattr(Claims, step, removing)
                claims.take(0)
        assert claims.take(1)


@pytest.mark.parametrize("content", ["", '{"pid": 12'])
def test_nothing_waits_for_a_claim_that_a_killed_process_could_not_write(tmp_path: Path, content: str) -> None:
    """Nobody can tell who holds it: it counts for the two seconds that writing it may take."""
    done: set[int] = set()
    with Claims(tmp_path) as claims:
        path = tmp_path / "000000-1"
        path.write_text(content)
        assert not claims.take(0)
        then = time.time() - 2 * TORN
        os.utime(path, (then, then))
        work_through(1, Part(), claims, is_done=done.__contains__, work=done.add)
    assert done == {0}
    assert (tmp_path / "000000-2").exists()


def test_nothing_waits_for_a_killed_process_whose_parent_has_not_asked_for_it(tmp_path: Path) -> None:
    """As in a container whose first process asks for nobody."""
    worker = start(tmp_path, Part(), 1, seconds=60)
    try:
        wait_for(tmp_path, 1, part=1)
        worker.kill()
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
        with Claims(tmp_path / "claims") as claims:
            assert claims.take(0)
    finally:
        worker.wait(60)
