"""Checkpoints, whole or absent, without pickle: safetensors, JSON, and a manifest of hashes written last."""

import contextlib
import json
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, NonNegativeInt
from torch import Tensor

from counterpoint.core.derived_files import check_run
from counterpoint.core.errors import RunError, first_line
from counterpoint.core.files import Seal, flush_to_disk, remove_leftovers, sha256_of, write_file
from counterpoint.core.rundir import RUN, RunFolder
from counterpoint.engine.checkpoint_format import (
    PREFIX,
    find_damage,
    folder_name,
    pack,
    read_manifest,
    step_of,
    unpack,
    write_manifest,
)
from counterpoint.engine.engine import FullState
from counterpoint.nn.tensor_file import read_tensors, write_tensors

MODEL, OPTIMIZER, AVERAGE = "model.safetensors", "optimizer.safetensors", "average.safetensors"
STATE = "state.json"
UNFINISHED, DROPPED = ".tmp", ".trash"  # ends of hidden names that are never taken for checkpoints


@dataclass(frozen=True)
class Position:
    """Progress of training: ``epoch`` whole epochs, ``batch`` batches into the next, ``step`` updates in all."""

    epoch: int
    batch: int
    step: int


@dataclass(frozen=True)
class Snapshot:
    """Everything a checkpoint holds.

    Attributes:
        state: weights, optimiser and loss scale.
        average: moving average of the weights by name, if a run of an earlier version kept one; else empty.
        position: epochs done, batches done of the current epoch, and updates done.
        log: sums over the epoch in progress, as plain values.
        facts: conditions of the run: seed, versions, threads, world size, hashes of settings and data.
    """

    state: FullState
    average: dict[str, Tensor]
    position: Position
    log: dict[str, Any]
    facts: dict[str, Any]


@dataclass(frozen=True)
class Restored:
    """The newest checkpoint that verifies, and what is wrong with the newer ones."""

    snapshot: Snapshot
    path: Path
    damaged: tuple[str, ...]


@dataclass(frozen=True)
class Memory:
    """Facts that a checkpoint remembers of its run: how far it had come, and what it was computed with."""

    path: Path
    position: Position
    facts: dict[str, Any]


class _Facts(BaseModel, strict=True):
    """Types of the facts that readers of a checkpoint use; there may be others."""

    run: str | None = None
    settings: str = ""
    data: str = ""
    num_threads: NonNegativeInt = 1
    world_size: NonNegativeInt = 1
    resolved: dict[str, Any] = {}
    init: dict[str, Any] | None = None
    figures: str = ""


class _PlainState(BaseModel, strict=True):
    position: dict[str, NonNegativeInt]
    scaler: dict[str, int | float]
    log: dict[str, int | float]
    facts: _Facts


def save_checkpoint(folder: Path, snapshot: Snapshot, *, keep: int, stays: Collection[int] = ()) -> Path:
    """Write ``step-*`` under a temporary name, flush, rename; then drop all but the newest ``keep`` up to this step.

    A checkpoint of the same step and content is left as it is. Older ones are dropped only once the new one is
    committed; later ones (damaged, or training would have continued from there) stay until training reaches them.

    Args:
        folder: the run's checkpoint folder; one process at a time may save there.
        snapshot: content of the checkpoint.
        keep: number of checkpoints to keep, >= 1.
        stays: numbers of the steps whose checkpoints are kept beside the newest ``keep``.

    Returns:
        The checkpoint's folder.

    Raises:
        RunError: a write, flush or rename failed, or the state holds something that no checkpoint can; earlier
            checkpoints are untouched.
    """
    target = folder / folder_name(snapshot.position.step)
    temporary, dropped = (folder / f".{target.name}{end}" for end in (UNFINISHED, DROPPED))
    try:
        # Also of this very step: `_write` makes the folder again.
        remove_unfinished(folder)
        seals = _write(temporary, snapshot)
        # The state file is left out: its facts (versions, threads) may differ although the state of training does not.
        manifest = read_manifest(target) or {}
        has_same_tensors = all(manifest.get(name) == seals[name] for name in (MODEL, OPTIMIZER, AVERAGE))
        if not has_same_tensors or find_damage(target) is not None:  # which reads every byte
            _commit(temporary, target, dropped)
        drop_old(folder, snapshot.position.step, keep, stays)
    except (OSError, TypeError) as error:
        cause = str(error)
        if isinstance(error, OSError):  # what the system said, and about which file
            name = f" ({Path(str(error.filename)).name})" if error.filename else ""
            cause = f"{error.strerror or error}{name}"
        raise RunError(f"cannot save checkpoint {target}: {cause}; earlier checkpoints are untouched") from error
    finally:
        _discard(temporary)  # where it was committed, nothing is left under this name
    return target


def restore_checkpoint(folder: Path) -> Restored:
    """Read the newest checkpoint that verifies.

    Raises:
        RunError: there is no undamaged checkpoint; every damaged one is named.
    """
    damaged: list[str] = []
    for path in list_checkpoints(folder):
        problem = find_damage(path)
        if problem is None:
            return Restored(_read(path), path, tuple(damaged))
        damaged.append(f"{path.name}: {problem}")
    detail = "; ".join(damaged) if damaged else "none was saved"
    raise RunError(f"no usable checkpoint in {folder} ({detail}); start again with --overwrite")


def newest_memory(folder: Path) -> Memory | None:
    """Memory of the newest checkpoint whose manifest and state are sound; its tensors are not looked at."""
    return next((memory for path in list_checkpoints(folder) if (memory := read_memory(path)) is not None), None)


