"""The graph that is exported prepares its input and answers as the encoder does."""

from pathlib import Path

import pytest
import torch

from counterpoint.export.exporting import TOLERANCE, compare
from counterpoint.export.onnx_format import BOTH, ServedNetwork, write_onnx
from counterpoint.nn.resizing import Resizing
from tolerances import assert_close
from untrained_encoders import make_encoder


@pytest.mark.parametrize("resizing", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 13), (40, 31), (1, 1)])
def test_the_graph_brings_pictures_to_the_size_as_the_encoders_card_says(
    height: int, width: int, resizing: Resizing
) -> None:
    encoder = make_encoder(resizing=resizing)
    images = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8)
    with torch.no_grad():
        (found,) = ServedNetwork(encoder, "representation")(images.permute(0, 2, 3, 1))
        expected, _ = encoder.of_views(encoder.prepare(images))
    assert_close(found, expected)


@pytest.mark.parametrize("nonnegative", ["none", "relu", "relu-gelu", "softplus", "sigmoid"])
def test_the_graph_answers_as_the_encoder(nonnegative: str) -> None:
    encoder = make_encoder(nonnegative=nonnegative, d0=4)
    images = torch.randint(0, 256, (3, 3, 11, 10), dtype=torch.uint8)
    with torch.no_grad():
        found = ServedNetwork(encoder, "both")(images.permute(0, 2, 3, 1))
    for own, expected in zip(found, encoder.both(images), strict=True):
        assert_close(own, expected)


@pytest.mark.parametrize("layer", BOTH)
def test_one_output_can_be_asked_for_and_vectors_are_not_resized(layer: str) -> None:
    encoder = make_encoder("mlp", (5,))
    vectors = torch.randn(4, 5)
    with torch.no_grad():
        (found,) = ServedNetwork(encoder, layer)(vectors)
    assert_close(found, encoder.both(vectors)[BOTH.index(layer)])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "shape", "nonnegative"),
    [("resnet9-narrow", (1, 8, 8), "relu-gelu"), ("convnet", (3, 8, 12), "softplus"), ("mlp", (5,), "relu-gelu")],
)
def test_encoders_of_the_catalogue_answer_as_torch_does(
    name: str, shape: tuple[int, ...], nonnegative: str, tmp_path: Path
) -> None:
    encoder = make_encoder(name, shape, nonnegative=nonnegative, d0=5)
    answer = write_onnx(ServedNetwork(encoder, "both"), tmp_path / "x.onnx")
    samples = torch.randn(9, 5) if len(shape) == 1 else torch.randint(0, 256, (9, *shape), dtype=torch.uint8)
    assert compare(answer, encoder, samples, list("abcdefghi"), TOLERANCE).difference <= TOLERANCE
