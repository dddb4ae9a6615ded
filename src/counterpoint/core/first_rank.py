"""What one process or all of them must do, so that every one of them knows whether it worked."""

from collections.abc import Callable
from typing import Any, TypeVar

from counterpoint.core.dist import broadcast_text, gather_texts, rank
from counterpoint.core.errors import CounterpointError, RunError

Result = TypeVar("Result")


def on_all_ranks(body: Callable[[], Result]) -> Result:
    """Run something on every rank; where it fails on any of them, all raise, so that none is left waiting.

    Args:
        body: takes nothing and calls no collective.

    Raises:
        CounterpointError: where the body failed, what it raised; elsewhere a RunError that names the rank.

    >>> on_all_ranks(lambda: 1 + 1)
    2
    """
    outcome: list[Result] = []
    failure: CounterpointError | None = None
    try:
        outcome.append(body())
    except CounterpointError as error:
        failure = error
    texts = gather_texts("" if failure is None else str(failure))
    if failure is not None:
        raise failure
    for number, text in enumerate(texts):
        if text:
            raise RunError(f"rank {number}: {text}")
    return outcome[0]


def on_first_rank(body: Callable[[], Any]) -> None:
    """Run something on rank 0 while the others wait. Every rank must call it.

    Args:
        body: takes nothing; its result is dropped.

    Raises:
        CounterpointError: on rank 0 what the body raised, on the others a RunError with the same text.

    >>> on_first_rank(lambda: print("once"))
    once
    """
    failure: CounterpointError | None = None
    if rank() == 0:
        try:
            body()
        except CounterpointError as error:
            failure = error
    text = broadcast_text("" if failure is None else str(failure))
    if failure is not None:
        raise failure
    if text:
        raise RunError(text)
