"""The drawn patterns: fixed bits, equal classes, no picture twice, and little but the pattern that tells its class."""

import hashlib

import pytest
import torch

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.sets.patterns import NAME, NUM_PICTURES, PATTERNS, SIDE, draw_pictures
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from data.opened_data import silent

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


def test_a_split_or_labels_from_elsewhere_are_refused() -> None:
    for settings, words in (
        (SourceSettings(split="test"), "one part only"),
        (SourceSettings(labels="mine.csv"), "its own labels"),
    ):
        with pytest.raises(UsageError, match=words):
            open_source(NAME, settings, progress=silent)
    assert open_source(NAME, SourceSettings(labels="none"), progress=silent).labels is None
