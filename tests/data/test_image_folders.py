"""Image files as a source: folders with splits (Tiny ImageNet, ImageNet)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from counterpoint.core.errors import DataError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.image_folders import has_splits
from counterpoint.data.source import Source
from counterpoint.data.sources import CATALOGUE, open_source
from data.opened_data import refusal, silent

FOLDERS = ("n01443537", "n01629819", "n02123045")


def open_data(path: Path, **settings: Any) -> Source:
    return open_source(path, SourceSettings(image_size=16, **settings), progress=silent)


def save_image(path: Path, rng: np.random.Generator) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path, "JPEG")


def class_of_samples(source: Source) -> dict[str, str]:
    assert source.labels is not None
    numbers = source.labels.tolist()
    return {name: source.class_names[number] for name, number in zip(source.sample_names, numbers, strict=True)}


@pytest.fixture
def tiny(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Tiny ImageNet's layout: boxes beside the training images, one folder of validation images with annotations."""
    root = tmp_path / "tiny-imagenet-200"
    for folder in FOLDERS:
        for number in range(2):
            save_image(root / "train" / folder / "images" / f"{folder}_{number}.JPEG", rng)
        boxes = root / "train" / folder / f"{folder}_boxes.txt"
        boxes.write_text(f"{folder}_0.JPEG\t0\t0\t61\t63\n", encoding="utf-8")
    annotations = []
    for number in range(5):
        save_image(root / "val" / "images" / f"val_{number}.JPEG", rng)
        annotations.append(f"val_{number}.JPEG\t{FOLDERS[number % 3]}\t0\t32\t44\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(annotations), encoding="utf-8")
    for number in range(2):
        save_image(root / "test" / "images" / f"test_{number}.JPEG", rng)
    (root / "wnids.txt").write_text("\n".join(FOLDERS[::-1]), encoding="utf-8")
    return root


@pytest.fixture
def imagenet(tmp_path: Path, rng: np.random.Generator) -> Path:
    """ImageNet's layout: a folder per class in train and in val."""
    root = tmp_path / "imagenet-100"
    for split, count in (("train", 3), ("val", 1)):
        for folder in FOLDERS:
            for number in range(count):
                save_image(root / split / folder / f"{folder}_{number}.JPEG", rng)
    return root


def test_tiny_imagenet_is_recognised_and_its_classes_are_folders(tiny: Path) -> None:
    train = open_data(tiny)
    assert train.class_names == FOLDERS
    assert class_of_samples(train) == {
        f"train/{folder}/images/{folder}_{number}.JPEG": folder for folder in FOLDERS for number in range(2)
    }
    assert train.skipped == ()
    assert "train" in train.notes["source.split"]
    validation = open_data(tiny, split="val")
    assert class_of_samples(validation) == {f"val/images/val_{number}.JPEG": FOLDERS[number % 3] for number in range(5)}
    test = open_data(tiny, split="test")
    assert (len(test), test.labels) == (2, None)
    assert len({train.fingerprint, validation.fingerprint, test.fingerprint}) == 3


def test_tiny_imagenet_is_known_by_name(tiny: Path, tmp_path: Path) -> None:
    for split in ("auto", "val"):
        by_name = open_source("tiny-imagenet", SourceSettings(root=str(tmp_path), split=split), progress=silent)
        assert by_name.sample_names == open_data(tiny, split=split).sample_names
    asked_about = SourceSettings(root=str(tmp_path), split=CATALOGUE["tiny-imagenet"].test_split)
    assert open_source("tiny-imagenet", asked_about, progress=silent).labels is not None  # "test" has none
    with pytest.raises(DataError, match="unpack it there") as caught:
        open_source("tiny-imagenet", SourceSettings(root=str(tmp_path / "nowhere")), progress=silent)
    assert str(tmp_path / "nowhere" / "tiny-imagenet-200") in str(caught.value)


def test_validation_images_without_annotation_are_unlabelled(tiny: Path) -> None:
    path = tiny / "val" / "val_annotations.txt"
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    source = open_data(tiny, split="val")
    assert source.labels is not None
    assert source.labels[0] == -1
    assert (source.labels[1:] >= 0).all()


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
    assert all(name.split("/")[1] == label for name, label in class_of_samples(source).items())
    assert len(open_data(imagenet, split="val")) == 3
    assert open_data(imagenet, labels="none").labels is None


def test_an_unknown_or_absent_split_names_those_there(imagenet: Path, tiny: Path) -> None:
    assert "one of train, val, got 'test'" in refusal(imagenet, split="test")
    assert "one of train, val, test" in refusal(tiny, split="validation")


def test_bad_files_are_named(imagenet: Path) -> None:
    bad = imagenet / "train" / FOLDERS[0] / "bad.JPEG"
    bad.write_bytes(b"no image")
    assert f"train/{FOLDERS[0]}/bad.JPEG" in refusal(imagenet)
    assert [item.name for item in open_data(imagenet, max_bad=0.2).skipped] == [f"train/{FOLDERS[0]}/bad.JPEG"]


@pytest.mark.parametrize("classes", [("train", "car"), ("train", "val"), ("val", "test")])
def test_plain_class_folders_stay_what_they_are(
    classes: tuple[str, str], tmp_path: Path, rng: np.random.Generator
) -> None:
    for name in classes:
        for number in range(2):
            save_image(tmp_path / "photos" / name / f"{number}.jpg", rng)
    assert not has_splits(tmp_path / "photos")
    assert open_data(tmp_path / "photos").class_names == tuple(sorted(classes))
    assert "one part only" in refusal(tmp_path / "photos", split="train")
