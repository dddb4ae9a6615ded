"""dSprites: the original file is packed while it is read; the rendered grid has the same factors and order."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import DataError, UsageError
from counterpoint.data.sets import dsprites
from counterpoint.data.sets.dsprites import FILE, GRID, SHAPES, factors_at
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from data.silent_progress import silent

NUM_IMAGES = 737_280


def open_data(data: Any, **settings: Any) -> Source:
    return open_source(data, SourceSettings(**settings), progress=silent)


def refusal(data: Any, **settings: Any) -> str:
    with pytest.raises((DataError, UsageError)) as caught:
        open_data(data, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the original's form


class Pickled:
    """Stands for the original's metadata, a pickled dictionary; unpickling it would fail the test."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("unpickled",)


def original_arrays(rng: np.random.Generator, num_images: int = 50) -> dict[str, np.ndarray]:
    """Some images in the original's form: six latents, the first of which (colour) has one value."""
    sizes = np.array([1, *GRID])
    classes = rng.integers(0, sizes, (num_images, 6))
    metadata = np.empty((), dtype=object)
    metadata[()] = Pickled()
    return {
        "metadata": metadata,
        "imgs": rng.integers(0, 2, (num_images, 64, 64), dtype=np.uint8),
        "latents_classes": classes,
        "latents_values": classes / 2.0,
    }


