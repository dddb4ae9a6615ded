"""JPEG files by simplejpeg: what Pillow gives, for sound files and damaged ones."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from counterpoint.data.formats import plain_jpegs
from counterpoint.data.formats.image_files import ImageSize, decode, decode_square, read_size, to_square
from counterpoint.data.formats.plain_jpegs import decode_plain, plain_size
from data.picture_files import EXIF_ORIENTATION, encoded, noise

simplejpeg = pytest.importorskip("simplejpeg", reason="simplejpeg (extra `vision`) is not installed")


@pytest.fixture(autouse=True)
def decoder_forgotten() -> Iterator[None]:
    plain_jpegs._decoder.cache_clear()
    yield
    plain_jpegs._decoder.cache_clear()


def picture(height: int, width: int, mode: str = "RGB") -> Image.Image:
    return Image.fromarray(noise(np.random.default_rng(height), height, width)).convert(mode)


written = partial(encoded, form="JPEG")


def turned() -> bytes:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = 6
    return written(picture(20, 30), exif=exif)


PLAIN = [
    written(picture(32, 32)),
    written(picture(7, 250), quality=40, subsampling="4:4:4"),
    written(picture(64, 48), quality=95, subsampling="4:2:2", comment=b"a comment"),
    written(picture(1, 1), optimize=True, restart_marker_blocks=1),
]
OTHERS = [
    written(picture(32, 32), progressive=True),
    written(picture(32, 32, "L")),
    written(picture(32, 32, "CMYK")),
    written(picture(1030, 1020)),
    written(picture(20, 30), icc_profile=b"profile"),
    turned(),
]


def by_pillow(content: bytes, side: int) -> torch.Tensor:
    return decode(content, lambda image: to_square(image, side), lambda _: None)


@pytest.mark.parametrize("content", [*PLAIN, *OTHERS])
def test_pixels_and_sizes_are_those_of_pillow(content: bytes) -> None:
    assert (decode_plain(content) is not None) == (content in PLAIN)
    for side in (8, 32):
        assert torch.equal(decode_square(content, side), by_pillow(content, side))
    assert read_size(content) == decode(content, lambda image: ImageSize(image.height, image.width), lambda _: None)


def test_damage_is_what_it_is_to_pillow() -> None:
    draw = random.Random(0)

    def outcome(read: Callable[[bytes, int], torch.Tensor], content: bytes) -> Any:
        try:
            return read(content, 16).tolist()
        except ValueError as error:
            return str(error)

    for _ in range(1500):
        content = bytearray(draw.choice(PLAIN))
        place = draw.randrange(len(content))
        match draw.randrange(3):
            case 0:
                del content[place:]
            case 1:
                del content[place : place + draw.randrange(1, 20)]
            case _:
                content[place] = draw.randrange(256)
        assert outcome(decode_square, bytes(content)) == outcome(by_pillow, bytes(content)), content.hex()


def test_a_decoder_that_gives_other_pixels_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    right = simplejpeg.decode_jpeg
    monkeypatch.setattr(simplejpeg, "decode_jpeg", lambda content: right(content) ^ 1)
    assert plain_size(PLAIN[0]) == (32, 32)
    assert decode_plain(PLAIN[0]) is None
