"""Begin one run or go on with it: decide about its folder, put its parts together, and train."""

import contextlib
import hashlib
import json
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.run import Run, as_run
from counterpoint.core.rundir import RUN, RunFolder, open_run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import require_float32
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.placement import Placement, from_first_rank, on_all_ranks, on_first_rank, place
from counterpoint.engine.progress import Reporter
from counterpoint.engine.replay import weights_digest
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.runs.active_settings import check_choices, refuse_idle
from counterpoint.runs.assembly import Assembled, assemble
from counterpoint.runs.execution import Hold, execute
from counterpoint.runs.resolve import resolve_holdout
from counterpoint.runs.resuming import (
    check_inputs,
    continued_settings,
    is_done,
    repair,
    settings_hash,
    threads_of_begin,
)
from counterpoint.runs.run_description import describe, first_status, keep_changes
from counterpoint.runs.run_files import check_free, is_beginning
from counterpoint.runs.run_job import check_alike, training_job
from counterpoint.runs.user_inputs import UserInputs, open_user_data, with_own_columns
from counterpoint.runs.warm_start import initial_weights, weights_of_begun

GO_ON, REPLACE, BEGIN = "go on", "replace", "begin"


@dataclass(frozen=True)
class Start:
    """The inputs of a training other than its settings.

    Attributes:
        inputs: data and parts that are in memory.
        placement: device and ranks.
        reporter: shows progress, on the first rank.
        resume: go on if there is a run.
        overwrite: replace a run that is there.
    """

    inputs: UserInputs
    placement: Placement
    reporter: Reporter
    _: KW_ONLY
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        """Refuse ``resume`` together with ``overwrite``, and silence all ranks but the first."""
        if self.resume and self.overwrite:
            raise UsageError("--resume and --overwrite exclude each other")
        if self.placement.ranks.rank > 0:
            object.__setattr__(self, "reporter", Reporter(quiet=True))  # the way into a frozen record


def train_one(folder: RunFolder, settings: TrainSettings, start: Start) -> Run:
    """Train one run; the ranks are joined.

    Args:
        folder: the run's folder.
        settings: the settings as the user gave them.
        start: the other inputs of the training.
    """
    with Hold(folder, start.reporter) as hold:
        on_first_rank(lambda: hold.take() if folder.is_ours else None)  # what it says is read under the lock
        # Rank 0 decides for all: it will soon change what the others would find in the folder.
        action = from_first_rank(lambda: _choose_action(folder, start))
        if action == GO_ON:
            return go_on_with(folder, continued_settings(folder, settings), start)
        assembled, job = try_assembly(folder, settings, start)
        # Only now is an old run replaced: no mistake in settings or data has cost it.
        on_first_rank(lambda: hold.create(overwrite=action == REPLACE))
        job = of_run(job, new_run_id(assembled))
        status = first_status(assembled).model_copy(update={"run_id": job.facts.get(RUN)})
        on_first_rank(lambda: describe(folder, settings, assembled.resolution, status))
        return execute(job, assembled, start.reporter)


def try_assembly(folder: RunFolder, settings: TrainSettings, start: Start) -> tuple[Assembled, TrainingJob]:
    """Assemble every part of a new run, so that all mistakes show before anything is written."""
    check_choices(settings)  # before any data are read
    assembled, job = on_all_ranks(lambda: _assemble(folder, settings, start))
    # Checked again, as it depends on the data which views have an effect.
    refuse_idle(settings, assembled.resolution.idle)
    check_alike(job, assembled)
    return assembled, job


def open_job(run: Run | str | Path, reporter: Reporter) -> TrainingJob:
    """Build a run's job again, to look at it; nothing is written and no rank is joined.

    Args:
        run: the run or its folder, as for ``resume``.
        reporter: shows progress while the data are read.

    Raises:
        RunError: not a run, or the data changed since it began.
    """
    opened_run = as_run(run)
    folder, settings = opened_run.folder, read_resolved(opened_run.folder)
    placement = place(settings.engine.device, settings.engine.precision)
    start = Start(UserInputs.of(opened_run), placement, reporter)
    assembled, job = _assemble(folder, settings, start, is_begun=True)
    check_inputs(folder, assembled.settings, assembled.source.fingerprint)
    return of_run(job, folder.run_id)


def go_on_with(folder: RunFolder, settings: TrainSettings, start: Start) -> Run:
    """Go on with a run whose lock the first rank holds."""
    reporter = start.reporter
    if from_first_rank(lambda: "done" if is_done(folder) else "") == "done":
        reporter.say(f"{folder.path} is finished; nothing to resume")
        return start.inputs.run_at(folder.path)
    with threads_of_begin(folder, settings, reporter):
        assembled, job = on_all_ranks(lambda: _assemble(folder, settings, start, is_begun=True))
        check_alike(job, assembled)
        if changed := on_all_ranks(lambda: check_inputs(folder, assembled.settings, assembled.source.fingerprint)):
            reporter.say(f"continues with {changed}; no weight depends on that")
        status = first_status(assembled)
        on_first_rank(lambda: repair(folder, status, reporter))
        job = of_run(job, on_all_ranks(lambda: folder.run_id))
        on_first_rank(lambda: keep_changes(folder, settings, assembled.resolution))
        return execute(job, assembled, reporter, is_resumed=True)


def _assemble(
    folder: RunFolder, settings: TrainSettings, start: Start, *, is_begun: bool = False
) -> tuple[Assembled, TrainingJob]:
    weights = weights_of_begun(folder, settings) if is_begun else initial_weights(settings)
    require_float32()
    source_settings = with_own_columns(folder, settings) if is_begun else settings
    source = open_user_data(source_settings, start.inputs, start.reporter, weights)
    assembled = assemble(resolve_holdout(settings, source), source, start.placement, start.inputs, weights)
    if warm_start := assembled.start:
        for remark in warm_start.remarks:
            start.reporter.say(f"{warm_start.name}: {remark}")
    return assembled, training_job(assembled, folder)


def _choose_action(folder: RunFolder, start: Start) -> str:
    """Decide to go on with the run in the folder, to replace it, or to begin; raise before the data are read."""
    if is_beginning(folder) or not folder.path.exists():
        return BEGIN
    launch = None
    with contextlib.suppress(RunError):
        launch = folder.read_status().launch
    if folder.is_ours and (start.resume or is_restart(start.placement, launch)):
        open_run(folder.path)  # reports damage, and what repairs it
        return GO_ON
    check_free(folder, overwrite=start.overwrite)
    return REPLACE


def is_restart(placement: Placement, launch: str | None) -> bool:
    """Tell whether the launcher has started these ranks again to go on with what they began.

    Args:
        placement: the ranks.
        launch: id of the launch that began it; None if the start before this one was killed before it had written that.
    """
    ranks = placement.ranks
    return ranks.restarts > 0 and ranks.launch != "" and launch in (None, ranks.launch)


def new_run_id(assembled: Assembled) -> str:
    """Id of a new run: a hash of all that its numbers follow from, so that its files are the same anywhere."""
    weights = weights_digest(assembled.method.state_dict())
    origins = {name: dict(origin) for name, origin in assembled.inputs.origins.items()}
    parts = [settings_hash(assembled.settings), assembled.source.fingerprint, origins, weights]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def of_run(job: TrainingJob, run_id: str | None) -> TrainingJob:
    """Return the job with the id of its run, which its checkpoints record."""
    return job if run_id is None else replace(job, facts={**job.facts, RUN: run_id})
