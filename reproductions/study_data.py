"""The data of a study: sets in one folder, their official test split, and parts with some samples of each class."""

# N samples

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoint.core.errors import DataError, UsageError, unknown_name
from counterpoint.core.files import read_json, write_atomically, write_json
from counterpoint.core.settings import SourceSettings
from counterpoint.core.validation import build
from counterpoint.data.formats.npz_files import read_npz
from counterpoint.data.source import Source
from counterpoint.data.sources import CATALOGUE, open_source
from counterpoint.engine.progress import Reporter
from reproductions.ncl2024.sprites import factors_at, open_rendered
from reproductions.study import PartPlan

QUIET = Reporter(quiet=True)
HOLDOUT = 0.2  # of sets without a test split
NUM_FOLDS = 5  # of pictures in another style that are one file
SPLITS = ("train", "test")
STYLISED = "stylised"
ENDINGS = (".npz", "", ".tar")  # of a split's file or folder


@dataclass(frozen=True)
class StudySet:
    """A set of pictures that studies are about.

    Attributes:
        folders: of ROOT, each with a file or folder for each split; the first that is there is taken.
        named: a named set of ``train``, read from ROOT where there is no such folder; empty for none.
        train: name of the split that is trained on.
        test: names that the split of queries may have; empty if a share is held out.
        published: folders of ROOT that the named set is read from, as its authors publish it.
        elsewhere: by name, pictures of its classes in another style, a file or folder of ROOT.
        styled: by the same name, pictures to fit probes to; empty if queries are split by shape.
    """

    folders: tuple[str, ...] = ()
    named: str = ""
    train: str = "train"
    test: tuple[str, ...] = ("test",)
    published: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    styled: Mapping[str, str] = field(default_factory=dict)


RENDERED = "dsprites-rendered"  # drawn by ``ncl2024.sprites``
SETS: Mapping[str, StudySet] = {
    "digits": StudySet(named="digits", test=()),
    RENDERED: StudySet(test=()),
    "dsprites": StudySet(test=()),
    "cifar10": StudySet(
        ("cifar10", "cifar10-pack"),
        "cifar10",
        published=CATALOGUE["cifar10"].files,
        elsewhere={STYLISED: "texture-shape-96/cue_conflict.npz", "sketch": "texture-shape-96/edges.npz"},
    ),
    "cifar100": StudySet(("cifar100",), "cifar100"),
    "stl10": StudySet(("stl10",), "stl10"),
    "tiny-imagenet": StudySet(("tiny-imagenet",), "tiny-imagenet", test=("val", "test")),
    "caltech101": StudySet(("caltech101", "caltech101-64")),
    "imagenet100": StudySet(
        ("imagenet100", "imagenet-100"),
        test=("val", "test"),
        elsewhere={STYLISED: "imagenet100-stylised", "sketch": "imagenet100-sketch"},
        styled={STYLISED: "imagenet100-stylised-train"},
    ),
    "imagenet": StudySet(("imagenet", "imagenet-1k"), test=("val", "test")),
}
WITHOUT_FILES = ("digits", RENDERED)
# What the small scales take where the set of a paper is not at hand.
STAND_INS = {
    "cifar100": "caltech101",
    "stl10": "cifar10",
    "tiny-imagenet": "caltech101",
    "imagenet100": "cifar10",
    "imagenet": "cifar10",
    "dsprites": RENDERED,
}
SPRITES = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz"
SAME_CLASS = {"boat": "ship", "car": "automobile"}  # names of the pictures elsewhere, as CIFAR-10 has them
GENERATED = "dsprites"  # sets of this name and beginning have factors that are known by the position


@dataclass(frozen=True)
class StudyData:
    """Training data of one arm, and its queries.

    Attributes:
        train: a path, or the name of a set.
        source: settings of ``source`` for training.
        test: a path or name of the queries; None holds a share of ``train`` out.
        look: settings with which ``evaluate`` opens ``test``.
        words: description of the data for people.
        elsewhere: by name, paths of queries in another style, of some of the classes.
        transfer: by name, pairs of paths of pictures to fit probes to and of queries.
    """

    train: str
    source: Mapping[str, Any]
    test: str | None
    look: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    transfer: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)


