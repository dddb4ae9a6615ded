"""Choice of the samples that are held out or left out of long tails and small sets, and order of the others.

All are pure functions of seeds, labels and the epoch.
"""

# N samples of the source, T training positions, C classes

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.counter_random import PURPOSE_ORDER, PURPOSE_SPLIT, words
from counterpoint.core.errors import UsageError
from counterpoint.core.settings import SourceSettings

# Not the run's seed: all runs on some data are compared, and trained, on the same samples.
SPLIT_SEED = TAIL_SEED = 0
# Among the purposes of core.counter_random: of the samples that a class keeps, and of balanced sampling.
PURPOSE_TAIL, PURPOSE_TURN, PURPOSE_ROUND = 64 << 16, 65 << 16, 66 << 16
ROUNDING = 1e-9  # 5000 samples at ratio 100 leave 50 of the last class, not 49.999... cut to 49


@dataclass(frozen=True)
class Split:
    """Positions in the source, ascending."""

    train: Tensor
    held_out: Tensor

    @property
    def fingerprint(self) -> str:
        """Short hash of the positions that are held out."""
        return hashlib.sha256(self.held_out.numpy().tobytes()).hexdigest()[:16]


def split_source(num_samples: int, labels_N: Tensor | None, share: float) -> Split:
    """Hold out a share of each class (of everything, without labels).

    A class keeps at least one sample on each side if it has two. Samples without a label (-1) stay in training.
    """
    rank = random_order(SPLIT_SEED, 0, num_samples, purpose=PURPOSE_SPLIT)
    groups = torch.zeros(num_samples, dtype=torch.int64) if labels_N is None else labels_N
    held_out: list[Tensor] = []
    number_G, size_G = groups.unique(return_counts=True)
    # In random order; the first of them are held out, so that a larger share holds out these and more.
    by_group = rank[groups[rank].argsort(stable=True)].split(size_G.tolist())
    for group, members in zip(number_G.tolist(), by_group, strict=True):
        count = round(share * len(members))
        if share > 0 and len(members) > 1:
            # Share 0.2 of three samples rounds to 1, of two to 0: one is held out all the same.
            count = min(max(count, 1), len(members) - 1)
        # Without a class a sample cannot be a query, and it can be trained on.
        held_out.append(members[: 0 if group == -1 else count])
    is_held_out = torch.zeros(num_samples, dtype=torch.bool)
    is_held_out[torch.cat(held_out)] = True
    return Split((~is_held_out).nonzero()[:, 0], is_held_out.nonzero()[:, 0])


def random_order(seed: int, epoch: int, num_samples: int, *, purpose: int = PURPOSE_ORDER) -> Tensor:
    """A permutation of 0 ... n-1 that depends on nothing but its arguments."""
    return random_keys(seed, epoch, torch.arange(num_samples), purpose)[:, 0].argsort(stable=True)


def random_keys(seed: int, epoch: int, ids_N: Tensor, purpose: int, num_keys: int = 1) -> Tensor:
    """Whole numbers of 63 random bits for each sample, (n, num_keys): an int64's sign stays clear."""
    words_NK = words(seed, epoch, ids_N, purpose, 2 * num_keys)
    return (words_NK[:, ::2] << 31) | (words_NK[:, 1::2] >> 1)


