"""What is kept of samples, against loops and NumPy; odd collections; pictures within their bytes."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from counterpoint.core.numerics import unit_rows
from counterpoint.evaluation.knn import nearest_others
from counterpoint.runs.sample_collection import (
    MOST_SHEET_BYTES,
    chosen_rows,
    collect,
    dominant_dims,
    picture_sheet,
    principal_scores,
)
from kept_samples import embedded, toy_source


def features(num: int = 60, dims: int = 7, seed: int = 0) -> torch.Tensor:
    return unit_rows(torch.randn(num, dims, generator=torch.Generator().manual_seed(seed)))


def tile(content: bytes, place: int, columns: int, side: int) -> np.ndarray:
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    row, column = divmod(place, columns)
    return pixels[row * side : (row + 1) * side, column * side : (column + 1) * side]


def test_every_class_keeps_its_share_on_the_map() -> None:
    labels = torch.tensor([0] * 700 + [1] * 200 + [2] * 90 + [-1] * 10)[torch.randperm(1000)]
    rows = chosen_rows(1000, labels, at_most=100)
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(rows) == 100
    counts = {label: int((labels[rows] == label).sum()) for label in (0, 1, 2, -1)}
    assert all(abs(counts[label] - share) <= 1 for label, share in ((0, 70), (1, 20), (2, 9), (-1, 1)))
    assert chosen_rows(7, None).tolist() == list(range(7))


def test_scores_are_those_of_a_singular_value_decomposition() -> None:
    unit = features()
    scores, share = principal_scores(unit)
    left, values, _ = np.linalg.svd((unit - unit.mean(0)).double().numpy(), full_matrices=False)
    np.testing.assert_allclose(np.abs(scores.numpy()), np.abs(left * values), atol=1e-6)
    np.testing.assert_allclose(share.numpy(), values**2 / (values**2).sum(), atol=1e-6)


@pytest.mark.parametrize("unit", [torch.ones(4, 3) / 3**0.5, torch.zeros(4, 3), torch.full((5, 1), -1.0)], ids=str)
def test_equal_features_lie_in_one_place(unit: torch.Tensor) -> None:
    scores, share = principal_scores(unit)
    assert scores.shape[1] >= 2
    assert not scores.any()
    assert not share.any()


def test_neighbours_are_those_of_a_loop() -> None:
    unit = features(700)  # more than a block
    found = nearest_others(unit, 3).positions_QK
    for row in range(0, 700, 50):
        cosines = unit @ unit[row]
        cosines[row] = -2.0
        assert found[row].tolist() == cosines.argsort(descending=True)[:3].tolist()


def test_a_silent_sample_has_no_strongest_dimension() -> None:
    assert dominant_dims(torch.tensor([[0.0, 1.0, 0.5], [0.0, 0.0, 0.0], [0.3, 0.1, 0.2]])).tolist() == [1, -1, 0]


def test_figures_of_dimensions_are_those_of_a_loop() -> None:
    labels = np.arange(40) % 2
    values = np.zeros((40, 4))
    values[labels == 1, 0] = np.linspace(1, 2, 20)
    values[:, 1] = 1.0
    values[3, 2] = 5.0
    found = collect(toy_source(None, labels, [f"{n}" for n in range(40)], ["a", "b"]), **embedded(values))
    dims, unit = found.dims, values / np.linalg.norm(values, axis=1, keepdims=True)
    np.testing.assert_allclose(dims.fires_D, [0.5, 1.0, 1 / 40, 0.0])
    np.testing.assert_allclose(dims.expected_D, np.abs(unit).mean(0), atol=1e-6)
    np.testing.assert_allclose(dims.purity_D, [1.0, 0.5, 1.0, np.nan])
    assert dims.class_D.tolist() == [1, -1, -1, -1]  # one sample, or none, is no evidence
    assert dims.top_DT[0].tolist() == np.argsort(-unit[:, 0], kind="stable")[:8].tolist()
    assert dims.top_DT[2].tolist() == [3] + 7 * [-1]
    assert (dims.top_DT[3] == -1).all()
    assert found.dominant_N[3] == 2
    assert found.sheet is None


def test_pictures_come_back_in_their_places() -> None:
    images = np.random.default_rng(0).integers(0, 256, (11, 8, 8), dtype=np.uint8)
    source = toy_source(images, None, [f"{n}" for n in range(11)], [])
    sheet = picture_sheet(source, list(range(11)))
    assert (sheet.side, sheet.columns) == (8, 4)
    for place in range(11):
        np.testing.assert_array_equal(tile(sheet.content, place, 4, 8)[..., 0], images[place])


def test_a_picture_that_is_no_square_lies_on_grey() -> None:
    source = toy_source(np.zeros((2, 4, 10, 3), np.uint8), None, ["a", "b"], [])
    found = tile(picture_sheet(source, [0, 1]).content, 1, 2, 10)
    assert found[:3].min() == found[-3:].min() == 128
    assert not found[3:7].any()


@pytest.mark.parametrize("channels", [1, 2, 4, 13])
def test_any_number_of_channels_is_shown(channels: int) -> None:
    source = toy_source(np.zeros((3, 8, 8), np.uint8), None, list("abc"), [])
    images = torch.randint(0, 256, (3, channels, 8, 8), dtype=torch.uint8)
    object.__setattr__(source.store, "samples", images)
    found = tile(picture_sheet(source, [0, 1, 2]).content, 2, 2, 8)
    shown = images[2, :3] if channels >= 3 else images[2, :1].expand(3, -1, -1)
    np.testing.assert_array_equal(found, shown.permute(1, 2, 0))


def test_pictures_become_coarser_until_they_fit() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (60, 48, 48, 3), dtype=np.uint8)
    source = toy_source(noise, None, [f"{n}" for n in range(60)], [])
    full, small = picture_sheet(source, list(range(60))), picture_sheet(source, list(range(60)), 60_000)
    assert full.side == 48
    assert small.side < 48
    assert len(small.content) <= 60_000 < len(full.content) <= MOST_SHEET_BYTES


@pytest.mark.parametrize(
    ("num", "labels", "values"),
    [
        (5, [0] * 5, np.eye(5)),
        (2, None, np.ones((2, 3))),
        (1, [0], np.ones((1, 1))),
        (6, None, np.zeros((6, 4))),
        (400, list(range(300)) + [-1] * 100, np.random.default_rng(0).normal(size=(400, 3))),
    ],
    ids=["five of one class", "two equal ones", "one", "all silent", "300 classes"],
)
def test_odd_collections(num: int, labels: list[int] | None, values: np.ndarray) -> None:
    numbers = None if labels is None else np.array(labels)
    names = [f"{n}" for n in range(num)]
    found = collect(toy_source(None, numbers, names, [f"c{n}" for n in range(300)]), **embedded(values))
    assert len(found) == num
    assert found.scores["embedding"].shape[1] >= 2
    assert found.neighbours_NM.max() < num
