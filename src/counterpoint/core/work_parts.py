"""Which share of some work this process does: as asked, by the index of a SLURM array, or by its rank."""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from counterpoint.core.errors import UsageError
from counterpoint.core.ranks import TORCHRUN, read_ranks

FROM_SLURM = "slurm"  # instead of a part: the environment of a SLURM array says it
ARRAY = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN")


@dataclass(frozen=True)
class Part:
    """What this process does of numbered work: number ``number`` of ``total``, from 1."""

    number: int = 1
    total: int = 1

    def __post_init__(self) -> None:
        """Refuse a part that there is not."""
        if not 1 <= self.number <= self.total:
            raise UsageError(f"part must be NUMBER/TOTAL with 1 <= NUMBER <= TOTAL, got {self.number}/{self.total}")

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def has(self, place: int) -> bool:
        """Whether the item at a place of the plan is one of its own.

        >>> [place for place in range(7) if Part(2, 3).has(place)]
        [1, 4]
        """
        return place % self.total == self.number - 1


def read_part(text: str) -> Part:
    """A part as it is written.

    Raises:
        UsageError: no such part.

    >>> read_part("3/12")
    Part(number=3, total=12)
    """
    number, _, total = text.partition("/")
    if not (number.isdecimal() and total.isdecimal()):
        raise UsageError(f"part must be NUMBER/TOTAL, such as 3/12, got {text!r}")
    return Part(int(number), int(total))


def part_of(text: str | None, environment: Mapping[str, str] = os.environ) -> Part:
    """Which cells of a study this process makes: as asked, by the index of a SLURM array, or by its rank.

    Args:
        text: ``3/12``; None looks into the environment.
        environment: of the process.

    Raises:
        UsageError: no such part.

    >>> part_of("3/12"), part_of(None, {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "5",
    ...     "SLURM_ARRAY_TASK_COUNT": "4"})
    (Part(number=3, total=12), Part(number=3, total=4))
    """
    if text is not None:
        return read_part(text)
    for index, total, first in (ARRAY, ("RANK", "WORLD_SIZE", "")):
        if index in environment and total in environment:
            return Part(int(environment[index]) - int(environment.get(first, "0")) + 1, int(environment[total]))
    return Part()


def part_of_ranks(text: str | None, environment: Mapping[str, str] = os.environ) -> Part:
    """Which part of a table this process makes: its rank's share of the part that was asked for.

    Args:
        text: ``3/64``; ``slurm`` takes the index of the SLURM array; None is all of the work, which the ranks of
            torchrun or srun share.
        environment: of the process.

    Raises:
        UsageError: no such part, or no array.

    >>> part_of_ranks("2/3", {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a",
    ...     "MASTER_PORT": "1"})
    Part(number=4, total=6)
    """
    if text == FROM_SLURM and not all(map(environment.get, ARRAY)):
        raise UsageError("part slurm needs a SLURM array (sbatch --array 1-64), and none started this process")
    outer = Part() if text is None else part_of(None if text == FROM_SLURM else text, environment)
    ranks = read_ranks(environment)
    return Part((outer.number - 1) * ranks.world_size + ranks.rank + 1, outer.total * ranks.world_size)


def alone(environment: MutableMapping[str, str]) -> None:
    """Make this process work by itself: what torchrun says of the others is forgotten, and it keeps its own GPU.

    Args:
        environment: of the process; changed.
    """
    if "WORLD_SIZE" not in environment or "LOCAL_RANK" not in environment:
        return
    gpus = environment.get("CUDA_VISIBLE_DEVICES", "")
    own = int(environment["LOCAL_RANK"])
    environment["CUDA_VISIBLE_DEVICES"] = gpus.split(",")[own] if gpus else str(own)
    for name in TORCHRUN:
        environment.pop(name, None)
