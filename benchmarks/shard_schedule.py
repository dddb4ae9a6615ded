"""Simulate the shard schedule of ``core.shard_claims`` for hundreds of parts that are slow, die and come back.

    python benchmarks/shard_schedule.py            the table of docs/scale.md: two minutes
    python benchmarks/shard_schedule.py --quick    64 parts only

The unit of time is what one shard takes on a usual part. Every part looks at shards in the order of the real schedule
(``visiting_order``); a shard whose part died may be taken over once its claim is stale. The ideal time is that of all
parts at their speeds without any loss. Figures are medians over seeds, with the least and the greatest for the first;
idle is the time from the last shard of a part to the end of all. The same seeds give the same table.
"""

# P parts, S shards

import argparse
import heapq
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from counterpoint.core.shard_claims import visiting_order
from counterpoint.core.work_parts import Part

SHARDS_PER_PART = 16  # before any dies
PATIENCE = 0.1  # 120 s beside shards of 20 minutes
JITTER = 0.1  # deviation of the logarithm of a shard's time
SEEDS = range(10)
HEADER = "| parts | what happens | schedule | time / ideal (least to greatest) | work lost | idle, median | worst |"


@dataclass(frozen=True)
class World:
    """What happens to parts.

    Attributes:
        name: in the table.
        slow: share of parts that take ``slowness`` times as long.
        slowness: see above.
        lifetime: shards' times between two deaths of a part, on average; 0 for never.
        away: shards' times until a dead part is started again.
        lost: share of deaths after which a part never comes back.
        preempted: share of the parts that are all stopped at half of the ideal time, and start again after ``away``.
    """

    name: str
    slow: float = 0.0
    slowness: float = 4.0
    lifetime: float = 0.0
    away: float = 2.0
    lost: float = 0.0
    preempted: float = 0.0


WORLDS = (
    World("nothing"),
    World("5 % of the parts are 4 times slower", slow=0.05),
    World("each part dies every 20 shards, back after 2", lifetime=20.0),
    World("the same, one death in four for good", lifetime=20.0, lost=0.25),
    World("a third is stopped half-way, back after 4", preempted=1 / 3, away=4.0),
    World("all of this", slow=0.05, lifetime=20.0, lost=0.25, preempted=1 / 3, away=4.0),
)


@dataclass
class Worker:
    """A part: its speed, the shards it may still take, what it does, and what its life is."""

    left: list[int]
    pace: float
    shard: int | None = None
    began: float = 0.0
    life: int = 0  # events of an earlier life are void
    is_up: bool = True
    last_busy: float = 0.0


