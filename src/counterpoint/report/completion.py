"""What a run lacks is made before its page is written: its evaluation, then its diagnosis."""

from counterpoint.core.errors import CounterpointError, first_line
from counterpoint.core.rundir import Run

UNTRAINED = {
    "created": "training has not begun",
    "running": "it is still in training",
    "interrupted": "its training was interrupted; go on with `counterpoint resume`",
    "failed": "its training failed",
}


def complete(run: Run, *, quiet: bool) -> dict[str, str]:
    """Evaluate and diagnose a run where that was not done yet.

    Args:
        run: with the data or the module it was trained on, where its folder does not hold them.
        quiet: show no progress.

    Returns:
        By verb, why something could not be made; the page says so.
    """
    folder = run.folder
    files = {"evaluate": (folder.evaluation,), "diagnose": (folder.findings, folder.arrays)}
    lacking = [verb for verb, made in files.items() if not all(file.exists() for file in made)]
    if lacking and not folder.encoder_card.exists():
        why = UNTRAINED.get(folder.read_status()["status"], "its folder holds no encoder")
        return dict.fromkeys(lacking, f"There is no trained encoder to look at: {why}.")
    return {verb: why for verb in lacking if (why := _make(verb, run, quiet=quiet))}


def _make(verb: str, run: Run, *, quiet: bool) -> str:
    """Evaluate or diagnose; returns why that is not possible, if it is not."""
    # deferred: torch takes seconds to import, and the page of a run that lacks nothing must not wait
    from counterpoint.engine.progress import Reporter  # deferred: see above
    from counterpoint.evaluation.protocol import evaluate  # deferred: see above
    from counterpoint.runs.inspection import diagnose  # deferred: see above

    say = Reporter(quiet=quiet).say
    say(f"{run.path.name} lacks what `counterpoint {verb}` makes: making it first (--bare leaves it out)")
    try:
        {"evaluate": evaluate, "diagnose": diagnose}[verb](run, quiet=quiet)
    except (CounterpointError, OSError) as error:
        say(f"not possible, the page says why: {first_line(error)}")
        return f"This was not possible: {first_line(error)}"
    return ""
