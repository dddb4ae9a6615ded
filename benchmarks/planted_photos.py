"""Photographs as files with odd names, in which copies and damage are planted; the list of them is kept.

Used by `whole_journey.py`. The photographs come from archives of JPEG files: `jpeg` (all files end to end), `offsets`
and `labels`, with `class_names`, as one `train.npz` and one `test.npz` have them.
"""

import io
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

NUM_TRAIN, NUM_TEST = 2600, 400
NUM_EACH = 6  # of every kind of fault
SEED = 0
# Names that people give: {n} keeps them apart. Each goes to every so many files.
ODD_NAMES = (
    "IMG_{n:05d}.JPG",
    "holiday photo {n} (1).jpeg",
    "été à Genève – {n}.jpg",
    "写真 {n}.jpg",
    'O\'Brien "the {n}".Jpg',
    "50% off #{n} & more + [old].jpg",
    "Straße/Möbel {n}/scan.JPEG",
    "2019.06.{n}.final.v2.jpg",
    "--{n}.jpg",
    "$HOME {n};ls.jpg",
)
LEFT_OUT = ("Faces_easy",)  # of Caltech-101: the pictures of Faces once more


@dataclass(frozen=True)
class Fault:
    """One planted fault.

    Attributes:
        kind: what was done.
        codes: observations of the audit, one of which has to name it.
        names: of the files it concerns; of copies all of them.
    """

    kind: str
    codes: tuple[str, ...]
    names: tuple[str, ...]


@dataclass
class Planted:
    """A folder of photographs.

    Attributes:
        folder: with `train` and `test`.
        num_good: files that are pictures by name and content.
        faults: what was planted.
        near: pairs of a photograph and its near copy in the training part.
    """

    folder: Path
    num_good: int = 0
    faults: list[Fault] = field(default_factory=list)
    near: list[tuple[str, str]] = field(default_factory=list)


def plant(archives: Path, folder: Path) -> Planted:
    """Write 3,000 photographs and the faults among them.

    Args:
        archives: folder with `train.npz` and `test.npz`.
        folder: to make.
    """
    draw, planted = random.Random(SEED), Planted(folder)
    train = _export(archives / "train.npz", folder, "train", NUM_TRAIN, draw)
    test = _export(archives / "test.npz", folder, "test", NUM_TEST, draw)
    planted.num_good = len(train) + len(test)
    draw.shuffle(train)
    _plant_copies(planted, train)
    _plant_damage(planted, train)
    _plant_forms(planted, train)
    return planted


def _export(archive: Path, folder: Path, split: str, number: int, draw: random.Random) -> list[str]:
    """Write so many photographs, byte for byte, into folders by class; returns their names below the folder."""
    with np.load(archive) as opened:
        offsets, labels = opened["offsets"], opened["labels"]
        jpeg, classes = opened["jpeg"].tobytes(), [str(name) for name in opened["class_names"]]
    places = [place for place in range(len(labels)) if classes[labels[place]] not in LEFT_OUT]
    chosen = sorted(draw.sample(places, min(number, len(places))))
    names = []
    for count, place in enumerate(chosen):
        name = f"{split}/{classes[labels[place]]}/{ODD_NAMES[count % len(ODD_NAMES)].format(n=count)}"
        _write(folder / name, jpeg[offsets[place] : offsets[place + 1]])
        names.append(name)
    return names


def _plant_copies(planted: Planted, train: list[str]) -> None:
    """Plant copies byte for byte, near copies, and both of training photographs in the test part."""
    for _ in range(NUM_EACH):
        name = train.pop()
        copy = _beside(name, "copy of {stem}.jpg")
        _write(planted.folder / copy, (planted.folder / name).read_bytes())
        planted.faults.append(Fault("copy, byte for byte", ("same-pixels", "near-copies"), (name, copy)))
    for kind, (suffix, change) in NEAR.items():
        for _ in range(NUM_EACH):
            name = train.pop()
            copy = _beside(name, f"{kind} {{stem}}{suffix}")
            _write(planted.folder / copy, change(Image.open(planted.folder / name)))
            planted.faults.append(Fault(f"near copy: {kind}", ("near-copies",), (name, copy)))
            planted.near.append((name, copy))
    for number in range(NUM_EACH):
        name = train.pop()
        copy = _beside(name, "seen before {stem}.jpg").replace("train/", "test/", 1)
        content = (planted.folder / name).read_bytes()
        _write(planted.folder / copy, content if number % 2 else _reencoded(Image.open(io.BytesIO(content))))
        planted.faults.append(Fault("training photograph in the test part", ("leakage",), (name, copy)))
    planted.num_good += NUM_EACH * (2 + len(NEAR))


def _plant_damage(planted: Planted, train: list[str]) -> None:
    """Replace photographs by files that are no pictures any more."""
    for _ in range(NUM_EACH):
        cut, empty, text = (train.pop() for _ in range(3))
        jpeg = (planted.folder / cut).read_bytes()
        for name, content, kind in (
            (cut, jpeg[: len(jpeg) * 6 // 10], "cut off"),
            (empty, b"", "no bytes"),
            (text, b"This is a note, not a picture.\n", "text named as a picture"),
        ):
            (planted.folder / name).write_bytes(content)
            planted.faults.append(Fault(kind, ("unreadable",), (name,)))
    planted.num_good -= NUM_EACH * 3


def _plant_forms(planted: Planted, train: list[str]) -> None:
    """Replace photographs by pictures of unusual forms, such as those that show nothing."""
    for _ in range(NUM_EACH):
        for kind, (code, pattern, change) in FORMS.items():
            name = train.pop()
            place = planted.folder / name
            content = change(Image.open(io.BytesIO(place.read_bytes())))
            place.unlink()
            changed = _beside(name, pattern)
            _write(planted.folder / changed, content)
            planted.faults.append(Fault(kind, (code,), (changed,)))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _beside(name: str, pattern: str) -> str:
    """A name in the class folder of another file, whose sub-folders and stem fill in the pattern."""
    split, label, *rest = Path(name).parts
    stem = " ".join([*rest[:-1], Path(rest[-1]).stem])
    return f"{split}/{label}/{pattern.format(stem=stem)}"


def _saved(picture: Image.Image, form: str, **options: object) -> bytes:
    """The bytes of the picture's file."""
    stream = io.BytesIO()
    picture.save(stream, form, **options)
    return stream.getvalue()


def _reencoded(picture: Image.Image) -> bytes:
    return _saved(picture, "JPEG", quality=60)


def _smaller(picture: Image.Image) -> bytes:
    return _saved(picture.resize((picture.width * 3 // 4, picture.height * 3 // 4), Image.Resampling.LANCZOS), "PNG")


def _brighter(picture: Image.Image) -> bytes:
    return _saved(ImageEnhance.Brightness(picture).enhance(1.15), "JPEG", quality=90)


def _nearly_blank(picture: Image.Image) -> bytes:
    draw = np.random.default_rng(sum(picture.tobytes()))  # no two alike
    values = draw.integers(126, 129, (*picture.size, 3))
    return _saved(Image.fromarray(values.astype(np.uint8)), "PNG")


Change = Callable[[Image.Image], bytes]
NEAR: dict[str, tuple[str, Change]] = {
    "smaller file": (".jpg", _reencoded),
    "resized": (".png", _smaller),
    "brighter": (".JPG", _brighter),
}
FORMS: dict[str, tuple[str, str, Change]] = {
    "nearly one colour": ("blank", "{stem} blank.png", _nearly_blank),
}
