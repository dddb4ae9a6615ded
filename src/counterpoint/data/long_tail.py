"""Long-tailed or small versions of any labelled source: how many training samples each class keeps, and which."""

# N samples of the source, T training positions, C classes

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.counter_random import words
from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.errors import UsageError

TAIL_SEED = 0  # as with the split, runs of every seed are trained on the same samples
PURPOSE_TAIL = 64 << 16  # among the purposes of core.counter_random
ROUNDING = 1e-9  # 5000 samples at ratio 100 leave 50 of the last class, not 49.999... cut to 49


@dataclass(frozen=True)
class Thinned:
    """What is left to train on.

    Attributes:
        positions: positions in the source, ascending, (t,).
        counts: how many of each class, in the order of class numbers; empty without labels.
        num_unlabelled: training samples without a label that were left out, because no class counts them.
    """

    positions: Tensor
    counts: tuple[int, ...]
    num_unlabelled: int


def is_thinned(settings: SourceSettings) -> bool:
    """Whether the settings ask for fewer samples than there are."""
    return settings.imbalance != "none" or settings.class_counts != "none" or settings.label_share < 1


def thin(positions_T: Tensor, labels_N: Tensor | None, settings: SourceSettings, class_names: Sequence[str]) -> Thinned:
    """Cut the training samples to the class sizes asked for; held-out samples are not this function's affair.

    A class keeps the first samples of its own fixed random order, so a smaller set is part of every larger one, and
    what happens to one class changes nothing in another. Samples without a label (-1) are left out where anything is
    cut, and counted.

    Args:
        positions_T: training positions in the source, after the held-out split.
        labels_N: class number of every sample of the source, -1 where unknown, or None.
        settings: ``imbalance``, ``imbalance_ratio``, ``class_counts`` and ``label_share``, a share of what these leave.
        class_names: name of each class number.

    Raises:
        UsageError: no labels, counts that the classes cannot give, or two ways of cutting at once.

    >>> settings = SourceSettings(class_counts=[3, 1])
    >>> thin(torch.arange(8), torch.tensor([0, 1, 0, 1, 0, 1, 0, -1]), settings, ["cat", "dog"]).counts
    (3, 1)
    """
    if labels_N is None:
        if is_thinned(settings):
            raise UsageError(
                "source.imbalance, source.class_counts and source.label_share need labels; name them with source.labels"
            )
        return Thinned(positions_T, (), 0)
    sizes = class_sizes(labels_N[positions_T], len(class_names))
    if not is_thinned(settings):
        return Thinned(positions_T, sizes, 0)
    # The nearest whole number; at least one of a class that has any.
    counts = tuple(
        min(count, max(1, round(settings.label_share * count)))
        for count in class_counts_for(sizes, settings, class_names)
    )
    kept = []
    for number, count in enumerate(counts):
        members = positions_T[labels_N[positions_T] == number]
        # The class's own order, a function of the positions alone. 32 + 31 = 63 bits: an int64's sign stays clear.
        keys = words(TAIL_SEED, 0, members, PURPOSE_TAIL, 2)
        kept.append(members[torch.argsort((keys[:, 0] << 31) | (keys[:, 1] >> 1), stable=True)[:count]])
    num_unlabelled = int((labels_N[positions_T] < 0).sum())
    # In the source's order again: which samples are kept, not how they were found, decides the epochs' order.
    return Thinned(torch.cat(kept).sort().values, counts, num_unlabelled)


def class_sizes(labels_T: Tensor, num_classes: int) -> tuple[int, ...]:
    """Samples of each class; unknown labels (-1) count nowhere.

    >>> class_sizes(torch.tensor([0, 2, 2, -1]), 4)
    (1, 0, 2, 0)
    """
    return tuple(torch.bincount(labels_T[labels_T >= 0], minlength=num_classes).tolist())


def class_counts_for(sizes: Sequence[int], settings: SourceSettings, class_names: Sequence[str]) -> tuple[int, ...]:
    r"""How many samples each class keeps.

    .. math:: n_c = \lfloor n_{max}\, \rho^{-c/(C-1)} \rfloor \;\text{(exponential)}, \qquad
              n_c = n_{max} \;(c < C/2), \; \lfloor n_{max} / \rho \rfloor \;\text{otherwise (step)}

    with rho the ratio and the classes in the order of their numbers. n_max is the largest number for which every class
    has enough samples: the size of a class where all are of one size, as in the source.

    Source: cao2019, section 4 and its code (``int(img_max * imb_factor ** (c / (C - 1)))``). Differs from it where C
    is odd: its step version drops the last class, here the middle one is large.

    Args:
        sizes: samples that each class has.
        settings: ``imbalance``, ``imbalance_ratio`` and ``class_counts``.
        class_names: name of each class number.

    Raises:
        UsageError: more than a class has, none of a class, or two ways of cutting at once.

    >>> class_counts_for([5000] * 4, SourceSettings(imbalance="exponential", imbalance_ratio=1000), list("abcd"))
    (5000, 500, 50, 5)
    >>> class_counts_for([90, 70, 80], SourceSettings(imbalance="step", imbalance_ratio=10), list("abc"))
    (70, 70, 7)
    """
    if settings.class_counts != "none":
        return _explicit(sizes, tuple(settings.class_counts), settings, class_names)
    if settings.imbalance == "none":
        return tuple(sizes)
    num_classes, ratio = len(sizes), settings.imbalance_ratio
    if settings.imbalance == "step":  # Differs from cao2019's code for odd C: there the last class is dropped.
        shares = [1.0 if 2 * number < num_classes else 1 / ratio for number in range(num_classes)]
    else:  # max: a single class is its own largest
        shares = [ratio ** (-number / max(1, num_classes - 1)) for number in range(num_classes)]
    for name, size in zip(class_names, sizes, strict=True):
        if size < 1:
            raise UsageError(
                f"source.imbalance: class {name!r} has no sample to train on; leave the class out of the data"
            )
    # n_max: the class that is shortest of samples for its share bounds all others.
    largest = min(size / share for size, share in zip(sizes, shares, strict=True))
    # cao2019's code: int(img_max * imb_factor ** (c / (C - 1))), with ratio = 1 / imb_factor.
    counts = tuple(math.floor(math.floor(largest + ROUNDING) * share * (1 + ROUNDING)) for share in shares)
    for name, size, count in zip(class_names, sizes, counts, strict=True):
        if count < 1:
            raise UsageError(
                f"source.imbalance_ratio {settings.imbalance_ratio:g} leaves no sample of class {name!r}, which has "
                f"{size} for training; with these data the ratio can be at most about {math.floor(largest)}"
            )
    return counts


def _explicit(
    sizes: Sequence[int], counts: tuple[int, ...], settings: SourceSettings, class_names: Sequence[str]
) -> tuple[int, ...]:
    """The counts that the user wrote down, checked."""
    if settings.imbalance != "none":
        raise UsageError("source.class_counts and source.imbalance exclude each other; leave one of them at none")
    if len(counts) != len(sizes):
        raise UsageError(
            f"source.class_counts must have one number for each of the {len(sizes)} classes, got {len(counts)}"
        )
    for name, size, count in zip(class_names, sizes, counts, strict=True):
        if count > size:
            raise UsageError(
                f"source.class_counts asks for {count} samples of class {name!r}, which has {size} for training; ask "
                f"for at most that, or hold out fewer with source.holdout"
            )
    return counts
