"""ONNX: the graph of ``served_network`` for any program, checked by onnxruntime."""

import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core import __version__
from counterpoint.core.errors import UsageError, first_line
from counterpoint.export.comparing import Answer
from counterpoint.export.graph_formats import program_of, silent
from counterpoint.export.served_network import ServedNetwork
from counterpoint.nn.onnx_encoder import OnnxEncoder

ONNX_FILE = "model.onnx"
INSTALL = "install them with: pip install 'counterpoint[onnx]'"
# torch quotes the node that it could not translate.
NODE = re.compile(r"target=torch\.ops\.([\w.]+)\]")


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


def write_onnx(network: ServedNetwork, path: Path, opset: int) -> Answer:
    """Write the network as ONNX and open it again with onnxruntime.

    Args:
        network: to be written.
        path: of the file; weights of more than 2 GB lie beside it, as onnx has it.
        opset: version of the operators.

    Raises:
        UsageError: an operator that ONNX does not have, or a module that cannot be followed.
    """
    program = program_of(network, "ONNX")
    names: dict[str, Any] = {"input_names": [network.input_name], "output_names": list(network.outputs)}
    try:
        with silent(), torch.no_grad():
            written: Any = torch.onnx.export(
                program, dynamo=True, verbose=False, opset_version=opset, optimize=True, **names
            )
            _describe(written.model, network)
            written.save(str(path))
    except OSError:
        raise
    except Exception as error:  # torch raises classes of private modules
        raise UsageError(_refusal(error, program)) from None
    return _answer(network, OnnxEncoder(path))


def opset_of(path: Path) -> int:
    """Version of the operators that a file asks for, read from the file."""
    import onnx  # deferred: the extra `onnx` may be absent

    model = onnx.load(str(path), load_external_data=False)
    return next(each.version for each in model.opset_import if not each.domain)


def _describe(model: Any, network: ServedNetwork) -> None:
    """Take the names of this machine's source files out of the graph, and say what it is."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        for node in graph.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
    model.metadata_props.clear()
    model.metadata_props.update(network.described())
    model.producer_name, model.producer_version = "counterpoint", __version__


def _answer(network: ServedNetwork, opened: OnnxEncoder) -> Answer:
    """The file in onnxruntime, called with samples."""

    def answer(samples: Tensor) -> Mapping[str, Tensor]:
        return dict(zip(network.outputs, opened.answers(samples, network.outputs), strict=True))

    return answer


def _refusal(error: Exception, program: Any) -> str:
    """One line that names the operator and its module."""
    texts = []
    cause: BaseException | None = error
    while cause is not None:
        texts.append(str(cause))
        cause = cause.__cause__
    found = next((match[1] for text in texts if (match := NODE.search(text))), None)
    remedy = "export it as torch-export or safetensors, or change the module"
    if found is None:
        return f"ONNX cannot express this encoder: {first_line(error)}; {remedy}"
    operator, module = found.rpartition(".")[0], _module_of(found, program)
    return f"ONNX has no operator for {operator} of module {module}; {remedy}"


def _module_of(operator: str, program: Any) -> str:
    """Path and class of the first module that uses an operator."""
    with silent():
        graph = program.run_decompositions().graph
    for node in graph.nodes:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if node.op == "call_function" and str(node.target) == operator and stack:
            path, kind = stack[-1]
            return f"{path} ({str(getattr(kind, '__name__', kind)).rpartition('.')[2]})"
    return "the network"
