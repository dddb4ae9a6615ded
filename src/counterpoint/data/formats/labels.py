"""Labels that images bring, or from sub-folder names, a CSV (file,label) or an array; names become class numbers."""

# N samples

import csv
import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.checks import check_held
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.user_files import read_text
from counterpoint.data.formats.npz_files import read_npy
from counterpoint.data.stores import Located

MISSING = frozenset(("", "-1", "-1.0", "nan", "<NA>"))  # texts that mean "no label"
MAX_DIGITS = 18  # of a label that is a whole number; int64 holds them


@dataclass(frozen=True)
class Labels:
    """Class numbers and names; -1 marks a sample without label."""

    numbers: Tensor
    class_names: tuple[str, ...]


def number_labels(values: Sequence[Any] | np.ndarray | Tensor, num_samples: int) -> Labels | None:
    """Number the distinct labels 0, 1, ... in sorted order (numbers before text); None if no sample has one.

    None, NaN, empty text and -1, also as text, mean that a sample has no label. Other negative numbers are classes,
    as is -1 if 1 is the only other value, which two classes are often called.

    Raises:
        DataError: another number of labels than samples, or a label that is neither whole number nor text.

    >>> number_labels([None, "b", "", "a"], 4)
    Labels(numbers=tensor([-1,  1, -1,  0]), class_names=('a', 'b'))
    >>> number_labels([-1, -5, 3], 3).numbers, number_labels([-1, 1, 1], 3).numbers
    (tensor([-1,  0,  1]), tensor([0, 1, 1]))
    """
    if isinstance(values, Tensor):  # of any device
        check_held(values, "labels", error=DataError)
        values = values.detach().cpu().resolve_conj().resolve_neg().numpy()
    array = np.asarray(values)
    if array.ndim != 1 or len(array) != num_samples:
        raise DataError(f"labels must be one per sample: {num_samples} samples, but labels have shape {array.shape}")
    if array.dtype.kind in "iuf":
        is_missing_N = (array == -1) | np.isnan(array)
    else:
        is_missing_N = np.array([is_missing(label) for label in array.tolist()], bool)
    # Two classes of many a binary task are called -1 and 1.
    if is_missing_N.any() and {str(label).removesuffix(".0") for label in np.unique(array.astype(str))} == {"-1", "1"}:
        is_missing_N = np.zeros(len(array), bool)
    is_labelled_N = ~is_missing_N
    present = array[is_labelled_N]
    if array.dtype.kind == "O" and not isinstance(values, np.ndarray):
        present = np.asarray(present.tolist())  # of a list of whole numbers and None: numbers have their own order
    if not len(present):
        return None
    # Whole numbers that were saved as floats are classes 0, 1, ..., not "0.0".
    is_whole = present.dtype.kind == "f" and np.all(np.abs(present) < 2**53) and np.all(present == np.round(present))
    if is_whole:  # beyond 2**53 neighbouring whole numbers are equal
        present = present.astype(np.int64)
    if present.dtype.kind not in "iubUSO":
        raise DataError(f"labels must be whole numbers or text, got dtype {present.dtype}")
    # As text, lists of mixed types have an order.
    names, places = np.unique(present.astype(str) if present.dtype.kind in "OUS" else present, return_inverse=True)
    numbers_N = torch.full((len(array),), -1, dtype=torch.int64)
    numbers_N[torch.from_numpy(is_labelled_N)] = torch.from_numpy(places.astype(np.int64))
    return Labels(numbers_N, tuple(str(name) for name in names))


def is_missing(label: Any) -> bool:
    """Tell whether a label means that a sample has none: None, NaN, pandas' NA, empty text or -1, also as text.

    >>> [is_missing(label) for label in (None, float("nan"), b"", -1.0, "-1", 0, "none")]
    [True, True, True, True, True, False, False]
    """
    return label is None or (label.decode(errors="replace") if isinstance(label, bytes) else str(label)) in MISSING


def labels_from_folders(names: Sequence[str]) -> Labels | None:
    """Take the first folder of each relative file name as its label, if all files lie in at least two folders."""
    places, numbers_N = dict[str, int](), torch.empty(len(names), dtype=torch.int64)
    for row, name in enumerate(names):  # which need not be in memory
        top, slash, _ = name.partition("/")
        if not slash:  # a file beside the folders: then they do not name classes
            return None
        numbers_N[row] = places.setdefault(top, len(places))
    if len(places) < 2:
        return None
    class_names = tuple(sorted(places))  # a folder is a class, whatever its name
    order = torch.empty(len(places), dtype=torch.int64)
    order[[places[name] for name in class_names]] = torch.arange(len(places))
    return Labels(order[numbers_N], class_names)


def _labels_from_csv(path: Path, names: Sequence[str]) -> Labels | None:
    """Labels by file name; a row names a file by its path relative to the folder, or by its base name if unique."""
    try:
        rows = [row for row in csv.reader(io.StringIO(read_text(path), newline="")) if row]
    except FileNotFoundError:
        raise UsageError(f"labels file {path} does not exist") from None
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(f"labels file {path} cannot be read: {error}") from None
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if not {"file", "label"} <= set(header) or any(len(row) != len(header) for row in rows):
        raise DataError(f"{path} must have the columns file,label in every row")
    file_column, label_column = header.index("file"), header.index("label")
    by_name = {row[file_column].strip().replace("\\", "/"): row[label_column].strip() for row in rows[1:]}
    bases = [name.rsplit("/", 1)[-1] for name in names]
    num_of_base = Counter(bases)
    labels = [
        # a/1.jpg and b/1.jpg: the base name alone says too little.
        by_name.get(name, by_name.get(base) if num_of_base[base] == 1 else None)
        for name, base in zip(names, bases, strict=True)
    ]
    if not any(label is not None for label in labels):
        example = next(iter(by_name), "nothing")
        raise DataError(
            f"{path}: no row names a file of the data (the first row names {example!r}, the first file is {names[0]!r})"
        )
    return number_labels(labels, len(labels))


def labels_as_asked(setting: Any, names: Sequence[str], rule: Callable[[], Labels | None]) -> Labels | None:
    """Labels of samples with some names as ``source.labels`` asks: auto (the rule), none, or a file; or one per sample.

    Raises:
        UsageError: it asks for something else.
        DataError: the file does not fit the samples.
    """
    if not isinstance(setting, str | Path):
        return None if setting is None else number_labels(setting, len(names))
    if setting in ("auto", "none"):
        return rule() if setting == "auto" else None
    if (path := Path(setting)).suffix == ".npy":
        return number_labels(read_npy(path), len(names))
    if path.suffix == ".csv":
        return _labels_from_csv(path, names)
    raise UsageError(f"source.labels must be auto, none, a .csv or a .npy file, got {str(setting)!r}")


def own_labels(images: Sequence[Located]) -> Labels | None:
    """Number the labels that the images bring, whole numbers by value and others by name; None when no image has one.

    >>> own_labels([Located("a", Path(), label="10"), Located("b", Path(), label="9")])
    Labels(numbers=tensor([1, 0]), class_names=('9', '10'))
    """
    labels = [image.label for image in images]
    # "007" is a name, since 7 would not give it back; "²" is a digit to ``isdigit`` but no number to ``int``.
    is_whole = all(
        len(label) <= MAX_DIGITS and label.isascii() and label.isdigit() and str(int(label)) == label
        for label in labels
        if label is not None and not is_missing(label)
    )
    values = [
        None if label in (None, "") else int(label) if is_whole and label.lstrip("-").isdigit() else label
        for label in labels
    ]
    return number_labels(values, len(values))
