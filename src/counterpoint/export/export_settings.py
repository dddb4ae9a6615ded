"""The settings of an export, and the formats that there are. Loads without torch."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from counterpoint.core.data_settings import Settings

ALL = "all"
FORMATS: Mapping[str, str] = {
    "onnx": "model.onnx: uint8 pictures in, representation and embedding out, for onnxruntime and such (extra `onnx`)",
    "safetensors": "model.safetensors and encoder.json: weights with the card of the encoder, which cp.load opens",
    "folder": "the same, with config.json and a loader of one file that needs torch and safetensors only; for encoders "
    "that timm knows also timm/, which timm.create_model opens",
}


class ExportSettings(Settings):
    """What of an encoder is exported, and how it is checked."""

    layer: Literal["both", "representation", "embedding"] = Field(
        default="both", description="what the graph of onnx returns"
    )
    checkpoint: str | None = Field(
        default=None, description="step of a kept checkpoint whose encoder is taken (default: the last state)"
    )
    opset: Annotated[int, Field(ge=18, le=23)] = Field(default=18, description="version of ONNX's operators")
    layout: Literal["nhwc", "nchw"] = Field(
        default="nhwc", description="axes of the pictures that the graphs take: colours last or first"
    )
    samples: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=30, description="samples that each export is compared with torch on"
    )
    root: str | None = Field(default=None, description="folder of the named data sets, where it has moved")
    licence: str | None = Field(default=None, description="licence of the weights for the model card, such as mit")
    evaluate: bool = Field(
        default=False, description="evaluate and diagnose the run first, where that was not done yet"
    )
