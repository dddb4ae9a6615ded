"""The settings of a run as files: what was asked for, and what has an effect; written when it begins or is changed."""

import contextlib
from collections.abc import Sequence

from counterpoint.core.derived_files import check_settings
from counterpoint.core.errors import CounterpointError, StaleFileError, UsageError
from counterpoint.core.files import sealed_text, with_run, write_text
from counterpoint.core.run_records import Continuation, RunStatus
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.terminal_text import shown
from counterpoint.core.validation import as_yaml, dump_yaml, leaves, read_yaml_mapping
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.runs.active_settings import without_idle
from counterpoint.runs.recipes import reasons_of, recipe_named
from counterpoint.runs.resolve import Resolution


def describe(folder: RunFolder, settings: TrainSettings, resolution: Resolution, status: RunStatus) -> None:
    """Write what is known of a run before the first step."""
    asked = _recipe_comment(settings) + as_yaml(settings, only_set=True)
    write_text(folder.config, sealed_text(with_run(asked, status.run_id)))
    from_recipe = {path: why for path, why in reasons_of(settings).items() if path not in resolution.idle}
    resolution.reasons.update(from_recipe)
    _write_resolved(folder, resolution, status.run_id)
    folder.write_status(status)


def _recipe_comment(settings: TrainSettings) -> str:
    """What the recipe follows and where it departs from the paper, as lines that YAML does not read."""
    if settings.recipe is None:
        return ""
    recipe = recipe_named(settings.recipe)
    lines = [f"recipe {recipe.name}: {recipe.line}", f"follows {recipe.follows}"]
    lines += [f"departs: {departure}" for departure in recipe.departures]
    return "".join(f"# {shown(line)}\n" for line in lines)


def keep_changes(
    folder: RunFolder, settings: TrainSettings, resolution: Resolution, known: Sequence[Continuation]
) -> None:
    """Write what the user has asked for or allowed since the run began, and settings that cannot be read any more.

    Args:
        folder: the run, which goes on.
        settings: with which it does.
        resolution: of these settings.
        known: its continuations.
    """
    if known:
        resolution.reasons["epochs"] = _reason(known)
    try:
        is_kept = settings == read_resolved(folder)
    except CounterpointError:
        is_kept = False
    if not is_kept:
        _write_resolved(folder, resolution, folder.run_id)
    # config.yaml is missing, damaged or of another run, and nothing depends on it.
    with contextlib.suppress(UsageError, StaleFileError):
        asked = read_yaml_mapping(folder.config)
        check_settings(folder, folder.config)
        if known and asked.get("epochs") != settings.epochs:
            text = dump_yaml({**asked, "epochs": settings.epochs})
            write_text(folder.config, sealed_text(with_run(f"# epochs: {_reason(known)}\n{text}", folder.run_id)))


def _write_resolved(folder: RunFolder, resolution: Resolution, run_id: str | None) -> None:
    """Write every setting that has an effect; reasons that are known from before are kept."""
    resolved = without_idle(resolution.settings, resolution.idle)
    reasons = resolution.reasons
    with contextlib.suppress(UsageError, TypeError):  # there is none yet, or none that can be read
        # A setting that is filled in already gives no reason when the run goes on.
        reasons = {**dict(leaves(read_yaml_mapping(folder.resolved).get("reasons", {}))), **reasons}
    # In the order of names: a run that goes on finds reasons in another order than one that begins.
    text = dump_yaml({**resolved, "reasons": dict(sorted(reasons.items()))})
    write_text(folder.resolved, sealed_text(with_run(text, run_id)))


def _reason(known: Sequence[Continuation]) -> str:
    """Why a run has the epochs that it has."""
    parts = [f"to {each.to_epoch} from epoch {each.from_epoch} on" for each in known]
    return (
        f"continued: {known[0].planned} at first, {', '.join(parts)}; each time the schedule is laid over all of them"
    )