def prepare(name: str, plan: PartPlan, root: str | None, out: Path) -> StudyData:
    """Find a set, and write the part of it that a scale asks for.

    Args:
        name: of ``SETS``.
        plan: how many samples of each class, and their size.
        root: folder with the sets; None for those that need no files.
        out: where parts are kept.

    Raises:
        UsageError: an unknown set, or no folder was given.
        DataError: the set or a split is not there, has no labels, or a class has too few samples.
    """
    if name not in SETS:
        raise unknown_name("data set", name, SETS)
    if root is None and name not in WITHOUT_FILES:
        raise UsageError(f"{name} is needed; name the folder that holds it: --data ROOT")
    if not SETS[name].test:
        return _without_test(name, plan, root, out)
    splits = {split: _find_split(name, split, root) for split in SPLITS}
    if plan.per_class is None and plan.queries_per_class is None and plan.image_size is None:
        (train, source), (test, look) = splits["train"], splits["test"]
        return StudyData(train, {**source, "holdout": 0.0}, test, look, f"all of {name}")
    counts = {"train": plan.per_class, "test": plan.queries_per_class}
    paths = {split: _write_part(name, split, splits[split], counts[split], plan.image_size, out) for split in splits}
    words = ", ".join(f"{counts[split] or 'all'} of each class of {name} ({split})" for split in splits)
    return StudyData(str(paths["train"]), {"holdout": 0.0}, str(paths["test"]), {}, words)


def queries_elsewhere(name: str, data: StudyData, side: int | None, root: str | None, out: Path) -> dict[str, str]:
    """Paths of a set's pictures in other styles; for a part of the set at its size and with its class numbers.

    A whole set has those of its own classes alone: what stands in at the small scale is no claim of the paper.

    Args:
        name: of ``SETS``.
        data: of the set.
        side: pixels of the part; None for the whole set.
        root: folder with the sets.
        out: where parts are kept.

    Raises:
        DataError: pictures are not there.
    """
    paths: dict[str, str] = {}
    for kind, place in SETS[name].elsewhere.items():
        if side is None and place.endswith(".npz"):
            continue
        origin, path = Path(os.path.expanduser(root or ".")) / place, out / "data" / f"{name}-{side}px" / f"{kind}.npz"
        if not origin.exists():
            raise DataError(f"{origin} is missing: pictures of {name} in another style ({kind}), in folders by class")
        paths[kind] = str(origin if side is None else path)
        if side is None or path.exists():
            continue
        source = open_source(str(origin), build(SourceSettings, {"image_size": side}, "source"), progress=QUIET.bar)
        assert source.labels is not None
        number_of = {label: number for number, label in enumerate(_class_names(Path(data.train)))}
        numbers = torch.tensor([number_of.get(SAME_CLASS.get(label, label), -1) for label in source.class_names])
        labels = numbers[source.labels]
        positions = (labels >= 0).nonzero()[:, 0]
        images = source.store.fetch(positions.tolist()).permute(0, 2, 3, 1).contiguous().numpy()
        _write_arrays(path, {"images": images, "labels": labels[positions].numpy()})
    return paths


def transfer_pairs(name: str, style: str, side: int | None, root: str | None, out: Path) -> list[tuple[str, str]]:
    """Pairs of paths: pictures in a style to fit probes to, and queries; as published, or folds that share no shape.

    Probes are fitted anew, so that all classes of the pictures count, those that the set has and others.

    Args:
        name: of ``SETS``.
        style: of its ``elsewhere``.
        side: pixels of the part; None for the whole set.
        root: folder with the sets.
        out: where folds are kept.

    Raises:
        DataError: pictures are not there.
    """
    study_set, folder = SETS[name], Path(os.path.expanduser(root or "."))
    places = [folder / place for place in (study_set.styled.get(style, ""), study_set.elsewhere[style]) if place]
    for place in places:
        if not place.exists():
            raise DataError(f"{place} is missing: pictures of {name} in another style ({style}), for probes")
    if len(places) == len(SPLITS):
        return [(str(places[0]), str(places[1]))]
    settings = {} if side is None else {"image_size": side}
    source = open_source(str(places[0]), build(SourceSettings, settings, "source"), progress=QUIET.bar)
    assert source.labels is not None
    images = source.store.fetch(list(range(len(source)))).permute(0, 2, 3, 1).contiguous().numpy()
    arrays = {"images": images, "labels": source.labels.numpy(), "shapes": _shape_numbers(places[0])}
    pairs = []
    for fold in range(NUM_FOLDS):
        is_query = arrays["shapes"] % NUM_FOLDS == fold
        paths = [out / "data" / f"{name}-{side}px" / f"{style}-{split}-{fold}.npz" for split in SPLITS]
        for path, mask in zip(paths, (~is_query, is_query), strict=True):
            _write_arrays(path, {key: array[mask] for key, array in arrays.items()})
        pairs.append((str(paths[0]), str(paths[1])))
    return pairs


