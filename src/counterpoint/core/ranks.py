"""Work of several processes: the rank of this one, as torchrun says, its share, and pieces that any worker does."""

import hashlib
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from counterpoint.core.errors import UsageError

State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)
Item = TypeVar("Item")
Result = TypeVar("Result")

TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together.

    Attributes:
        rank: number of this process, 0 <= rank < world_size.
        local_rank: number of this process among those of this machine, from 0.
        world_size: number of processes.
        local_world_size: number of processes on this machine.
        address: machine of rank 0; empty for one process.
        port: port on which rank 0 listens.
        restarts: number of times that torchrun has restarted these processes.
        launch: hash of what a restart has in common with the start; empty if nothing restarts. Only rank 0's counts.
    """

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    address: str = ""
    port: int = 0
    restarts: int = 0
    launch: str = ""


@dataclass(frozen=True)
class WorkPart:
    """The part of numbered work that this process does: number ``number`` of ``total``, from 1."""

    number: int = 1
    total: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.total:
            raise UsageError(f"part must be NUMBER/TOTAL with 1 <= NUMBER <= TOTAL, got {self.number}/{self.total}")

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def of(self, num_items: int) -> range:
        """Items of this part: every ``total``-th, from the ``number``-th on.

        >>> list(WorkPart(2, 3).of(7))
        [1, 4]
        """
        return range(self.number - 1, num_items, self.total)


def part_of_ranks(text: str | None, environment: Mapping[str, str] = os.environ) -> WorkPart:
    """The part of a table that this process makes: its rank's share of the requested part.

    Args:
        text: part of the work, such as ``3/64``; None is all of the work, which the ranks of torchrun share.
        environment: environment variables of the process.

    Raises:
        UsageError: no such part.

    >>> part_of_ranks("2/3", {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a",
    ...     "MASTER_PORT": "1"})
    WorkPart(number=4, total=6)
    """
    number, _, total = ("1/1" if text is None else text).partition("/")
    if not (number.isdecimal() and total.isdecimal()):
        raise UsageError(f"part must be NUMBER/TOTAL, such as 3/12, got {text!r}")
    outer, ranks = WorkPart(int(number), int(total)), read_ranks(environment)
    return WorkPart((outer.number - 1) * ranks.world_size + ranks.rank + 1, outer.total * ranks.world_size)


def read_ranks(environment: Mapping[str, str]) -> Ranks:
    """Ranks that torchrun has written to the environment.

    Args:
        environment: environment variables, such as ``os.environ``.

    Returns:
        The ranks; one process if torchrun has not started this one.

    Raises:
        UsageError: the variables are incomplete or contradict each other.

    >>> read_ranks({}).world_size
    1
    """
    # RANK and LOCAL_RANK are set by other launchers, too; all of torchrun's are needed to meet the others.
    if "LOCAL_RANK" not in environment or "WORLD_SIZE" not in environment:
        return Ranks()
    missing = [name for name in TORCHRUN if name not in environment]
    if missing:
        raise UsageError(
            f"WORLD_SIZE is {environment['WORLD_SIZE']}, but {', '.join(missing)} is not set; start with torchrun "
            "--nproc-per-node N -m counterpoint, or unset WORLD_SIZE and LOCAL_RANK"
        )
    rank, local_rank, world_size = (_number(environment, name) for name in TORCHRUN[:3])
    local_world_size = _number(environment, "LOCAL_WORLD_SIZE", world_size)
    if rank >= world_size:
        raise UsageError(f"RANK must be below WORLD_SIZE ({world_size}), got {rank}; start with torchrun")
    if local_rank >= local_world_size:
        raise UsageError(
            f"LOCAL_RANK must be below LOCAL_WORLD_SIZE ({local_world_size}), got {local_rank}; start with torchrun"
        )
    # torchrun outlives the processes that it starts again.
    launch = f"torchrun {environment.get('TORCHELASTIC_RUN_ID')} {socket.gethostname()} {os.getppid()}"
    return Ranks(
        rank,
        local_rank,
        world_size,
        local_world_size,
        address=environment["MASTER_ADDR"],
        port=_number(environment, "MASTER_PORT"),
        restarts=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0),
        launch=hashlib.sha256(launch.encode()).hexdigest()[:16] if "TORCHELASTIC_RUN_ID" in environment else "",
    )


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name, "" if default is None else str(default))
    if not re.fullmatch(r"\d+", text.strip()):
        raise UsageError(f"the environment variable {name} must be a whole number >= 0, got {text!r}")
    return int(text)


class Workers(Protocol[State_co]):
    """One process or many that work, each with the state that it has opened."""

    def ask(self, question: Callable[[State_co], Result]) -> Result:
        """Ask one worker a question; all have opened the same state."""
        ...

    def each(self, work: Callable[[State_co, Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Do the work for each item once, and give item and result as they end, in any order.

        A result is a function of state and item alone. With other processes, an item may be begun again after its
        worker has died.
        """
        ...


class PieceEngine(Protocol):
    """An engine that opens workers."""

    def opened(self, begin: Callable[[], State]) -> AbstractContextManager[Workers[State]]:
        """Open workers whose state is what ``begin`` returns, until the block ends.

        Args:
            begin: function that each worker calls; like work and items it can be sent to other processes.
        """
        ...


@dataclass(frozen=True)
class _ThisProcess(Generic[State]):
    state: State

    def ask(self, question: Callable[[State], Result]) -> Result:
        return question(self.state)

    def each(self, work: Callable[[State, Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        return ((item, work(self.state, item)) for item in items)


class OneProcess:
    """The engine that needs no other process.

    >>> with OneProcess().opened(lambda: 10) as workers:
    ...     dict(workers.each(lambda state, item: state + item, [1, 2]))
    {1: 11, 2: 12}
    """

    @contextmanager
    def opened(self, begin: Callable[[], State]) -> Iterator[Workers[State]]:
        """Open this process as the only worker."""
        yield _ThisProcess(begin())


HERE = OneProcess()
