"""The layers of an encoder from the input to the output, as learning rates per layer need them."""

from collections.abc import Sequence

from torch import nn

from counterpoint.nn.encoders import Pooled, timm_layers
from counterpoint.nn.resnet import ResNet


def parameter_layers(backbone: nn.Module) -> tuple[tuple[nn.Parameter, ...], ...]:
    """Parameters of an encoder by layer, the layer nearest to the input first; layers without any are left out.

    ResNets of ours: the stem, then each residual block. A sequence: each convolution or matrix with the norms that
    follow it. Models of timm: as their ``group_matcher`` has them. Anything else: its children in the order in which it
    holds them; parameters of its own (tokens, positions) belong to the first.

    Args:
        backbone: maps samples to representations.

    >>> body = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))
    >>> [len(layer) for layer in parameter_layers(body)]
    [4, 2]
    """
    body = backbone.body if isinstance(backbone, Pooled) else backbone
    if hasattr(body, "group_matcher"):
        return _layers_of_timm(body)
    if isinstance(body, ResNet):
        parts = [[body.stem], *([block] for block in body.blocks)]
    elif isinstance(body, nn.Sequential):
        parts = _split_at_weights(list(body))
    else:
        parts = [[child] for child in body.children()]
    layers = [[parameter for module in part for parameter in module.parameters()] for part in parts]
    own = list(body.parameters(recurse=False))
    layers = [own + layers[0], *layers[1:]] if layers else [own]
    return _once([layer for layer in layers if layer])


def _split_at_weights(modules: Sequence[nn.Module]) -> list[list[nn.Module]]:
    """Modules of a sequence, a new part at each that has a kernel, a matrix or parts of its own."""
    parts: list[list[nn.Module]] = []
    for module in modules:
        has_weights = any(parameter.ndim > 1 for parameter in module.parameters())
        if has_weights or not parts:
            parts.append([])
        parts[-1].append(module)
    return parts


def _layers_of_timm(body: nn.Module) -> tuple[tuple[nn.Parameter, ...], ...]:
    layer_of = timm_layers(body)
    layers: list[list[nn.Parameter]] = [[] for _ in range(max(layer_of.values()) + 1)]
    for name, parameter in body.named_parameters():
        layers[layer_of[name]].append(parameter)
    return _once([layer for layer in layers if layer])


def _once(layers: Sequence[Sequence[nn.Parameter]]) -> tuple[tuple[nn.Parameter, ...], ...]:
    """Each parameter in the first layer that has it, as weights may be shared."""
    seen: set[int] = set()
    found = []
    for layer in layers:
        found.append(tuple(parameter for parameter in layer if id(parameter) not in seen))
        seen.update(map(id, layer))
    return tuple(layer for layer in found if layer)
