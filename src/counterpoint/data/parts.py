"""Sources made of sources: without some samples, of some classes, with other names of classes, and two end to end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.errors import DataError, UsageError, first_line, nearest
from counterpoint.core.user_files import read_text
from counterpoint.data.formats.labels import Labels
from counterpoint.data.source import Source, fingerprint
from counterpoint.data.stores import MemoryStore, Store

MOST_COMPARED_NAMES = 10_000  # for a hint at the nearest one


@dataclass(frozen=True)
class ChosenStore:
    """Some samples of a store, in the order of their positions."""

    store: Store
    positions: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.positions)

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """See ``Store.fetch``."""
        return self.store.fetch([self.positions[position] for position in positions])


@dataclass(frozen=True)
class JoinedStore:
    """The samples of one store, then those of another."""

    first: Store
    second: Store

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def fetch(self, positions: Sequence[int]) -> Tensor:
        """See ``Store.fetch``."""
        border = len(self.first)
        # Those of the first store before the others; then back into the order that was asked for.
        order = sorted(range(len(positions)), key=lambda place: positions[place] >= border)
        asked = [positions[place] for place in order]
        num_first = sum(position < border for position in asked)
        parts = [(self.first, asked[:num_first]), (self.second, [each - border for each in asked[num_first:]])]
        return torch.cat([store.fetch(each) for store, each in parts if each])[torch.tensor(order).argsort()]


def of_classes(source: Source, classes: str) -> Source:
    """The samples of some classes, which are numbered anew in the order of the source.

    Args:
        source: labelled.
        classes: names of them, separated by commas.

    Raises:
        UsageError: the source has no labels, or no class of that name.
    """
    if source.labels is None:
        raise UsageError(f"source.classes picks samples by their labels, and {source.name} has none")
    names = [name.strip() for name in classes.split(",")]
    for name in names:
        if name not in source.class_names:
            some = ", ".join(source.class_names[:20])
            raise UsageError(
                f"source.classes: {source.name} has no class {name!r}{nearest(name, source.class_names)} ({some})"
            )
    kept = [number for number, name in enumerate(source.class_names) if name in names]
    number_of = torch.full((len(source.class_names) + 1,), -1)  # the last place is that of -1
    number_of[kept] = torch.arange(len(kept))
    numbers = number_of[source.labels]
    positions = (numbers >= 0).nonzero()[:, 0]
    labels = Labels(numbers[positions], tuple(source.class_names[number] for number in kept))
    return _some(source, positions, labels, [source.fingerprint.encode()])


def without(source: Source, names: Sequence[str], origin: str) -> Source:
    """A source without some samples; classes keep their numbers.

    Args:
        source: all samples.
        names: of samples to leave out; files that could not be read may be among them.
        origin: what to call the list in errors.

    Raises:
        UsageError: the list is empty, or names a sample that the source does not have, or all that it has.
    """
    known, gone = set(source.sample_names), set(names)
    if not gone:
        raise UsageError(f"source.exclude: {origin} names no sample; leave the setting out")
    odd = sorted(gone - known - {item.name for item in source.skipped})
    if odd:
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        hint = nearest(odd[0], source.sample_names) if len(known) <= MOST_COMPARED_NAMES else ""
        raise UsageError(f"source.exclude: {source.name} has no sample {odd[0]!r}{more}, named in {origin}{hint}")
    positions = [place for place, name in enumerate(source.sample_names) if name not in gone]
    if not positions:
        raise UsageError(f"source.exclude: {origin} names all {len(source)} samples of {source.name}")
    kept = torch.tensor(positions)
    labels = None if source.labels is None else Labels(source.labels[kept], source.class_names)
    found = _some(source, kept, labels, [source.fingerprint.encode(), kept.numpy()])
    left_out = f"{len(source) - len(positions)} samples left out"
    return replace(found, notes={**source.notes, "source.exclude": left_out})


def names_in(path: Path) -> tuple[str, ...]:
    """Names in a text file, one per line; empty lines and those that begin with # are passed over.

    Raises:
        DataError: it cannot be read as text.
    """
    try:
        lines = read_text(path).splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"source.exclude: {path} cannot be read as text: {first_line(error)}") from None
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _some(source: Source, positions: Tensor, labels: Labels | None, content: Sequence[bytes | np.ndarray]) -> Source:
    """Some samples of a source, with labels of theirs; its content is what makes the fingerprint beside them."""
    chosen = tuple(positions.tolist())

    def of(store: Store) -> Store:
        # Those in memory stay one tensor, which loaders read fastest.
        return MemoryStore(store.fetch(positions)) if isinstance(store, MemoryStore) else ChosenStore(store, chosen)

    return replace(
        source,
        store=of(source.store),
        labels=None if labels is None else labels.numbers,
        class_names=() if labels is None else labels.class_names,
        sample_names=tuple(source.sample_names[position] for position in chosen),
        fingerprint=fingerprint(content, labels),
        second=None if source.second is None else of(source.second),
        factors=None if source.factors is None else source.factors[positions],
    )


def joined(bank: Source, queries: Source) -> Source:
    """Two sources end to end; classes are those of the first, known by their names.

    Args:
        bank: the first.
        queries: the second.

    Raises:
        DataError: samples of other shapes, labels on one side only, or a class that only the second has.
    """
    if bank.shape != queries.shape:
        raise DataError(
            f"samples of {queries.name} have the shape {queries.shape}, those of {bank.name} {bank.shape}; both must "
            "be of one"
        )
    for source in (bank, queries):
        if source.labels is None:
            raise DataError(f"{source.name} has no labels, and accuracy needs them on both sides")
    assert bank.labels is not None
    assert queries.labels is not None
    # A source may name a class that it has no sample of.
    known = {bank.class_names[number] for number in bank.labels.unique().tolist() if number >= 0}
    present = [queries.class_names[number] for number in queries.labels.unique().tolist() if number >= 0]
    if foreign := [name for name in present if name not in known]:
        common = ",".join(name for name in present if name in known)
        remedy = f"; what both have: --source.classes {common}" if common else ""
        listed = ", ".join(list(foreign)[:10])
        raise DataError(
            f"{len(foreign)} of {len(present)} classes of {queries.name} are not in {bank.name}: "
            f"{listed}{', ...' if len(foreign) > 10 else ''}{remedy}"
        )
    factors = None
    if bank.factors is not None and queries.factors is not None and bank.factors.shape[1] == queries.factors.shape[1]:
        factors = torch.cat([bank.factors, queries.factors])
    number_of = {name: number for number, name in enumerate(bank.class_names)}
    # The last place is that of -1: an unknown label stays one.
    numbers = torch.tensor([*(number_of.get(name, -1) for name in queries.class_names), -1])[queries.labels]
    return replace(
        bank,
        store=JoinedStore(bank.store, queries.store),
        labels=torch.cat([bank.labels, numbers]),
        sample_names=(*bank.sample_names, *queries.sample_names),
        skipped=(*bank.skipped, *queries.skipped),
        fingerprint=fingerprint([bank.fingerprint.encode(), queries.fingerprint.encode()], None),
        second=None,
        factors=factors,
    )
