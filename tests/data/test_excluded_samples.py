"""Samples that a list names are left out of any form of data; a list that does nothing is refused."""

from pathlib import Path

import numpy as np
import pytest

from data.opened_data import numbers_of, open_data, refusal
from data.picture_files import save_plain


def listed(names: str, folder: Path) -> str:
    (folder / "exclude.txt").write_text(names, encoding="utf-8")
    return str(folder / "exclude.txt")


@pytest.fixture
def photos(tmp_path: Path, rng: np.random.Generator) -> Path:
    save_plain(tmp_path / "photos", ["a/1.png", "a/2.png", "b/1.png", "b/2.png"], rng)
    return tmp_path / "photos"


def test_files_are_left_out_with_their_labels(photos: Path, tmp_path: Path) -> None:
    whole = open_data(photos)
    source = open_data(photos, exclude=listed("# copies\nb/1.png\n\na/2.png\n", tmp_path))
    assert source.sample_names == ("a/1.png", "b/2.png")
    assert numbers_of(source) == [0, 1]
    assert source.class_names == whole.class_names
    assert (source.store.fetch([1]) == whole.store.fetch([3])).all()
    assert source.fingerprint != whole.fingerprint


def test_a_file_that_cannot_be_read_may_be_on_the_list(photos: Path, tmp_path: Path) -> None:
    (photos / "a" / "broken.png").write_bytes(b"no")
    assert len(open_data(photos, exclude=listed("a/broken.png\na/1.png\n", tmp_path), max_bad=0.5)) == 3


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("", "names no sample"),
        ("a/3.png\n", "has no sample 'a/3.png'"),
        ("a/1.png\na/2.png\nb/1.png\nb/2.png\n", "names all 4 samples"),
    ],
)
def test_a_list_without_effect_is_refused(names: str, said: str, photos: Path, tmp_path: Path) -> None:
    assert said in refusal(photos, exclude=listed(names, tmp_path))
