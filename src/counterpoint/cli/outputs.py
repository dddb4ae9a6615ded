"""What verbs print and write of what was found: text, JSON, CSV, Markdown, and a page. Loads without torch."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from counterpoint.core.errors import RunError
from counterpoint.core.files import finite_or_null
from counterpoint.core.terminal_text import shown, shown_lines

if TYPE_CHECKING:
    from counterpoint.report.document import PageKind


class Found(Protocol):
    """What was found, in every form."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        ...

    def to_csv(self) -> str:
        """A table, with a line for each figure."""
        ...

    def to_markdown(self) -> str:
        """Tables and words."""
        ...


def add_forms(parser: argparse.ArgumentParser) -> None:
    """Add in which form results are printed."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON for scripts")
    form.add_argument("--csv", action="store_true", help="print CSV")
    form.add_argument("--markdown", action="store_true", help="print Markdown")


def print_found(found: Found, flags: argparse.Namespace, page: Path | None) -> None:
    """Print it as asked; ``page``, where it was drawn, is named below text only."""
    if flags.json:
        print(json.dumps(finite_or_null(found.to_dict()), indent=1))
    elif flags.csv or flags.markdown:
        print(shown_lines(found.to_csv() if flags.csv else found.to_markdown()), end="")
    else:
        print(shown_lines(found))
        if page is not None:
            print(f"\nDrawn in {shown(page)}.")


def check_page(kind: "PageKind", target: Path) -> None:
    """Refuse a place for a page before the work.

    Raises:
        RunError: something else is there, or its folder does not exist.
    """
    from counterpoint.report.document import check_target  # deferred: loads NumPy and Pillow

    check_target(kind, target)
    if not target.parent.is_dir():
        raise RunError(f"cannot write {target}: {target.parent} is not a folder; make it first or choose another --out")
