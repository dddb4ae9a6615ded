"""Corruptions of pictures against their definitions, and their bits against the batch they are computed in."""

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import poisson

from counterpoint.core.errors import DataError, UsageError
from counterpoint.data.corrupted import (
    SEVERITIES,
    CorruptedStore,
    CorruptionDraws,
    Strength,
    chosen_severities,
    corrupt,
    corruptions,
    plasma,
)
from counterpoint.data.corruptions.blur_and_weather import enlarged, moved
from counterpoint.data.stores import MemoryStore

CORRUPTIONS = corruptions()
# Numbers of these grow or fall with the severity; the others' published ones do not.
RISING = [
    "gaussian noise",
    "shot noise",
    "impulse noise",
    "defocus blur",
    "zoom blur",
    "brightness",
    "contrast",
    "jpeg",
]


def pictures(num: int, channels: int, height: int, width: int) -> torch.Tensor:
    """Smooth random pictures with an edge in them."""
    coarse = torch.rand(num, channels, 4, 4, generator=torch.Generator().manual_seed(num + height))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1)
    smooth[..., width // 3 : width // 2] *= 0.3
    return (smooth * 255).round().to(torch.uint8)


def level(value: int, side: int = 64, channels: int = 1) -> torch.Tensor:
    return torch.full((1, channels, side, side), value, dtype=torch.uint8)


ID = torch.tensor([7])


def test_there_are_the_fifteen_of_the_paper() -> None:
    assert len(CORRUPTIONS) == 15
    assert all(len(each.small) == len(each.large) == len(SEVERITIES) for each in CORRUPTIONS.values())


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 14), (1, 40, 33), (3, 90, 88)])
def test_every_picture_has_its_own_bits_in_any_batch(name: str, shape: tuple[int, int, int]) -> None:
    images, ids = pictures(5, *shape), torch.tensor([3, 2**40, 0, 11, 12])
    for severity in (1, 5):
        whole = corrupt(images, name, severity, ids_B=ids, seed=2)
        assert whole.shape == images.shape
        assert whole.dtype == torch.uint8
        alone = [corrupt(images[i : i + 1], name, severity, ids_B=ids[i : i + 1], seed=2) for i in range(5)]
        assert torch.equal(torch.cat(alone), whole)
        backwards = corrupt(images.flip(0), name, severity, ids_B=ids.flip(0), seed=2)
        assert torch.equal(backwards.flip(0), whole)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_chunks_do_not_change_a_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images, ids = pictures(6, 3, 16, 16), torch.arange(6)
    whole = corrupt(images, name, 4, ids_B=ids)
    monkeypatch.setattr("counterpoint.data.corrupted.CHUNK", 2 * 3 * 16 * 16)
    assert torch.equal(corrupt(images, name, 4, ids_B=ids), whole)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_extreme_pictures_stay_pictures(name: str) -> None:
    images = torch.stack([level(0, 16, 3)[0], level(255, 16, 3)[0]])
    for severity in SEVERITIES:
        corruption = CORRUPTIONS[name]
        found = corruption.apply(
            images, corruption.strength(severity, 16, 16), CorruptionDraws(0, name, torch.arange(2))
        )
        assert torch.isfinite(found.float()).all()


@pytest.mark.parametrize("name", RISING)
@pytest.mark.parametrize("side", [32, 100])
def test_severity_grows(name: str, side: int) -> None:
    images, ids = pictures(8, 3, side, side), torch.arange(8)
    distance = [
        (corrupt(images, name, severity, ids_B=ids).float() - images).square().mean().item() for severity in SEVERITIES
    ]
    assert distance == sorted(distance)
    assert distance[0] < distance[-1]


@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS) - {"contrast", "brightness", "jpeg", "pixelate"}))
def test_seed_and_id_choose_what_is_drawn(name: str) -> None:
    images = pictures(1, 3, 32, 32)
    first = corrupt(images, name, 5, ids_B=ID, seed=0)
    is_drawn = name not in ("defocus blur", "zoom blur")
    assert torch.equal(first, corrupt(images, name, 5, ids_B=ID, seed=1)) != is_drawn
    assert torch.equal(first, corrupt(images, name, 5, ids_B=ID + 1, seed=0)) != is_drawn


