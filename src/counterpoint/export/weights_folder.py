"""The formats that hold weights: the encoder as ``cp.load`` reads it, and a folder that other programs load."""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError, first_line
from counterpoint.core.files import write_json, write_text
from counterpoint.core.rundir import EXPORT_WEIGHTS, RunFolder
from counterpoint.core.tensor_file import write_tensors
from counterpoint.core.user_objects import CUSTOM
from counterpoint.export.comparing import Answer
from counterpoint.export.layer_plan import plan_of, timm_plan
from counterpoint.export.served_network import BOTH
from counterpoint.nn.classifier import save_classifier
from counterpoint.nn.encoders import TIMM_PREFIX, Pooled, check_timm_name
from counterpoint.nn.resnet import ResNet
from counterpoint.nn.trained import Encoder, load_encoder, save_encoder
from counterpoint.nn.weight_layouts import RESNET_LAYOUTS

CONFIG_FILE, LOADER_FILE, TIMM_FOLDER = "config.json", "modeling_counterpoint.py", "timm"
CONFIG_FORMAT = 1
OWN_RESNETS = ("resnet18", "resnet50")  # whose layers timm's and torchvision's of the name have


def write_weights(encoder: Encoder, folder: Path) -> Answer:
    """Write ``model.safetensors`` and ``encoder.json``, and open them as ``cp.load`` does."""
    place = RunFolder(folder, EXPORT_WEIGHTS)
    save_encoder(place, encoder)
    classifier = encoder.classifier
    if classifier is not None:
        weights = {name: value for name, value in classifier.state_dict().items() if value is not None}
        save_classifier(place, weights, classifier.class_names, is_nonnegative=classifier.is_nonnegative)
    module = encoder.backbone if encoder.card.architecture == CUSTOM else None
    opened = load_encoder(place, module)
    return lambda samples: dict(zip(BOTH, opened.both(samples), strict=True))


def write_folder(encoder: Encoder, folder: Path) -> Answer:
    """Write ``config.json`` and the loader beside the weights, and open them by that loader.

    Raises:
        UsageError: a module that the configuration cannot describe.
    """
    card = encoder.card
    is_timm = card.architecture.startswith(TIMM_PREFIX)
    describe = timm_plan(card.architecture, card.in_shape, encoder.backbone) if is_timm else None
    config = {
        "format": CONFIG_FORMAT,
        "kind": card.kind,
        "in_shape": list(card.in_shape),
        "mean": list(card.mean),
        "std": list(card.std),
        "backbone": describe or plan_of(encoder.backbone, "backbone"),
        "projector": plan_of(encoder.projector, "projector"),
        "output": {"d0": card.d0, "nonnegative": card.nonnegative},
    }
    write_json(folder / CONFIG_FILE, {**timm_facts(encoder), "counterpoint": config})
    write_text(folder / LOADER_FILE, files("counterpoint.export").joinpath(LOADER_FILE).read_text(encoding="utf-8"))
    opened = _loader_of(folder).from_pretrained(folder)

    def answer(samples: Tensor) -> Mapping[str, Tensor]:
        with torch.no_grad():
            return opened(samples)._asdict()

    return answer


def timm_facts(encoder: Encoder) -> dict[str, Any]:
    """What timm's configurations say of a model: its name, its width and how its input is prepared."""
    card = encoder.card
    facts: dict[str, Any] = {
        "architecture": card.architecture.removeprefix(TIMM_PREFIX),
        "num_classes": 0,
        "num_features": card.width,
    }
    if card.kind == "images":
        facts["pretrained_cfg"] = {
            "input_size": list(card.in_shape),
            "mean": list(card.mean),
            "std": list(card.std),
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "center",
            "num_classes": 0,
        }
    return facts


def timm_name(encoder: Encoder) -> str | None:
    """The model of timm that the backbone is; None for others."""
    card = encoder.card
    if card.architecture.startswith(TIMM_PREFIX):
        return None if isinstance(encoder.backbone, Pooled) else card.architecture.removeprefix(TIMM_PREFIX)
    return card.architecture if card.architecture in OWN_RESNETS and card.stem in ("large", "small") else None


def write_timm(encoder: Encoder, folder: Path) -> Answer:
    """Write ``timm/``: the backbone alone, with timm's names, and open it by ``timm.create_model``.

    Raises:
        UsageError: timm is not installed.
    """
    name, card = timm_name(encoder), encoder.card
    assert name is not None
    timm = check_timm_name(name)
    place = folder / TIMM_FOLDER
    place.mkdir()
    weights: Mapping[str, Tensor] = encoder.backbone.state_dict()
    arguments: dict[str, Any] = {"in_chans": card.in_shape[0]}
    if card.architecture.startswith(TIMM_PREFIX):
        arguments |= timm_plan(card.architecture, card.in_shape, encoder.backbone)["arguments"]
        arguments.pop("num_classes")
    else:
        usual = RESNET_LAYOUTS["counterpoint"].usual(weights)
        assert usual is not None
        weights = {usual[own]: value for own, value in weights.items()}
    write_tensors(place / EXPORT_WEIGHTS, weights)
    write_json(place / CONFIG_FILE, {**timm_facts(encoder), "architecture": name, "model_args": arguments})
    opened = _of_timm(timm, encoder, place, arguments)

    def answer(samples: Tensor) -> Mapping[str, Tensor]:
        with torch.no_grad():
            return {"representation": opened(encoder.prepare(samples))}

    return answer


def has_small_stem(encoder: Encoder) -> bool:
    """Whether timm's ResNet has to get our first convolution for small images."""
    return isinstance(encoder.backbone, ResNet) and encoder.card.stem == "small"


def _of_timm(timm: Any, encoder: Encoder, place: Path, arguments: Mapping[str, Any]) -> nn.Module:
    """The model as the card's snippet builds it."""
    name = json.loads((place / CONFIG_FILE).read_text(encoding="utf-8"))["architecture"]
    sizes = {key: tuple(value) if isinstance(value, list) else value for key, value in arguments.items()}
    if not has_small_stem(encoder):
        checkpoint = str(place / EXPORT_WEIGHTS)
        return timm.create_model(name, num_classes=0, checkpoint_path=checkpoint, **sizes).eval()
    model = timm.create_model(name, num_classes=0, **sizes)
    model.conv1 = nn.Conv2d(encoder.card.in_shape[0], 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    timm.models.load_checkpoint(model, str(place / EXPORT_WEIGHTS))
    return model.eval()


def _loader_of(folder: Path) -> Any:
    """The class in the file that was written, as another program has it.

    Raises:
        UsageError: the file cannot be run.
    """
    module = ModuleType("exported_modeling_counterpoint")
    try:
        # An import would leave a `__pycache__`, with the path of this machine, in the exported folder.
        exec(compile((folder / LOADER_FILE).read_bytes(), LOADER_FILE, "exec"), module.__dict__)
    except Exception as error:
        raise UsageError(f"the loader cannot be imported: {first_line(error)}") from None
    return module.CounterpointEncoder
