"""Corruptions of pictures against their definitions, and their bits against the batch they are computed in."""

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from counterpoint.core.errors import DataError, UsageError
from counterpoint.data.corruptions import (
    CATALOGUE,
    SEVERITIES,
    CorruptedStore,
    CorruptionDraws,
    Strength,
    chosen_severities,
    corrupt,
    plasma,
)
from counterpoint.data.stores import MemoryStore

# Numbers of these grow or fall with the severity; the others' published ones do not.
RISING = ["gaussian noise", "defocus blur", "brightness", "contrast", "jpeg"]


def pictures(num: int, channels: int, height: int, width: int) -> torch.Tensor:
    """Smooth random pictures with an edge in them."""
    coarse = torch.rand(num, channels, 4, 4, generator=torch.Generator().manual_seed(num + height))
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 1)
    smooth[..., width // 3 : width // 2] *= 0.3
    return (smooth * 255).round().to(torch.uint8)


def level(value: int, side: int = 64, channels: int = 1) -> torch.Tensor:
    return torch.full((1, channels, side, side), value, dtype=torch.uint8)


ID = torch.tensor([7])


@pytest.mark.parametrize("name", CATALOGUE)
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


@pytest.mark.parametrize("name", CATALOGUE)
def test_chunks_do_not_change_a_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images, ids = pictures(6, 3, 16, 16), torch.arange(6)
    whole = corrupt(images, name, 4, ids_B=ids)
    monkeypatch.setattr("counterpoint.data.corruptions.CHUNK", 2 * 3 * 16 * 16)
    assert torch.equal(corrupt(images, name, 4, ids_B=ids), whole)


@pytest.mark.parametrize("name", RISING)
@pytest.mark.parametrize("side", [32, 100])
def test_severity_grows(name: str, side: int) -> None:
    images, ids = pictures(8, 3, side, side), torch.arange(8)
    distance = [
        (corrupt(images, name, severity, ids_B=ids).float() - images).square().mean().item() for severity in SEVERITIES
    ]
    assert distance == sorted(distance)
    assert distance[0] < distance[-1]


@pytest.mark.parametrize("name", sorted(set(CATALOGUE) - {"contrast", "brightness", "jpeg", "pixelate"}))
def test_seed_and_id_choose_what_is_drawn(name: str) -> None:
    images = pictures(1, 3, 32, 32)
    first = corrupt(images, name, 5, ids_B=ID, seed=0)
    is_drawn = name != "defocus blur"
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


@pytest.mark.parametrize("radius", [0.4, 1.0, 2.0, 5.0])
def test_defocus_is_the_mean_over_a_disc(radius: float) -> None:
    point = level(0, 31)
    point[0, 0, 15, 15] = 255
    found = CATALOGUE["defocus blur"].apply(point, Strength((radius, 0.0)), CorruptionDraws(0, "", ID))[0, 0]
    rows, columns = torch.meshgrid(torch.arange(-15, 16), torch.arange(-15, 16), indexing="ij")
    disc = (rows**2 + columns**2 <= radius**2).float()
    torch.testing.assert_close(found, disc / disc.sum())


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
    clouds = plasma(draws, (32, 32), 2.0)
    found = CATALOGUE["fog"].apply(image, strength, draws)
    torch.testing.assert_close(found, (image / 255 + clouds) / 2)


def test_clouds_without_decay_are_uniform_about_the_mean_of_their_neighbours() -> None:
    draws = CorruptionDraws(0, "fog", torch.arange(64))
    noise = 2.0 * draws.uniform(4) - 1.0  # of a grid of two: the centre, then the two edges
    clouds = plasma(draws, (2, 2), 1.0)[:, 0]
    centre = noise[:, 0]
    expected = torch.stack([torch.zeros(64), centre / 2 + noise[:, 1], centre / 2 + noise[:, 2], centre], 1)
    expected = expected - expected.amin(1, keepdim=True)
    torch.testing.assert_close(clouds.flatten(1), expected / expected.amax(1, keepdim=True))


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
