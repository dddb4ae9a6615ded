"""From run folders to one HTML file that needs nothing else: no network, no server, no JavaScript to be read."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import write_text
from counterpoint.core.rundir import Run, RunFolder, as_run
from counterpoint.report.charts.series_style import MAX_RUNS
from counterpoint.report.completion import complete
from counterpoint.report.document import GENERATOR, document
from counterpoint.report.markup import Markup
from counterpoint.report.run_reader import read_run
from counterpoint.report.run_record import RunRecord
from counterpoint.report.sections.thumbnails import PLANS

MAX_BYTES = 8_000_000


def report(
    runs: Sequence[Run | str | Path] | Run | str | Path,
    *,
    out: str | Path | None = None,
    bare: bool = False,
    quiet: bool = False,
) -> Path:
    """Write one self-contained HTML page about one or several runs.

    A run that was not evaluated or diagnosed yet is so first; where that is not possible, the page says why. The page
    itself reads only the run folders. The same folders give the same bytes.

    Args:
        runs: one run or run folder, or up to six. One that was trained on an array or with your own module is
            evaluated and diagnosed only as ``Run(path, data=array, labels=labels, encoder=module)``.
        out: the file to write. By default ``report.html`` in the run folder, or, for several runs, in the folder
            that holds them all. An earlier report is replaced.
        bare: show what the folders hold, without evaluating or diagnosing anything.
        quiet: show no progress.

    Returns:
        The file written.

    Raises:
        UsageError: no run, more than six, or one twice.
        RunError: not a run folder, a damaged file in it, or ``out`` cannot be written or is not a report.
    """
    known = [as_run(run) for run in (runs if isinstance(runs, list | tuple) else [runs])]
    folders = [run.path for run in known]
    _check(folders)
    target = default_place(folders) if out is None else Path(out)
    _check_target(target)
    gaps = [{} if bare else complete(run, quiet=quiet) for run in known]
    records = tuple(
        read_run(folder, name=name, order=order, gaps=gaps[order])
        for order, (folder, name) in enumerate(zip(folders, display_names(folders), strict=True))
    )
    write_text(target, render(records))
    return target


def render(runs: Sequence[RunRecord], max_bytes: int = MAX_BYTES) -> Markup:
    """Render the page with as much of the gallery as fits into ``max_bytes`` bytes."""
    page = Markup()
    for plan in PLANS:
        page = document(runs, plan)
        if len(page.encode()) <= max_bytes:
            break
    return page


def default_place(folders: Sequence[Path]) -> Path:
    """Choose where the report goes: into the run folder, or into the folder that holds all runs."""
    if len(folders) == 1:
        return RunFolder(folders[0]).report
    return Path(os.path.commonpath([folder.resolve().parent for folder in folders])) / "report.html"


def display_names(folders: Sequence[Path]) -> list[str]:
    """Name each run by its folder; equal names get their parent folder in front, then a number.

    >>> display_names([Path("a/ncl"), Path("b/ncl"), Path("simclr")])
    ['a/ncl', 'b/ncl', 'simclr']
    """
    paths = [folder.resolve() for folder in folders]
    shared = Counter(path.name for path in paths)
    names = [path.name if shared[path.name] == 1 else f"{path.parent.name}/{path.name}" for path in paths]
    return [
        name if names.count(name) == 1 else f"{name} ({names[:place].count(name) + 1})"
        for place, name in enumerate(names)
    ]


def _check(folders: Sequence[Path]) -> None:
    """Refuse no run, too many runs, and the same run twice."""
    if not folders:
        raise UsageError("report needs at least one run folder")
    if len(folders) > MAX_RUNS:
        raise UsageError(
            f"report takes at most {MAX_RUNS} runs, got {len(folders)}; more cannot be told apart on one page"
        )
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("report got the same run folder twice; name each run once")


def _check_target(target: Path) -> None:
    """Refuse to replace anything but an earlier report."""
    if target.is_dir():
        raise RunError(f"{target} is a folder; give the report a file name, such as {target / 'report.html'}")
    if target.exists() and GENERATOR.encode() not in target.read_bytes()[:4096]:
        raise RunError(f"{target} exists and is not a report, so it stays as it is; choose another out")
