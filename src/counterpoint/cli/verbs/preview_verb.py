"""`counterpoint preview`."""

from typing import Any

from pydantic import Field

from counterpoint.cli.arguments import VerbFlags
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 80, "draw originals beside their views"
TEACH = """Draw what training will see: originals beside their views. What differs between views of one row is what the
encoder learns to ignore.

examples:
  counterpoint preview --data digits
  counterpoint preview --data photos/ --views.crop-scale 0.5,1 --out views.png"""
SETTINGS = ("data", "recipe", "seed", "source", "views")


class PreviewFlags(VerbFlags):
    """The sheet."""

    config: str | None = Field(default=None, description="YAML file with settings; flags win over it")
    out: str = Field(default="preview.png", description="PNG file")
    overwrite: bool = Field(default=False, description="replace the file if it exists")
    samples: int = Field(default=8, description="rows, at most 64")
    columns: int = Field(default=6, description="views per row, at most 64")


FLAGS = PreviewFlags


def run(flags: PreviewFlags, settings: dict[str, Any]) -> int:
    """Draw the sheet, and name it."""
    from counterpoint.runs.preview import preview  # deferred: loads torch

    settings = {"data": None, **settings, "out": flags.out}  # the `out` of a file is the run folder's
    settings |= {"num_samples": flags.samples, "num_views": flags.columns}
    print(shown(preview(**settings, overwrite=flags.overwrite, quiet=flags.quiet)))
    return 0
