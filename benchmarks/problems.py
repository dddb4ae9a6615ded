"""Problems that are measured: the loss, its size and precision, and inputs with a fixed seed."""

# N pairs, R = 2 N rows for two views, D features

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["nt-xent", "cross-modal", "supervised", "sigmoid"]
Precision = Literal["float32", "tf32", "bfloat16"]
TITLES = {
    "nt-xent": "NT-Xent",
    "cross-modal": "Cross-modal InfoNCE",
    "supervised": "SupCon, ten classes",
    "sigmoid": "Sigmoid pairs (SigLIP)",
}
ALL_ROWS = ("nt-xent", "supervised")  # kinds whose anchors see all rows of both views
NUM_CLASSES = 10
SIGMOID_BIAS = -10.0  # zhai2023's first bias; the scale is 1 / tau
POSITIVE_COSINE = 0.5  # as early in training; the closer to 1, the more digits a dense gradient loses
SEED = 20240607


@dataclass(frozen=True)
class Problem:
    """One loss at one size; everyone who is compared solves exactly this.

    Attributes:
        kind: ``nt-xent`` (2 N anchors, repelled by all other rows), ``cross-modal`` (CLIP: both directions),
            ``supervised`` (SupCon) or ``sigmoid`` (SigLIP).
        num_pairs: N.
        num_features: D.
        temperature: tau; fixed, without a gradient.
        precision: ``float32`` (strict), ``tf32`` (float32 in, products in TF32) or ``bfloat16`` (inputs in bfloat16).
        device: ``cpu`` or ``cuda``.
    """

    kind: Kind
    num_pairs: int
    num_features: int
    temperature: float
    precision: Precision = "float32"
    device: str = "cpu"

    @property
    def side(self) -> int:
        """Rows of the score matrix: 2 N for NT-Xent and SupCon, N across modalities."""
        return 2 * self.num_pairs if self.kind in ALL_ROWS else self.num_pairs

    @property
    def dtype(self) -> torch.dtype:
        """Type of the inputs."""
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32

    @property
    def matrix_bytes(self) -> int:
        """Size of one score matrix."""
        return self.side**2 * self.dtype.itemsize

    @property
    def credited_flops(self) -> int:
        """Work forward and backward with recomputed scores credited: 6 R^2 D, across modalities 8 N^2 D."""
        return (6 if self.kind in ALL_ROWS else 8) * self.side**2 * self.num_features

    @property
    def title(self) -> str:
        """The problem as a heading."""
        rows = f" pairs ({self.side} rows)" if self.kind in ALL_ROWS else ""
        size = f"{'n' if self.kind in ALL_ROWS else 'N'} = {self.num_pairs}{rows}, D = {self.num_features}"
        return f"{TITLES[self.kind]}, {size}, tau = {self.temperature:g}, {self.precision}"


def labels_of(problem: Problem) -> Tensor:
    """Classes of the pairs, in turn."""
    return torch.arange(problem.num_pairs, device=problem.device) % NUM_CLASSES


def make_inputs(problem: Problem) -> tuple[Tensor, Tensor]:
    """Two leaves (N, D) that want gradients; row i of one belongs to row i of the other at a cosine of about 0.5."""
    generator = torch.Generator().manual_seed(SEED)
    shape = (problem.num_pairs, problem.num_features)
    first = torch.randn(shape, generator=generator)
    noise = torch.randn(shape, generator=generator)
    second = POSITIVE_COSINE * first + (1 - POSITIVE_COSINE**2) ** 0.5 * noise
    x0, x1 = (view.to(problem.device, problem.dtype).requires_grad_() for view in (first, second))
    return x0, x1


def set_precision(precision: Precision) -> None:
    """Set the precision of products of float32 matrices: TF32 or bfloat16 if asked for, else exact float32."""
    torch.set_float32_matmul_precision({"tf32": "high", "bfloat16": "medium"}.get(precision, "highest"))
