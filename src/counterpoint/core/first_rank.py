"""What one process or all of them must do, so that every one of them knows whether it worked."""

from collections.abc import Callable
from typing import Any, TypeVar

from counterpoint.core.dist import broadcast_text, gather_texts, rank
from counterpoint.core.errors import RunError

Result = TypeVar("Result")


def on_all_ranks(body: Callable[[], Result]) -> Result:
    """Run something on every rank; where it fails on any of them, all raise, so that none is left waiting.

    Args:
        body: takes nothing and calls no collective.

    Raises:
        Exception: where the body failed, what it raised; elsewhere a RunError that names the rank.

    >>> on_all_ranks(lambda: 1 + 1)
    2
    """
    outcome: list[Result] = []
    failure: Exception | None = None
    try:
        outcome.append(body())
    except Exception as error:  # whatever it is, the others must hear of it
        failure = error
    texts = gather_texts("" if failure is None else _words(failure))
    if failure is not None:
        raise failure
    for number, text in enumerate(texts):
        if text:
            raise RunError(f"rank {number}: {text}")
    return outcome[0]


def from_first_rank(body: Callable[[], str]) -> str:
    """What rank 0 finds, on every rank: several machines may see a shared folder differently for a while.

    Args:
        body: runs on rank 0.

    Raises:
        Exception: as ``on_first_rank`` raises.

    >>> from_first_rank(lambda: "begin")
    'begin'
    """
    found: list[str] = []
    on_first_rank(lambda: found.append(body()))
    return broadcast_text(found[0] if found else "")


def on_first_rank(body: Callable[[], Any]) -> None:
    """Run something on rank 0 while the others wait. Every rank must call it.

    Args:
        body: takes nothing; its result is dropped.

    Raises:
        Exception: on rank 0 what the body raised, on the others a RunError with the same text.

    >>> on_first_rank(lambda: print("once"))
    once
    """
    failure: Exception | None = None
    if rank() == 0:
        try:
            body()
        except Exception as error:  # whatever it is, the others must hear of it
            failure = error
    text = broadcast_text("" if failure is None else _words(failure))
    if failure is not None:
        raise failure
    if text:
        raise RunError(text)


def _words(error: Exception) -> str:
    """The error's text, never empty."""
    return str(error) or type(error).__name__
