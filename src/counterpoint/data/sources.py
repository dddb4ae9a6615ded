"""The one entry to data: a named set, a folder, a file, or an array.

Modules of ``formats`` and ``sets`` end with literal records: ``CATALOGUE``, their named sets, and ``FORMS``, their
forms of file or folder. A new source is a module there, and is found here.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from counterpoint.core.array_layout import to_samples
from counterpoint.core.catalogues import loaded
from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import DataError, UsageError, gone, nearest
from counterpoint.core.user_files import open_regular
from counterpoint.data.formats.labels import number_labels
from counterpoint.data.parts import names_in, of_classes, without
from counterpoint.data.source import FOLDER, FileForm, NamedSource, Progress, Source, memory_source

ARRAY = "array"
ALL = "all"  # classes
NO_FILE = "none"


def open_source(data: Any, settings: SourceSettings, *, labels: Any = None, progress: Progress) -> Source:
    """Open whatever the user gave as data, all of it, without some samples, or the samples of some classes.

    Args:
        data: a name of ``CATALOGUE``, a path (a folder or a file of any known form), a NumPy array or a tensor.
        settings: labels, split, columns, image size, share of bad files allowed.
        labels: one label per sample, for arrays in memory.
        progress: shows how far the data have been read.

    Raises:
        UsageError: no data, an unknown name, a path that does not exist, or a class or an excluded sample that is not
            there.
        DataError: nothing usable in it.
    """
    source = _open_all(data, settings, labels, progress)
    if settings.exclude != NO_FILE:
        source = without(source, names_in(Path(settings.exclude)), settings.exclude)
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
    path = Path(os.path.expanduser(data))  # unlike Path.expanduser, leaves unknown users alone
    if not os.path.exists(path):  # False for names too long, where Path.exists raises
        raise UsageError(
            gone(f"--data {data}")
            or f"no such file or folder: {str(data)!r}{nearest(str(data), CATALOGUE)}; data can be {_known_forms()}"
        )
    if not path.is_dir():
        try:
            open_regular(path).close()  # also before the forms look inside
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    for form in _forms_by_name(path):
        if form.fits is None or form.fits(path):
            return form.open(path, settings, progress)
    raise UsageError(f"{path} is neither a folder of images nor a file of a known form; data can be {_known_forms()}")


def files_of(data: str | Path, settings: SourceSettings) -> tuple[str, ...] | None:
    """Absolute paths of the files and folders in which samples lie, whether they are there or not.

    Returns:
        None where nobody knows them.
    """
    named = CATALOGUE.get(str(data))
    if named is not None and named.has_files:
        return None
    places = [] if named is not None else [Path(os.path.expanduser(data))]
    # Files of labels and of excluded samples; the other values of these settings are no paths.
    places += [Path(name) for name in (settings.labels, settings.exclude) if name not in ("auto", NO_FILE)]
    return tuple(map(os.path.abspath, places))


def form_of(data: str | None) -> str | None:
    """What kind of data a name or path stands for, told without opening it; None where there is nothing.

    >>> form_of("digits"), form_of("cifar10")
    ('a named set without files', 'a named set of files')
    """
    if data is None or data == ARRAY:
        return data and "an array in memory"
    if data in CATALOGUE:
        return NAMED_SET if CATALOGUE[data].has_files else "a named set without files"
    path = Path(os.path.expanduser(data))
    forms = _forms_by_name(path) if os.path.exists(path) else []
    for place, form in enumerate(forms):
        # Nothing is opened where all forms that are left have one name: .npz is "an archive" whatever is in it.
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
