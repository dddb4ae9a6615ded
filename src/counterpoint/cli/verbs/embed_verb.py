"""`counterpoint embed`."""

import argparse
from pathlib import Path

from counterpoint.cli.arguments import CHOOSING, add_settings, part_from
from counterpoint.cli.parsers import Parser, add_run
from counterpoint.core.rundir import open_run
from counterpoint.core.shown import shown

PLACE, SUMMARY = 50, "write embeddings as a table"
TEACH = """Embed samples with a trained encoder and write one row per sample, with names and labels where known.

examples:
  counterpoint embed runs/ncl --out digits.npz
  counterpoint embed runs/mine new_photos/ --out new.parquet"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_run(parser)
    parser.add_argument("data", metavar="DATA", nargs="?", help="samples to embed (default: the run's own)")
    parser.add_argument("--out", required=True, metavar="FILE", help=".npz, .csv or .parquet")
    parser.add_argument("--layer", default="representation", help="representation (default) or embedding")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    add_settings(parser, CHOOSING)


def run(flags: argparse.Namespace) -> int:
    """Embed, and name the table."""
    open_run(Path(flags.run))
    from counterpoint.search.table import embed  # deferred: loads torch

    table = embed(
        flags.run,
        flags.data,
        out=flags.out,
        layer=flags.layer,
        **part_from(flags),
        overwrite=flags.overwrite,
        quiet=flags.quiet,
    )
    print(shown(table.path))
    return 0
