"""The preview sheet: the originals first, then what training will see."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import counterpoint as cp
from counterpoint.core.settings import SourceSettings, ViewSettings
from counterpoint.data.sources import open_source
from counterpoint.data.views.drawer import ViewDrawer
from counterpoint.data.views.presets import plan_views
from counterpoint.engine.progress import Reporter

TILE, GAP, HEADER = 96, 6, 22


@pytest.fixture
def images(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (12, 8, 8), dtype=np.uint8)


def save_pictures(folder: Path, count: int, rng: np.random.Generator) -> None:
    folder.mkdir()
    for number in range(count):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / f"{number:03}.png")


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image)


def tile(sheet: np.ndarray, row: int, column: int) -> np.ndarray:
    left = GAP + column * (TILE + GAP) + (GAP if column else 0)
    top = HEADER + row * (TILE + GAP)
    return sheet[top : top + TILE, left : left + TILE]


def test_the_sheet_has_a_row_per_sample_and_a_column_per_view(tmp_path: Path, images: np.ndarray) -> None:
    path = cp.preview(images, out=tmp_path / "sheet.png", num_samples=3, num_views=4, quiet=True)
    assert path == tmp_path / "sheet.png"
    height, width = 3 * (TILE + GAP) + GAP + HEADER, 5 * (TILE + GAP) + 2 * GAP
    assert pixels(path).shape == (height, width, 3)
    few = cp.preview(images[:2], out=tmp_path / "few.png", num_samples=9, num_views=1, quiet=True)
    assert pixels(few).shape == (2 * (TILE + GAP) + GAP + HEADER, 2 * (TILE + GAP) + 2 * GAP, 3)


def test_the_first_column_shows_samples_unchanged_and_the_others_views_that_differ(
    tmp_path: Path, images: np.ndarray
) -> None:
    sheet = pixels(cp.preview(images, out=tmp_path / "a.png", num_samples=4, num_views=3, quiet=True))
    enlarged = {image.repeat(12, axis=0).repeat(12, axis=1).tobytes() for image in images}
    for row in range(4):
        shown = [tile(sheet, row, column)[..., 0].copy() for column in range(4)]
        assert shown[0].tobytes() in enlarged
        assert len({view.tobytes() for view in shown}) == 4
    same = pixels(cp.preview(images, out=tmp_path / "b.png", num_views=3, quiet=True, views={"preset": "none"}))
    assert np.array_equal(tile(same, 0, 0), tile(same, 0, 3))


def test_the_sheet_is_a_function_of_data_and_seed(tmp_path: Path, images: np.ndarray) -> None:
    sheets = [
        pixels(cp.preview(images, out=tmp_path / f"{number}.png", quiet=True, seed=seed))
        for number, seed in enumerate((1, 1, 2))
    ]
    assert np.array_equal(sheets[0], sheets[1])
    assert sheets[0].shape == sheets[2].shape
    assert not np.array_equal(sheets[0], sheets[2])


def test_the_views_are_those_that_training_draws(tmp_path: Path, images: np.ndarray) -> None:
    sheet = pixels(cp.preview(images, out=tmp_path / "a.png", num_samples=12, num_views=4, quiet=True, seed=3))
    drawer = ViewDrawer(plan_views(ViewSettings(preset="digits")), torch.zeros(1), torch.ones(1), 3)
    samples, ids = torch.from_numpy(images)[:, None], torch.arange(12)
    for column, (epoch, view) in enumerate(((0, 0), (0, 1), (1, 0), (1, 1)), start=1):
        drawn = (drawer.draw(samples, ids, epoch, torch.full((12,), view)) * 255).round().byte().numpy()[:, 0]
        shown = {tile(sheet, row, column)[::12, ::12, 0].tobytes() for row in range(12)}
        assert shown == {image.tobytes() for image in drawn}


def test_an_earlier_sheet_is_replaced_when_asked(tmp_path: Path, images: np.ndarray) -> None:
    path = tmp_path / "sheet.png"
    path.write_bytes(b"a drawing of last year")
    assert pixels(cp.preview(images, out=path, quiet=True, overwrite=True)).ndim == 3


def test_colour_and_oblong_images_are_drawn(tmp_path: Path, rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (3, 20, 120, 3), dtype=np.uint8)
    sheet = pixels(cp.preview(images, out=tmp_path / "a.png", num_samples=1, num_views=1, quiet=True))
    shown = tile(sheet, 0, 0)
    assert (shown[16:] == 255).all()  # 120 x 20 pixels become 96 x 16
    assert shown[:16].std() > 10


def test_the_sheet_is_the_same_once_everything_was_read(tmp_path: Path, rng: np.random.Generator) -> None:
    save_pictures(tmp_path / "pictures", 20, rng)
    before = pixels(cp.preview(tmp_path / "pictures", out=tmp_path / "before.png", quiet=True))
    source = open_source(tmp_path / "pictures", SourceSettings(), progress=Reporter(quiet=True).bar)
    after = pixels(cp.preview(tmp_path / "pictures", out=tmp_path / "after.png", quiet=True))
    of_array = pixels(cp.preview(source.store.fetch(range(20)), out=tmp_path / "array.png", quiet=True))
    assert np.array_equal(before, after)
    assert np.array_equal(before, of_array)


def test_what_is_left_out_is_named(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pictures"
    save_pictures(folder, 4, rng)
    (folder / "cut.png").write_bytes((folder / "000.png").read_bytes()[:400])
    (folder / "text.jpg").write_text("not a picture", encoding="utf-8")
    (folder / "notes.md").write_text("text", encoding="utf-8")
    reasons = {"cut.png": "truncated", "text.jpg": "not an image"}
    path = cp.preview(folder, out=tmp_path / "sheet.png", num_samples=9, source={"max_bad": 0.5})
    said = capsys.readouterr().err
    for name, reason in {**reasons, "notes.md": "no image suffix"}.items():
        assert said.count(f"skipped {name}: ") == 1
        assert reason in said
    assert pixels(path).shape[0] == 4 * (TILE + GAP) + GAP + HEADER  # the good ones are all drawn


def test_it_says_which_views_and_why_and_how_many_are_blank(
    tmp_path: Path, images: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    cp.preview(images, out=tmp_path / "sheet.png")
    said = " ".join(capsys.readouterr().err.split())
    assert "views of preset digits (grey-level images" in said
