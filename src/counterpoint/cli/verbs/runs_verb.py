"""`counterpoint runs`."""

from pathlib import Path

from counterpoint.cli.arguments import Json, Names, VerbFlags, option
from counterpoint.cli.outputs import print_found

PLACE, SUMMARY = 65, "list runs, sorted and filtered"
TEACH = """List the runs under a folder: status, method, data, encoder, epochs, accuracies (if it was evaluated), the
worst finding (if it was diagnosed), size and date. A run that is "stopped" goes on with `counterpoint resume`.

examples:
  counterpoint runs
  counterpoint runs --where "method=ncl,status=done,epochs>=10" --sort knn -r
  counterpoint runs experiments --json"""


class RunsFlags(VerbFlags):
    """Which runs are listed."""

    folder: str = option("folder that holds them", "runs", place="FOLDER")
    sort: str = option("column to sort by, such as knn, epochs, size, date", "name")
    reverse: bool = option("the largest first", False, flag="-r --reverse")
    where: Names = option('conditions that a run must meet, such as method=ncl, name=digits-*, "epochs>=10"', ())
    as_json: Json = False


def run(flags: RunsFlags) -> None:
    """List them."""
    from counterpoint.runs.run_table import list_runs  # deferred: see `cli.verbs`

    print_found(
        list_runs(Path(flags.folder), where=flags.where, sort=flags.sort, reverse=flags.reverse), as_json=flags.as_json
    )
