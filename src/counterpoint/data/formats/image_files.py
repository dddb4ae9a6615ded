"""Image files in any common format to square RGB tensors; nothing damaged passes as data."""

import io
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from counterpoint.core.errors import first_line

Item = TypeVar("Item")
Result = TypeVar("Result")
Encoded = Path | bytes  # an image file, or what it holds

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")  # readers tried, by the file's content
MAX_PIXELS = 89_478_485  # Pillow's own limit for a decompression bomb, here an error instead of a warning
MAP_SIZE = 64  # items per call of a thread: handing over one takes as long as decoding a small image
MAP_PARTS = 64  # calls waiting at once: one per file would take a gigabyte for a million
EXIF_ORIENTATION = 0x0112
PILLOW_ERRORS = (OSError, SyntaxError, EOFError, IndexError, KeyError, TypeError, Image.DecompressionBombError)
SIXTEEN_BIT_MODES = ("I;16", "I;16B", "I;16L", "I")


@dataclass(frozen=True)
class Skipped:
    """A file that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class ImageSize:
    """Height and width in pixels after the EXIF rotation."""

    height: int
    width: int


def list_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """List a folder's files at any depth, sorted: those with an image suffix, and the others.

    Hidden files and folders are passed over; links to folders are not followed.
    """
    images: list[Path] = []
    others: list[Path] = []
    for directory, folders, files in os.walk(folder):
        # In place: os.walk goes on with what this list then holds.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = [Path(directory) / name for name in files if not name.startswith(".")]
        images += [path for path in paths if path.suffix.lower() in SUFFIXES]
        others += [path for path in paths if path.suffix.lower() not in SUFFIXES]
    # The order in which a file system lists files is its own; samples must be numbered alike everywhere.
    return sorted(images), sorted(others)


def decode(encoded: Encoded) -> Image.Image:
    """Decode a whole image to RGB, upright.

    Grey, palette, CMYK and 16-bit images are converted; transparent pixels become white; of an
    animation the first frame is taken.

    Raises:
        ValueError: not an image, truncated, damaged or too large; the text is the reason.
    """
    try:
        with Image.open(_stream(encoded), formats=FORMATS) as image:
            # Pillow only warns between its limit and twice that, and raises above.
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"larger than {MAX_PIXELS:,} pixels")
            # Opening reads the header alone; damage among the pixels shows here.
            image.load()
            return _to_rgb(ImageOps.exif_transpose(image))
    except UnidentifiedImageError:
        raise ValueError("not an image") from None
    except Image.DecompressionBombError:
        raise ValueError(f"larger than {MAX_PIXELS:,} pixels") from None
    except PILLOW_ERRORS as error:
        raise ValueError(first_line(error)) from None


def decode_square(encoded: Encoded, side: int) -> Tensor:
    """Decode, centre-crop to a square and resize; uint8 (3, side, side)."""
    return to_square(decode(encoded), side)


def to_square(image: Image.Image, side: int) -> Tensor:
    """Centre-crop an RGB image to a square and resize; uint8 (3, side, side)."""
    is_fitting = image.size == (side, side)
    fitted = image if is_fitting else ImageOps.fit(image, (side, side), method=Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(fitted)).permute(2, 0, 1).contiguous()


def read_size(encoded: Encoded) -> ImageSize | None:
    """Size from an image's header, or None when even that cannot be read."""
    try:
        with Image.open(_stream(encoded), formats=FORMATS) as image:
            is_turned = image.getexif().get(EXIF_ORIENTATION, 1) > 4  # orientations 5 to 8 swap the sides
            return ImageSize(image.width, image.height) if is_turned else ImageSize(image.height, image.width)
    except (*PILLOW_ERRORS, ValueError):
        return None


def map_files(function: Callable[[Item], Result], items: Iterable[Item], advance: Callable[[], None]) -> list[Result]:
    """Apply a function to many files in threads (Pillow decodes outside the interpreter's lock), in order."""

    def apply(part: list[Item]) -> list[Result]:
        results = []
        for item in part:
            results.append(function(item))
            advance()
        return results

    results: list[Result] = []
    remaining = iter(items)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        while waiting := [part for _ in range(MAP_PARTS) if (part := list(islice(remaining, MAP_SIZE)))]:
            for done in pool.map(apply, waiting):
                results += done
    return results


def _stream(encoded: Encoded) -> Path | io.BytesIO:
    """What Pillow opens."""
    return io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded


def _to_rgb(image: Image.Image) -> Image.Image:
    """Convert any mode to RGB."""
    if image.mode in SIXTEEN_BIT_MODES:
        # Pillow's own conversion cuts 16-bit levels at 255 instead of scaling them: 257 = 65535 / 255.
        values = np.asarray(image).astype(np.float64)
        return Image.fromarray((values / 257.0).round().clip(0, 255).astype(np.uint8)).convert("RGB")
    # A palette image has its transparent entry in ``info``, not in its mode.
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        paper = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(paper, rgba).convert("RGB")
    return image.convert("RGB")
