"""ONNX: the graph answers as torch does."""

from pathlib import Path

import pytest
import torch

from counterpoint.export.exporting import TOLERANCE, compare
from counterpoint.export.onnx_format import ServedNetwork, write_onnx
from export.stirred_norms import MakeEncoder


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "shape", "nonnegative"),
    [("resnet9-narrow", (1, 8, 8), "relu-gelu"), ("convnet", (3, 8, 12), "softplus"), ("mlp", (5,), "relu-gelu")],
)
def test_encoders_of_the_catalogue_answer_as_torch_does(
    name: str, shape: tuple[int, ...], nonnegative: str, make_encoder: MakeEncoder, tmp_path: Path
) -> None:
    encoder = make_encoder(name, shape, nonnegative=nonnegative, d0=5)
    answer = write_onnx(ServedNetwork(encoder, "both"), tmp_path / "x.onnx")
    samples = torch.randn(9, 5) if len(shape) == 1 else torch.randint(0, 256, (9, *shape), dtype=torch.uint8)
    assert compare(answer, encoder, samples, list("abcdefghi"), TOLERANCE).difference <= TOLERANCE
