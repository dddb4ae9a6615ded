"""Search: an index of the embeddings of a run, asked by picture, row or name, with the reason of every hit.

The package can be called: ``counterpoint.search(run, query)`` is ``counterpoint.search.searching.search``. Whoever
imports one of its modules puts the package in the place of the function.
"""

import sys
from types import ModuleType
from typing import Any


class _Search(ModuleType):
    """The package, which is also the function."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """See ``searching.search``."""
        from counterpoint.search.searching import search  # deferred: loads torch

        return search(*args, **options)


sys.modules[__name__].__class__ = _Search
