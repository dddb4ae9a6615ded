"""ONNX: what cannot be expressed is named by operator and module."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.export.comparing import TOLERANCE, compare
from counterpoint.export.onnx_format import opset_of, write_onnx
from counterpoint.export.served_network import ServedNetwork
from counterpoint.nn.onnx_encoder import OnnxEncoder
from export.stirred_norms import MakeEncoder


class SingularValues(nn.Module):
    """An operator that ONNX does not have."""

    def forward(self, features: Tensor) -> Tensor:
        return torch.linalg.svdvals(features.flatten(2))


def test_an_operator_that_onnx_lacks_is_named_with_its_module(make_encoder: MakeEncoder, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(), SingularValues()), nn.Flatten())
    network = ServedNetwork(make_encoder("custom", module=module, projector="none"), "both", "nhwc")
    with pytest.raises(
        UsageError, match=r"no operator for aten\._linalg_svd of module backbone\.1\.1 \(SingularValues\)"
    ):
        write_onnx(network, tmp_path / "x.onnx", 18)


@pytest.mark.thorough
@pytest.mark.parametrize("nonnegative", ["relu-gelu", "softplus"])
@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize(("name", "shape"), [("resnet9-narrow", (1, 8, 8)), ("convnet", (3, 8, 12)), ("mlp", (5,))])
def test_encoders_of_the_catalogue_answer_as_torch_does(
    name: str, shape: tuple[int, ...], opset: int, nonnegative: str, make_encoder: MakeEncoder, tmp_path: Path
) -> None:
    encoder = make_encoder(name, shape, nonnegative=nonnegative, d0=5)
    answer = write_onnx(ServedNetwork(encoder, "both", "nhwc"), tmp_path / "x.onnx", opset)
    samples = torch.randn(9, 5) if len(shape) == 1 else torch.randint(0, 256, (9, *shape), dtype=torch.uint8)
    assert compare(answer, encoder, samples, list("abcdefghi"), TOLERANCE).difference <= TOLERANCE
    assert opset_of(tmp_path / "x.onnx") == opset
    if len(shape) == 3:
        own = OnnxEncoder(tmp_path / "x.onnx")(samples / 255)
        assert torch.allclose(own, encoder.both(samples)[0], rtol=1e-4, atol=1e-5)
