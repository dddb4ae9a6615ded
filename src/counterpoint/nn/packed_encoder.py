"""An encoder as plain values and bytes, for what leaves the process without a run folder."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import load

from counterpoint.core.tensor_file import file_bytes
from counterpoint.nn.classifier import BIASES, WEIGHTS, Classifier
from counterpoint.nn.trained import Encoder, EncoderCard, part_of, rebuilt

PARTS = ("backbone", "projector", "classifier")


def packed(encoder: Encoder) -> dict[str, Any]:
    """Plain values that ``unpacked`` makes the encoder of again, to the bit.

    Args:
        encoder: of the catalogue; one with a module of the user's own cannot be built from values.

    Returns:
        The card, the weights as the bytes of a safetensors file, the device, and what is to be known of the classifier.
    """
    tensors = {name: value for name, value in encoder.state_dict().items() if name.split(".", 1)[0] in PARTS}
    classifier = encoder.classifier
    return {
        "card": asdict(encoder.card),
        "weights": file_bytes(tensors),
        "device": encoder.device.type,
        "classes": None if classifier is None else classifier.class_names,
        "is_nonnegative": classifier is not None and classifier.is_nonnegative,
    }


def unpacked(values: Mapping[str, Any]) -> Encoder:
    """The encoder that was packed, on its device if there is such a one here, else on the CPU.

    Args:
        values: from ``packed``.
    """
    tensors = load(values["weights"])
    encoder = rebuilt(EncoderCard(**values["card"]), tensors)
    if values["classes"] is not None:
        own = part_of(tensors, "classifier")
        encoder.classifier = Classifier(
            values["classes"], own[WEIGHTS], own.get(BIASES), is_nonnegative=values["is_nonnegative"]
        )
    return encoder.to("cuda" if values["device"] == "cuda" and torch.cuda.is_available() else "cpu")
