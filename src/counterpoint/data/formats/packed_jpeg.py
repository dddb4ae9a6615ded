"""Images packed into one ``.npz``: all encoded files end to end (``jpeg``), where each begins (``offsets``), labels.

Image i is ``jpeg[offsets[i]:offsets[i + 1]]``, in any format that image files may have.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from counterpoint.core.errors import DataError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.image_files import read_size
from counterpoint.data.formats.indexed_images import Listing, open_listing
from counterpoint.data.formats.label_files import Labels
from counterpoint.data.formats.located import Located
from counterpoint.data.formats.npz_files import holds_objects, npz_keys, read_npz
from counterpoint.data.source import Progress, Source

KEYS = ("jpeg", "offsets")
SIDES = range(8, 1025)  # what source.image_size can be


def is_packed(keys: Collection[str]) -> bool:
    """Whether an archive with these arrays is of this form."""
    return set(KEYS) <= set(keys)


@dataclass(frozen=True)
class PackReader:
    """Gets an image's bytes from the pack in memory.

    Attributes:
        content: all encoded images end to end.
    """

    content: np.ndarray = field(repr=False)

    def __call__(self, image: Located) -> bytes:
        """See ``located.Read``."""
        assert image.size is not None
        return self.content[image.offset : image.offset + image.size].tobytes()


def open_packed(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a pack; its images are dealt with as those of a folder are.

    Images that are all square and of one size keep it unless ``settings.image_size`` asks for another one; others are
    brought to a common size as photographs in a folder are.

    Raises:
        DataError: damaged; offsets that do not rise from 0 to the pack's length; labels that do not fit; or more bad
            images than allowed.
    """
    arrays = read_npz(path, (*KEYS, "labels"))
    content, offsets = arrays["jpeg"], arrays["offsets"]
    if content.dtype != np.uint8 or content.ndim != 1:
        raise DataError(f"{path}: jpeg must be bytes in one row, got {content.dtype} of shape {content.shape}")
    _check_offsets(path, offsets, len(content))
    numbers = _class_numbers(path, arrays.get("labels"), len(offsets) - 1)
    images = [
        Located(str(number), path, start, stop - start, None if numbers is None else str(numbers[number]))
        for number, (start, stop) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    ]
    reader = PackReader(content)
    names = _class_names(path, numbers)

    def rule(good: Sequence[Located]) -> Labels | None:
        known = [int(image.label) for image in good if image.label is not None]
        return Labels(torch.tensor(known, dtype=torch.int64), names) if known else None

    asked = settings
    if settings.image_size == "auto" and (side := _common_side(images, reader)):
        asked = settings.model_copy(update={"image_size": side})
    return open_listing(str(path), Listing(images, read=reader, label=rule), asked, progress)


def _check_offsets(path: Path, offsets: np.ndarray, num_bytes: int) -> None:
    """Every image must have bytes of its own, and every byte an image."""
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) < 2:
        raise DataError(
            f"{path}: offsets must be at least two whole numbers, got {offsets.dtype} of shape {offsets.shape}"
        )
    if int(offsets[0]) != 0 or int(offsets[-1]) != num_bytes:
        raise DataError(f"{path}: offsets must run from 0 to {num_bytes}, got {offsets[0]} to {offsets[-1]}")
    falls = (offsets[1:] <= offsets[:-1]).nonzero()[0]
    if len(falls):
        raise DataError(
            f"{path}: offsets must rise, but image {falls[0]} runs from {offsets[falls[0]]} to {offsets[falls[0] + 1]}"
        )


def _class_numbers(path: Path, labels: np.ndarray | None, num_images: int) -> np.ndarray | None:
    """One whole number per image, -1 where unknown."""
    if labels is None:
        return None
    if labels.dtype.kind not in "iu" or labels.shape != (num_images,):
        raise DataError(
            f"{path}: labels must be {num_images} whole numbers, got {labels.dtype} of shape {labels.shape}"
        )
    if int(labels.min()) < -1:
        raise DataError(f"{path}: labels must be -1 (unknown) or more, got {labels.min()}")
    return labels


def _class_names(path: Path, numbers: np.ndarray | None) -> tuple[str, ...]:
    """Names of all classes; their numbers where the file has no names that can be read without unpickling."""
    num_classes = 0 if numbers is None else int(numbers.max()) + 1
    if "class_names" not in npz_keys(path) or holds_objects(path, "class_names"):
        return tuple(str(number) for number in range(num_classes))
    names = read_npz(path, ["class_names"])["class_names"]
    if names.dtype.kind != "U" or names.ndim != 1 or len(names) < num_classes:
        raise DataError(
            f"{path}: class_names must be {num_classes} or more texts, got {names.dtype} of shape {names.shape}"
        )
    return tuple(str(name) for name in names)


def _common_side(images: Sequence[Located], reader: PackReader) -> int | None:
    """The side of all images, if they are square and equal."""
    sizes = (read_size(reader(image)) for image in images)
    known = (size for size in sizes if size is not None)
    first = next(known, None)
    if first is None or first.height != first.width or first.height not in SIDES:
        return None
    return first.height if all(size == first for size in known) else None
