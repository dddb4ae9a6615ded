"""The settings of an export, and the formats that there are. Loads without torch."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from counterpoint.core.data_settings import Settings

ALL = "all"
FORMATS: Mapping[str, str] = {
    "onnx": "model.onnx: uint8 pictures in, representation and embedding out, for onnxruntime and such (extra `onnx`)",
    "safetensors": "model.safetensors and encoder.json: weights with the card of the encoder, which cp.load opens",
    "folder": "the same, with config.json and a loader of one file that needs torch and safetensors only",
}


class ExportSettings(Settings):
    """What of an encoder is exported, and how it is checked."""

    layer: Literal["both", "representation", "embedding"] = Field(
        default="both", description="what the graph of onnx returns"
    )
    checkpoint: str | None = Field(
        default=None, description="step of a kept checkpoint whose encoder is taken (default: the last state)"
    )
    root: str | None = Field(default=None, description="folder of the named data sets, where it has moved")
    licence: str | None = Field(default=None, description="licence of the weights for the model card, such as mit")
