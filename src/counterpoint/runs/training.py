"""Train a run, and go on with one: from settings to a run folder with an encoder in it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from counterpoint.core.dist import broadcast_text, is_first_rank, ranks_that_differ
from counterpoint.core.errors import DataError, RunError, UsageError
from counterpoint.core.files import write_text
from counterpoint.core.own_parts import CUSTOM
from counterpoint.core.ranks import Ranks
from counterpoint.core.run_lock import lock_run
from counterpoint.core.rundir import Run, RunFolder, as_run, create_run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.user_files import shown_name
from counterpoint.core.validation import as_yaml, build, dump_yaml, nest, read_yaml_mapping
from counterpoint.data.sources import ARRAY
from counterpoint.data.views.own_views import as_views
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.placement import Placement, from_first_rank, on_all_ranks, on_first_rank, place, ranks_joined
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.losses.own_loss import as_loss
from counterpoint.nn.trained import is_saved
from counterpoint.runs.assembly import Assembled, assemble, training_job
from counterpoint.runs.changes import continued_settings
from counterpoint.runs.effects import check_choices, refuse_idle, without_idle
from counterpoint.runs.given import Given, open_given, with_named_parts
from counterpoint.runs.resolve import Resolution, resolve_holdout
from counterpoint.runs.running import execute, first_status

GO_ON, REPLACE, BEGIN = "go on", "replace", "begin"
CREATED = "created"  # status of a run whose folder is being made


def train(
    data: Any = None,
    *,
    labels: Any = None,
    encoder: str | nn.Module | None = None,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Train an encoder by contrast and write a run folder.

    Args:
        data: a named set, a path (folder, ``.npy``, ``.npz``, ``.csv``, ``.tar``, ...), an array or a tensor.
        labels: one per sample, for arrays; evaluation and supervised methods use them.
        encoder: a name of the encoder catalogue, ``timm:NAME``, or your own module, which stays as it is:
            a copy is trained.
        resume: go on if the run folder holds a run already.
        overwrite: replace the run folder if it holds a run already.
        quiet: show no progress.
        settings: any field of ``TrainSettings``: ``method="ncl"``, ``out="runs/ncl"``, ``epochs=30``,
            ``optim={"name": "sgd"}`` or ``**{"optim.name": "sgd"}``. ``loss`` may also be a loss of your own, of which
            a copy is trained with: one of ``counterpoint.losses``, or any module called as ``loss(z0, z1)``; and
            ``views`` a function of your own, called as ``views(samples, draws)`` (see ``OwnViews``).

    Returns:
        The run.

    Raises:
        UsageError: a setting is wrong.
        DataError: the data cannot be used.
        RunError: the run folder exists, is in use, or cannot be written.
        TrainingError: a step cannot be taken.
        InterruptedRunError: stopped by a signal, after saving.
    """
    # What has a name is recorded in the settings; an array, module or function is not, and must be given again.
    is_named = data is None or isinstance(data, str | Path)
    asked = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    if data is not None:
        asked["data"] = str(data) if is_named else ARRAY
    if encoder is not None:
        asked["encoder"] = encoder if isinstance(encoder, str) else CUSTOM
    own_loss = own_views = None
    if not isinstance(asked.get("loss", {}), Mapping):
        own_loss, asked["loss"] = as_loss(asked["loss"]), {"name": CUSTOM}
    if not isinstance(asked.get("views", {}), Mapping):
        own_views, asked["views"] = as_views(asked["views"]), {"preset": CUSTOM}
    module = encoder if isinstance(encoder, nn.Module) else None
    given = Given(None if is_named else data, labels, module, own_loss, own_views)
    return train_from(nest(asked), given, resume=resume, overwrite=overwrite, reporter=Reporter(quiet=quiet))


def train_from(
    asked: Mapping[str, Any],
    given: Given,
    *,
    reporter: Reporter,
    resume: bool = False,
    overwrite: bool = False,
    allow_changed: bool = False,
) -> Run:
    """Train from a nested mapping of settings; see ``train``. Under torchrun every rank calls it.

    Args:
        asked: the settings.
        given: what is in memory.
        reporter: shows progress (on the first rank).
        resume: go on if there is a run.
        overwrite: replace a run that is there.
        allow_changed: when going on, take over settings that change no weight.
    """
    asked, given = with_named_parts(asked, given)
    settings = build(TrainSettings, asked, "settings")
    out = settings.out or default_out(settings)
    if shown_name(out) != out:
        raise UsageError(f"out {shown_name(out)} is not UTF-8, as safetensors needs it; choose another name")
    folder = RunFolder(Path(out))
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    placement = place(settings.engine.device, settings.engine.precision)
    with ranks_joined(placement):
        reporter = reporter if is_first_rank() else Reporter(quiet=True)
        # Rank 0 decides for all: it will soon change what the others would find in the folder.
        way = from_first_rank(lambda: _way(folder, placement.ranks, resume=resume, overwrite=overwrite))
        if way == GO_ON:
            known = continued_settings(folder, settings, allow_changed=allow_changed)
            return _continue(folder, given, known, placement, reporter)
        check_choices(settings)  # before any data are read
        assembled, job = on_all_ranks(lambda: _assemble(folder, settings, given, placement, reporter))
        # Again, as which views have an effect depends on the data.
        refuse_idle(settings, assembled.resolution.idle)
        _check_alike(job, assembled)
        # Only now is an old run replaced: no mistake in settings or data has cost it.
        on_first_rank(lambda: _create(folder, settings, assembled, given, overwrite=way == REPLACE))
        return execute(job, given, assembled, reporter)


