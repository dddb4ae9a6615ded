"""`counterpoint embed`."""

import argparse

from counterpoint.cli.arguments import add_looking, look_from, subject_from
from counterpoint.cli.parsers import Parser, add_subject
from counterpoint.core.errors import UsageError
from counterpoint.core.shown import shown

PLACE, SUMMARY = 50, "write embeddings as a table"
TEACH = """Embed samples with a trained encoder and write one row per sample, with names and labels where known.

examples:
  counterpoint embed runs/ncl --out digits.npz
  counterpoint embed runs/mine new_photos/ --out new.parquet
  counterpoint embed --encoder resnet18 --weights r18.pth photos/ --out p.npz"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_subject(parser, files="with --encoder the samples to embed")
    parser.add_argument("data", metavar="DATA", nargs="?", help="samples to embed (default: the run's own)")
    parser.add_argument("--out", required=True, metavar="FILE", help=".npz, .csv or .parquet")
    parser.add_argument(
        "--layer",
        default="representation",
        help="representation (default), embedding, projected, subvector, or a module of the backbone",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    add_looking(parser, "step of a kept checkpoint whose encoder is taken (default: the last state)")


def run(flags: argparse.Namespace) -> int:
    """Embed, and name the table."""
    if flags.encoder is not None:
        if flags.data is not None:
            raise UsageError("with --encoder give the samples only: counterpoint embed --encoder NAME DATA --out FILE")
        flags.data, flags.subject = flags.subject, None
    subject = subject_from(flags)
    from counterpoint.search.table import embed  # deferred: loads torch

    table = embed(
        subject,
        flags.data,
        out=flags.out,
        layer=flags.layer,
        **look_from(flags),
        overwrite=flags.overwrite,
        quiet=flags.quiet,
    )
    print(shown(table.path))
    return 0
