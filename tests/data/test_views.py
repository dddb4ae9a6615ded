"""Views are a pure function of (seed, epoch, sample id, view number), stay in range, and change what they say."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from counterpoint.core.settings import ViewSettings
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.presets import ViewPlan, plan_views
from tolerances import assert_close, assert_estimate


def make_plan(preset: str = "none", **numbers: Any) -> ViewPlan:
    return plan_views(ViewSettings(preset=preset, **numbers))


EVERYTHING = make_plan(
    "photos",
    affine=0.7,
    rotate=30.0,
    translate=0.2,
    zoom=(0.7, 1.3),
    shear=15.0,
    blur=0.7,
    grayscale=0.3,
    solarize=0.4,
)
PLANS = {
    **{name: make_plan(name) for name in ("none", "digits", "drawings", "small-images", "photos", "directclr", "ncl")},
    "everything": EVERYTHING,
}
SEED, EPOCH, NUM_IMAGES = 7, 3, 66


def draw(
    plan: ViewPlan, samples: Tensor, ids: Tensor, *, seed: int = SEED, epoch: int = EPOCH, view: int = 0
) -> Tensor:
    width = samples.shape[1]
    drawer = ViewDrawer(plan, torch.zeros(width), torch.ones(width), seed)
    return drawer.draw(samples, ids, epoch, torch.full((len(ids),), view))


def random_images(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def random_ids(generator: torch.Generator, num_ids: int) -> Tensor:
    return torch.randperm(10 * num_ids, generator=generator)[:num_ids]


def compositions(num_images: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches that a sample may find itself in: alone, in small ones, in a large one, in another order."""
    for size in (1, 2, 3, 7, 64):
        starts = range(0, num_images, size)
        yield from (torch.arange(start, min(start + size, num_images)) for start in list(starts)[:4])
    yield torch.randperm(num_images, generator=generator)
    yield torch.tensor([5, 5, 0])  # a sample twice in one batch


# --- a pure function


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 11, 24, 32, 33])
@pytest.mark.sampled(12)
def test_a_view_is_the_same_in_any_batch(plan: ViewPlan, channels: int, side: int, generator: torch.Generator) -> None:
    images, ids = random_images(generator, NUM_IMAGES, channels, side, side), random_ids(generator, NUM_IMAGES)
    together = draw(plan, images, ids)
    assert bool(((together >= 0) & (together <= 1)).all())
    for rows in compositions(NUM_IMAGES, generator):
        assert torch.equal(draw(plan, images[rows], ids[rows]), together[rows]), f"batch of {len(rows)}"


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("shape", [(1, 224, 224), (3, 20, 33)], ids=["large", "oblong"])
def test_neither_the_size_of_an_image_nor_the_number_of_threads_matters(
    shape: tuple[int, int, int], num_threads: int, generator: torch.Generator
) -> None:
    images, ids = random_images(generator, 4, *shape), random_ids(generator, 4)
    plan = EVERYTHING.model_copy(update={"jitter": 1.0, "blur": 1.0})
    together = draw(plan, images, ids)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(num_threads)
        alone = torch.cat([draw(plan, images[row, None], ids[row, None]) for row in range(4)])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone, together)


@pytest.mark.parametrize("plan", [PLANS["digits"], PLANS["small-images"], PLANS["photos"], EVERYTHING])
@pytest.mark.parametrize(
    "change", [{"seed": SEED + 1}, {"seed": SEED + 2**32}, {"epoch": EPOCH + 1}, {"view": 1}, {"ids": 1}], ids=str
)
def test_another_seed_epoch_view_or_id_gives_another_view(
    plan: ViewPlan, change: dict[str, int], generator: torch.Generator
) -> None:
    images, ids = random_images(generator, 16, 3, 24, 24), random_ids(generator, 16)
    shift = change.get("ids", 0)
    settings = {name: value for name, value in change.items() if name != "ids"}
    before, after = draw(plan, images, ids), draw(plan, images, ids + shift * 1000, **settings)
    is_changed = (before != after).flatten(1).any(dim=1)
    assert bool(is_changed.all())


