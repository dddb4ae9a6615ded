"""A folder of drawn photographs in two classes, and faults that are put into it by name."""

import io
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

SIDE = 96


def scene(rng: np.random.Generator, side: int = SIDE) -> Image.Image:
    """A picture with structure at all scales, as photographs have it: noise whose amplitude falls as 1 / frequency."""
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(side), np.fft.fftfreq(side)))
    frequency[0, 0] = 1.0
    pixels = np.empty((side, side, 3))
    shared = rng.normal(size=(side, side))
    for channel in range(3):
        noise = 0.8 * shared + 0.6 * rng.normal(size=(side, side))
        field = np.fft.ifft2(np.fft.fft2(noise) / frequency**1.2).real
        pixels[..., channel] = rng.uniform(90, 160) + 45 * field / field.std()
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def save_clean(folder: Path, rng: np.random.Generator, num_each: int = 30, *, quality: int = 92) -> list[Path]:
    """Pictures in two classes, ``cats`` and ``dogs``, that differ in nothing; returns their files."""
    files = []
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for number in range(num_each):
            file = folder / name / f"IMG ({number:03}).jpg"
            scene(rng).save(file, quality=quality)
            files.append(file)
    return files


def recompressed(image: Image.Image, quality: int) -> Image.Image:
    """The picture after a pass through JPEG."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream).convert("RGB")


def cropped(image: Image.Image, share: float) -> Image.Image:
    """Its middle."""
    width, height = image.size
    left, top = round(width * (1 - share) / 2), round(height * (1 - share) / 2)
    return image.crop((left, top, width - left, height - top))


def plant(files: list[Path], rng: np.random.Generator) -> Mapping[str, tuple[str, ...]]:
    """Put one fault of each kind among clean files; returns the names that each check must tell."""
    cats, dogs = files[0].parent, files[-1].parent
    images = [Image.open(file).convert("RGB") for file in files[:6]]
    shutil.copy(files[0], cats / "copy.jpg")
    recompressed(images[1], 40).save(cats / "recompressed.jpg")
    images[2].resize((48, 48)).save(cats / "smaller.png")
    cropped(ImageEnhance.Brightness(images[3]).enhance(0.85), 0.93).save(cats / "cropped.png")
    shutil.copy(files[4], dogs / "other label.jpg")
    Image.new("RGB", (SIDE, SIDE), (90, 10, 10)).save(dogs / "constant.png")
    (dogs / "truncated.jpg").write_bytes(files[5].read_bytes()[:700])
    (dogs / "text.jpg").write_text("no picture", encoding="utf-8")
    Image.merge("RGBA", (*scene(rng).split(), Image.new("L", (SIDE, SIDE), 200))).save(dogs / "alpha.png")
    Image.fromarray(rng.integers(0, 65535, (SIDE, SIDE), dtype=np.uint16)).save(dogs / "deep.png")
    scene(rng).convert("CMYK").save(dogs / "print.jpg")
    scene(rng).save(dogs / "moving.gif", save_all=True, append_images=[scene(rng)])
    return {
        "same-pixels": ("cats/copy.jpg", "dogs/other label.jpg"),
        "near-copies": ("cats/recompressed.jpg", "cats/smaller.png", "cats/cropped.png"),
        "label-conflict": ("dogs/other label.jpg",),
        "blank": ("dogs/constant.png",),
        "noise": ("dogs/deep.png",),
        "unreadable": ("dogs/truncated.jpg", "dogs/text.jpg"),
    }
