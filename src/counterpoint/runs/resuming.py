"""Going on with a run: what may change, what of its folder verifies or is written again, and more epochs for it.

Where a run goes on to more epochs, ``run.json`` comes first: once it lists a continuation, the run goes on to its
epochs, wherever the process that wrote it was killed. Settings and checkpoints may lag behind that list, and are read
with it.
"""

import contextlib
import datetime
import hashlib
import itertools
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from counterpoint.core import __version__
from counterpoint.core.errors import RunError, StaleFileError, UsageError
from counterpoint.core.files import is_unchanged, run_named_in
from counterpoint.core.process_setup import runnable_processors
from counterpoint.core.run_records import Continuation, RunStatus, read_record
from counterpoint.core.rundir import RUN, RunFolder
from counterpoint.core.sealed_lines import keep_lines
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import with_threads
from counterpoint.core.user_files import read_text
from counterpoint.core.validation import build, leaf_fields, merge, nest
from counterpoint.engine.checkpoint import Memory, Position, newest_memory
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.trained_run import read_resolved, recorded_values, settings_of
from counterpoint.nn.trained import is_saved

CONTINUATIONS = "continuations"  # in run.json, and in what checkpoints say of the run

# None of these changes a weight.
_OF_ENGINE = ("workers", "checkpoint_every", "checkpoint_steps", "checkpoint_at", "keep", "knn_every")
HARMLESS = frozenset({"source.max_bad", *(f"engine.{name}" for name in (*_OF_ENGINE, "tensorboard", "wandb"))})

ALLOW = "no weight depends on that: allow it with --allow-changed"

# Where a run lies, and the name of settings that are recorded one by one: no value by itself.
NAMES = ("out", "recipe")


def continued_settings(
    folder: RunFolder, recorded_before: TrainSettings, asked: TrainSettings, *, allow_changed: bool
) -> TrainSettings:
    """Settings with which a run goes on: its own, and of those asked for the harmless ones if they are allowed.

    Args:
        folder: the run.
        recorded_before: its own.
        asked: what the user gave this time.
        allow_changed: take over harmless differences.

    Raises:
        UsageError: settings differ; all of them are named.
    """
    recorded = recorded_before.model_dump()
    differing = differing_settings(recorded, merge(recorded, asked.model_dump(exclude_unset=True)))
    if not differing:
        return recorded_before
    named = _named(differing, "the run")
    if differing.keys() == {"epochs"}:
        remedy = f"counterpoint resume {shlex.quote(str(folder.path))} --epochs {asked.epochs}"
        raise UsageError(f"cannot resume {folder.path} with {named}; another number of epochs takes: {remedy}")
    is_harmless = differing.keys() <= HARMLESS
    if not (is_harmless and allow_changed):
        remedy = ALLOW if is_harmless else "start a new run with another --out"
        raise UsageError(f"cannot resume {folder.path} with {named}; {remedy}")
    # Not all that was asked for: what is equal or auto stays as the run has it.
    changes = nest({path: new for path, (_, new) in differing.items()})
    return build(TrainSettings, merge(recorded, changes), "settings")


def settings_hash(settings: TrainSettings) -> str:
    """Short hash of every setting that a weight depends on, with every ``auto`` filled in."""
    values = settings.model_dump(mode="json")
    known = {path: _at(values, path) for path, _ in leaf_fields(TrainSettings)}
    relevant = {path: value for path, value in known.items() if path not in HARMLESS and path not in NAMES}
    # Sorted: the order of fields may change.
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:16]


