"""`counterpoint embed`."""

import argparse
import os
from pathlib import Path

from counterpoint.cli.arguments import add_looking, look_from, subject_from
from counterpoint.cli.parsers import Parser, add_subject, print_folder
from counterpoint.core.errors import UsageError
from counterpoint.core.ranks import part_of_ranks, read_ranks
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 50, "write embeddings as a table"
TEACH = """Embed samples with a trained encoder and write one row per sample, with names and labels where known.

With --shards the rows go to a folder of Parquet files, which any number of processes fill, on one machine or on
several: parts by their numbers, or the ranks of torchrun. No part waits for another; one that was killed is started
again and goes on where it was. Such a folder is read wherever a table is; --merge makes
one file of it.

examples:
  counterpoint embed runs/ncl --out digits.npz
  counterpoint embed runs/mine new_photos/ --out new.parquet
  counterpoint embed --encoder resnet18 --weights r18.pth photos/ --out p.npz
  counterpoint embed runs/mine photos/ --out shards/ --shards 10000 --part 3/64
  torchrun --nproc-per-node 2 -m counterpoint embed RUN --out z/ --shards 9999
  counterpoint embed --merge shards/ --out photos.parquet"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_subject(parser, files="with --encoder the samples to embed")
    parser.add_argument("data", metavar="DATA", nargs="?", help="samples to embed (default: the run's own)")
    parser.add_argument(
        "--out", required=True, metavar="PATH", help=".npz, .csv or .parquet; of shards a folder; of a merge also .npy"
    )
    parser.add_argument(
        "--layer",
        default="representation",
        help="representation (default), embedding, projected, subvector, or a module of the backbone",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    parser.add_argument("--shards", type=int, metavar="ROWS", help="write a folder of shards with so many rows each")
    parser.add_argument(
        "--part",
        metavar="I/N",
        help="of shards: make every N-th, from the I-th on",
    )
    parser.add_argument("--merge", metavar="FOLDER", help="instead of embedding: make one file of a folder of shards")
    add_looking(parser, "step of a kept checkpoint whose encoder is taken (default: the last state)")


def run(flags: argparse.Namespace) -> int:
    """Embed, and name the table."""
    if flags.merge is not None:
        return _merge(flags)
    if flags.encoder is not None:
        if flags.data is not None:
            raise UsageError("with --encoder give the samples only: counterpoint embed --encoder NAME DATA --out FILE")
        flags.data, flags.subject = flags.subject, None
    subject = subject_from(flags)
    if flags.shards is not None or flags.part is not None:
        return _embed_shards(subject, flags)
    if read_ranks(os.environ).world_size > 1:
        raise UsageError(
            "several processes write a folder of shards together; give --shards ROWS and a folder as --out"
        )
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


def _embed_shards(subject: str, flags: argparse.Namespace) -> int:
    """Make this process's share of a folder of shards, and name the folder."""
    if flags.overwrite:
        raise UsageError("shards are never replaced; choose another --out, or remove the folder to begin anew")
    if Path(flags.out).is_file():
        raise UsageError(f"--out must be a folder for shards, got the file {flags.out}")
    part = part_of_ranks(flags.part)
    from counterpoint.search.embedding_shards import Shards, embed_shards  # deferred: loads torch

    shards = Shards(Path(flags.out), flags.shards, part)
    embed_shards(subject, flags.data, shards=shards, layer=flags.layer, **look_from(flags), quiet=flags.quiet)
    print_folder(shards.out)
    return 0


def _merge(flags: argparse.Namespace) -> int:
    """Make one file of a folder of shards."""
    others = {"RUN": flags.subject, "DATA": flags.data, "--encoder": flags.encoder, "--shards": flags.shards}
    if given := [name for name, value in {**others, "--part": flags.part}.items() if value is not None]:
        raise UsageError(f"--merge takes a folder of shards and --out FILE only, got {given[0]} as well")
    from counterpoint.search.shard_merge import merge_shards  # deferred: loads torch

    print(shown(merge_shards(flags.merge, flags.out, overwrite=flags.overwrite, quiet=flags.quiet)))
    return 0
