"""Which samples are held out, and in which order the others come: pure functions of seeds and epoch."""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.counter_random import PURPOSE_ORDER, PURPOSE_SPLIT, words
from counterpoint.core.errors import UsageError

SPLIT_SEED = (
    0  # the split does not follow the run's seed, so that all runs on some data are compared on the same samples
)


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
        members = rank[groups[rank] == group]
        count = round(share * len(members))
        if share > 0 and len(members) > 1:
            count = min(max(count, 1), len(members) - 1)
        held_out.append(members[: 0 if group == -1 else count])
    is_held_out = torch.zeros(num_samples, dtype=torch.bool)
    is_held_out[torch.cat(held_out)] = True
    return Split((~is_held_out).nonzero()[:, 0], is_held_out.nonzero()[:, 0])


def random_order(seed: int, epoch: int, num_samples: int, *, purpose: int = PURPOSE_ORDER) -> Tensor:
    """A permutation of 0 ... n-1 that depends on nothing but its arguments."""
    keys = words(seed, epoch, torch.arange(num_samples), purpose, 2)
    return torch.argsort((keys[:, 0] << 31) | (keys[:, 1] >> 1), stable=True)  # 63 random bits per sample


@dataclass(frozen=True)
class EpochOrder:
    """Batches of sample positions per epoch; the incomplete last one is dropped: every step has the same negatives.

    Args:
        positions: positions in the source that are trained on.
        batch_size: samples per batch.
        seed: the run's seed.
    """

    positions: Tensor
    batch_size: int
    seed: int

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
        order = self.positions[random_order(self.seed, epoch, len(self.positions))]
        used = self.batches_per_epoch * self.batch_size
        return order[:used].reshape(self.batches_per_epoch, self.batch_size)
