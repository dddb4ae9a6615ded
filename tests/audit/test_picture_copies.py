"""Copies are found under the changes that make them, and pictures that only look alike are not taken for copies."""

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from audit.planted_faults import cropped, recompressed, scene
from counterpoint.audit.picture_copies import SIDE, agreement, clusters, near_copies
from counterpoint.audit.picture_pass import looks_of

CHANGES = {
    "compression": lambda image: recompressed(image, 30),
    "half the size": lambda image: image.resize((image.width // 2, image.height // 2)),
    "brightness": lambda image: ImageEnhance.Brightness(image).enhance(0.8),
    "contrast": lambda image: ImageEnhance.Contrast(image).enhance(0.7),
    "crop": lambda image: cropped(image, 0.92),
    "all": lambda image: recompressed(ImageEnhance.Brightness(cropped(image, 0.94)).enhance(0.85), 50),
}


def grey(images: list[Image.Image]) -> np.ndarray:
    return looks_of(np.stack([np.asarray(image.resize((2 * SIDE, 2 * SIDE))) for image in images])).grey_NSS


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_are_found_and_nothing_else(change: str, rng: np.random.Generator) -> None:
    images = [scene(rng) for _ in range(40)]
    copies = [CHANGES[change](image) for image in images[:10]]
    pictures = grey([*images, *copies])
    found = near_copies(pictures, np.ones(len(pictures), bool))
    assert {tuple(pair) for pair in found.pairs_P2.tolist()} == {(place, 40 + place) for place in range(10)}
    assert (found.similarity_P <= 1 + 1e-5).all()


def test_the_order_of_a_pair_does_not_matter(rng: np.random.Generator) -> None:
    image = scene(rng)
    whole, part = grey([image]), grey([cropped(image, 0.9)])
    assert agreement(whole, part) == pytest.approx(agreement(part, whole), abs=1e-6)


def test_alike_in_layout_is_not_alike_in_detail(rng: np.random.Generator) -> None:
    ground = np.tile(np.linspace(20, 230, SIDE)[:, None], (1, SIDE))
    pictures = (ground + rng.normal(0, 8, (6, SIDE, SIDE))).clip(0, 255).astype(np.uint8)
    assert agreement(pictures[:3], pictures[3:])[:, 0].min() > 0.95
    assert len(near_copies(pictures, np.ones(6, bool)).pairs_P2) == 0


def test_what_is_not_looked_at_is_in_no_pair(rng: np.random.Generator) -> None:
    pictures = np.repeat(grey([scene(rng)]), 4, axis=0)
    found = near_copies(pictures, np.array([True, False, True, False]))
    assert found.pairs_P2.tolist() == [[0, 2]]


def test_many_copies_are_one_cluster(rng: np.random.Generator) -> None:
    pictures = grey([*[scene(rng)] * 20, *[scene(rng) for _ in range(5)]])
    found = near_copies(pictures, np.ones(25, bool))
    assert clusters(found.pairs_P2) == [list(range(20))]
