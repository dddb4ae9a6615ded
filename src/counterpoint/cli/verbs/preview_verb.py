"""Draw what training will see: originals beside their views. What differs between views of one row is what the
encoder learns to ignore.

examples:
  counterpoint preview --data digits
  counterpoint preview --data photos/ --views.crop-scale 0.5,1 --out views.png"""

from typing import Any

import counterpoint as cp
from counterpoint.cli.arguments import VerbFlags, option
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 80, "draw originals beside their views"
SETTINGS = ("data", "recipe", "seed", "source", "views")


class PreviewFlags(VerbFlags):
    """Settings of ``preview``: the file and the size of the sheet."""

    config: str | None = option("YAML file with settings; flags win over it")
    out: str = option("PNG file", "preview.png")
    overwrite: bool = option("replace the file if it exists", False)
    samples: int = option("rows, at most 64", 8)
    columns: int = option("views per row, at most 64", 6)


def run(flags: PreviewFlags, settings: dict[str, Any]) -> None:
    """Draw the sheet, and name it."""
    settings = {"data": None, **settings, "out": flags.out}  # the `out` of a file is the run folder's
    settings |= {"num_samples": flags.samples, "num_views": flags.columns}
    print(shown(cp.preview(**settings, overwrite=flags.overwrite, quiet=flags.quiet)))
