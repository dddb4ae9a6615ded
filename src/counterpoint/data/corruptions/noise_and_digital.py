"""Noise of a sensor, independent in each channel of each pixel; and effects of processing on pictures.

Gaussian noise, that of photons, and defective pixels; low contrast, elastic distortion, coarse pixels, and JPEG.
"""

# B images, C channels, H height, W width, L grey levels, K counts

import io
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from scipy.special import pdtr
from torch import Tensor

from counterpoint.core.array_layout import MAX_PIXEL, to_unit_float
from counterpoint.data.corrupted import SMALL_SIDE, Corruption, CorruptionDraws, Five, Strength
from counterpoint.data.views.spatial import blurred

ELASTIC_SIDE = 244  # for 224, as the code of hendrycks2019 has it


def gaussian_noise(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Add s e with standard normal e."""
    noise_BN = draws.normal(0, images_BCHW[0].numel())
    return to_unit_float(images_BCHW) + strength.values[0] * noise_BN.view(images_BCHW.shape)


def shot_noise(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Poisson(s x) / s: a white pixel counts s photons on average."""
    photons = strength.values[0]
    ascending, num_counts = _poisson_steps(photons)
    level_BN = images_BCHW.flatten(1).long()
    # The count is the number of values of the distribution function that the draw is not below.
    drawn_BN = level_BN + draws.uniform(0, level_BN.shape[1]).double()
    count_BN = torch.searchsorted(ascending, drawn_BN, right=True) - level_BN * num_counts
    return (count_BN.float() / photons).view(images_BCHW.shape)


@cache
def _poisson_steps(photons: float) -> tuple[Tensor, int]:
    """Distribution functions of the counts of all 256 levels, and the number of values of each.

    Raised by their level and one behind the other they are one ascending row, so that one search serves all pixels.
    """
    rate_L1 = np.arange(MAX_PIXEL + 1)[:, None] * (photons / MAX_PIXEL)
    num_counts = int(photons + 10 * photons**0.5 + 10)  # the chance of more is below 2^-24, the step of the draws
    steps_LK = torch.from_numpy(pdtr(np.arange(num_counts)[None], rate_L1)).clamp(max=1.0)
    return (steps_LK + torch.arange(len(steps_LK))[:, None]).flatten(), num_counts


def impulse_noise(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Make a share of the values black or white, with equal chances."""
    drawn = draws.uniform(0, images_BCHW[0].numel()).view(images_BCHW.shape)
    half = strength.values[0] / 2
    # From both ends of the range: what a severity replaces, higher ones replace alike.
    return torch.where(drawn < half, 0, torch.where(drawn >= 1 - half, MAX_PIXEL, images_BCHW)).to(torch.uint8)


def contrast(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Bring values nearer to the mean m of each channel: m + s (x - m)."""
    # A sum of whole numbers is the same in any order.
    num_pixels = images_BCHW.shape[2] * images_BCHW.shape[3]
    mean = images_BCHW.sum((2, 3), keepdim=True, dtype=torch.int64).float() / (num_pixels * MAX_PIXEL)
    return (to_unit_float(images_BCHW) - mean) * strength.values[0] + mean


def elastic(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Apply a random affine map, then a smooth field of random shifts: (their size, their sigma, shifts of corners).

    Source: simard2003, as hendrycks2019 has it; all three are lengths in pixels.
    """
    amount, sigma, corners = (value * strength.scale for value in strength.values)
    amount *= strength.scale  # shifts are amount / sigma on average, and lengths, too
    height, width = images_BCHW.shape[2:]
    # Three points about the middle are shifted: (+, +), (+, -) and (-, -), as (y, x). The map sends each point p to
    # p + shift(p), and is linear in between.
    reach, shift_B6 = min(height, width) // 3, corners * (2.0 * draws.uniform(0, 6) - 1.0)
    first, second, third = shift_B6.view(-1, 3, 2, 1, 1).unbind(1)
    down, right = (second - third) / (2 * reach), (first - second) / (2 * reach)
    y_H1, x_W = torch.arange(height)[:, None] - height // 2, torch.arange(width) - width // 2
    shift_B2HW = second + down * (y_H1 - reach) + right * (x_W + reach)
    x_BHW, y_BHW = x_W + width // 2 + shift_B2HW[:, 1], y_H1 + height // 2 + shift_B2HW[:, 0]
    images = _values_at(to_unit_float(images_BCHW), x_BHW, y_BHW)
    field = 2.0 * draws.uniform(1, 2 * height * width).view(-1, 2, height, width) - 1.0
    shift_B2HW = amount * blurred(field, sigma)
    rows_H1, columns_W = torch.arange(height)[:, None], torch.arange(width)
    return _values_at(images, columns_W + shift_B2HW[:, 0], rows_H1 + shift_B2HW[:, 1])


def _values_at(images_BCHW: Tensor, x_BHW: Tensor, y_BHW: Tensor) -> Tensor:
    """Images at places given in pixels; bilinear, edges mirrored."""
    height, width = images_BCHW.shape[2:]
    grid = torch.stack([(2 * x_BHW + 1) / width - 1, (2 * y_BHW + 1) / height - 1], dim=3)
    return F.grid_sample(images_BCHW, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def pixelate(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Shrink to a share of the side by box filters, and enlarge again."""
    height, width = images_BCHW.shape[2:]
    coarse = (max(1, int(width * strength.values[0])), max(1, int(height * strength.values[0])))

    def change(picture: Image.Image) -> Image.Image:
        small = picture.resize(coarse, Image.Resampling.BOX)
        return small.resize((width, height), Image.Resampling.BOX)

    return _change_each(images_BCHW, change)


def jpeg(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Write as JPEG of a quality, and read again."""

    def change(picture: Image.Image) -> Image.Image:
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=int(strength.values[0]))
        return Image.open(stream)

    return _change_each(images_BCHW, change)


def _change_each(images_BCHW: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Apply a change of Pillow images to each picture; one of one channel is grey."""
    shape, is_grey = images_BCHW.shape, images_BCHW.shape[1] == 1
    pixels = images_BCHW[:, 0] if is_grey else images_BCHW.permute(0, 2, 3, 1)
    changed = np.stack([np.asarray(change(Image.fromarray(each.numpy()))) for each in pixels.contiguous()])
    tensor = torch.from_numpy(changed)
    return (tensor[:, None] if is_grey else tensor.permute(0, 3, 1, 2)).reshape(shape)


def _as_lengths(side: int, *shares: tuple[float, float, float]) -> Five:
    """Lengths that were published as shares of a side."""
    return tuple(tuple(side * share for share in each) for each in shares)


CATALOGUE: Mapping[str, Corruption] = {
    "gaussian noise": Corruption(
        "normal noise on every value",
        "noise",
        gaussian_noise,
        small=(0.04, 0.06, 0.08, 0.09, 0.10),
        large=(0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    "shot noise": Corruption(
        "values become counts of few photons",
        "noise",
        shot_noise,
        small=(500, 250, 100, 75, 50),
        large=(60, 25, 12, 5, 3),
    ),
    "impulse noise": Corruption(
        "single values become black or white",
        "noise",
        impulse_noise,
        small=(0.01, 0.02, 0.03, 0.05, 0.07),
        large=(0.03, 0.06, 0.09, 0.17, 0.27),
    ),
    "contrast": Corruption(
        "nearer to the mean",
        "digital",
        contrast,
        small=(0.75, 0.5, 0.4, 0.3, 0.15),
        large=(0.4, 0.3, 0.2, 0.1, 0.05),
    ),
    "elastic": Corruption(
        "stretched in small regions",
        "digital",
        elastic,
        small=_as_lengths(
            SMALL_SIDE, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)
        ),
        large=_as_lengths(
            ELASTIC_SIDE, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
        ),
    ),
    "pixelate": Corruption(
        "coarse pixels",
        "digital",
        pixelate,
        small=(0.95, 0.9, 0.85, 0.75, 0.65),
        large=(0.6, 0.5, 0.4, 0.3, 0.25),
    ),
    "jpeg": Corruption("JPEG of low quality", "digital", jpeg, small=(80, 65, 58, 50, 40), large=(25, 18, 15, 10, 7)),
}
