"""What decoding a picture takes in memory, told from its header, and room for so many bytes that threads share."""

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image

MAX_PIXELS = 89_478_485  # Pillow's own limit for a decompression bomb, here an error instead of a warning
MAX_ENCODED_BYTES = 128 << 20
MAX_DECODED_BYTES = 360 << 20  # MAX_PIXELS of a colour picture; with MAX_ENCODED_BYTES below 512 MB
UNCOUNTED_BYTES = 1 << 20  # smaller pictures are not counted: a lock for each would take as long as they do
LARGE_BYTES = 64 << 20  # freed pieces of such a size go back to the system: the next thread has a heap of its own
# Bytes per pixel as Pillow holds them: four of every mode that is not listed.
MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
COLOUR_BYTES = 4
WEBP_BYTES = 12  # libwebp's own canvas, and two copies on the way to Pillow
COEFFICIENT_BYTES = 2  # of each colour, where a JPEG's pixels are spread over several scans
MOST_BYTES = 24  # per pixel, of any format
ROW_BYTES = 16  # a pointer to each row, of a picture and its copy


class Room:
    """Bytes that threads may hold together; who wants more than is left waits.

    Args:
        size: how many there are.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._left = size
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
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
                _give_back_freed()
            with self._changed:
                self._left += size
                self._changed.notify_all()


def is_small(image: Image.Image) -> bool:
    """Whether a picture takes too few bytes to be counted, whatever its format."""
    return image.width * image.height * MOST_BYTES + ROW_BYTES * (image.width + image.height) < UNCOUNTED_BYTES


def decoded_bytes(image: Image.Image, *, is_turned: bool) -> int:
    """Bytes that decoding an opened picture to upright RGB holds at worst, measured for each format.

    Args:
        image: its header was read; its pixels need not be.
        is_turned: it is stored in another orientation, which takes a copy.
    """
    own = MODE_BYTES.get(image.mode, COLOUR_BYTES)
    loading = own + _coder_bytes(image)
    turning = 2 * own if is_turned else 0
    is_rgb = image.mode == "RGB" and "transparency" not in image.info and image.format != "WEBP"
    converting = 0 if is_rgb else own + COLOUR_BYTES + (WEBP_BYTES if image.format == "WEBP" else 0)
    num_pixels = image.width * image.height
    return num_pixels * max(loading, turning, converting) + ROW_BYTES * (image.width + image.height)


def _give_back_freed() -> None:
    """Ask glibc to return freed memory, which the command line otherwise keeps (``cli.main``)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _coder_bytes(image: Image.Image) -> int:
    """Bytes per pixel that a decoder holds beside the picture."""
    if image.format == "WEBP":
        return WEBP_BYTES
    if image.format != "JPEG" or _is_single_scan(image):
        return 0
    return COEFFICIENT_BYTES * len(image.getbands())


def _is_single_scan(image: Image.Image) -> bool:
    """Whether a JPEG's first scan has all colours whole, so that libjpeg need not keep its coefficients."""
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
