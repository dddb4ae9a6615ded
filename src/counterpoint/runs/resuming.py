"""Go on with a run: which settings may change, and which files of its folder are checked or written again."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from counterpoint.core.errors import RunError, StaleFileError, UsageError
from counterpoint.core.files import run_named_in
from counterpoint.core.process_setup import runnable_processors
from counterpoint.core.rundir import RUN, RunFolder, read_lines
from counterpoint.core.schemas import RunStatus
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import with_threads
from counterpoint.core.user_files import read_text
from counterpoint.core.validation import REMOVED, build, flat, merge, nest
from counterpoint.engine.checkpoint import Memory, Snapshot, newest_memory
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.trained_run import read_resolved, recorded_values, settings_of
from counterpoint.nn.trained import is_saved

# None of these changes a weight.
_OF_ENGINE = ("workers", "checkpoint_every", "checkpoint_steps", "checkpoint_at", "keep", "knn_every")
HARMLESS = frozenset({"source.max_bad", *(f"engine.{name}" for name in (*_OF_ENGINE, "tensorboard", "wandb"))})

# The folder of a run, and the name of settings that are recorded one by one: neither is a value of its own.
NAMES = ("out", "recipe")


def continued_settings(folder: RunFolder, new_settings: TrainSettings) -> TrainSettings:
    """Return the settings with which a run continues: its own, and the harmless ones of the new settings.

    Args:
        folder: folder of the run.
        new_settings: the settings that the user gave this time.

    Raises:
        UsageError: a setting that a weight depends on differs; all that differ are named.
        RunError: the run's own settings cannot be read; see ``recorded_settings``.
    """
    recorded_before = recorded_settings(folder)
    recorded = recorded_before.model_dump()
    differing = differing_settings(recorded, merge(recorded, new_settings.model_dump(exclude_unset=True)))
    if not differing:
        return recorded_before
    if not differing.keys() <= HARMLESS:
        raise UsageError(
            f"cannot resume {folder.path} with {_in_words(differing, 'the run')}; start a new run with another --out "
            "(--init RUN begins with its weights)"
        )
    # Only settings that differ: one that is equal or auto stays as the run has it.
    changes = nest({path: new for path, (_, new) in differing.items()})
    return build(TrainSettings, merge(recorded, changes), "settings")


def settings_hash(settings: TrainSettings) -> str:
    """Short hash of every setting that a weight depends on, with every ``auto`` filled in."""
    values = flat(TrainSettings, settings.model_dump(mode="json"))
    relevant = {path: value for path, value in values.items() if path not in HARMLESS and path not in NAMES}
    # Sorted: the order of fields may change.
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:16]


def differing_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Both values of each setting that differs, by path."""
    # Another "out" is a folder that was moved; a recipe is what its values are; "auto" asks for nothing.
    old, new = flat(TrainSettings, before), flat(TrainSettings, after)
    return {
        path: (old[path], value)
        for path, value in new.items()
        if path not in NAMES and value not in ("auto", old[path])
    }


def recorded_settings(folder: RunFolder) -> TrainSettings:
    """Settings with which a run continues: those of ``resolved.yaml``, compared with the newest sound checkpoint.

    Args:
        folder: folder of the run, which this process holds.

    Returns:
        The settings; those of the checkpoint if the file cannot be read or lacks them.

    Raises:
        UsageError: a setting that a weight depends on was changed in the file; it is named.
        RunError: the disk refuses the file; or it holds no settings, and no checkpoint does.
    """
    memory, values = newest_memory(folder.checkpoints), recorded_values(folder)
    if memory is None or "resolved" not in memory.facts:
        if not values:
            raise RunError(
                f"{folder.resolved} is missing or damaged, and no checkpoint holds the settings; start again with "
                "--overwrite"
            )
        return read_resolved(folder)
    then = settings_of(memory.facts["resolved"], str(memory.path))
    if not values:
        return then
    # A file that ends too early may still be YAML: what it lacks is what the run had, never a default.
    now = settings_of(merge(memory.facts["resolved"], values), str(folder.resolved))
    # A setting without effect in the run was "auto". One with effect is seen once all are filled in: `check_inputs`.
    differing = differing_settings(then.model_dump(mode="json"), now.model_dump(mode="json"))
    weighty = {path: pair for path, pair in differing.items() if pair[0] != "auto" and path not in HARMLESS}
    if weighty:
        raise UsageError(
            f"{folder.resolved} was changed: {_in_words(weighty, memory.path.name)}; put it back, or begin another run "
            "with --out"
        )
    return now


