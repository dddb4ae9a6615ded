"""An encoder out of an ONNX file, run by onnxruntime on the CPU.

A file may hold a loop of 2^62 turns, or functions that call each other until they unfold to as many nodes. A file with
neither pays nothing. One with functions is first opened in a process of its own, which is ended after a time; each pass
of one with either is ended, too.
"""

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.core.array_layout import to_bytes
from counterpoint.core.errors import UsageError, first_line
from counterpoint.core.user_files import open_regular

# Read when the runtime is imported: since 1.29 it sends events, keeps an id on the disk and reports what fails there.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
BYTES = "tensor(uint8)"  # pictures whose preparation is inside of the graph, as ``counterpoint export`` writes them
CHANNELS = (1, 3)
LIMIT_SECONDS = 60.0  # of unfolding functions; of a pass, beside what samples took before
SLOWER = 100.0  # than the slowest sample before, before a pass counts as one without end
# Opens a file; the alarm ends it where the process that waits for it was killed.
OPEN = """
import signal, sys
getattr(signal, "alarm", int)(int(sys.argv[2]))
import onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
"""


class OnnxEncoder(nn.Module):
    """A network that maps one input to its first output, without a gradient.

    A file that takes bytes gets pictures as bytes, with colours last where its input says so.

    Args:
        path: of the file; parts of it that lie in other files must be in its folder.

    Raises:
        UsageError: onnxruntime is not installed, or cannot read the file or not in time, or it takes something else
            than one input of floats, or of bytes with four axes.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        try:
            import onnx  # deferred: the extra `onnx` may be absent
            import onnxruntime  # deferred: as above
        except ImportError:
            raise UsageError(
                f"encoder {path} needs onnx and onnxruntime; install them with: pip install 'counterpoint[onnx]'"
            ) from None
        onnxruntime.set_default_logger_severity(3)  # it also reports errors of its own files
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # its warnings are about the file's graph, not about the user's input
        self.path = path
        self.slowest = 0.0  # seconds of a sample
        try:
            # Opened here first: the runtime would wait for a pipe.
            self.is_bounded, has_functions = _unfolding(onnx, path)
            if has_functions:
                _open_in_time(path)
            self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except UsageError:
            raise
        except Exception as error:  # the runtime has no class of its own for what it raises
            raise UsageError(f"encoder {path} cannot be read by onnxruntime: {first_line(error)}") from None
        inputs = self.session.get_inputs()
        is_known = len(inputs) == 1 and (inputs[0].type in FLOATS or _takes_bytes(inputs[0]))
        if not is_known:
            kinds = ", ".join(f"{each.name}: {each.type}" for each in inputs)
            raise UsageError(f"encoder {path} must take one input of floats, or pictures as uint8, and takes {kinds}")
        self.input = inputs[0]
        self.outputs = [each.name for each in self.session.get_outputs()]

    @property
    def batch(self) -> int | None:
        """Samples per pass, where the file fixes them."""
        return self.input.shape[0] if isinstance(self.input.shape[0], int) else None

    @property
    def side(self) -> int | None:
        """Side of its images in pixels; None for any, or where it takes vectors."""
        last = self.input.shape[-2 if self.is_channels_last else -1] if len(self.input.shape) == 4 else None
        return last if isinstance(last, int) else None

    @property
    def is_channels_last(self) -> bool:
        """Whether it takes bytes (n, h, w, c)."""
        return _takes_bytes(self.input) and self.input.shape[3] in CHANNELS

    def forward(self, samples: Tensor) -> Tensor:
        """The first output for samples of the shape that the file asks for."""
        parts = samples.split(self.batch) if self.batch else [samples]
        return torch.cat([self.answers(part, self.outputs[:1])[0] for part in parts]).to(samples.device)

    def answers(self, samples: Tensor, outputs: Sequence[str]) -> list[Tensor]:
        """Outputs by name of one pass; samples fewer than the file's batch are filled up with the last one.

        Raises:
            UsageError: the file cannot take them, takes too long, or gives anything but rows of numbers, one for each.
        """
        missing = (self.batch or 0) - len(samples)
        filled = torch.cat([samples, samples[-1:].expand(missing, *samples.shape[1:])]) if missing > 0 else samples
        found = self._run(self._values(filled.detach().cpu()), list(outputs))
        for name, rows in zip(outputs, found, strict=True):
            is_numbers = isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub"
            # More rows would be cut off without a word.
            if not is_numbers or not 2 <= rows.ndim <= 4 or 0 in rows.shape or len(rows) != len(filled):
                got = f"{rows.dtype} {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
                raise UsageError(
                    f"encoder {self.path} must give one row of numbers for each of {len(filled)} samples, (n, d), maps "
                    f"or tokens, and its output {name} is {got}; export it with the batch as the first axis"
                )
        return [torch.from_numpy(rows)[: len(samples)].float() for rows in found]

    def _run(self, values: np.ndarray, outputs: list[str]) -> list[Any]:
        """One pass, which is ended where it may be one without end."""
        import onnxruntime  # deferred: the extra `onnx` may be absent

        num_samples, begun, options = len(values), time.monotonic(), onnxruntime.RunOptions()
        options.log_severity_level = 4  # what fails is raised
        limit = LIMIT_SECONDS + SLOWER * self.slowest * num_samples
        timer = threading.Timer(limit, setattr, (options, "terminate", True)) if self.is_bounded else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            found = self.session.run(outputs, {self.input.name: values}, options)
        except Exception as error:  # the runtime has no class of its own for what it raises
            if options.terminate:
                raise _too_slow(self.path, f"answer for {num_samples} samples", limit) from None
            fault = first_line(error)
            raise UsageError(f"encoder {self.path} fails for {num_samples} samples: {fault}") from None
        finally:
            if timer is not None:
                timer.cancel()
        self.slowest = max(self.slowest, (time.monotonic() - begun) / max(1, num_samples))
        return found

    def _values(self, samples: Tensor) -> np.ndarray:
        if not _takes_bytes(self.input):
            return samples.numpy().astype(FLOATS[self.input.type])
        images = to_bytes(samples)
        return (images.permute(0, 2, 3, 1) if self.is_channels_last else images).contiguous().numpy()


def _takes_bytes(given: Any) -> bool:
    return given.type == BYTES and len(given.shape) == 4


def _open_in_time(path: str | Path) -> None:
    """Open a file in a process of its own; what is wrong with it shows here again.

    Raises:
        UsageError: it takes too long.
    """
    # -P: a file in the working folder must not stand in for the runtime.
    command = [sys.executable, "-P", "-c", OPEN, str(path), str(2 * math.ceil(LIMIT_SECONDS))]
    try:
        code = subprocess.run(command, capture_output=True, timeout=LIMIT_SECONDS, check=False).returncode
    except subprocess.TimeoutExpired:
        raise _too_slow(path, "open", LIMIT_SECONDS) from None
    if code < 0:
        raise UsageError(f"encoder {path} cannot be opened: a process that tried was ended by signal {-code}")


def _too_slow(path: str | Path, what: str, limit: float) -> UsageError:
    """The error of a file that may never end."""
    return UsageError(
        f"encoder {path} did not {what} within {limit:.0f} s, which is the limit of files with loops or functions; "
        "export it without them"
    )


def _unfolding(onnx: Any, path: str | Path) -> tuple[bool, bool]:
    """Whether a file has nodes that run graphs of their own (loops, branches) or functions, and whether functions.

    Raises:
        OSError: it cannot be opened.
    """
    from google.protobuf.message import DecodeError  # deferred: comes with onnx

    with open_regular(path) as file:
        try:
            model = onnx.load(file, load_external_data=False)
        except DecodeError:  # no such file, or damaged: the runtime says so
            return True, True
    attributes = (attribute for node in model.graph.node for attribute in node.attribute)
    has_graphs = any(attribute.HasField("g") or attribute.graphs for attribute in attributes)
    return has_graphs or bool(model.functions), bool(model.functions)
