"""Noise of a sensor, in each channel of each pixel by itself: Gaussian, of photons, and defective pixels."""

# B images, C channels, H height, W width, L grey levels, K counts

from collections.abc import Mapping
from functools import cache

import numpy as np
import torch
from scipy.special import pdtr
from torch import Tensor

from counterpoint.core.array_layout import MAX_PIXEL, to_unit_float
from counterpoint.data.corruptions.corruption import Corruption, CorruptionDraws, Strength, steps


def gaussian_noise(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Adds s e with standard normal e."""
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
    """Distribution functions of the counts of all 256 levels, and how many values each has.

    Raised by their level and one behind the other they are one ascending row, so that one search serves all pixels.
    """
    rate_L1 = np.arange(MAX_PIXEL + 1)[:, None] * (photons / MAX_PIXEL)
    num_counts = int(photons + 10 * photons**0.5 + 10)  # the chance of more is below 2^-24, the step of the draws
    steps_LK = torch.from_numpy(pdtr(np.arange(num_counts)[None], rate_L1)).clamp(max=1.0)
    return (steps_LK + torch.arange(len(steps_LK))[:, None]).flatten(), num_counts


def impulse_noise(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """A share of the values becomes black or white, with equal chances."""
    drawn = draws.uniform(0, images_BCHW[0].numel()).view(images_BCHW.shape)
    half = strength.values[0] / 2
    # From both ends of the range: what a severity replaces, higher ones replace alike.
    return torch.where(drawn < half, 0, torch.where(drawn >= 1 - half, MAX_PIXEL, images_BCHW)).to(torch.uint8)


CATALOGUE: Mapping[str, Corruption] = {
    "gaussian noise": Corruption(
        "normal noise on every value",
        "noise",
        gaussian_noise,
        small=steps(0.04, 0.06, 0.08, 0.09, 0.10),
        large=steps(0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    "shot noise": Corruption(
        "values become counts of few photons",
        "noise",
        shot_noise,
        small=steps(500, 250, 100, 75, 50),
        large=steps(60, 25, 12, 5, 3),
    ),
    "impulse noise": Corruption(
        "single values become black or white",
        "noise",
        impulse_noise,
        small=steps(0.01, 0.02, 0.03, 0.05, 0.07),
        large=steps(0.03, 0.06, 0.09, 0.17, 0.27),
    ),
}
