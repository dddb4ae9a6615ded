"""Features of two views of the same samples, as an encoder was trained to bring them together."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from counterpoint.core.array_layout import fit_images, to_unit_float
from counterpoint.evaluation.features import PIECE, VIEW_EPOCH, with_encoder
from counterpoint.evaluation.subject import Subject
from counterpoint.nn.layer_outputs import LayerReader
from counterpoint.nn.trained import Encoder

NOTHING_ELSE: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType({})


def view_pairs(
    subject: Subject,
    encoder: Encoder,
    layers: Sequence[str],
    positions_N: Tensor,
    also: Mapping[str, Callable[[Tensor], Tensor]] = NOTHING_ELSE,
) -> dict[str, tuple[Tensor, Tensor]]:
    """Layers of an encoder for the first and the second view of some samples.

    Args:
        subject: whose views and samples are taken; it must have views.
        encoder: of the subject, or a baseline.
        layers: see ``nn.layer_outputs.LayerReader``.
        positions_N: of the samples.
        also: what is computed of the views themselves, by name.
    """
    source, drawer = subject.source, subject.views()
    with LayerReader(encoder, layers) as reader:

        def outputs(ids_B: Tensor) -> list[dict[str, Tensor]]:
            samples = source.store.fetch(ids_B.tolist())
            # Other data may have another size, or no colours: views are drawn of what the encoder takes.
            if encoder.card.kind == "images" and samples.shape[1:] != encoder.card.in_shape:
                samples = fit_images(to_unit_float(samples), encoder.card.in_shape)
            views = drawer.two_views(samples, ids_B, VIEW_EPOCH)
            seen = [{name: measure(view) for name, measure in also.items()} for view in views]
            return [{**reader.of_views(view), **own} for view, own in zip(views, seen, strict=True)]

        parts = with_encoder(encoder, outputs, positions_N.split(PIECE))
    return {
        layer: (torch.cat([first[layer] for first, _ in parts]), torch.cat([second[layer] for _, second in parts]))
        for layer in (*layers, *also)
    }


def evenly_spaced(positions_N: Tensor, at_most: int) -> Tensor:
    """At most so many of some positions, from everywhere: samples of one class often lie together.

    >>> evenly_spaced(torch.arange(9), 3)
    tensor([0, 4, 8])
    """
    return positions_N[torch.linspace(0, len(positions_N) - 1, min(len(positions_N), at_most)).long()]
