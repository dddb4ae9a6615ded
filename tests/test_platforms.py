"""Nothing of one system alone is needed: Windows is imitated, and other systems and versions are refused."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "counterpoint"
LIMITED = {"fcntl", "resource", "termios", "pwd", "grp", "msvcrt", "_winapi", "winreg"}  # modules that a system lacks
LIMITED |= {f"os.{name}" for name in (
    "O_BINARY", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "chown", "fchmod", "fork", "getpgid", "getuid",
    "kill", "killpg", "mkfifo", "posix_fadvise", "pread", "preadv", "pwrite", "pwritev", "register_at_fork",
    "sched_getaffinity", "setsid", "statvfs", "sysconf", "uname", "wait4",
)}  # fmt: skip
LIMITED |= {f"signal.{name}" for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGUSR1", "SIGUSR2", "signal")}
# One module for each concern: files, processes and memory; locks; signals; threads.
ALLOWED = {
    "core/operating_system.py", "core/run_lock.py", "engine/stop_signals.py", "core/process_setup.py",
    "core/thread_parts.py",
}  # fmt: skip
# Of losses and theory those that start threads, look at the processor or refuse: others do nothing that a system does.
OF_LOSSES = ("infonce", "supervised_sums", "thread_bits", "hostile_tensors", "loss_call", "alpha_cl")
OF_THEORY = ("minority_collapse", "phase", "rebalancing", "correlation_solver")
WHOLE = ["tests/diagnostics", "tests/evaluation", *(f"tests/losses/test_{name}.py" for name in OF_LOSSES),
         *(f"tests/theory/test_{name}.py" for name in OF_THEORY)]  # fmt: skip
# Locks, text and the life of processes as Windows has them, in a process without its calls of Linux.
LOCKED = r"""
import os, pathlib, signal, sys
import windows_like
windows_like.imitate()
import numpy as np
import torch
import counterpoint as cp
import counterpoint.losses
from counterpoint.theory import optimal_geometry
from counterpoint.core import operating_system as system
from counterpoint.core.files import dead_siblings, temporary_sibling, write_text
from counterpoint.core.run_lock import LOCK, is_locked, lock_run
from counterpoint.engine.stop_signals import SIGNALS
from counterpoint.core.stored_rows import StoredRows, new_array
folder = pathlib.Path(sys.argv[1])
assert not is_locked(folder)
with lock_run(folder) as note:
    assert note is None and is_locked(folder)
    try:
        with lock_run(folder):
            raise AssertionError("two hold it")
    except cp.RunError as error:
        assert "is in use by another process" in str(error)
    assert is_locked(folder)  # asking has not taken it away
assert not (folder / LOCK).exists() and not is_locked(folder)
write_text(folder / "a.txt", "one\ntwo\n")
assert (folder / "a.txt").read_bytes() == b"one\ntwo\n"
living, dead = (temporary_sibling(folder / "a.txt", ".tmp") for _ in range(2))
dead = dead.with_name(dead.name.replace(f"-{os.getpid()}-", "-4194305-"))
living.touch(), dead.touch()
assert dead_siblings(folder / "a.txt", ".tmp") == [dead]
(folder / "link").symlink_to(folder / "a.txt")
try:
    system.open_unlinked(folder / "link", os.O_WRONLY)
    raise AssertionError("a link was followed")
except OSError:
    pass
assert (system.installed_memory(), system.available_memory()) == windows_like.MEMORY[1:]
assert system.peak_memory() is None
assert [each.name for each in SIGNALS] == ["SIGINT", "SIGTERM"]
rows = np.arange(15.0, dtype=np.float32).reshape(5, 3)
with new_array(folder / "rows.npy", rows.shape, rows.dtype) as write:
    write(2, rows[2:]), write(0, rows[:2])
assert StoredRows(folder / "rows.npy").take(torch.tensor([4, 1]))[:].tolist() == rows[[4, 1]].tolist()
points = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
cp.losses.InfoNCE()(points, points + 0.1).backward()
found = cp.diagnose(points.detach().numpy(), labels=np.arange(40) % 4)
assert points.grad.isfinite().all() and found.findings
assert optimal_geometry([0.5, 0.5]).gram is not None
"""
OTHERS = {
    "system": ("sitecustomize.py", "import sys\nsys.platform = 'sunos5'\n", "sunos5"),
    "python": ("sitecustomize.py", "import sys\nsys.version_info = (3, 10, 9, 'final', 0)\n", "Python 3.11"),
    "torch": ("torch-2.5.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.5.1\n", "torch 2.6"),
}


def limited_names(source: str) -> set[str]:
    """What a module names of which a system has none, but for ``hasattr`` and ``getattr``, which ask for it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.add(f"{node.value.id}.{node.attr}")
    return found & LIMITED


def child(
    words: list[str], folder: Path, *, path: tuple[Path, ...] = (), seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run this Python in a folder, with further places for modules."""
    places = [*path, ROOT / "src", ROOT / "tests"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False,
        timeout=seconds,
    )  # fmt: skip


def test_what_a_system_lacks_is_named_in_the_modules_for_it_alone() -> None:
    named = {
        path.relative_to(PACKAGE).as_posix(): limited_names(path.read_text(encoding="utf-8"))
        for path in PACKAGE.rglob("*.py")
    }
    assert {path for path, names in named.items() if names} <= ALLOWED
    assert limited_names("import os, fcntl\nos.fork(), os.getpid()") == {"fcntl", "os.fork"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows itself is no imitation")
@pytest.mark.thorough
def test_locks_text_and_processes_do_without_the_calls_of_linux(tmp_path: Path) -> None:
    finished = child(["-W", "ignore", "-c", LOCKED, str(tmp_path)], tmp_path)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows itself is no imitation")
@pytest.mark.thorough
def test_losses_theory_diagnosis_and_evaluation_do_without_the_calls_of_linux() -> None:
    options = ["-p", "windows_like", "-p", "no:cacheprovider", "-m", "not slow and not thorough", "-n", "0"]
    finished = child(["-m", "pytest", *options, *WHOLE], ROOT, seconds=1800)
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]


@pytest.mark.parametrize("what", OTHERS)
def test_another_system_or_version_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    name, content, word = OTHERS[what]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content, encoding="utf-8")
    started = child(["-m", "counterpoint", "--help"], ROOT, path=(tmp_path,))
    assert (started.returncode, started.stdout, started.stderr.count("\n")) == (2, "", 1)
    assert started.stderr.startswith("counterpoint: error: ")
    assert word in started.stderr
    imported = child(["-c", "import counterpoint"], ROOT, path=(tmp_path,))
    assert imported.returncode == 1
    assert imported.stderr.splitlines()[-1].startswith("ImportError: Counterpoint ")
