"""Verify a run: compare every file with its hash, and take one saved step again to the last bit."""

import contextlib
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from counterpoint.core.derived_files import check_settings, read_card, read_derived
from counterpoint.core.errors import CounterpointError, DataError, RunError, StaleFileError, UsageError, first_line
from counterpoint.core.files import is_unchanged, read_sealed, run_named_in, sha256_of
from counterpoint.core.run import Run, as_run
from counterpoint.core.rundir import RUN, RunFolder, read_lines
from counterpoint.core.terminal_text import Printed, shown
from counterpoint.core.torch_state import only_training, usual_modes, with_threads
from counterpoint.core.user_files import read_text
from counterpoint.engine.checkpoint import Snapshot, list_checkpoints, load_checkpoint, read_memory, record_path
from counterpoint.engine.checkpoint_format import find_damage, step_of
from counterpoint.engine.loop import replay_step
from counterpoint.engine.progress import Reporter
from counterpoint.engine.replay import KeptStep, differences, read_step, this_machine, weights_digest
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.nn.classifier import is_classifier_sound
from counterpoint.nn.tensor_file import read_tensors
from counterpoint.nn.trained import is_saved, part_of
from counterpoint.runs.one_run import open_job
from counterpoint.runs.resuming import change_of_lines, recorded_settings

