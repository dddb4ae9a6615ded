"""List the runs under a folder: status, method, data, encoder, epochs, accuracies (if it was evaluated), the
verdict (if it was diagnosed), size and date. `counterpoint resume` continues a "stopped" run.

examples:
  counterpoint runs
  counterpoint runs --sort knn -r
  counterpoint runs experiments --json"""

from pathlib import Path

from counterpoint.cli.arguments import JsonFlags, option
from counterpoint.cli.outputs import print_found

PLACE, SUMMARY = 65, "list runs, sorted"


class RunsFlags(JsonFlags):
    """Settings of ``runs``: the folder of the runs, and their order."""

    folder: str = option("folder that holds them", "runs", place="FOLDER")
    sort: str = option("column to sort by, such as knn, epochs, size, date", "name")
    reverse: bool = option("the largest first", False, flag="-r --reverse")


def run(flags: RunsFlags) -> None:
    """List the runs of a folder."""
    from counterpoint.runs.run_table import list_runs  # deferred: see `cli.verbs`

    print_found(list_runs(Path(flags.folder), sort=flags.sort, reverse=flags.reverse), as_json=flags.as_json)
