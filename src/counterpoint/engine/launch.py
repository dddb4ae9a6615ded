"""The processes of a run meet before it, and part after it."""

from collections.abc import Iterator
from contextlib import contextmanager

from counterpoint.core.dist import join_ranks, leave_ranks
from counterpoint.engine.placement import Placement


@contextmanager
def ranks_joined(placement: Placement) -> Iterator[None]:
    """Within, the ranks that torchrun or SLURM started form one group; nothing for one process.

    Args:
        placement: who and where this process is.
    """
    join_ranks(placement.ranks, placement.torch_device)
    try:
        yield
    except BaseException:
        leave_ranks(is_orderly=False)
        raise
    leave_ranks()