@pytest.mark.parametrize(("severity", "deviation"), [(1, 0.08), (2, 0.12), (3, 0.18)])
def test_gaussian_noise_has_its_deviation(severity: int, deviation: float) -> None:
    noise = (corrupt(level(128, 224), "gaussian noise", severity, ids_B=ID).double() - 128) / 255
    num = noise.numel()
    assert abs(noise.mean()) < 5 * deviation / num**0.5
    # Rounded to a grey level, which adds a variance of 1/12 of it.
    expected = math.sqrt(deviation**2 + 1 / 255**2 / 12)
    assert noise.std() == pytest.approx(expected, abs=5 * deviation / (2 * num) ** 0.5)


@pytest.mark.parametrize("value", [0, 1, 100, 255])
def test_shot_noise_is_the_quantile_of_its_draw(value: int) -> None:
    draws, photons = CorruptionDraws(3, "shot noise", ID), 60.0
    found = CORRUPTIONS["shot noise"].apply(level(value, 40), Strength((photons,)), draws) * photons
    quantiles = poisson.ppf(draws.uniform(0, 1600)[0].double().numpy(), value / 255 * photons).clip(0)
    np.testing.assert_allclose(found.flatten().numpy(), quantiles, atol=1e-4)


def test_impulse_noise_replaces_its_share_by_black_and_white() -> None:
    found = corrupt(level(100, 224), "impulse noise", 5, ids_B=ID)
    shares = [(found == value).double().mean().item() for value in (0, 100, 255)]
    np.testing.assert_allclose(shares, [0.135, 0.73, 0.135], atol=5 * (0.2 / found.numel()) ** 0.5)
    fewer = corrupt(level(100, 224), "impulse noise", 4, ids_B=ID)
    assert ((fewer == 100) | (fewer == found)).all()  # each severity contains the one below


def spread(response: torch.Tensor, axis: int) -> float:
    """Mean squared distance along an axis from the middle, where one pixel was white."""
    weight = response[0, 0].double()
    weight = weight / weight.sum()
    along = torch.arange(weight.shape[axis]).double() - weight.shape[axis] // 2
    return float((weight.sum(1 - axis) * along.square()).sum())


@pytest.mark.parametrize("radius", [0.4, 1.0, 2.0, 5.0])
def test_defocus_is_the_mean_over_a_disc(radius: float) -> None:
    point = level(0, 31)
    point[0, 0, 15, 15] = 255
    found = CORRUPTIONS["defocus blur"].apply(point, Strength((radius, 0.0)), CorruptionDraws(0, "", ID))[0, 0]
    rows, columns = torch.meshgrid(torch.arange(-15, 16), torch.arange(-15, 16), indexing="ij")
    disc = (rows**2 + columns**2 <= radius**2).float()
    torch.testing.assert_close(found, disc / disc.sum())


def test_defocus_keeps_the_mean_at_mirrored_edges() -> None:
    wedge = torch.arange(32, dtype=torch.uint8).expand(1, 1, 32, 32).contiguous()
    found = CORRUPTIONS["defocus blur"].apply(wedge, Strength((3.0, 0.0)), CorruptionDraws(0, "", ID)) * 255
    torch.testing.assert_close(found[..., 3:-3], wedge[..., 3:-3].float())
    assert found[0, 0, 5, 0] > 0
    assert found[0, 0, 5, 31] < 31


def test_motion_follows_its_angle() -> None:
    point = torch.zeros(2, 1, 41, 41)
    point[:, 0, 20, 20] = 1.0
    level_line, falling = moved(point, 6, 2.0, torch.tensor([0.0, -90.0])).split(1)
    weights = torch.exp(-0.5 * (torch.arange(13) / 2.0) ** 2)
    # A pixel gets what lies to the right of it: the point is smeared to the left.
    torch.testing.assert_close(level_line[0, 0, 20, 8:21].flip(0), weights / weights.sum())
    assert spread(level_line, 0) == 0
    assert spread(falling, 1) == 0
    assert spread(falling, 0) == pytest.approx(spread(level_line, 1))


def test_motion_of_no_width_is_none() -> None:
    images = pictures(2, 3, 20, 20).float() / 255
    torch.testing.assert_close(moved(images, 6, 0.01, torch.tensor([10.0, 40.0])), images)


