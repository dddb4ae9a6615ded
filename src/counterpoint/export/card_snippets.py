"""Code of the model card that opens each exported file; each snippet runs as it stands, in the exported folder."""

import json
from collections.abc import Sequence

from counterpoint.export.export_record import Exported
from counterpoint.export.weights_folder import TIMM_FOLDER, has_small_stem, timm_name
from counterpoint.nn.encoders import TIMM_PREFIX
from counterpoint.nn.trained import Encoder


def snippets(encoder: Encoder, exported: Exported) -> list[tuple[str, str]]:
    """A title and Python code for each format, in the order in which a reader should try them."""
    makers = {
        "safetensors": ("Counterpoint", _with_counterpoint),
        "folder": ("torch and safetensors, without Counterpoint", _with_loader),
        "timm": ("timm, without Counterpoint", _with_timm),
        "onnx": ("onnxruntime, without Counterpoint and torch", _with_onnxruntime),
    }
    made = {each.name: each for each in exported.formats}
    return [(title, maker(encoder, exported)) for name, (title, maker) in makers.items() if name in made]


def _samples(encoder: Encoder, layout: str) -> str:
    """A line that makes two samples."""
    shape = encoder.card.in_shape
    if encoder.card.kind == "vectors":
        return f"samples = np.zeros((2, {shape[0]}), dtype=np.float32)  # yours"
    channels, height, width = shape
    axes = (2, height, width, channels) if layout == "nhwc" else (2, channels, height, width)
    return f"samples = np.zeros({axes}, dtype=np.uint8)  # yours"


def _layout(exported: Exported) -> str:
    """The layout of the graphs."""
    return "nchw" if "(batch, channels" in exported.input else "nhwc"


def _with_counterpoint(encoder: Encoder, exported: Exported) -> str:
    return f"""import numpy as np
import counterpoint as cp

{_samples(encoder, "nhwc")}
encoder = cp.load(".")
representation = encoder.represent(samples)
embedding = encoder.embed(samples)"""


def _with_loader(encoder: Encoder, exported: Exported) -> str:
    return f"""import numpy as np
import torch
from modeling_counterpoint import CounterpointEncoder  # a file of this folder

{_samples(encoder, "nchw")}
encoder = CounterpointEncoder.from_pretrained(".")
with torch.no_grad():
    representation, embedding = encoder(torch.from_numpy(samples))"""


def _with_timm(encoder: Encoder, exported: Exported) -> str:
    card, name = encoder.card, timm_name(encoder)
    channels, height, width = card.in_shape
    mean, std = (f"torch.tensor({[float(f'{value:.6g}') for value in values]})" for values in (card.mean, card.std))
    prepare = f"""images = torch.from_numpy(samples) / 255  # at {height} x {width} pixels
images = (images - {mean}[:, None, None]) / {std}[:, None, None]"""
    if card.architecture.startswith(TIMM_PREFIX):
        make = f"""model = timm.create_model("local-dir:{TIMM_FOLDER}", pretrained=True).eval()"""
    elif has_small_stem(encoder):
        make = f"""model = timm.create_model("{name}", num_classes=0, in_chans={channels})
model.conv1 = torch.nn.Conv2d({channels}, 64, 3, 1, 1, bias=False)  # the stem for small images
model.maxpool = torch.nn.Identity()
timm.models.load_checkpoint(model, "{TIMM_FOLDER}/model.safetensors")
model.eval()"""
    else:
        make = f"""model = timm.create_model(
    "{name}", num_classes=0, in_chans={channels}, checkpoint_path="{TIMM_FOLDER}/model.safetensors"
).eval()"""
    return f"""import numpy as np
import timm
import torch

{_samples(encoder, "nchw")}
{prepare}
{make}
with torch.no_grad():
    representation = model(images)"""


def _with_onnxruntime(encoder: Encoder, exported: Exported) -> str:
    outputs = next(each.outputs for each in exported.formats if each.name == "onnx")
    return f"""import numpy as np
import onnxruntime

{_samples(encoder, _layout(exported))}
session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
given = {{session.get_inputs()[0].name: samples}}
{_named(outputs)} = session.run({json.dumps(outputs)}, given)"""


def _named(outputs: Sequence[str]) -> str:
    """Names that a tuple is taken apart into."""
    return ", ".join(outputs) + "," * (len(outputs) == 1)