def _shape_numbers(origin: Path) -> np.ndarray:
    """Number, within its class, of the shape that each cue-conflict picture shows in one of several textures.

    The pictures of a class come shape by shape, each with rising numbers of textures, so a shape ends where they fall.
    """
    arrays = read_npz(origin, ("labels", "texture_labels"))
    labels, textures = arrays["labels"], arrays["texture_labels"]
    is_first = np.append(True, labels[1:] != labels[:-1])
    shapes = np.cumsum(is_first | np.append(True, textures[1:] <= textures[:-1]))
    return shapes - np.maximum.accumulate(np.where(is_first, shapes, 0))


def _without_test(name: str, plan: PartPlan, root: str | None, out: Path) -> StudyData:
    """Prepare a set without a test split, of which a fifth is held out."""
    source = {} if root is None or name in WITHOUT_FILES else {"root": root}
    words = f"{name}, {HOLDOUT:.0%} of each class held out"
    if name == GENERATED:
        path = _original_sprites(Path(os.path.expanduser(root or ".")), out)
        return StudyData(str(path), {"holdout": HOLDOUT}, None, {}, words)
    if plan.per_class is None and name != RENDERED:
        return StudyData(name, {**source, "holdout": HOLDOUT}, None, {}, words)
    path = _write_part(name, "all", (name, source), plan.per_class, plan.image_size, out)
    return StudyData(str(path), {"holdout": HOLDOUT}, None, {}, f"{plan.per_class or 'all'} of each class of {words}")


def _find_split(name: str, split: str, root: str | None) -> tuple[str, dict[str, Any]]:
    """Return the path or the named set of a split, and the settings that open it."""
    study_set, folder = SETS[name], Path(os.path.expanduser(root or "."))
    names = (study_set.train,) if split == "train" else study_set.test
    places = _split_places(study_set, names, folder)
    for place in places:
        if place.exists():
            return str(place), {}
    if study_set.named and any((folder / own).exists() for own in CATALOGUE[study_set.named].files):
        return study_set.named, {"root": str(folder), "split": names[0]}
    looked = ", ".join(str(place) for place in places[:2])
    published = f", or {CATALOGUE[study_set.named].files[0]} as its authors publish it" if study_set.named else ""
    instead = f"; {STAND_INS[name]} stands in for it with --scale small" if name in STAND_INS else ""
    missing = f"{name} has no split {split} under {folder}; looked for {looked}{published}{instead}"
    raise DataError(f"{missing}; --sets makes the table of other sets alone")


def _split_places(study_set: StudySet, names: Sequence[str], root: Path) -> list[Path]:
    """Paths at which a split with one of these names may lie."""
    return [root / own / f"{name}{ending}" for own in study_set.folders for name in names for ending in ENDINGS]


def training_split(name: str, data: str) -> tuple[str, dict[str, Any]]:
    """Find the training samples of a set if ``data`` is ROOT or the folder of the set; return other data as they are.

    Args:
        name: of ``SETS``.
        data: a path, or the name of a set.

    Returns:
        What ``open_source`` opens, and the settings that open it.
    """
    study_set, folder = SETS[name], Path(os.path.expanduser(data))
    for ending in ENDINGS:
        # A folder of pictures may have a class of trains: the queries must lie beside it.
        if (
            any((folder / f"{test}{ending}").exists() for test in study_set.test)
            and (own := folder / f"{study_set.train}{ending}").exists()
        ):
            return str(own), {}
    for place in _split_places(study_set, (study_set.train,), folder):
        if place.exists():
            return str(place), {}
    is_published = any((folder / own).is_dir() for own in study_set.published)
    return (study_set.named, {"root": str(folder)}) if is_published else (data, {})


