"""Samples of some classes, all but those of a list, and two sources end to end: what is fetched, numbered, refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from counterpoint.core.errors import DataError
from counterpoint.data.source import Source
from counterpoint.data.sources import joined
from data.opened_data import numbers_of, open_data, refusal
from data.picture_files import save_plain
from refusals import refused

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
LABELS = ["dog", "cat", "ship", "cat", "dog", "ship"]


def opened(rows: np.ndarray = ROWS, labels: list[str] = LABELS, classes: str = "all") -> Source:
    return open_data(rows, labels, classes=classes)


def test_the_samples_of_some_classes_are_numbered_anew_in_the_order_of_the_source() -> None:
    part = opened(classes="ship, cat")
    assert part.class_names == ("cat", "ship")
    assert numbers_of(part) == [0, 1, 0, 1]
    assert part.sample_names == ("1", "2", "3", "5")
    assert torch.equal(part.store.fetch([3, 0]), torch.from_numpy(ROWS[[5, 1]]))
    assert len({part.fingerprint, opened().fingerprint, opened(classes="cat").fingerprint}) == 3


def test_a_class_that_is_not_there_is_named() -> None:
    assert "has no class 'shop'; did you mean 'ship'" in refusal(ROWS, LABELS, classes="cat,shop")
    assert "array has no labels" in refusal(ROWS, classes="cat")


def test_two_sources_end_to_end_share_the_classes_of_the_first() -> None:
    both = joined(opened(), opened(ROWS[:3] + 100, ["ship", "cat", "ship"]))
    assert both.class_names == ("cat", "dog", "ship")
    assert numbers_of(both) == [1, 0, 2, 0, 1, 2, 2, 0, 2]
    assert both.store.fetch([7, 0, 6, 5])[:, 0].tolist() == [102, 0, 100, 10]
    assert len(both) == len(both.sample_names) == 9


@pytest.mark.parametrize(
    ("rows", "labels", "words"),
    [
        (ROWS, ["cat", "emu", "cat", "yak", "dog", "cat"], "2 of 4 classes of array are not in array: emu, yak; what "
         "both have: --source.classes cat,dog"),
        (ROWS[:, :1], ["cat"] * 6, "samples of array have the shape (1,), those of array (2,)"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused(rows: np.ndarray, labels: list[str], words: str) -> None:
    assert words in refused(DataError, joined, opened(), opened(rows, labels))


def test_classes_that_the_first_has_no_sample_of_are_refused() -> None:
    bank, queries = opened(), opened(ROWS[:4], ["ship", "emu", "cat", "emu"])
    named_only = replace(bank, class_names=(*bank.class_names, "emu"))  # named, without a sample
    for source in (bank, named_only):
        with pytest.raises(DataError, match="1 of 3 classes of array are not in array: emu"):
            joined(source, queries)


# --- samples that a list leaves out


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
