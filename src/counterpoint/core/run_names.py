"""What runs are called where several stand side by side."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path


def display_names(folders: Sequence[Path]) -> list[str]:
    """Name each run by its folder; equal names get their parent folder in front, then a number.

    >>> display_names([Path("a/ncl"), Path("b/ncl"), Path("simclr")])
    ['a/ncl', 'b/ncl', 'simclr']
    """
    # Resolved: "." has no name of its own.
    paths = [folder.resolve() for folder in folders]
    shared = Counter(path.name for path in paths)
    names = [path.name if shared[path.name] == 1 else f"{path.parent.name}/{path.name}" for path in paths]
    # Runs of one folder name under parents of one name: only a number is left to tell them apart.
    return [
        name if names.count(name) == 1 else f"{name} ({names[:place].count(name) + 1})"
        for place, name in enumerate(names)
    ]
