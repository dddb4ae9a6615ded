"""How one run begins or goes on: what becomes of its folder, its parts put together, and the training."""

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from counterpoint.core.derived_files import check_settings
from counterpoint.core.dist import broadcast_text, ranks_that_differ
from counterpoint.core.errors import CounterpointError, DataError, RunError, StaleFileError, UsageError
from counterpoint.core.files import sealed_text, with_run, write_text
from counterpoint.core.run import Run, as_run
from counterpoint.core.run_files import check_free, is_beginning
from counterpoint.core.run_records import Continuation, RunStatus
from counterpoint.core.rundir import RUN, RunFolder, open_run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.terminal_text import shown
from counterpoint.core.torch_state import require_float32
from counterpoint.core.user_files import shown_name
from counterpoint.core.validation import as_yaml, dump_yaml, leaves, read_yaml_mapping
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.placement import Placement, from_first_rank, on_all_ranks, on_first_rank, place
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.nn.trained import is_saved
from counterpoint.runs.active_settings import check_choices, refuse_idle, without_idle
from counterpoint.runs.assembly import Assembled, assemble, training_job
from counterpoint.runs.execution import Hold, execute, first_status, new_run_id, of_run
from counterpoint.runs.recipes import reasons_of, recipe_named
from counterpoint.runs.resolve import Resolution, resolve_holdout
from counterpoint.runs.resuming import (
    CONTINUATIONS,
    check_inputs,
    continuations_of,
    continue_run,
    continued_settings,
    further_epochs,
    readable_status,
    recorded_settings,
    repair,
    threads_of_begin,
)
from counterpoint.runs.user_inputs import Given, open_given
from counterpoint.runs.warm_start import WarmStart, initial_weights, weights_of_begun

GO_ON, REPLACE, BEGIN = "go on", "replace", "begin"


