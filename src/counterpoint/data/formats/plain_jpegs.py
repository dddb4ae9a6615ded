"""Plain JPEG files by simplejpeg (extra `vision`): Pillow's pixels, sooner.

At 32 px Pillow takes 77 us, most of it Python, and simplejpeg 14; at 256 px 368 and 253, at 512 px 1,265 and 957 (EPYC,
`python benchmarks/photographs.py --decoders`). What is not plain is left to Pillow, and so is what the decoder refuses:
reasons are Pillow's everywhere.
"""

from collections.abc import Callable
from functools import cache
from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image

MOST_PIXELS = 1 << 20  # larger ones are counted, see ``image_files.Room``, and take Pillow's decoder as long
START = b"\xff\xd8\xff"
FRAME = 0xC0  # baseline, Huffman-coded
QUANTISATION, TABLE_BYTES = 0xDB, 65  # tables of 8 bits, each with its number
# Markers that may stand before it: JFIF's, quantisation, Huffman tables, restart interval, comment. Exif turns a
# picture, and Adobe's marker changes its colours.
PASSED = frozenset({0xE0, QUANTISATION, 0xC4, 0xDD, 0xFE})
BITS, THREE_COLOURS = 8, 3

Pixels = npt.NDArray[np.uint8]  # (height, width, 3)


def plain_size(content: bytes) -> tuple[int, int] | None:
    """Height and width of a baseline JPEG of three colours, whose header Pillow takes as it is; None for other files.

    Args:
        content: the file, or its first bytes.
    """
    place = 2
    while content.startswith(START) and place + 10 <= len(content) and content[place] == 0xFF:
        marker, body = content[place + 1], place + 4
        size = int.from_bytes(content[place + 2 : body], "big") - 2
        if marker == FRAME:
            height, width = (int.from_bytes(content[at : at + 2], "big") for at in (body + 1, body + 3))
            is_plain = content[body] == BITS and content[body + 5] == THREE_COLOURS and height * width > 0
            return (height, width) if is_plain else None
        if marker not in PASSED or (marker == QUANTISATION and size % TABLE_BYTES):
            return None
        place = body + size
    return None


def decode_plain(content: bytes) -> Pixels | None:
    """The pixels of a plain JPEG that is not large; None for other files, or without simplejpeg."""
    size, decoder = plain_size(content), _decoder()
    if decoder is None or size is None or size[0] * size[1] > MOST_PIXELS:
        return None
    try:
        return decoder(content)
    except ValueError:
        return None


@cache
def _decoder() -> Callable[[bytes], Pixels] | None:
    """The decoder, unless it gives other pixels than Pillow: both are built with a libjpeg of their own."""
    try:
        from simplejpeg import decode_jpeg  # deferred: the extra `vision` may be absent
    except ImportError:
        return None
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 28, 3), dtype=np.uint8))
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        stream = BytesIO()
        noise.save(stream, "JPEG", quality=90, subsampling=subsampling)
        with Image.open(stream) as picture:
            if not np.array_equal(decode_jpeg(stream.getvalue()), np.asarray(picture)):
                return None
    return decode_jpeg