def test_zooming_in_keeps_the_middle_and_enlarges() -> None:
    images = torch.zeros(1, 1, 32, 32)
    images[0, 0, 12:20, 12:20] = 1.0
    torch.testing.assert_close(enlarged(images, 1.0), images)
    assert enlarged(images, 2.0).sum().item() == pytest.approx(4 * 64, rel=0.01)
    flat = level(90, 24, 3)
    assert torch.equal(corrupt(flat, "zoom blur", 5, ids_B=ID), flat)


@pytest.mark.parametrize("name", ["glass blur", "elastic", "motion blur", "defocus blur", "pixelate", "contrast"])
def test_what_moves_or_mixes_pixels_leaves_a_flat_picture(name: str) -> None:
    flat = level(90, 32, 3)
    for severity in SEVERITIES:
        assert torch.equal(corrupt(flat, name, severity, ids_B=ID), flat)


def test_glass_takes_pixels_from_nearby() -> None:
    wedge = (torch.arange(64) * 4).to(torch.uint8).expand(1, 1, 64, 64).contiguous()
    found = CORRUPTIONS["glass blur"].apply(wedge, Strength((0.01, 3, 1)), CorruptionDraws(0, "", ID)) * 255 / 4
    moves = (found - wedge / 4).round()[..., 3:-3]
    assert moves.min() == -3
    assert moves.max() == 2
    shares = torch.bincount((moves + 3).flatten().long()).double() / moves.numel()
    np.testing.assert_allclose(shares, 1 / 6, atol=5 * (0.14 / moves.numel()) ** 0.5)


def test_elastic_of_no_strength_is_none() -> None:
    images = pictures(1, 3, 24, 20)
    found = CORRUPTIONS["elastic"].apply(images, Strength((0.0, 0.0, 0.0)), CorruptionDraws(0, "", ID))
    torch.testing.assert_close(found, images / 255, atol=1e-4, rtol=0)


def test_elastic_moves_its_three_points_as_drawn() -> None:
    wedge = torch.arange(30).float().expand(1, 1, 30, 30) / 255
    draws = CorruptionDraws(5, "elastic", ID)
    shift = (2.0 * draws.uniform(0, 6) - 1.0).view(3, 2)
    found = CORRUPTIONS["elastic"].apply((wedge * 255).to(torch.uint8), Strength((0.0, 0.0, 1.0)), draws)[0, 0] * 255
    for (row, column), (_, right) in zip([(25, 25), (25, 5), (5, 5)], shift, strict=True):
        assert found[row, column].item() == pytest.approx(column + right.item(), abs=1e-3)


@pytest.mark.parametrize("shape", [(1, 20, 31), (3, 32, 32)])
def test_jpeg_is_pillows(shape: tuple[int, int, int]) -> None:
    images = pictures(1, *shape)
    pixels = images[0].permute(1, 2, 0).squeeze(2).numpy()
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=40)
    expected = np.asarray(Image.open(stream)).reshape(shape[1], shape[2], shape[0])
    np.testing.assert_array_equal(corrupt(images, "jpeg", 5, ids_B=ID)[0].permute(1, 2, 0), expected)


def test_pixels_become_coarse() -> None:
    images = pictures(1, 1, 224, 224)
    found = corrupt(images, "pixelate", 5, ids_B=ID)
    blocks = images.view(56, 4, 56, 4).float().mean((1, 3))
    torch.testing.assert_close(found[0, 0, ::4, ::4].float(), blocks, atol=1.0, rtol=0)
    assert torch.equal(found.view(56, 4, 56, 4).amax((1, 3)), found.view(56, 4, 56, 4).amin((1, 3)))


def test_brightness_adds_to_the_value_and_keeps_the_hue() -> None:
    colour = torch.tensor([100, 50, 25], dtype=torch.uint8).view(1, 3, 1, 1).expand(1, 3, 8, 8).contiguous()
    found = corrupt(colour, "brightness", 3, ids_B=ID)[0, :, 0, 0].tolist()
    assert found == [138, 69, 35]  # 100 + 0.15 x 255, its half and its quarter
    assert corrupt(level(0, 8, 3), "brightness", 3, ids_B=ID).unique().tolist() == [38]


def test_contrast_pulls_to_the_mean_of_each_channel() -> None:
    image = torch.tensor([50, 150], dtype=torch.uint8).repeat(1, 1, 8, 4)
    assert corrupt(image, "contrast", 2, ids_B=ID).unique().tolist() == [75, 125]  # half as far from 100


