"""Colours of views: statistics by loops, related and unrelated embeddings, and what a shortcut looks like."""

import numpy as np
import pytest
import torch
from torch import Tensor

from counterpoint.diagnostics.alignment import CLOSE, colour_statistics, followed, shortcut


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_statistics_are_mean_and_deviation_of_each_channel() -> None:
    pictures = draw(5, 3, 4, 6)
    found = colour_statistics(pictures).numpy()
    for place, picture in enumerate(pictures.numpy()):
        expected = [*(channel.mean() for channel in picture), *(channel.std() for channel in picture)]
        assert found[place] == pytest.approx(expected)


def test_the_share_that_follows_is_that_of_the_loops() -> None:
    x, z = draw(60, 3), draw(60, 8, seed=1)
    unit = z.numpy() / np.linalg.norm(z.numpy(), axis=1, keepdims=True)
    hits = 0
    for i in range(60):
        others = [j for j in range(60) if j != i]
        closest = max(others, key=lambda j: unit[i] @ unit[j])
        by_colour = sorted(others, key=lambda j: float(np.linalg.norm(x[i].numpy() - x[j].numpy())))
        hits += closest in by_colour[: round(CLOSE * 59)]
    assert followed(x, z) == hits / 60


def test_an_embedding_of_colours_follows_them_and_any_other_does_not() -> None:
    colours = draw(1000, 6)
    same = shortcut((colours, colours + 0.01 * draw(1000, 6, seed=1)), torch.tanh(colours @ draw(6, 32, seed=2)))
    assert same.overlap == pytest.approx(1.0, abs=1e-3)
    assert same.followed is not None
    assert same.followed > 0.8
    other = shortcut((colours, draw(1000, 6, seed=3)), draw(1000, 32, seed=4))
    assert other.overlap == pytest.approx(0.5, abs=0.05)
    assert other.followed == pytest.approx(CLOSE, abs=0.03)


def test_pictures_without_colours_tell_nothing() -> None:
    grey = colour_statistics(torch.full((50, 3, 4, 4), 0.5))
    assert shortcut((grey, grey), draw(50, 8)).overlap == 0.5
