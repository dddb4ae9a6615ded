"""Labels that images on disk bring along, or that a file gives them."""

# N samples

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from counterpoint.core.errors import UsageError
from counterpoint.data.formats.label_files import Labels, labels_from_array, labels_from_csv, number_labels
from counterpoint.data.formats.located import Located

LabelRule = Callable[[Sequence[Located]], Labels | None]


def labels_as_asked(asked: str, images: Sequence[Located], rule: LabelRule) -> Labels | None:
    """Labels of the good images as ``source.labels`` asks: auto (the rule), none, or a file.

    Raises:
        UsageError: it asks for something else.
        DataError: the file does not fit the images.
    """
    if asked == "none":
        return None
    if asked == "auto":
        return rule(images)
    if asked.endswith(".npy"):
        return labels_from_array(Path(asked), len(images))
    if asked.endswith(".csv"):
        return labels_from_csv(Path(asked), [image.name for image in images])
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
    is_whole = all(label.isascii() and label.isdigit() and str(int(label)) == label for label in known)
    numbered = number_labels([int(label) for label in known] if is_whole else known, len(known))
    numbers_N = torch.full((len(labels),), -1, dtype=torch.int64)
    numbers_N[torch.tensor([label is not None for label in labels])] = numbered.numbers
    return Labels(numbers_N, numbered.class_names)
