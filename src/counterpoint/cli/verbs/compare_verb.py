"""Compare evaluated runs, and files that `counterpoint evaluate` wrote for other encoders or features:
figure by figure on the same queries, in pairs, with the 95 % interval of each difference, its p (corrected by Holm) and
whether it is real. Runs whose settings differ only in the seed count as one method, and so are the seed-*
folders of one folder; their differences are also compared over seeds, with how many seeds would be needed to tell.

examples:
  counterpoint compare runs/simclr runs/ncl
  counterpoint compare runs/simclr runs/ncl --metrics knn
  counterpoint compare runs/ncl resnet18.json"""

from pathlib import Path

import counterpoint as cp
from counterpoint.cli.arguments import JsonFlags, Names, chosen, option
from counterpoint.cli.outputs import print_found
from counterpoint.core.rundir import open_run, seed_folders

PLACE, SUMMARY = 35, "which differences between runs are real, in pairs and over seeds"


class CompareFlags(JsonFlags):
    """Settings of ``compare``: the runs and figures that are compared."""

    runs: Names = option("evaluated run folders, folders of seeds, or files written by evaluate", ..., place="RUN")
    metrics: Names = option("of the evaluations, separated by commas", ())
    features: Names = option("such as representation,embedding", ())


def run(flags: CompareFlags) -> None:
    """Compare the runs, and print the comparison."""
    for path in (Path(run) for run in flags.runs if not Path(run).is_file()):
        for folder in seed_folders(path) or [path]:
            open_run(folder)
    comparison = cp.compare(*flags.runs, **chosen(flags, CompareFlags, but=("runs", "as_json", "quiet")))
    print_found(comparison, as_json=flags.as_json)
