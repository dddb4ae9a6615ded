"""Blur of a lens, of frosted glass, of a camera that moves or comes nearer; and snow, frost, fog and bright light."""

# B images, C channels, H height, W width

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.array_layout import MAX_PIXEL, to_bytes, to_unit_float
from counterpoint.data.corrupted import Corruption, CorruptionDraws, Strength, plasma
from counterpoint.data.views.colour import to_grey
from counterpoint.data.views.spatial import affine, affine_maps, blurred

ANGLE = 45.0  # degrees to either side of the horizontal at which a camera moves
FALL = (-135.0, -45.0)  # degrees along which snow falls
ICE = (0.88, 0.95, 1.0)  # colour of frost
ICE_DECAY = (1.3, 1.6)  # of the crystals and of the veil below them


def defocus_blur(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Mean over a disc, smoothed: (radius, sigma of the Gaussian that softens the disc's edge) in pixels."""
    radius, sigma = (value * strength.scale for value in strength.values)
    # The mean over x^2 + y^2 <= radius^2, edges mirrored, in [0, 1].
    height, width = images_BCHW.shape[2:]
    reach = min(int(radius), height - 1, width - 1)
    padded = F.pad(images_BCHW.float(), (reach,) * 4, mode="reflect")
    # Sums of bytes are whole numbers, which float32 holds: a running sum along the rows gives the same bits as any
    # other order, and makes a row of the disc two operations.
    running = F.pad(padded.cumsum(3), (1, 0))
    total, num_pixels = torch.zeros(images_BCHW.shape), 0
    for row in range(-reach, reach + 1):
        half = min(reach, int(math.sqrt(radius**2 - row**2)))
        rows = running[:, :, reach + row : reach + row + height]
        total += rows[..., reach + half + 1 : reach + half + 1 + width] - rows[..., reach - half : reach - half + width]
        num_pixels += 2 * half + 1
    return blurred(total / (num_pixels * MAX_PIXEL), sigma)


def glass_blur(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Blur, each pixel replaced by a near one, and blur: (sigma in pixels, reach in pixels, rounds of replacement).

    The code of hendrycks2019 is written as an exchange of two pixels, but copies one to the other; so do the pictures
    published with it, and so does this. Differs from it if the reach is above 1: all pixels are replaced at once.
    """
    sigma, reach = strength.values[0] * strength.scale, max(1, round(strength.values[1] * strength.scale))
    images, (height, width) = to_bytes(blurred(to_unit_float(images_BCHW), sigma)), images_BCHW.shape[2:]
    for place in range(int(strength.values[2])):
        # Each pixel is that at a drawn distance of -reach to reach - 1 along both axes, edges held.
        drawn_B2HW = draws.uniform(place, 2 * height * width).view(-1, 2, height, width)
        away_B2HW = (drawn_B2HW * (2 * reach)).long() - reach
        row_BHW = (torch.arange(height)[:, None] + away_B2HW[:, 0]).clamp_(0, height - 1)
        column_BHW = (torch.arange(width) + away_B2HW[:, 1]).clamp_(0, width - 1)
        images = _pixels_at(images, row_BHW * width + column_BHW)
    return blurred(to_unit_float(images), sigma)


def _pixels_at(images_BCHW: Tensor, pixel_BHW: Tensor) -> Tensor:
    """Put at each place the pixel of a given number, in all channels."""
    flat = images_BCHW.flatten(2)
    return flat.gather(2, pixel_BHW.flatten(1)[:, None].expand(flat.shape)).view(images_BCHW.shape)


def motion_blur(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Blur by half a Gaussian along a line: (radius, sigma) in pixels; the line's angle is drawn."""
    radius, sigma = (value * strength.scale for value in strength.values)
    return moved(to_unit_float(images_BCHW), radius, sigma, draws.between(0, -ANGLE, ANGLE))


def moved(images_BCHW: Tensor, radius: float, sigma: float, degrees_B: Tensor) -> Tensor:
    """Weighted sum of 2 radius + 1 pixels along a line from each pixel, weights of a Gaussian, edges held."""
    height, width = images_BCHW.shape[2:]
    weights = [math.exp(-0.5 * (step / sigma) ** 2) for step in range(2 * round(radius) + 1)]
    angle_B = torch.deg2rad(degrees_B.double())
    total = torch.zeros(images_BCHW.shape)
    for step, weight in enumerate(weights):
        # The nearest pixel, so that the line stays a line of pixels.
        right_B, down_B = (step * angle_B.cos()).round().long(), (step * angle_B.sin()).round().long()
        row_BH1 = (torch.arange(height) + down_B[:, None]).clamp_(0, height - 1)[:, :, None]
        column_B1W = (torch.arange(width) + right_B[:, None]).clamp_(0, width - 1)[:, None]
        total += _pixels_at(images_BCHW, row_BH1 * width + column_B1W).mul_(weight / math.fsum(weights))
    return total


def zoom_blur(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Mean of the picture and of its enlargements by 1, 1 + step, ... below a limit: (limit, step)."""
    limit, step = strength.values
    images = to_unit_float(images_BCHW)
    factors = np.arange(1.0, limit, step).tolist()
    total = images.clone()
    for factor in factors:
        total += enlarged(images, factor)
    return total / (len(factors) + 1)


def enlarged(images_BCHW: Tensor, factor: float) -> Tensor:
    """The middle of each image, enlarged to the image's size; bilinear."""
    nothing_B, size = torch.zeros(len(images_BCHW)), (images_BCHW.shape[2], images_BCHW.shape[3])
    still_B2 = torch.zeros(len(images_BCHW), 2)
    return affine(images_BCHW, affine_maps(nothing_B, still_B2, nothing_B + factor, still_B2, size), "edge")


def snow(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Add flakes in two layers over a paler picture.

    The numbers: mean and deviation of the noise that flakes are made of, its enlargement, the value below which there
    is none, radius and sigma in pixels along which they fall, and the share of the picture that is not paler.
    """
    mean, deviation, size, least, radius, sigma, share = strength.values
    images, scale = to_unit_float(images_BCHW), strength.scale
    height, width = images.shape[2:]
    noise = mean + deviation * draws.normal(0, height * width).view(-1, 1, height, width)
    noise = enlarged(noise, size)
    flakes = torch.where(noise < least, 0.0, noise.clamp(0.0, 1.0))
    flakes = moved(flakes, radius * scale, sigma * scale, draws.between(1, *FALL))
    pale = torch.maximum(images, to_grey(images) * 1.5 + 0.5)
    return share * images + (1 - share) * pale + flakes + flakes.flip(2, 3)


def frost(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Mix with a layer f of ice, a x + b f: (a, b).

    Differs from hendrycks2019, where f is a cut-out of one of five photographs: here it is drawn, ridges of clouds as
    crystals over a veil, so that figures under frost cannot be compared with published ones.
    """
    picture_share, ice_share = strength.values
    size = (images_BCHW.shape[2], images_BCHW.shape[3])
    ridges = 1.0 - (2.0 * plasma(draws, 0, size, ICE_DECAY[0]) - 1.0).abs()
    square = ridges * ridges
    ice = 0.1 + 0.3 * plasma(draws, 1, size, ICE_DECAY[1]) + 0.6 * square * square
    colour = torch.tensor(ICE if images_BCHW.shape[1] == len(ICE) else [sum(ICE) / len(ICE)])
    return picture_share * to_unit_float(images_BCHW) + ice_share * ice * colour[:, None, None]


def fog(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Add clouds f, (x + a f) m / (m + a) with the brightest value m of the picture: (a, decay of the clouds)."""
    amount, decay = strength.values
    images = to_unit_float(images_BCHW)
    brightest = images.amax((1, 2, 3), keepdim=True)
    clouds = plasma(draws, 0, (images.shape[2], images.shape[3]), decay)
    return (images + amount * clouds) * (brightest / (brightest + amount))


def brightness(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Add to the value of hue, saturation and value, which is the largest channel."""
    images = to_unit_float(images_BCHW)
    value = images.amax(1, keepdim=True)
    brighter = (value + strength.values[0]).clamp(max=1.0)
    # Hue and saturation are ratios of channels, which a common factor keeps; black has no hue and becomes grey.
    return torch.where(value > 0, images * (brighter / torch.where(value > 0, value, 1.0)), brighter)


CATALOGUE: Mapping[str, Corruption] = {
    "defocus blur": Corruption(
        "out of focus: the mean over a disc",
        "blur",
        defocus_blur,
        small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        large=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    "glass blur": Corruption(
        "pixels replaced by near ones, as behind frosted glass",
        "blur",
        glass_blur,
        small=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        large=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    "motion blur": Corruption(
        "the camera moves along a line",
        "blur",
        motion_blur,
        small=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        large=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    "zoom blur": Corruption(
        "the camera comes nearer",
        "blur",
        zoom_blur,
        small=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        large=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    "snow": Corruption(
        "flakes that fall",
        "weather",
        snow,
        small=(
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        large=(
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    "frost": Corruption(
        "ice on the lens, drawn here",
        "weather",
        frost,
        small=((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        large=((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    ),
    "fog": Corruption(
        "clouds in front of the scene",
        "weather",
        fog,
        small=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        large=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    "brightness": Corruption(
        "brighter daylight",
        "weather",
        brightness,
        small=(0.05, 0.1, 0.15, 0.2, 0.3),
        large=(0.1, 0.2, 0.3, 0.4, 0.5),
    ),
}
