"""Rank runs, or checkpoints of one run, by figures that need no labels, on the same views of the same samples;
encoders with a serious fault come last. Each figure is printed with its known correlation with the linear probe or
kNN, and each difference with its 95 % interval: where it contains 0, the order is uncertain. If some labels are
given, they decide.

examples:
  counterpoint select runs/simclr runs/ncl
  counterpoint select runs/ncl --checkpoint all
  counterpoint select runs/ncl@100 runs/ncl@200 runs/simclr --json
  counterpoint select runs/simclr runs/ncl --labels some.csv
  counterpoint select runs/simclr runs/ncl --data photos/ --engine ray"""

from counterpoint.cli.arguments import EncodingFlags, JsonFlags, Names, array_or_name, chosen, engine_from, option
from counterpoint.cli.outputs import print_found
from counterpoint.core.settings import LookSettings

PLACE, SUMMARY = 37, "which encoder is likely best, without labels or with few"


class SelectFlags(JsonFlags, EncodingFlags, LookSettings):
    """Settings of ``select``: the encoders that are ranked, and the samples."""

    runs: Names = option("run folders, or RUN@STEP for a checkpoint", ..., place="RUN")
    data: str | None = option("samples for all (default: the runs' own)")
    labels: str | None = option("file with labels for some of them: .csv (file,label) or .npy (-1: none)")


def run(flags: SelectFlags) -> None:
    """Rank the encoders, and print the table."""
    engine = engine_from(flags)
    from counterpoint.evaluation.features import encoded_by  # deferred: loads torch
    from counterpoint.runs.selection import select  # deferred: likewise

    data = array_or_name(flags.data)
    labels = flags.labels if data is flags.data else array_or_name(flags.labels)  # a file goes with named data
    with encoded_by(engine):
        selection = select(flags.runs, data=data, labels=labels, **chosen(flags, LookSettings), quiet=flags.quiet)
    print_found(selection, as_json=flags.as_json)
