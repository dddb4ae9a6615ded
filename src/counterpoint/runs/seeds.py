"""Train a method with several seeds: one folder, a run for each seed in it, all of the same samples and split."""

import datetime
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from counterpoint.core import __version__
from counterpoint.core.errors import InterruptedRunError, RunError, UsageError
from counterpoint.core.run import Run, SeedRuns
from counterpoint.core.run_files import check_free_for_seeds, is_beginning, is_beginning_of_seeds
from counterpoint.core.run_records import SeedsRecord
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import only_training, usual_modes
from counterpoint.core.validation import build, merge
from counterpoint.data.source import Source
from counterpoint.engine.placement import from_first_rank, on_all_ranks, on_first_rank, place, ranks_joined
from counterpoint.engine.progress import Reporter
from counterpoint.runs.active_settings import check_choices
from counterpoint.runs.execution import Hold, keep_earlier
from counterpoint.runs.one_run import (
    BEGIN,
    GO_ON,
    REPLACE,
    Start,
    continued,
    is_restart,
    train_one,
    try_assembly,
)
from counterpoint.runs.resuming import further_epochs, recorded_settings
from counterpoint.runs.run_description import command_line
from counterpoint.runs.user_inputs import Given, open_given, out_folder, with_named_parts
from counterpoint.runs.warm_start import initial_weights

MOST_SEEDS = 1000
LAST_SEED = 2**63 - 1


def train_seeds(
    asked: Mapping[str, Any],
    given: Given,
    num_seeds: int,
    *,
    reporter: Reporter,
    **how: Any,
) -> SeedRuns:
    """Train a run for each of ``seed``, ``seed + 1``, ...; under torchrun every rank calls it.

    Finished seeds of a folder that is gone on with stay as they are, and those that have not begun begin with the
    settings of the others.

    Args:
        asked: the settings, nested; ``seed`` is the first one, ``out`` the folder for all.
        given: what is in memory.
        num_seeds: how many, 1 to 1000.
        reporter: shows progress (on the first rank).
        how: ``resume``, ``overwrite``, ``allow_changed`` and ``epochs``, as ``Start`` has them.

    Raises:
        UsageError: a setting is wrong, or the folder is for other seeds.
        RunError: the folder exists, is in use, or cannot be written; or the data are others than those it began with.
    """
    if isinstance(num_seeds, bool) or not isinstance(num_seeds, int) or not 1 <= num_seeds <= MOST_SEEDS:
        raise UsageError(
            f"seeds must be a whole number from 1 to {MOST_SEEDS}, got {num_seeds!r}; 3 to 5 are usual for an interval"
        )
    asked, given = with_named_parts(asked, given)
    settings = build(TrainSettings, asked, "settings")
    start = Start(given, place(settings.engine.device, settings.engine.precision), reporter, **how)
    return _train_all(out_folder(settings), asked, num_seeds, start)


def resume_seeds(
    folder: RunFolder, *, epochs: int | None = None, allow_changed: bool = False, quiet: bool = False
) -> SeedRuns:
    """Go on with every run of a folder of several seeds, as ``counterpoint resume`` does.

    Args:
        folder: that holds them.
        epochs: how many there shall be in all, in each of them.
        allow_changed: go on where something was changed that no weight depends on.
        quiet: show no progress.

    Raises:
        UsageError: they were trained on an array or with parts of the user's own; ``cp.train(..., resume=True)`` takes
            these again.
    """
    record = folder.read_seeds()
    known = build(TrainSettings, {**record.settings, "out": str(folder.path)}, str(folder.seeds))
    planned = None if known.epochs == "auto" else known.epochs
    return train_seeds(
        known.model_dump(exclude_unset=True),
        Given(),
        len(record.seeds),
        reporter=Reporter(quiet=quiet),
        resume=True,
        allow_changed=allow_changed,
        epochs=planned if epochs is None else epochs,
    )


