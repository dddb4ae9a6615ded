"""Pictures under a corruption: the same bits whatever batch, thread or process a picture is corrupted in.

Seven of the corruptions by which hendrycks2019 measures robustness, at least one of each kind.
"""

# B images, C channels, H height, W width

import io
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from counterpoint.core.array_layout import COLOUR_CHANNELS, MAX_PIXEL, to_bytes, to_unit_float
from counterpoint.core.counter_random import PURPOSE_CORRUPTION, normal, uniform
from counterpoint.core.errors import DataError, UsageError, unknown_name
from counterpoint.data.stores import Store
from counterpoint.data.views.spatial import gaussian_blur

ALL = "all"
SEVERITIES = (1, 2, 3, 4, 5)
LEAST_SIDE = 8
SMALL_SIDE, LARGE_SIDE = 32, 224  # pixels of the pictures that the numbers were published for
CHUNK = 1 << 22  # values worked on at once, which bounds the memory that random numbers take


@dataclass(frozen=True)
class Strength:
    """How strong a corruption is for pictures of one size.

    Attributes:
        values: the published numbers of its severity.
        scale: side of the pictures over the side that they were published for; lengths in pixels grow with it.
    """

    values: tuple[float, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class CorruptionDraws:
    """Random numbers of pictures: a pure function of (seed, corruption, sample id), the same for all severities.

    Attributes:
        seed: of the user.
        name: of the corruption.
        ids_B: int64 sample ids.
    """

    seed: int
    name: str
    ids_B: Tensor

    def uniform(self, num_draws: int) -> Tensor:
        """Numbers in [0, 1), (b, num_draws)."""
        return uniform(self.seed, self._stream, self.ids_B, PURPOSE_CORRUPTION, num_draws)

    def normal(self, num_draws: int) -> Tensor:
        """Standard normal numbers, (b, num_draws)."""
        return normal(self.seed, self._stream, self.ids_B, PURPOSE_CORRUPTION, num_draws)

    @property
    def _stream(self) -> int:
        """A number that follows from the name alone: a corruption beside it changes nothing."""
        return zlib.crc32(self.name.encode())


@dataclass(frozen=True)
class Corruption:
    """One corruption: an entry of ``CATALOGUE``.

    Attributes:
        summary: what it does, for lists.
        apply: maps uint8 pictures (b, c, h, w), a strength and draws to pictures, uint8 or float32 around [0, 1].
        small: its strengths at severities 1 to 5 on pictures of 32 pixels, as published with CIFAR-10-C.
        large: on pictures of 224 pixels, as published with ImageNet-C.
    """

    summary: str
    apply: Callable[[Tensor, Strength, CorruptionDraws], Tensor]
    small: Sequence[float | tuple[float, ...]]
    large: Sequence[float | tuple[float, ...]]

    def strength(self, severity: int, height: int, width: int) -> Strength:
        """Its strength for pictures of a size: the numbers published for the nearer of both sides, scaled to it."""
        side = min(height, width)
        is_small = side * side < SMALL_SIDE * LARGE_SIDE  # nearer as a ratio
        published, numbers = (SMALL_SIDE, self.small) if is_small else (LARGE_SIDE, self.large)
        values = numbers[severity - 1]
        return Strength(values if isinstance(values, tuple) else (values,), side / published)


def corrupt(images_BCHW: Tensor, name: str, severity: int, *, ids_B: Tensor, seed: int = 0) -> Tensor:
    """Corrupt pictures; each picture's result is a pure function of (picture, name, severity, seed, id).

    The severities of a picture share their random numbers. Strengths are the published ones for sides of 32
    (CIFAR-10-C) and 224 (ImageNet-C); for others those of the nearer side, with lengths in pixels scaled.

    Source: hendrycks2019, section 3.1; differences are stated at each corruption.

    Args:
        images_BCHW: uint8, 1 or 3 channels, sides >= 8.
        name: of ``CATALOGUE``.
        severity: 1 to 5.
        ids_B: int64 ids of the samples.
        seed: any non-negative int.

    Returns:
        uint8, of the same shape.

    Raises:
        UsageError: a name that is not known.
        ValueError: a severity out of range.
        DataError: pictures of another form.

    >>> grey = torch.full((1, 1, 8, 8), 100, dtype=torch.uint8)
    >>> corrupt(grey, "brightness", 3, ids_B=torch.tensor([0])).unique()  # 100 + 0.15 x 255
    tensor([138], dtype=torch.uint8)
    """
    if name not in CATALOGUE:
        raise unknown_name("corruption", name, CATALOGUE)
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be between 1 and 5, got {severity}")
    check_pictures(images_BCHW)
    corruption = CATALOGUE[name]
    strength = corruption.strength(severity, images_BCHW.shape[2], images_BCHW.shape[3])
    size = max(1, CHUNK // math.prod(images_BCHW.shape[1:]))
    parts = zip(images_BCHW.split(size), ids_B.split(size), strict=True)
    return torch.cat(
        [to_bytes(corruption.apply(part, strength, CorruptionDraws(seed, name, ids))) for part, ids in parts]
    )


def check_pictures(images_BCHW: Tensor) -> None:
    """Require bytes of pictures.

    Raises:
        DataError: anything else.
    """
    shape = tuple(images_BCHW.shape)
    is_picture = images_BCHW.dtype == torch.uint8 and len(shape) == 4 and shape[1] in COLOUR_CHANNELS
    if not is_picture or min(shape[2:]) < LEAST_SIDE:
        raise DataError(
            f"corruptions take uint8 pictures (n, c, h, w) with 1 or 3 channels and sides >= {LEAST_SIDE}, got "
            f"{images_BCHW.dtype} of shape {shape}"
        )


def chosen_corruptions(names: Sequence[str]) -> tuple[str, ...]:
    """Names of corruptions, in the order of the catalogue.

    Args:
        names: of corruptions, also with a hyphen for a blank; ``all`` for all of them.

    Raises:
        UsageError: a name that is not known.

    >>> chosen_corruptions(["fog", "defocus-blur"])
    ('defocus blur', 'fog')
    """
    asked = {name.replace("-", " ") for name in names}
    for name in sorted(asked - CATALOGUE.keys() - {ALL}):
        raise unknown_name("corruption", name, (ALL, *CATALOGUE))
    return tuple(name for name in CATALOGUE if asked & {name, ALL})


def chosen_severities(text: str) -> tuple[int, ...]:
    """Severities as a command line names them.

    Raises:
        UsageError: anything but numbers from 1 to 5, separated by commas, and ranges.

    >>> chosen_severities("1,3-5")
    (1, 3, 4, 5)
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            found.update(range(int(first), int(last if dash else first) + 1) or [0])
        except ValueError:
            found.add(0)  # which is none, as is an empty range
    if not found <= set(SEVERITIES):
        raise UsageError(f"severities must be numbers from 1 to 5, such as 1-5 or 3, got {text!r}")
    return tuple(sorted(found))


@dataclass(frozen=True)
class CorruptedStore:
    """The pictures of another store under a corruption; nothing is kept.

    Attributes:
        clean: pictures, whose positions are their ids.
        name: of the corruption.
        severity: 1 to 5.
        seed: of its random numbers.
    """

    clean: Store
    name: str
    severity: int
    seed: int = 0

    def __len__(self) -> int:
        return len(self.clean)

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """See ``Store.fetch``."""
        ids_B = torch.as_tensor(positions, dtype=torch.int64)
        return corrupt(self.clean.fetch(positions), self.name, self.severity, ids_B=ids_B, seed=self.seed)


# --- the corruptions


def gaussian_noise(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Adds s e with standard normal e."""
    noise_BN = draws.normal(images_BCHW[0].numel())
    return to_unit_float(images_BCHW) + strength.values[0] * noise_BN.view(images_BCHW.shape)


def defocus_blur(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Mean over a disc, smoothed: (radius, sigma of the Gaussian that softens the disc's edge) in pixels."""
    radius, sigma = (value * strength.scale for value in strength.values)
    mean = _disc_mean(images_BCHW, radius)
    return gaussian_blur(mean, torch.full((len(mean),), sigma), sigma) if sigma > 0 else mean


def _disc_mean(images_BCHW: Tensor, radius: float) -> Tensor:
    """Mean over x^2 + y^2 <= radius^2, edges mirrored, in [0, 1]."""
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
    return total / (num_pixels * MAX_PIXEL)


def fog(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Adds clouds f, (x + a f) m / (m + a) with the brightest value m of the picture: (a, decay of the clouds)."""
    amount, decay = strength.values
    images = to_unit_float(images_BCHW)
    brightest = images.amax((1, 2, 3), keepdim=True)
    clouds = plasma(draws, (images.shape[2], images.shape[3]), decay)
    return (images + amount * clouds) * (brightest / (brightest + amount))


def plasma(draws: CorruptionDraws, size: tuple[int, int], decay: float) -> Tensor:
    r"""Clouds in [0, 1], (b, 1, h, w), by midpoint displacement: each halving of the grid divides its noise by decay^2.

    Corners, then centres of squares, then centres of edges are the mean of their four neighbours on a torus, plus
    uniform noise in :math:`\pm a`, with a = 1 on the coarsest grid.

    Source: fournier1982; decay^2 as in the code of hendrycks2019.

    Args:
        draws: their random numbers.
        size: height and width.
        decay: >= 1; larger ones are smoother.
    """
    side = 1 << (max(size) - 1).bit_length()
    noise_BN = 2.0 * draws.uniform(side * side) - 1.0
    clouds = torch.zeros(len(noise_BN), side, side)
    step, amplitude, used = side, 1.0, 0
    while step >= 2:
        half, across = step // 2, side // step

        def displaced(total: Tensor, part: int, start: int = used, num: int = across, by: float = amplitude) -> Tensor:
            first = start + part * num * num
            return total / 4 + by * noise_BN[:, first : first + num * num].view(-1, num, num)

        corners = clouds[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        centres = displaced(pairs + pairs.roll(-1, 2), 0)
        clouds[:, half::step, half::step] = centres
        beside = corners + corners.roll(-1, 2) + centres + centres.roll(1, 1)
        below = corners + corners.roll(-1, 1) + centres + centres.roll(1, 2)
        clouds[:, ::step, half::step], clouds[:, half::step, ::step] = displaced(beside, 1), displaced(below, 2)
        step, amplitude, used = half, amplitude / decay**2, used + 3 * across * across
    low_B11, high_B11 = clouds.amin((1, 2), keepdim=True), clouds.amax((1, 2), keepdim=True)
    return ((clouds - low_B11) / (high_B11 - low_B11))[:, None, : size[0], : size[1]]


def brightness(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Adds to the value of hue, saturation and value, which is the largest channel."""
    images = to_unit_float(images_BCHW)
    value = images.amax(1, keepdim=True)
    brighter = (value + strength.values[0]).clamp(max=1.0)
    # Hue and saturation are ratios of channels, which a common factor keeps; black has none and becomes grey.
    return torch.where(value > 0, images * (brighter / torch.where(value > 0, value, 1.0)), brighter)


def contrast(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Nearer to the mean m of each channel: m + s (x - m)."""
    # A sum of whole numbers is the same in any order.
    num_pixels = images_BCHW.shape[2] * images_BCHW.shape[3]
    mean = images_BCHW.sum((2, 3), keepdim=True, dtype=torch.int64).float() / (num_pixels * MAX_PIXEL)
    return (to_unit_float(images_BCHW) - mean) * strength.values[0] + mean


def pixelate(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Shrunk to a share of the side by box filters, and enlarged again."""
    height, width = images_BCHW.shape[2:]
    coarse = (max(1, int(width * strength.values[0])), max(1, int(height * strength.values[0])))

    def change(picture: Image.Image) -> Image.Image:
        small = picture.resize(coarse, Image.Resampling.BOX)
        return small.resize((width, height), Image.Resampling.BOX)

    return _each_picture(images_BCHW, change)


def jpeg(images_BCHW: Tensor, strength: Strength, draws: CorruptionDraws) -> Tensor:
    """Written as JPEG of a quality, and read again."""

    def change(picture: Image.Image) -> Image.Image:
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=int(strength.values[0]))
        return Image.open(stream)

    return _each_picture(images_BCHW, change)


def _each_picture(images_BCHW: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """What Pillow makes of each picture; one of one channel is grey."""
    shape, is_grey = images_BCHW.shape, images_BCHW.shape[1] == 1
    pixels = images_BCHW[:, 0] if is_grey else images_BCHW.permute(0, 2, 3, 1)
    changed = np.stack([np.asarray(change(Image.fromarray(each.numpy()))) for each in pixels.contiguous()])
    found = torch.from_numpy(changed)
    return (found[:, None] if is_grey else found.permute(0, 3, 1, 2)).reshape(shape)


# In the order of hendrycks2019's tables.
CATALOGUE: Mapping[str, Corruption] = {
    "gaussian noise": Corruption(
        "normal noise on every value",
        gaussian_noise,
        small=(0.04, 0.06, 0.08, 0.09, 0.10),
        large=(0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    "defocus blur": Corruption(
        "out of focus: the mean over a disc",
        defocus_blur,
        small=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        large=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    "fog": Corruption(
        "clouds in front of the scene",
        fog,
        small=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        large=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    "brightness": Corruption(
        "brighter daylight", brightness, small=(0.05, 0.1, 0.15, 0.2, 0.3), large=(0.1, 0.2, 0.3, 0.4, 0.5)
    ),
    "contrast": Corruption(
        "nearer to the mean", contrast, small=(0.75, 0.5, 0.4, 0.3, 0.15), large=(0.4, 0.3, 0.2, 0.1, 0.05)
    ),
    "pixelate": Corruption(
        "coarse pixels", pixelate, small=(0.95, 0.9, 0.85, 0.75, 0.65), large=(0.6, 0.5, 0.4, 0.3, 0.25)
    ),
    "jpeg": Corruption("JPEG of low quality", jpeg, small=(80, 65, 58, 50, 40), large=(25, 18, 15, 10, 7)),
}