def resume(run: Run | str | Path, *, quiet: bool = False) -> Run:
    """Go on with an interrupted run from its newest valid checkpoint.

    Args:
        run: the run or its folder; ``Run(path, data=array, encoder=module)`` if it was trained on an array or with
            your own module.
        quiet: show no progress.

    Raises:
        RunError: not a run, in use, or no usable checkpoint.
        DataError: the data changed since the run began.
    """
    known = as_run(run)
    folder, settings = known.folder, read_resolved(known.folder)
    placement = place(settings.engine.device, settings.engine.precision)
    with ranks_joined(placement):
        reporter = Reporter(quiet=quiet or not is_first_rank())
        return _continue(folder, Given.of(known), settings, placement, reporter)


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
    given = Given.of(known)
    assembled, job = _assemble(folder, settings, given, placement, reporter)
    _refuse_other_data(folder, assembled)
    return job


def default_out(settings: TrainSettings) -> str:
    """Where a run goes when nobody says."""
    if settings.data is None:
        return "runs/unnamed"  # never created: opening the data fails first, with advice
    # Not Path.resolve: links may go round.
    stem = Path(os.path.realpath(os.path.expanduser(settings.data))).stem
    return f"runs/{shown_name(stem)}-{settings.method}"


def _continue(
    folder: RunFolder, given: Given, settings: TrainSettings, placement: Placement, reporter: Reporter
) -> Run:
    """Go on with a run."""
    # With a damaged encoder it is not done: the last checkpoint gives it again.
    is_done = folder.read_status().status == "finished" and is_saved(folder)
    if from_first_rank(lambda: "done" if is_done else "") == "done":
        reporter.say(f"{folder.path} is finished; nothing to resume")
        return given.run_at(folder.path)
    assembled, job = on_all_ranks(lambda: _assemble(folder, settings, given, placement, reporter))
    _check_alike(job, assembled)
    on_all_ranks(lambda: _refuse_other_data(folder, assembled))
    on_first_rank(lambda: _keep_changes(folder, settings, assembled.resolution))
    return execute(job, given, assembled, reporter, is_resumed=True)


def _assemble(
    folder: RunFolder, settings: TrainSettings, given: Given, placement: Placement, reporter: Reporter
) -> tuple[Assembled, TrainingJob]:
    """Open the data and build every part, before anything is written."""
    source = open_given(settings, given, reporter)
    assembled = assemble(resolve_holdout(settings, source), source, placement, given)
    return assembled, training_job(assembled, folder)


def _way(folder: RunFolder, ranks: Ranks, *, resume: bool, overwrite: bool) -> str:
    """Whether to go on with what stands in the folder, to replace it, or to begin; raises before the data are read."""
    status = folder.read_status() if folder.status.exists() else None
    has_begun = status is not None and status.status != CREATED  # else it was killed while its folder was being made
    launch = None if status is None else status.launch
    # None: the start before this one was killed before it had written who it was.
    is_own = ranks.restarts > 0 and ranks.launch != "" and launch in (None, ranks.launch)
    if has_begun and (resume or is_own):
        return GO_ON
    if overwrite or (status is not None and not has_begun and (resume or is_own)):
        return REPLACE
    if folder.path.exists() and any(folder.path.iterdir() if folder.path.is_dir() else [1]):
        create_run(folder.path, overwrite=False)  # says what to do about it
    return BEGIN


def _create(folder: RunFolder, settings: TrainSettings, assembled: Assembled, given: Given, *, overwrite: bool) -> None:
    """Create the run folder with what is known before the first step."""
    if overwrite and folder.status.exists():
        with lock_run(folder.path):  # raises where another process is at work there
            pass
    create_run(folder.path, overwrite=overwrite)
    write_text(folder.config, as_yaml(settings, only_set=True))
    _write_resolved(folder, assembled.resolution)
    folder.update_status(**first_status(assembled, given).written())


def _write_resolved(folder: RunFolder, resolution: Resolution) -> None:
    """Write every setting that has an effect; reasons that are known from before are kept."""
    resolved = without_idle(resolution.settings, resolution.idle)
    reasons = resolution.reasons
    if folder.resolved.exists():
        # A setting that is filled in already gives no reason when the run goes on.
        reasons = {**read_yaml_mapping(folder.resolved).get("reasons", {}), **reasons}
    write_text(folder.resolved, dump_yaml({**resolved, "reasons": reasons}))


def _check_alike(job: TrainingJob, assembled: Assembled) -> None:
    """All ranks must have the same settings, samples and preparation: machines may hold copies of different age."""
    facts, card = {**job.facts, "num_threads": None}, assembled.encoder.card  # machines may have other numbers of cores
    odd = ranks_that_differ(json.dumps([facts, assembled.split.fingerprint, card.mean, card.std]))
    if odd:
        numbers = ", ".join(map(str, odd))
        raise DataError(
            f"rank {numbers} sees other data or settings than rank 0 (rank 0's data have the fingerprint "
            f"{broadcast_text(assembled.source.fingerprint)}); use one shared copy, and name engine.device and "
            "engine.precision where machines are unlike"
        )


def _keep_changes(folder: RunFolder, settings: TrainSettings, resolution: Resolution) -> None:
    """Write harmless changes, which the user has allowed; the first rank alone looks, as it is the one that writes."""
    if settings != read_resolved(folder):
        with lock_run(folder.path):  # raises where another process is at work there
            _write_resolved(folder, resolution)


def _refuse_other_data(folder: RunFolder, assembled: Assembled) -> None:
    """A run goes on with the samples it began with."""
    began = folder.read_status().data_fingerprint
    if assembled.source.fingerprint != began:
        raise RunError(
            f"the data changed since {folder.path} began (fingerprint {assembled.source.fingerprint}, then {began})"
        )
