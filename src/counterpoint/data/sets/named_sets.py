"""Published data sets by name, read from the files that torchvision keeps below one folder (``source.root``)."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from counterpoint.core.errors import UsageError, nearest
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.indexed_images import MEMORY_BUDGET_BYTES
from counterpoint.data.formats.label_files import Labels
from counterpoint.data.sets.cifar_files import CIFAR10, CIFAR100, read_cifar
from counterpoint.data.sets.mnist_files import read_mnist
from counterpoint.data.sets.set_files import RawSet
from counterpoint.data.sets.stl10_files import STL10_SHAPE, PlaneSet, find_stl10
from counterpoint.data.sets.svhn_files import read_svhn
from counterpoint.data.source import Progress, Source, fingerprint, fixed_labels, memory_source

DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@dataclass(frozen=True)
class PublishedSet:
    """A set that others publish.

    Attributes:
        summary: one line for lists.
        call: torchvision's call that gets it once, with ROOT and SPLIT to be filled in.
        num_samples: published size of each split; the first split is what ``auto`` stands for.
        read: reads one split: (root, split, hint).
    """

    summary: str
    call: str
    num_samples: Mapping[str, int]
    read: Callable[[Path, str, str], RawSet | PlaneSet]


def open_published(name: str, settings: SourceSettings, progress: Progress) -> Source:
    """Open one split of a published set.

    Args:
        name: a name of ``CATALOGUE``.
        settings: root, split, and whether labels are wanted.
        progress: shows that files are being read.

    Raises:
        UsageError: no such split, or labels from elsewhere.
        DataError: a file is missing (the text says how to get it once) or damaged.
    """
    published = CATALOGUE[name]
    split = choose_split(name, tuple(published.num_samples), settings.split)
    fixed_labels(name, None, settings)  # refuses labels from elsewhere before anything is read
    with progress(f"reading {name}, {split}", 1) as advance:
        found = published.read(root_folder(settings), split, _hint(name, published, split, settings))
        labels = fixed_labels(name, Labels(torch.from_numpy(found.numbers), found.class_names), settings)
        source = _source(name, found, labels)
        advance()
    return replace(source, notes=_notes(split, settings.split, len(source), published.num_samples[split]))


def choose_split(name: str, splits: tuple[str, ...], asked: str) -> str:
    """The split that is meant; ``auto`` is the first.

    Raises:
        UsageError: no such split.

    >>> choose_split("cifar10", ("train", "test"), "auto")
    'train'
    """
    if asked == "auto":
        return splits[0]
    if asked not in splits:
        known = ", ".join(splits)
        raise UsageError(f"source.split of {name} must be one of {known}, got {asked!r}{nearest(asked, splits)}")
    return asked


def root_folder(settings: SourceSettings) -> Path:
    """Folder of the named sets."""
    return Path(os.path.expanduser(settings.root))


def _hint(name: str, published: PublishedSet, split: str, settings: SourceSettings) -> str:
    """How to get a set's files."""
    call = published.call.replace("ROOT", repr(str(root_folder(settings)))).replace("SPLIT", repr(split))
    return (
        f'get {name} once with python -c "from torchvision.datasets import *; {call}", or name the folder that has it '
        f"with --source.root"
    )


def _source(name: str, found: RawSet | PlaneSet, labels: Labels | None) -> Source:
    """Source in memory, or over the set's own files where it is too large for that."""
    if isinstance(found, RawSet):
        return memory_source(name, torch.from_numpy(found.images), labels)
    if len(found.store) * int(np.prod(STL10_SHAPE)) <= MEMORY_BUDGET_BYTES:
        return memory_source(name, found.store.fetch(range(len(found.store))), labels)
    return Source(
        name=name,
        kind="images",
        store=found.store,
        shape=STL10_SHAPE,
        labels=labels.numbers if labels else None,
        class_names=labels.class_names if labels else (),
        sample_names=tuple(str(i) for i in range(len(found.store))),
        skipped=(),
        fingerprint=fingerprint([file.raw() for file in found.store.files], labels),
        notes={},
    )


def _notes(split: str, asked: str, num_samples: int, num_published: int) -> dict[str, str]:
    """What to record: the split that auto stands for, and another number of samples than was published."""
    notes = {"source.split": f"{split}, the first part of the set"} if asked == "auto" else {}
    if num_samples != num_published:
        notes["data"] = f"{num_samples:,} samples; the published split has {num_published:,}"
    return notes


CATALOGUE: Mapping[str, PublishedSet] = {
    "cifar10": PublishedSet(
        "60,000 photographs of 32 x 32 pixels in 10 classes (krizhevsky2009)",
        "CIFAR10(ROOT, download=True)",
        {"train": 50_000, "test": 10_000},
        lambda root, split, hint: read_cifar(root, CIFAR10, split, hint),
    ),
    "cifar100": PublishedSet(
        "60,000 photographs of 32 x 32 pixels in 100 classes (krizhevsky2009)",
        "CIFAR100(ROOT, download=True)",
        {"train": 50_000, "test": 10_000},
        lambda root, split, hint: read_cifar(root, CIFAR100, split, hint),
    ),
    "stl10": PublishedSet(
        "13,000 photographs of 96 x 96 pixels in 10 classes, and 100,000 without labels (coates2011)",
        "STL10(ROOT, download=True)",
        {"train": 5_000, "test": 8_000, "unlabeled": 100_000, "train+unlabeled": 105_000},
        find_stl10,
    ),
    "svhn": PublishedSet(
        "house numbers in photographs, 32 x 32 pixels, 10 digits (netzer2011)",
        "SVHN(ROOT, SPLIT, download=True)",
        {"train": 73_257, "test": 26_032, "extra": 531_131},
        read_svhn,
    ),
    "mnist": PublishedSet(
        "70,000 handwritten digits of 28 x 28 pixels (lecun1998)",
        "MNIST(ROOT, download=True)",
        {"train": 60_000, "test": 10_000},
        lambda root, split, hint: read_mnist(root, "MNIST", split, DIGITS, hint),
    ),
    "fashion-mnist": PublishedSet(
        "70,000 pieces of clothing, grey, 28 x 28 pixels, 10 classes (xiao2017)",
        "FashionMNIST(ROOT, download=True)",
        {"train": 60_000, "test": 10_000},
        lambda root, split, hint: read_mnist(root, "FashionMNIST", split, FASHION, hint),
    ),
}
