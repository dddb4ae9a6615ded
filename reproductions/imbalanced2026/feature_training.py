r"""Training of free vectors: Adam on the unit sphere or in the unit ball, batch by batch.

The samples of a class take turns at being each other's positives, and no batch meets the same company twice. A loss
that shortens vectors to a radius of its own is given them times that radius, so that vectors of length 1 reach it.
"""

# N samples, B samples of a batch, C classes, D features

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice, check_positive
from counterpoint.core.errors import UsageError
from counterpoint.core.numerics import into_ball, unit_rows
from counterpoint.data.order import random_order
from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.losses.loss import Loss
from counterpoint.losses.spectral import SpectralContrastive

Lengths = Literal["sphere", "ball"]
Positives = Literal["class", "itself"]
POSITIVES: Mapping[str, str] = {"class": "another sample of the class", "itself": "the sample itself"}
BOUNDS: Mapping[str, Callable[[Tensor], Tensor]] = {"sphere": unit_rows, "ball": lambda w_ND: into_ball(w_ND, 1.0)}
START_LENGTH = 0.5  # deviation of each coordinate of the first vectors, before they are shortened into the ball
NUM_RECORDS = 50


@dataclass(frozen=True)
class FeatureTraining:
    """How the free vectors are trained: Adam, with a rate that falls to zero along half a cosine.

    Attributes:
        num_samples: N, shared among the classes in the proportions asked for, as nearly as whole samples allow.
        epochs: passes over all samples.
        batch_size: samples per batch, 2 to N; None takes all of them in one. All samples are shuffled anew for each
            epoch, so that no two groups of samples never meet (batch-shuffling, kini2024).
        is_stratified: each batch has the classes' shares, as nearly as whole samples allow; otherwise they are those
            of a random draw.
        learning_rate: of the first step, > 0.
        lengths: ``sphere`` (unit vectors) or ``ball`` (at most unit length, as the paper has it).
        positives: ``class`` (another sample of the class, drawn anew in every step) or ``itself``, as when the two
            views of a picture always get one vector.
        seed: of first vectors, shuffling, positives and drawn negatives.
    """

    num_samples: int = 200
    epochs: int = 300
    batch_size: int | None = None
    is_stratified: bool = True
    learning_rate: float = 0.1
    lengths: Lengths = "sphere"
    positives: Positives = "class"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check all numbers.

        Raises:
            UsageError: a number out of its range, or not whole where it must be; unknown lengths.
        """
        check_whole(self.epochs, "epochs", least=1, hint="300 is common")
        check_whole(self.num_samples, "num_samples", least=4, hint="200 is common")
        check_whole(self.seed, "seed", least=0, hint="0 is as good as any")
        is_fit = isinstance(self.batch_size, int) and 2 <= self.batch_size <= self.num_samples
        if self.batch_size is not None and not is_fit:
            raise UsageError(
                f"batch_size must be a whole number from 2 to num_samples, {self.num_samples}, got "
                f"{self.batch_size!r}; None takes all samples in one batch"
            )
        check_positive(self.learning_rate, "learning_rate", hint="common values are 0.03 to 0.3")
        check_choice(self.lengths, "lengths", BOUNDS)
        check_choice(self.positives, "positives", POSITIVES)


def check_whole(value: int, name: str, *, least: int, hint: str) -> None:
    """Require a whole number that is large enough.

    Raises:
        UsageError: with name, value, range and remedy.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name} must be a whole number >= {least}, got {value!r}; {hint}")
    if value < least:
        raise UsageError(f"{name} must be >= {least}, got {value}; {hint}")


DEFAULT_TRAINING = FeatureTraining()


@dataclass(frozen=True)
class Snapshot:
    """The features after some steps, and the loss there."""

    step: int
    loss: float
    features_ND: Tensor