def test_fog_covers_what_is_dark_more_than_what_is_bright() -> None:
    image = level(0, 32)
    image[..., 16:] = 255
    strength, draws = Strength((1.0, 2.0)), CorruptionDraws(0, "fog", ID)
    clouds = plasma(draws, 0, (32, 32), 2.0)
    found = CORRUPTIONS["fog"].apply(image, strength, draws)
    torch.testing.assert_close(found, (image / 255 + clouds) / 2)


@pytest.mark.parametrize("size", [(8, 8), (32, 32), (33, 90)])
def test_clouds_are_smoother_the_larger_their_decay(size: tuple[int, int]) -> None:
    draws = CorruptionDraws(0, "fog", torch.arange(4))
    rough, smooth = (plasma(draws, 0, size, decay) for decay in (1.2, 3.0))
    assert rough.shape == (4, 1, *size)
    assert rough.min() >= 0
    assert rough.max() <= 1
    assert rough.diff().square().mean() > 2 * smooth.diff().square().mean()


def test_clouds_without_decay_are_uniform_about_the_mean_of_their_neighbours() -> None:
    draws = CorruptionDraws(0, "fog", torch.arange(64))
    noise = 2.0 * draws.uniform(0, 4) - 1.0  # of a grid of two: the centre, then the two edges
    clouds = plasma(draws, 0, (2, 2), 1.0)[:, 0]
    centre = noise[:, 0]
    expected = torch.stack([torch.zeros(64), centre / 2 + noise[:, 1], centre / 2 + noise[:, 2], centre], 1)
    expected = expected - expected.amin(1, keepdim=True)
    torch.testing.assert_close(clouds.flatten(1), expected / expected.amax(1, keepdim=True))


def test_snow_falls_in_two_layers_that_are_each_others_turn() -> None:
    flakes = corrupt(level(0, 64), "snow", 3, ids_B=ID).float()
    pale = 255 * 0.1 * 0.5  # a tenth of the black picture is paler: 1.5 x 0 + 0.5
    above = (flakes - pale).clamp(min=0)
    torch.testing.assert_close(above, above.flip(2, 3), atol=1.0, rtol=0)
    assert above.max() > 50


def test_frost_mixes_a_layer_in() -> None:
    dark, bright = (corrupt(level(value, 32, 3), "frost", 3, ids_B=ID).float() for value in (0, 100))
    torch.testing.assert_close(bright - dark, torch.full_like(dark, 90.0), atol=1.0, rtol=0)  # 0.9 x 100


def test_lengths_scale_with_the_side() -> None:
    blur = CORRUPTIONS["defocus blur"]
    assert blur.strength(1, 224, 300) == Strength((3, 0.1), 1.0)
    assert blur.strength(1, 32, 32) == Strength((0.3, 0.4), 1.0)
    assert blur.strength(5, 64, 64) == Strength((1.5, 0.1), 2.0)
    assert blur.strength(5, 112, 112) == Strength((10, 0.5), 0.5)


def test_a_store_is_corrupted_where_it_is_fetched() -> None:
    images = pictures(6, 1, 12, 12)
    store = CorruptedStore(MemoryStore(images), "gaussian noise", 3, seed=9)
    assert len(store) == 6
    expected = corrupt(images, "gaussian noise", 3, ids_B=torch.arange(6), seed=9)
    assert torch.equal(store.fetch([4, 1]), expected[[4, 1]])


@pytest.mark.parametrize("images", [level(0, 7), torch.zeros(1, 2, 8, 8), torch.zeros(1, 8, 8, dtype=torch.uint8)])
def test_what_is_no_picture_is_refused(images: torch.Tensor) -> None:
    with pytest.raises(DataError, match="corruptions take uint8 pictures"):
        corrupt(images, "fog", 1, ids_B=ID)


def test_names_and_severities_are_checked() -> None:
    with pytest.raises(UsageError, match="unknown corruption 'fgo'; did you mean 'fog'"):
        corrupt(level(0), "fgo", 1, ids_B=ID)
    with pytest.raises(ValueError, match="severity must be between 1 and 5, got 6"):
        corrupt(level(0), "fog", 6, ids_B=ID)


@pytest.mark.parametrize("text", ["", "0-2", "6", "x", "1-", "1,3-2"])
def test_severities_are_numbers_and_ranges(text: str) -> None:
    with pytest.raises(UsageError, match="severities must be numbers from 1 to 5"):
        chosen_severities(text)
