"""A pytest plugin: what Windows has not is taken away from this process, and our own code thinks it runs there.

``python -m pytest -p windows_like tests/losses``. Libraries are loaded before, as they have branches of their own.
"""

import builtins
import ctypes
import importlib
import io
import os
import signal
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

LIBRARIES = (
    "torch",
    "torch.distributed.fsdp",
    "numpy",
    "scipy.optimize",
    "sklearn.linear_model",
    "PIL.Image",
    "pandas",
)
MODULES = ("fcntl", "resource", "termios", "pwd", "grp", "triton")
SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGKILL", "SIGALRM", "SIGPIPE")
# Not uname: ctypes asks it where the C library is.
CALLS = (
    "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "fork", "killpg", "mkfifo", "pread", "preadv", "pwrite", "pwritev",
    "register_at_fork", "sched_getaffinity", "statvfs", "sysconf", "wait4", "WNOHANG",
)  # fmt: skip
LINUX = ("/proc", "/sys")
OF_LIBRARIES = "/proc/self/maps"  # where threadpoolctl looks for libraries on Linux
TIMEOUT, MEMORY = 258, (64, 8 << 30, 4 << 30)  # of _winapi; of MEMORYSTATUSEX: size, installed, available


def take_away() -> None:
    """Remove modules, calls, signals and files that Windows has not."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for name in MODULES:
        sys.modules[name] = None  # pyright: ignore[reportArgumentType]
    for owner, names in ((signal, SIGNALS), (os, CALLS)):
        for name in names:
            delattr(owner, name)
    opened, linked, killed = io.open, os.readlink, os.kill

    def refuse(path: Any) -> None:
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if isinstance(name, str) and name.startswith(LINUX) and name != OF_LIBRARIES:
            raise FileNotFoundError(path)

    def open_file(path: Any, *args: Any, **options: Any) -> Any:
        refuse(path)
        return opened(path, *args, **options)

    def read_link(path: Any, **options: Any) -> Any:
        refuse(path)
        return linked(path, **options)

    def kill(pid: int, number: int) -> None:
        caller = sys._getframe(1).f_globals["__name__"]  # filelock has a branch of its own for Windows
        assert number or not caller.startswith("counterpoint"), "on Windows signal 0 ends the process"
        killed(pid, number)

    io.open = builtins.open = open_file
    os.readlink, os.kill = read_link, kill


def pretend() -> None:
    """Let the one module that asks for the system hear Windows, with as much of its calls as that module uses."""
    from counterpoint.core import operating_system  # deferred: what it needs is taken away first

    def open_process(rights: int, inherits: bool, pid: int) -> int:
        if pid != os.getpid():
            raise OSError(87, "The parameter is incorrect")
        return pid

    def memory_status(numbers: Any) -> None:
        assert (ctypes.sizeof(numbers), numbers[0]) == (64, 64)
        numbers[:3] = MEMORY

    windows: Any = SimpleNamespace(
        OpenProcess=open_process, WaitForSingleObject=lambda handle, wait: TIMEOUT, WAIT_TIMEOUT=TIMEOUT,
        CloseHandle=lambda handle: None,
    )  # fmt: skip
    named: ModuleType | Any = operating_system
    named.sys = SimpleNamespace(platform="win32")
    sys.modules["_winapi"] = windows
    ctypes.windll = SimpleNamespace(kernel32=SimpleNamespace(GlobalMemoryStatusEx=memory_status))  # pyright: ignore


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """As a plugin, before our modules are loaded; importing this module changes nothing."""
    imitate()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the first case of each test of the tier asked for: cases seldom differ in what they ask of a system."""
    firsts = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
    items[:] = [item for item in items if firsts[item.nodeid.partition("[")[0]] is item]


def imitate() -> None:
    """Make this process one on Windows, as far as our own code can see."""
    take_away()
    pretend()
