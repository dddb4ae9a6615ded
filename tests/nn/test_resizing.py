"""Pictures come to a network's size in one way: decoder, encoder and graph give the bits of Pillow, axis by axis."""

import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from counterpoint.data.formats.image_files import decode_square
from counterpoint.export.modeling_counterpoint import bicubic
from counterpoint.nn.resizing import fit_images, resized
from tolerances import assert_close

SIZES = [(8, 8), (9, 8), (5, 13), (40, 31), (200, 40), (61, 300), (2, 2), (1, 1), (7, 1), (333, 97)]


def pictures(height: int, width: int) -> Tensor:
    """Noise of two levels, for which every rounding and cut-off counts, and a smooth picture."""
    rng = np.random.default_rng(height * 1000 + width)
    sharp = rng.integers(0, 2, (3, height, width)) * 255
    smooth = np.clip(rng.normal(0, 6, (3, height, width)).cumsum(axis=2).cumsum(axis=1) + 128, 0, 255)
    return torch.from_numpy(np.stack([sharp, smooth.astype(np.int64)]).astype(np.uint8))


def by_pillow(picture_CHW: Tensor, side: tuple[int, int]) -> Tensor:
    """The centred square (the whole, where the target is not square), the width first, then the height."""
    image = Image.fromarray(picture_CHW.permute(1, 2, 0).numpy())
    high, wide = (image.height, image.width) if side[0] != side[1] else (min(image.size),) * 2
    left, top = (image.width - wide) / 2, (image.height - high) / 2
    image = image.resize((side[1], image.height), Image.Resampling.BICUBIC, (left, 0, left + wide, image.height))
    image = image.resize((side[1], side[0]), Image.Resampling.BICUBIC, (0, top, side[1], top + high))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize(("height", "width"), SIZES)
@pytest.mark.parametrize("target", [(8, 8), (33, 33), (5, 9)])
def test_every_way_to_a_size_gives_the_bits_of_pillow(height: int, width: int, target: tuple[int, int]) -> None:
    images = pictures(height, width)
    expected = torch.stack([by_pillow(image, target) for image in images]).float()
    high, wide = (height, width) if target[0] != target[1] else (min(height, width),) * 2
    found = fit_images(images, (3, *target))
    assert torch.equal(found, expected / 255)
    assert torch.equal(fit_images(images.float() / 255, (3, *target)), found)
    # The two ways without a branch on the size, as exported.
    assert torch.equal(resized(images, target, "bicubic").float(), expected)
    assert torch.equal(bicubic(images.float(), (high, wide), target).float(), expected)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_file_is_decoded_to_the_same_bits(height: int, width: int) -> None:
    (picture, _), stream = pictures(height, width), io.BytesIO()
    Image.fromarray(picture.permute(1, 2, 0).numpy()).save(stream, "PNG")
    decoded = decode_square(stream.getvalue(), 24)
    assert torch.equal(decoded.float() / 255, fit_images(picture[None], (3, 24, 24))[0])


def test_the_gradient_passes_rounding() -> None:
    images = torch.rand(1, 3, 12, 9, requires_grad=True)
    fit_images(images, (3, 6, 6))[..., 2, 3].sum().backward()
    assert images.grad is not None
    assert_close(images.grad.sum(), torch.tensor(3.0))


@pytest.mark.parametrize("target", [(8, 8), (5, 9)])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_encoders_of_earlier_versions_keep_bilinear_interpolation(
    height: int, width: int, target: tuple[int, int]
) -> None:
    images = pictures(height, width)
    inside, side = images.float() / 255, min(height, width)
    if target[0] == target[1]:
        top, left = (height - side) // 2, (width - side) // 2
        inside = inside[..., top : top + side, left : left + side]
    expected = F.interpolate(inside, target, mode="bilinear", antialias=True, align_corners=False)
    assert_close(fit_images(images, (3, *target), "bilinear"), expected)
