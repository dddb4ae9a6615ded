"""Starts the command many times for the price of one import of torch, and lets it die at chosen moments.

Run as a script it is a server: it imports the command once and forks a process per request, which then runs
``counterpoint`` from its first line, as a new process would. ``KillServer`` is its client.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

WATCHED = ("open", "write", "fsync", "rename", "mkdir", "rmdir", "unlink")


@dataclass(frozen=True)
class SaveKill:
    """Die in a save, at one of its system calls.

    Attributes:
        save: which save of this process, counted from 1.
        call: which call of it, counted from 1; half of a write gets through.
    """

    save: int
    call: int


@dataclass(frozen=True)
class Plant:
    """Something goes wrong on this rank in a step.

    Attributes:
        kind: loss or gradient (turns to NaN), view (holds NaN), or memory (runs out).
        call: in which step of this process, counted from 1.
    """

    kind: str
    call: int


@dataclass(frozen=True)
class SignalAt:
    """A signal to itself before a call on files.

    Attributes:
        call: before which one, counted from 1.
        number: of the signal.
        names: of the calls that count; before a rename, what was made has no name of its own yet.
    """

    call: int
    number: int
    names: tuple[str, ...] = ("rename", "replace")


class KillServer:
    """Client of the server; use it as a context.

    Args:
        words: ``all`` imports all verbs beforehand, not only training.
    """

    def __init__(self, *words: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, __file__, *words]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe)

    def __enter__(self) -> "KillServer":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def start(
        self,
        words: Sequence[str],
        files: Path,
        *,
        environment: Mapping[str, str],
        fate: SaveKill | Plant | SignalAt | None = None,
    ) -> int:
        """Run the command in a new process; returns its number.

        Args:
            words: of the command line.
            files: where it notes what it says (``.said``), each step it begins (``.steps``) and its death
                (``.killed``).
            environment: added to the server's own.
            fate: where it kills itself, or what goes wrong in it.
        """
        for suffix in (".said", ".steps", ".killed"):
            files.with_suffix(suffix).write_bytes(b"")
        plan = None if fate is None else {"name": type(fate).__name__, **asdict(fate)}
        request = {"words": list(words), "files": str(files), "environment": dict(environment), "fate": plan}
        return int(self._ask(request))

    def wait(self, pid: int, seconds: float = 60) -> int | None:
        """Exit code of a process (negative: the signal that killed it); None if it still runs after so many seconds."""
        answer = self._ask({"pid": pid, "seconds": seconds})
        return None if answer == "running" else int(answer)

    def _ask(self, request: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer, f"the server ended with code {self._process.wait()}"
        return answer


def rank_environments(world_size: int) -> list[dict[str, str]]:
    """What torchrun would tell each rank."""
    if world_size == 1:
        return [{}]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
        for rank in range(world_size)
    ]


def said_by(files: Sequence[Path]) -> str:
    """What processes printed."""
    return "\n".join(path.with_suffix(".said").read_text() for path in files)


def _serve() -> None:
    """Answer requests until the client closes the pipe."""
    import counterpoint.runs.training  # noqa: F401  # what each process would import anew

    if sys.argv[1:] == ["all"]:
        from campaign.processes import load_all

        load_all()

    codes: dict[int, str] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "pid" in request:
            answer = codes.get(request["pid"]) or _wait(request["pid"], request["seconds"])
            if answer != "running":
                codes[request["pid"]] = answer
        else:
            pid = os.fork()
            if pid == 0:
                _run(**request)
            answer = str(pid)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


def _wait(pid: int, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return str(os.waitstatus_to_exitcode(status))
        if time.monotonic() > deadline:
            return "running"
        time.sleep(0.002)


def _run(words: list[str], files: str, environment: dict[str, str], fate: dict[str, Any] | None) -> None:
    """The forked process: the command, with its steps noted, and its own death prepared."""
    from counterpoint.cli.main import main

    said = os.open(f"{files}.said", os.O_WRONLY | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.environ.update(environment)
    _note_steps(Path(f"{files}.steps"))
    name = fate.pop("name") if fate is not None else None
    if fate is not None and name == "SaveKill":
        _die_in_save(SaveKill(**fate), Path(f"{files}.killed"))
    if fate is not None and name == "Plant":
        _go_wrong(Plant(**fate))
    if fate is not None and name == "SignalAt":
        from campaign.calls import signal_at

        signal_at(fate["call"], signal.Signals(fate["number"]), names=fate["names"])()
    code = 70
    try:
        code = main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _note_steps(path: Path) -> None:
    """Write a byte before each step."""
    from counterpoint.engine import loop

    original = loop.take_step

    def take_step(*args: Any, **options: Any) -> Any:
        with path.open("ab") as stream:
            stream.write(b".")
        return original(*args, **options)

    loop.take_step = take_step


def _go_wrong(plant: Plant) -> None:
    """Let a step's loss, gradient, views or memory fail."""
    import torch

    from counterpoint.engine import step

    original, calls = step._backward, [0]

    def backward(job: Any, batch: Any, views: Any, *further: Any) -> Any:
        calls[0] += 1
        if calls[0] != plant.call:
            return original(job, batch, views, *further)
        if plant.kind == "memory":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nand more")
        if plant.kind == "view":
            views[0][2] = torch.nan
        if plant.kind == "loss":
            job.method.register_forward_hook(lambda module, given, loss: loss * torch.nan)
        if plant.kind == "gradient":
            weight = next(p for name, p in job.method.named_parameters() if name.endswith("projector.0.weight"))
            # Finite, with an infinite slope times zero.
            job.method.register_forward_hook(lambda module, given, loss: loss + torch.sqrt((weight.sum() * 0).abs()))
        return original(job, batch, views, *further)

    step._backward = backward


def _die_in_save(kill: SaveKill, note: Path) -> None:
    """Count the system calls of the chosen save, and die at the chosen one."""
    from counterpoint.engine import loop

    save, saves, calls = loop.save_checkpoint, [0], [0]
    originals = {name: getattr(os, name) for name in WATCHED}

    def die(name: str) -> None:
        handle = originals["open"](note, os.O_WRONLY)
        originals["write"](handle, f"save {kill.save} call {calls[0]} {name}".encode())
        os.kill(os.getpid(), signal.SIGKILL)

    def watched(name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] == kill.call:
                if name == "write":
                    originals[name](args[0], bytes(args[1][: len(args[1]) // 2]))
                die(name)
            return originals[name](*args, **options)

        return call

    def save_checkpoint(*args: Any, **options: Any) -> Any:
        saves[0] += 1
        if saves[0] != kill.save:
            return save(*args, **options)
        for name in WATCHED:
            setattr(os, name, watched(name))
        save(*args, **options)
        die("end")  # it had fewer calls than chosen

    loop.save_checkpoint = save_checkpoint


if __name__ == "__main__":
    _serve()
