"""ONNX: preparation of the input, backbone, projector and output map in one graph, checked by onnxruntime.

Pictures are resized as ``nn.resizing`` defines it, by two matrix products whose matrices are computed in the graph
from the size of the input: ONNX's own ``Resize`` differs between programs and versions, rounds otherwise, and a cut-out
whose size is only known when the graph runs is refused by ``torch.export``.
"""

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.torch_version import TorchVersion

from counterpoint.core import __version__
from counterpoint.core.array_layout import MAX_PIXEL, to_bytes
from counterpoint.core.errors import UsageError, first_line
from counterpoint.nn.heads import OutputMap
from counterpoint.nn.layer_outputs import EMBEDDING, REPRESENTATION
from counterpoint.nn.resizing import Resizing, resized
from counterpoint.nn.trained import Encoder

BOTH = (REPRESENTATION, EMBEDDING)
Answer = Callable[[Tensor], Mapping[str, Tensor]]  # from samples (n, c, h, w) or (n, d) to outputs by name


class ServedNetwork(nn.Module):
    """Map raw samples to the requested outputs, a tuple in the order of ``outputs``.

    Args:
        encoder: the trained encoder; its parts are shared, not copied.
        layer: ``representation``, ``embedding`` or ``both``.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: Encoder, layer: str) -> None:
        super().__init__()
        card = encoder.card
        self.outputs = BOTH if layer == "both" else (layer,)
        self.is_images = card.kind == "images"
        self.input_name = card.kind
        self.in_shape = card.in_shape
        self.resizing: Resizing = card.resizing
        self.backbone, self.projector = encoder.backbone, encoder.projector
        # relu-gelu differs from relu in its gradient alone, and no format has an operator for it.
        nonnegative = "relu" if card.nonnegative == "relu-gelu" else card.nonnegative
        self.output_map = OutputMap(d0=card.d0, nonnegative=nonnegative)
        self.register_buffer("mean", encoder.mean)
        self.register_buffer("std", encoder.std)
        self.eval()

    def forward(self, samples: Tensor) -> tuple[Tensor, ...]:
        """Outputs for pictures (n, h, w, c), uint8, or vectors (n, d), float32."""
        if self.is_images:  # as floats in [0, 1] of the network's size
            _, height, width = self.in_shape
            samples = resized(samples.permute(0, 3, 1, 2), (height, width), self.resizing).to(torch.float32) / MAX_PIXEL
        r = self.backbone((samples - self.mean) / self.std)
        if self.outputs == (REPRESENTATION,):
            return (r,)
        z = self.output_map(self.projector(r))
        return (r, z) if len(self.outputs) > 1 else (z,)

    def described(self) -> Mapping[str, str]:
        """The input and the outputs of the graph, in words."""
        if self.is_images:
            axes = "batch, height, width, channels"
            layout = f"uint8 ({axes}), {self.in_shape[0]} channel(s), any batch, any height and width"
        else:
            layout = f"float32 (batch, {self.in_shape[0]}), any batch"
        return {"input": f"{self.input_name}: {layout}", "outputs": ", ".join(self.outputs)}


ONNX_FILE = "model.onnx"
OPSET = 18  # version of ONNX's operators
# True if torch exports pictures of any size: 2.6 and 2.7 do not, 2.11 does; those between were not tried.
FOLLOWS_SIZES = TorchVersion(torch.__version__) >= TorchVersion("2.8")


def onnx_versions() -> dict[str, str]:
    """Versions of the packages that write ONNX.

    Raises:
        UsageError: one of them is not installed.
    """
    try:
        return {name: version(name) for name in ("onnx", "onnxscript", "onnxruntime")}
    except ImportError as error:
        remedy = "install them with: pip install onnx onnxruntime onnxscript"
        raise UsageError(f"ONNX needs onnx, onnxscript and onnxruntime ({first_line(error)}); {remedy}") from None


def write_onnx(network: ServedNetwork, path: Path) -> Answer:
    """Write the network as ONNX and open it again with onnxruntime.

    Args:
        network: the network to write.
        path: path of the file; onnx puts weights of more than 2 GB beside it.

    Raises:
        UsageError: an operator that ONNX does not have, or a module that cannot be followed.
    """
    names: dict[str, Any] = {"input_names": [network.input_name], "output_names": list(network.outputs)}
    # Traced for any batch size, and pictures of any size, on two blank samples of an unusual size: no extent is
    # confused with another one, or with 1.
    extents = {0: torch.export.Dim("batch")}
    example = torch.zeros(2, network.in_shape[0])
    if network.is_images:
        channels, height, width = network.in_shape
        extents |= {1: torch.export.Dim("height"), 2: torch.export.Dim("width")}
        example = torch.zeros(2, height + 3, width + 6, channels, dtype=torch.uint8)
    try:
        with _silent(), torch.no_grad():
            program = torch.export.export(network, (example,), dynamic_shapes=(extents,))
            options = {"dynamo": True, "verbose": False, "opset_version": OPSET, "optimize": True}
            exported: Any = torch.onnx.export(program, **options, **names)
            _describe(exported.model, network)
            exported.save(str(path))
    except OSError:
        raise
    except Exception as error:  # torch raises classes of private modules
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        remedy = "export it as safetensors, or change the module"
        if network.is_images and not FOLLOWS_SIZES:
            remedy = f"torch {torch.__version__} follows no pictures of any size: install a newer one (2.11 does)"
        raise UsageError(f"ONNX cannot express this encoder: {first_line(cause)}; {remedy}") from None
    return _open_with_onnxruntime(network, path)


def _open_with_onnxruntime(network: ServedNetwork, path: Path) -> Answer:
    # Read when the runtime is imported: since 1.29 it sends events, and keeps an id on the disk.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # deferred: the extra `onnx` may be absent

    onnxruntime.set_default_logger_severity(3)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def answer(samples: Tensor) -> Mapping[str, Tensor]:
        # The graph takes pictures as bytes with the colours last.
        inputs = to_bytes(samples).permute(0, 2, 3, 1).contiguous() if network.is_images else samples
        outputs = session.run(list(network.outputs), {network.input_name: inputs.numpy()})
        return {name: torch.from_numpy(rows) for name, rows in zip(network.outputs, outputs, strict=True)}

    return answer


def _describe(model: Any, network: ServedNetwork) -> None:
    """Remove the names of this machine's source files from the graph, and add its description."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        for node in graph.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
    model.metadata_props.clear()
    model.metadata_props.update(network.described())
    model.producer_name, model.producer_version = "counterpoint", __version__


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep what torch's exporters print and log about themselves from the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            yield
    finally:
        logging.disable(before)
