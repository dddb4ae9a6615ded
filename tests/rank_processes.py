"""Runs a function of a test module in W gloo processes: one pool of them for the whole test run, whoever asks.

A process that has loaded torch waits for work until the run of tests ends, and serves one call after another: each call
has a process group of its own, and the environment of the test that asks.
"""

import contextlib
import datetime
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from filelock import FileLock
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

SECONDS_FOR_A_COLLECTIVE = 60
SECONDS_FOR_ALL = 180
SECONDS_TO_START = 120
POOL = "COUNTERPOINT_TEST_RANKS"  # folder of the pool: conftest.py makes it, processes of the run inherit it
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has one way
SEED = torch.initial_seed()  # of a process that has drawn nothing
Result = dict[str, Tensor | str]
STARTED: list[subprocess.Popen[bytes]] = []  # by this process; whoever ends the run ends them


@dataclass(frozen=True)
class RankResult:
    """What the function returned on one rank."""

    tensors: dict[str, Tensor]
    texts: dict[str, str]


def run_on_ranks(
    body: Callable[[], Result], world_size: int, folder: Path, *, seconds: float = SECONDS_FOR_ALL
) -> list[RankResult]:
    """Call ``body`` once in each of ``world_size`` processes that share a process group.

    Args:
        body: a module-level function without arguments; tensors and texts by name.
        world_size: number of processes.
        folder: an empty folder for their files.
        seconds: how long they may take together; they are stopped then, and others take their place.
    """
    call = {"module": body.__module__, "function": body.__name__, "folder": str(folder), "world_size": world_size}
    call |= {"path": sys.path, "environment": dict(os.environ)}
    with _pool() as pool:
        ranks = [_connect(pool, number) for number in range(world_size)]
        try:
            for number, connection in enumerate(ranks):
                connection.sendall(json.dumps({**call, "number": number}).encode() + b"\n")
            _wait(ranks, folder, seconds)
        except BaseException:  # nobody knows what they are doing
            stop_ranks(pool)
            raise
        finally:
            for connection in ranks:
                connection.close()
    return [_read(folder / f"rank-{number}.safetensors") for number in range(world_size)]


@contextlib.contextmanager
def pool_of_ranks() -> Iterator[None]:
    """Within, all who call ``run_on_ranks`` share one pool; at the end it is gone."""
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        os.environ[POOL] = folder
        try:
            yield
        finally:
            del os.environ[POOL]
            stop_ranks(Path(folder))


def stop_ranks(pool: Path) -> None:
    """Kill the processes of a pool, whoever started them."""
    for record in pool.glob("rank-*.json"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(json.loads(record.read_text())["pid"], KILL)
        record.unlink()
    for process in STARTED:
        process.poll()  # takes note of those that ended


@contextlib.contextmanager
def _pool() -> Iterator[Path]:
    """The pool, for this process alone: others wait."""
    pool = Path(os.environ[POOL])
    with FileLock(pool / "lock"):
        yield pool


def _connect(pool: Path, number: int) -> socket.socket:
    """A connection to a rank of the pool, which is started where there is none."""
    record = pool / f"rank-{number}.json"
    if record.exists():
        with contextlib.suppress(ConnectionError):
            return socket.create_connection(("127.0.0.1", json.loads(record.read_text())["port"]))
        record.unlink()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with (pool / f"rank-{number}.txt").open("wb") as said:
        command = [sys.executable, __file__, str(record), str(pool)]
        STARTED.append(subprocess.Popen(command, env=environment, stdout=said, stderr=said))
    deadline = time.monotonic() + SECONDS_TO_START
    while not record.exists():
        assert STARTED[-1].poll() is None, (pool / f"rank-{number}.txt").read_text()[-3000:]
        assert time.monotonic() < deadline, f"rank {number} did not start within {SECONDS_TO_START} s"
        time.sleep(0.02)
    return socket.create_connection(("127.0.0.1", json.loads(record.read_text())["port"]))


def _wait(ranks: list[socket.socket], folder: Path, seconds: float) -> None:
    """Until all have answered well; where one fails, the others wait for it in vain."""
    deadline, waiting = time.monotonic() + seconds, dict(enumerate(ranks))
    failed: list[int] = []
    with selectors.DefaultSelector() as selector:
        for number, connection in waiting.items():
            selector.register(connection, selectors.EVENT_READ, number)
        while len(waiting) > 0 and not failed and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                selector.unregister(key.fileobj)
                answer = waiting.pop(key.data).recv(16)
                failed += [] if answer == b"done" else [key.data]
    said = [(folder / f"rank-{number}.txt").read_text(encoding="utf-8", errors="replace")[-3000:] for number in failed]
    assert not failed, f"ranks {failed} of {len(ranks)} failed:\n" + "\n".join(said)
    assert not waiting, f"ranks {sorted(waiting)} of {len(ranks)} did not end within {seconds} s"


def _read(path: Path) -> RankResult:
    with safe_open(path, framework="pt") as stored:
        return RankResult({name: stored.get_tensor(name) for name in stored.keys()}, stored.metadata() or {})  # noqa: SIM118


# --- in a process of the pool


def _serve(record: Path, pool: Path) -> None:
    """Wait for calls until the pool is gone."""
    torch.set_num_threads(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5.0)
        told = record.with_suffix(".tmp")
        told.write_text(json.dumps({"pid": os.getpid(), "port": server.getsockname()[1]}))
        told.rename(record)
        while pool.exists():
            with contextlib.suppress(TimeoutError):
                connection, _ = server.accept()
                with connection, connection.makefile("rb") as asked:
                    connection.sendall(_answer(json.loads(asked.readline())))


def _answer(call: dict[str, Any]) -> bytes:
    """One rank of one call; what it says goes to a file of the test."""
    os.environ.clear()
    os.environ.update(call["environment"])
    sys.path[:] = call["path"]
    torch.manual_seed(SEED)
    with (Path(call["folder"]) / f"rank-{call['number']}.txt").open("wb") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    try:
        _call(**{name: call[name] for name in ("module", "function", "folder", "world_size", "number")})
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        return b"failed"
    return b"done"


def _call(module: str, function: str, folder: str, world_size: int, number: int) -> None:
    """Join the group, call the function, keep what it returns."""
    path = str(Path(folder) / "store")
    store = dist.FileStore(path, world_size)  # pyright: ignore[reportPrivateImportUsage]
    timeout = datetime.timedelta(seconds=SECONDS_FOR_A_COLLECTIVE)
    dist.init_process_group("gloo", store=store, rank=number, world_size=world_size, timeout=timeout)
    result = getattr(importlib.import_module(module), function)()
    tensors = {name: value.detach().contiguous() for name, value in result.items() if isinstance(value, Tensor)}
    texts = {name: value for name, value in result.items() if isinstance(value, str)}
    save_file(tensors, Path(folder) / f"rank-{number}.safetensors", metadata=texts)
    # Sharded modules are cycles: what they hold of the group must not be freed after it.
    del result, tensors
    gc.collect()
    dist.barrier()  # a rank that left while others still talk to it would break their connection
    dist.destroy_process_group()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), Path(sys.argv[2]))
