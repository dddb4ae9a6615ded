"""From run folders to one HTML file: evaluate and diagnose what lacks it, read the folders, and write the page."""

import os
from collections.abc import Sequence
from pathlib import Path

from counterpoint.core.errors import CounterpointError, RunError, UsageError, first_line
from counterpoint.core.run import Run, as_run, display_names, listed
from counterpoint.core.rundir import RunFolder
from counterpoint.core.user_files import check_parent
from counterpoint.report.charts.figures import MAX_RUNS
from counterpoint.report.document import check_target, write_page
from counterpoint.report.map_layout import make_map
from counterpoint.report.page import RUN_PAGE, render
from counterpoint.report.run_reading import read_run

SHOWN_VERBS = ("evaluate", "diagnose")  # their results are shown
Gaps = dict[str, str]  # the reason why something could not be made, by verb


def report(
    *runs: Run | str | Path | Sequence[Run | str | Path],
    out: str | Path | None = None,
    bare: bool = False,
    quiet: bool = False,
) -> Path:
    """Write one self-contained HTML page about one or several runs.

    A run that was not evaluated or diagnosed yet is so first, and a line says it; where that is not possible, the page
    says why. The page itself reads only the run folders. The same folders give the same bytes.

    Args:
        runs: one run or run folder, or up to six, one after the other or in one list. One that was trained on an array
            or with your own module is evaluated and diagnosed only as ``Run(path, data=array, labels=labels,
            encoder=module)``.
        out: the file to write. By default ``report.html`` in the run folder, or, for several runs, in the folder
            that holds them all. An earlier report is replaced.
        bare: show what the folders hold, without evaluating or diagnosing anything.
        quiet: show no progress.

    Returns:
        The file written.

    Raises:
        UsageError: no run, more than six, or one twice.
        RunError: not a run folder, a damaged file in it, or ``out`` is in no folder, cannot be written or is not a
            report.
    """
    page_runs = [as_run(run) for run in listed(runs)]
    folders = [run.path for run in page_runs]
    if not folders:
        raise UsageError("report needs at least one run folder")
    if len(folders) > MAX_RUNS:
        raise UsageError(
            f"report takes at most {MAX_RUNS} runs, got {len(folders)}; more cannot be told apart on one page"
        )
    # Resolved: two ways to write a folder are one run.
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("report got the same run folder twice; name each run once")
    if out is not None:
        target = Path(out)
    else:  # the folder above several runs, so that the page does not go into one of them
        places = [folder.resolve().parent for folder in folders] if len(folders) > 1 else folders
        target = Path(os.path.commonpath(places)) / RunFolder(folders[0]).report.name
    # Refuse before the work: what a run lacks takes long to make.
    check_target(RUN_PAGE, target)
    check_parent(target)
    gaps = [_untrained(run.folder, SHOWN_VERBS) for run in page_runs] if bare else complete(page_runs, quiet=quiet)
    records = tuple(
        read_run(folder, name=name, order=order, gaps=gaps[order])
        for order, (folder, name) in enumerate(zip(folders, display_names(folders), strict=True))
    )
    # The page is written whole, after everything was read: a damaged file leaves an earlier page as it is.
    return write_page(target, render(records))


def complete(runs: Sequence[Run], *, quiet: bool) -> list[Gaps]:
    """Evaluate and diagnose the runs that lack it, and lay out their maps, after one line that says so.

    Args:
        runs: the runs of the page.
        quiet: say nothing.

    Returns:
        For each run, the reasons why something could not be made, by verb.
    """
    lacking = []
    for folder in (run.folder for run in runs):
        files = {"evaluate": (folder.evaluation,), "diagnose": (folder.findings, folder.arrays)}
        lacking.append([verb for verb, outputs in files.items() if not all(file.exists() for file in outputs)])
    gaps = [_untrained(run.folder, verbs) for run, verbs in zip(runs, lacking, strict=True)]
    makes = [[verb for verb in verbs if verb not in reasons] for verbs, reasons in zip(lacking, gaps, strict=True)]
    first = [f"{' and '.join(verbs)} {run.path.name}" for run, verbs in zip(runs, makes, strict=True) if verbs]
    if first:
        from counterpoint.engine.progress import Reporter  # deferred: loads torch, which takes seconds

        Reporter(quiet=quiet).say(f"first, as the page needs it: {', '.join(first)} (--bare leaves it out)")
    for run, verbs, reasons in zip(runs, makes, gaps, strict=True):
        reasons.update({verb: why for verb in verbs if (why := _make(verb, run, quiet=quiet))})
        try:
            make_map(run.folder, quiet=quiet)
        except RunError as error:  # a folder that cannot be written: the page shows the principal components
            reasons["report"] = f"The map could not be kept: {first_line(error)}."
    return gaps


def _untrained(folder: RunFolder, verbs: Sequence[str]) -> Gaps:
    """Say by verb why there is no encoder; the state of the training says more than the errors of the verbs."""
    if not verbs or folder.encoder_card.exists():
        return {}
    status = folder.read_status().status
    why = f"There is no trained encoder to look at: the training is {status}; `counterpoint resume` continues it."
    return dict.fromkeys(verbs, why)


def _make(verb: str, run: Run, *, quiet: bool) -> str:
    """Evaluate or diagnose; return why that is not possible, or an empty text."""
    from counterpoint.engine.progress import Reporter  # deferred: see `complete`
    from counterpoint.evaluation.protocol import evaluate  # deferred: see `complete`
    from counterpoint.runs.inspection import diagnose  # deferred: see `complete`

    try:
        {"evaluate": evaluate, "diagnose": diagnose}[verb](run, quiet=quiet)
    except (CounterpointError, OSError) as error:
        # Missing data or labels do not prevent the page: it says so in place of the result.
        Reporter(quiet=quiet).say(f"{verb} {run.path.name} is not possible, the page says why: {first_line(error)}")
        return f"This was not possible: {first_line(error)}"
    return ""
