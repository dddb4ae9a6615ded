"""Embed samples with a trained encoder and write one row per sample, with names and labels where known.

With --shards the rows go to a folder of Parquet files, which any number of processes fill, on one machine or on
several: parts by their numbers, the ranks of torchrun, or workers of Ray. Parts do not wait for each other; what was
killed continues when it is restarted. Other verbs read such a folder like a table.

examples:
  counterpoint embed runs/ncl --out digits.npz
  counterpoint embed --encoder timm:resnet18 --weights m.pth photos/ --out p.npz
  counterpoint embed runs/mine photos/ --out shards/ --shards 10000 --part 3/64
  counterpoint embed runs/mine photos/ --out shards/ --engine ray --workers 8
  torchrun --nproc-per-node 2 -m counterpoint embed RUN --out z/ --shards 9999"""

import os

import counterpoint as cp
from counterpoint.cli.arguments import PROCESS, EncodingFlags, SubjectFlags, chosen, engine_from, option, subject_from
from counterpoint.cli.outputs import print_folder
from counterpoint.core.errors import UsageError
from counterpoint.core.ranks import part_of_ranks, read_ranks
from counterpoint.core.settings import LookSettings
from counterpoint.core.terminal_text import shown
from counterpoint.core.user_files import as_path

PLACE, SUMMARY = 50, "write embeddings as a table"


class EmbedFlags(EncodingFlags, SubjectFlags, LookSettings):
    """Settings of ``embed``: the samples, and the file or folder for the rows."""

    data: str | None = option(
        "samples to embed (default: the run's own); with --encoder the only argument",
        place="DATA",
    )
    out: str = option(".npz, .csv or .parquet; with --shards a folder", ...)
    layer: str = option(
        "representation, embedding, projected, subvector, or a module of the backbone",
        "representation",
    )
    overwrite: bool = option("replace the file if it exists", False)
    shards: int | None = option("write a folder of shards with this many rows each")
    share: str | None = option("I/N: with --shards, write every N-th shard, from the I-th on", flag="--part")


def run(flags: EmbedFlags) -> None:
    """Embed, and name the table."""
    if flags.encoder is not None:
        if flags.data is not None:
            raise UsageError("with --encoder give the samples only: counterpoint embed --encoder NAME DATA --out FILE")
        flags = flags.model_copy(update={"data": flags.subject, "subject": None})
    subject = subject_from(flags.subject, flags.encoder)
    look = {**chosen(flags, LookSettings), "layer": flags.layer, "quiet": flags.quiet}
    engine = engine_from(flags)
    if flags.shards is not None or flags.share is not None or flags.engine != PROCESS:
        if flags.overwrite:
            raise UsageError("shards are never replaced; choose another --out, or remove the folder to start again")
        out = as_path(flags.out)
        if out.is_file() or (flags.shards is None and not out.is_dir() and out.suffix in (".npz", ".csv", ".parquet")):
            raise UsageError(f"--out must be a folder for shards, got the file {flags.out}")
        part = part_of_ranks(flags.share)
        from counterpoint.evaluation.embedding import Shards, embed_shards  # deferred: loads torch

        shards = Shards(out, flags.shards, part)
        embed_shards(subject, flags.data, shards=shards, engine=engine, **look)
        print_folder(out)
        return
    if read_ranks(os.environ).world_size > 1:
        raise UsageError("several processes write a folder of shards together; give --shards ROWS, a folder as --out")
    print(shown(cp.embed(subject, flags.data, out=flags.out, overwrite=flags.overwrite, **look).path))
