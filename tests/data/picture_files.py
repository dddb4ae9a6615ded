"""Folders of pictures as people have them: mixed sizes and formats, and some that are no pictures."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

EXIF_ORIENTATION = 0x0112


def noise(rng: np.random.Generator, height: int, width: int, channels: int = 3) -> np.ndarray:
    """Pixels of a picture without two equal neighbours."""
    shape = (height, width, channels) if channels > 1 else (height, width)
    return rng.integers(0, 256, shape, dtype=np.uint8)


def encoded(image: Image.Image | np.ndarray, form: str, **options: object) -> bytes:
    """A picture, or the pixels of one, as a file has it."""
    stream = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(stream, form, **options)
    return stream.getvalue()


def halves(height: int, width: int) -> Image.Image:
    """A picture that is red above and blue below: after a turn of 180 degrees one can tell."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, :, 0] = 255
    pixels[height // 2 :, :, 2] = 255
    return Image.fromarray(pixels)


def save_plain(folder: Path, names: list[str], rng: np.random.Generator, *, side: int = 16) -> None:
    """One small RGB picture per name; the folders of a name are made."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(rng, side, side)).save(path)


def save_turned(path: Path, orientation: int, upright: Image.Image) -> None:
    """A JPEG whose pixels are turned and whose EXIF tag says how to turn them back."""
    undo = {1: None, 3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
    transpose = undo[orientation]
    stored = upright if transpose is None else upright.transpose(transpose)
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    stored.save(path, exif=exif, quality=95)


def save_mixed(folder: Path, rng: np.random.Generator) -> dict[str, str]:
    """Good pictures in every format and mode, in nested folders; returns what each is."""
    (folder / "a" / "deep").mkdir(parents=True)
    (folder / "b").mkdir()
    Image.fromarray(noise(rng, 40, 60)).save(folder / "a" / "rgb.jpg")
    Image.fromarray(noise(rng, 33, 20, 1)).save(folder / "a" / "grey.png")
    palette = Image.fromarray(noise(rng, 24, 24)).quantize(16)
    palette.info["transparency"] = 3
    palette.save(folder / "a" / "deep" / "palette.png", transparency=3)
    Image.fromarray(noise(rng, 30, 50, 4), "CMYK").save(folder / "a" / "cmyk.jpg")
    deep = rng.integers(0, 65536, (20, 28), dtype=np.uint16)
    Image.fromarray(deep).save(folder / "b" / "sixteen.png")
    Image.fromarray(noise(rng, 64, 18)).save(folder / "b" / "picture.webp")
    Image.fromarray(noise(rng, 22, 22)).quantize(8).save(folder / "b" / "moving.gif")
    Image.fromarray(noise(rng, 25, 25, 4), "RGBA").save(folder / "b" / "CAPITALS.PNG")
    save_turned(folder / "b" / "turned.jpg", 6, halves(48, 32))
    return {
        "a/rgb.jpg": "RGB", "a/grey.png": "L", "a/deep/palette.png": "P", "a/cmyk.jpg": "CMYK", "b/sixteen.png": "I;16",
        "b/picture.webp": "RGB", "b/moving.gif": "P", "b/CAPITALS.PNG": "RGBA", "b/turned.jpg": "RGB",
    }  # fmt: skip


def save_bad(folder: Path, rng: np.random.Generator) -> dict[str, str]:
    """A truncated JPEG and a text that calls itself one; returns a part of the reason each is refused for."""
    whole = folder / "whole.jpg"
    Image.fromarray(noise(rng, 64, 64)).save(whole)
    (folder / "truncated.jpg").write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    whole.unlink()
    (folder / "text.jpg").write_text("not a picture", encoding="utf-8")
    return {"truncated.jpg": "truncated", "text.jpg": "not an image"}