@dataclass
class Simulation:
    """One run of the schedule over a world."""

    num_parts: int
    world: World
    takes_over: bool
    draws: random.Random
    events: list[tuple[float, int, str, int, int]] = field(default_factory=list)  # time, order, what, part, life
    done: set[int] = field(default_factory=set)
    held: dict[int, float] = field(default_factory=dict)  # by shard: until when its claim counts
    lost_work: float = 0.0
    now: float = 0.0

    def __post_init__(self) -> None:
        """Start all parts."""
        self.num_shards = SHARDS_PER_PART * self.num_parts
        self.workers: list[Worker] = []
        for number in range(1, self.num_parts + 1):
            order = visiting_order(self.num_shards, part := Part(number, self.num_parts))
            pace = self.world.slowness if self.draws.random() < self.world.slow else 1.0
            # Backwards: the next shard is at the end of the list.
            self.workers.append(Worker([each for each in order if self.takes_over or part.has(each)][::-1], pace))
        self.ideal = self.num_shards / sum(1 / worker.pace for worker in self.workers)
        for number in range(self.num_parts):
            self._begin_life(number)
            self._push(0.0, "look", number)
            if self.draws.random() < self.world.preempted:
                self._push(self.ideal / 2, "stop", number, any_life=True)

    def _push(self, after: float, what: str, number: int, *, any_life: bool = False) -> None:
        life = -1 if any_life else self.workers[number].life
        heapq.heappush(
            self.events, (self.now + after, len(self.events) + self.draws.getrandbits(30), what, number, life)
        )

    def _begin_life(self, number: int) -> None:
        if self.world.lifetime:
            self._push(self.draws.expovariate(1 / self.world.lifetime), "die", number)

    def run(self) -> None:
        """Until all shards are done."""
        while len(self.done) < self.num_shards:
            if not self.events:
                raise SystemExit("nobody is left to do the rest")
            self.now, _, what, number, life = heapq.heappop(self.events)
            if life in (-1, self.workers[number].life):
                getattr(self, f"_{what}")(number)

    def _look(self, number: int) -> None:
        """Take the first shard in this part's order that is neither done nor claimed."""
        worker = self.workers[number]
        while worker.left and worker.left[-1] in self.done:
            worker.left.pop()
        if worker.left and not self._is_free(worker.left[-1]):
            worker.left = [shard for shard in worker.left if shard not in self.done]
        shard = next(filter(self._is_free, reversed(worker.left)), None)
        if shard is not None:
            worker.shard, worker.began, self.held[shard] = shard, self.now, float("inf")
            self._push(worker.pace * self.draws.lognormvariate(0.0, JITTER), "finish", number)
        elif worker.left:
            self._push(PATIENCE / 2, "look", number)  # others have all that is left

    def _is_free(self, shard: int) -> bool:
        return shard not in self.done and self.held.get(shard, -1.0) <= self.now

    def _finish(self, number: int) -> None:
        worker = self.workers[number]
        assert worker.shard is not None
        self.done.add(worker.shard)
        worker.shard, worker.last_busy = None, self.now
        self._look(number)

    def _die(self, number: int, *, comes_back: bool | None = None) -> None:
        """What it had begun is lost, and its claim counts a little longer."""
        worker = self.workers[number]
        if not worker.is_up:
            return
        if worker.shard is not None:
            self.lost_work += (self.now - worker.began) / worker.pace
            self.held[worker.shard] = self.now + PATIENCE
        worker.shard, worker.life, worker.is_up = None, worker.life + 1, False
        # Without take-over a part that never came back would leave its shards undone: somebody starts it again.
        is_gone = self.takes_over and self.draws.random() < self.world.lost
        if comes_back or not is_gone:
            self._push(self.world.away, "restart", number)

    def _stop(self, number: int) -> None:
        self._die(number, comes_back=True)

    def _restart(self, number: int) -> None:
        self.workers[number].is_up = True
        self._begin_life(number)
        self._look(number)


def row(num_parts: int, world: World, *, takes_over: bool) -> str:
    """Of the table: medians over the seeds."""
    ratios, lost, idle, worst = [], [], [], []
    for seed in SEEDS:
        simulation = Simulation(num_parts, world, takes_over, random.Random(seed))
        simulation.run()
        ratios.append(simulation.now / simulation.ideal)
        lost.append(simulation.lost_work / simulation.num_shards)
        ends = [simulation.now - worker.last_busy for worker in simulation.workers if worker.is_up]
        idle.append(statistics.median(ends))
        worst.append(max(ends))
    middle = statistics.median
    schedule = "takes over" if takes_over else "own shards only"
    time = f"{middle(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    cells = [
        num_parts,
        world.name,
        schedule,
        time,
        f"{middle(lost):.1%}",
        f"{middle(idle):.1f}",
        f"{middle(worst):.1f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main(words: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="64 parts only")
    flags = parser.parse_args(words)
    print(
        f"{SHARDS_PER_PART} shards for each part; claims count for {PATIENCE} of a shard's time; {len(SEEDS)} seeds\n"
    )
    print(f"{HEADER}\n|{'---|' * HEADER.count(' | ')}---|", flush=True)
    for num_parts in (64,) if flags.quick else (64, 128, 256, 512):
        for world in WORLDS:
            for takes_over in (False, True):
                print(row(num_parts, world, takes_over=takes_over), flush=True)


if __name__ == "__main__":
    main()