def test_the_two_views_of_a_batch_are_views_0_and_1_standardised(generator: torch.Generator) -> None:
    images, ids = random_images(generator, 5, 3, 16, 16), random_ids(generator, 5)
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 0.25, 2.0])
    pair = ViewDrawer(EVERYTHING, mean, std, SEED).two_views(images, ids, EPOCH)
    for view, standardised in enumerate(pair):
        plain = draw(EVERYTHING, images, ids, view=view)
        expected = (plain - mean[:, None, None]) / std[:, None, None]
        assert torch.equal(standardised, expected)


def test_local_views_are_small_and_each_of_a_part_of_its_own(generator: torch.Generator) -> None:
    # Each pixel says where it lies: left to right by red, top to bottom by green.
    across, down = torch.meshgrid(torch.arange(48), torch.arange(32), indexing="xy")
    samples = torch.stack([across, down, torch.zeros_like(down)]).to(torch.uint8).expand(20, 3, 32, 48) * 5
    ids = random_ids(generator, 20)
    plan = make_plan(crop_scale=(0.9, 1.0), local_crops=3, local_side=0.25, local_scale=(0.05, 0.2))
    drawer = ViewDrawer(plan, torch.zeros(3), torch.ones(3), SEED)
    local = drawer.local_views(samples, ids, EPOCH)
    assert local is not None
    assert local.shape == (3, 20, 3, 8, 12)
    seen = 51 * (local.amax((3, 4)) - local.amin((3, 4)))  # in pixels of the sample
    # A box of a share s of the area and a ratio r of width to height is as wide as sqrt(s h w r).
    largest, smallest = math.sqrt(0.2 * 32 * 48 * 4 / 3), math.sqrt(0.05 * 32 * 48 * 3 / 4)
    assert 0.8 * smallest < float(seen[:, :, :2].min())
    assert 0.8 * largest < float(seen[:, :, :2].max()) < largest
    assert len(torch.unique(local.flatten(2).reshape(60, -1), dim=0)) == 60
    few = drawer.local_views(samples[4:6], ids[4:6], EPOCH)
    assert few is not None
    assert torch.equal(few, local[:, 4:6])
    # The global views are those of a plan without local ones.
    without = ViewDrawer(plan.model_copy(update={"local_crops": 0}), torch.zeros(3), torch.ones(3), SEED)
    assert without.local_views(samples, ids, EPOCH) is None
    for found, expected in zip(
        drawer.two_views(samples, ids, EPOCH), without.two_views(samples, ids, EPOCH), strict=True
    ):
        assert torch.equal(found, expected)


def test_a_local_view_of_everything_is_a_view_of_its_number(generator: torch.Generator) -> None:
    samples, ids = random_images(generator, 40, 3, 16, 16), random_ids(generator, 40)
    plan = EVERYTHING.model_copy(update={"local_crops": 2, "local_side": 1.0, "local_scale": EVERYTHING.crop_scale})
    local = ViewDrawer(plan, torch.full((3,), 0.5), torch.full((3,), 2.0), SEED).local_views(samples, ids, EPOCH)
    assert local is not None
    for number in range(2):
        assert_close(local[number], (draw(plan, samples, ids, view=2 + number) - 0.5) / 2.0)


@pytest.mark.parametrize(("plan", "shape"), [(EVERYTHING, (3, 16, 16)), (make_plan("vectors"), (7,))])
def test_the_second_of_a_pair_is_what_view_1_is_drawn_from(
    plan: ViewPlan, shape: tuple[int, ...], generator: torch.Generator
) -> None:
    first, second = random_images(generator, 2, 5, *shape)
    ids, drawer = torch.arange(5), ViewDrawer(plan, torch.full(shape[:1], 0.4), torch.full(shape[:1], 0.2), SEED)
    views = drawer.two_views(first, ids, EPOCH, second)
    assert torch.equal(views[0], drawer.two_views(first, ids, EPOCH)[0])
    assert torch.equal(views[1], drawer.two_views(second, ids, EPOCH)[1])
    assert not torch.equal(views[1], drawer.two_views(first, ids, EPOCH)[1])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
