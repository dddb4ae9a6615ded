"""What a process does at its calls: it kills or stops itself, or ends as soon as it begins to run foreign code."""

import os
import signal
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from campaign.oracle import judge
from campaign.processes import Process, act_on
from system_calls import CALLS, READ, intercept

EXECUTED = 86  # exit code of a process that was about to run code
FORBIDDEN = ("pickle.", "os.system", "os.exec", "os.posix_spawn", "subprocess.", "socket.connect")


def forbid_code() -> None:
    """End this process as soon as it begins to run what stands in a file."""

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event.startswith(FORBIDDEN):
            sys.stderr.write(f"{event} {args}\n")
            sys.stderr.flush()
            os._exit(EXECUTED)

    sys.addaudithook(hook)


def signal_at(
    call: int, number: signal.Signals, pid: int | None = None, *, names: Collection[str] = (*CALLS, READ)
) -> Callable[[], None]:
    """Prepare a process to send a signal before one of its calls; when it dies, half of a write gets through.

    Args:
        call: which one, counted from 1.
        number: SIGKILL, SIGTERM or SIGSTOP.
        pid: whom it is sent to; None: the process itself.
        names: of the calls that count.
    """
    calls = [0]

    def handle(name: str, original: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        calls[0] += name in names
        if name in names and calls[0] == call:
            if name == "write" and number == signal.SIGKILL and pid is None:
                original(args[0], bytes(args[1][: len(args[1]) // 2]))
            os.kill(pid or os.getpid(), number)
        return None if name == "fsync" else original(*args, **options)  # fsync is slow

    return lambda: intercept(handle)


def count_calls() -> list[int]:
    """Count the calls on files of this process from now on; the list holds their number so far."""
    calls = [0]

    def handle(name: str, original: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        calls[0] += 1
        return original(*args, **options)

    intercept(handle)
    return calls


def num_calls(words: list[str], files: Path, *, may_refuse: bool = False) -> int:
    """Calls on files that a command makes until it ends; it is run for that.

    Args:
        words: of the command.
        files: what it prints goes beside this path.
        may_refuse: whether it may end with another code than 0.
    """
    note = files.with_name(f"{files.name}-calls")

    def act() -> int:
        calls = count_calls()
        code = act_on(words)
        note.write_text(str(calls[0]))
        return code

    outcome = Process(act, files).wait()
    assert outcome.code == 0 or (may_refuse and not judge(outcome).fault), outcome
    return int(note.read_text())
