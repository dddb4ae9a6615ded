"""What went wrong in a step that cannot be taken: which tensor, which samples, and what to change."""

# N samples of this rank

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from counterpoint.engine.sharding import is_sharded
from counterpoint.nn.method import Method

NUM_NAMED = 5  # sample ids that a message lists
STATISTICS = ("running_mean", "running_var")  # the failed pass itself has changed them
NOWHERE = 999_999  # depth behind all layers, in the six digits that `step` compares


@dataclass(frozen=True)
class Suspect:
    """The first tensor on the way from views to loss that is not finite.

    Attributes:
        depth: how far from the data it is: views, weights, layers in order.
        name: what it is, in words.
        rows: which rows of it, modulo the batch; empty for a weight.
    """

    depth: int
    name: str
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Diagnosis:
    """What a rank found.

    Attributes:
        depth: of the suspect; of several ranks the one with the smallest is right.
        text: what the user should read.
    """

    depth: int
    text: str


def describe_loss(method: Method, views: tuple[Tensor, Tensor], ids_N: Tensor) -> Diagnosis:
    """Say where the values stopped being finite: looked for by one more pass, layer by layer, on this rank alone.

    Args:
        method: as it was when the loss was computed.
        views: first and second view of the samples.
        ids_N: their ids.
    """
    suspects = (
        Suspect(number, f"view {number} of the data", rows)
        for number, view in enumerate(views)
        if (rows := _bad_rows(view))
    )
    suspect = next(suspects, None)
    if suspect is None and not is_sharded(method):  # a look at shards is a collective, and this rank may look alone
        suspect = _suspect_weight(method) or _suspect_layer(method, views[0])
    if suspect is None:
        are = "views are finite, the loss is not; shards are not searched"
        where = are if is_sharded(method) else "representations are finite, the loss is not"
        return Diagnosis(NOWHERE, f"{where}; samples {named_ids(ids_N)}")
    rows = sorted({row % len(ids_N) for row in suspect.rows})
    affected = ids_N[rows] if rows else ids_N
    text = f"the first tensor that is not finite is {suspect.name}; samples {named_ids(affected)}"
    return Diagnosis(suspect.depth, text)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed, on a GPU, in one of its libraries, or on the CPU."""
    words = str(error)
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in words or "ALLOC_FAILED" in words


def describe_memory(error: Exception, batch_size: int, chunk_size: int | Literal["none"]) -> str:
    """Say what to change when memory ran out.

    Args:
        error: torch's own.
        batch_size: samples per step on this rank.
        chunk_size: samples that gradient caching encodes at once, or ``none``.
    """
    smaller = max(1, (2 * batch_size if chunk_size == "none" else chunk_size) // 4)
    return (
        f"out of memory with {batch_size} samples per step on this device: keep the batch and its negatives with "
        f"--engine.chunk-size {smaller} (gradient caching, one more forward pass), or lower --batch-size, or use "
        f"--engine.precision bf16 ({str(error).splitlines()[0]})"
    )


def named_ids(ids_N: Tensor) -> str:
    """The first few ids of a batch."""
    shown = ids_N[:NUM_NAMED].tolist()
    more = f" and {len(ids_N) - NUM_NAMED} more" if len(ids_N) > NUM_NAMED else ""
    return f"{shown}{more}"


def _suspect_weight(method: nn.Module) -> Suspect | None:
    """A weight or buffer that has gone bad."""
    for name, value in method.state_dict().items():
        if name.endswith(STATISTICS) or not value.is_floating_point():  # whole numbers are always finite
            continue
        if not bool(torch.isfinite(value).all()):
            return Suspect(2, f"the weight {name}", ())  # views are 0 and 1, layers begin at 3
    return None


def _suspect_layer(method: Method, view: Tensor) -> Suspect | None:
    """The first layer of encoder and projector whose output is bad; its statistics are left as they were."""
    found: list[Suspect] = []

    def watch(name: str) -> torch.utils.hooks.RemovableHandle:
        def look(module: nn.Module, given: object, output: object) -> None:
            if not found and isinstance(output, Tensor) and (rows := _bad_rows(output)):
                found.append(Suspect(3 + list(modules).index(name), f"the output of {name}", rows))

        return modules[name].register_forward_hook(look)

    parts = {"backbone": method.backbone, "projector": method.projector}
    modules = {
        f"{part}.{name}".rstrip("."): module
        for part, whole in parts.items()
        for name, module in whole.named_modules()
        if not list(module.children())  # leaves only: what holds them has their outputs
    }
    was_training = method.training
    handles = [watch(name) for name in modules]
    try:
        with torch.no_grad():
            # In evaluation BatchNorm mixes no rows: one bad sample does not make the whole batch bad.
            method.projector(method.eval().backbone(view))
    finally:
        method.train(was_training)
        for handle in handles:
            handle.remove()
    return found[0] if found else None


def _bad_rows(x: Tensor) -> tuple[int, ...]:
    """Rows of a tensor that hold NaN or infinity."""
    if not x.is_floating_point() or x.ndim == 0:
        return ()
    is_bad_N = ~torch.isfinite(x.detach()).flatten(1).all(dim=1) if x.ndim > 1 else ~torch.isfinite(x.detach())
    return tuple(is_bad_N.nonzero()[:, 0].tolist())
