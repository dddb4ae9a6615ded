"""Decode image files in any common format to square RGB tensors; nothing damaged passes as data.

The memory that decoding a picture needs is known from its header, and threads share room for a number of bytes.
"""

import io
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from counterpoint.core.errors import first_line
from counterpoint.core.process_setup import give_back_memory
from counterpoint.core.user_files import Address, open_regular
from counterpoint.data.formats.plain_jpegs import Pixels, decode_plain, plain_size

Item = TypeVar("Item")
Result = TypeVar("Result")

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")  # readers tried, by the file's content
TILE_PIXELS = 1 << 20
MAX_PIXELS = 89_478_485  # Pillow's own limit for a decompression bomb, here an error instead of a warning
MAX_ENCODED_BYTES = 128 << 20
MAX_DECODED_BYTES = 360 << 20  # MAX_PIXELS of a colour picture; with MAX_ENCODED_BYTES below 512 MB
UNCOUNTED_BYTES = 1 << 20  # smaller pictures are not counted: a lock for each would take as long as they do
LARGE_BYTES = 64 << 20  # freed pieces of such a size go back to the system: the next thread has a heap of its own
# Bytes per pixel as Pillow holds them: four of every mode that is not listed.
MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
COLOUR_BYTES = 4
WEBP_BYTES = 12  # libwebp's own canvas, and two copies on the way to Pillow
COEFFICIENT_BYTES = 2  # of each colour, if a JPEG's pixels are spread over several scans
MOST_BYTES = 24  # per pixel, of any format
ROW_BYTES = 16  # a pointer to each row, of a picture and its copy
# Items per call of a thread: handing over one takes as long as decoding a small image, and a kilobyte while it waits.
MAP_SIZE = 64
# Bytes of a file below which two threads read fewer pictures a second than one, as they wait for Python's lock: 0.6 to
# 0.8 times as many of 32 and 64 px (0.3 and 1.5 kB, on a local disk); of 128 px (5 kB) 1.5 times as many.
FOR_THREADS = 3_000
EXIF_ORIENTATION = 0x0112
CUBIC = Image.Resampling.BICUBIC
PILLOW_ERRORS = (  # with damaged headers
    OSError,
    SyntaxError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
    struct.error,
    Image.DecompressionBombError,
)
SIXTEEN_BIT_MODES = ("I;16", "I;16B", "I;16L", "I")


class Room:
    """Bytes that threads may hold together; a thread that wants more than is left waits.

    Args:
        size: number of bytes.
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._changed = threading.Condition()

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Hold some bytes, at most all there are."""
        if size < UNCOUNTED_BYTES:
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: size <= self._left)
            self._left -= size
        try:
            yield
        finally:
            if size >= LARGE_BYTES:
                give_back_memory()
            with self._changed:
                self._left += size
                self._changed.notify_all()


# What this process holds at once of pictures in files, and of pictures that it decodes.
ENCODED, DECODED = Room(MAX_ENCODED_BYTES), Room(MAX_DECODED_BYTES)


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
    for path, is_image in _files(folder):
        (images if is_image else others).append(path)
    if isinstance(folder, Address):
        return images, others
    # The order in which a file system lists files is its own; samples must be numbered alike everywhere. Paths compare
    # by their parts, whose comparison takes a fifth of the time.
    return sorted(images, key=attrgetter("parts")), sorted(others, key=attrgetter("parts"))


def has_images(folder: Path) -> bool:
    """Tell whether ``list_files`` finds an image; the walk ends at the first one."""
    return any(is_image for _, is_image in _files(folder))


