"""Samples with what is known about them: what every opener of data returns."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from counterpoint.core.array_layout import Kind, to_bytes
from counterpoint.core.errors import UsageError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.image_files import Skipped
from counterpoint.data.formats.label_files import Labels
from counterpoint.data.stores import MemoryStore, Store


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
        second: a second view or another modality of each sample, by the same positions.
        second_shape: one sample's shape in ``second``.
        factors: int64 (n, f), the value of each generative factor by its number, where the data were generated.
        factor_names: name of each column of ``factors``.
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
    second: Store | None = None
    second_shape: tuple[int, ...] | None = None
    factors: Tensor | None = None
    factor_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.store)


def memory_source(
    name: str, samples: Tensor, labels: Labels | None, *, notes: Mapping[str, str] | None = None
) -> Source:
    """Source from a tensor in memory; floating images are stored as bytes, as image files are."""
    kind: Kind = "vectors" if samples.ndim == 2 else "images"
    samples = (samples if kind == "vectors" else to_bytes(samples)).contiguous()
    return Source(
        name=name,
        kind=kind,
        store=MemoryStore(samples),
        shape=tuple(samples.shape[1:]),
        labels=labels.numbers if labels else None,
        class_names=labels.class_names if labels else (),
        sample_names=tuple(str(i) for i in range(len(samples))),
        skipped=(),
        fingerprint=fingerprint([samples.numpy()], labels),
        notes=notes or {},
    )


def fixed_labels(name: str, labels: Labels | None, settings: SourceSettings) -> Labels | None:
    """The labels that come with some data, or None where the user wants none.

    Raises:
        UsageError: a file of labels was given as well.
    """
    if settings.labels not in ("auto", "none"):
        raise UsageError(f"{name} brings its own labels; source.labels can be auto or none, got {settings.labels!r}")
    return None if settings.labels == "none" else labels


def source_side(shape: tuple[int, ...]) -> int:
    """What ``source.image_size`` records: the samples' side, within the setting's range (arrays keep theirs)."""
    return min(1024, max(8, shape[1])) if len(shape) == 3 else 8


class Progress(Protocol):
    """Reports progress over a known number of items; see ``engine.progress.Reporter.bar``."""

    def __call__(self, title: str, total: int) -> AbstractContextManager[Callable[[], None]]:
        """Open a bar; the callable it yields advances it by one."""
        ...


def fingerprint(parts: Sequence[bytes | np.ndarray], labels: Labels | None) -> str:
    """Short hash of some content and its labels, on which the split depends."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    if labels is not None:
        digest.update(labels.numbers.numpy().tobytes() + "\0".join(labels.class_names).encode())
    return digest.hexdigest()[:16]
