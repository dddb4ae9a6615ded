"""Pictures as tests of the choice of views need them: pen strokes on paper, and clouds that pass for photographs."""

import io

import numpy as np
from PIL import Image, ImageDraw

PAPER, INK = 255, 10


def line_drawings(rng: np.random.Generator, count: int, side: int = 64) -> np.ndarray:
    """A circle and two strokes each, as RGB files with the noise of JPEG, (count, side, side, 3)."""
    pictures = []
    for _ in range(count):
        picture = Image.new("RGB", (side, side), (PAPER,) * 3)
        pen = ImageDraw.Draw(picture)
        left, top = (int(value) for value in rng.integers(side // 8, side // 2, 2))
        pen.ellipse((left, top, left + side // 3, top + side // 3), outline=(INK,) * 3, width=2)
        for _ in range(2):
            pen.line([int(value) for value in rng.integers(0, side, 4)], fill=(INK,) * 3, width=2)
        pictures.append(through_jpeg(picture))
    return np.stack(pictures)


def clouds(rng: np.random.Generator, count: int, side: int = 64) -> np.ndarray:
    """Smooth colours with some grain, (count, side, side, 3)."""
    return np.stack([_cloud(rng, side) for _ in range(count)])


def without_colour(pictures: np.ndarray) -> np.ndarray:
    """The same with three equal channels."""
    return np.repeat(pictures.mean(axis=3, keepdims=True).round().astype(np.uint8), 3, axis=3)


def through_jpeg(picture: Image.Image) -> np.ndarray:
    """What a JPEG of middling quality makes of a picture."""
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=85)
    return np.asarray(Image.open(content))


def _cloud(rng: np.random.Generator, side: int) -> np.ndarray:
    coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC)).astype(np.float64)
    return (smooth + rng.normal(scale=6.0, size=smooth.shape)).clip(0, 255).astype(np.uint8)
