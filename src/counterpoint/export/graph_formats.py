"""The formats that hold the whole graph: TorchScript, torch.export and, in ``onnx_format``, ONNX.

What is read here again is the file that was written a moment before. Neither reader is used on anybody else's file:
``torch.jit.load`` builds classes that the file names, in an interpreter of its own; ``torch.export.load`` reads JSON
and raw weights.
"""

import contextlib
import io
import logging
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError, first_line
from counterpoint.export.comparing import Answer
from counterpoint.export.served_network import ServedNetwork

TORCHSCRIPT_FILE, PROGRAM_FILE = "model.torchscript.pt", "model.pt2"
DEBUG_SUFFIX = ".debug_pkl"  # of members that name the source files of this machine


def write_torchscript(network: ServedNetwork, path: Path) -> Answer:
    """Trace the network, write it, and open it again.

    Raises:
        UsageError: a module that cannot be traced.
    """
    with silent(), naming_module(network, "TorchScript"), torch.no_grad():
        traced: Any = torch.jit.trace(network, (example(network),), check_trace=False)
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer)
    _write_without_debug(buffer, path)
    with silent():
        opened = torch.jit.load(str(path))
    return _answer(network, opened)


def write_program(network: ServedNetwork, path: Path) -> Answer:
    """Export the network as a ``torch.export`` program, write it, and open it again.

    Raises:
        UsageError: a module that torch.export cannot follow.
    """
    program = program_of(network)
    with silent():
        torch.export.save(program, path)
        opened = torch.export.load(path).module()
    return _answer(network, opened)


def program_of(network: ServedNetwork, target: str = "torch.export") -> Any:
    """The network as a ``torch.export`` program: any batch, and of pictures any size.

    Args:
        network: to be exported.
        target: the format that errors name.

    Raises:
        UsageError: a module that torch.export cannot follow.
    """
    dims = torch.export.Dim
    axes = (1, 2) if network.is_channels_last else (2, 3)
    names = {0: dims("batch"), **(dict(zip(axes, map(dims, ("height", "width")), strict=True)))}
    dynamic = names if network.is_images else {0: names[0]}
    with silent(), naming_module(network, target), torch.no_grad():
        program = torch.export.export(network, (example(network),), dynamic_shapes=(dynamic,))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names the source files of this machine
    program._example_inputs = None  # they would be written with torch.save
    return program


def example(network: ServedNetwork) -> Tensor:
    """Two blank samples whose size is nobody's: no extent is taken for another one, or for 1."""
    if not network.is_images:
        return torch.zeros(2, network.in_shape[0])
    channels, height, width = network.in_shape
    shape = (height + 3, width + 6)
    return torch.zeros((2, *shape, channels) if network.is_channels_last else (2, channels, *shape), dtype=torch.uint8)


def _answer(network: ServedNetwork, opened: Any) -> Answer:
    """What was opened, called with samples."""

    def answer(samples: Tensor) -> Mapping[str, Tensor]:
        is_nhwc = network.is_images and network.is_channels_last
        with torch.no_grad():
            found = opened(samples.permute(0, 2, 3, 1).contiguous() if is_nhwc else samples)
        return dict(zip(network.outputs, found, strict=True))

    return answer


def _write_without_debug(buffer: io.BytesIO, path: Path) -> None:
    """Write a TorchScript archive without the members that name source files."""
    with zipfile.ZipFile(buffer) as whole, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as kept:
        for name in whole.namelist():
            if not name.endswith(DEBUG_SUFFIX):
                kept.writestr(zipfile.ZipInfo(name), whole.read(name))


@contextlib.contextmanager
def silent() -> Iterator[None]:
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
def naming_module(network: nn.Module, target: str) -> Iterator[None]:
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
            f"{target} cannot express module {where}: {first_line(error)}; export it as safetensors, or change the "
            "module"
        ) from None
    finally:
        for hook in hooks:
            hook.remove()


def _leave(entered: list[str]) -> None:
    """A module has answered; what a hook returns would replace that, so this returns nothing."""
    entered.pop()