def _files(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Yield files at any depth, and tell whether they have an image suffix."""
    if isinstance(folder, Address):
        yield from ((path, path.suffix.lower() in SUFFIXES) for path in folder.files)
        return
    for directory, folders, files in os.walk(folder):
        # In place: os.walk continues with what this list then holds.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        base = Path(directory)
        for name in files:
            if not name.startswith("."):
                yield base / name, os.path.splitext(name)[1].lower() in SUFFIXES


def decode(
    content: bytes, use: Callable[[Image.Image], Result], before: Callable[[Image.Image], object] | None = None
) -> Result:
    """Decode a whole image file to RGB, upright, and return what ``use`` makes of it.

    Grey, palette, CMYK and 16-bit images are converted; transparent pixels become white; of an
    animation the first frame is taken.

    Args:
        content: bytes of the file.
        use: function of the picture.
        before: function of the opened image, before its pixels are decoded; may ask the decoder for a smaller one.

    Raises:
        ValueError: not an image, truncated, damaged or too large; the text is the reason.
    """
    if before is None and (plain := decode_plain(content)) is not None:
        return use(Image.fromarray(plain))
    with _one_reason():
        image = Image.open(io.BytesIO(content), formats=FORMATS)
        # Pillow only warns between its limit and twice that, and raises above.
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"larger than {MAX_PIXELS:,} pixels")
        is_hidden = _is_turn_hidden(image)
        num_bytes = _check_bytes(image, is_turned=not is_hidden and orientation(image) > 1)
        if is_hidden and num_bytes:
            num_bytes = min(decoded_bytes(image, is_turned=True), MAX_DECODED_BYTES)
        if before is not None:
            before(image)
    with DECODED.reserved(num_bytes), closing(image):  # pixels go before the room for them is another's
        with _one_reason():
            # Opening reads the header alone; damage among the pixels shows here.
            image.load()
            if image.format == "PNG":  # only now is an orientation known that lies behind the pixels
                _check_bytes(image, is_turned=orientation(image) > 1)
            ImageOps.exif_transpose(image, in_place=True)
            upright = _to_rgb(image)
        return use(upright)


def decode_square(content: bytes, side: int) -> Tensor:
    """Decode, centre-crop to a square and resize; uint8 (3, side, side)."""
    plain = decode_plain(content)
    return decode(content, lambda image: to_square(image, side)) if plain is None else to_square(plain, side)


def to_square(picture: Image.Image | Pixels, side: int) -> Tensor:
    """Centre-crop an RGB picture to a square and resize, as ``nn.resizing`` defines it; uint8 (3, side, side)."""
    if isinstance(picture, np.ndarray) and picture.shape[:2] == (side, side):
        return torch.from_numpy(picture).permute(2, 0, 1).contiguous()
    image = Image.fromarray(picture) if isinstance(picture, np.ndarray) else picture
    if image.size != (side, side):
        square = min(image.size)
        left, top = (image.width - square) / 2, (image.height - square) / 2
        # Each axis separately: since Pillow 13 the order of the two depends on the shape, and so do the bits.
        image = image.resize((side, image.height), CUBIC, (left, 0, left + square, image.height))
        image = image.resize((side, side), CUBIC, (0, top, side, top + square))
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()


def read_size(encoded: Path | bytes) -> ImageSize | None:
    """Size from the header of an image file, or of what it holds, without decoding; None if that cannot be read."""
    try:
        with io.BufferedReader(io.BytesIO(encoded)) if isinstance(encoded, bytes) else open_regular(encoded) as stream:
            if plain := plain_size(stream.peek()):
                return ImageSize(*plain)
            with Image.open(stream, formats=FORMATS) as image:
                # Orientations 5 to 8 swap the sides.
                is_turned = not _is_turn_hidden(image) and orientation(image) > 4
                return ImageSize(image.width, image.height) if is_turned else ImageSize(image.height, image.width)
    except (*PILLOW_ERRORS, ValueError):
        return None


def map_files(
    function: Callable[[Item], Result], items: Sequence[Item], advance: Callable[[], None], num_bytes: float
) -> list[Result]:
    """Apply a function to many files, in order; in threads if that pays (Pillow decodes outside Python's lock).

    Args:
        function: function that reads one of them.
        items: arguments of the function.
        advance: function that is called after each.
        num_bytes: number of bytes that it reads of a file, on average.
    """

    def apply(part: Sequence[Item]) -> list[Result]:
        results = []
        for item in part:
            results.append(function(item))
            advance()
        return results

    parts = [items[first : first + MAP_SIZE] for first in range(0, len(items), MAP_SIZE)]
    if num_bytes < FOR_THREADS:
        return [result for part in parts for result in apply(part)]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return [result for done in pool.map(apply, parts) for result in done]


@contextmanager
def _one_reason() -> Iterator[None]:
    """Turn the errors of Pillow into a ValueError of one line."""
    try:
        yield
    except UnidentifiedImageError:
        raise ValueError("not an image") from None
    except Image.DecompressionBombError:
        raise ValueError(f"larger than {MAX_PIXELS:,} pixels") from None
    except PILLOW_ERRORS as error:
        raise ValueError(first_line(error)) from None


def orientation(image: Image.Image) -> int:
    """The orientation of an image by EXIF; 1 is upright."""
    value = image.getexif().get(EXIF_ORIENTATION, 1)
    return value if value in range(1, 9) else 1


def _is_turn_hidden(image: Image.Image) -> bool:
    """Tell whether only decoding shows the orientation: a PNG may have it behind its pixels."""
    return image.format == "PNG" and "exif" not in image.info


def _check_bytes(image: Image.Image, *, is_turned: bool) -> int:
    """Bytes that decoding takes, if they are not too many; 0 if they need not be counted."""
    # Too few bytes to be counted, whatever its format.
    if image.width * image.height * MOST_BYTES + ROW_BYTES * (image.width + image.height) < UNCOUNTED_BYTES:
        return 0
    needed = decoded_bytes(image, is_turned=is_turned)
    if needed > MAX_DECODED_BYTES:
        raise ValueError(
            f"{image.width} x {image.height} pixels take {needed >> 20} MB to decode, at most "
            f"{MAX_DECODED_BYTES >> 20} MB are given; make it smaller"
        )
    return needed


def _is_rgb(image: Image.Image) -> bool:
    """Tell whether a picture needs no conversion; a WebP's decoder keeps buffers as long as its image."""
    return image.mode == "RGB" and "transparency" not in image.info and image.format != "WEBP"


def _to_rgb(image: Image.Image) -> Image.Image:
    if _is_rgb(image):
        return image  # not a copy
    if image.width * image.height <= TILE_PIXELS:
        return _tile_to_rgb(image)
    # Piece by piece: on the way there are up to four copies.
    rgb = Image.new("RGB", image.size)
    width = min(image.width, TILE_PIXELS)
    height = TILE_PIXELS // width
    for top in range(0, image.height, height):
        for left in range(0, image.width, width):
            corner = (min(left + width, image.width), min(top + height, image.height))
            rgb.paste(_tile_to_rgb(image.crop((left, top, *corner))), (left, top))
    return rgb


def _tile_to_rgb(image: Image.Image) -> Image.Image:
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


def decoded_bytes(image: Image.Image, *, is_turned: bool) -> int:
    """Bytes that decoding an opened picture to upright RGB holds at worst, measured for each format.

    Args:
        image: a picture whose header was read; its pixels need not be.
        is_turned: true if it is stored in another orientation, which takes a copy.
    """
    own = MODE_BYTES.get(image.mode, COLOUR_BYTES)
    # What a decoder holds beside the picture.
    is_spread = image.format == "JPEG" and not _is_single_scan(image)
    coder = WEBP_BYTES if image.format == "WEBP" else COEFFICIENT_BYTES * len(image.getbands()) * is_spread
    turning = 2 * own if is_turned else 0
    converting = 0 if _is_rgb(image) else own + COLOUR_BYTES + (WEBP_BYTES if image.format == "WEBP" else 0)
    num_pixels = image.width * image.height
    return num_pixels * max(own + coder, turning, converting) + ROW_BYTES * (image.width + image.height)


def _is_single_scan(image: Image.Image) -> bool:
    """Tell whether a JPEG's first scan has all colours, so that libjpeg need not keep its coefficients."""
    num_colours = len(image.getbands())
    stream = getattr(image, "fp", None)
    if stream is None or "progressive" in image.info:
        return False
    # Pillow stops behind the header of the first scan: marker, length, number of colours, two bytes for each, three.
    length = 6 + 2 * num_colours
    place = stream.tell()
    stream.seek(max(0, place - length - 2))
    header = stream.read(5)
    stream.seek(place)
    return header == b"\xff\xda" + length.to_bytes(2, "big") + bytes([num_colours])
