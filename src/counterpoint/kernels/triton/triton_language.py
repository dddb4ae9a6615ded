"""The only import of triton, which is optional: modules that need it are imported when a CUDA kernel first runs."""

from typing import Any

import triton
from triton import knobs

# Device code is a language of its own that looks like Python: a type checker has nothing to say about it.
jit: Any = triton.jit
tl: Any = triton.language


def is_interpreted() -> bool:
    """Programs run as NumPy on the CPU (``TRITON_INTERPRET=1`` when triton was imported)."""
    return bool(knobs.runtime.interpret)
