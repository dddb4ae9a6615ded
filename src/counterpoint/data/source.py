"""Samples with facts about them, which every opener of data returns, and the records that name the openers."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from counterpoint.core.array_layout import Kind, to_bytes
from counterpoint.core.errors import UsageError, nearest
from counterpoint.core.settings import SourceSettings
from counterpoint.core.table_columns import ColumnPlan
from counterpoint.core.user_files import shown_name
from counterpoint.data.formats.image_files import Skipped
from counterpoint.data.formats.labels import Labels
from counterpoint.data.stores import MemoryStore, Store

FOLDER = "/"  # means a folder among suffixes
# Opens a bar with a title over a number of items; what it yields advances it. See ``engine.progress.Reporter.bar``.
Progress = Callable[[str, int], AbstractContextManager[Callable[[], None]]]


@dataclass(frozen=True)
class Source:
    """Samples with facts about them.

    Attributes:
        name: the user's name of the data.
        kind: images or vectors.
        store: the samples by position.
        shape: one sample's shape: (c, h, w) or (d,).
        labels: class numbers (n,), -1 if unknown, or None.
        class_names: name of each class number.
        sample_names: one name per sample; of very many, a sequence that reads them.
        fingerprint: hash of the content, to notice that it changed.
        skipped: files left out, with reasons.
        notes: choices made while opening, for the run's record.
        second: a second view or another modality of each sample, by the same positions.
        second_shape: one sample's shape in ``second``.
        table: plan by which the columns of a table became the numbers of a sample.
    """

    name: str
    kind: Kind
    store: Store
    shape: tuple[int, ...]
    labels: Tensor | None
    class_names: tuple[str, ...]
    sample_names: Sequence[str]
    fingerprint: str
    skipped: tuple[Skipped, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    second: Store | None = None
    second_shape: tuple[int, ...] | None = None
    table: ColumnPlan | None = None

    def __len__(self) -> int:
        return len(self.store)

    def classes(self, rows: slice = slice(None)) -> tuple[str | None, ...] | None:
        """Name of the class of each sample, None if it is unknown; None without labels."""
        if self.labels is None:
            return None
        return tuple(self.class_names[number] if number >= 0 else None for number in self.labels[rows].tolist())


def memory_source(name: str, samples: Tensor, labels: Labels | None, **fields: Any) -> Source:
    """Source from a tensor in memory; floating images are stored as bytes, as image files are."""
    kind: Kind = "vectors" if samples.ndim == 2 else "images"
    # Bytes: a quarter of the memory, and the same pixels as from an image file.
    samples = (samples if kind == "vectors" else to_bytes(samples)).contiguous()
    content = fingerprint([samples.numpy()], labels)
    return source_of(name, MemoryStore(samples), tuple(samples.shape[1:]), labels, fingerprint=content, **fields)


def source_of(name: str, store: Store, shape: tuple[int, ...], labels: Labels | None, **fields: Any) -> Source:
    """Source over a store; ``fields`` holds its fingerprint and every other field that is not the usual one."""
    if "sample_names" not in fields:
        fields["sample_names"] = tuple(map(str, range(len(store))))
    return Source(
        name=name,
        kind="vectors" if len(shape) == 1 else "images",
        store=store,
        shape=shape,
        labels=labels.numbers if labels else None,
        class_names=tuple(map(shown_name, labels.class_names)) if labels else (),  # texts of arrays may be anything
        **fields,
    )


def fixed_labels(name: str, labels: Labels | None, settings: SourceSettings) -> Labels | None:
    """The labels that come with some data, or None if the user wants none.

    Raises:
        UsageError: a file of labels was given as well.
    """
    if settings.labels not in ("auto", "none"):
        raise UsageError(f"{name} brings its own labels; source.labels can be auto or none, got {settings.labels!r}")
    return None if settings.labels == "none" else labels


def refuse_split(name: str, split: str) -> None:
    """Refuse a split of data that have only one part: a setting without effect must not pass silently."""
    if split != "auto":
        raise UsageError(f"{name} has one part only; source.split can be auto, got {split!r}")


def choose_split(name: str, splits: tuple[str, ...], split: str) -> str:
    """The split that the user means; ``auto`` is the first.

    Raises:
        UsageError: no such split.

    >>> choose_split("cifar10", ("train", "test"), "auto")
    'train'
    """
    if split == "auto":
        return splits[0]
    if split not in splits:
        listed = ", ".join(splits)
        raise UsageError(f"source.split of {name} must be one of {listed}, got {split!r}{nearest(split, splits)}")
    return split


def source_side(shape: tuple[int, ...]) -> int:
    """The ``source.image_size`` to record: the samples' side, within the setting's range (arrays keep theirs)."""
    return min(1024, max(8, shape[1])) if len(shape) == 3 else 8


@dataclass(frozen=True)
class NamedSource:
    """Data that are known by name: an entry of ``CATALOGUE`` at the end of a module of ``formats`` or ``sets``.

    Attributes:
        summary: one line for lists.
        open: function that opens them as the settings ask.
        has_files: true if they lie below ``source.root``.
        files: names there of the files or folders that may hold them.
        test_split: the part with the queries, if the set has one.
    """

    summary: str
    open: Callable[[SourceSettings, Progress], Source]
    has_files: bool = True
    files: tuple[str, ...] = ()
    test_split: str = "test"


@dataclass(frozen=True)
class FileForm:
    """One form of file or folder: an entry of ``FORMS`` at the end of a module of ``formats`` or ``sets``.

    Attributes:
        name: name of data of this form in messages.
        suffixes: suffixes of its files, in lower case; ``FOLDER`` for a folder.
        open: function that opens a path as the settings ask.
        fits: test of a path with such a name for this form; None takes those that no other form takes.
        reads: settings of ``source`` that only some forms read, and this one does.
    """

    name: str
    suffixes: tuple[str, ...]
    open: Callable[[Path, SourceSettings, Progress], Source]
    fits: Callable[[Path], bool] | None = None
    reads: tuple[str, ...] = ()


def fingerprint(parts: Sequence[bytes | np.ndarray], labels: Labels | None) -> str:
    """Short hash of some content and its labels, on which the split depends."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    if labels is not None:
        # Other labels are other data: the split holds out a share of each class.
        digest.update(labels.numbers.contiguous().numpy().data)
        digest.update("\0".join(labels.class_names).encode(errors="backslashreplace"))
    # 64 bits, against accidents, not against forgers.
    return digest.hexdigest()[:16]