Result = Literal["ok", "failed", "not checked"]


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        what: name of the file or thing that was checked.
        result: ok, failed, or not checked.
        detail: the outcome in words; of a check that was not made, the reason.
    """

    what: str
    result: Result
    detail: str


@dataclass(frozen=True)
class Verification(Printed):
    """The checks of a run; printed as a table.

    Attributes:
        run: the run's folder.
        checks: results of the checks, in the order in which they were made.
    """

    run: Path
    checks: tuple[Check, ...]

    @property
    def is_intact(self) -> bool:
        """True if nothing that could be checked has failed."""
        return all(check.result != "failed" for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"is_intact": self.is_intact, "checks": [asdict(check) for check in self.checks]}

    def __str__(self) -> str:
        width = max(len(check.what) for check in self.checks)
        return "\n".join(f"{check.what:<{width}}  {check.result:<11}  {shown(check.detail)}" for check in self.checks)


class _Replayable(NamedTuple):
    """A checkpoint that verifies, with the record of the step after it if there is one."""

    path: Path
    snapshot: Snapshot
    kept: KeptStep | None


class _NotCheckedError(Exception):
    """The reason why something cannot be checked."""


def _check(what: str, look: Callable[..., str], *things: Any) -> Check:
    """Check one thing: ``look`` returns the detail if it is right, and raises if it is wrong."""
    try:
        return Check(what, "ok", look(*things))
    except _NotCheckedError as why:
        return Check(what, "not checked", str(why))
    except (OSError, ValueError, CounterpointError) as error:
        return Check(what, "failed", first_line(error))


@usual_modes()
@only_training()
def verify(run: Run | str | Path, *, quiet: bool = False) -> Verification:
    """Re-hash everything that a run folder holds, and replay one saved step bit for bit. Nothing is written there.

    A file of another run, or of weights that the run has no more, has failed. Which run the folder is of is what most
    of ``run.json``, ``resolved.yaml``, ``encoder.json`` and the checkpoints say.

    Args:
        run: the run or its folder; ``Run(path, data=array, encoder=module)`` if it was trained on an array or with
            your own module.
        quiet: show no progress.

    Returns:
        One result per checkpoint, per file that a verb has written, for the data, and for the replayed step.

    Raises:
        RunError: not a run.
    """
    opened_run = as_run(run, may_be_mixed=True)
    folder = opened_run.folder
    status = _check(folder.status.name, _status, folder)
    if status.result == "failed":  # it cannot say which run the others belong to
        names = [path.name for path in (*list_checkpoints(folder.checkpoints), *folder.files) if path.exists()]
        why = f"{folder.status.name} is of another run"
        rest = [Check(name, "not checked", why) for name in names if name != folder.status.name]
        return Verification(opened_run.path, (status, *rest))
    checkpoints: list[_Replayable] = []
    # In this order: `_checkpoints` fills the list, newest first, which the others read.
    checks = [*_checkpoints(folder, checkpoints), status, *_weights(folder, checkpoints)]
    checks.append(_check(folder.resolved.name, _resolved, folder, checkpoints))
    checks.append(_check(folder.config.name, _config, folder))
    checks += _threads(folder, checkpoints)
    checks.append(_check(folder.metrics.name, _metrics, folder, checkpoints))
    checks += _timings(folder)
    for part in (folder, folder.second):
        checks += _results(part)
    checks += _data_and_step(opened_run, checkpoints, Reporter(quiet=quiet))
    return Verification(opened_run.path, tuple(checks))


def _status(folder: RunFolder) -> str:
    """Compare the run that ``run.json`` names with the run that the other files name."""
    run_id = folder.run_id
    others = [memory.facts.get(RUN) for memory in map(read_memory, list_checkpoints(folder.checkpoints)) if memory]
    with contextlib.suppress(OSError, ValueError):
        others.append(run_named_in(read_text(folder.resolved)))
    with contextlib.suppress(RunError):
        others.append(read_sealed(folder.encoder_card).get(RUN))
    # A damaged file may hold anything in place of the id of a run.
    votes = Counter([run_id, *(each if each is None else str(each) for each in others)])
    commonest, num_votes = votes.most_common(1)[0]
    if votes[run_id] < num_votes:
        remedy = f"counterpoint resume {shlex.quote(str(folder.path))} writes it again"
        raise RunError(f"it is of another run ({run_id}) than most files ({commonest}); {remedy}")
    return "matches its own hash" + (f"; the run is {run_id}" if run_id else "")


def _checkpoints(folder: RunFolder, checkpoints: list[_Replayable]) -> Iterator[Check]:
    for path in list_checkpoints(folder.checkpoints):
        try:
            num_bytes = sum(file.stat().st_size for file in path.iterdir())
            checkpoints.append(_Replayable(path, load_checkpoint(path), read_step(folder.checkpoints, step_of(path))))
        except (OSError, RunError) as error:
            if path.exists():  # a run that continues meanwhile drops old ones, at any moment
                yield Check(path.name, "failed", find_damage(path) or first_line(error))
            continue
        yield Check(path.name, "ok", f"every file matches its hash ({num_bytes / 1e6:.1f} MB)")
    if not checkpoints:
        yield Check("checkpoints", "failed", "none verifies")


def _weights(folder: RunFolder, checkpoints: list[_Replayable]) -> Iterator[Check]:
    """Check encoder and classifier by the hashes of their cards and, once a run is finished, its last checkpoint."""
    is_finished = folder.read_status().status == "finished"
    last = checkpoints[0] if checkpoints and is_finished else None
    if is_finished or folder.encoder_card.exists():
        yield _check(folder.weights.name, _weights_file, folder, last)
    else:
        yield Check(folder.weights.name, "not checked", "the run is not finished: it has no encoder yet")
    weights, card = folder.classifier_weights, folder.classifier_card
    if weights.exists() or card.exists():
        yield _check(weights.name, _weights_file, folder, last, True)


def _weights_file(folder: RunFolder, last: _Replayable | None, is_classifier: bool = False) -> str:
    if is_classifier:
        path, card, is_sound = folder.classifier_weights, folder.classifier_card, is_classifier_sound(folder)
    else:
        path, card, is_sound = folder.weights, folder.encoder_card, is_saved(folder)
    if not is_sound:
        problem = f"missing, or it does not match the hash in {card.name}"
        try:
            read_card(folder, card)
        except StaleFileError:
            raise
        except RunError as error:
            raise RunError(problem) from error
        raise RunError(problem)
    if last is None:
        return f"matches the hash in {card.name}"
    weights = {**last.snapshot.state.model, **last.snapshot.average}  # the average is saved, if there is one
    tensors = read_tensors(path)  # raises where its hash was made again
    # A checkpoint of an encoder holds more: momentum encoder, queue, predictor.
    expected = part_of(weights, "loss") if is_classifier else {key: weights[key] for key in tensors if key in weights}
    if weights_digest(tensors) != weights_digest(expected):
        raise RunError(f"its weights are not those of {last.path.name}")
    return f"matches its hash, and its weights are those of {last.path.name}"


def _resolved(folder: RunFolder, checkpoints: list[_Replayable]) -> str:
    recorded_settings(folder)  # compares them with the checkpoint, as `resume` does
    read_resolved(folder)  # as every other verb does
    if not checkpoints or "resolved" not in checkpoints[0].snapshot.facts:
        raise _NotCheckedError("no checkpoint says what the settings were")
    return "as the checkpoint has them"


def _threads(folder: RunFolder, checkpoints: list[_Replayable]) -> Iterator[Check]:
    """Report that a run on the CPU continued with another number of threads than it began with."""
    status = folder.read_status()
    began = status.num_threads
    others = sorted({checkpoint.snapshot.facts.get("num_threads", began) for checkpoint in checkpoints} - {began})
    if others and began is not None and status.device == "cpu":
        detail = f"began with {began}, continued with {', '.join(map(str, others))}: the last bits may differ"
        yield Check("threads", "not checked", detail)


def _metrics(folder: RunFolder, checkpoints: list[_Replayable]) -> str:
    epochs = checkpoints[0].snapshot.position.epoch if checkpoints else 0
    logged_epochs = [record.get("epoch") for record in folder.read_metrics()]
    # Lines beyond the newest checkpoint are those of a run that was stopped after them.
    if logged_epochs[:epochs] != list(range(1, epochs + 1)):
        raise RunError(f"it should hold epochs 1 to {epochs}, got {logged_epochs}")
    if changed := change_of_lines(folder, folder.metrics, checkpoints[0].snapshot if checkpoints else None):
        raise RunError(changed)
    return f"one line for each of {len(logged_epochs)} epochs"


def _config(folder: RunFolder) -> str:
    if not folder.config.exists():
        raise _NotCheckedError("it is missing, and nothing depends on it")
    text = read_text(folder.config)
    check_settings(folder, folder.config)
    if not is_unchanged(text, must_be_sealed=folder.marker.is_file()):
        raise RunError("it was changed after it was written")
    return "matches its own hash"


def _timings(folder: RunFolder) -> Iterator[Check]:
    name = folder.timings.name
    if folder.timings.exists():
        lines = read_lines(folder.timings)
        problem = lines.problem or folder.change_since_end(folder.timings)
        yield Check(name, "failed" if problem else "ok", problem or f"{len(lines.good)} lines")
    elif read_lines(folder.metrics).good:
        yield Check(name, "not checked", "it is missing: times of epochs are not recorded")


def _label(folder: RunFolder, path: Path) -> str:
    return path.relative_to(folder.home.path).as_posix()


def _results(folder: RunFolder) -> Iterator[Check]:
    if folder.home != folder and (folder.weights.exists() or folder.encoder_card.exists()):
        yield _check(_label(folder, folder.weights), _weights_file, folder, None)
    others = sorted(folder.other_evaluations.glob("*.json"))
    for path in (folder.evaluation, *others, folder.findings, folder.spectrum, folder.map_layout):
        if os.path.lexists(path):
            yield _check(_label(folder, path), _derived, folder, path)
    for path in (folder.arrays, folder.collection):
        if os.path.lexists(path):  # a link that leads nowhere is not missing
            yield _check(_label(folder, path), _array_file, folder, path)


def _derived(folder: RunFolder, path: Path) -> str:
    read_derived(folder, path)
    return f"matches its own hash, and is of {folder.weights.name}"


def _array_file(folder: RunFolder, path: Path) -> str:
    """Compare an array file with the hash that the findings have of it."""
    sealing = folder.findings
    seal = read_sealed(sealing).get(path.stem) if sealing.exists() else None
    if seal is None and folder.run_id is None:
        raise _NotCheckedError("the version that wrote it kept no hash of it")
    if seal != {"sha256": sha256_of(path)}:
        raise RunError(f"not the one that {sealing.name} names")
    return f"matches the hash in {sealing.name}"


def _data_and_step(run: Run, checkpoints: list[_Replayable], reporter: Reporter) -> Iterator[Check]:
    """Check the data by their fingerprint, and replay the newest step that can be replayed."""
    try:
        job = open_job(run, reporter)
    except (UsageError, DataError) as error:
        yield Check("data", "not checked", first_line(error))
        yield Check("replayed step", "not checked", first_line(error))
        return
    except CounterpointError as error:
        yield Check("data", "failed", first_line(error))
        yield Check("replayed step", "not checked", "the data are not those of the run")
        return
    yield Check("data", "ok", f"fingerprint {run.folder.read_status().data_fingerprint}, as when the run began")
    for checkpoint in checkpoints:
        record = record_path(run.folder.checkpoints, step_of(checkpoint.path))
        if checkpoint.kept is None and os.path.lexists(record):  # also a link to nothing
            yield Check(record.name, "failed", "it was changed after it was written, or is of another step")
    steps = [(checkpoint.snapshot, checkpoint.kept) for checkpoint in checkpoints if checkpoint.kept is not None]
    if not steps:
        why = "no step after a checkpoint was recorded: a run that continued from one does so (engine.keep >= 2)"
        yield Check("replayed step", "not checked", why if checkpoints else "no checkpoint verifies")
        return
    yield _replay(*steps[0], job)  # of the newest such checkpoint; the last one of a run has no step after it


def _replay(snapshot: Snapshot, saved_step: KeptStep, job: Any) -> Check:
    """Take a recorded step again, with as many threads as it was taken with."""
    name, ranks = f"replayed step {saved_step.record.step}", snapshot.facts.get("world_size", 1)
    if ranks != 1:
        return Check(name, "not checked", f"it was computed by {ranks} ranks together; the last bits of sums differ")
    try:
        with with_threads(saved_step.machine.threads):
            now = this_machine(job.engine.device.type)
            changed = differences(saved_step.record, replay_step(job, snapshot))
    except CounterpointError as error:
        return Check(name, "failed", first_line(error))
    except (TypeError, ValueError, LookupError, RuntimeError) as error:  # the optimiser's numbers may be forged
        return Check(name, "failed", f"the step cannot be taken from what was saved before it: {first_line(error)}")
    if not changed:
        return Check(name, "ok", f"samples, loss, gradient norm and weights are the same bits ({now})")
    detail = f"{', '.join(changed)}; recorded with {saved_step.machine}, replayed with {now}"
    if saved_step.machine == now and job.unit == "images":
        detail += "; since 0.3.0 tall pictures in files are resized differently"
    is_repeatable = now == saved_step.machine and job.engine.device.type == "cpu"  # GPU kernels may add in any order
    return Check(name, "failed" if is_repeatable else "not checked", detail)
