"""Samples with what is known about them: what every opener of data returns."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from counterpoint.core.array_layout import Kind
from counterpoint.data.image_files import Skipped
from counterpoint.data.label_files import Labels
from counterpoint.data.stores import Store


@dataclass(frozen=True)
class Source:
    """Samples with what is known about them.

    Attributes:
        name: how the user named it.
        kind: images or vectors.
        store: the samples by position.
        shape: one sample's shape: (c, h, w) or (d,).
        labels: class numbers (n,), -1 where unknown, or None.
        class_names: name of each class number.
        sample_names: one name per sample.
        skipped: files left out, with reasons.
        fingerprint: hash of the content, to notice that it changed.
        notes: choices made while opening, for the run's record.
    """

    name: str
    kind: Kind
    store: Store
    shape: tuple[int, ...]
    labels: Tensor | None
    class_names: tuple[str, ...]
    sample_names: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    fingerprint: str
    notes: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.store)


def source_side(shape: tuple[int, ...]) -> int:
    """What ``source.image_size`` records: the samples' side, within the setting's range (arrays keep theirs)."""
    return min(1024, max(8, shape[1])) if len(shape) == 3 else 8


class Progress(Protocol):
    """Reports progress over a known number of items; see ``engine.progress.Reporter.bar``."""

    def __call__(self, title: str, total: int) -> AbstractContextManager[Callable[[], None]]:
        """Open a bar; the callable it yields advances it by one."""
        ...


def fingerprint(parts: Sequence[bytes], labels: Labels | None) -> str:
    """Short hash of some content and its labels, on which the split depends."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    if labels is not None:
        digest.update(labels.numbers.numpy().tobytes() + "\0".join(labels.class_names).encode())
    return digest.hexdigest()[:16]
