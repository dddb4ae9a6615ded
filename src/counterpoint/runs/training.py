"""Train a run, or one for each of several seeds, and continue with them: what `cp.train` and `cp.resume` do.

Runs of several seeds lie in one folder, and have the same samples and split.
"""

import datetime
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, overload

from torch import nn

from counterpoint.core import __version__
from counterpoint.core.errors import InterruptedRunError, RunError, UsageError
from counterpoint.core.run import Run, SeedRuns, as_run
from counterpoint.core.rundir import RunFolder
from counterpoint.core.schemas import SeedsRecord
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import only_training, usual_modes
from counterpoint.core.validation import build, flat, merge, nest
from counterpoint.data.source import Source
from counterpoint.engine.placement import from_first_rank, on_all_ranks, on_first_rank, place, ranks_joined
from counterpoint.engine.progress import Reporter
from counterpoint.runs.active_settings import check_choices
from counterpoint.runs.execution import Hold
from counterpoint.runs.one_run import BEGIN, GO_ON, Start, go_on_with, is_restart, train_one, try_assembly
from counterpoint.runs.resuming import continued_settings, recorded_settings
from counterpoint.runs.run_description import command_line
from counterpoint.runs.run_files import check_free_for_seeds, is_beginning, is_beginning_of_seeds
from counterpoint.runs.user_inputs import UserInputs, open_user_data, out_folder, with_named_parts, with_own_columns
from counterpoint.runs.warm_start import initial_weights

MOST_SEEDS = 1000
LAST_SEED = 2**63 - 1


@overload
def train(data: Any = None, *, seeds: int, **settings: Any) -> SeedRuns: ...


@overload
def train(data: Any = None, *, seeds: None = None, **settings: Any) -> Run: ...


