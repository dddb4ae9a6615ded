"""`counterpoint select`."""

from typing import Any

from counterpoint.cli.arguments import CHOOSING, Json, Names, VerbFlags, array_or_name, given, option
from counterpoint.cli.outputs import print_found
from counterpoint.core.data_settings import LookSettings

PLACE, SUMMARY = 37, "which encoder is likely best, without labels"
TEACH = """Rank runs, or checkpoints of one run, by figures that need no labels: those with a serious fault last, the
others by how the same views of the same samples lie. Each figure is given with the correlation with a linear probe that
was measured for it, and each difference with its 95 % interval: where it holds 0, nobody can tell.

examples:
  counterpoint select runs/simclr runs/ncl
  counterpoint select runs/ncl --checkpoint all
  counterpoint select runs/ncl@40 runs/ncl@80 runs/simclr --data photos --json"""
SETTINGS = CHOOSING


class SelectFlags(VerbFlags, LookSettings):
    """What is ranked, and on which samples."""

    runs: Names = option("run folders, or RUN@STEP for a checkpoint", ..., place="RUN")
    data: str | None = option("samples for all (default: the runs' own)")
    as_json: Json = False


def run(flags: SelectFlags, settings: dict[str, Any]) -> None:
    """Rank, and print the table."""
    from counterpoint.runs.selection import select  # deferred: loads torch

    look = {**given(flags, LookSettings), **settings.get("source", {})}
    found = select(flags.runs, data=array_or_name(flags.data), **look, quiet=flags.quiet)
    print_found(found, as_json=flags.as_json)
