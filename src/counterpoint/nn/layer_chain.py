"""The layers that samples pass in an encoder, in their order, and the linear layers that follow each other."""

# D inputs, H outputs of a linear layer, K outputs of the next

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from counterpoint.nn.layer_outputs import EMBEDDING, POOLED_AXES, PROJECTED, PROJECTOR, REPRESENTATION, LayerReader
from counterpoint.nn.trained import Encoder

SAME = (nn.Identity, nn.Flatten, nn.modules.dropout._DropoutNd)  # give what they get, in evaluation
# What stands between linear layers and mixes no dimensions; BatchNorm is part of the layer before it.
ELEMENTWISE = (*SAME, nn.ReLU, nn.GELU, nn.SiLU, nn.LeakyReLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.LayerNorm)


@dataclass(frozen=True)
class Layer:
    """One layer.

    Attributes:
        name: as ``LayerReader`` takes it.
        kind: class of the module, or of the one whose output it is.
        num_dims: of its vectors.
        is_pooled: its maps or tokens are averaged.
    """

    name: str
    kind: str
    num_dims: int
    is_pooled: bool


def layers_of(encoder: Encoder, samples: Tensor) -> tuple[Layer, ...]:
    """The layers that samples pass, in the order in which they are used first.

    Sequences of modules are taken apart, other modules that hold modules (residual blocks, transformer blocks) are one
    layer. Of layers in a row that give the same, such as the last of a backbone and the representation, the last one
    stands for all, with the kind of the first.

    Args:
        encoder: in evaluation mode.
        samples: a few raw ones, which are passed through it once.

    Returns:
        Modules of the backbone, the representation, modules of the projector, the embedding.
    """
    modules = {**_parts(encoder.backbone, ""), **_parts(encoder.projector, PROJECTOR)}
    used = _used(encoder, modules, samples)
    inner = [name for name in used if not name.startswith(PROJECTOR)]
    behind = [name for name in used if name.startswith(PROJECTOR)]
    own = [PROJECTED] if not behind and not isinstance(encoder.projector, nn.Identity) else []
    names = [*inner, REPRESENTATION, *behind, *own, EMBEDDING]
    kinds = {name: type(modules[name]).__name__ for name in used}
    kinds |= {REPRESENTATION: "backbone", PROJECTED: type(encoder.projector).__name__, EMBEDDING: "output map"}
    with LayerReader(encoder, names) as reader:
        found = reader(samples)
    chain: list[Layer] = []
    for name in names:
        layer = Layer(name, kinds[name], found[name].shape[1], used.get(name, False))
        if chain and _is_same(found[chain[-1].name], found[name]):
            before = chain.pop()
            layer = Layer(name, before.kind, layer.num_dims, before.is_pooled)
        chain.append(layer)
    return tuple(chain)


def _is_same(before: Tensor, after: Tensor) -> bool:
    """Whether two layers give the same, but for the order in which means are taken."""
    return before.shape == after.shape and torch.allclose(before, after, rtol=1e-6, atol=1e-12)


def _parts(module: nn.Module, prefix: str) -> dict[str, nn.Module]:
    """The layers below a module by name: sequences are taken apart, and a wrapper of a whole network."""
    children = dict(module.named_children())
    if len(children) == 1:
        (name, only) = next(iter(children.items()))
        # What the wrapper gives is the representation, which is there anyway.
        if list(only.children()):
            return _parts(only, f"{prefix}{name}.")
    return {name: child for name, child in _members(module, prefix).items() if not isinstance(child, SAME)}


def _members(module: nn.Module, prefix: str) -> dict[str, nn.Module]:
    found: dict[str, nn.Module] = {}
    for name, child in module.named_children():
        is_sequence = isinstance(child, nn.Sequential | nn.ModuleList)
        found |= _members(child, f"{prefix}{name}.") if is_sequence else {f"{prefix}{name}": child}
    return found


@torch.no_grad()
def _used(encoder: Encoder, modules: dict[str, nn.Module], samples: Tensor) -> dict[str, bool]:
    """Names of the modules that give vectors, tokens or maps, in the order of their first call; whether averaged."""
    used: dict[str, bool] = {}

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.ndim in POOLED_AXES:
                used.setdefault(name, bool(POOLED_AXES[output.ndim]))

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in modules.items()]
    try:
        encoder.projector(encoder.backbone(encoder.prepare(samples).to(encoder.device)))
    finally:
        for handle in handles:
            handle.remove()
    return used


@dataclass(frozen=True)
class LinearPair:
    """Two linear layers that follow each other.

    Attributes:
        below: name of the first.
        above: name of the second.
        below_HD: weights of the first, a BatchNorm behind it included.
        above_KH: weights of the second.
    """

    below: str
    above: str
    below_HD: Tensor
    above_KH: Tensor


def linear_pairs(encoder: Encoder) -> tuple[LinearPair, ...]:
    """Linear layers with nothing between them that mixes dimensions: element by element, or a norm.

    Only where modules are known to follow each other: in sequences, and from a backbone that is one to the projector. A
    BatchNorm in evaluation scales each dimension, and is part of the layer before it.
    """
    pairs: list[LinearPair] = []
    last: tuple[str, Tensor] | None = None
    for name, module in [*_flat("", encoder.backbone), *_flat(PROJECTOR, encoder.projector)]:
        if isinstance(module, nn.Linear):
            weight_KH = module.weight.detach().double().cpu()
            if last is not None and len(last[1]) == weight_KH.shape[1]:
                pairs.append(LinearPair(last[0], name, last[1], weight_KH))
            last = (name, weight_KH)
        elif isinstance(module, nn.BatchNorm1d) and last is not None:
            last = (last[0], _scale(module)[:, None] * last[1]) if module.num_features == len(last[1]) else None
        elif not isinstance(module, ELEMENTWISE):
            last = None
    return tuple(pairs)


def _scale(norm: nn.BatchNorm1d) -> Tensor:
    """What a BatchNorm multiplies each dimension by, in evaluation; without running statistics that of its weights."""
    scale_H = torch.ones(norm.num_features, dtype=torch.float64)
    if norm.weight is not None:
        scale_H = norm.weight.detach().double().cpu()
    variance_H = None if norm.running_var is None else norm.running_var.double().cpu()
    return scale_H if variance_H is None else scale_H / (variance_H + norm.eps).sqrt()


def _flat(prefix: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The members of a sequence; any other module as it is."""
    if not isinstance(module, nn.Sequential):
        yield prefix.removesuffix(".") or "backbone", module
        return
    for name, child in module.named_children():
        yield from _flat(f"{prefix}{name}.", child)
