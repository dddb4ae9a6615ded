"""Embed pictures in 1, 2 and 3 processes, kill two of them on the way, start them again, and compare the tables.

    python benchmarks/killed_embedding.py                      200,000 pictures: a quarter of an hour on 2 idle cores
    python benchmarks/killed_embedding.py --pictures 6000      a minute

Each table must be the same bytes every time, with each row once, and what was
finished before a kill must not be made again. Pictures are drawn as those of ``patterns-rendered``.
"""

# N pictures

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from counterpoint.core.files import sha256_of
from counterpoint.core.ranks import WorkPart
from counterpoint.data.sets.patterns import PATTERNS, SIDE, draw_pictures
from counterpoint.evaluation.shard_files import MANIFEST
from counterpoint.evaluation.vector_table import read_table

TRAINED_ON, SECONDS, RENDERED = 2048, 7200, 64
HEADER = "| processes | killed at shards | seconds | pictures/s | kept | made twice | rows | SHA-256 of the table |"


@dataclass(frozen=True)
class Plan:
    """Pictures to embed, and the rows of a shard."""

    folder: Path
    num_pictures: int
    shard_rows: int

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return -(-self.num_pictures // self.shard_rows)


@dataclass
class Outcome:
    """Figures of one embedding by some processes."""

    num_processes: int
    killed_at: list[int] = field(default_factory=list)
    seconds: float = 0.0
    num_kept: int = 0
    num_twice: int = 0
    num_rows: int = 0
    sha256: str = ""


def render(plan: Plan) -> None:
    """Write patterns, with their numbers as labels."""
    images = np.empty((plan.num_pictures, SIDE, SIDE), np.uint8)
    for numbers in torch.arange(plan.num_pictures).split(RENDERED):
        images[numbers] = draw_pictures(numbers)[:, 0].numpy()
    labels = np.arange(plan.num_pictures) % len(PATTERNS)
    np.savez(plan.folder / "pictures.npz", images=images, labels=labels)
    few = np.linspace(0, plan.num_pictures - 1, min(TRAINED_ON, plan.num_pictures)).astype(np.int64)
    np.savez(plan.folder / "few.npz", images=images[few], labels=labels[few])


def counterpoint(plan: Plan, words: str) -> subprocess.Popen[bytes]:
    """Start the command in a process of its own with one thread; its output is added to a file."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (plan.folder / "said").open("ab") as said:
        command = [sys.executable, "-m", "counterpoint", *words.split()]
        return subprocess.Popen(command, cwd=plan.folder, env=environment, stdout=said, stderr=said)


def run(plan: Plan, words: str) -> None:
    """Run the command, which must succeed."""
    process = counterpoint(plan, words)
    if process.wait(SECONDS):
        raise SystemExit(f"counterpoint {words} failed:\n{(plan.folder / 'said').read_text()}")


def finished(out: Path) -> dict[str, int]:
    """Shards that are done, with the time of their record."""
    return {path.name: path.stat().st_mtime_ns for path in out.glob("shard-*.json")}


def embed(plan: Plan, num_processes: int, kills: Sequence[int]) -> Outcome:
    """Embed in parts; each of the first processes is killed once it has so many own shards, and started again."""
    name = f"shards-{num_processes}"
    out, outcome = plan.folder / name, Outcome(num_processes)
    (plan.folder / "said").write_bytes(b"")
    words = f"embed run pictures.npz --out {name} --shards {plan.shard_rows} --part"
    begun = time.perf_counter()

    def start(number: int) -> subprocess.Popen[bytes]:
        return counterpoint(plan, f"{words} {number + 1}/{num_processes}")

    processes, earlier = [start(number) for number in range(num_processes)], dict[str, int]()
    waiting = dict(enumerate(kills))  # all at once: one may be at its moment, or even done, before another has begun
    while waiting:
        shards = finished(out)
        for number, num_own in list(waiting.items()):
            own = {f"shard-{shard:06d}.json" for shard in WorkPart(number + 1, num_processes).of(plan.num_shards)}
            if len(shards.keys() & own) >= num_own or processes[number].poll() is not None:
                processes[number].send_signal(signal.SIGKILL)
                if processes[number].wait(SECONDS) != -signal.SIGKILL:
                    raise SystemExit("a process had ended before it could be killed; embed more pictures")
                shards = finished(out)
                outcome.killed_at.append(len(shards))
                earlier = {**shards, **earlier}
                processes[number] = start(number)
                del waiting[number]
        time.sleep(0.02)
    if any(process.wait(SECONDS) for process in processes):
        raise SystemExit(f"embedding failed:\n{(plan.folder / 'said').read_text()}")
    outcome.seconds = time.perf_counter() - begun
    now = finished(out)
    outcome.num_kept = sum(now[name] == then for name, then in earlier.items())
    lines = [line for line in (plan.folder / "said").read_text().splitlines() if line.startswith("  shard ")]
    outcome.num_twice = sum(times - 1 for times in Counter(line.split(":")[0] for line in lines).values())
    if outcome.num_kept < len(earlier) or outcome.num_twice:
        raise SystemExit(
            f"{len(earlier) - outcome.num_kept} finished shards were written again, {outcome.num_twice} twice"
        )
    names = read_table(out).names  # each shard is compared with its hash
    outcome.num_rows = len(names)
    if sorted(map(int, names)) != list(range(plan.num_pictures)):
        raise SystemExit(f"{out} has rows twice or lacks some")
    outcome.sha256 = sha256_of(out / MANIFEST)  # it holds the hashes of all shards
    return outcome


def row(plan: Plan, outcome: Outcome) -> str:
    """A row of the table."""
    killed = ", ".join(map(str, outcome.killed_at)) or "-"
    cells = [
        outcome.num_processes, f"{killed} of {plan.num_shards}", f"{outcome.seconds:.1f}",
        f"{plan.num_pictures / outcome.seconds:,.0f}", outcome.num_kept, outcome.num_twice, f"{outcome.num_rows:,}",
        f"{outcome.sha256[:16]}...",
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Render, train, embed three times, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=200_000, help="how many (default 200,000)")
    parser.add_argument("--shards", type=int, default=0, help="rows of a shard (default: a twentieth of the pictures)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    flags = parser.parse_args()
    draws = random.Random(flags.seed)
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(Path(folder), flags.pictures, flags.shards or max(1, flags.pictures // 20))
        render(plan)
        run(plan, "train --data few.npz --encoder convnet --epochs 1 --out run")
        print(f"{plan.num_pictures:,} pictures of {SIDE} x {SIDE}, shards of {plan.shard_rows:,}; one thread each\n")
        print(f"{HEADER}\n|{'---|' * HEADER.count(' | ')}---|", flush=True)
        outcomes: list[Outcome] = []
        for num_processes in (1, 2, 3):
            own = plan.num_shards // num_processes  # one kill in each half of a part's work
            kills = [draws.randint(1, own // 2 - 1), draws.randint(own // 2, own - 2)] if num_processes > 1 else []
            outcomes.append(embed(plan, num_processes, kills))
            print(row(plan, outcomes[-1]), flush=True)
        if len({outcome.sha256 for outcome in outcomes}) > 1:
            raise SystemExit("the tables differ")
        print("\nThe same table each time; no row is twice or missing, and no finished shard was made again.")


if __name__ == "__main__":
    main()