def train_features(loss: Loss, labels_N: Tensor, dimension: int, training: FeatureTraining) -> Iterator[Snapshot]:
    """Train free vectors; yield them from time to time and at the end."""
    generator = torch.Generator().manual_seed(training.seed)
    bound = BOUNDS[training.lengths]
    start_ND = torch.randn(len(labels_N), dimension, dtype=torch.float64, generator=generator)
    free_ND = (unit_rows(start_ND) if training.lengths == "sphere" else START_LENGTH * start_ND).requires_grad_()
    optimiser = torch.optim.Adam([free_ND], lr=training.learning_rate)
    # every epoch has as many batches as the first
    num_steps = training.epochs * len(epoch_batches(labels_N, training, 0))
    batches = (batch for epoch in range(training.epochs) for batch in epoch_batches(labels_N, training, epoch))
    for step, batch_B in enumerate(batches):
        optimiser.param_groups[0]["lr"] = training.learning_rate * (1 + math.cos(math.pi * step / num_steps)) / 2
        value = _batch_loss(loss, bound(free_ND[batch_B]), labels_N[batch_B], step, training, generator)
        # features and loss from before the step
        if step % max(1, num_steps // NUM_RECORDS) == 0:
            yield Snapshot(step, value.item(), bound(free_ND.detach()))
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        if training.lengths == "sphere":  # else vectors grow, and with them what a step must do to turn them
            free_ND.data = unit_rows(free_ND.data)
    features_ND = bound(free_ND.detach())
    value = _batch_loss(loss, features_ND, labels_N, num_steps, training, generator)
    yield Snapshot(num_steps, value.item(), features_ND)


def whole_samples(proportions: Sequence[float] | Tensor, num_samples: int) -> tuple[int, ...]:
    """Samples of each class: the whole parts of the exact numbers, then one more for the largest remainders.

    Args:
        proportions: share of each class, with sum 1.
        num_samples: samples in all.

    >>> whole_samples([0.5, 0.3, 0.2], 9)
    (4, 3, 2)
    """
    exact_C = num_samples * torch.as_tensor(proportions, dtype=torch.float64)
    counts_C = (exact_C + 1e-9).floor()  # 0.3 * 10 is 3, whatever its last bit
    num_left = num_samples - int(counts_C.sum())
    counts_C[torch.argsort(counts_C - exact_C, stable=True)[:num_left]] += 1
    return tuple(int(count) for count in counts_C)


def _batch_loss(
    loss: Loss, z_BD: Tensor, labels_B: Tensor, step: int, training: FeatureTraining, generator: torch.Generator
) -> Tensor:
    """The loss of a batch, each sample beside its positive, in units of the loss's radius."""
    # theory has unit vectors, the loss its own length
    z_BD = vector_radius(loss) * z_BD
    # the draws of negatives follow from seed and step
    numbered = {"step": step} if isinstance(loss, GeneralizedContrastive) else {}
    # no labels: with them the class's other samples could be positives, too
    if training.positives == "itself":
        return loss(z_BD, z_BD, **numbered)
    return loss(z_BD, z_BD[class_partners(labels_B, generator)], labels_B, **numbered)


def vector_radius(loss: Loss) -> float:
    """Length of the vectors in whose units a loss has its class means: sqrt(mu) of the spectral losses, else 1.

    >>> vector_radius(SpectralContrastive(mu=4.0))
    2.0
    """
    spectral = loss
    if isinstance(spectral, SpectralContrastive) and spectral.mu is not None:
        return math.sqrt(spectral.mu)
    return 1.0


def class_partners(labels_B: Tensor, generator: torch.Generator) -> Tensor:
    """A random permutation of the batch that leaves every class where it is: uniform within each class.

    Args:
        labels_B: class of each place of the batch.
        generator: of the permutation.

    >>> class_partners(torch.tensor([0, 1, 2]), torch.Generator())
    tensor([0, 1, 2])
    """
    shuffled_B = torch.randperm(len(labels_B), generator=generator)
    partner_B = torch.empty_like(shuffled_B)
    # the i-th place of a class, by position, is given its i-th member in the random order
    partner_B[torch.argsort(labels_B, stable=True)] = shuffled_B[torch.argsort(labels_B[shuffled_B], stable=True)]
    return partner_B


def epoch_batches(labels_N: Tensor, training: FeatureTraining, epoch: int) -> tuple[Tensor, ...]:
    """Places of the samples of each batch: every sample once, sizes that differ by one at most.

    Args:
        labels_N: class of each sample.
        training: batch size, whether batches are stratified, seed.
        epoch: each has its own order, a pure function of seed and epoch.
    """
    order_N = random_order(training.seed, epoch, len(labels_N))
    if training.is_stratified:
        order_N = _spread_classes(order_N, labels_N)
    num_batches = math.ceil(len(order_N) / (training.batch_size or len(order_N)))
    return order_N.tensor_split(min(num_batches, len(order_N) // 2))  # a loss needs two samples


def _spread_classes(order_N: Tensor, labels_N: Tensor) -> Tensor:
    """Keep the order within each class, and space the samples of each class evenly."""
    counts_C = torch.bincount(labels_N)
    by_class_N = order_N[torch.argsort(labels_N[order_N], stable=True)]
    class_N = labels_N[by_class_N]
    # place within the class: position less the number of samples of earlier classes
    rank_N = torch.arange(len(order_N)) - (counts_C.cumsum(0) - counts_C)[class_N]
    # the i-th of n samples (from 0) stands at (i + 1/2) / n of the epoch
    return by_class_N[torch.argsort((rank_N + 0.5) / counts_C[class_N], stable=True)]
