"""What lies between the camera and the scene: snow, frost, fog; and bright light."""

# B images, C channels, H height, W width

from collections.abc import Mapping

import torch
from torch import Tensor

from counterpoint.core.array_layout import to_unit_float
from counterpoint.data.corruptions.blur import enlarged, moved
from counterpoint.data.corruptions.corruption import Corruption, Draws, Strength, plasma, steps
from counterpoint.data.views.colour import to_grey

FALL = (-135.0, -45.0)  # degrees along which snow falls
ICE = (0.88, 0.95, 1.0)  # colour of frost
ICE_DECAY = (1.3, 1.6)  # of the crystals and of the veil below them


def snow(images_BCHW: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """Flakes in two layers over a paler picture.

    The numbers: mean and deviation of the noise that flakes are made of, its enlargement, the value below which there
    is none, radius and sigma in pixels along which they fall, and the share of the picture that is not paler.
    """
    mean, deviation, size, least, radius, sigma, kept = strength.values
    images, scale = to_unit_float(images_BCHW), strength.scale
    height, width = images.shape[2:]
    noise = mean + deviation * draws.normal(0, height * width).view(-1, 1, height, width)
    noise = enlarged(noise, size)
    flakes = torch.where(noise < least, 0.0, noise.clamp(0.0, 1.0))
    flakes = moved(flakes, radius * scale, sigma * scale, draws.between(1, *FALL))
    pale = torch.maximum(images, to_grey(images) * 1.5 + 0.5)
    return kept * images + (1 - kept) * pale + flakes + flakes.flip(2, 3)


def frost(images_BCHW: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """Mixes with a layer f of ice, a x + b f: (a, b).

    Differs from hendrycks2019, where f is a cut-out of one of five photographs: here it is drawn, ridges of clouds as
    crystals over a veil, so that figures under frost cannot be compared with published ones.
    """
    kept, added = strength.values
    size = (images_BCHW.shape[2], images_BCHW.shape[3])
    ridges = 1.0 - (2.0 * plasma(draws, 0, size, ICE_DECAY[0]) - 1.0).abs()
    square = ridges * ridges
    ice = 0.1 + 0.3 * plasma(draws, 1, size, ICE_DECAY[1]) + 0.6 * square * square
    colour = torch.tensor(ICE if images_BCHW.shape[1] == len(ICE) else [sum(ICE) / len(ICE)])
    return kept * to_unit_float(images_BCHW) + added * ice * colour[:, None, None]


def fog(images_BCHW: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """Adds clouds f, (x + a f) m / (m + a) with the brightest value m of the picture: (a, decay of the clouds)."""
    amount, decay = strength.values
    images = to_unit_float(images_BCHW)
    brightest = images.amax((1, 2, 3), keepdim=True)
    clouds = plasma(draws, 0, (images.shape[2], images.shape[3]), decay)
    return (images + amount * clouds) * (brightest / (brightest + amount))


def brightness(images_BCHW: Tensor, strength: Strength, draws: Draws) -> Tensor:
    """Adds to the value of hue, saturation and value, which is the largest channel."""
    images = to_unit_float(images_BCHW)
    value = images.amax(1, keepdim=True)
    brighter = (value + strength.values[0]).clamp(max=1.0)
    # Hue and saturation are ratios of channels, which a common factor keeps; black has none and becomes grey.
    return torch.where(value > 0, images * (brighter / torch.where(value > 0, value, 1.0)), brighter)


CATALOGUE: Mapping[str, Corruption] = {
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
        small=steps(0.05, 0.1, 0.15, 0.2, 0.3),
        large=steps(0.1, 0.2, 0.3, 0.4, 0.5),
    ),
}
