"""The layers of an encoder: what each gives for samples, and in which order they are passed."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError, unknown_name
from counterpoint.nn.encoders import POOLED_AXES
from counterpoint.nn.trained import Encoder

REPRESENTATION, EMBEDDING, PROJECTED, SUBVECTOR = "representation", "embedding", "projected", "subvector"
OUTPUTS = (REPRESENTATION, EMBEDDING, PROJECTED, SUBVECTOR)
PROJECTOR = "projector."  # before the names of its modules


def check_layers(encoder: Encoder, names: Sequence[str]) -> None:
    """Require layers that an encoder has.

    Raises:
        UsageError: there is no such layer, or it would be another one.
    """
    modules = inner_modules(encoder)
    for name in names:
        if name not in OUTPUTS and name not in modules:
            raise unknown_name("layer", name, [*OUTPUTS, *modules])
    if SUBVECTOR in names and encoder.card.d0 is None:
        raise UsageError("the encoder has no sub-vector: its loss saw all dimensions; use projected")


def inner_modules(encoder: Encoder) -> dict[str, nn.Module]:
    """Modules of the backbone by their names there, and those of the projector with ``projector.`` before theirs."""
    of_projector = {f"{PROJECTOR}{name}": module for name, module in encoder.projector.named_modules() if name}
    return {**of_projector, **{name: module for name, module in encoder.backbone.named_modules() if name}}


class LayerReader:
    """Passes samples through an encoder once and reads several of its layers.

    Args:
        encoder: as it is; hooks are removed again by ``close``.
        names: ``representation``; ``embedding``, as the loss compared it, of unit length; ``projected``, the embedding
            before its output map; ``subvector``, the dimensions of that which the output map keeps; or a module of the
            backbone by its name, or of the projector as ``projector.NAME``; maps and tokens are averaged.

    Raises:
        UsageError: there is no such layer, or it would be another one.

    >>> from counterpoint.nn.trained import EncoderCard
    >>> card = EncoderCard("mlp", "vectors", (2,), (0.0, 0.0), (1.0, 1.0), 2, "none", 2, 2, "none", None)
    >>> reader = LayerReader(Encoder(card, nn.Sequential(nn.Identity(), nn.ReLU()), nn.Identity()), ["0"])
    >>> reader(torch.tensor([[3.0, -4.0]]))["0"]
    tensor([[ 3., -4.]])
    """

    def __init__(self, encoder: Encoder, names: Sequence[str]) -> None:
        self._encoder, self._names = encoder, tuple(names)
        self._seen = threading.local()  # several threads may pass samples at a time
        check_layers(encoder, names)
        modules = inner_modules(encoder)
        inner = [name for name in names if name not in OUTPUTS]
        self._needs_projector = not set(names) <= {REPRESENTATION, *dict(encoder.backbone.named_modules())}
        self._handles = [modules[name].register_forward_hook(self._keep(name)) for name in inner]

    def __enter__(self) -> "LayerReader":
        """Nothing more is needed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the hooks."""
        self.close()

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    @torch.no_grad()
    def __call__(self, samples: Tensor) -> dict[str, Tensor]:
        """Layers by name (n, d), on the CPU, in float32; in float64 where the encoder computes so.

        Args:
            samples: raw, as a source stores them.
        """
        return self.of_views(self._encoder.prepare(samples))

    @torch.no_grad()
    def of_views(self, views: Tensor) -> dict[str, Tensor]:
        """The same of input that is prepared already."""
        encoder = self._encoder
        self._seen.found = {}
        r = encoder.backbone(views.to(encoder.device))
        found = {REPRESENTATION: r}
        if self._needs_projector:
            found[PROJECTED] = encoder.projector(r)
            found[SUBVECTOR] = found[PROJECTED][:, : encoder.card.d0]
            found[EMBEDDING] = encoder.output_map(found[PROJECTED])
        found |= self._seen.found
        if unused := [name for name in self._names if name not in found]:
            raise UsageError(f"layer {unused[0]} is not used when samples pass the encoder; choose another one")
        return {
            name: found[name].to(torch.promote_types(found[name].dtype, torch.float32)).cpu() for name in self._names
        }

    def _keep(self, name: str) -> Any:
        """A hook that keeps what a module gives."""

        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not isinstance(output, Tensor) or output.ndim not in POOLED_AXES:
                raise UsageError(f"layer {name} gives no vectors, tokens or maps; choose another one")
            axes = POOLED_AXES[output.ndim]
            # A copy: the next layer may work in place.
            self._seen.found[name] = output.mean(dim=axes) if axes else output.clone()

        return hook


SAME = (nn.Identity, nn.Flatten, nn.modules.dropout._DropoutNd)  # give what they get, in evaluation


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
    represents all, with the kind of the first.

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
        last = found[chain[-1].name] if chain else None
        # The same, except for the order in which means are computed.
        if last is not None and last.shape == found[name].shape and torch.allclose(last, found[name], 1e-6, 1e-12):
            before = chain.pop()
            layer = Layer(name, before.kind, layer.num_dims, before.is_pooled)
        chain.append(layer)
    return tuple(chain)


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
