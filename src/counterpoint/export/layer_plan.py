"""A network as plain values that ``modeling_counterpoint`` builds it from: layers of torch, and how they join."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from counterpoint.core.errors import UsageError
from counterpoint.nn.encoders import TIMM_PREFIX, Pooled
from counterpoint.nn.heads import Diagonal, LowRank
from counterpoint.nn.resnet import ResidualBlock, ResNet

Plan = dict[str, Any]
# What a layer of torch is built with, by its attributes.
ARGUMENTS: Mapping[type[nn.Module], tuple[str, ...]] = {
    nn.Conv2d: ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
    nn.Linear: ("in_features", "out_features"),
    nn.BatchNorm1d: ("num_features", "eps", "affine"),
    nn.BatchNorm2d: ("num_features", "eps", "affine"),
    nn.LayerNorm: ("normalized_shape", "eps"),
    nn.MaxPool2d: ("kernel_size", "stride", "padding"),
    nn.AdaptiveAvgPool2d: ("output_size",),
    nn.Flatten: ("start_dim", "end_dim"),
    nn.GELU: ("approximate",),
    nn.LeakyReLU: ("negative_slope",),
    nn.ReLU: (),
    nn.SiLU: (),
    nn.Tanh: (),
    nn.Sigmoid: (),
    nn.Identity: (),
}
WITH_BIAS = (nn.Conv2d, nn.Linear)


def plan_of(module: nn.Module, place: str) -> Plan:
    """Describe a network; its names of weights are those of the module.

    Args:
        module: made of layers of torch, in sequence or around shortcuts.
        place: what errors call it.

    Raises:
        UsageError: a module that is none of these.
    """
    if type(module) in ARGUMENTS:
        values = {name: _plain(getattr(module, name)) for name in ARGUMENTS[type(module)]}
        bias = {"bias": module.bias is not None} if isinstance(module, WITH_BIAS) else {}
        return {"type": type(module).__name__, **values, **bias}
    if type(module) in JOINS:
        return JOINS[type(module)](module, place)
    if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
        return _chain(dict(module.named_children()), place)
    raise UsageError(
        f"the format folder cannot describe module {place} ({type(module).__name__}): it knows layers of torch in "
        "sequence and around shortcuts; export it as onnx or safetensors"
    )


def timm_plan(architecture: str, in_shape: tuple[int, ...], body: nn.Module) -> Plan:
    """Describe a model of timm, which builds it itself.

    Args:
        architecture: ``timm:NAME``.
        in_shape: (channels, height, width).
        body: the model, perhaps with pooling around it.
    """
    channels, height, width = in_shape
    model: Any = body.body if isinstance(body, Pooled) else body
    arguments: Plan = {"num_classes": 0, "in_chans": channels}
    if hasattr(getattr(model, "patch_embed", None), "img_size"):
        arguments["img_size"] = [height, width]  # its position embeddings are of this size
    plan: Plan = {"type": "library", "library": "timm", "name": architecture.removeprefix(TIMM_PREFIX)}
    plan["arguments"] = arguments
    return _pooled(plan, body.axes) if isinstance(body, Pooled) else plan


def _chain(children: Mapping[str, nn.Module], place: str) -> Plan:
    """Modules one behind the other."""
    return {"type": "chain", "parts": {name: plan_of(child, f"{place}.{name}") for name, child in children.items()}}


def _resnet(module: ResNet, place: str) -> Plan:
    """Stem, blocks, and the average over space."""
    chain = _chain({"stem": module.stem, "blocks": module.blocks}, place)
    chain["parts"]["mean"] = {"type": "mean", "axes": [2, 3]}
    return chain


def _block(module: ResidualBlock, place: str) -> Plan:
    """Residual and shortcut."""
    parts = {"residual": module.residual, "shortcut": module.shortcut}
    return {"type": "block", **{name: plan_of(part, f"{place}.{name}") for name, part in parts.items()}}


def _pooled(body: Plan, axes: tuple[int, ...]) -> Plan:
    """A network whose maps or tokens are averaged."""
    return {"type": "chain", "parts": {"body": body, "mean": {"type": "mean", "axes": list(axes)}}}


def _plain(value: Any) -> Any:
    """Tuples as JSON has them."""
    return list(value) if isinstance(value, tuple) else value


JOINS: Mapping[type[nn.Module], Callable[[Any, str], Plan]] = {
    ResNet: _resnet,
    ResidualBlock: _block,
    Pooled: lambda module, place: _pooled(plan_of(module.body, f"{place}.body"), module.axes),
    LowRank: lambda module, _: {"type": "low-rank", "shape": list(module.rows_RD.shape)},
    Diagonal: lambda module, _: {"type": "diagonal", "width": len(module.scale_D)},
}
