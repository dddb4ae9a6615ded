"""Output of verbs: text, JSON, and a page. Loads without torch."""

import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args

from counterpoint.core.errors import CounterpointError
from counterpoint.core.files import finite_or_null
from counterpoint.core.ranks import read_ranks
from counterpoint.core.run import Run, SeedRuns
from counterpoint.core.terminal_text import shown, shown_lines
from counterpoint.core.user_files import check_parent

Level = Literal["note", "warning", "severe"]
UNHEALTHY = 3  # exit code


def print_found(record: Any, *, as_json: bool, page: Path | None = None, folder: Path | None = None) -> None:
    """Print a record as text, its page or run folder below, or print what its ``to_dict`` returns as JSON."""
    if as_json:
        print(json.dumps(finite_or_null(record.to_dict()), indent=1))
        return
    print(shown_lines(record))
    if page is not None:
        print(f"\nDrawn in {shown(page)}.")
    if folder is not None:
        print_folder(folder)


def print_folder(path: Path) -> None:
    """Name a run's folder on standard output, once for all ranks."""
    if read_ranks(os.environ).rank == 0:
        print(shown(path))


def print_trained(trained: Run | SeedRuns, *, judged: bool, as_json: bool = False) -> None:
    """Say in one sentence whether the features of each run are good, and name the folder on standard output.

    Args:
        trained: one run, or those of several seeds. Only the first of several ranks prints.
        judged: whether to diagnose the runs for that sentence.
        as_json: print the folders and the verdicts as JSON in place of the sentence.
    """
    if read_ranks(os.environ).rank != 0:
        return
    from counterpoint.engine.progress import Reporter  # deferred: see `cli.verbs`
    from counterpoint.runs.inspection import diagnose  # deferred: loads torch

    runs, verdicts = trained.runs if isinstance(trained, SeedRuns) else (trained,), dict[str, str | None]()
    for run in runs:
        name, verdicts[str(run.path)] = f"{run.path.name}: " if len(runs) > 1 else "", None
        if not judged:
            continue
        try:
            verdicts[str(run.path)] = diagnose(run, quiet=True).verdict
            Reporter(quiet=as_json).say(f"{name}{verdicts[str(run.path)]}")
        except (CounterpointError, OSError) as error:  # the training is whole in any case
            Reporter(quiet=as_json).say(f"{name}not diagnosed: {error}")
    if as_json:
        rows = [{"run": path, "verdict": verdict} for path, verdict in verdicts.items()]
        print(json.dumps({"path": str(trained.path), "runs": rows}, indent=1))
    else:
        print(shown(trained.path))


def page_writer(out: str | None, name: str) -> Callable[[Any], Path | None]:
    """Check the place for a page before the work, and return a function that draws the page of a record.

    Args:
        out: file of the page; None draws none.
        name: the name of the page, whose module in ``report`` holds ``NAME_PAGE`` and ``render_name``.

    Raises:
        RunError: something else is there, or its folder does not exist.
    """
    if out is None:
        return lambda record: None
    from counterpoint.report.document import check_target, write_page  # deferred: loads NumPy and Pillow

    module, target = import_module(f"counterpoint.report.{name}_page"), Path(out)
    kind, render = getattr(module, f"{name.upper()}_PAGE"), getattr(module, f"render_{name}")
    check_target(kind, target)
    check_parent(target)
    return lambda record: write_page(target, render(record))


def health_code(level: str, fail_on: Level | None) -> int:
    """Return the exit code of a verb whose worst finding is of this level."""
    levels = get_args(Level)
    return UNHEALTHY if fail_on is not None and level in levels[levels.index(fail_on) :] else 0