def train(
    data: Any = None,
    *,
    labels: Any = None,
    encoder: str | nn.Module | None = None,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Run | SeedRuns:
    """Train an encoder by contrast and write a run folder.

    Args:
        data: a named set, a path (folder, ``.npy``, ``.npz``, ``.tar``, ...), an array or a tensor.
        labels: class labels, one per sample, for arrays; evaluation and supervised methods use them.
        encoder: a name of the encoder catalogue, ``timm:NAME``, or your own module, of which a copy is trained.
        resume: continue if the run folder already has a run; with several seeds, continue the unfinished ones.
        overwrite: replace the run folder if it already has a run; runs of several seeds stay.
        quiet: show no progress.
        settings: any field of ``TrainSettings``: ``method="ncl"``, ``out="runs/ncl"``, ``epochs=30``,
            ``optim={"name": "sgd"}`` or ``**{"optim.name": "sgd"}``. ``recipe`` is that of a published table,
            which the others override. ``loss`` may also be a loss object, of which a copy is used: one of
            ``counterpoint.losses``, or any module called as ``loss(z0, z1)``; and ``views`` a function called as
            ``views(samples, draws)`` (see ``OwnViews``). ``seeds`` is the number of runs to train, with ``seed``,
            ``seed + 1``, ..., each in a folder ``seed-<number>`` of ``out``, on the same samples.

    Returns:
        The run; with ``seeds`` the runs.

    Raises:
        UsageError: a setting is wrong.
        DataError: the data cannot be used.
        RunError: the run folder exists, is in use, or cannot be written.
        TrainingError: a step cannot be taken.
        InterruptedRunError: stopped by a signal, after saving.
    """
    if encoder is not None:
        settings["encoder"] = encoder
    seeds = settings.pop("seeds", None)
    # What has a name is recorded in the settings; an array, module or function is not, and must be given again.
    user_settings, objects = UserInputs.of_call(data, settings, labels)
    options: dict[str, Any] = {"seeds": seeds, "resume": resume, "overwrite": overwrite}
    return train_from(user_settings, objects, reporter=Reporter(quiet=quiet), **options)


@usual_modes()
@only_training()
def train_from(
    user_settings: Mapping[str, Any],
    objects: UserInputs,
    *,
    reporter: Reporter,
    seeds: int | None = None,
    **options: Any,
) -> Run | SeedRuns:
    """Train from a nested mapping of settings; see ``train``. Under torchrun every rank calls it.

    Args:
        user_settings: the settings.
        objects: data and parts that are in memory.
        reporter: shows progress (on the first rank).
        seeds: number of runs; None for one run, which is not in a folder of several.
        options: ``resume`` and ``overwrite``, as ``Start`` has them.
    """
    user_settings, objects = with_named_parts(user_settings, objects)
    settings = build(TrainSettings, user_settings, "settings")
    start = Start(objects, place(settings.engine.device, settings.engine.precision), reporter, **options)
    if seeds is not None:
        return _train_seeds(out_folder(settings), user_settings, seeds, start)
    with ranks_joined(start.placement):
        return train_one(out_folder(settings), settings, start)


@usual_modes()
@only_training()
def resume(run: Run | str | Path, *, quiet: bool = False) -> Run:
    """Go on with an interrupted run from its newest valid checkpoint.

    Args:
        run: the run or its folder; ``Run(path, data=array, encoder=module)`` if it was trained on an array or with
            your own module.
        quiet: show no progress.

    Raises:
        RunError: not a run, in use, no usable checkpoint, or the data changed since the run began.
        UsageError: a setting that a weight depends on was changed.
    """
    opened_run = as_run(run, needs_status=False)
    folder = opened_run.folder
    if is_beginning(folder):
        raise RunError(
            f"{folder.path} holds only the beginning of a run, which was stopped before its first step; start it again "
            "with the `counterpoint train` that began it"
        )
    # Where the ranks meet depends on the device: read before they do, and again under the lock.
    settings = recorded_settings(folder)
    placement = place(settings.engine.device, settings.engine.precision)
    start = Start(UserInputs.of(opened_run), placement, Reporter(quiet=quiet))
    with ranks_joined(placement), Hold(folder, start.reporter) as hold:
        on_first_rank(hold.take)
        settings = on_all_ranks(lambda: recorded_settings(folder))
        return go_on_with(folder, settings, start)


def resume_seeds(folder: RunFolder, *, quiet: bool = False) -> SeedRuns:
    """Go on with every run of a folder of several seeds; see ``resume``.

    Raises:
        UsageError: they were trained on an array or with parts of the user's own; ``cp.train(..., resume=True)`` takes
            these again.
    """
    record = folder.read_seeds()
    settings = build(TrainSettings, {**record.settings, "out": str(folder.path)}, str(folder.seeds))
    user_settings, reporter = settings.model_dump(exclude_unset=True), Reporter(quiet=quiet)
    return cast(
        SeedRuns, train_from(user_settings, UserInputs(), reporter=reporter, seeds=len(record.seeds), resume=True)
    )


def _train_seeds(folder: RunFolder, user_settings: Mapping[str, Any], num_seeds: int, start: Start) -> SeedRuns:
    """Train a run for each of ``seed``, ``seed + 1``, ...

    Finished seeds of a folder that is continued stay as they are, and those that have not begun begin with the
    settings of the others. Each run is locked while it is trained, and their folder all the time.
    """
    if isinstance(num_seeds, bool) or not isinstance(num_seeds, int) or not 1 <= num_seeds <= MOST_SEEDS:
        raise UsageError(
            f"seeds must be a whole number from 1 to {MOST_SEEDS}, got {num_seeds!r}; 3 to 5 are usual for an interval"
        )
    with ranks_joined(start.placement), Hold(folder, start.reporter) as hold:
        on_first_rank(lambda: hold.take() if folder.holds_seeds else None)  # what it says is read under the lock
        action = from_first_rank(lambda: _choose_action(folder, start))
        if action == GO_ON:
            # A setting at auto changes nothing in a resumed run.
            new_values = {path: value for path, value in flat(TrainSettings, user_settings).items() if value != "auto"}
            user_settings = merge(on_all_ranks(folder.read_seeds).settings, nest(new_values))
        settings = build(TrainSettings, user_settings, "settings")
        seeds = tuple(range(settings.seed, settings.seed + num_seeds))
        if seeds[-1] > LAST_SEED:
            raise UsageError(f"seeds must end at {LAST_SEED}, got {num_seeds} from seed {settings.seed} on")
        if action != GO_ON:
            check_choices(settings)  # before any data are read
        # Opened once for all: the split does not follow the seed either.
        begun = folder.of_seed(seeds[0]) if action == GO_ON else None
        source = on_all_ranks(lambda: _open_source(begun, settings, start))
        start = replace(start, inputs=replace(start.inputs, source=source))
        record = SeedsRecord(
            seeds=seeds,
            settings=settings.model_dump(mode="json", exclude_unset=True, exclude={"out"}),
            data_fingerprint=source.fingerprint,
            version=__version__,
            command=command_line(),
            launch=start.placement.ranks.launch,
            started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        )
        if action == GO_ON:
            on_first_rank(lambda: _update_record(folder, settings, record))
        else:
            on_first_rank(lambda: check_free_for_seeds(folder, seeds))
            try_assembly(folder.of_seed(seeds[0]), _settings_of_seed(settings, folder, seeds[0]), start)
            on_first_rank(lambda: hold.create_seeds(record))
        seed_start = replace(start, resume=action == GO_ON, overwrite=False)
        runs: list[Run] = []
        for number, seed in enumerate(seeds, start=1):
            start.reporter.say(f"seed {seed}, {number} of {num_seeds}")
            try:
                runs.append(train_one(folder.of_seed(seed), _settings_of_seed(settings, folder, seed), seed_start))
            except InterruptedRunError as error:
                remedy = f"counterpoint resume {shlex.quote(str(folder.path))}"
                raise InterruptedRunError(f"{error}, or with all seeds: {remedy}", exit_code=error.exit_code) from None
    return SeedRuns(folder.path, tuple(runs))


def _open_source(begun: RunFolder | None, settings: TrainSettings, start: Start) -> Source:
    if begun is not None and begun.is_ours and not is_beginning(begun):
        return open_user_data(with_own_columns(begun, recorded_settings(begun)), start.inputs, start.reporter)
    return open_user_data(settings, start.inputs, start.reporter, initial_weights(settings))


def _settings_of_seed(settings: TrainSettings, folder: RunFolder, seed: int) -> TrainSettings:
    return settings.model_copy(update={"seed": seed, "out": str(folder.of_seed(seed).path)})


def _choose_action(folder: RunFolder, start: Start) -> str:
    if not folder.holds_seeds or is_beginning_of_seeds(folder):
        return BEGIN
    if start.resume or is_restart(start.placement, folder.read_seeds().launch):
        return GO_ON
    check_free_for_seeds(folder, ())  # says what to do instead
    return BEGIN


def _update_record(folder: RunFolder, settings: TrainSettings, record: SeedsRecord) -> None:
    """Write the new record, and require the seeds of before, the same samples and the same settings."""
    before = folder.read_seeds()
    if not set(before.seeds) <= set(record.seeds):
        raise UsageError(
            f"cannot resume {folder.path} with seeds {_span(record.seeds)} (it has {_span(before.seeds)}); more "
            "seeds may follow, none can be left out"
        )
    if before.data_fingerprint != record.data_fingerprint:
        raise RunError(
            f"the data changed since {folder.path} began (fingerprint {record.data_fingerprint}, then "
            f"{before.data_fingerprint})"
        )
    for seed in before.seeds:
        run = folder.of_seed(seed)
        if run.is_ours and not is_beginning(run):
            continued_settings(run, _settings_of_seed(settings, folder, seed))
    folder.write_seeds(record)


def _span(seeds: tuple[int, ...]) -> str:
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