def save(path: Path, arrays: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


def test_the_original_form_is_read_without_its_pickled_metadata(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays = original_arrays(rng)
    save(tmp_path / FILE, arrays)
    source = open_data("dsprites", root=str(tmp_path))
    expected = torch.from_numpy(arrays["imgs"])[:, None] * 255
    assert (source.kind, source.shape, len(source)) == ("images", (1, 64, 64), 50)
    assert torch.equal(source.store.fetch(range(50)), expected)
    assert torch.equal(source.store.fetch([3, 49, 3]), expected[[3, 49, 3]])
    assert source.factors is not None
    assert torch.equal(source.factors, torch.from_numpy(arrays["latents_classes"][:, 1:]))
    assert source.factors.dtype == torch.int64
    assert source.factors.shape[1] == 5
    assert source.labels is not None
    assert source.labels.tolist() == arrays["latents_classes"][:, 1].tolist()
    assert source.class_names == SHAPES


def original(root: Path) -> Source:
    return open_data("dsprites", root=str(root))


def test_the_file_is_found_in_a_folder_of_its_own_too(tmp_path: Path, rng: np.random.Generator) -> None:
    save(tmp_path / "root" / "dsprites" / FILE, original_arrays(rng))
    assert len(original(tmp_path / "root")) == 50
    missing = refusal("dsprites", root=str(tmp_path / "nowhere"))
    assert FILE in missing
    assert "dsprites-rendered" in missing
    assert "one of train" in refusal("dsprites", root=str(tmp_path / "root"), split="test")


def test_the_fingerprint_follows_pixels_and_factors(tmp_path: Path, rng: np.random.Generator) -> None:
    arrays, prints = original_arrays(rng), set()
    for key, place in (("imgs", (49, 63, 63)), ("imgs", (0, 0, 0)), ("latents_classes", (49, 5))):
        save(tmp_path / FILE, arrays)
        prints.add(original(tmp_path).fingerprint)
        arrays[key][place] ^= 1
    assert len(prints) == 3


DAMAGES: dict[str, tuple[dict[str, Any], str]] = {
    "grey": ({"imgs": np.full((50, 64, 64), 2, np.uint8)}, "0 or 1, got 2"),
    "size": ({"imgs": np.zeros((50, 32, 32), np.uint8)}, "(50, 64, 64)"),
    "type": ({"imgs": np.zeros((50, 64, 64), np.int64)}, "bytes"),
    "length": ({"imgs": np.zeros((49, 64, 64), np.uint8)}, "(50, 64, 64)"),
    "factors": ({"latents_classes": np.zeros((50, 5), np.int64)}, "(n, 6)"),
    "values": ({"latents_classes": np.zeros((50, 6))}, "whole numbers"),
    "range": ({"latents_classes": np.full((50, 6), 3)}, "below (1, 3, 6, 40, 32, 32)"),
    "negative": ({"latents_classes": np.full((50, 6), -1)}, "below"),
    "objects": ({"latents_classes": np.full((50, 6), None)}, "Python objects"),
}


@pytest.mark.parametrize(("change", "complaint"), DAMAGES.values(), ids=DAMAGES)
def test_other_forms_are_refused(
    change: dict[str, Any], complaint: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    save(tmp_path / FILE, original_arrays(rng) | change)
    assert complaint in refusal("dsprites", root=str(tmp_path))


def test_a_file_cut_off_or_changed_is_refused_or_the_same(tmp_path: Path, rng: np.random.Generator) -> None:
    path = save(tmp_path / FILE, original_arrays(rng))
    content, whole = path.read_bytes(), original(tmp_path).fingerprint
    num_refused = 0
    for place in rng.integers(0, len(content), 60).tolist():
        for changed in (content[:place], content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]):
            path.write_bytes(changed)
            try:
                found = original(tmp_path).fingerprint
            except DataError as error:
                num_refused += 1
                assert "\n" not in str(error)
            else:
                assert found == whole  # the damage fell on what is not read
    assert num_refused >= 60


# --- rendered


@pytest.fixture(scope="module")
def rendered() -> Source:
    return open_data("dsprites-rendered")


def test_the_grid_has_every_combination_once_in_the_original_order(rendered: Source) -> None:
    assert len(rendered) == NUM_IMAGES == math.prod(GRID)
    assert rendered.factors is not None
    expected = np.stack(np.unravel_index(np.arange(NUM_IMAGES), GRID), axis=1)
    assert np.array_equal(rendered.factors.numpy(), expected)
    assert rendered.labels is not None
    assert rendered.labels.bincount().tolist() == [NUM_IMAGES // 3] * 3


def inside(shape: int, scale: float, angle: float, x: float, y: float) -> bool:
    """Oracle for one point in pixels from the centre, y upwards: turn back, scale back, look inside."""
    point = complex(x - 0.4, y + 0.3) * np.exp(-1j * angle) / scale
    u, v = point.real, point.imag
    if shape == 0:
        return abs(u) <= 10.7 and abs(v) <= 10.7
    if shape == 1:
        return (u / 14.8) ** 2 + (v / 7.4) ** 2 <= 1
    u, v = u / 10.9, v / 10.9
    return (u * u + v * v - 1) ** 3 - u * u * v * v * v <= 0


def test_pixels_are_those_of_the_outline_drawn_point_by_point(rendered: Source, rng: np.random.Generator) -> None:
    positions = rng.integers(0, NUM_IMAGES, 24).tolist()
    num_edge = 0
    for image, position in zip(rendered.store.fetch(positions), positions, strict=True):
        shape, scale, turn, column, row = (int(value) for value in np.unravel_index(position, GRID))
        size, angle = 0.5 + 0.1 * scale, turn * 2 * math.pi / 39
        expected = np.array(
            [[inside(shape, size, angle, x - 16 - column, 16 + row - y) for x in range(64)] for y in range(64)]
        )
        differs = (image[0].numpy() == 255) != expected
        num_edge += int(differs.sum())
        assert set(image.unique().tolist()) <= {0, 255}
    assert num_edge == 0


def test_images_depend_on_their_position_only(rendered: Source, rng: np.random.Generator) -> None:
    positions = rng.integers(0, NUM_IMAGES, 40).tolist()
    batch = rendered.store.fetch(positions)
    assert batch.dtype == torch.uint8
    assert torch.equal(batch, torch.cat([rendered.store.fetch([position]) for position in positions]))
    again = open_data("dsprites-rendered")
    assert torch.equal(again.store.fetch(positions[::-1]), batch.flip(0))
    assert again.fingerprint == rendered.fingerprint != open_data("dsprites-rendered", labels="none").fingerprint


def test_areas_are_those_of_the_outlines(rendered: Source) -> None:
    areas = (dsprites.render_tiles().sum(dim=(1, 2)) / 255).reshape(GRID[:3]).mean(dim=2)
    scale = torch.linspace(0.5, 1.0, 6).square()
    heart = 3.661972723 * 10.9**2  # area of the curve (x^2 + y^2 - 1)^3 = x^2 y^3
    for shape, area in enumerate((21.4**2, math.pi * 14.8 * 7.4, heart)):
        assert float((areas[shape] / (area * scale) - 1).abs().max()) < 0.04  # a pixel counts whole or not


def test_a_split_or_other_labels_are_refused() -> None:
    assert "one of train" in refusal("dsprites-rendered", split="test")
    assert "auto or none" in refusal("dsprites-rendered", labels="mine.csv")


def test_known_factors() -> None:
    assert factors_at(torch.tensor([32 * 32 * 40 * 6])).tolist() == [[1, 0, 0, 0, 0]]
