r"""Unconstrained features: one free vector per sample, trained with our losses and compared with the optimum.

A network that can fit anything is replaced by the vectors it would output. What training then finds is limited by the
loss alone, so theory's optimum can be checked against training without an encoder, an augmentation or data.
"""

# N samples, C classes, D features

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.core.numerics import unit_rows
from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.losses.loss import Loss
from counterpoint.theory.geometry.class_risk import check_proportions, class_risk
from counterpoint.theory.geometry.optimal_geometry import Geometry, optimal_geometry
from reproductions.imbalanced2026.feature_training import (
    DEFAULT_TRAINING,
    FeatureTraining,
    Snapshot,
    check_whole,
    train_features,
    whole_samples,
)

WIDTH = 8  # of a number in the printed tables


@dataclass(frozen=True)
class FeatureRecord:
    """What was measured on all samples after some steps.

    Attributes:
        step: batches trained on so far.
        loss: of the next batch; after the last step, of all samples in one batch.
        variance: within-class variance.
        deviation: largest difference between an entry of the class means' Gram matrix and its optimum.
    """

    step: int
    loss: float
    variance: float
    deviation: float


@dataclass(frozen=True)
class FeatureSimulation:
    r"""Trained features, and how far they are from the optimum.

    Attributes:
        features: trained vectors (n, d), in units of the loss's radius: sqrt(mu) of the spectral losses, else 1.
        labels: class of each, (n,).
        proportions: share of each class among the samples, for which the optimum is computed, (c,).
        gram: inner products of the class means, (c, c).
        cosines: the same of the means scaled to length 1.
        variance: within-class variance, :math:`\frac1N \sum_i \|x_i - m_{y(i)}\|^2`.
        deviation: largest difference between an entry of ``gram`` and of the optimum's.
        loss: of all samples in one batch, at the end.
        risk: class-level risk at ``gram``; never below the optimum's lower bound.
        optimum: what theory says, with its certificate, and whether it expects the classes to collapse.
        history: measurements from before the first step to the end.
        positives: ``class`` or ``itself``, as they were drawn.
    """

    features: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    proportions: Tensor
    gram: Tensor
    cosines: Tensor
    variance: float
    deviation: float
    loss: float
    risk: float
    optimum: Geometry
    history: Sequence[FeatureRecord] = field(repr=False)
    positives: str = "class"

    @property
    def excess_risk(self) -> float:
        """Class-level risk of the trained means above the lower bound; 0 where they are an optimum, unique or not."""
        return self.risk - self.optimum.lower_bound

    def __str__(self) -> str:
        """Both Gram matrices side by side, and the figures below."""
        shares = ", ".join(f"{share:.4g}" for share in self.proportions.tolist())
        width = WIDTH * len(self.gram)
        rows = zip(self.gram.tolist(), self.optimum.gram.tolist(), strict=True)
        return "\n".join(
            [
                f"Free features of {len(self.features)} samples in {self.features.shape[1]} dimensions, class shares "
                f"({shares}), after {self.history[-1].step} steps",
                f"{'trained means: Gram matrix':<{width}}    optimum",
                *(f"{_row(trained):<{width}}    {_row(optimal)}" for trained, optimal in rows),
                f"largest difference {self.deviation:.2g}, within-class variance {self.variance:.2g}",
                f"risk of the means {self.risk:.6f}, lower bound {self.optimum.lower_bound:.6f}; loss {self.loss:.6f}",
                self._expectation(),
            ]
        )

    def _expectation(self) -> str:
        """What theory says of the samples within a class."""
        if self.positives == "itself":
            return (
                "no class-level theory applies: each sample is its own positive, so that classes spread out and the "
                "loss may end below the bound"
            )
        if self.optimum.is_collapse_optimal is None:
            return "theory does not say whether the samples of a class collapse"
        expected = "to collapse" if self.optimum.is_collapse_optimal else "to stay apart, as a shorter mean costs less"
        return f"theory expects the samples of a class {expected}"


