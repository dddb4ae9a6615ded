"""Labels from what images bring, sub-folder names, a CSV (file,label) or an array; names become class numbers."""

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

MAX_DIGITS = 18  # of a label that is a whole number; int64 holds them


@dataclass(frozen=True)
class Labels:
    """Class numbers and names; -1 marks a sample without label."""

    numbers: Tensor
    class_names: tuple[str, ...]


def number_labels(values: Sequence[Any] | np.ndarray | Tensor, num_samples: int) -> Labels:
    """Number the distinct labels 0, 1, ... in sorted order (numbers before text).

    Raises:
        DataError: another number of labels than samples, or a label that is neither whole number nor text.
    """
    if isinstance(values, Tensor):  # of any device
        try:
            check_held(values, "labels")
        except TypeError as error:
            raise DataError(str(error)) from None
        values = values.detach().cpu().resolve_conj().resolve_neg().numpy()
    array = np.asarray(values)
    if array.ndim != 1 or len(array) != num_samples:
        raise DataError(f"labels must be one per sample: {num_samples} samples, but labels have shape {array.shape}")
    # Whole numbers that were saved as floats are classes 0, 1, ..., not "0.0".
    is_whole = array.dtype.kind == "f" and np.all(np.abs(array) < 2**53) and np.all(array == np.round(array))
    if is_whole:  # false of NaN; beyond 2**53 neighbours are no longer told apart
        array = array.astype(np.int64)
    if array.dtype.kind not in "iubUSO":
        raise DataError(f"labels must be whole numbers or text, got dtype {array.dtype}")
    # As text, lists of mixed types have an order.
    names, numbers = np.unique(array.astype(str) if array.dtype.kind in "OUS" else array, return_inverse=True)
    return Labels(torch.from_numpy(numbers.astype(np.int64)), tuple(str(name) for name in names))


def labels_from_folders(names: Sequence[str]) -> Labels | None:
    """Take the first folder of each relative file name as its label, if all files lie in at least two folders."""
    tops = [name.split("/", 1)[0] if "/" in name else None for name in names]
    # A file beside the folders, or all files below one folder: then folders do not name classes.
    if None in tops or len(set(tops)) < 2:
        return None
    return number_labels([str(top) for top in tops], len(names))


def labels_from_csv(path: Path, names: Sequence[str]) -> Labels:
    """Read labels by file name from a CSV with columns ``file`` and ``label``.

    A file may be named by its path relative to the folder or by its base name, if that is unique.
    Files without a row get no label.

    Raises:
        UsageError: the CSV is missing or not readable.
        DataError: fewer than two columns, or no row names a file of the data.
    """
    by_name = _read_rows(path)
    bases = [name.rsplit("/", 1)[-1] for name in names]
    num_of_base = Counter(bases)
    given = [
        # a/1.jpg and b/1.jpg: the base name alone says too little.
        by_name.get(name, by_name.get(base) if num_of_base[base] == 1 else None)
        for name, base in zip(names, bases, strict=True)
    ]
    if not any(label is not None for label in given):
        example = next(iter(by_name), "nothing")
        raise DataError(
            f"{path}: no row names a file of the data (the first row names {example!r}, the first file is {names[0]!r})"
        )
    return number_known(given)


def number_known(values: Sequence[str | int | None]) -> Labels:
    """Number labels of which some are None, for samples without a label.

    >>> number_known(["b", None, "a"]).numbers
    tensor([ 1, -1,  0])
    """
    given = [label for label in values if label is not None]
    known = number_labels(given, len(given))
    # Unknown ones stay at -1; they take no part in the numbering.
    numbers_N = torch.full((len(values),), -1, dtype=torch.int64)
    numbers_N[torch.tensor([label is not None for label in values])] = known.numbers
    return Labels(numbers_N, known.class_names)


def _read_rows(path: Path) -> dict[str, str]:
    """File name to label."""
    try:
        rows = [row for row in csv.reader(io.StringIO(read_text(path), newline="")) if row]
    except FileNotFoundError:
        raise UsageError(f"labels file {path} does not exist") from None
    except (OSError, ValueError, csv.Error) as error:
        raise UsageError(f"labels file {path} cannot be read: {error}") from None
    if not rows:
        raise DataError(f"{path} must have the columns file,label in every row")
    header = [cell.strip().lower() for cell in rows[0]]
    if not {"file", "label"} <= set(header) or any(len(row) != len(header) for row in rows):
        raise DataError(f"{path} must have the columns file,label in every row")
    file_column, label_column = header.index("file"), header.index("label")
    return {row[file_column].strip().replace("\\", "/"): row[label_column].strip() for row in rows[1:]}


def labels_as_asked(asked: str, names: Sequence[str], rule: Callable[[], Labels | None]) -> Labels | None:
    """Labels of samples with some names as ``source.labels`` asks: auto (the rule), none, or a file.

    Raises:
        UsageError: it asks for something else.
        DataError: the file does not fit the samples.
    """
    if asked == "none":
        return None
    if asked == "auto":
        return rule()
    if asked.endswith(".npy"):
        return number_labels(read_npy(Path(asked)), len(names))
    if asked.endswith(".csv"):
        return labels_from_csv(Path(asked), names)
    raise UsageError(f"source.labels must be auto, none, a .csv or a .npy file, got {asked!r}")


def own_labels(images: Sequence[Located]) -> Labels | None:
    """Number the labels that the images bring, whole numbers by value and others by name; None when no image has one.

    >>> own_labels([Located("a", Path(), label="10"), Located("b", Path(), label="9")])
    Labels(numbers=tensor([1, 0]), class_names=('9', '10'))
    """
    labels = [image.label for image in images]
    known = [label for label in labels if label is not None]
    if not known:
        return None
    # "007" is a name, since 7 would not give it back; "²" is a digit to ``isdigit`` but no number to ``int``.
    is_whole = all(
        len(label) <= MAX_DIGITS and label.isascii() and label.isdigit() and str(int(label)) == label for label in known
    )
    return number_known([int(label) if is_whole and label else label for label in labels])
