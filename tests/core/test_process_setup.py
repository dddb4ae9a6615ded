"""How threads wait, what becomes of freed memory, how many threads fit the container, and the word of the user."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from counterpoint.core import process_setup
from counterpoint.core.process_setup import NUMBERS, SWITCH, WAITING, at_work, processors, threads_to_take

VARIABLES = (SWITCH, *WAITING, *NUMBERS)
# Processor time that passes while the main thread sleeps is that of threads that spin.
SPINS = """
import json, sys, time
{first}
import counterpoint
import torch
from counterpoint.core.process_setup import thread_remark, thread_waiting
from counterpoint.core.torch_state import usual_modes
torch.set_num_threads(2)
values = torch.ones(1 << 20)
def spun():
    found = []
    for _ in range(9):
        (values * 2).sum()
        begin = time.process_time()
        time.sleep(0.01)
        found.append(time.process_time() - begin)
    return sorted(found)
before = spun()
with usual_modes():
    with usual_modes():
        pass
    within, words, remark = spun(), thread_waiting(), thread_remark(2)
    again = thread_remark(2)
print(json.dumps([before, within, spun(), words, remark, again]))
"""
GNU = pytest.mark.skipif(sys.platform != "linux", reason="torch has GNU's OpenMP, and the C library is GNU's, on Linux")


def spun(first: str = "", **variables: str) -> Any:
    """Seconds that threads spun before, within and after work, how they wait, and what is said of it, twice."""
    own = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    words = [sys.executable, "-c", SPINS.format(first=first)]
    done = subprocess.run(words, env={**own, **variables}, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@GNU
def test_threads_wait_briefly_where_counterpoint_came_first() -> None:
    before, within, after, words, remark, _ = spun()
    assert max(before[4], within[4], after[4]) < 5e-4
    assert (words, remark) == ("OMP_WAIT_POLICY=PASSIVE", None)


@GNU
def test_where_torch_came_first_they_wait_briefly_while_work_is_done() -> None:
    before, within, after, words, remark, again = spun("import torch")
    assert within[4] < 5e-4
    assert min(before[-1], after[-1]) > 1e-3
    assert "torch was loaded before counterpoint" in words
    assert words in remark
    assert SWITCH in remark
    assert again is None


@GNU
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({SWITCH: "0"}, f"as they were ({SWITCH}=0)"),
        ({"GOMP_SPINCOUNT": "300000"}, "GOMP_SPINCOUNT=300000"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "OMP_WAIT_POLICY=ACTIVE"),
    ],
)
@pytest.mark.parametrize("first", ["", "import torch"])
@pytest.mark.sampled(3)
@pytest.mark.thorough
def test_who_wants_threads_to_spin_has_them_spin(first: str, variables: dict[str, str], words: str) -> None:
    _, within, _, found, remark, _ = spun(first, **variables)
    assert within[-1] > 1e-3
    assert (found, remark) == (words, None)


WORKERS = """
import torch
import counterpoint
from counterpoint.core.torch_state import usual_modes
from test_process_setup import AtWork
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(AtWork(), batch_size=None, num_workers=2, multiprocessing_context="{how}")
    with usual_modes():
        (torch.ones(1 << 20) * 2).sum()
        print([tuple(found) for found in loader])
"""


class AtWork:
    """A user's data set that computes with ours: threads, and whether they spin."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, number: int) -> tuple[int, bool]:
        import time  # deferred: of another process

        import torch

        from counterpoint.core.torch_state import usual_modes

        with usual_modes():
            (torch.ones(1 << 20) * 2).sum()
            begin = time.process_time()
            time.sleep(0.01)
            return torch.get_num_threads(), time.process_time() - begin > 2e-3


@pytest.mark.parametrize("how", ["fork", pytest.param("spawn", marks=pytest.mark.thorough)])
def test_workers_of_a_data_loader_have_one_thread_that_does_not_spin(how: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WORKERS.format(how=how), encoding="utf-8")
    own = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    own["PYTHONPATH"] = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    done = subprocess.run([sys.executable, script], env=own, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[(1, False), (1, False)]"


def test_llvms_runtime_is_told_while_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """What macOS and Windows have, by the name of its call."""
    told = [200]
    runtime = SimpleNamespace(kmp_get_blocktime=lambda: told[-1], kmp_set_blocktime=told.append)
    monkeypatch.setattr(process_setup, "_openmp_libraries", lambda: [runtime])
    monkeypatch.setattr(process_setup._AtWork, "is_late", True)
    monkeypatch.delenv(SWITCH, raising=False)
    with at_work(), at_work():
        assert told == [200, 0]
    assert told == [200, 0, 200]


# --- freed memory stays with the process, as the count of page faults shows

FAULTS = """
import resource, sys, torch
from counterpoint.core.process_setup import at_work
def step():
    return float(torch.zeros(1 << 24).sum())  # 64 MiB: above what glibc would keep by itself
def faults():
    for _ in range(20):  # until the heap has found its shape
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20
at_rest = resident()
with at_work():
    print(faults(), resident() - at_rest)
print(resident() - at_rest)
"""


def measured(variables: dict[str, str]) -> tuple[int, ...]:
    """Page faults of steps at work, and MiB above those at rest at work and afterwards."""
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=True, text=True)
    return tuple(map(int, done.stdout.split()))


@GNU
@pytest.mark.thorough
def test_steps_at_work_find_the_pages_of_those_before_and_give_them_back() -> None:
    kept, held, left = measured({})
    usual, _, _ = measured({"COUNTERPOINT_TUNE": "0"})
    assert kept * 20 < usual
    assert held >= 64
    assert left < 16


# --- the number of threads


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 64 processors without limits."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(process_setup, "CGROUPS", tmp_path)
    monkeypatch.setattr(process_setup, "OWN_GROUPS", tmp_path / "own")
    return tmp_path


def write(groups: Path, own: str, **files: str) -> None:
    """Which group this process is in, and files of groups, whose folders' names end at `__`."""
    (groups / "own").write_text(own, encoding="utf-8")
    for name, text in files.items():
        path = groups.joinpath(*name.replace("_dot_", ".").split("__"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


V1 = {"cpu__cpu_dot_cfs_quota_us": "350000\n", "cpu__cpu_dot_cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpu_dot_max": "200000 100000\n"}, 2),
        ("0::/\n", {"cpu_dot_max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu_dot_max": "max 100000\n"}, 64),
        ("0::/a/b\n", {"a__cpu_dot_max": "800000 100000\n", "a__b__cpu_dot_max": "max 100000\n"}, 8),
        ("3:memory:/x\n2:cpu,cpuacct:/hosts/name\n0::/\n", V1, 4),
        ("2:cpu:/\n", {"cpu__cpu_dot_cfs_quota_us": "-1\n", "cpu__cpu_dot_cfs_period_us": "100000\n"}, 64),
        ("0::/\n", {"cpu_dot_max": "damaged"}, 64),
        ("", {}, 64),
    ],
)
def test_a_containers_share_of_processors_is_read(groups: Path, own: str, files: dict[str, str], expected: int) -> None:
    write(groups, own, **files)
    assert processors() == expected
    assert threads_to_take(64) == threads_to_take(64) == expected


def test_who_names_a_number_of_threads_has_it(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert threads_to_take(64) == 64  # no Linux: nothing to read
    write(groups, "0::/\n", cpu_dot_max="200000 100000\n")
    assert [threads_to_take(number) for number in (64, 32, 48, 3, 1)] == [2, 2, 48, 3, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert threads_to_take(64) == 64
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setenv(SWITCH, "0")
    assert threads_to_take(64) == 64