@usual_modes()
@only_training()
def _train_all(folder: RunFolder, asked: Mapping[str, Any], num_seeds: int, start: Start) -> SeedRuns:
    """Train every seed; each run is held while it is trained, and their folder all the time."""
    with ranks_joined(start.placement), Hold(folder, start.reporter) as hold:
        on_first_rank(lambda: hold.take() if folder.holds_seeds else None)  # what it says is read under the lock
        way = from_first_rank(lambda: _way(folder, start))
        if way == GO_ON:
            asked = merge(on_all_ranks(folder.read_seeds).settings, _without_auto(asked))
        settings = build(TrainSettings, asked, "settings")
        if start.epochs is not None:
            settings = settings.model_copy(update={"epochs": start.epochs})
        seeds = tuple(range(settings.seed, settings.seed + num_seeds))
        if seeds[-1] > LAST_SEED:
            raise UsageError(f"seeds must end at {LAST_SEED}, got {num_seeds} from seed {settings.seed} on")
        if way != GO_ON:
            check_choices(settings)  # before any data are read
        # Opened once for all: the split does not follow the seed either.
        begun = folder.of_seed(seeds[0]) if way == GO_ON else None
        source = on_all_ranks(lambda: _open(begun, settings, start))
        start = replace(start, given=replace(start.given, source=source))
        record = _record(settings, seeds, source.fingerprint, start)
        if way == GO_ON:
            on_first_rank(lambda: _go_on(folder, settings, record, start))
        else:
            on_first_rank(lambda: check_free_for_seeds(folder, seeds, overwrite=way == REPLACE))
            # Only then is anything replaced: no mistake in settings or data has cost it.
            try_assembly(folder.of_seed(seeds[0]), _of_seed(settings, folder, seeds[0]), start)
            on_first_rank(lambda: hold.create_seeds(record, overwrite=way == REPLACE))
        one = replace(start, resume=way == GO_ON, overwrite=False)
        runs: list[Run] = []
        for number, seed in enumerate(seeds, start=1):
            start.reporter.say(f"seed {seed}, {number} of {num_seeds}")
            runs.append(_train_seed(folder, settings, seed, one))
    return SeedRuns(folder.path, tuple(runs))


def _train_seed(folder: RunFolder, settings: TrainSettings, seed: int, start: Start) -> Run:
    """Train the run of one seed, or go on with it."""
    try:
        return train_one(folder.of_seed(seed), _of_seed(settings, folder, seed), start)
    except InterruptedRunError as error:
        remedy = f"counterpoint resume {shlex.quote(str(folder.path))}"
        raise InterruptedRunError(f"{error}, or with all seeds: {remedy}", exit_code=error.exit_code) from None


def _open(begun: RunFolder | None, settings: TrainSettings, start: Start) -> Source:
    """The data of all seeds, as a run that has begun opened them, or as the first one will."""
    if begun is not None and begun.is_ours and not is_beginning(begun):
        return open_given(recorded_settings(begun, allow_changed=start.allow_changed), start.given, start.reporter)
    weights = initial_weights(settings)
    return open_given(settings, start.given, start.reporter, side=None if weights is None else weights.side)


def _without_auto(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Settings but for those at ``auto``, which ask for nothing where a run goes on."""
    named = {name: value for name, value in asked.items() if value != "auto"}
    return {name: _without_auto(value) if isinstance(value, Mapping) else value for name, value in named.items()}


def _of_seed(settings: TrainSettings, folder: RunFolder, seed: int) -> TrainSettings:
    """The settings of one seed's run."""
    return settings.model_copy(update={"seed": seed, "out": str(folder.of_seed(seed).path)})


def _way(folder: RunFolder, start: Start) -> str:
    """Whether to go on with the seeds in the folder, to replace them, or to begin."""
    if not folder.holds_seeds or is_beginning_of_seeds(folder):
        return BEGIN
    if start.resume or is_restart(start.placement, folder.read_seeds().launch):
        return GO_ON
    check_free_for_seeds(folder, (), overwrite=start.overwrite)
    return REPLACE


def _record(settings: TrainSettings, seeds: tuple[int, ...], data_fingerprint: str, start: Start) -> SeedsRecord:
    """What ``seeds.json`` says."""
    return SeedsRecord(
        seeds=seeds,
        settings=settings.model_dump(mode="json", exclude_unset=True, exclude={"out"}),
        data_fingerprint=data_fingerprint,
        version=__version__,
        command=command_line(),
        launch=start.placement.ranks.launch,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _go_on(folder: RunFolder, settings: TrainSettings, record: SeedsRecord, start: Start) -> None:
    """Write what has changed, and put aside what was found out about runs of fewer epochs.

    The seeds of before are required, and perhaps more, the same samples, and settings that no run refuses.
    """
    before = folder.read_seeds()
    if not set(before.seeds) <= set(record.seeds):
        raise UsageError(
            f"cannot resume {folder.path} with seeds {_listed(record.seeds)} (it has {_listed(before.seeds)}); more "
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
            known = continued(run, _of_seed(settings, folder, seed), start)
            further_epochs(run, known, start.epochs)
    asked, first = record.settings.get("epochs"), folder.of_seed(before.seeds[0])
    if isinstance(asked, int) and first.status.exists():
        keep_earlier(folder, first.read_status().num_epochs, asked)
    folder.write_seeds(record)


def _listed(seeds: tuple[int, ...]) -> str:
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