@dataclass(frozen=True)
class Order:
    """Batches of source positions as a pure function of the epoch.

    Without labels every sample comes once per epoch; the incomplete last batch is dropped: every step has the same
    negatives. With labels there are as many batches, with every class equally often in each.

    The places of an epoch then go to the classes in turn, so in any run of consecutive places (a batch, a rank's part
    of it) two classes differ by at most one, and each epoch draws the turn again. A class runs through its samples in a
    random order, again and again if it is small, and takes only some of them if it is large.

    A sample is twice in one batch only if its class has fewer samples than places there; then it is there as
    often as the others of its class, give or take one, and a loss without labels takes its copies for negatives of each
    other: keep batches at most (number of classes) x (size of the smallest class) if that matters.

    Args:
        positions: positions in the source that are trained on.
        batch_size: samples per batch.
        seed: the run's seed; None for the order of the positions in every epoch.
        labels: class number of each of these positions, 0 or above, if classes are balanced.
    """

    positions: Tensor
    batch_size: int
    seed: int | None
    labels: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse a batch that no epoch can fill."""
        if self.batch_size > len(self.positions):
            raise UsageError(
                f"batch_size must be at most the number of training samples, {len(self.positions)}, got "
                f"{self.batch_size}"
            )

    @property
    def batches_per_epoch(self) -> int:
        """Whole batches in one epoch."""
        return len(self.positions) // self.batch_size

    def batches(self, epoch: int) -> Tensor:
        """Source positions, shape (batches, batch size)."""
        num_places = self.batches_per_epoch * self.batch_size
        if self.seed is None or self.labels is None:
            order = self.positions
            if self.seed is not None:
                order = order[random_order(self.seed, epoch, len(order))]
            return order[:num_places].reshape(self.batches_per_epoch, self.batch_size)
        _, sizes = self.labels.unique(return_counts=True)
        # One tensor of positions per class, ascending in each.
        classes = self.positions[torch.argsort(self.labels, stable=True)].split(sizes.tolist())
        places = torch.empty(num_places, dtype=torch.int64)
        turn = random_order(self.seed, epoch, len(classes), purpose=PURPOSE_TURN)[: len(places)]
        for first, number in enumerate(turn.tolist()):
            # Every C-th place: any run of consecutive places has all classes, give or take one.
            mine = torch.arange(first, len(places), len(classes))
            places[mine] = _draws(self.seed, epoch, classes[number], (mine // self.batch_size).numpy())
        return places.reshape(self.batches_per_epoch, self.batch_size)

    def repeats(self, epoch: int) -> Tensor:
        """Number of times that the sample of each place came before, so that it can be given other views each time."""
        if self.labels is None:
            return torch.zeros(self.batches_per_epoch, self.batch_size, dtype=torch.int64)
        places = self.batches(epoch).flatten().numpy()
        # Stable: equal samples stay in the order of their places, so that the rank within a group is the count so far.
        by_sample = np.argsort(places, kind="stable")
        _, first, num_draws = np.unique(places[by_sample], return_index=True, return_counts=True)
        repeats = np.empty(len(places), dtype=np.int64)
        repeats[by_sample] = np.arange(len(places)) - np.repeat(first, num_draws)
        return torch.from_numpy(repeats).reshape(self.batches_per_epoch, self.batch_size)


def _draws(seed: int, epoch: int, members: Tensor, batch_P: np.ndarray) -> Tensor:
    """The members of one class that fill its places, whose batches are given in ascending order."""
    num_rounds = -(-len(batch_P) // len(members))
    # A member's own draws do not depend on the others of its class.
    keys_MR = random_keys(seed, epoch, members, PURPOSE_ROUND, num_rounds).numpy()
    # Row r is the order of round r: every member once.
    rounds_RM = np.argsort(keys_MR, axis=0, kind="stable").T
    drawn = np.empty(rounds_RM.size, dtype=np.int64)
    for number, round_M in enumerate(rounds_RM):
        # Invariant: drawn[:here] are whole rounds, each member equally often.
        here = number * len(members)
        begun = np.searchsorted(batch_P, batch_P[here])  # where the batch began that this round continues with
        # How often the batch in which this round begins has each member already.
        uses_M = np.bincount(drawn[begun:here], minlength=len(members))
        drawn[here : here + len(members)] = round_M[np.argsort(uses_M[round_M], kind="stable")]  # the unused first
    return members[torch.from_numpy(drawn[: len(batch_P)])]


def build_order(
    positions: Tensor, labels_N: Tensor | None, batch_size: int, seed: int, sampling: str = "natural"
) -> Order:
    """The order of ``source.sampling``; balanced sampling leaves out samples without a label (-1).

    Args:
        positions: positions in the source that are trained on.
        labels_N: class number of every sample of the source, -1 if unknown, or None.
        batch_size: samples per batch.
        seed: the run's seed.
        sampling: ``natural``, ``balanced`` or ``fixed``.

    Raises:
        UsageError: balanced sampling without labels, or a batch larger than the data.
    """
    if sampling != "balanced":
        return Order(positions, batch_size, None if sampling == "fixed" else seed)
    if labels_N is None:
        raise UsageError("source.sampling balanced needs labels; name them with source.labels, or use natural")
    labelled = positions[labels_N[positions] >= 0]
    return Order(labelled, batch_size, seed, labels_N[labelled])


def is_thinned(settings: SourceSettings) -> bool:
    """Tell whether the settings ask for fewer samples than there are."""
    return settings.imbalance != "none" or settings.class_counts != "none" or settings.label_share < 1


def thin(positions_T: Tensor, labels_N: Tensor | None, settings: SourceSettings, class_names: Sequence[str]) -> Tensor:
    """Cut the training samples to the requested class sizes; this function does not change held-out samples.

    A class keeps the first samples of its own fixed random order, so a smaller set is part of every larger one, and
    what happens to one class changes nothing in another. Samples without a label (-1) are left out if anything is
    cut.

    Args:
        positions_T: training positions in the source, after the held-out split.
        labels_N: class number of every sample of the source, -1 if unknown, or None.
        settings: ``imbalance``, ``imbalance_ratio``, ``class_counts`` and ``label_share``, a share of what these leave.
        class_names: name of each class number.

    Returns:
        Positions of what is left to train on, ascending.

    Raises:
        UsageError: no labels, counts that the classes cannot give, or two ways of cutting at once.

    >>> settings = SourceSettings(class_counts=[3, 1])
    >>> thin(torch.arange(8), torch.tensor([0, 1, 0, 1, 0, 1, 0, -1]), settings, ["cat", "dog"]).tolist()
    [0, 1, 4, 6]
    """
    if not is_thinned(settings):
        return positions_T
    if labels_N is None:
        raise UsageError(
            "source.imbalance, source.class_counts and source.label_share need labels; name them with source.labels"
        )
    sizes = class_sizes(labels_N, positions_T, len(class_names))
    # The nearest whole number; at least one of a class that has any.
    counts = tuple(
        min(count, max(1, round(settings.label_share * count)))
        for count in class_counts_for(sizes, settings, class_names)
    )
    chosen = []
    for number, count in enumerate(counts):
        members = positions_T[labels_N[positions_T] == number]
        # The class's own order, a function of the positions alone.
        keys = random_keys(TAIL_SEED, 0, members, PURPOSE_TAIL)[:, 0]
        chosen.append(members[keys.argsort(stable=True)[:count]])
    # In the source's order again: which samples are kept, not how they were found, decides the epochs' order.
    return torch.cat(chosen).sort().values


def class_sizes(labels_N: Tensor | None, positions_T: Tensor, num_classes: int) -> tuple[int, ...]:
    """Samples of each class at some positions; unknown labels (-1) count nowhere, and without labels there are none.

    >>> class_sizes(torch.tensor([0, 2, 2, -1]), torch.arange(4), 4)
    (1, 0, 2, 0)
    """
    if labels_N is None:
        return ()
    labels_T = labels_N[positions_T]
    return tuple(torch.bincount(labels_T[labels_T >= 0], minlength=num_classes).tolist())


def class_counts_for(sizes: Sequence[int], settings: SourceSettings, class_names: Sequence[str]) -> tuple[int, ...]:
    r"""Number of samples that each class keeps.

    .. math:: n_c = \lfloor n_{max}\, \rho^{-c/(C-1)} \rfloor \;\text{(exponential)}, \qquad
              n_c = n_{max} \;(c < C/2), \; \lfloor n_{max} / \rho \rfloor \;\text{otherwise (step)}

    with rho the ratio and the classes in the order of their numbers. n_max is the largest number for which every class
    has enough samples: the size of a class if all are of one size, as in the source.

    Source: cao2019, section 4 and its code (``int(img_max * imb_factor ** (c / (C - 1)))``). Differs from it if C
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
        counts = tuple(settings.class_counts)
        if settings.imbalance != "none":
            raise UsageError("source.class_counts and source.imbalance exclude each other; leave one of them at none")
        if len(counts) != len(sizes):
            raise UsageError(
                f"source.class_counts must have one number for each of the {len(sizes)} classes, got {len(counts)}"
            )
        for name, size, count in zip(class_names, sizes, counts, strict=True):
            if count > size:
                raise UsageError(
                    f"source.class_counts asks for {count} samples of class {name!r}, which has {size} for training; "
                    "ask for at most that, or hold out fewer with source.holdout"
                )
        return counts
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
