"""Train a run, and go on with one: from settings to a run folder with an encoder in it."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from counterpoint.core.dist import broadcast_text, ranks_that_differ
from counterpoint.core.errors import CounterpointError, DataError, RunError, UsageError
from counterpoint.core.files import sealed_text, write_text
from counterpoint.core.own_parts import CUSTOM
from counterpoint.core.ranks import Ranks
from counterpoint.core.run_contents import check_free, is_beginning
from counterpoint.core.rundir import Run, RunFolder, as_run, open_run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import only_training, require_float32, usual_modes
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
from counterpoint.runs.holding import Hold
from counterpoint.runs.repair import check_inputs, readable_status, recorded_settings, repair
from counterpoint.runs.resolve import Resolution, resolve_holdout
from counterpoint.runs.running import execute, first_status
from counterpoint.runs.warm_start import WarmStart, initial_weights, weights_of_begun

GO_ON, REPLACE, BEGIN = "go on", "replace", "begin"


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


@usual_modes()
@only_training()
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
    reporter = reporter if placement.ranks.rank == 0 else Reporter(quiet=True)
    with ranks_joined(placement), Hold(folder, reporter) as hold:
        on_first_rank(lambda: hold.take() if folder.is_ours else None)  # what it says is read under the lock
        # Rank 0 decides for all: it will soon change what the others would find in the folder.
        way = from_first_rank(lambda: _way(folder, placement.ranks, resume=resume, overwrite=overwrite))
        if way == GO_ON:
            known = continued_settings(folder, recorded_settings(folder), settings, allow_changed=allow_changed)
            return _continue(folder, given, known, placement, reporter, allow_changed=allow_changed)
        check_choices(settings)  # before any data are read
        assembled, job = on_all_ranks(
            lambda: _assemble(folder, settings, given, placement, reporter, initial_weights(settings))
        )
        # Again, as which views have an effect depends on the data.
        refuse_idle(settings, assembled.resolution.idle)
        _check_alike(job, assembled)
        # Only now is an old run replaced: no mistake in settings or data has cost it.
        on_first_rank(lambda: hold.create(overwrite=way == REPLACE))
        on_first_rank(lambda: _describe(folder, settings, assembled, given))
        return execute(job, given, assembled, reporter)


@usual_modes()
@only_training()
def resume(run: Run | str | Path, *, allow_changed: bool = False, quiet: bool = False) -> Run:
    """Go on with an interrupted run from its newest valid checkpoint.

    Args:
        run: the run or its folder; ``Run(path, data=array, encoder=module)`` if it was trained on an array or with
            your own module.
        allow_changed: go on where settings or lines of figures were changed that no weight depends on.
        quiet: show no progress.

    Raises:
        RunError: not a run, in use, no usable checkpoint, or the data changed since the run began.
        UsageError: its settings were changed.
    """
    known = as_run(run, needs_status=False)
    folder = known.folder
    check_has_begun(folder)
    # Where the ranks meet depends on the device: read before they do, and again under the lock.
    settings = recorded_settings(folder, allow_changed=allow_changed)
    placement = place(settings.engine.device, settings.engine.precision)
    reporter = Reporter(quiet=quiet or placement.ranks.rank > 0)
    with ranks_joined(placement), Hold(folder, reporter) as hold:
        on_first_rank(hold.take)
        settings = on_all_ranks(lambda: recorded_settings(folder, allow_changed=allow_changed))
        return _continue(folder, Given.of(known), settings, placement, reporter, allow_changed=allow_changed)


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
    start = weights_of_begun(folder, settings)
    assembled, job = _assemble(folder, settings, given, placement, reporter, start)
    check_inputs(folder, assembled.settings, assembled.source.fingerprint)
    return job


def default_out(settings: TrainSettings) -> str:
    """Where a run goes when nobody says."""
    if settings.data is None:
        return "runs/unnamed"  # never created: opening the data fails first, with advice
    # Not Path.resolve: links may go round.
    stem = Path(os.path.realpath(os.path.expanduser(settings.data))).stem
    return f"runs/{shown_name(stem)}-{settings.method}"


def _continue(
    folder: RunFolder,
    given: Given,
    settings: TrainSettings,
    placement: Placement,
    reporter: Reporter,
    *,
    allow_changed: bool,
) -> Run:
    """Go on with a run, which the first rank holds."""
    if from_first_rank(lambda: "done" if _is_done(folder) else "") == "done":
        reporter.say(f"{folder.path} is finished; nothing to resume")
        return given.run_at(folder.path)
    assembled, job = on_all_ranks(
        lambda: _assemble(folder, settings, given, placement, reporter, weights_of_begun(folder, settings))
    )
    _check_alike(job, assembled)
    on_all_ranks(lambda: check_inputs(folder, assembled.settings, assembled.source.fingerprint))
    on_first_rank(lambda: repair(folder, first_status(assembled, given), reporter, allow_changed=allow_changed))
    on_first_rank(lambda: _keep_changes(folder, settings, assembled.resolution))
    return execute(job, given, assembled, reporter, is_resumed=True)


def _is_done(folder: RunFolder) -> bool:
    """Whether nothing is left to do; with a damaged encoder there is: the last checkpoint gives it again."""
    status = readable_status(folder)
    return status is not None and status.status == "finished" and is_saved(folder)


def _assemble(
    folder: RunFolder,
    settings: TrainSettings,
    given: Given,
    placement: Placement,
    reporter: Reporter,
    start: WarmStart | None,
) -> tuple[Assembled, TrainingJob]:
    """Open the data and build every part, before anything is written."""
    require_float32()
    source = open_given(settings, given, reporter, side=None if start is None else start.side)
    assembled = assemble(resolve_holdout(settings, source), source, placement, given, start)
    if begun := assembled.start:
        for remark in begun.remarks:
            reporter.say(f"{begun.name}: {remark}")
    return assembled, training_job(assembled, folder)


def _way(folder: RunFolder, ranks: Ranks, *, resume: bool, overwrite: bool) -> str:
    """Whether to go on with what stands in the folder, to replace it, or to begin; raises before the data are read."""
    if is_beginning(folder) or not folder.path.exists():
        return BEGIN
    status = readable_status(folder) if folder.is_ours else None
    launch = None if status is None else status.launch
    # None: the start before this one was killed before it had written who it was.
    is_own = ranks.restarts > 0 and ranks.launch != "" and launch in (None, ranks.launch)
    if folder.is_ours and (resume or is_own):
        open_run(folder.path)  # damage is told, and what repairs it
        return GO_ON
    check_free(folder, overwrite=overwrite)
    return REPLACE


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


def _describe(folder: RunFolder, settings: TrainSettings, assembled: Assembled, given: Given) -> None:
    """Write what is known of a run before the first step."""
    write_text(folder.config, sealed_text(as_yaml(settings, only_set=True)))
    _write_resolved(folder, assembled.resolution)
    folder.write_status(first_status(assembled, given))


def _write_resolved(folder: RunFolder, resolution: Resolution) -> None:
    """Write every setting that has an effect; reasons that are known from before are kept."""
    resolved = without_idle(resolution.settings, resolution.idle)
    reasons = resolution.reasons
    with contextlib.suppress(UsageError):  # there is none yet, or none that can be read
        # A setting that is filled in already gives no reason when the run goes on.
        reasons = {**read_yaml_mapping(folder.resolved).get("reasons", {}), **reasons}
    write_text(folder.resolved, sealed_text(dump_yaml({**resolved, "reasons": reasons})))


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
    """Write harmless changes, which the user has allowed, and settings that cannot be read any more."""
    try:
        is_kept = settings == read_resolved(folder)
    except CounterpointError:
        is_kept = False
    if not is_kept:
        _write_resolved(folder, resolution)