@dataclass(frozen=True)
class Start:
    """What a training begins with beside its settings.

    Attributes:
        given: what is in memory.
        placement: device and ranks.
        reporter: shows progress, on the first rank.
        resume: go on if there is a run.
        overwrite: replace a run that is there.
        allow_changed: when going on, take over what changes no weight.
        epochs: when going on, how many there shall be in all; None leaves that as it is.
    """

    given: Given
    placement: Placement
    reporter: Reporter
    _: KW_ONLY
    resume: bool = False
    overwrite: bool = False
    allow_changed: bool = False
    epochs: int | None = None

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, and let the first rank alone speak."""
        if self.resume and self.overwrite:
            raise UsageError("--resume and --overwrite exclude each other")
        if self.placement.ranks.rank > 0:
            object.__setattr__(self, "reporter", Reporter(quiet=True))  # the way into a frozen record


def train_one(folder: RunFolder, settings: TrainSettings, start: Start) -> Run:
    """Train one run; the ranks are joined.

    Args:
        folder: of the run.
        settings: as they were asked for.
        start: what else it begins with.
    """
    with Hold(folder, start.reporter) as hold:
        on_first_rank(lambda: hold.take() if folder.is_ours else None)  # what it says is read under the lock
        # Rank 0 decides for all: it will soon change what the others would find in the folder.
        way = from_first_rank(lambda: _way(folder, start))
        if way == GO_ON:
            return go_on_with(folder, continued(folder, settings, start), start)
        assembled, job = try_assembly(folder, settings, start)
        # Only now is an old run replaced: no mistake in settings or data has cost it.
        on_first_rank(lambda: hold.create(overwrite=way == REPLACE))
        job = of_run(job, new_run_id(assembled, start.given))
        status = first_status(assembled, start.given).model_copy(update={"run_id": job.facts.get(RUN)})
        on_first_rank(lambda: _describe(folder, settings, assembled.resolution, status))
        return execute(job, start.given, assembled, start.reporter)


def continued(folder: RunFolder, settings: TrainSettings, start: Start) -> TrainSettings:
    """Settings with which a run goes on that was asked for again; see ``continued_settings``."""
    recorded = recorded_settings(folder)
    if start.epochs is not None:  # they are asked for by their number in all: see `further_epochs`
        settings = settings.model_copy(update={"epochs": recorded.epochs})
    return continued_settings(folder, recorded, settings, allow_changed=start.allow_changed)


def try_assembly(folder: RunFolder, settings: TrainSettings, start: Start) -> tuple[Assembled, TrainingJob]:
    """Every part of a run that is to begin, so that all mistakes show before anything is written."""
    check_choices(settings)  # before any data are read
    assembled, job = on_all_ranks(lambda: _assemble(folder, settings, start, initial_weights(settings)))
    # Again, as which views have an effect depends on the data.
    refuse_idle(settings, assembled.resolution.idle)
    _check_alike(job, assembled)
    return assembled, job


def open_job(run: Run | str | Path, reporter: Reporter) -> TrainingJob:
    """Build a run's job again, to look at it; nothing is written and no rank is joined.

    Args:
        run: the run or its folder, as for ``resume``.
        reporter: shows progress while the data are read.

    Raises:
        RunError: not a run, or the data changed since it began.
    """
    known = as_run(run)
    folder, settings = known.folder, read_resolved(known.folder)
    placement = place(settings.engine.device, settings.engine.precision)
    start = Start(Given.of(known), placement, reporter)
    assembled, job = _assemble(folder, settings, start, weights_of_begun(folder, settings))
    check_inputs(folder, assembled.settings, assembled.source.fingerprint)
    return of_run(job, folder.run_id)


def out_folder(settings: TrainSettings) -> RunFolder:
    """The folder that is asked for.

    Raises:
        UsageError: safetensors could not write there.
    """
    out = settings.out or default_out(settings)
    if shown_name(out) != out:
        raise UsageError(f"out {shown_name(out)} is not UTF-8, as safetensors needs it; choose another name")
    return RunFolder(Path(out))


def default_out(settings: TrainSettings) -> str:
    """Where a run goes when nobody says."""
    if settings.data is None:
        return "runs/unnamed"  # never created: opening the data fails first, with advice
    # Not Path.resolve: links may go round.
    stem = Path(os.path.realpath(os.path.expanduser(settings.data))).stem
    how = settings.method if settings.recipe is None else Path(settings.recipe).stem
    return f"runs/{shown_name(stem)}-{how}"


def go_on_with(folder: RunFolder, settings: TrainSettings, start: Start) -> Run:
    """Go on with a run, which the first rank holds."""
    given, reporter = start.given, start.reporter
    further = on_all_ranks(lambda: further_epochs(folder, settings, start.epochs))
    if from_first_rank(lambda: "done" if further is None and _is_done(folder) else "") == "done":
        reporter.say(f"{folder.path} is finished; nothing to resume")
        return given.run_at(folder.path)
    with threads_of_begin(folder, settings, reporter):
        if further is not None:
            settings = settings.model_copy(update={"epochs": further.to_epoch})
        assembled, job = on_all_ranks(lambda: _assemble(folder, settings, start, weights_of_begun(folder, settings)))
        _check_alike(job, assembled)
        on_all_ranks(lambda: check_inputs(folder, assembled.settings, assembled.source.fingerprint, further))
        known = on_all_ranks(lambda: continuations_of(folder))
        status = first_status(assembled, given).model_copy(update={"continuations": known} if known else {})
        on_first_rank(lambda: repair(folder, status, reporter, allow_changed=start.allow_changed))
        job = of_run(job, on_all_ranks(lambda: folder.run_id))
        if further is not None:
            rate = job.schedule(min(further.from_step, job.schedule.num_steps))
            reporter.say(
                f"goes on from epoch {further.from_epoch} to {further.to_epoch} (it was to have {further.planned}); "
                f"the learning rate follows its schedule over all {further.to_epoch} from here on, and begins with "
                f"{rate:.1e}"
            )
            on_first_rank(lambda: continue_run(folder, further))
            known = (*known, further)
        if known:
            job = replace(job, facts={**job.facts, CONTINUATIONS: [each.written() for each in known]})
        on_first_rank(lambda: keep_changes(folder, settings, assembled.resolution, known))
        return execute(job, given, assembled, reporter, is_resumed=True)


def _is_done(folder: RunFolder) -> bool:
    """Whether nothing is left to do; with a damaged encoder there is: the last checkpoint gives it again."""
    status = readable_status(folder)
    return status is not None and status.status == "finished" and is_saved(folder)


def _assemble(
    folder: RunFolder, settings: TrainSettings, start: Start, weights: WarmStart | None
) -> tuple[Assembled, TrainingJob]:
    """Open the data and build every part, before anything is written."""
    require_float32()
    source = open_given(settings, start.given, start.reporter, side=None if weights is None else weights.side)
    assembled = assemble(resolve_holdout(settings, source), source, start.placement, start.given, weights)
    if begun := assembled.start:
        for remark in begun.remarks:
            start.reporter.say(f"{begun.name}: {remark}")
    return assembled, training_job(assembled, folder)


def _way(folder: RunFolder, start: Start) -> str:
    """Whether to go on with what stands in the folder, to replace it, or to begin; raises before the data are read."""
    if is_beginning(folder) or not folder.path.exists():
        return BEGIN
    launch = None
    with contextlib.suppress(RunError):
        launch = folder.read_status().launch
    if folder.is_ours and (start.resume or is_restart(start.placement, launch)):
        open_run(folder.path)  # damage is told, and what repairs it
        return GO_ON
    check_free(folder, overwrite=start.overwrite)
    return REPLACE


def is_restart(placement: Placement, launch: str | None) -> bool:
    """Whether the launcher has started these ranks again to go on with what they began.

    Args:
        placement: the ranks.
        launch: who began it; None if the start before this one was killed before it had written that.
    """
    ranks = placement.ranks
    return ranks.restarts > 0 and ranks.launch != "" and launch in (None, ranks.launch)


def check_has_begun(folder: RunFolder) -> None:
    """Require more than the beginnings of a run.

    Raises:
        RunError: a start was killed before the run had begun.
    """
    if is_beginning(folder):
        raise RunError(
            f"{folder.path} holds only the beginning of a run, which was stopped before its first step; start it again "
            "with the `counterpoint train` that began it"
        )


def _check_alike(job: TrainingJob, assembled: Assembled) -> None:
    """All ranks must have the same settings, samples and preparation: machines may hold copies of different age."""
    facts, card = {**job.facts, "num_threads": None}, assembled.encoder.card  # machines may have other numbers of cores
    if odd := ranks_that_differ(json.dumps([facts, assembled.split.fingerprint, card.mean, card.std])):
        raise DataError(
            f"rank {', '.join(map(str, odd))} sees other data or settings than rank 0 (rank 0's data have the "
            f"fingerprint {broadcast_text(assembled.source.fingerprint)}); use one shared copy, and name engine.device "
            "and engine.precision where machines are unlike"
        )


def _describe(folder: RunFolder, settings: TrainSettings, resolution: Resolution, status: RunStatus) -> None:
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
