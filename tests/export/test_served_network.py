"""The graph that is exported prepares its input as the encoder does."""

from dataclasses import replace

import pytest
import torch

from counterpoint.export.onnx_format import BOTH, ServedNetwork
from counterpoint.nn.resizing import Resizing
from export.stirred_norms import MakeEncoder
from tolerances import assert_close


@pytest.mark.parametrize("resizing", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 13), (40, 31), (1, 1)])
def test_the_graph_brings_pictures_to_the_size_as_the_encoders_card_says(
    height: int, width: int, resizing: Resizing, make_encoder: MakeEncoder
) -> None:
    encoder = make_encoder("convnet", (3, 8, 8))
    encoder.card = replace(encoder.card, resizing=resizing)
    images = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8)
    with torch.no_grad():
        (found,) = ServedNetwork(encoder, "representation")(images.permute(0, 2, 3, 1))
        expected, _ = encoder.of_views(encoder.prepare(images))
    assert_close(found, expected)


@pytest.mark.parametrize("nonnegative", ["none", "relu", "relu-gelu", "softplus", "sigmoid"])
def test_the_graph_answers_as_the_encoder(nonnegative: str, make_encoder: MakeEncoder) -> None:
    encoder = make_encoder(nonnegative=nonnegative, d0=4)
    images = torch.randint(0, 256, (3, 3, 11, 10), dtype=torch.uint8)
    with torch.no_grad():
        found = ServedNetwork(encoder, "both")(images.permute(0, 2, 3, 1))
    for own, expected in zip(found, encoder.both(images), strict=True):
        assert_close(own, expected)


@pytest.mark.parametrize("layer", BOTH)
def test_one_output_can_be_asked_for_and_vectors_are_not_resized(layer: str, make_encoder: MakeEncoder) -> None:
    encoder = make_encoder("mlp", (5,))
    vectors = torch.randn(4, 5)
    with torch.no_grad():
        (found,) = ServedNetwork(encoder, layer)(vectors)
    assert_close(found, encoder.both(vectors)[BOTH.index(layer)])
