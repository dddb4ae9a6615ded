"""What runs lack for their page is made before it: evaluation, diagnosis, and the map of the samples."""

from collections.abc import Sequence

from counterpoint.core.errors import CounterpointError, RunError, first_line
from counterpoint.core.run import Run
from counterpoint.core.rundir import RunFolder
from counterpoint.evaluation.map_samples import read_collection
from counterpoint.report.map_layout import make_map, read_map

Gaps = dict[str, str]  # by verb, why something could not be made


def complete(runs: Sequence[Run], *, quiet: bool) -> list[Gaps]:
    """Evaluate and diagnose the runs that are not yet, and lay out their maps, after one line that says so.

    Args:
        runs: of the page.
        quiet: say nothing.

    Returns:
        For each run, by verb, why something could not be made.
    """
    lacking = []
    for folder in (run.folder for run in runs):
        files = {"evaluate": (folder.evaluation,), "diagnose": (folder.findings, folder.arrays)}
        lacking.append([verb for verb, made in files.items() if not all(file.exists() for file in made)])
    gaps = [_untrained(run.folder, verbs) for run, verbs in zip(runs, lacking, strict=True)]
    makes = [[verb for verb in verbs if verb not in known] for verbs, known in zip(lacking, gaps, strict=True)]
    first = [f"{' and '.join(verbs)} {run.path.name}" for run, verbs in zip(runs, makes, strict=True) if verbs]
    if first:
        from counterpoint.engine.progress import Reporter  # deferred: loads torch, which takes seconds

        Reporter(quiet=quiet).say(f"first, as the page needs it: {', '.join(first)} (--bare leaves it out)")
    for run, verbs, known in zip(runs, makes, gaps, strict=True):
        known.update({verb: why for verb in verbs if (why := _make(verb, run, quiet=quiet))})
        collection = read_collection(run.folder)
        if collection is not None and read_map(run.folder, collection) is None:
            known.update(_lay_out(run.folder, quiet=quiet))
    return gaps


def _untrained(folder: RunFolder, verbs: Sequence[str]) -> Gaps:
    """Why some verbs have nothing to look at; the state of the training says more than their errors."""
    if not verbs or folder.encoder_card.exists():
        return {}
    status = folder.read_status().status
    why = f"There is no trained encoder to look at: the training is {status}; `counterpoint resume` continues it."
    return dict.fromkeys(verbs, why)


def _lay_out(folder: RunFolder, *, quiet: bool) -> Gaps:
    """Lay out the map; returns why that is not possible, if it is not."""
    from counterpoint.engine.progress import Reporter  # deferred: see `complete`

    try:
        make_map(folder, Reporter(quiet=quiet))
    except RunError as error:  # a folder that cannot be written: the page shows the principal components
        return {"report": f"The map could not be kept: {first_line(error)}."}
    return {}


def _make(verb: str, run: Run, *, quiet: bool) -> str:
    """Evaluate or diagnose; returns why that is not possible, if it is not."""
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
