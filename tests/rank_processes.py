"""Runs a function of a test module in W gloo processes and brings back what it returned on every rank."""

import datetime
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

SECONDS_FOR_A_COLLECTIVE = 60
SECONDS_FOR_ALL = 180
Result = dict[str, Tensor | str]


@dataclass(frozen=True)
class RankResult:
    """What the function returned on one rank."""

    tensors: dict[str, Tensor]
    texts: dict[str, str]


def run_on_ranks(
    body: Callable[[], Result], world_size: int, folder: Path, *, seconds: float = SECONDS_FOR_ALL
) -> list[RankResult]:
    """Call ``body`` once in each of ``world_size`` new processes that share a process group.

    Args:
        body: a module-level function without arguments; tensors and texts by name.
        world_size: number of processes.
        folder: an empty folder for their files.
        seconds: how long they may take together; what is left of them then is killed.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, body.__module__, body.__name__, str(folder), str(world_size)]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(world_size):
            with (folder / f"rank-{number}.txt").open("wb") as said:
                command = [*words, str(number)]
                processes.append(subprocess.Popen(command, env=environment, stdout=said, stderr=said))
        _wait(processes, folder, seconds)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [_read(folder / f"rank-{number}.safetensors") for number in range(world_size)]


def _wait(processes: list[subprocess.Popen[bytes]], folder: Path, seconds: float) -> None:
    """Until all have ended well; where one fails, the others wait for it in vain."""
    deadline = time.monotonic() + seconds
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        if any(process.poll() for process in processes):
            break
        time.sleep(0.02)
    failed = [number for number, process in enumerate(processes) if process.poll()]
    said = [(folder / f"rank-{number}.txt").read_text(encoding="utf-8", errors="replace")[-3000:] for number in failed]
    assert not failed, f"ranks {failed} of {len(processes)} failed:\n" + "\n".join(said)
    unfinished = [number for number, process in enumerate(processes) if process.poll() is None]
    assert not unfinished, f"ranks {unfinished} of {len(processes)} did not end within {seconds} s"


def _read(path: Path) -> RankResult:
    with safe_open(path, framework="pt") as stored:
        return RankResult({name: stored.get_tensor(name) for name in stored.keys()}, stored.metadata() or {})  # noqa: SIM118


def _main(module: str, function: str, folder: str, world_size: str, number: str) -> None:
    """One rank: join the group, call the function, keep what it returns."""
    torch.set_num_threads(1)
    store = (Path(folder) / "store").resolve().as_uri()
    timeout = datetime.timedelta(seconds=SECONDS_FOR_A_COLLECTIVE)
    dist.init_process_group("gloo", init_method=store, rank=int(number), world_size=int(world_size), timeout=timeout)
    result = getattr(importlib.import_module(module), function)()
    tensors = {name: value.detach().contiguous() for name, value in result.items() if isinstance(value, Tensor)}
    texts = {name: value for name, value in result.items() if isinstance(value, str)}
    save_file(tensors, Path(folder) / f"rank-{number}.safetensors", metadata=texts)
    dist.barrier()  # a rank that left while others still talk to it would break their connection
    os._exit(0)  # one time in 50 gloo's own threads are torn down in an order that aborts the process


if __name__ == "__main__":
    _main(*sys.argv[1:])
