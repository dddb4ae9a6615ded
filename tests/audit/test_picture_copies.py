"""Copies are found under the changes that make them, and pictures that only look alike are not taken for copies."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from audit.planted_faults import cropped, recompressed, scene
from counterpoint.audit.picture_copies import SIDE, Alike, likeness, near_copies
from counterpoint.audit.picture_pass import PictureStatistics, looks_of

CHANGES = {
    "compression": lambda image: recompressed(image, 30),
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2)),
    "brightness": lambda image: ImageEnhance.Brightness(image).enhance(0.8),
    "contrast": lambda image: ImageEnhance.Contrast(image).enhance(0.7),
    "crop": lambda image: cropped(image, 0.92),
    "all": lambda image: recompressed(ImageEnhance.Brightness(cropped(image, 0.94)).enhance(0.85), 50),
}


def marked(image: Image.Image) -> Image.Image:
    """With a mark in a corner, as sellers of pictures put it."""
    copy = image.copy()
    ImageDraw.Draw(copy).rectangle((60, 70, 90, 84), fill=(250, 240, 30))
    return copy


CHANGES |= {
    "mirrored": ImageOps.mirror,
    "turned by 90 degrees": lambda image: image.rotate(90),
    "turned by 180 degrees": lambda image: image.rotate(180),
    "border": lambda image: ImageOps.expand(image, 12, "navy"),
    "mark": marked,
    "without colour": lambda image: image.convert("L").convert("RGB"),
}


def looks(images: list[Image.Image]) -> PictureStatistics:
    return looks_of(np.stack([np.asarray(image.resize((2 * SIDE, 2 * SIDE))) for image in images]))


def found_among(images: list[Image.Image], is_looked_at: np.ndarray | None = None) -> Alike:
    pictures = looks(images)
    is_looked_at = np.ones(len(images), bool) if is_looked_at is None else is_looked_at
    return near_copies(pictures.small_NSS3, pictures.frame_N4, is_looked_at)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_are_found_and_nothing_else(change: str, rng: np.random.Generator) -> None:
    images = [scene(rng) for _ in range(40)]
    copies = [CHANGES[change](image) for image in images[:10]]
    found = found_among([*images, *copies])
    assert {tuple(pair) for pair in found.pairs_P2.tolist()} == {(place, 40 + place) for place in range(10)}
    assert (found.similarity_P <= 1 + 1e-5).all()
    if change in ("mirrored", "turned by 90 degrees", "turned by 180 degrees"):
        assert set(found.turns) == {change}


def test_the_order_of_a_pair_does_not_matter(rng: np.random.Generator) -> None:
    image = scene(rng)
    whole, part = looks([image]).small_NSS3, looks([cropped(image, 0.9)]).small_NSS3
    assert likeness(whole, part) == pytest.approx(likeness(part, whole), abs=1e-6)
    assert likeness(whole, part)[0] > 0.7


def on_plain_ground(rng: np.random.Generator, colour: tuple[int, int, int]) -> Image.Image:
    """A thing of one kind, as catalogues show it: outline, place and shading are the same, colour and pattern not."""
    image = Image.new("RGB", (96, 96), "white")
    draw = ImageDraw.Draw(image)
    draw.ellipse((10, 52, 38, 80), outline="black", width=5)
    draw.ellipse((58, 52, 86, 80), outline="black", width=5)
    draw.polygon([(24, 66), (34, 36), (66, 36), (72, 66)], fill=colour)
    return image


def test_things_of_one_kind_in_other_colours_are_no_copies(rng: np.random.Generator) -> None:
    colours = [(200, 30, 30), (30, 90, 200), (30, 160, 60), (230, 190, 40), (120, 40, 140)]
    assert len(found_among([on_plain_ground(rng, colour) for colour in colours]).pairs_P2) == 0


def test_alike_in_layout_is_not_alike_in_detail(rng: np.random.Generator) -> None:
    ground = np.tile(np.linspace(20, 230, SIDE)[:, None, None], (1, SIDE, 3))
    pictures = (ground + rng.normal(0, 8, (6, SIDE, SIDE, 3))).clip(0, 255).astype(np.uint8)
    assert not likeness(pictures[:3], pictures[3:]).any()


def test_what_is_not_looked_at_is_in_no_pair(rng: np.random.Generator) -> None:
    found = found_among([scene(rng)] * 4, np.array([True, False, True, False]))
    assert found.pairs_P2.tolist() == [[0, 2]]


def test_a_picture_of_which_a_part_is_plain_is_most_like_itself(rng: np.random.Generator) -> None:
    """Cuts of one colour have no detail to correlate, and must not stand for the true place."""
    images = []
    for _ in range(60):
        picture = np.full((96, 96, 3), rng.integers(40, 220, 3), np.uint8)
        top = rng.integers(0, 90)
        picture[top : top + 6] = rng.integers(0, 256, (6, 96, 3))
        images += [Image.fromarray(picture)] * 2
    found = found_among(images)
    pairs = {tuple(sorted(pair)) for pair in found.pairs_P2.tolist()}
    assert pairs == {(2 * number, 2 * number + 1) for number in range(60)}