def check_inputs(folder: RunFolder, settings: TrainSettings, fingerprint: str) -> str:
    """Require that a run continues with the samples that it began with, and with settings that give the same weights.

    Args:
        folder: folder of the run.
        settings: the settings with every ``auto`` filled in.
        fingerprint: fingerprint of the data.

    Returns:
        The harmless settings that differ from the newest sound checkpoint, in words; empty if none does.

    Raises:
        RunError: the samples or settings are others, or no sound file is left that records the samples.
        UsageError: the run has a setting that was removed.
    """
    status, facts = readable_status(folder), _checkpoint_facts(folder)
    began = facts.get("data") if status is None else status.data_fingerprint
    if began is None:
        raise RunError(f"{folder.status} is damaged, and no checkpoint is left to use; start with --overwrite")
    if fingerprint != began:
        raise RunError(f"the data changed since {folder.path} began (fingerprint {fingerprint}, then {began})")
    if "resolved" not in facts:
        return ""
    for section, usual in REMOVED.items():  # nothing would continue with them
        recorded = facts["resolved"].get(section, {})
        for name in usual.keys() & recorded.keys() - {"sync_norm"}:  # which no weight depends on
            if recorded[name] != usual[name]:
                use = "use it as it is" if folder.weights.exists() else "train it again with --overwrite"
                raise UsageError(f"{folder.path} has {section}.{name}, which was removed: it is not resumed; {use}")
    before = settings_of(facts["resolved"], str(folder.checkpoints)).model_dump(mode="json")
    differing = differing_settings(before, settings.model_dump(mode="json"))
    # A setting without an effect in the run, or unknown to its version, was "auto" to it.
    differing = {path: pair for path, pair in differing.items() if pair[0] != "auto"}
    changes = _in_words(differing, "the newest checkpoint")
    if not differing.keys() <= HARMLESS:
        raise RunError(f"the settings changed since {folder.path} began: {changes}")
    return changes


def repair(folder: RunFolder, first_status: RunStatus, reporter: Reporter) -> None:
    """Write a damaged ``run.json`` again, and see to it that the lines before the checkpoint are those of then.

    Args:
        folder: folder of the run, which this process holds.
        first_status: content of ``run.json`` when the run began.
        reporter: shows what was repaired, and that a log is missing.

    Raises:
        RunError: lines were damaged, changed or lost.
    """
    memory, why = newest_memory(folder.checkpoints), f"{folder.status} is of another run"
    try:
        folder.read_status()
    except RunError as error:
        why = str(error)
    if readable_status(folder) is None:
        run_id = _checkpoint_facts(folder).get(RUN, first_status.run_id)
        folder.write_status(first_status.model_copy(update={"run_id": run_id}))
        reporter.say(f"{why}; written again")
    for path in (folder.metrics, folder.timings):
        if not path.exists() and memory is not None and memory.position.epoch:
            reporter.say(f"{path} is missing: the figures of {memory.position.epoch} epochs are lost")
        elif problem := change_of_lines(folder, path, memory):
            raise RunError(f"{path} is damaged: {problem}; no weight depends on it: move it to continue without it")


def change_of_lines(folder: RunFolder, path: Path, then: Memory | Snapshot | None) -> str:
    """Describe the damage of a log that a checkpoint shows; empty if there is none."""
    lines = read_lines(path)
    # Times are not part of a checkpoint, which has the same bytes wherever it is computed.
    if lines.problem or then is None or path != folder.metrics:
        return lines.problem
    step, digest = then.position.step, then.facts.get("figures")
    before = lines.up_to(step)
    if digest is None:  # of an earlier version
        is_same = len(before) >= then.position.epoch
    else:
        is_same = hashlib.sha256(b"".join(before)).hexdigest() == digest
    return "" if is_same else f"its lines up to step {step} are not those of the checkpoint"


def readable_status(folder: RunFolder) -> RunStatus | None:
    """Read ``run.json`` of a run that may be repaired; None if it is missing, damaged or of another run.

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
        "run's own back, or remove it: counterpoint resume continues from the one before"
    )


def is_done(folder: RunFolder) -> bool:
    """Tell whether nothing is left to do; a damaged encoder must be written again from the last checkpoint."""
    status = readable_status(folder)
    return status is not None and status.status == "finished" and is_saved(folder)


@contextlib.contextmanager
def threads_of_begin(folder: RunFolder, settings: TrainSettings, reporter: Reporter) -> Iterator[None]:
    """Use as many threads as a run on the CPU began with, if the machine has them: they decide the last bits.

    Args:
        folder: folder of the run, which continues.
        settings: the run's own settings.
        reporter: shows a number of threads other than that of this process.
    """
    now = torch.get_num_threads()
    try:
        began = folder.read_status().num_threads
    except RunError:  # what is damaged is written again later
        began = _checkpoint_facts(folder).get("num_threads")
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


def _checkpoint_facts(folder: RunFolder) -> Mapping[str, Any]:
    """Facts of the run in its newest sound checkpoint; empty if there is none."""
    memory = newest_memory(folder.checkpoints)
    return {} if memory is None else memory.facts


def _in_words(differing: Mapping[str, tuple[Any, Any]], before: str) -> str:
    return ", ".join(f"{path} {new!r} ({before} has {old!r})" for path, (old, new) in differing.items())
