"""ONNX: the graph of ``served_network`` for any program, checked by onnxruntime."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core import __version__
from counterpoint.core.errors import UsageError, first_line
from counterpoint.export.comparing import Answer
from counterpoint.export.served_network import ServedNetwork
from counterpoint.nn.onnx_encoder import OnnxEncoder

ONNX_FILE = "model.onnx"
INSTALL = "install them with: pip install 'counterpoint[onnx]'"
OPSET = 18  # version of ONNX's operators


def onnx_versions() -> dict[str, str]:
    """Versions of the packages that write ONNX.

    Raises:
        UsageError: one of them is not installed.
    """
    try:
        import onnx  # deferred: the extra `onnx` may be absent
        import onnxscript  # deferred: as above

        runtime = version("onnxruntime")  # `nn.onnx_encoder` imports it
    except ImportError as error:
        raise UsageError(f"ONNX needs onnx, onnxscript and onnxruntime ({first_line(error)}); {INSTALL}") from None
    return {"onnx": onnx.__version__, "onnxscript": onnxscript.__version__, "onnxruntime": runtime}


def write_onnx(network: ServedNetwork, path: Path) -> Answer:
    """Write the network as ONNX and open it again with onnxruntime.

    Args:
        network: to be written.
        path: of the file; weights of more than 2 GB lie beside it, as onnx has it.

    Raises:
        UsageError: an operator that ONNX does not have, or a module that cannot be followed.
    """
    names: dict[str, Any] = {"input_names": [network.input_name], "output_names": list(network.outputs)}
    try:
        with _silent(), torch.no_grad():
            program = _program_of(network)
            written: Any = torch.onnx.export(
                program, dynamo=True, verbose=False, opset_version=OPSET, optimize=True, **names
            )
            _describe(written.model, network)
            written.save(str(path))
    except OSError:
        raise
    except Exception as error:  # torch raises classes of private modules
        told = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise UsageError(
            f"ONNX cannot express this encoder: {first_line(told)}; export it as safetensors, or change the module"
        ) from None
    opened = OnnxEncoder(path)
    return lambda samples: dict(zip(network.outputs, opened.answers(samples, network.outputs), strict=True))


def _describe(model: Any, network: ServedNetwork) -> None:
    """Take the names of this machine's source files out of the graph, and say what it is."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        for node in graph.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
    model.metadata_props.clear()
    model.metadata_props.update(network.described())
    model.producer_name, model.producer_version = "counterpoint", __version__


def _program_of(network: ServedNetwork) -> Any:
    """The network as a ``torch.export`` program: any batch, and of pictures any size."""
    dims = torch.export.Dim
    names = {0: dims("batch"), 1: dims("height"), 2: dims("width")}
    dynamic = names if network.is_images else {0: names[0]}
    program = torch.export.export(network, (_example(network),), dynamic_shapes=(dynamic,))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names the source files of this machine
    program._example_inputs = None  # they would be written with torch.save
    return program


def _example(network: ServedNetwork) -> Tensor:
    """Two blank samples whose size is nobody's: no extent is taken for another one, or for 1."""
    if not network.is_images:
        return torch.zeros(2, network.in_shape[0])
    channels, height, width = network.in_shape
    return torch.zeros(2, height + 3, width + 6, channels, dtype=torch.uint8)


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
