"""The formats that hold weights: the encoder as ``cp.load`` reads it, and a folder that other programs load."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError, first_line
from counterpoint.core.files import write_json, write_text
from counterpoint.core.rundir import EXPORT_WEIGHTS, RunFolder
from counterpoint.core.user_objects import CUSTOM
from counterpoint.export.comparing import Answer
from counterpoint.export.layer_plan import plan_of, timm_plan
from counterpoint.export.served_network import BOTH
from counterpoint.nn.classifier import save_classifier
from counterpoint.nn.encoders import TIMM_PREFIX
from counterpoint.nn.trained import Encoder, load_encoder, save_encoder

CONFIG_FILE, LOADER_FILE = "config.json", "modeling_counterpoint.py"
CONFIG_FORMAT = 1


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
    write_json(folder / CONFIG_FILE, {"counterpoint": config})
    write_text(folder / LOADER_FILE, files("counterpoint.export").joinpath(LOADER_FILE).read_text(encoding="utf-8"))
    opened = _loader_of(folder).from_pretrained(folder)

    def answer(samples: Tensor) -> Mapping[str, Tensor]:
        with torch.no_grad():
            return opened(samples)._asdict()

    return answer


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
