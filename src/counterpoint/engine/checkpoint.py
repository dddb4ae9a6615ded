"""Checkpoints, whole or absent, without pickle: safetensors, JSON, and a manifest of hashes written last."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from counterpoint.core.errors import RunError, first_line
from counterpoint.core.files import flush_to_disk, sha256_of

FORMAT = 1
MODEL, OPTIMIZER, STATE, MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"
PREFIX = "step-"


@dataclass(frozen=True)
class Position:
    """How far training has come: ``epoch`` whole epochs, ``batch`` batches into the next, ``step`` updates in all."""

    epoch: int
    batch: int
    step: int


@dataclass(frozen=True)
class Restored:
    """Where training goes on, and which damaged checkpoints were passed over."""

    position: Position
    log: dict[str, Any]
    path: Path
    damaged: tuple[str, ...]


def save_checkpoint(
    folder: Path, module: nn.Module, optimizer: Optimizer, position: Position, *, log: dict[str, Any], keep: int
) -> Path:
    """Write ``step-*`` under a temporary name, flush, rename; then drop all but the newest ``keep``.

    Args:
        folder: the run's checkpoint folder.
        module: its parameters and buffers are saved.
        optimizer: its state is saved.
        position: how far training has come.
        log: JSON values of the epoch in progress.
        keep: number of checkpoints to keep, >= 1.

    Raises:
        RunError: a write, flush or rename failed; earlier checkpoints are untouched.
    """
    target = folder / f"{PREFIX}{position.step:08d}"
    if target.exists() and find_damage(target) is None:
        return target  # the same step is the same state: an interrupt at an epoch's end
    temporary = folder / f".{target.name}.tmp"
    tensors, plain = _flatten_optimizer(optimizer)
    state = {"format": FORMAT, "position": vars(position), "optimizer": plain, "log": log}
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_file({name: _plain(value) for name, value in module.state_dict().items()}, temporary / MODEL)
        save_file(tensors, temporary / OPTIMIZER)
        (temporary / STATE).write_text(json.dumps(state, allow_nan=False), encoding="utf-8")
        _seal(temporary)
        if target.exists():  # damaged
            shutil.rmtree(target)
        temporary.rename(target)
        flush_to_disk(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise RunError(f"cannot save checkpoint {target}: {error}; earlier checkpoints are untouched") from error
    for old in list_checkpoints(folder)[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def restore_checkpoint(folder: Path, module: nn.Module, optimizer: Optimizer) -> Restored:
    """Load the newest checkpoint that verifies.

    Raises:
        RunError: there is none; every damaged one is named.
    """
    damaged: list[str] = []
    for path in list_checkpoints(folder):
        problem = find_damage(path)
        if problem is not None:
            damaged.append(f"{path.name}: {problem}")
            continue
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        try:
            module.load_state_dict(load_file(path / MODEL))
            _unflatten_optimizer(optimizer, load_file(path / OPTIMIZER), state["optimizer"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} does not fit this model: {first_line(error)}") from None
        return Restored(Position(**state["position"]), state["log"], path, tuple(damaged))
    detail = "; ".join(damaged) if damaged else "none was saved"
    raise RunError(f"no usable checkpoint in {folder} ({detail}); start again with --overwrite")


def list_checkpoints(folder: Path) -> list[Path]:
    """Checkpoints, newest first."""
    return sorted((path for path in folder.glob(f"{PREFIX}*") if path.is_dir()), reverse=True)


def find_damage(path: Path) -> str | None:
    """Say what is wrong with a checkpoint, or None when every byte is as it was written."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        entries = dict(manifest["files"])
        if manifest["format"] != FORMAT or set(entries) != {MODEL, OPTIMIZER, STATE}:
            return f"{MANIFEST} does not list the files of format {FORMAT}"
        for name, digest in entries.items():
            if sha256_of(path / name) != digest:
                return f"{name} does not match its hash"
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except OSError as error:
        return f"{Path(str(error.filename)).name} is unreadable ({type(error).__name__})"
    except (ValueError, KeyError, TypeError) as error:
        return f"{MANIFEST} is unreadable ({type(error).__name__})"
    return None


def _seal(folder: Path) -> None:
    """Flush every file, then write and flush the manifest of hashes."""
    for name in (MODEL, OPTIMIZER, STATE):
        flush_to_disk(folder / name)
    files = {name: sha256_of(folder / name) for name in (MODEL, OPTIMIZER, STATE)}
    (folder / MANIFEST).write_text(json.dumps({"format": FORMAT, "files": files}), encoding="utf-8")
    flush_to_disk(folder / MANIFEST)
    flush_to_disk(folder)


def _flatten_optimizer(optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split an optimiser's state into named tensors and plain values."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    plain: dict[str, Any] = {}
    for index, entries in state["state"].items():
        for name, value in entries.items():
            (tensors if isinstance(value, Tensor) else plain)[f"{index}.{name}"] = value
    tensors = {name: _plain(value) for name, value in tensors.items()}
    return tensors, {"state": plain, "groups": state["param_groups"]}


def _unflatten_optimizer(optimizer: Optimizer, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
    """Inverse of ``_flatten_optimizer``."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **plain["state"]}.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": plain["groups"]})


def _plain(value: Tensor) -> Tensor:
    """Detached, contiguous, on the CPU, as safetensors asks."""
    return value.detach().cpu().contiguous().clone()
