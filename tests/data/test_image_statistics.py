"""What pictures look like, and how many of their views are blank: the recipe that is chosen for them."""

from collections import Counter

import numpy as np
import pytest
import torch
from drawn_pictures import clouds, line_drawings, without_colour
from torch import Tensor

from counterpoint.core.data_settings import SourceSettings
from counterpoint.data.sets.digits import open_digits
from counterpoint.data.sources import open_source
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.image_statistics import (
    NUM_SAMPLED,
    BlankViews,
    Pictures,
    count_blank_views,
    look,
    sample_pictures,
)
from counterpoint.data.views.presets import PRESETS, ViewPlan, choose_preset
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
    digits = sample_pictures(open_digits(SourceSettings(), QUIET)).pixels
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
    first, again = (sample_pictures(open_source(array, SourceSettings(), progress=QUIET)) for _ in range(2))
    assert torch.equal(first.ids, again.ids)
    assert len(first.ids.unique()) == NUM_SAMPLED
    assert torch.equal(first.pixels[:, 0], torch.from_numpy(array)[first.ids])


HALVES = torch.zeros(40, 1, 32, 32, dtype=torch.uint8)
HALVES[..., 16:] = 255


def of(pixels: torch.Tensor) -> Pictures:
    return Pictures(torch.arange(len(pixels)), pixels)


def test_small_crops_of_drawings_are_blank_and_their_own_recipe_has_few(rng: np.random.Generator) -> None:
    drawings = of(torch.from_numpy(line_drawings(rng, 64)).permute(0, 3, 1, 2))
    small_crops = count_blank_views(drawings, PRESETS["photos"], 0)
    own = count_blank_views(drawings, PRESETS["drawings"], 0)
    assert small_crops.num_views == own.num_views == 256
    assert small_crops.num_blank >= 3
    assert own.num_blank == 0
    photographs = of(torch.from_numpy(clouds(rng, 64)).permute(0, 3, 1, 2))
    assert count_blank_views(photographs, PRESETS["photos"], 0).num_blank == 0


def test_the_count_is_that_of_the_views_that_training_draws() -> None:
    plan = ViewPlan(crop_scale=(0.05, 0.2))
    drawer = ViewDrawer(plan, torch.zeros(1), torch.ones(1), 3)
    found = count_blank_views(of(HALVES), plan, 3)
    assert found.num_views == 160
    views = torch.cat([torch.cat(drawer.two_views(HALVES, torch.arange(40), epoch)) for epoch in (0, 1)])
    assert found.num_blank == sum(len(view.unique()) == 1 for view in views)  # a crop has both halves, or it is plain
    assert 0.3 < found.share < 0.9
    assert count_blank_views(of(HALVES), plan, 4).num_blank != found.num_blank


def test_a_picture_that_shows_nothing_itself_has_no_blank_views() -> None:
    plan = ViewPlan(crop_scale=(0.05, 0.2))
    both = torch.cat([HALVES, torch.full_like(HALVES, 90)])
    assert count_blank_views(of(both), plan, 3) == count_blank_views(of(HALVES), plan, 3)
    nothing = count_blank_views(Pictures(torch.arange(40), both[40:]), plan, 3)
    assert (nothing, nothing.share) == (BlankViews(0, 0), 0.0)


def test_one_channel_that_shows_something_is_enough() -> None:
    coloured = torch.cat([torch.zeros_like(HALVES), HALVES, torch.zeros_like(HALVES)], dim=1)
    assert count_blank_views(of(coloured), ViewPlan(), 0) == BlankViews(0, 160)
    assert count_blank_views(of(coloured), ViewPlan(solarize=1.0), 0) == BlankViews(160, 160)  # 0 and 1 become 0


def test_the_remedy_is_named_where_there_are_many() -> None:
    assert str(BlankViews(1, 100)) == "1.0% of 100 views are blank"
    assert "--views.crop-scale" in str(BlankViews(2, 100))
