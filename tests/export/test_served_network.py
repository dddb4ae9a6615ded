"""The graph that is exported prepares its input as the encoder does."""

import pytest
import torch
import torch.nn.functional as F

from counterpoint.core.array_layout import fit_images
from counterpoint.export.onnx_format import BOTH, ServedNetwork, resize_matrix
from export.stirred_norms import MakeEncoder
from tolerances import assert_close

SIZES = [(8, 8), (9, 8), (5, 13), (40, 31), (100, 7), (2, 2), (1, 1)]


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("target", [(8, 8), (5, 9)])
def test_resizing_by_matrices_is_torchs_antialiased_interpolation(
    height: int, width: int, target: tuple[int, int], make_encoder: MakeEncoder
) -> None:
    encoder = make_encoder("convnet", (3, *target))
    images = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8)
    expected = fit_images(images.float() / 255, (3, *target))
    assert_close(ServedNetwork(encoder, "both")._sized(images.permute(0, 2, 3, 1)), expected)


@pytest.mark.parametrize("size", [1, 3, 8, 29])
def test_rows_of_a_resize_matrix_sum_to_one_and_agree_with_interpolation_of_an_axis(size: int) -> None:
    line = torch.rand(1, 1, 1, size + 4)
    weights = resize_matrix(torch.arange(size + 4) + 1.0, torch.tensor(2.0), torch.tensor(float(size)), 5)
    assert_close(weights.sum(dim=1), torch.ones(5))
    inside = line[..., 2 : 2 + size]
    expected = F.interpolate(inside, (1, 5), mode="bilinear", antialias=True, align_corners=False)
    assert_close(line[0, 0, 0] @ weights.T, expected[0, 0, 0])


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
