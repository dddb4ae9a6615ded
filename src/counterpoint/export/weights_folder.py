"""The formats that hold weights: the encoder as ``cp.load`` reads it, and a folder that other programs load."""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.core.files import write_json, write_text
from counterpoint.core.rundir import EXPORT_WEIGHTS, RunFolder
from counterpoint.core.torch_state import usual_modes
from counterpoint.export.onnx_format import BOTH, Answer
from counterpoint.nn.classifier import save_classifier
from counterpoint.nn.encoders import Pooled, ResidualBlock, ResNet
from counterpoint.nn.heads import Diagonal, LowRank
from counterpoint.nn.trained import Encoder, load_encoder, save_encoder

CONFIG_FILE, LOADER_FILE = "config.json", "modeling_counterpoint.py"
CONFIG_FORMAT = 1


def write_weights(encoder: Encoder, folder: Path) -> Answer:
    """Write ``model.safetensors`` and ``encoder.json``, and open them as ``cp.load`` does."""
    place = RunFolder(folder, EXPORT_WEIGHTS)
    save_encoder(place, encoder)
    if (classifier := encoder.classifier) is not None:
        weights = {name: value for name, value in classifier.state_dict().items() if value is not None}
        save_classifier(place, weights, classifier.class_names, is_nonnegative=classifier.is_nonnegative)
    opened = load_encoder(place, encoder.backbone)

    @usual_modes()
    def answer(samples: Tensor) -> Mapping[str, Tensor]:
        # Samples stay as they are: a picture of one pixel's width would be read as one whose channels come last.
        return dict(zip(BOTH, opened.of_views(opened.prepare(samples.contiguous())), strict=True))

    return answer


def write_folder(encoder: Encoder, folder: Path) -> Answer:
    """Write ``config.json`` and the loader beside the weights, and open them by that loader.

    Raises:
        UsageError: a module that the configuration cannot describe.
    """
    card = encoder.card
    config = {
        "format": CONFIG_FORMAT,
        "kind": card.kind,
        "in_shape": list(card.in_shape),
        "mean": list(card.mean),
        "std": list(card.std),
        "resizing": card.resizing,
        "backbone": plan_of(encoder.backbone, "backbone"),
        "projector": plan_of(encoder.projector, "projector"),
        "output": {"d0": card.d0, "nonnegative": card.nonnegative},
    }
    write_json(folder / CONFIG_FILE, {"counterpoint": config})
    write_text(folder / LOADER_FILE, files("counterpoint.export").joinpath(LOADER_FILE).read_text(encoding="utf-8"))
    # Load the class from the written file, as another program does.
    loader = ModuleType("exported_modeling_counterpoint")
    # An import would leave a `__pycache__`, with the path of this machine, in the exported folder.
    exec(compile((folder / LOADER_FILE).read_bytes(), LOADER_FILE, "exec"), loader.__dict__)
    opened = loader.CounterpointEncoder.from_pretrained(folder)

    def answer(samples: Tensor) -> Mapping[str, Tensor]:
        with torch.no_grad():
            return opened(samples)._asdict()

    return answer


Plan = dict[str, Any]
# Attributes that hold the arguments of each layer of torch.
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
    **dict.fromkeys((nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Identity), ()),
}
WITH_BIAS = (nn.Conv2d, nn.Linear)


def plan_of(module: nn.Module, place: str) -> Plan:
    """Describe a network; its names of weights are those of the module.

    Args:
        module: module of layers of torch, in sequence or around shortcuts.
        place: name of the module in errors.

    Raises:
        UsageError: a module of another kind.
    """
    if type(module) in ARGUMENTS:
        values = {name: getattr(module, name) for name in ARGUMENTS[type(module)]}
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


def _chain(children: Mapping[str, nn.Module], place: str) -> Plan:
    return {"type": "chain", "parts": {name: plan_of(child, f"{place}.{name}") for name, child in children.items()}}


def _chain_with_mean(children: Mapping[str, nn.Module], place: str, axes: Sequence[int]) -> Plan:
    chain = _chain(children, place)
    chain["parts"]["mean"] = {"type": "mean", "axes": list(axes)}
    return chain


JOINS: Mapping[type[nn.Module], Callable[[Any, str], Plan]] = {
    ResNet: lambda module, place: _chain_with_mean({"stem": module.stem, "blocks": module.blocks}, place, (2, 3)),
    ResidualBlock: lambda module, place: {
        "type": "block",
        **{name: plan_of(getattr(module, name), f"{place}.{name}") for name in ("residual", "shortcut")},
    },
    Pooled: lambda module, place: _chain_with_mean({"body": module.body}, place, module.axes),
    LowRank: lambda module, _: {"type": "low-rank", "shape": list(module.rows_RD.shape)},
    Diagonal: lambda module, _: {"type": "diagonal", "width": len(module.scale_D)},
}