def _write_part(
    name: str, split: str, place: tuple[str, dict[str, Any]], count: int | None, side: int | None, out: Path
) -> Path:
    """Write the first samples of each class of a split to a file, unless it exists; return its path."""
    size = "all" if count is None else str(count)
    path = out / "data" / f"{name}-{split}-{size}{'' if side is None else f'-{side}px'}.npz"
    if path.exists():
        return path
    data, source_fields = place
    if side is not None:
        source_fields = {**source_fields, "image_size": side}
    settings = build(SourceSettings, source_fields, "source")
    is_drawn = name == RENDERED
    source = open_rendered() if is_drawn else open_source(data, settings, progress=QUIET.bar)
    positions = _first_of_each(source, count, name, split)
    images = source.store.fetch(positions.tolist()).permute(0, 2, 3, 1).contiguous().numpy()
    assert source.labels is not None
    arrays = {"images": images, "labels": source.labels[positions].numpy()}
    if name.startswith(GENERATED):
        arrays["factors"] = factors_at(positions).numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(_names_file(path), list(source.class_names))
    _write_arrays(path, arrays)
    return path


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an .npz file in one step, so that it is never incomplete."""

    def write(place: Path) -> None:
        with place.open("wb") as stream:
            np.savez(stream, **arrays)  # pyright: ignore[reportArgumentType]

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, write)


def _names_file(part: Path) -> Path:
    """The file with a part's class names; it lies beside the part, whose content does not depend on them."""
    return part.with_name(f"{part.stem}-classes.json")


def _class_names(part: Path) -> list[str]:
    """Read the names of a part's classes, in the order of their numbers."""
    names = read_json(_names_file(part))
    assert isinstance(names, list)
    return list(map(str, names))


def _original_sprites(root: Path, out: Path) -> Path:
    """Convert dSprites' original file to an archive that training opens; its ``metadata``, a pickle, is not read."""
    path, origin = out / "data" / "dsprites.npz", root / SPRITES
    if path.exists():
        return path
    if not origin.is_file():
        raise DataError(f"{origin} is missing; get it once from github.com/google-deepmind/dsprites-dataset")
    arrays = read_npz(origin, ("imgs", "latents_classes"))
    factors = arrays["latents_classes"][:, 1:]
    _write_arrays(path, {"images": arrays["imgs"] * np.uint8(255), "labels": factors[:, 0], "factors": factors})
    return path


def factors_of(data: StudyData) -> torch.Tensor:
    """Read the factors that made each sample of a generated set, or of a part of it: whole numbers (n, f)."""
    with np.load(data.train) as part:
        return torch.from_numpy(part["factors"])


def class_names_of(data: StudyData, source: Source) -> tuple[str, ...]:
    """Names of the queries' classes: those of the set, or of the source if the set's names are not known.

    Args:
        data: of an arm.
        source: the queries, opened.
    """
    path = _names_file(Path(data.test or data.train))
    if not path.exists():
        return source.class_names
    names = _class_names(Path(data.test or data.train))
    # The source knows a class of a part by its number.
    return tuple(names[int(number)] for number in source.class_names)


def _first_of_each(source: Source, count: int | None, name: str, split: str) -> torch.Tensor:
    """Positions of ``count`` samples of each class, in the source's order: evenly in generated sets, else the first.

    Raises:
        DataError: no labels, or a class with fewer samples.
    """
    if source.labels is None or int(source.labels.max()) < 0:
        raise DataError(f"{name} ({split}) at {source.name} has no labels, and the study needs them")
    members = [(source.labels == number).nonzero()[:, 0] for number in range(len(source.class_names))]
    if count is None:
        return torch.cat(members).sort().values
    few = {label: len(own) for label, own in zip(source.class_names, members, strict=True) if len(own) < count}
    if few:
        first = next(iter(few))
        raise DataError(
            f"{name} ({split}) at {source.name} has {few[first]} samples of class {first}; the study needs {count}"
        )
    # A grid of factors is walked through in equal steps: its first samples differ in the last factor alone.
    chosen = [
        own[torch.linspace(0, len(own) - 1, count).long()] if name.startswith(GENERATED) else own[:count]
        for own in members
    ]
    return torch.cat(chosen).sort().values