def differing_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Both values of each setting that differs, by path."""
    # Another "out" is a folder that was moved; a recipe is what its values are; "auto" asks for nothing.
    return {
        path: (_at(before, path), _at(after, path))
        for path, _ in leaf_fields(TrainSettings)
        if path not in NAMES and _at(after, path) not in ("auto", _at(before, path))
    }


def recorded_settings(folder: RunFolder, *, allow_changed: bool = False) -> TrainSettings:
    """Settings with which a run goes on: those of ``resolved.yaml``, held against the newest sound checkpoint.

    Args:
        folder: the run, which this process holds.
        allow_changed: take over what was changed in the file and touches no weight.

    Returns:
        The settings; those of the checkpoint where the file cannot be read or lacks them.

    Raises:
        UsageError: the file was changed; what differs is named.
        RunError: the disk refuses the file; or it holds no settings, and no checkpoint does.
    """
    memory, known = newest_memory(folder.checkpoints), continuations_of(folder)
    values = recorded_values(folder)
    if memory is None or "resolved" not in memory.facts:
        if not values:
            raise RunError(
                f"{folder.resolved} is missing or damaged, and no checkpoint holds the settings; start again with "
                "--overwrite"
            )
        return _continued(read_resolved(folder), known)
    then = settings_of(memory.facts["resolved"], str(memory.path))
    if not values:
        return _continued(then, known)
    is_as_written = is_unchanged(read_text(folder.resolved), must_be_sealed=folder.marker.is_file())
    # A file that ends too early may still be YAML: what it lacks is what the run had, never a default.
    now = settings_of(merge(memory.facts["resolved"], values), str(folder.resolved))
    # The checkpoint may be of before the last continuation; and a run that was killed as it went on has not written it.
    then, now = _continued(then, known), _continued(now, known) if is_as_written else now
    differing = differing_settings(then.model_dump(mode="json"), now.model_dump(mode="json"))
    # What had no effect in the run was "auto" to it. One with effect is seen once all are filled in: `changed_since`.
    differing = {name: pair for name, pair in differing.items() if pair[0] != "auto"}
    if is_as_written:  # by us: what is harmless was allowed before
        differing = {name: pair for name, pair in differing.items() if name not in HARMLESS}
    is_harmless = differing.keys() <= HARMLESS
    if differing and not (is_harmless and allow_changed):
        remedy = ALLOW if is_harmless else "put it back, or begin another run with --out"
        raise UsageError(f"{folder.resolved} was changed: {_named(differing, memory.path.name)}; {remedy}")
    return now


def check_inputs(
    folder: RunFolder, settings: TrainSettings, fingerprint: str, further: Continuation | None = None
) -> None:
    """Require that a run goes on with the settings and the samples that it began with.

    Args:
        folder: the run.
        settings: with every ``auto`` filled in.
        fingerprint: of the data.
        further: the continuation that begins now.

    Raises:
        RunError: they are others, or nothing sound is left that says so.
    """
    status, facts = readable_status(folder), _facts(folder)
    began = facts.get("data") if status is None else status.data_fingerprint
    if began is None:
        raise RunError(f"{folder.status} is damaged, and no checkpoint is left to go on from; start with --overwrite")
    if fingerprint != began:
        raise RunError(f"the data changed since {folder.path} began (fingerprint {fingerprint}, then {began})")
    if changed := changed_since(folder, settings, further):
        raise RunError(f"the settings changed since {folder.path} began: {changed}")


def changed_since(folder: RunFolder, settings: TrainSettings, further: Continuation | None = None) -> str:
    """Which settings that a weight depends on are not those of the newest sound checkpoint; empty for none.

    Args:
        folder: the run.
        settings: with every ``auto`` filled in.
        further: the continuation that begins now.
    """
    then = _facts(folder).get("resolved")
    if then is None:
        return ""
    if then.get("engine", {}).get("average", "none") != "none":  # which nothing would go on with
        return "engine.average, which is no more"
    known = (*continuations_of(folder), *([further] if further else []))
    # Both, as in `recorded_settings`: a run that was killed as it went on has not written how far.
    before, now = (_continued(each, known) for each in (settings_of(then, str(folder.checkpoints)), settings))
    differing = differing_settings(before.model_dump(mode="json"), now.model_dump(mode="json"))
    # What had no effect in the run, and what its version did not know, was "auto" to it.
    differing = {path: pair for path, pair in differing.items() if pair[0] != "auto" and path not in HARMLESS}
    return _named(differing, "the newest checkpoint")


def repair(folder: RunFolder, first_status: RunStatus, reporter: Reporter, *, allow_changed: bool) -> None:
    """Write a damaged ``run.json`` again, and see to it that every epoch before the checkpoint has its line.

    Args:
        folder: the run, which this process holds.
        first_status: what ``run.json`` said when the run began.
        reporter: hears what was repaired.
        allow_changed: go on where lines of figures were damaged, which no weight depends on.

    Raises:
        RunError: lines were damaged or lost, and that is not allowed.
    """
    memory, why = newest_memory(folder.checkpoints), f"{folder.status} is of another run"
    try:
        folder.read_status()
    except RunError as error:
        why = str(error)
    if readable_status(folder) is None:
        run_id = _facts(folder).get(RUN, first_status.run_id)
        folder.write_status(first_status.model_copy(update={"run_id": run_id}))
        reporter.say(f"{why}; written again")
    for path in (folder.metrics, folder.timings):
        problem = _problem(folder, path, memory)
        if not problem:
            continue
        names = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(1))
        aside = next(name for name in names if not name.exists())
        if not allow_changed:
            raise RunError(
                f"{path} is damaged: {problem}; no weight depends on it: --allow-changed continues with the lines that "
                f"match and keeps the file as {aside.name}"
            )
        good = folder.read_lines(path).good
        if path.exists():
            os.link(path, aside)
        keep_lines(path, good)
        reporter.say(f"{path} is damaged: {problem}; {len(good)} lines match, the file as it was is {aside.name}")


def further_epochs(folder: RunFolder, settings: TrainSettings, epochs: int | None) -> Continuation | None:
    """What is to be recorded where a run goes on to another number of epochs; None where it is the same.

    Args:
        folder: the run, which this process holds.
        settings: its own.
        epochs: how many there shall be in all; None for as many as it has.

    Raises:
        UsageError: the run has more already.
    """
    planned = int(settings.epochs)
    if epochs is None or epochs == planned:
        return None
    build(TrainSettings, {"epochs": epochs}, "resume")
    memory = newest_memory(folder.checkpoints)
    position = memory.position if memory else Position(0, 0, 0)
    num_begun = position.epoch + (position.batch > 0)
    if epochs < num_begun:
        raise UsageError(
            f"epochs must be at least {num_begun}, as many as {folder.path} has begun, got {epochs}; what was trained "
            "cannot be taken back"
        )
    return Continuation(
        from_epoch=position.epoch,
        from_step=position.step,
        planned=planned,
        to_epoch=epochs,
        version=__version__,
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def readable_status(folder: RunFolder) -> RunStatus | None:
    """``run.json`` of a run that may be repaired; None where it is missing, damaged or of another run.

    Raises:
        StaleFileError: the newest checkpoint is of another run.
    """
    status, memory = None, newest_memory(folder.checkpoints)
    with contextlib.suppress(RunError):
        status = folder.read_status()
    if status is None or memory is None or status.run_id == memory.facts.get(RUN):
        return status
    with contextlib.suppress(OSError, ValueError):
        if run_named_in(read_text(folder.resolved)) == memory.facts.get(RUN):
            return None  # two against one
    raise StaleFileError(
        f"{memory.path} is of another run ({memory.facts.get(RUN)}) than {folder.status} ({status.run_id}); put the "
        "run's own back, or remove it: counterpoint resume goes on from the one before"
    )


def is_done(folder: RunFolder) -> bool:
    """Whether nothing is left to do; with a damaged encoder there is: the last checkpoint gives it again."""
    status = readable_status(folder)
    return status is not None and status.status == "finished" and is_saved(folder)


def continuations_of(folder: RunFolder) -> tuple[Continuation, ...]:
    """The continuations of a run, oldest first: from ``run.json``, or where that is damaged from a checkpoint."""
    if (status := readable_status(folder)) is not None:
        return status.continuations
    kept = _facts(folder).get(CONTINUATIONS, [])
    return tuple(read_record(Continuation, values, f"{folder.checkpoints}: {CONTINUATIONS}") for values in kept)


def continue_run(folder: RunFolder, further: Continuation) -> None:
    """Record that a run goes on; from here on it is not finished.

    Args:
        folder: the run, which this process holds, with a sound ``run.json``.
        further: how far it goes.
    """
    # What they say of steps after a checkpoint was taken at rates of the earlier schedule: nothing to compare with.
    for path in folder.checkpoints.glob("after-*.json"):
        path.unlink()
    known = [*folder.read_status().continuations, further]
    folder.update_status(status="interrupted", continuations=[each.written() for each in known])


@contextlib.contextmanager
def threads_of_begin(folder: RunFolder, settings: TrainSettings, reporter: Reporter) -> Iterator[None]:
    """Within, as many threads as a run on the CPU began with, where the machine has them: they decide the last bits.

    Args:
        folder: the run, which goes on.
        settings: its own.
        reporter: hears of another number than this process has.
    """
    now = torch.get_num_threads()
    try:
        began = folder.read_status().num_threads
    except RunError:  # what is damaged is written again later
        began = _facts(folder).get("num_threads")
    most = runnable_processors()
    if settings.engine.device != "cpu" or began in (None, now):
        began = now
    elif began > most:
        words = f"threads: {now}, and it began with {began} (processors here: {most})"
        reporter.say(f"{words}; its last bits are not those of an uninterrupted run")
        began = now
    else:
        reporter.say(f"threads: {began}, as it began, not {now} as here; their number decides the last bits")
    with contextlib.nullcontext() if began == now else with_threads(began):
        yield


def _facts(folder: RunFolder) -> Mapping[str, Any]:
    """What the newest sound checkpoint says of the run; nothing where there is none."""
    memory = newest_memory(folder.checkpoints)
    return {} if memory is None else memory.facts


def _problem(folder: RunFolder, path: Path, memory: Memory | None) -> str:
    """What is wrong with lines of figures; empty if nothing is."""
    lines = folder.read_lines(path)
    if lines.problem or memory is None:
        return lines.problem
    position = memory.position
    num_epochs = sum(1 for line in lines.good if (line.values.get("step") or 0) <= position.step)
    if num_epochs < position.epoch:
        return f"it holds {num_epochs} of the {position.epoch} epochs before {memory.path.name}"
    return ""


def _continued(settings: TrainSettings, known: Sequence[Continuation]) -> TrainSettings:
    """Settings of a run with the epochs that it goes on to, where they are those of before."""
    is_before = settings.epochs in [each.planned for each in known]
    return settings.model_copy(update={"epochs": known[-1].to_epoch}) if is_before else settings


def _named(differing: Mapping[str, tuple[Any, Any]], before: str) -> str:
    return ", ".join(f"{path} {new!r} ({before} has {old!r})" for path, (old, new) in differing.items())


def _at(values: Mapping[str, Any], path: str) -> Any:
    for step in path.split("."):
        values = values[step]
    return values
