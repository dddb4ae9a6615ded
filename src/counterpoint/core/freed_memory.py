"""Memory that a training step frees stays with the process: giving it back costs more than the next step's layers."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h
NEVER = -1


def keep_freed_memory() -> bool:
    """Ask glibc's allocator to keep freed blocks; for this process, from now on. Changes no result.

    Every step allocates its activations anew. By default large blocks are mapped from the system each time and their
    pages filled with zeros one fault at a time (figures in ``docs/architecture.md``).

    Returns:
        Whether the allocator was asked: there is another one outside of Linux, and in musl's Linux.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return False
    return bool(libc.mallopt(M_MMAP_MAX, 0)) and bool(libc.mallopt(M_TRIM_THRESHOLD, NEVER))
