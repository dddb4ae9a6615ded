"""Work in pieces that need nothing of each other: opened once by each worker, here or by an engine such as Ray."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

State = TypeVar("State")
State_co = TypeVar("State_co", covariant=True)
Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers(Protocol[State_co]):
    """Who works: one process or many, each with what it has opened."""

    def ask(self, question: Callable[[State_co], Result]) -> Result:
        """What one worker answers; all have opened the same."""
        ...

    def each(self, work: Callable[[State_co, Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Do the work for each item once, and give item and result as they end, in any order.

        A result is a function of state and item alone. With other processes, an item may be begun again after its
        worker has died.
        """
        ...


class PieceEngine(Protocol):
    """What opens workers."""

    def opened(self, begin: Callable[[], State]) -> AbstractContextManager[Workers[State]]:
        """Workers that have what ``begin`` returns, until the block ends.

        Args:
            begin: called by each worker; like work and items it can be sent to other processes.
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
        """This process alone."""
        yield _ThisProcess(begin())


HERE = OneProcess()
