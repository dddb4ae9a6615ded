"""ONNX: the graph of ``served_network`` for any program, checked by onnxruntime."""

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from counterpoint.core import __version__
from counterpoint.core.errors import UsageError, first_line
from counterpoint.export.comparing import Answer
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
    program = _program_of(network)
    names: dict[str, Any] = {"input_names": [network.input_name], "output_names": list(network.outputs)}
    try:
        with _silent(), torch.no_grad():
            written: Any = torch.onnx.export(
                program, dynamo=True, verbose=False, opset_version=opset, optimize=True, **names
            )
            _describe(written.model, network)
            written.save(str(path))
    except OSError:
        raise
    except Exception as error:  # torch raises classes of private modules
        raise UsageError(_refusal(error, program)) from None
    opened = OnnxEncoder(path)
    return lambda samples: dict(zip(network.outputs, opened.answers(samples, network.outputs), strict=True))


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


def _program_of(network: ServedNetwork) -> Any:
    """The network as a ``torch.export`` program: any batch, and of pictures any size.

    Raises:
        UsageError: a module that torch.export cannot follow.
    """
    dims = torch.export.Dim
    axes = (1, 2) if network.is_channels_last else (2, 3)
    names = {0: dims("batch"), **(dict(zip(axes, map(dims, ("height", "width")), strict=True)))}
    dynamic = names if network.is_images else {0: names[0]}
    with _silent(), _naming_module(network), torch.no_grad():
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
    shape = (height + 3, width + 6)
    return torch.zeros((2, *shape, channels) if network.is_channels_last else (2, channels, *shape), dtype=torch.uint8)


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


@contextlib.contextmanager
def _naming_module(network: nn.Module) -> Iterator[None]:
    """Turn an error within into one line that names the innermost module that was at work.

    Raises:
        UsageError: something was raised.
    """
    entered: list[str] = []
    hooks = []
    for name, module in network.named_modules():
        label = f"{name or 'the network'} ({type(module).__name__})"
        hooks.append(module.register_forward_pre_hook(lambda *_, label=label: entered.append(label)))
        hooks.append(module.register_forward_hook(lambda *_: _leave(entered)))
    try:
        yield
    except Exception as error:  # whatever torch, or a foreign module, raises
        where = entered[-1] if entered else "the network"
        raise UsageError(
            f"ONNX cannot express module {where}: {first_line(error)}; export it as safetensors, or change the module"
        ) from None
    finally:
        for hook in hooks:
            hook.remove()


def _leave(entered: list[str]) -> None:
    """A module has answered; what a hook returns would replace that, so this returns nothing."""
    entered.pop()


def _refusal(error: Exception, program: Any) -> str:
    """One line that names the operator and its module."""
    texts = []
    cause: BaseException | None = error
    while cause is not None:
        texts.append(str(cause))
        cause = cause.__cause__
    found = next((match[1] for text in texts if (match := NODE.search(text))), None)
    remedy = "export it as safetensors, or change the module"
    if found is None:
        return f"ONNX cannot express this encoder: {first_line(error)}; {remedy}"
    operator, module = found.rpartition(".")[0], _module_of(found, program)
    return f"ONNX has no operator for {operator} of module {module}; {remedy}"


def _module_of(operator: str, program: Any) -> str:
    """Path and class of the first module that uses an operator."""
    with _silent():
        graph = program.run_decompositions().graph
    for node in graph.nodes:
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        if node.op == "call_function" and str(node.target) == operator and stack:
            path, kind = stack[-1]
            return f"{path} ({str(getattr(kind, '__name__', kind)).rpartition('.')[2]})"
    return "the network"
