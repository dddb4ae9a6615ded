"""All samples of data, good or bad: their names, parts and labels."""

# N samples

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.audit.audit_record import AGAINST
from counterpoint.core.array_layout import with_missing
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.settings import PartSettings, SourceSettings
from counterpoint.core.table_columns import ColumnPlan
from counterpoint.core.user_files import as_path
from counterpoint.data.formats.arrow_and_csv import is_columns, open_columns
from counterpoint.data.formats.image_files import decode
from counterpoint.data.formats.image_folders import OTHER_SPLITS, has_splits
from counterpoint.data.formats.indexed_images import glance
from counterpoint.data.formats.labels import labels_from_folders
from counterpoint.data.manifest import stamp_of
from counterpoint.data.source import Progress, Source
from counterpoint.data.sources import open_source
from counterpoint.data.stores import FileStore, MemoryStore
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.vector_table import features_source, is_embedded

SIDE = 64  # set here so that no header is read to choose one; the audit has its own decoder
WHOLE = ""
BLOCK = 64  # pictures that a thread takes at once

Block = tuple[int, int]  # number of a part of the collection, and the first of ``BLOCK`` samples of it


@dataclass(frozen=True)
class Share:
    """The samples of one part of the data, end to end in a collection.

    Attributes:
        name: name of the part.
        content: pictures in files; or samples in memory, pixels (n, c, h, w) or vectors (n, d).
        names: names of the samples.
        fingerprint: hash of the content; empty if only the stamps of its files tell that it changed.
    """

    name: str
    content: FileStore | Tensor
    names: Sequence[str]
    fingerprint: str = ""

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class AuditedData:
    """All samples of the data that are audited, with their labels.

    Attributes:
        kind: images or vectors.
        shares: the parts, in their order.
        labels_N: class number of each sample, -1 if unknown; None if there are no labels.
        class_names: name of each class number.
        columns: sentences that say how the columns of a table are used.
    """

    kind: str
    shares: tuple[Share, ...]
    labels_N: np.ndarray | None
    class_names: tuple[str, ...]
    columns: tuple[str, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.shares))

    @cached_property
    def listing(self) -> bytes:
        """Hash of the parts and the names of all samples, which each piece of a worker compares."""
        digest = hashlib.blake2b(digest_size=16)
        for share in self.shares:
            digest.update(f"{share.name}\0{len(share)}".encode())
            for name in share.names:
                digest.update(b"\0" + name.encode(errors="surrogateescape"))
        return digest.digest()

    @property
    def content_hash(self) -> str:
        """Hash of names and content; stamps of files stand for content that has no fingerprint."""
        digest = hashlib.blake2b(self.listing, digest_size=8)
        for share in self.shares:
            digest.update(share.fingerprint.encode())
            if not share.fingerprint and isinstance(share.content, FileStore):
                for file in dict.fromkeys(image.path for image in share.content.images):
                    digest.update(repr(stamp_of(file)).encode())
        return digest.hexdigest()

    @cached_property
    def blocks(self) -> list[Block]:
        """All samples, in blocks."""
        return [(part, first) for part, share in enumerate(self.shares) for first in range(0, len(share), BLOCK)]

    @property
    def samples(self) -> np.ndarray:
        """The samples of all parts that are in memory, end to end."""
        return np.concatenate([share.content.numpy() for share in self.shares if isinstance(share.content, Tensor)])

    def located(self, place: int) -> tuple[FileStore | Tensor, int]:
        """The content of the part that holds a sample, and its place there."""
        part, starts = int(self.part_of[place]), np.cumsum([0, *map(len, self.shares)])
        return self.shares[part].content, place - int(starts[part])

    @cached_property
    def part_of(self) -> np.ndarray:
        """Number of each sample's part."""
        return np.repeat(np.arange(len(self.shares)), [len(share) for share in self.shares])


