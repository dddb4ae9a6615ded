"""The drawn patterns: fixed bits, equal classes, no picture twice, and little but the pattern that tells its class."""

import hashlib
import math

import numpy as np
import pytest
import torch

from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import UsageError
from counterpoint.data.sets.patterns import NAME, NUM_PICTURES, PATTERNS, SIDE, draw_pictures
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from data.silent_progress import silent

NUM_CLASSES = 8


@pytest.fixture(scope="module")
def source() -> Source:
    return open_source(NAME, SourceSettings(), progress=silent)


@pytest.fixture(scope="module")
def pixels(source: Source) -> torch.Tensor:
    return source.store.fetch(range(NUM_PICTURES))


def test_classes_are_equally_large_and_named(source: Source) -> None:
    assert (source.kind, source.shape, len(source)) == ("images", (1, SIDE, SIDE), NUM_PICTURES)
    assert source.labels is not None
    assert source.labels.bincount().tolist() == [NUM_PICTURES // NUM_CLASSES] * NUM_CLASSES
    assert source.class_names == tuple(PATTERNS)


def test_a_picture_depends_on_seed_and_number_only(pixels: torch.Tensor) -> None:
    numbers = torch.tensor([3999, 0, 1777, 0])
    assert torch.equal(draw_pictures(numbers), pixels[numbers])
    assert torch.equal(draw_pictures(numbers[:1]), pixels[3999:])
    others = draw_pictures(torch.arange(64), seed=1)
    assert not any(torch.equal(one, other) for one, other in zip(others, pixels[:64], strict=True))


def test_the_bits_are_those_of_the_first_version(pixels: torch.Tensor) -> None:
    """Figures in the documents are of these pictures; whoever changes them measures again."""
    assert hashlib.sha256(pixels.numpy().tobytes()).hexdigest()[:16] == "cf1367faf4c232e8"


def test_no_picture_is_there_twice_or_nearly(pixels: torch.Tensor) -> None:
    """So that none that is held out was trained on: the closest two differ by much more than noise alone makes."""
    flat = pixels.flatten(1).float()
    flat = torch.nn.functional.normalize(flat - flat.mean(1, keepdim=True))
    similar = flat @ flat.T - 2.0 * torch.eye(NUM_PICTURES)
    grain = 40 / 255 / math.sqrt(3)  # standard deviation of the noise
    # Correlation of two drawings of one picture under other noise: half of it dark, half light, at the least contrast.
    of_one = 0.2**2 / (0.2**2 + grain**2)
    assert float(similar.max()) < of_one
    assert len({row.numpy().tobytes() for row in pixels}) == NUM_PICTURES


def test_grey_levels_and_light_tell_no_class(source: Source, pixels: torch.Tensor) -> None:
    """Each pixel has the same mean in all classes, but for chance: what is in front is as often dark as light."""
    assert source.labels is not None
    number_N = source.labels
    means = torch.stack([pixels[number_N == number].float().mean((0, 1)) for number in range(NUM_CLASSES)])
    deviation = float(pixels.float().std())
    # Of 8192 means of 500 pictures the farthest lies below 5 standard errors.
    furthest = float((means - pixels.float().mean()).abs().max())
    assert furthest < 5 * deviation / math.sqrt(NUM_PICTURES / NUM_CLASSES)
    assert len(np.unique(pixels.numpy())) == 256


def stripe_angle(picture: np.ndarray) -> float:
    """Oracle: direction of the strongest wave of at most 15 pixels, in degrees from 0 to 180, by Fourier transform."""
    power = np.abs(np.fft.fft2(picture - picture.mean(), (256, 256))) ** 2
    wave_y, wave_x = np.meshgrid(np.fft.fftfreq(256), np.fft.fftfreq(256), indexing="ij")
    power[np.hypot(wave_y, wave_x) < 1 / 15] = 0.0  # shades, which are wider than any pattern
    place = np.unravel_index(np.argmax(power), power.shape)
    return math.degrees(math.atan2(-wave_y[place], wave_x[place])) % 180.0


def test_stripes_run_as_their_names_say(source: Source, pixels: torch.Tensor) -> None:
    # The wave runs across the stripes; rising stripes go up to the right, and their wave down.
    across = {"vertical stripes": 0.0, "horizontal stripes": 90.0, "rising stripes": 135.0, "falling stripes": 45.0}
    for name, expected in across.items():
        places = range(source.class_names.index(name), 320, NUM_CLASSES)
        away = [(stripe_angle(pixels[place, 0].numpy()) - expected + 90.0) % 180.0 - 90.0 for place in places]
        assert max(map(abs, away)) < 18.0, name  # they turn by up to 11 degrees, and are bent


def test_a_split_or_labels_from_elsewhere_are_refused() -> None:
    for settings, words in (
        (SourceSettings(split="test"), "one part only"),
        (SourceSettings(labels="mine.csv"), "its own labels"),
    ):
        with pytest.raises(UsageError, match=words):
            open_source(NAME, settings, progress=silent)
    assert open_source(NAME, SourceSettings(labels="none"), progress=silent).labels is None
