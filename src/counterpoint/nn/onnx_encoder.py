"""An encoder out of an ONNX file, run by onnxruntime on the CPU."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError, first_line
from counterpoint.core.user_files import open_regular

FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


class OnnxEncoder(nn.Module):
    """A network that maps one input to its first output, without a gradient.

    Args:
        path: of the file; parts of it that lie in other files must be in its folder.

    Raises:
        UsageError: onnxruntime is not installed, or cannot read the file, or it takes something else than one input of
            floats.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        try:
            import onnxruntime  # deferred: the extra `onnx` may be absent
        except ImportError:
            raise UsageError(
                f"encoder {path} needs onnxruntime; install it with: pip install 'counterpoint[onnx]'"
            ) from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # its warnings are about the file's graph, not about the user's input
        try:
            open_regular(path).close()  # the runtime would wait for a pipe
            self.session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime has no class of its own for what it raises
            raise UsageError(f"encoder {path} cannot be read by onnxruntime: {first_line(error)}") from None
        inputs = self.session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in FLOATS:
            kinds = ", ".join(f"{each.name}: {each.type}" for each in inputs)
            raise UsageError(f"encoder {path} must take one input of floats, and takes {kinds}")
        self.input = inputs[0]
        self.outputs = [each.name for each in self.session.get_outputs()]

    @property
    def batch(self) -> int | None:
        """Samples per pass, where the file fixes them."""
        return self.input.shape[0] if isinstance(self.input.shape[0], int) else None

    @property
    def side(self) -> int | None:
        """Side of its images in pixels; None for any, or where it takes vectors."""
        last = self.input.shape[-1] if len(self.input.shape) == 4 else None
        return last if isinstance(last, int) else None

    def forward(self, samples: Tensor) -> Tensor:
        """The first output for samples of the shape that the file asks for."""
        parts = samples.split(self.batch) if self.batch else [samples]
        return torch.cat([self._of(part) for part in parts]).to(samples.device)

    def _of(self, samples: Tensor) -> Tensor:
        """One pass; a part that is smaller than the file's batch is filled up with its last sample."""
        missing = (self.batch or 0) - len(samples)
        filled = torch.cat([samples, samples[-1:].expand(missing, *samples.shape[1:])]) if missing > 0 else samples
        values = filled.detach().cpu().numpy().astype(FLOATS[self.input.type])
        output = self.session.run(self.outputs[:1], {self.input.name: values})[0]
        return torch.from_numpy(output)[: len(samples)].float()
