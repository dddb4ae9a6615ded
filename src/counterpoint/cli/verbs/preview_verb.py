"""`counterpoint preview`."""

import argparse

from counterpoint.cli.arguments import add_settings, settings_from
from counterpoint.cli.parsers import Parser
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 80, "draw originals beside their views"
TEACH = """Draw what training will see: originals beside their views. What differs between views of one row is what the
encoder learns to ignore.

examples:
  counterpoint preview --data digits
  counterpoint preview --data photos/ --views.crop-scale 0.5,1 --out views.png"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("--config", metavar="FILE", help="YAML file with settings; flags win over it")
    parser.add_argument("--out", default="preview.png", metavar="FILE", help="PNG file (default preview.png)")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    parser.add_argument("--samples", type=int, default=8, help="rows, at most 64 (default 8)")
    parser.add_argument("--columns", type=int, default=6, help="views per row, at most 64 (default 6)")
    add_settings(parser, ["data", "recipe", "seed", "source", "views"])


def run(flags: argparse.Namespace) -> int:
    """Draw the sheet, and name it."""
    out, flags.out = flags.out, None  # the sheet's file, not the run folder of the same name
    asked = settings_from(flags, flags.config)
    from counterpoint.runs.preview import preview  # deferred: loads torch

    data, _ = asked.pop("data", None), asked.pop("out", None)  # the file's `out` is a run folder's
    shape = {"num_samples": flags.samples, "num_views": flags.columns}
    print(shown(preview(data, out=out, **shape, overwrite=flags.overwrite, quiet=flags.quiet, **asked)))
    return 0
