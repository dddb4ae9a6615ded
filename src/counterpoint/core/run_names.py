"""What runs are called: where several stand side by side, and while one is being deleted."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

DELETED = ".deleted"  # end of the hidden name of a run that is being deleted


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


def deleted_name(path: Path) -> str | None:
    """The name that a run had before its deletion began; None of any other folder.

    >>> deleted_name(Path(".digits.0123abcd-77-0123abcd.deleted")), deleted_name(Path(".digits.deleted"))
    ('digits', None)
    """
    # As `files.temporary_sibling` draws it, on whatever machine.
    pattern = rf"\.(.+)\.[0-9a-f]{{8}}-\d+-[0-9a-f]{{8}}{re.escape(DELETED)}"
    found = re.fullmatch(pattern, path.name, re.ASCII | re.DOTALL)
    return found[1] if found else None
