"""`counterpoint runs`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from counterpoint.cli.outputs import add_forms, print_found
from counterpoint.cli.parsers import Parser
from counterpoint.core.errors import UsageError
from counterpoint.core.run_files import check_deletable, delete_run, finish_deletion
from counterpoint.core.rundir import RunFolder
from counterpoint.core.terminal_text import shown

PLACE, SUMMARY = 65, "list runs, sorted and filtered; delete some"
TEACH = """List the runs under a folder: status, method, data, encoder, epochs, accuracies with their intervals (if
it was evaluated), the worst finding (if it was diagnosed), size and date. A run that is "stopped" goes on with
`counterpoint resume`.

With --delete runs are deleted after a question: what runs write, and the folder if nothing else is in it. A run in
training, a folder that is no run, and a link are refused. A deletion that was killed is finished by the same command,
and by the next list.

examples:
  counterpoint runs
  counterpoint runs --where method=ncl status=done "epochs>=10" --sort knn -r
  counterpoint runs experiments --json
  counterpoint runs --delete digits-ncl digits-simclr"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default="runs", help="that holds them (default: runs)")
    parser.add_argument("--sort", metavar="COLUMN", default="name", help="such as knn, epochs, size, date")
    parser.add_argument("-r", "--reverse", action="store_true", help="the largest first")
    parser.add_argument(
        "--where",
        metavar="CONDITION",
        nargs="+",
        action="extend",
        default=[],
        help='such as method=ncl, name=digits-*, "epochs>=10"',
    )
    parser.add_argument(
        "--delete", metavar="NAME", nargs="+", action="extend", default=[], help="names as they are listed"
    )
    parser.add_argument("--yes", action="store_true", help="with --delete: do not ask")
    add_forms(parser)


def run(flags: argparse.Namespace) -> int:
    """List them, or delete some."""
    from counterpoint.runs.run_table import list_runs  # deferred: see `cli.verbs`

    if flags.delete:
        return _delete(Path(flags.folder), flags.delete, is_agreed=flags.yes)
    if flags.yes:
        raise UsageError("--yes goes with --delete")
    found = list_runs(Path(flags.folder), where=flags.where, sort=flags.sort, reverse=flags.reverse)
    print_found(found, flags, None)
    return 0


def _delete(top: Path, names: Sequence[str], *, is_agreed: bool) -> int:
    """Ask, then delete; all of them are looked at before the first one goes."""
    from counterpoint.runs.run_table import size_on_disk, size_words  # deferred: see `cli.verbs`

    named = [_inside(top, name) for name in dict.fromkeys(names)]
    finished = {path: left for path in named if (left := finish_deletion(path)) is not None}
    for path, left in finished.items():  # agreed to before it was killed
        _say(path, left)
    paths = [path for path in named if path not in finished or RunFolder(path).is_ours]
    if not paths:
        return 0
    for path in paths:
        check_deletable(path)
    size = size_words(sum(map(size_on_disk, paths)))
    what = f"{len(paths)} run{'s' * (len(paths) > 1)}, {size}: {', '.join(map(str, paths))}"
    if not is_agreed and not sys.stdin.isatty():
        raise UsageError(f"would delete {what}; there is no terminal to ask on: say so with --yes")
    if not is_agreed and input(f"Delete {shown(what)}? [y/N] ").strip().lower() not in ("y", "yes"):
        print("nothing was deleted")
        return 0
    for path in paths:
        _say(path, delete_run(path))
    return 0


def _say(path: Path, left: Sequence[str]) -> None:
    print(shown(f"deleted {path}" + (f"; not ours, so left there: {', '.join(left)}" if left else "")))


def _inside(top: Path, name: str) -> Path:
    """The folder of a run that is listed under a name.

    Raises:
        UsageError: the name leads out of the folder, or by way of a link.
    """
    parts = Path(name).parts
    if Path(name).is_absolute() or ".." in parts or not parts:
        raise UsageError(f"{name} is no name below {top}; take one that `counterpoint runs {top}` lists")
    for place in range(1, len(parts)):
        if top.joinpath(*parts[:place]).is_symlink():
            raise UsageError(
                f"{name} leads through a link, which is not followed; name the folder that really holds it"
            )
    return top / name