def test_a_caption_vector_is_returned_as_it_is(dtype: torch.dtype, generator: torch.Generator) -> None:
    images, captions = random_images(generator, 5, 3, 16, 16), (10 * torch.rand(5, 7, generator=generator)).to(dtype)
    drawer = ViewDrawer(EVERYTHING, torch.full((3,), 0.4), torch.full((3,), 0.2), SEED)
    view, caption = drawer.two_views(images, torch.arange(5), EPOCH, captions)
    assert torch.equal(view, drawer.two_views(images, torch.arange(5), EPOCH)[0])
    assert torch.equal(caption, captions.float())
    assert caption.dtype == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_gpu_draws_the_same_views_and_does_not_wait(plan: ViewPlan, generator: torch.Generator) -> None:
    images, ids = random_images(generator, NUM_IMAGES, 3, 32, 32), random_ids(generator, NUM_IMAGES)
    drawer = ViewDrawer(plan, torch.full((3,), 0.4, device="cuda"), torch.full((3,), 0.2, device="cuda"), SEED)
    there = images.cuda()
    drawer.two_views(there, ids, EPOCH)
    torch.cuda.set_sync_debug_mode("error")
    try:
        views = drawer.two_views(there, ids, EPOCH)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    here = ViewDrawer(plan, torch.full((3,), 0.4), torch.full((3,), 0.2), SEED).two_views(images, ids, EPOCH)
    for view, expected in zip(views, here, strict=True):
        assert_close(view.cpu(), expected)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_samples_are_left_as_they_are(plan: ViewPlan, generator: torch.Generator) -> None:
    for images in (random_images(generator, 6, 3, 16, 16), torch.rand(6, 3, 16, 16, generator=generator)):
        before = images.clone()
        view = draw(plan, images, torch.arange(6))
        assert torch.equal(images, before)
        assert view.data_ptr() != images.data_ptr()


# --- what each change does


@pytest.mark.parametrize("name", ["flip", "jitter", "grayscale", "blur", "affine", "solarize"])
def test_a_change_happens_in_each_view_as_often_as_asked(name: str, generator: torch.Generator) -> None:
    num_images, chances, asked = 4000, (0.3, 0.3), {name: 0.3}
    if name in ("blur", "solarize"):  # which the second view may have a chance of its own for
        chances, asked = (0.8, 0.1), {name: 0.8, f"{name}_second": 0.1}
    images = torch.rand(1, 3, 8, 8, generator=generator).expand(num_images, -1, -1, -1)
    plan = make_plan("none", jitter_strength=0.4, blur_sigma=(0.5, 1.0), rotate=45.0, **asked)
    for view, probability in enumerate(chances):
        is_changed = (draw(plan, images, torch.arange(num_images), view=view) != images).flatten(1).any(dim=1)
        standard_error = (probability * (1 - probability) / num_images) ** 0.5
        assert_estimate(float(is_changed.double().mean()), probability, standard_error)


@pytest.mark.parametrize("name", ["blur", "solarize"])
def test_the_second_view_alone_may_have_a_chance(name: str, generator: torch.Generator) -> None:
    images = torch.rand(9, 3, 8, 8, generator=generator)
    plan = make_plan("none", blur_sigma=(0.5, 1.0), **{f"{name}_second": 1.0})
    assert torch.equal(draw(plan, images, torch.arange(9)), images)
    assert bool((draw(plan, images, torch.arange(9), view=1) != images).flatten(1).any(dim=1).all())


def test_changing_one_operation_leaves_the_draws_of_the_others_alone(generator: torch.Generator) -> None:
    images = torch.rand(1, 3, 8, 8, generator=generator).expand(200, -1, -1, -1)
    ids = torch.arange(200)
    alone = draw(make_plan(grayscale=0.5), images, ids)
    with_crop = draw(make_plan(grayscale=0.5, crop_scale=(0.3, 0.9), affine=0.5, rotate=20.0, blur=0.5), images, ids)
    grey = [(view[:, 0] == view[:, 1]).flatten(1).all(dim=1) for view in (alone, with_crop)]
    assert 0 < int(grey[0].sum()) < 200
    assert torch.equal(*grey)


