"""The record of one step, to the last bit: kept after each save, so that a later replay can be compared with it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import Tensor

from counterpoint.core.errors import RunError
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.core.processor_routines import product_library
from counterpoint.engine.checkpoint import Position, record_path
from counterpoint.nn.tensor_file import tensor_bytes

NUM_IDS = 5  # of the batch, kept for the reader


@dataclass(frozen=True)
class StepRecord:
    """One update, in values that are equal only if every bit is.

    Attributes:
        step: number of updates done before it.
        epoch: number of whole epochs done before it.
        batch: number of its batch within the epoch, from 0.
        ids_sha256: hash of the sample ids of the whole batch, in order.
        first_ids: ids of the first samples of the batch, at most ``NUM_IDS``.
        loss: loss of the whole batch, as ``float.hex`` writes it.
        gradient_norm: length of the gradient before clipping, as ``float.hex`` writes it.
        weights_sha256: hash of all weights and buffers after the update.
    """

    step: int
    epoch: int
    batch: int
    ids_sha256: str
    first_ids: tuple[int, ...]
    loss: str
    gradient_norm: str
    weights_sha256: str

    @classmethod
    def of(
        cls, before: Position, ids_N: Tensor, loss: float, gradient_norm: float, weights_sha256: str
    ) -> "StepRecord":
        """Record a step.

        Args:
            before: position of the run before the step.
            ids_N: sample ids of the whole batch, all ranks together.
            loss: loss of the whole batch.
            gradient_norm: length of the gradient before clipping.
            weights_sha256: hash of weights and buffers after the update, by ``weights_digest``.
        """
        ids = hashlib.sha256(tensor_bytes(ids_N.long())).hexdigest()  # the same bytes whatever integers the loader uses
        first = tuple(ids_N[:NUM_IDS].tolist())
        numbers = float(loss).hex(), float(gradient_norm).hex()
        return cls(before.step, before.epoch, before.batch, ids, first, *numbers, weights_sha256)


@dataclass(frozen=True)
class MachineFacts:
    """Facts about a machine that may change the last bit of a sum."""

    torch: str
    threads: int
    device: str
    products: str = "torch"  # the library that multiplied, as records before 0.3.0 do not say

    def __str__(self) -> str:
        by = "" if self.products == "torch" else f", products by {self.products}"
        return f"torch {self.torch}, {self.threads} thread{'s' * (self.threads != 1)}, {self.device}{by}"


@dataclass(frozen=True)
class KeptStep:
    """A record as it was kept, with the machine that made it."""

    record: StepRecord
    machine: MachineFacts


def this_machine(device: str = "cpu") -> MachineFacts:
    """The machine as it is now.

    Args:
        device: device on which the run is computed, ``cpu`` or ``cuda``.
    """
    if device.startswith("cuda"):
        return MachineFacts(torch.__version__, torch.get_num_threads(), torch.cuda.get_device_name())
    return MachineFacts(torch.__version__, torch.get_num_threads(), device, product_library())


def weights_digest(state: Mapping[str, Tensor]) -> str:
    """Hash of tensors with their names, dtypes and shapes; the order of the mapping does not matter.

    >>> one, two = torch.zeros(2), torch.ones(1)
    >>> weights_digest({"a": one, "b": two}) == weights_digest({"b": two, "a": one})
    True
    >>> weights_digest({"a": one}) == weights_digest({"a": -one})  # +0 and -0 are different bits
    False
    """
    digest = hashlib.sha256()
    for name in sorted(state):
        value = state[name]
        # Bytes alone do not tell a (2, 3) from a (3, 2), nor where one tensor ends.
        digest.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
        digest.update(tensor_bytes(value))
    return digest.hexdigest()


def record_step(folder: Path, record: StepRecord, *, device: str = "cpu") -> str | None:
    """Keep the record of the first step after a checkpoint, or compare it with the one that is kept already.

    Args:
        folder: the run's checkpoint folder.
        record: record of the step that follows the checkpoint of the same number.
        device: device on which the run is computed, ``cpu`` or ``cuda``.

    Returns:
        A note for the user if the step was taken before and came out differently; None otherwise.

    Raises:
        RunError: the disk refuses.
    """
    path, now = record_path(folder, record.step), this_machine(device)
    earlier = read_step(folder, record.step)
    if earlier is None:
        write_sealed(path, {"record": asdict(record), "machine": asdict(now)})
        return None
    changed = differences(earlier.record, record)
    if not changed:
        return None
    if earlier.machine == now:
        return (
            f"step {record.step} is not repeated bit for bit ({', '.join(changed)}) by the same machine and torch: "
            "the data are read differently, as tall pictures in files are since 0.3.0; the run continues, but is not "
            "the one that an uninterrupted run would have been"
        )
    return (
        f"this machine does not repeat step {record.step} bit for bit: {', '.join(changed)}; then {earlier.machine}; "
        f"now {now}; the run continues, but is not the one that an uninterrupted run would have been"
    )


def read_step(folder: Path, step: int) -> KeptStep | None:
    """Read the record of the step after a checkpoint; None if there is none, or it cannot be read."""
    try:
        values = read_sealed(record_path(folder, step))
        recorded = {field.name: values["record"][field.name] for field in fields(StepRecord)}
        record = StepRecord(**{**recorded, "first_ids": tuple(recorded["first_ids"])})
        step_record = KeptStep(record, MachineFacts(**values["machine"]))
        _ = float.fromhex(record.loss), float.fromhex(record.gradient_norm)
    # A damaged record counts as missing: the next run over this step writes it again.
    except (RunError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return step_record if step_record.record.step == step else None


def differences(then: StepRecord, now: StepRecord) -> list[str]:
    """Say what differs between two records of one step, in words; empty if every bit is the same."""
    words = []
    if (then.epoch, then.batch) != (now.epoch, now.batch):
        words.append(f"batch {then.batch} of epoch {then.epoch + 1} then, {now.batch} of {now.epoch + 1} now")
    if then.ids_sha256 != now.ids_sha256:
        words.append(f"other samples ({list(then.first_ids)} ... then, {list(now.first_ids)} ... now)")
    for name, before, after in (
        ("loss", then.loss, now.loss),
        ("gradient norm", then.gradient_norm, now.gradient_norm),
    ):
        if before != after:
            words.append(f"{name} {float.fromhex(before)!r} then, {float.fromhex(after)!r} now")
    if then.weights_sha256 != now.weights_sha256:
        words.append("other weights after the step")
    return words
