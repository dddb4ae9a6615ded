"""Kills at a system call of a training, on one process or two: what is resumed ends in the same bits."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from campaign.calls import count_calls, signal_at
from campaign.kind import KEPT, Case, Kind, Place, Verdict
from campaign.oracle import OK, judge
from campaign.processes import SECONDS, Outcome, start_command
from campaign.small_runs import difference, make_runs, train_words
from counterpoint.core import dist
from runs.kill_server import rank_environments

WORLD_SIZES = (1, 2)
COME_SECONDS = 20  # a rank that died before it came is one that was not started: waited for, for ten minutes
IN_SAVE, EARLY, ANYWHERE = "in a save", "before the first checkpoint", "anywhere"


def next_case(draw: np.random.Generator) -> Case:
    """One kill or several of one run: half of them in a save, a quarter before the first checkpoint."""
    kills = [
        {"when": str(draw.choice([IN_SAVE, EARLY, ANYWHERE], p=[0.5, 0.25, 0.25])), "at": float(draw.random())}
        for _ in range(draw.integers(1, 4))
    ]
    world_size = int(draw.choice(WORLD_SIZES, p=[0.7, 0.3]))
    if world_size > 1 and draw.random() < 0.6:  # one rank dies, and nobody tells the other
        kills = [{**kills[0], "victim": int(draw.integers(world_size))}]
    return {"world_size": world_size, "kills": kills}


def prepare(material: Path) -> None:
    """Whole runs on one process and on two, and the calls that a run consists of."""
    make_runs(material)
    for world_size in WORLD_SIZES:
        run = counted(material, world_size)
        words = train_words(material, run)
        for outcome in on_ranks(words, run, world_size, watch=lambda pids, run=run: _note_calls(run)):
            assert outcome.code == 0, outcome


def run(case: Case, place: Place) -> Verdict:
    """Train, killed and resumed in turn; at the end undisturbed."""
    path, world_size = place.folder / "run", case["world_size"]
    expected = counted(place.material, world_size)
    words, landed = train_words(place.material, path), 0
    for kill in case["kills"]:
        call = _call(kill, json.loads(expected.with_suffix(".calls").read_text()))
        victim = kill.get("victim")
        first, *others = on_ranks(
            words,
            path,
            world_size,
            watch=lambda pids, call=call, victim=victim or 0: _killed_at(call, pids[victim]),
            is_killed=victim is None,
        )
        for outcome in [first, *(others if victim is not None else [])]:
            is_silent = outcome is not first and not outcome.err
            if outcome.code != -signal.SIGKILL and not is_silent and (verdict := judge(outcome)).fault:
                return Verdict(verdict.fault, f"{kill}: {verdict.detail}")
        landed += -signal.SIGKILL in [each.code for each in (first, *others)]  # else it had fewer calls
        # Nothing was saved that `resume` could go on from.
        has_refused = victim is None and first.code not in (-signal.SIGKILL, OK)
        words = train_words(place.material, path) if has_refused else _onwards(path, words)
    verdict = _end(path, expected, words, world_size, train_words(place.material, path))
    return verdict if verdict.fault else Verdict(detail=f"{landed} kills on {world_size} ranks")


def _killed_at(call: int, pid: int | None) -> Callable[[], None]:
    """Kill a rank at a call of the first one, which waits less long than usual for one that never comes."""
    kill = signal_at(call, signal.SIGKILL, pid)

    def prepare_rank() -> None:
        dist.JOIN_SECONDS = COME_SECONDS
        kill()

    return prepare_rank


def counted(material: Path, world_size: int) -> Path:
    """The whole run whose calls were counted."""
    return material / f"counted-{world_size}"


def on_ranks(
    words: list[str],
    path: Path,
    world_size: int,
    *,
    watch: Callable[[list[int | None]], Callable[[], None]] | None = None,
    is_killed: bool = False,
) -> list[Outcome]:
    """Run the command on all ranks.

    Args:
        words: of the command.
        path: of the run; what the ranks print goes beside it.
        world_size: number of ranks.
        watch: given the processes of all ranks (of the first one None), returns what the first rank calls before the
            command.
        is_killed: the others are killed as soon as the first one has ended, as a launcher sees to it.
    """
    files = [path.with_name(f"{path.name}-{rank}") for rank in range(world_size)]
    own, *environments = rank_environments(world_size)
    others = [
        start_command(words, file, environment=environment)
        for file, environment in zip(files[1:], environments, strict=True)
    ]
    prepare = watch([None, *(rank.pid for rank in others)]) if watch else None
    first = start_command(words, files[0], prepare=prepare, environment=own).wait()
    return [first, *(rank.wait(0 if is_killed else SECONDS) for rank in others)]


def _onwards(path: Path, words: list[str]) -> list[str]:
    """What a user types after a kill."""
    return ["resume", str(path), "-q"] if (path / "run.json").exists() else words


def _end(path: Path, expected: Path, words: list[str], world_size: int, first_words: list[str]) -> Verdict:
    """Let the run end by the words of a user, who starts again where `resume` refuses, and compare it."""
    said: list[str] = []
    for attempt in (words, first_words):
        outcomes = on_ranks(attempt, path, world_size)
        for outcome in outcomes:
            if (verdict := judge(outcome)).fault and not (outcome is not outcomes[0] and not outcome.err):
                return verdict
        if all(outcome.code == 0 for outcome in outcomes):
            other = difference(path, expected)
            left = _hidden(path) - _hidden(expected)
            if other:
                return Verdict("other bits", other)
            return Verdict("leftovers", ", ".join(sorted(left))) if left else KEPT
        said.append(f"{attempt[0]}: {outcomes[0]}")
    return Verdict("stuck", "; ".join(said))


def _hidden(path: Path) -> set[str]:
    """Files that a run keeps for itself, or that a killed process left."""
    return {str(item.relative_to(path)) for item in (*path.glob(".*"), *path.glob("checkpoints/.*"))}


def _call(kill: dict[str, Any], calls: dict[str, Any]) -> int:
    """Number of the call at which a kill happens."""
    if kill["when"] == IN_SAVE:
        inside = [number for first, last in calls["saves"] for number in range(first, last + 1)]
        return inside[int(kill["at"] * len(inside))]
    last = calls["saves"][0][1] if kill["when"] == EARLY else calls["number"]
    return 1 + int(kill["at"] * last)


def _note_calls(path: Path) -> Callable[[], None]:
    """Write down how many calls a run makes, and the first and last one of each save."""

    def watch() -> None:
        from counterpoint.engine import loop

        saves, save = [], loop.save_checkpoint

        def save_checkpoint(*args: Any, **options: Any) -> Any:
            before = calls[0] + 1
            result = save(*args, **options)
            saves.append((before, calls[0]))
            path.with_suffix(".calls").write_text(json.dumps({"number": calls[0], "saves": saves}))
            return result

        loop.save_checkpoint = save_checkpoint
        calls = count_calls()

    return watch


KIND = Kind("kills", next_case, run, prepare, seconds=200)  # a rank that waits longer for one that is dead hangs
