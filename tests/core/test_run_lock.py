"""One process per run folder: a second is refused, a dead one's lock is taken over, nothing is left behind."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from counterpoint.core.errors import RunError
from counterpoint.core.run_lock import LOCK, is_locked, lock_run

HOLD = """
import sys
from pathlib import Path
from counterpoint.core.run_lock import lock_run
with lock_run(Path(sys.argv[1])) as note:
    print(note, flush=True)
    sys.stdin.readline()
"""
HOLD_WITH_A_WORKER = """
import multiprocessing, os, sys, time
from pathlib import Path
from counterpoint.core.run_lock import lock_run
def work():
    print(os.getpid(), flush=True)  # what happens at a fork is over
    time.sleep(60)
with lock_run(Path(sys.argv[1])):
    multiprocessing.get_context("fork").Process(target=work).start()
    time.sleep(60)
"""
FORK_AND_END = """
import os, sys
from pathlib import Path
from counterpoint.core.run_lock import LOCK, is_locked, lock_run
folder = Path(sys.argv[1])
with lock_run(folder):
    if os.fork() == 0:
        sys.exit(0)  # by way of the end of the block
    os.wait()
    print((folder / LOCK).exists(), is_locked(folder))
"""


@contextmanager
def held_elsewhere(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the lock while the block runs."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "None\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_lock_is_there_while_it_is_held_and_gone_after(tmp_path: Path) -> None:
    with lock_run(tmp_path) as note:
        assert note is None
        values = json.loads((tmp_path / LOCK).read_text())
        assert values["pid"] == os.getpid()
        assert values.keys() == {"pid", "host", "since"}
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError), lock_run(tmp_path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_second_process_is_refused_by_number_and_time(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path) as process:
        before = (tmp_path / LOCK).read_bytes()
        with pytest.raises(RunError) as caught, lock_run(tmp_path):
            pass
        assert f"{tmp_path} is in use by process {process.pid} on {socket.gethostname()} (since 2" in str(caught.value)
        assert "--out" in str(caught.value)
        assert (tmp_path / LOCK).read_bytes() == before


def test_the_lock_of_a_killed_process_is_taken_over_with_a_note(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert (tmp_path / LOCK).exists()
        with lock_run(tmp_path) as note:
            assert note is not None
            assert note.startswith(f"took over the lock of process {process.pid} on ")
    with lock_run(tmp_path) as note:
        assert note is None


def test_a_worker_that_outlives_a_killed_run_does_not_keep_it_locked(tmp_path: Path) -> None:
    """Workers are forked with the run's open files; one that hangs must not make the run count as going on."""
    command = [sys.executable, "-c", HOLD_WITH_A_WORKER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        try:
            with pytest.raises(RunError), lock_run(tmp_path):  # the worker's copy is closed, the lock is not given up
                pass
            process.kill()
            assert process.wait() == -signal.SIGKILL
            os.kill(worker, 0)  # it lives
            with lock_run(tmp_path) as note:
                assert "took over" in str(note)
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_fork_that_ends_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", FORK_AND_END, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert said.stdout == "True True\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', "null"])
def test_a_lock_that_says_nothing_is_taken(tmp_path: Path, content: str) -> None:
    (tmp_path / LOCK).write_text(content)
    with lock_run(tmp_path) as note:
        assert note is None


def test_where_no_lock_can_be_written_the_reason_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot lock .*: No such file or directory"), lock_run(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()  # it is not made again


@pytest.mark.filterwarnings("ignore:flock not supported")
def test_where_the_file_system_has_no_locks_a_file_stands_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock_run(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(RunError, match="is in use by another process"), lock_run(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []
