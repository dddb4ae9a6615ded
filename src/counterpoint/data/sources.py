"""The one entry to data: a named set, a folder, a file, or an array; and sources made of sources.

Modules of ``formats`` and ``sets`` end with literal records: ``CATALOGUE``, their named sets, and ``FORMS``, their
forms of file or folder. A new source is a module there, and is found here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.array_layout import to_samples
from counterpoint.core.catalogues import loaded
from counterpoint.core.errors import DataError, UsageError, first_line, gone, nearest
from counterpoint.core.settings import SourceSettings
from counterpoint.core.user_files import MOST_FILES, Address, as_path, exists, open_regular, read_text
from counterpoint.data.formats.indexed_images import Listing
from counterpoint.data.formats.labels import Labels, number_labels
from counterpoint.data.formats.listed_pictures import open_listed, pictures_in
from counterpoint.data.source import FOLDER, FileForm, NamedSource, Progress, Source, fingerprint, memory_source
from counterpoint.data.stores import ChosenStore, JoinedStore, MemoryStore, Store

ARRAY = "array"
ALL = "all"  # classes
NO_FILE = "none"


def open_source(data: Any, settings: SourceSettings, *, labels: Any = None, progress: Progress) -> Source:
    """Open the user's data, all of it, without some samples, or the samples of some classes.

    Args:
        data: a name of ``CATALOGUE``, a path (a folder or a file of any known form), a NumPy array or a tensor.
        settings: labels, split, columns, image size, share of bad files allowed.
        labels: one label per sample, for arrays in memory.
        progress: bar that shows how far the data have been read.

    Raises:
        UsageError: no data, an unknown name, a path that does not exist, or a class or an excluded sample that is not
            there.
        DataError: nothing usable in it.
    """
    source = _open_all(data, settings, labels, progress)
    if settings.exclude != NO_FILE:
        source = without(source, settings.exclude)
    if settings.classes == ALL:
        return source
    return of_classes(source, settings.classes)


def _open_all(data: Any, settings: SourceSettings, labels: Any, progress: Progress) -> Source:
    if data is None:
        raise UsageError(
            "no data given; use --data digits (embedded) or another named set, --data FOLDER of images, or --data FILE"
            ".npy / FILE.npz"
        )
    if not isinstance(data, str | Path):
        if settings.labels not in ("auto", "none"):
            raise UsageError("source.labels goes with named data; give labels= beside an array")
        samples = to_samples(data)
        return memory_source(ARRAY, samples, None if labels is None else number_labels(labels, len(samples)))
    if labels is not None:
        raise UsageError("labels= goes with an array in memory; for named data use source.labels (a .csv or .npy file)")
    if str(data) in CATALOGUE:
        return CATALOGUE[str(data)].open(settings, progress)
    path = as_path(data)
    try:
        if not exists(path):
            raise UsageError(
                gone(f"--data {data}")
                or f"no such file or folder: {str(data)!r}{nearest(str(data), CATALOGUE)}; data can be {_known_forms()}"
            )
        if not path.is_dir():
            open_regular(path).close()  # also before the forms look inside
        elif isinstance(path, Address) and len(path.files) > MOST_FILES:
            return open_listed(path, pictures_in(path), Listing(()), settings, progress)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    for form in _forms_by_name(path):
        if form.fits is None or form.fits(path):
            return form.open(path, settings, progress)
    raise UsageError(f"{path} is neither a folder of images nor a file of a known form; data can be {_known_forms()}")


def form_of(data: str | None) -> str | None:
    """The kind of data of a name or path, found without opening it; None if there is nothing.

    >>> form_of("digits"), form_of("cifar10")
    ('a named set without files', 'a named set of files')
    """
    if data is None or data == ARRAY:
        return data and "an array in memory"
    if data in CATALOGUE:
        return NAMED_SET if CATALOGUE[data].has_files else "a named set without files"
    path = as_path(data)
    forms = _forms_by_name(path) if exists(path) else []
    for place, form in enumerate(forms):
        # Nothing is opened if all forms that are left have one name: .npz is "an archive" whatever is in it.
        is_only_name = all(other.name == form.name for other in forms[place:])
        if is_only_name or form.fits is None or form.fits(path):
            return form.name
    return None


def forms_that_read(setting: str) -> tuple[str, ...]:
    """The forms of data that read a setting of ``source`` which others do not.

    >>> forms_that_read("image_column")
    ('a table',)
    """
    names = dict.fromkeys(form.name for form in reversed(FORMS) if setting in form.reads)
    return (*names, *([NAMED_SET] if setting in NAMED_SET_READS else []))


def _forms_by_name(path: Path) -> list[FileForm]:
    """The forms that a path may have by its name; those that take what no other takes come last."""
    suffix = FOLDER if path.is_dir() else path.suffix.lower()
    return [form for form in FORMS if suffix in form.suffixes]


def _known_forms() -> str:
    suffixes = dict.fromkeys(suffix for form in FORMS for suffix in form.suffixes if suffix != FOLDER)
    return (
        "a named set (see `counterpoint list data`), a folder of images or tar shards, or a file: "
        f"{', '.join(sorted(suffixes))}"
    )


MOST_COMPARED_NAMES = 10_000  # for a hint at the nearest one


def of_classes(source: Source, classes: str) -> Source:
    """The samples of some classes, which are renumbered in the order of the source.

    Args:
        source: a labelled source.
        classes: names of the classes, separated by commas.

    Raises:
        UsageError: the source has no labels, or no class of that name.
    """
    if source.labels is None:
        raise UsageError(f"source.classes picks samples by their labels, and {source.name} has no labels")
    names = [name.strip() for name in classes.split(",")]
    for name in names:
        if name not in source.class_names:
            listed = ", ".join(source.class_names[:20])
            raise UsageError(
                f"source.classes: {source.name} has no class {name!r}{nearest(name, source.class_names)} ({listed})"
            )
    chosen = [number for number, name in enumerate(source.class_names) if name in names]
    number_of = torch.full((len(source.class_names) + 1,), -1)  # the last place is that of -1
    number_of[chosen] = torch.arange(len(chosen))
    numbers = number_of[source.labels]
    positions = (numbers >= 0).nonzero()[:, 0]
    labels = Labels(numbers[positions], tuple(source.class_names[number] for number in chosen))
    return _subset(source, positions, labels, [source.fingerprint.encode()])


def without(source: Source, origin: str) -> Source:
    """A source without some samples; classes keep their numbers.

    Args:
        source: all samples.
        origin: a text file with the name of a sample in each line; files that could not be read may be among them.
            Empty lines and those that begin with # are passed over.

    Raises:
        UsageError: the list is empty, or names a sample that the source does not have, or all that it has.
        DataError: it cannot be read as text.
    """
    try:
        lines = read_text(Path(origin)).splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"source.exclude: {Path(origin)} cannot be read as text: {first_line(error)}") from None
    names = set(source.sample_names)
    excluded = {line.strip() for line in lines if line.strip() and not line.startswith("#")}
    if not excluded:
        raise UsageError(f"source.exclude: {origin} names no sample; leave the setting out")
    odd = sorted(excluded - names - {item.name for item in source.skipped})
    if odd:
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        hint = nearest(odd[0], source.sample_names) if len(names) <= MOST_COMPARED_NAMES else ""
        raise UsageError(f"source.exclude: {source.name} has no sample {odd[0]!r}{more}, named in {origin}{hint}")
    positions = [place for place, name in enumerate(source.sample_names) if name not in excluded]
    if not positions:
        raise UsageError(f"source.exclude: {origin} names all {len(source)} samples of {source.name}")
    rows = torch.tensor(positions)
    labels = None if source.labels is None else Labels(source.labels[rows], source.class_names)
    remaining = _subset(source, rows, labels, [source.fingerprint.encode(), rows.numpy()])
    left_out = f"{len(source) - len(positions)} samples left out"
    return replace(remaining, notes={**source.notes, "source.exclude": left_out})


def _subset(source: Source, positions: Tensor, labels: Labels | None, content: Sequence[bytes | np.ndarray]) -> Source:
    """A source of some samples with their labels; content and labels make its fingerprint."""
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
    )


def joined(bank: Source, queries: Source) -> Source:
    """Two sources end to end; classes are those of the first, known by their names.

    Args:
        bank: the first source.
        queries: the second source.

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
    bank_classes = {bank.class_names[number] for number in bank.labels.unique().tolist() if number >= 0}
    query_classes = [queries.class_names[number] for number in queries.labels.unique().tolist() if number >= 0]
    if foreign := [name for name in query_classes if name not in bank_classes]:
        common = ",".join(name for name in query_classes if name in bank_classes)
        remedy = f"; what both have: --source.classes {common}" if common else ""
        listed = ", ".join(foreign[:10])
        raise DataError(
            f"{len(foreign)} of {len(query_classes)} classes of {queries.name} are not in {bank.name}: "
            f"{listed}{', ...' if len(foreign) > 10 else ''}{remedy}"
        )
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
    )


FOLDERS = ("data/sets", "data/formats")
NAMED_SET = "a named set of files"
NAMED_SET_READS = ("root", "max_bad", "altered")
CATALOGUE: Mapping[str, NamedSource] = {
    name: source for folder in FOLDERS for entries in loaded(folder, "CATALOGUE") for name, source in entries.items()
}
# Sorting is stable; forms that look inside come before those that take whatever is left.
FORMS: tuple[FileForm, ...] = tuple(
    sorted(
        (form for folder in FOLDERS for forms in loaded(folder, "FORMS") for form in forms),
        key=lambda form: form.fits is None,
    )
)
