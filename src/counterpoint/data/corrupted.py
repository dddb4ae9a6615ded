"""Pictures under a corruption: the same bits whatever batch, thread or process a picture is corrupted in."""

# B images, C channels, H height, W width

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.array_layout import COLOUR_CHANNELS, to_bytes
from counterpoint.core.catalogues import loaded
from counterpoint.core.errors import DataError, UsageError, unknown_name
from counterpoint.data.corruptions.corruption import Corruption, CorruptionDraws
from counterpoint.data.stores import Store

# In the order of hendrycks2019's tables.
KINDS = ("noise", "blur", "weather", "digital")
CORRUPTIONS: Mapping[str, Corruption] = dict(
    sorted(
        (item for entries in loaded("data/corruptions", "CATALOGUE") for item in entries.items()),
        key=lambda item: KINDS.index(item[1].kind),
    )
)
ALL = "all"
SEVERITIES = (1, 2, 3, 4, 5)
LEAST_SIDE = 8
CHUNK = 1 << 22  # values worked on at once, which bounds the memory that random numbers take


def corrupt(images_BCHW: Tensor, name: str, severity: int, *, ids_B: Tensor, seed: int = 0) -> Tensor:
    """Corrupt pictures; each picture's result is a pure function of (picture, name, severity, seed, id).

    The severities of a picture share their random numbers. Strengths are the published ones for sides of 32
    (CIFAR-10-C) and 224 (ImageNet-C); for others those of the nearer side, with lengths in pixels scaled.

    Source: hendrycks2019, section 3.1; differences are stated at each corruption.

    Args:
        images_BCHW: uint8, 1 or 3 channels, sides >= 8.
        name: of ``CORRUPTIONS``.
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
    if name not in CORRUPTIONS:
        raise unknown_name("corruption", name, CORRUPTIONS)
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be between 1 and 5, got {severity}")
    check_pictures(images_BCHW)
    corruption = CORRUPTIONS[name]
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
        names: of corruptions, also with a hyphen for a blank, or of their kinds; ``all`` for all of them.

    Raises:
        UsageError: a name that is not known.

    >>> chosen_corruptions(["noise", "zoom-blur"])
    ('gaussian noise', 'shot noise', 'impulse noise', 'zoom blur')
    """
    asked = {name.replace("-", " ") for name in names}
    for name in sorted(asked - CORRUPTIONS.keys() - {ALL, *KINDS}):
        raise unknown_name("corruption", name, (ALL, *KINDS, *CORRUPTIONS))
    return tuple(name for name, each in CORRUPTIONS.items() if asked & {name, each.kind, ALL})


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
    """The pictures of another store, whose positions are their ids, under a corruption; nothing is kept."""

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