def test_brightness_moves_evenly_by_up_to_the_strength() -> None:
    num_images, strength, level = 4000, 0.4, 0.5
    images = torch.full((num_images, 1, 2, 2), level)  # flat and grey: contrast, saturation and hue change nothing
    views = draw(make_plan(jitter=1.0, jitter_strength=strength), images, torch.arange(num_images))
    factors = views[:, 0, 0, 0].double() / level
    assert_estimate(float(factors.mean()), 1.0, strength / (3 * num_images) ** 0.5)
    assert float(factors.min()) >= 1 - strength - 1e-6
    assert float(factors.max()) <= 1 + strength + 1e-6
    expected_gap = 2 * strength / num_images  # between an end of the range and the value nearest to it
    assert 1 - strength + 20 * expected_gap > float(factors.min())
    assert 1 + strength - 20 * expected_gap < float(factors.max())


# --- vectors


def test_vector_views_are_the_same_in_any_batch(generator: torch.Generator) -> None:
    for width in (2, 3, 13, 64):
        samples, ids = torch.randn(NUM_IMAGES, width, generator=generator), random_ids(generator, NUM_IMAGES)
        together = draw(make_plan("vectors"), samples, ids)
        for rows in compositions(NUM_IMAGES, generator):
            assert torch.equal(draw(make_plan("vectors"), samples[rows], ids[rows]), together[rows])
        assert not torch.equal(draw(make_plan("vectors"), samples, ids, view=1), together)
        assert not torch.equal(draw(make_plan("vectors"), samples, ids, epoch=EPOCH + 1), together)
        assert not torch.equal(draw(make_plan("vectors"), samples, ids, seed=SEED + 1), together)


def test_noise_is_normal_in_units_of_each_features_deviation() -> None:
    num_samples, noise = 20_000, 0.3
    mean, std = torch.tensor([5.0, -2.0, 0.0]), torch.tensor([0.1, 1.0, 20.0])
    drawer = ViewDrawer(make_plan(noise=noise), mean, std, SEED)
    views = [
        drawer.draw(mean.expand(num_samples, 3), torch.arange(num_samples), 0, torch.full((num_samples,), view))
        for view in (0, 1)
    ]
    first, second = (((view - mean) / (noise * std)).double() for view in views)
    for feature in range(3):
        column = first[:, feature]
        assert_estimate(float(column.mean()), 0.0, num_samples**-0.5)
        assert_estimate(float(column.square().mean()), 1.0, (2 / num_samples) ** 0.5)
        assert_estimate(float(column.pow(4).mean()), 3.0, (96 / num_samples) ** 0.5)
        assert_estimate(float((column * second[:, feature]).mean()), 0.0, num_samples**-0.5)
        assert_estimate(float((column * first[:, feature - 1]).mean()), 0.0, num_samples**-0.5)


def test_dropped_features_become_their_mean_and_the_others_stay() -> None:
    num_samples, dropout = 20_000, 0.2
    mean, std = torch.tensor([5.0, -2.0]), torch.ones(2)
    samples = torch.tensor([[1.0, 7.0]]).expand(num_samples, 2)
    drawer = ViewDrawer(make_plan(dropout=dropout), mean, std, SEED)
    view = drawer.draw(samples, torch.arange(num_samples), 0, torch.zeros(num_samples, dtype=torch.int64))
    is_dropped = view == mean
    assert torch.equal(torch.where(is_dropped, mean, samples), view)
    standard_error = (dropout * (1 - dropout) / num_samples) ** 0.5
    for feature in range(2):
        assert_estimate(float(is_dropped[:, feature].double().mean()), dropout, standard_error)
    both = float(is_dropped.all(dim=1).double().mean())
    assert_estimate(both, dropout**2, (dropout**2 * (1 - dropout**2) / num_samples) ** 0.5)
