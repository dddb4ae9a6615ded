"""Which samples are held out, and in which order the others come: pure functions of seeds and epoch."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.counter_random import PURPOSE_ORDER, PURPOSE_SPLIT, words
from counterpoint.core.errors import UsageError

SPLIT_SEED = (
    0  # the split does not follow the run's seed, so that all runs on some data are compared on the same samples
)
# Purposes of balanced sampling, among those of core.counter_random.
PURPOSE_TURN = 65 << 16
PURPOSE_ROUND = 66 << 16


@dataclass(frozen=True)
class Split:
    """Positions in the source, ascending."""

    train: Tensor
    held_out: Tensor

    @property
    def fingerprint(self) -> str:
        """Short hash of which samples are held out."""
        return hashlib.sha256(self.held_out.numpy().tobytes()).hexdigest()[:16]


def split_source(num_samples: int, labels_N: Tensor | None, share: float) -> Split:
    """Hold out a share of each class (of everything, without labels).

    A class keeps at least one sample on each side where it has two. Samples without a label (-1) stay in training.
    """
    rank = random_order(SPLIT_SEED, 0, num_samples, purpose=PURPOSE_SPLIT)
    groups = torch.zeros(num_samples, dtype=torch.int64) if labels_N is None else labels_N
    held_out: list[Tensor] = []
    for group in groups.unique().tolist():
        # In random order; the first of them are held out, so that a larger share holds out these and more.
        members = rank[groups[rank] == group]
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
    keys = words(seed, epoch, torch.arange(num_samples), purpose, 2)
    return torch.argsort((keys[:, 0] << 31) | (keys[:, 1] >> 1), stable=True)  # 63 random bits per sample


@dataclass(frozen=True)
class Order:
    """Batches of source positions as a pure function of the epoch.

    Without labels every sample comes once per epoch; the incomplete last batch is dropped: every step has the same
    negatives. With labels there are as many batches, with every class equally often in each.

    The places of an epoch then go to the classes in turn, so in any run of consecutive places (a batch, a rank's part
    of it) two classes differ by at most one, and each epoch draws the turn anew. A class runs through its samples in a
    random order, again and again where it is small, and takes only some of them where it is large.

    A sample stands twice in one batch only if its class has fewer samples than places there; then it stands there as
    often as the others of its class, give or take one, and a loss without labels takes its copies for negatives of each
    other: keep batches at most (number of classes) x (size of the smallest class) where that matters.

    Args:
        positions: positions in the source that are trained on.
        batch_size: samples per batch.
        seed: the run's seed; None for the order of the positions in every epoch.
        labels: class number of each of these positions, 0 or above, where classes are balanced.
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
        """How often the sample of each place came before, so that it can be given other views each time."""
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
    # 63 random bits per member and round; a member's own draws do not depend on the others of its class.
    keys = words(seed, epoch, members, PURPOSE_ROUND, 2 * num_rounds).numpy().reshape(len(members), -1, 2)
    # Row r is the order of round r: every member once.
    rounds_RM = np.argsort((keys[..., 0] << 31) | (keys[..., 1] >> 1), axis=0, kind="stable").T
    drawn = np.empty(rounds_RM.size, dtype=np.int64)
    for number, round_M in enumerate(rounds_RM):
        # Invariant: drawn[:here] are whole rounds, each member equally often.
        here = number * len(members)
        begun = np.searchsorted(batch_P, batch_P[here])  # where the batch began that this round goes on with
        # How often the batch in which this round begins has each member already.
        uses_M = np.bincount(drawn[begun:here], minlength=len(members))
        drawn[here : here + len(members)] = round_M[np.argsort(uses_M[round_M], kind="stable")]  # the unused first
    return members[torch.from_numpy(drawn[: len(batch_P)])]


def build_order(
    positions: Tensor, labels_N: Tensor | None, batch_size: int, seed: int, sampling: str = "natural"
) -> Order:
    """The order that ``source.sampling`` asks for; balanced sampling leaves out samples without a label (-1).

    Args:
        positions: positions in the source that are trained on.
        labels_N: class number of every sample of the source, -1 where unknown, or None.
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
    known = positions[labels_N[positions] >= 0]
    return Order(known, batch_size, seed, labels_N[known])