def simulate_features(
    proportions: Sequence[float] | Tensor,
    *,
    loss: Loss | None = None,
    num_negatives: float | None = None,
    supervised: bool = False,
    dimension: int | None = None,
    training: FeatureTraining = DEFAULT_TRAINING,
) -> FeatureSimulation:
    r"""Train one free vector per sample and compare the class means with ``optimal_geometry``.

    Each sample's positive is another sample of its class: the classes of a batch are permuted within themselves, anew
    in every step. Anchor, positive and negatives are then independent given their classes, as the theory has it. (A
    positive is the anchor itself with probability 1 / samples of the class in the batch.) Independence matters: with
    ``positives="itself"`` no vector knows its class, all spread over the sphere, and the loss ends *below* the
    class-level minimum.

    A loss of gaps (InfoNCE, triplet, Eq. 20) then puts all vectors of a class onto one point, and the points have the
    optimal Gram matrix where it is unique. Where ``optimum.is_collapse_optimal`` is False (MIOv1 at temperature 0.5:
    negatives of the own class repel more than the positive attracts) classes stay spread out.

    With ``loss=None`` the loss is Eq. 20 with its draws, ``GeneralizedContrastive``, whose value for collapsed
    classes is the class-level risk of the batch's own proportions. Any other loss is called as
    ``loss(z0, z1, labels)`` with the positives in z1; spectral losses get vectors times sqrt(mu), the unit of their
    risk. The anchors of such a loss meet the other samples of the batch as negatives, the anchor itself not among them:
    small batches differ from the risk by O(1/batch_size), beside the proportions of a batch where it is not
    stratified.

    Source: imbalanced2026, sections 7.1 and 7.2 with Eq. 20; Corollary 3 (collapse) and Theorem 2 (Gram matrix).
        Differs from these experiments in having no network.

    Args:
        proportions: share of each class, (c,), c >= 2, positive, with sum 1.
        loss: None is the paper's InfoNCE (Eq. 20 and 23).
        num_negatives: k draws for each anchor; None or infinity takes all of the batch. As ``optimal_geometry`` takes
            it; a given loss has as many as it finds in a batch, and this number is that of the optimum only.
        supervised: negatives are of other labels only.
        dimension: D, 2 or more; None is c, one more than most optima need (spectral losses need it).
        training: sizes, rate, seed.

    Raises:
        UsageError: what ``optimal_geometry`` refuses; dimension < 2; a class without a sample; ``supervised`` with a
            given loss, whose negatives it would not change, or with positives that know no class.

    >>> made = simulate_features([0.5, 0.25, 0.25], training=FeatureTraining(num_samples=40))
    >>> [round(float(made.gram[0, 1]), 3), round(float(made.gram[1, 2]), 3), made.variance < 1e-6]
    [-0.626, -0.215, True]
    """
    _check_supervised(loss, supervised, training)
    labels_N = _class_labels(check_proportions(proportions), training.num_samples)
    if dimension is None:
        dimension = int(labels_N.max()) + 1
    check_whole(dimension, "dimension", least=2, hint="unit vectors on a line cannot move")
    # the optimum of the whole numbers of samples, which may differ from the proportions asked for
    shares_C = torch.bincount(labels_N).double() / len(labels_N)
    negatives = {"loss": loss, "num_negatives": num_negatives, "supervised": supervised}
    optimum = optimal_geometry(shares_C, dimension=dimension, **negatives)
    # The mean over all samples of the batch is what that over infinitely many draws comes to.
    num_draws = None if num_negatives is None or math.isinf(num_negatives) else int(num_negatives)
    paper = GeneralizedContrastive(num_draws, supervised, training.lengths, seed=training.seed)
    trained = paper if loss is None else loss
    snapshots = list(train_features(trained, labels_N, dimension, training))
    history = tuple(_measure(snapshot, labels_N, optimum) for snapshot in snapshots)
    features_ND = snapshots[-1].features_ND
    means_CD = class_means(features_ND, labels_N)
    gram_CC, unit_CD = means_CD @ means_CD.T, unit_rows(means_CD)
    return FeatureSimulation(
        features=features_ND,
        labels=labels_N,
        proportions=shares_C,
        gram=gram_CC,
        cosines=unit_CD @ unit_CD.T,
        variance=history[-1].variance,
        deviation=history[-1].deviation,
        loss=history[-1].loss,
        # with 1 on the diagonal A + diag(1 - |mu_i|^2) is a correlation matrix: the bound holds for short means, too
        risk=class_risk(shares_C, **negatives).value(gram_CC),
        optimum=optimum,
        history=history,
        positives=training.positives,
    )


def class_means(features_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Mean vector of each class, (c, d).

    Args:
        features_ND: one vector per sample.
        labels_N: classes 0 ... c-1, each with at least one sample.

    >>> class_means(torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]), torch.tensor([0, 1, 0])).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    counts_C = torch.bincount(labels_N)
    sums_CD = features_ND.new_zeros(len(counts_C), features_ND.shape[1]).index_add_(0, labels_N, features_ND)
    return sums_CD / counts_C[:, None]


def within_class_variance(features_ND: Tensor, labels_N: Tensor) -> float:
    r"""Mean squared distance to the mean of the own class, :math:`\frac1N \sum_i \|x_i - m_{y(i)}\|^2`.

    Args:
        features_ND: one vector per sample.
        labels_N: classes 0 ... c-1, each with at least one sample.

    >>> features_ND = torch.tensor([[1.0], [3.0], [7.0]], dtype=torch.float64)
    >>> round(within_class_variance(features_ND, torch.tensor([0, 0, 1])), 12)  # (1 + 1 + 0) / 3
    0.666666666667
    """
    residual_ND = features_ND - class_means(features_ND, labels_N)[labels_N]
    return float(residual_ND.square().sum(1).mean())


def _measure(snapshot: Snapshot, labels_N: Tensor, optimum: Geometry) -> FeatureRecord:
    """Variance and deviation of a snapshot."""
    means_CD = class_means(snapshot.features_ND, labels_N)
    deviation = float((means_CD @ means_CD.T - optimum.gram).abs().max())
    variance = within_class_variance(snapshot.features_ND, labels_N)
    return FeatureRecord(snapshot.step, snapshot.loss, variance, deviation)


def _check_supervised(loss: Loss | None, supervised: bool, training: FeatureTraining) -> None:
    """A given loss has its own negatives, and only labels make positives and negatives of Eq. 20 differ in class."""
    if supervised and loss is not None:
        raise UsageError(
            f"supervised goes with loss=None, got {loss.card.name}, which has its own negatives; "
            "GeneralizedContrastive(supervised=True) takes those of other labels"
        )
    if supervised and training.positives == "itself":
        raise UsageError('supervised needs labels, which positives="itself" keeps from the loss; use positives="class"')


def _class_labels(proportions_C: Tensor, num_samples: int) -> Tensor:
    """Class of each sample, in the order of classes."""
    counts = whole_samples(proportions_C, num_samples)
    if min(counts) < 1:
        least = math.ceil(1 / float(proportions_C.min()))
        raise UsageError(
            f"num_samples must leave every class a sample, got {num_samples}, which gives {counts}; use {least} or more"
        )
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def _row(values: Sequence[float]) -> str:
    """A row of a printed matrix."""
    return "".join(f"{value:{WIDTH}.4f}" for value in values)
