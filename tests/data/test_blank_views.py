"""Blank views are counted: those of a picture that shows something, and only those."""

import numpy as np
import torch
from drawn_pictures import clouds, line_drawings

from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.looks import BlankViews, Pictures, count_blank_views
from counterpoint.data.views.presets import PRESETS, ViewPlan

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
