"""The layers of an encoder, and the output of each for samples."""

import threading
from collections.abc import Sequence
from functools import partial
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
        UsageError: the encoder has no such layer, or no sub-vector.
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
        encoder: encoder to read; the reader's hooks are removed at the end of a ``with`` block.
        names: ``representation``; ``embedding``, as the loss compared it, of unit length; ``projected``, the embedding
            before its output map; ``subvector``, the dimensions of that which the output map keeps; or a module of the
            backbone by its name, or of the projector as ``projector.NAME``; maps and tokens are averaged.

    Raises:
        UsageError: the encoder has no such layer, or no sub-vector.

    >>> from counterpoint.nn.trained import EncoderCard
    >>> card = EncoderCard("mlp", "vectors", (2,), (0.0, 0.0), (1.0, 1.0), 2, "none", 2, 2, "none", None)
    >>> reader = LayerReader(Encoder(card, nn.Sequential(nn.Identity(), nn.ReLU()), nn.Identity()), ["0"])
    >>> reader(torch.tensor([[3.0, -4.0]]))["0"]
    tensor([[ 3., -4.]])
    """

    def __init__(self, encoder: Encoder, names: Sequence[str]) -> None:
        self._encoder, self._names = encoder, tuple(names)
        self._per_thread = threading.local()  # several threads may pass samples at a time
        check_layers(encoder, names)
        modules = inner_modules(encoder)
        inner = [name for name in names if name not in OUTPUTS]
        self._needs_projector = not set(names) <= {REPRESENTATION, *dict(encoder.backbone.named_modules())}
        self._handles = [modules[name].register_forward_hook(partial(self._keep, name)) for name in inner]

    def __enter__(self) -> "LayerReader":
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    @torch.no_grad()
    def __call__(self, samples: Tensor) -> dict[str, Tensor]:
        """Layers by name (n, d), on the CPU, in float32; in float64 where the encoder computes so.

        Args:
            samples: raw samples, as a source stores them.
        """
        return self.of_views(self._encoder.prepare(samples))

    @torch.no_grad()
    def of_views(self, views: Tensor) -> dict[str, Tensor]:
        """Layers by name, as ``__call__`` returns them, of input that is prepared already."""
        encoder = self._encoder
        self._per_thread.outputs = {}
        r = encoder.backbone(views.to(encoder.device))
        layers = {REPRESENTATION: r}
        if self._needs_projector:
            layers[PROJECTED] = encoder.projector(r)
            layers[SUBVECTOR] = layers[PROJECTED][:, : encoder.card.d0]
            layers[EMBEDDING] = encoder.output_map(layers[PROJECTED])
        layers |= self._per_thread.outputs
        if unused := [name for name in self._names if name not in layers]:
            raise UsageError(f"layer {unused[0]} is not used when samples pass the encoder; choose another one")
        return {
            name: layers[name].to(torch.promote_types(layers[name].dtype, torch.float32)).cpu() for name in self._names
        }

    def _keep(self, name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        if not isinstance(output, Tensor) or output.ndim not in POOLED_AXES:
            raise UsageError(f"layer {name} gives no vectors, tokens or maps; choose another one")
        axes = POOLED_AXES[output.ndim]
        # A copy: the next layer may work in place.
        self._per_thread.outputs[name] = output.mean(dim=axes) if axes else output.clone()
