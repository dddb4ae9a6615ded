"""Time in turns, ratios pair by pair, and peak memory above what stood there before.

Implementations take turns within each round and take turns in random order, so that a busy machine slows them
alike; a ratio is taken within a round, and the median of those ratios is reported with its quartiles.
"""

import gc
import json
import math
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from problems import Problem

Step = Callable[[], None]
Clock = Callable[[Step, int], float]
MIB = 2**20
FLUSHED_BYTES = 256 * MIB  # more than any GPU's second-level cache
LONG_ROUND = 0.5  # seconds; longer rounds are repeated less often
SLOW_CALL = 5.0  # seconds; who takes longer is not warmed up twice and sits out all but the first rounds
SLOW_ROUNDS = 3
CHILD = Path(__file__).with_name("extra_memory.py")


@dataclass(frozen=True)
class Quartiles:
    """Lower quartile, median and upper quartile."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Plan:
    """Numbers of calls before measuring and of rounds (short and long), and the least seconds of a sample."""

    warm_ups: int
    short_rounds: int
    long_rounds: int
    sample_seconds: float


@dataclass(frozen=True)
class FreshCall:
    """One call in a process of its own: extra peak in MiB, seconds, and how the peak was read."""

    extra_mib: float
    seconds: float
    method: str


def quartiles(values: Sequence[float]) -> Quartiles:
    """Quartiles by linear interpolation."""
    points = torch.tensor(values, dtype=torch.float64).quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64))
    return Quartiles(*points.tolist())


def paired_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Quartiles:
    """Quartiles of the ratios taken round by round, over the rounds both took part in (the first ones)."""
    return quartiles([a / b for a, b in zip(numerators, denominators, strict=False)])


def wall_seconds(step: Step, repeats: int) -> float:
    """Mean wall-clock seconds of one call."""
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


class EventClock:
    """Mean seconds of one call between CUDA events, with a cold second-level cache before each sample."""

    def __init__(self) -> None:
        self._flushed = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")

    def __call__(self, step: Step, repeats: int) -> float:
        """Measure."""
        total = 0.0
        for _ in range(repeats):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            self._flushed.zero_()
            start.record()
            step()
            end.record()
            torch.cuda.synchronize()
            total += start.elapsed_time(end) / 1000
        return total / repeats


def take_turns(steps: Mapping[str, Step], clock: Clock, plan: Plan) -> dict[str, list[float]]:
    """Seconds of each step in each round, in random order, after warm-ups; slow steps are in the first rounds only."""
    once = {name: clock(step, 1) for name, step in steps.items()}  # the first warm-up
    slow = {name for name, seconds in once.items() if seconds > SLOW_CALL}
    for _ in range(plan.warm_ups - 1):
        once |= {name: clock(step, 1) for name, step in steps.items() if name not in slow}
    repeats = {name: max(1, math.ceil(plan.sample_seconds / seconds)) for name, seconds in once.items()}
    rounds = plan.long_rounds if sum(once.values()) > LONG_ROUND else plan.short_rounds
    names, seconds, order = list(steps), {name: [] for name in steps}, random.Random(0)
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            taking = [name for name in names if number < SLOW_ROUNDS or name not in slow]
            for name in order.sample(taking, len(taking)):
                if name not in slow:
                    clock(steps[name], 1)  # what the one before left is not its affair: caches, pools, spinning threads
                seconds[name].append(clock(steps[name], repeats[name]))
    finally:
        gc.enable()
    return seconds


def extra_on_gpu(step: Step) -> float:
    """MiB allocated at the peak of a call above what was allocated before it.

    Gradients count if there are none before the call.
    """
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / MIB


def extra_of_call(step: Step) -> FreshCall:
    """Peak resident set of one call above that before it, in this process, which should be fresh."""
    gc.collect()
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # sets VmHWM back to VmRSS
        method, read, unit = "VmHWM set back", lambda: _status_kib("VmHWM"), 1024
        before = _status_kib("VmRSS")
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        method, read = "growth of ru_maxrss", lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before = read()
    start = time.perf_counter()
    step()
    seconds = time.perf_counter() - start
    return FreshCall(max(0, read() - before) * unit / MIB, seconds, method)


def call_in_fresh_process(problem: Problem, provider: str) -> FreshCall:
    """Run ``extra_memory.py`` for one implementation.

    Raises:
        RuntimeError: the process failed; with the last line it wrote, or the signal that ended it.
    """
    words = [problem.kind, problem.num_pairs, problem.num_features, problem.temperature, torch.get_num_threads()]
    command = [sys.executable, str(CHILD), provider, *map(str, words)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        last = (finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"])[-1]
        raise RuntimeError(f"fresh process failed: {last}")
    return FreshCall(**json.loads(finished.stdout.splitlines()[-1]))


def free_bytes(device: str) -> float:
    """Memory that can be had without swapping; infinite if the system does not say."""
    if device == "cuda":
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()  # torch keeps it for its next tensors
        return float(torch.cuda.mem_get_info()[0] + unused)
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return math.inf
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))


def _status_kib(field: str) -> int:
    """A figure of this process in KiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