def collect(
    data: Any, settings: SourceSettings, *, labels: Any = None, against: Any = None, quiet: bool = True
) -> AuditedData:
    """List all samples with their labels; decode nothing that lies in files.

    Args:
        data: whatever ``open_source`` takes. Of a folder in parts (``train`` beside ``val`` or ``test``) all of them.
        settings: labels, split and columns.
        labels: labels of the samples, one each, for arrays.
        against: other data to compare with.
        quiet: do not show how far data in memory have been read.

    Raises:
        UsageError: no such data, pictures against vectors, or vectors against others of another length.
        DataError: there is no sample at all, or a file has none of the known forms.
    """
    progress = Reporter(quiet=quiet).bar
    # Nothing is refused: an audit tells how many pictures are bad.
    lenient = settings.model_copy(update={"max_bad": 1.0, "altered": "reindex", "image_size": SIDE})
    with glance(), with_missing():
        opened = []
        path = as_path(data) if isinstance(data, str | Path) else None
        splits = [settings.split]
        if settings.split == "auto" and path is not None and path.is_dir() and has_splits(path):
            splits = ["train", *(split for split in OTHER_SPLITS if (path / split).is_dir())]
        for split in splits:
            part = lenient.model_copy(update={"split": split})
            source = _with_folder_labels(_open(data, part, labels, progress), part)
            opened.append((WHOLE if split == "auto" else split, source))
        if against is not None:
            unsplit = lenient.model_copy(update={"split": "auto"})
            opened.append((AGAINST, _open(against, unsplit, None, progress, plan=opened[0][1].table)))
    kinds = {source.kind for _, source in opened}
    if len(kinds) > 1:
        raise UsageError("--against must be of the kind of the data: pictures with pictures, vectors with vectors")
    shapes = dict.fromkeys(source.shape for _, source in opened)
    if kinds == {"vectors"} and len(shapes) > 1:
        raise UsageError(f"--against must have as many features as the data, got shapes {', '.join(map(str, shapes))}")
    shares = []
    for name, source in opened:
        samples = source.store.samples if isinstance(source.store, MemoryStore) else source.store
        content = samples if isinstance(samples, FileStore | Tensor) else samples.fetch(range(len(source)))
        shares.append(Share(name, content, source.sample_names, source.fingerprint))
    labels_N, class_names = _joint_labels([source for _, source in opened])
    columns = [source.notes["source.columns"] for _, source in opened if "source.columns" in source.notes]
    return AuditedData(opened[0][1].kind, tuple(shares), labels_N, class_names, tuple(columns))


def _open(
    data: Any, settings: SourceSettings, labels: Any, progress: Progress, plan: ColumnPlan | None = None
) -> Source:
    """Open the data as training does, or as a table that ``embed`` wrote; a table of columns by another one's plan."""
    path = as_path(data) if isinstance(data, str | Path) else None
    if path is not None and plan is not None and is_columns(path):  # by one plan equal rows are equal numbers
        return open_columns(path, settings, progress, plan=plan)
    if path is not None and path.is_file() and is_embedded(path):
        label_setting = None if settings.labels == "auto" else settings.labels
        with contextlib.suppress(DataError):  # columns that are called like those of embed, and hold other things
            return features_source(data, label_setting, PartSettings(), Reporter(quiet=True))
    return open_source(data, settings, labels=labels, progress=progress)


def _with_folder_labels(source: Source, settings: SourceSettings) -> Source:
    """Add the classes that training takes from folders, if only files that cannot be read lie beside these."""
    store = source.store
    if source.labels is not None or settings.labels != "auto" or not isinstance(store, FileStore):
        return source
    is_beside = ["/" not in name for name in source.sample_names]
    folder_labels = labels_from_folders(
        [name for name, beside in zip(source.sample_names, is_beside, strict=True) if not beside]
    )
    if folder_labels is None or not any(is_beside):
        return source
    for image, beside in zip(store.images, is_beside, strict=True):
        try:
            if beside and decode(store.read(image), lambda _: True):
                return source
        except (OSError, ValueError):
            continue
    numbers = torch.full((len(source),), -1)
    numbers[~torch.tensor(is_beside)] = folder_labels.numbers
    return replace(source, labels=numbers, class_names=folder_labels.class_names)


def _joint_labels(sources: Sequence[Source]) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """Class numbers of all sources by one list of names; None if no source has labels."""
    if all(source.labels is None for source in sources):
        return None, ()
    names = tuple(dict.fromkeys(name for source in sources for name in source.class_names))
    numbers = []
    for source in sources:
        if source.labels is None:
            numbers.append(np.full(len(source), -1))
            continue
        number_of = np.array([*(names.index(name) for name in source.class_names), -1])
        numbers.append(number_of[source.labels.numpy()])  # -1 is the last place
    return np.concatenate(numbers), names
