"""What only one process may do, such as writing to the run folder, so that all of them know whether it worked."""

from collections.abc import Callable
from typing import Any

from counterpoint.core.dist import broadcast_text, rank
from counterpoint.core.errors import CounterpointError, RunError


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
