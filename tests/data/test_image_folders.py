"""Image files as a source: folders with splits (Tiny ImageNet, ImageNet)."""

from pathlib import Path

import numpy as np
import pytest

from counterpoint.data.formats.image_folders import has_splits
from counterpoint.data.sources import CATALOGUE
from data.opened_data import labels_of, numbers_of, open_data, refusal
from data.picture_files import save_plain

FOLDERS = ("n01443537", "n01629819", "n02123045")


@pytest.fixture
def tiny(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Tiny ImageNet's layout: boxes beside the training images, one folder of validation images with annotations."""
    root = tmp_path / "tiny-imagenet-200"
    for folder in FOLDERS:
        save_plain(root / "train" / folder / "images", [f"{folder}_{number}.JPEG" for number in range(2)], rng)
        boxes = root / "train" / folder / f"{folder}_boxes.txt"
        boxes.write_text(f"{folder}_0.JPEG\t0\t0\t61\t63\n", encoding="utf-8")
    save_plain(root / "val" / "images", [f"val_{number}.JPEG" for number in range(5)], rng)
    annotations = [f"val_{number}.JPEG\t{FOLDERS[number % 3]}\t0\t32\t44\t62\n" for number in range(5)]
    (root / "val" / "val_annotations.txt").write_text("".join(annotations), encoding="utf-8")
    save_plain(root / "test" / "images", [f"test_{number}.JPEG" for number in range(2)], rng)
    (root / "wnids.txt").write_text("\n".join(FOLDERS[::-1]), encoding="utf-8")
    return root


@pytest.fixture
def imagenet(tmp_path: Path, rng: np.random.Generator) -> Path:
    """ImageNet's layout: a folder per class in train and in val."""
    root = tmp_path / "imagenet-100"
    for split, count in (("train", 3), ("val", 1)):
        for folder in FOLDERS:
            save_plain(root / split / folder, [f"{folder}_{number}.JPEG" for number in range(count)], rng)
    return root


def test_tiny_imagenet_is_recognised_and_its_classes_are_folders(tiny: Path) -> None:
    train = open_data(tiny)
    assert train.class_names == FOLDERS
    assert labels_of(train) == {
        f"train/{folder}/images/{folder}_{number}.JPEG": folder for folder in FOLDERS for number in range(2)
    }
    assert train.skipped == ()
    assert "train" in train.notes["source.split"]
    validation = open_data(tiny, split="val")
    assert labels_of(validation) == {f"val/images/val_{number}.JPEG": FOLDERS[number % 3] for number in range(5)}
    test = open_data(tiny, split="test")
    assert (len(test), test.labels) == (2, None)
    assert len({train.fingerprint, validation.fingerprint, test.fingerprint}) == 3


def test_tiny_imagenet_is_known_by_name(tiny: Path, tmp_path: Path) -> None:
    for split in ("auto", "val"):
        by_name = open_data("tiny-imagenet", root=str(tmp_path), split=split)
        assert by_name.sample_names == open_data(tiny, split=split).sample_names
    test_split = CATALOGUE["tiny-imagenet"].test_split  # "test" has no labels
    assert open_data("tiny-imagenet", root=str(tmp_path), split=test_split).labels is not None
    message = refusal("tiny-imagenet", root=str(tmp_path / "nowhere"))
    assert "unpack it there" in message
    assert str(tmp_path / "nowhere" / "tiny-imagenet-200") in message


def test_validation_images_without_annotation_are_unlabelled(tiny: Path) -> None:
    path = tiny / "val" / "val_annotations.txt"
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    assert numbers_of(open_data(tiny, split="val")) == [-1, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("val_0.JPEG n01443537", "a tab between"), ("other.JPEG\tn01443537", "names no image"), ("\tn1", "a tab between")],
)
def test_annotations_that_do_not_fit_are_refused(tiny: Path, text: str, complaint: str) -> None:
    (tiny / "val" / "val_annotations.txt").write_text(text, encoding="utf-8")
    assert complaint in refusal(tiny, split="val")


def test_imagenet_is_recognised_and_classes_are_folders(imagenet: Path) -> None:
    source = open_data(imagenet)
    assert (len(source), source.class_names) == (9, FOLDERS)
    assert all(name.split("/")[1] == label for name, label in labels_of(source).items())
    assert len(open_data(imagenet, split="val")) == 3
    assert open_data(imagenet, labels="none").labels is None


def test_an_unknown_or_absent_split_names_those_there(imagenet: Path, tiny: Path) -> None:
    assert "one of train, val, got 'test'" in refusal(imagenet, split="test")
    assert "one of train, val, test" in refusal(tiny, split="validation")


@pytest.mark.parametrize("classes", [("train", "car"), ("train", "val"), ("val", "test")])
def test_plain_class_folders_stay_what_they_are(
    classes: tuple[str, str], tmp_path: Path, rng: np.random.Generator
) -> None:
    save_plain(tmp_path / "photos", [f"{name}/{number}.jpg" for name in classes for number in range(2)], rng)
    assert not has_splits(tmp_path / "photos")
    assert open_data(tmp_path / "photos").class_names == tuple(sorted(classes))
    assert "one part only" in refusal(tmp_path / "photos", split="train")
