"""An encoder out of an ONNX file, run by onnxruntime on the CPU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.core.array_layout import to_bytes
from counterpoint.core.errors import UsageError, first_line
from counterpoint.core.user_files import open_regular

FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
BYTES = "tensor(uint8)"  # pictures whose preparation is inside of the graph, as ``counterpoint export`` writes them
CHANNELS = (1, 3)


class OnnxEncoder(nn.Module):
    """A network that maps one input to its first output, without a gradient.

    A file that takes bytes gets pictures as bytes, with colours last where its input says so.

    Args:
        path: of the file; parts of it that lie in other files must be in its folder.

    Raises:
        UsageError: onnxruntime is not installed, or cannot read the file, or it takes something else than
            one input of floats, or of bytes with four axes.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        try:
            import onnxruntime  # deferred: the extra `onnx` may be absent
        except ImportError:
            raise UsageError(
                f"encoder {path} needs onnxruntime; install it with: pip install 'counterpoint[onnx]'"
            ) from None
        onnxruntime.set_default_logger_severity(3)  # it also speaks of its own files, which a full disk refuses
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # its warnings are about the file's graph, not about the user's input
        self.path = path
        try:
            open_regular(path).close()  # the runtime would wait for a pipe
            self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
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
            UsageError: the file cannot take them, or gives anything but rows of numbers, one for each.
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
        import onnxruntime  # deferred: the extra `onnx` may be absent

        options = onnxruntime.RunOptions()
        options.log_severity_level = 4  # what fails is raised
        try:
            return self.session.run(outputs, {self.input.name: values}, options)
        except Exception as error:  # the runtime has no class of its own for what it raises
            fault = first_line(error)
            raise UsageError(f"encoder {self.path} fails for {len(values)} samples: {fault}") from None

    def _values(self, samples: Tensor) -> np.ndarray:
        if not _takes_bytes(self.input):
            return samples.numpy().astype(FLOATS[self.input.type])
        images = to_bytes(samples)
        return (images.permute(0, 2, 3, 1) if self.is_channels_last else images).contiguous().numpy()


def _takes_bytes(given: Any) -> bool:
    return given.type == BYTES and len(given.shape) == 4
