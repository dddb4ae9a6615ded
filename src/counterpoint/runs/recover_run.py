"""What a run folder goes on with where a file of it was changed or damaged: what verifies, or a refusal by name."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import is_unchanged
from counterpoint.core.run_records import Continuation, RunStatus
from counterpoint.core.rundir import RUN, RunFolder
from counterpoint.core.sealed_lines import keep_lines
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import merge, read_yaml_mapping
from counterpoint.engine.checkpoint import Memory, newest_memory
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.trained_run import read_resolved, settings_of
from counterpoint.runs.extend_epochs import continuations_of, readable_status
from counterpoint.runs.resume_rules import HARMLESS, differing_settings, former_settings, settings_hash


def recorded_settings(folder: RunFolder, *, allow_changed: bool = False) -> TrainSettings:
    """Settings with which a run goes on: those of ``resolved.yaml``, held against the newest sound checkpoint.

    Args:
        folder: the run, which this process holds.
        allow_changed: take over what was changed in the file and touches no weight.

    Returns:
        The settings; those of the checkpoint where the file cannot be read or lacks them.

    Raises:
        UsageError: the file was changed; what differs is named.
        RunError: the file cannot be read, and no checkpoint holds the settings.
    """
    memory, text = newest_memory(folder.checkpoints), _settings_text(folder)
    facts: Mapping[str, Any] = {} if memory is None else memory.facts
    known = continuations_of(folder)
    if text is None:
        if memory is None or "resolved" not in facts:
            raise RunError(
                f"{folder.resolved} is missing or damaged, and no checkpoint holds the settings; start again with "
                "--overwrite"
            )
        return _continued(settings_of(facts["resolved"], str(memory.path)), known)
    is_as_written = is_unchanged(text, must_be_sealed=folder.marker.is_file())
    if memory is None or "resolved" not in facts:
        # Checkpoints of 0.1.0 hold no settings, only their hash: see `check_inputs`.
        return _continued(read_resolved(folder), known)
    # A file that ends too early may still be YAML: what it lacks is what the run had, never a default.
    values = merge(facts["resolved"], read_yaml_mapping(folder.resolved))
    now, then = settings_of(values, str(folder.resolved)), settings_of(facts["resolved"], str(memory.path))
    # The checkpoint may be of before the last continuation; and a run that was killed as it went on has not written it.
    then, now = _continued(then, known), _continued(now, known) if is_as_written else now
    differing = differing_settings(then.model_dump(mode="json"), now.model_dump(mode="json"))
    # What had no effect in the run was "auto" to it; 0.1.0 recorded a value. One with effect differs in the hash, too.
    differing = {name: pair for name, pair in differing.items() if pair[0] != "auto"}
    if is_as_written:  # by us: what is harmless was allowed before
        differing = {name: pair for name, pair in differing.items() if name not in HARMLESS}
    if differing:
        named = ", ".join(f"{name} {new!r} ({memory.path.name} has {old!r})" for name, (old, new) in differing.items())
        if not differing.keys() <= HARMLESS:
            raise UsageError(f"{folder.resolved} was changed: {named}; put it back, or begin another run with --out")
        if not allow_changed:
            raise UsageError(
                f"{folder.resolved} was changed: {named}; no weight depends on that: allow it with --allow-changed"
            )
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
    status, memory = readable_status(folder), newest_memory(folder.checkpoints)
    facts: Mapping[str, Any] = {} if memory is None else memory.facts
    began = facts.get("data") if status is None else status.data_fingerprint
    if began is None:
        raise RunError(f"{folder.status} is damaged, and no checkpoint is left to go on from; start with --overwrite")
    if fingerprint != began:
        raise RunError(f"the data changed since {folder.path} began (fingerprint {fingerprint}, then {began})")
    if memory is not None and facts.get("settings") not in (None, *hashes_so_far(folder, settings, further)):
        raise RunError(f"the settings changed since {folder.path} began: they are not those of {memory.path.name}")


def hashes_so_far(folder: RunFolder, settings: TrainSettings, further: Continuation | None = None) -> list[str]:
    """Hashes of a run's settings, with the epochs that it has and with all that it was to have before.

    Args:
        folder: the run.
        settings: with every ``auto`` filled in.
        further: the continuation that begins now.
    """
    former, known = former_settings(folder), (*continuations_of(folder), *([further] if further else []))
    totals = [settings.epochs, *(each.planned for each in known)]
    return [settings_hash(settings.model_copy(update={"epochs": total}), former) for total in totals]


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
        run_id = None if memory is None else memory.facts.get(RUN)
        folder.write_status(first_status.model_copy(update={} if run_id is None else {"run_id": run_id}))
        reporter.say(f"{why}; written again")
    for path in (folder.metrics, folder.timings):
        problem = _problem(folder, path, memory)
        if not problem:
            continue
        aside = _free_name(path)
        if not allow_changed:
            raise RunError(
                f"{path} is damaged: {problem}; no weight depends on it: --allow-changed goes on with the lines that "
                f"match and keeps the file as {aside.name}"
            )
        good = folder.read_lines(path).good
        if path.exists():
            os.link(path, aside)
        keep_lines(path, good)
        reporter.say(f"{path} is damaged: {problem}; {len(good)} lines match, the file as it was is {aside.name}")


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


def _settings_text(folder: RunFolder) -> str | None:
    """Text of ``resolved.yaml``, or None where it holds no settings."""
    try:
        return folder.resolved.read_text(encoding="utf-8") if read_yaml_mapping(folder.resolved) else None
    except UsageError:
        return None


def _free_name(path: Path) -> Path:
    """A name beside a file for what it was."""
    number = 1
    while (free := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return free
