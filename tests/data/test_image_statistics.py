"""What pictures look like: the recipe that is chosen for them."""

from collections import Counter

import numpy as np
import pytest
import torch
from drawn_pictures import clouds, line_drawings, without_colour
from torch import Tensor

from counterpoint.core.settings import SourceSettings
from counterpoint.data.sets.published import open_digits
from counterpoint.data.sources import open_source
from counterpoint.data.views.image_statistics import NUM_SAMPLED, look, sample_pictures
from counterpoint.data.views.presets import choose_preset
from counterpoint.engine.progress import Reporter

QUIET = Reporter(quiet=True).bar


def as_tensor(pictures: np.ndarray) -> Tensor:
    return torch.from_numpy(pictures).permute(0, 3, 1, 2)


def chosen(pixels: Tensor) -> str:
    return choose_preset("images", tuple(pixels.shape[1:]), look(pixels))[0]


@pytest.mark.parametrize("side", [32, 64, 96])
def test_line_drawings_get_a_recipe_of_their_own(side: int, rng: np.random.Generator) -> None:
    drawings = as_tensor(line_drawings(rng, 20, side))
    assert chosen(drawings) == chosen(drawings[:, :1]) == "drawings"
    assert chosen(255 - drawings) == chosen(255 - drawings[:, :1]) == "digits"  # light strokes on a dark ground
    preset, reason = choose_preset("images", (3, side, side), look(drawings))
    assert preset in reason
    assert "of 20 pictures 100% have no colour" in reason


def test_digits_have_the_recipe_they_had_and_in_three_channels_too() -> None:
    digits = sample_pictures(open_digits(SourceSettings(), QUIET))
    assert chosen(digits) == choose_preset("images", (1, 8, 8))[0] == "digits"
    assert chosen(digits.expand(-1, 3, -1, -1)) == "digits"


@pytest.mark.parametrize(("side", "preset"), [(32, "small-images"), (64, "photos")])
def test_photographs_have_the_recipe_they_had_in_colour_and_without(
    side: int, preset: str, rng: np.random.Generator
) -> None:
    photographs = clouds(rng, 20, side)
    for pixels in (as_tensor(photographs), as_tensor(without_colour(photographs))):
        shape = tuple(pixels.shape[1:])
        assert choose_preset("images", shape, look(pixels)) == choose_preset("images", shape)
        assert chosen(pixels) == preset
    mostly_drawn = np.concatenate([photographs[:4], line_drawings(rng, 16, side)])
    assert chosen(as_tensor(mostly_drawn)) == preset  # a fifth has colours, which may mean something


def test_the_figures_are_those_of_loops(rng: np.random.Generator) -> None:
    pictures = np.concatenate([clouds(rng, 3, 16), line_drawings(rng, 3, 16), np.full((2, 16, 16, 3), 200, np.uint8)])
    grey, plain, paper = [], [], []
    for picture in pictures[:6].astype(int):  # the last two show nothing
        pixels = picture.reshape(-1, 3)
        grey.append(sum(max(pixel) - min(pixel) > 8 for pixel in pixels) <= 0.01 * len(pixels))
        counts = Counter(int(sum(pixel)) // 3 for pixel in pixels)
        plain.append(max(sum(counts[level + near] for near in range(-8, 9)) for level in range(256)) / len(pixels))
        paper.append(min(level for level in counts if counts[level] == max(counts.values())))
    found = look(as_tensor(pictures))
    assert found is not None
    assert found.num_pictures == 6
    assert found.grey_share == pytest.approx(np.mean(grey))
    assert found.background == pytest.approx(sorted(plain)[2])
    assert found.paper == sorted(paper)[2]


def test_pictures_that_show_nothing_say_nothing() -> None:
    assert look(torch.zeros(5, 3, 8, 8, dtype=torch.uint8)) is None
    assert look(torch.full((5, 1, 8, 8), 0.5)) is None


def test_every_run_looks_at_the_same_pictures(rng: np.random.Generator) -> None:
    array = rng.integers(0, 256, (200, 4, 4), dtype=np.uint8)
    array[:, 0, :2] = np.stack([np.arange(200) // 14, np.arange(200) % 14], 1)  # no two are equal
    first, again = (sample_pictures(open_source(array, SourceSettings(), progress=QUIET)) for _ in range(2))
    assert torch.equal(first, again)
    assert len(first.unique(dim=0)) == NUM_SAMPLED


HALVES = torch.zeros(40, 1, 32, 32, dtype=torch.uint8)
HALVES[..., 16:] = 255
