"""What Ray costs per piece, what its workers reach beside one process, and whether a table survives kills.

    python benchmarks/ray_pieces.py                      200,000 pictures: a quarter of an hour on 2 idle cores
    python benchmarks/ray_pieces.py --pictures 20000 --pieces 2000

Each process has one thread. Rates count the shards after the first, so that starting Ray, which is printed beside them,
is no part of them. In the last case, on a cluster of two nodes, two workers are killed and one node is stopped and
started, then the command itself is killed and given again. All tables must be the same bytes, and no finished shard may
be made again. Linux only: workers are found in /proc.
"""

import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from killed_embedding import SECONDS, SIDE, Plan, counterpoint, finished, render, run
from ray.cluster_utils import Cluster

from counterpoint.core.files import sha256_of
from counterpoint.evaluation.shard_files import MANIFEST
from counterpoint.integrations.ray_jobs import RayEngine

ENGINES = {
    "plain process": "",
    "Ray, 1 worker": "--engine ray --workers 1",
    "Ray, 2 workers": "--engine ray --workers 2",
}


@dataclass(frozen=True)
class Timing:
    """One way to make the table.

    Attributes:
        seconds: of the command.
        rate: pictures a second, from the first shard's end to the last one's.
        sha256: of the manifest, which holds the hashes of all shards.
    """

    seconds: float
    rate: float
    sha256: str


def begin() -> None:
    """Open nothing."""


def nothing(state: None, item: int) -> None:
    """Do nothing."""


def overhead(num_pieces: int, workers: int) -> tuple[float, float]:
    """Seconds until the workers answer, and seconds per piece of nothing."""
    begun = time.perf_counter()
    with RayEngine(workers=workers).opened(begin) as opened:
        list(opened.each(nothing, range(2 * workers)))
        ready = time.perf_counter()
        for _ in opened.each(nothing, range(num_pieces)):
            pass
        return ready - begun, (time.perf_counter() - ready) / num_pieces


def embed(plan: Plan, name: str, how: str) -> Timing:
    """Make the table once, undisturbed."""
    begun = time.perf_counter()
    run(plan, f"embed run pictures.npz --out {name} --shards {plan.shard_rows} {how}")
    ends = sorted(finished(plan.folder / name).values())
    seconds = (ends[-1] - ends[0]) / 1e9
    # Shards that ended with the first one, at other workers, count from its end on, too.
    rate = plan.shard_rows * (len(ends) - 1) / seconds
    return Timing(time.perf_counter() - begun, rate, sha256_of(plan.folder / name / MANIFEST))


def running_workers() -> list[int]:
    """Actors among the processes that this one has started, by their ids."""
    parents, workers = dict[int, int](), []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            status, title = (folder / "stat").read_text(), (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(status.rpartition(")")[2].split()[1])
        if title.startswith("ray::_Worker"):
            workers.append(int(folder.name))
    return [process for process in workers if os.getpid() in ancestors(process, parents)]


def ancestors(process: int, parents: dict[int, int]) -> Iterator[int]:
    """Parent of a process, the parent's parent, and so on."""
    while process in parents:
        process = parents[process]
        yield process


def wait_for(is_true: Callable[[], object]) -> None:
    """Wait until something holds."""
    until = time.monotonic() + SECONDS
    while not is_true():
        if time.monotonic() > until:
            raise SystemExit("nothing happened for two hours")
        time.sleep(0.02)


def killed(plan: Plan, draws: random.Random) -> str:
    """Make the table while workers are killed and a node restarts, then kill the command, and give it again."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1)
    out = plan.folder / "killed"
    words = (
        f"embed run pictures.npz --out {out.name} --shards {plan.shard_rows} "
        f"--engine ray --workers 2 --address {cluster.address}"
    )
    moments = sorted(draws.sample(range(1, plan.num_shards - 3), 4))
    command, earlier = counterpoint(plan, words), dict[str, int]()
    for event, moment in zip(("worker", "node", "worker", "command"), moments, strict=True):
        wait_for(lambda moment=moment: len(finished(out)) >= moment)
        wait_for(running_workers)
        if command.poll() is not None:
            raise SystemExit(f"the command had ended before:\n{(plan.folder / 'said').read_text()}")
        if event == "node":
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)
        else:
            os.kill(draws.choice(running_workers()) if event == "worker" else command.pid, signal.SIGKILL)
        earlier = {**finished(out), **earlier}
    if command.wait(SECONDS) != -signal.SIGKILL:
        raise SystemExit("the command was not killed")
    wait_for(lambda: not running_workers())  # its workers end with it
    earlier = {**finished(out), **earlier}
    run(plan, words)
    now = finished(out)
    if again := [shard for shard, then in earlier.items() if now[shard] != then]:
        raise SystemExit(f"finished shards were made again: {', '.join(again)}")
    cluster.shutdown()
    print(
        f"\nWorkers killed at shards {moments[0]} and {moments[2]}, a node stopped and started at {moments[1]}, the "
        f"command killed at {moments[3]} of {plan.num_shards}; {len(earlier)} shards were kept, none was made again."
    )
    return sha256_of(out / MANIFEST)


def main() -> None:
    """Measure, kill, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=200_000, help="how many (default 200,000)")
    parser.add_argument("--shards", type=int, default=0, help="rows of a shard (default: a fortieth of the pictures)")
    parser.add_argument("--encoder", default="resnet18", help="that encodes them (default resnet18)")
    parser.add_argument("--pieces", type=int, default=10_000, help="pieces of nothing (default 10,000)")
    parser.add_argument("--rounds", type=int, default=3, help="of each way, in turn (default 3)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    flags = parser.parse_args()
    print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n")
    os.environ["PYTHONPATH"] = f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    print("| workers | seconds until they answer | milliseconds per piece of nothing |\n|---|---|---|")
    for workers in (1, 2):
        ready, per_piece = overhead(flags.pieces, workers)
        print(f"| {workers} | {ready:.1f} | {1000 * per_piece:.2f} |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(Path(folder), flags.pictures, flags.shards or max(1, flags.pictures // 40))
        render(plan)
        run(plan, f"train --data few.npz --encoder {flags.encoder} --epochs 1 --out run")
        print(f"\n{plan.num_pictures:,} pictures of {SIDE} x {SIDE}, shards of {plan.shard_rows:,}, {flags.encoder}\n")
        by_engine: dict[str, list[Timing]] = {name: [] for name in ENGINES}
        for number in range(flags.rounds):
            for place, (name, how) in enumerate(ENGINES.items()):
                by_engine[name].append(embed(plan, f"table-{number}-{place}", how))
        print("| who | seconds | pictures/s after the first shard | beside the row above |\n|---|---|---|---|")
        before: list[Timing] = []
        for name, timings in by_engine.items():
            rate = statistics.median(t.rate for t in timings)
            ratios = [own.rate / other.rate for own, other in zip(timings, before, strict=False)]
            beside = f"{statistics.median(ratios):.2f}" if ratios else "-"
            print(f"| {name} | {statistics.median(t.seconds for t in timings):.1f} | {rate:,.0f} | {beside} |")
            before = timings
        tables = {timing.sha256 for timings in by_engine.values() for timing in timings} | {
            killed(plan, random.Random(flags.seed))
        }
        if len(tables) > 1:
            raise SystemExit("the tables differ")
        print(f"All {3 * flags.rounds + 1} tables are the same bytes.")


if __name__ == "__main__":
    main()