def read_memory(path: Path) -> Memory | None:
    """Memory of one checkpoint; None if its manifest or its state is damaged."""
    seal = (read_manifest(path) or {}).get(STATE)
    try:
        if seal is not None and sha256_of(path / STATE) == seal.sha256:
            plain = _plain_state(path)
            return Memory(path, Position(**plain["position"]), plain["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def load_checkpoint(path: Path) -> Snapshot:
    """Read one checkpoint of the run in whose folder it lies.

    Raises:
        StaleFileError: the checkpoint belongs to another run.
        RunError: the checkpoint is damaged.
    """
    problem = find_damage(path)
    if problem is not None:
        raise RunError(f"checkpoint {path} is damaged: {problem}")
    snapshot = _read(path)
    check_run(RunFolder(path.parent.parent), path, snapshot.facts.get(RUN))
    return snapshot


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints, newest first; whether they verify is not looked at."""
    folders = [path for path in folder.glob(f"{PREFIX}*") if path.is_dir()]
    return sorted(folders, key=lambda path: (step_of(path), path.name), reverse=True)


def checkpoints_by_step(folder: Path) -> dict[int, Path]:
    """Checkpoints by their steps, ascending; of one step the newest."""
    by_step = {step_of(path): path for path in reversed(list_checkpoints(folder))}
    return {step: by_step[step] for step in sorted(by_step) if step >= 0}


def record_path(folder: Path, step: int) -> Path:
    """Path of the record of the step after a checkpoint; the record is dropped with the checkpoint."""
    return folder / f"after-{step:08d}.json"


def drop_old(folder: Path, step: int, keep: int, stays: Collection[int] = ()) -> None:
    """Drop checkpoints beyond the newest ``keep`` up to a step, and records of steps that no checkpoint is left for.

    Those of the steps in ``stays`` are neither dropped nor counted.

    Each is renamed first: half of one never has a checkpoint's name.
    """
    # Later ones stay, and so do copies by hand, such as `step-00000120 (copy)`, whose step is -1.
    paths = [path for path in list_checkpoints(folder) if 0 <= step_of(path) <= step and step_of(path) not in stays]
    for path in paths[keep:]:
        trash = path.with_name(f".{path.name}{DROPPED}")
        path.rename(trash)
        _discard(trash)
    # Records go with their checkpoints, also those of checkpoints that someone removed by hand.
    records = {record_path(folder, step_of(path)) for path in list_checkpoints(folder)}
    for path in set(folder.glob("after-*.json")) - records:
        path.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed saves left behind; only the one process that saves there may call it."""
    for path in (*folder.glob(f".{PREFIX}*{UNFINISHED}"), *folder.glob(f".{PREFIX}*{DROPPED}")):
        _discard(path)
    remove_leftovers(folder, ["after-*"])


def _write(temporary: Path, snapshot: Snapshot) -> dict[str, Seal]:
    tensors: dict[str, Tensor] = {}
    plain = {
        "position": asdict(snapshot.position),
        "optimizer": pack(snapshot.state.optimizer, tensors),
        "scaler": pack(snapshot.state.scaler, {}),
        "log": pack(snapshot.log, {}),
        "facts": pack(snapshot.facts, {}),
    }
    text = json.dumps(plain, indent=1, allow_nan=False)
    temporary.mkdir(parents=True)
    seals = {
        MODEL: write_tensors(temporary / MODEL, snapshot.state.model),
        OPTIMIZER: write_tensors(temporary / OPTIMIZER, tensors),
        AVERAGE: write_tensors(temporary / AVERAGE, snapshot.average),
        STATE: write_file(temporary / STATE, [text.encode()]),
    }
    for name in seals:
        flush_to_disk(temporary / name)
    write_manifest(temporary, snapshot.position.step, seals)  # only now: what it vouches for is on disk
    for path in (*temporary.glob("MANIFEST*"), temporary):
        flush_to_disk(path)
    return seals


def _commit(temporary: Path, target: Path, dropped: Path) -> None:
    """Give a finished folder its name, which lasts once the folder above is flushed."""
    # A folder cannot be renamed onto one that is not empty; it is moved aside until the new one has its name.
    if target.exists():  # damaged, or of another content
        target.rename(dropped)
    try:
        temporary.rename(target)
    except OSError:
        if dropped.exists():
            dropped.rename(target)
        raise
    flush_to_disk(target.parent)
    _discard(dropped)  # only now: its successor lasts


def _read(path: Path) -> Snapshot:
    try:
        plain = _plain_state(path)
        state = FullState(
            model=_read_tensors(path / MODEL),
            optimizer=unpack(plain["optimizer"], _read_tensors(path / OPTIMIZER)),
            scaler=plain["scaler"],
        )
        position = Position(**plain["position"])
        return Snapshot(state, _read_tensors(path / AVERAGE), position, plain["log"], plain["facts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"checkpoint {path} cannot be read: {first_line(error)}") from error


def _plain_state(path: Path) -> dict[str, Any]:
    """``state.json`` of a checkpoint, unpacked and checked, except for the optimiser's state."""
    packed = dict(json.loads((path / STATE).read_text(encoding="utf-8")))
    plain = {name: value if name == "optimizer" else unpack(value, {}) for name, value in packed.items()}
    _PlainState.model_validate(plain)
    return plain


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors into memory of their own: as loaded they are parts of the file, which may be dropped."""
    return {name: value.clone() for name, value in read_tensors(path).items()}


def _discard(path: Path) -> None:
    """Remove a folder that nothing needs any more; what cannot be removed now is removed by a later save."""
    with contextlib.suppress(OSError):  # ignore_errors does not cover all calls of rmtree
        shutil.rmtree(path, ignore_errors=True)
