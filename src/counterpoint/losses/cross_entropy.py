"""Cross-entropy of a linear classifier on the embeddings of two views: learning with labels, plain or non-negative."""

# N samples per view, D features, C classes

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.core.checks import check_features
from counterpoint.losses.inputs import can_read, prepare_views, require
from counterpoint.losses.loss import Loss, LossCard, Part
from counterpoint.nn.classifier import class_logits


class ClassLoss(Loss):
    """A cross-entropy with the classifier that it trains."""

    uses_labels = True
    why_no_class_level = "it compares vectors with the weights of classes, not with each other"
    class_weights: nn.Parameter
    is_nonnegative = False  # features and weights pass through a ReLU

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """Mean over both views; ``labels`` are required, ``part`` is ignored.

        Args:
            z0: embeddings of the first view, shape (n, d), n >= 2, d that of the class weights; of any sign.
            z1: embeddings of the second view, same samples in the same order.
            labels: whole numbers (n,) from 0 to num_classes - 1.
            part: ignored.

        Returns:
            Scalar tensor; float32 for half-precision inputs.

        Raises:
            TypeError: inputs are not floating point.
            ValueError: as ``Loss.forward``; also labels missing or out of range (the first is named), another number
                of features or another device than the class weights, or weights that are not finite.
        """
        # Checked before a ReLU, which would hide minus infinity.
        both_2ND = torch.cat(prepare_views(z0, z1, labels, normalize=False))
        targets_N = self._targets(both_2ND, labels)
        # The inputs decide the precision: float64 vectors meet float32 parameters.
        weights_CD = self.class_weights.to(both_2ND.dtype)
        biases_C: Tensor | None = getattr(self, "class_biases", None)
        biases_C = None if biases_C is None else biases_C.to(both_2ND.dtype)
        logits_2NC = class_logits(both_2ND, weights_CD, biases_C, is_nonnegative=self.is_nonnegative)
        return F.cross_entropy(logits_2NC, targets_N.repeat(2))

    def chance(self, n: int) -> float:
        """Loss when all classes are as likely; with balanced classes also the least when all vectors are alike."""
        return math.log(len(self.class_weights))

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Zero: a cross-entropy. Approached by long vectors along the weights of their classes."""
        return 0.0

    def _targets(self, z_ND: Tensor, labels_N: Tensor | None) -> Tensor:
        """Labels as int64, after comparing them and the vectors of both views with the class weights."""
        num_classes, num_features = self.class_weights.shape
        if labels_N is None:
            raise ValueError(f"labels must be given to {self.card.name}: loss(z0, z1, labels)")
        if z_ND.shape[1] != num_features:
            raise ValueError(f"z0 and z1 must have {num_features} features like the weights, got {z_ND.shape[1]}")
        if z_ND.device != self.class_weights.device:
            places = f"{z_ND.device} and {self.class_weights.device}"
            raise ValueError(f"z0 and the class weights must be on one device, got {places}; use loss.to(z0.device)")
        weights_CD = self.class_weights.detach()
        words = "class_weights must be finite"
        require(torch.isfinite(weights_CD).all(), lambda: check_features(weights_CD, "class_weights"), words)
        is_outside_N = (labels_N < 0) | (labels_N >= num_classes)

        def complain() -> None:
            row = int(is_outside_N.nonzero()[0])
            raise ValueError(f"labels must be from 0 to {num_classes - 1}, got {int(labels_N[row])} in row {row}")

        require(~is_outside_N.any(), complain, f"labels must be from 0 to {num_classes - 1}")
        # A device that meets a wrong label before its condition is read would stop for good.
        return labels_N.long() if can_read(labels_N) else labels_N.long().clamp(0, num_classes - 1)


class CrossEntropy(ClassLoss):
    r"""Cross-entropy of a linear classifier with bias.

    .. math:: L = -\frac{1}{2n} \sum_{z \in Z \cup Z'} \log \frac{e^{\langle z, w_y \rangle + b_y}}
        {\sum_{c=1}^{C} e^{\langle z, w_c \rangle + b_c}}

    The mean is over both views, which share their labels. The classifier is a part of the loss: give
    ``loss.parameters()`` to the optimiser as well. For one view call it with the same tensor twice.

    Use it where all samples have labels, and to compare with what is learned without them (method ``supervised``).

    Source: ncl2024, section 6, has it beside its non-negative form.

    Args:
        num_classes: number of classes, C >= 2.
        num_features: dimensions of the embedding, D >= 1.
        generator: source of the first weights, uniform between -1 and 1 over sqrt(D), as ``nn.Linear`` has them; None
            means a new one of seed 0. Biases start at 0.

    Raises:
        ValueError: num_classes < 2 or num_features < 1.

    Unchanged by permuting samples (with their labels) and by swapping views. A mean over samples, so ``part`` is
    ignored: each process takes the whole batch.

    >>> loss = CrossEntropy(num_classes=4, num_features=3)
    >>> z = torch.zeros(2, 3)
    >>> round(loss(z, z, torch.tensor([0, 3])).item(), 6) == round(math.log(4), 6)
    True
    """

    card = LossCard(
        name="CrossEntropy",
        negatives="the weights of the other classes",
        normalization="inputs as they are; mean over both views",
        source="ncl2024, section 6",
    )

    def __init__(self, num_classes: int, num_features: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        uniform_CD = _uniform(num_classes, num_features, generator)
        self.class_weights = nn.Parameter((2 * uniform_CD - 1) / math.sqrt(num_features))
        self.class_biases = nn.Parameter(uniform_CD.new_zeros(num_classes))


class NonNegativeCrossEntropy(ClassLoss):
    r"""Non-negative cross-entropy (NCE): ReLU on features and on class weights, no bias.

    .. math::
        L = -\frac{1}{2n} \sum_{z \in Z \cup Z'}
            \log \frac{e^{\langle z_+, w_{y+} \rangle}}{\sum_{c=1}^{C} e^{\langle z_+, w_{c+} \rangle}},
        \qquad x_+ = \max(0, x)

    The mean is over both views, which share their labels. The class weights are a parameter of the loss, shape (C, D):
    give ``loss.parameters()`` to the optimiser as well. For one view call it with the same tensor twice.

    Use it where all samples have labels and single dimensions should be readable (method ``nonnegative-supervised``).

    Source: ncl2024, section 6. Differs from the print, which lacks the minus sign. ReLU on the weights and no bias
        are the author's word (issue 2 of the released code); inputs are taken as they are, neither scaled to unit
        length nor divided by a temperature.

    Args:
        num_classes: number of classes, C >= 2.
        num_features: dimensions of the embedding, D >= 1.
        generator: source of the first weights, uniform between 0 and 1 / sqrt(D); None means a new one of seed 0. No
            weight starts negative, because ReLU would never give it a gradient.

    Raises:
        ValueError: num_classes < 2 or num_features < 1.

    Unchanged by permuting samples (with their labels) and by swapping views. A mean over samples, so ``part`` is
    ignored: each process takes the whole batch.

    >>> loss = NonNegativeCrossEntropy(num_classes=4, num_features=3)
    >>> z = torch.zeros(2, 3)
    >>> round(loss(z, z, torch.tensor([0, 3])).item(), 6) == round(math.log(4), 6)
    True
    """

    card = replace(
        CrossEntropy.card,
        name="NonNegativeCrossEntropy",
        normalization="ReLU on inputs and class weights; mean over both views",
    )
    is_nonnegative = True

    def __init__(self, num_classes: int, num_features: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.class_weights = nn.Parameter(_uniform(num_classes, num_features, generator) / math.sqrt(num_features))


def _uniform(num_classes: int, num_features: int, generator: torch.Generator | None) -> Tensor:
    """Numbers from 0 to 1, (c, d), for the first weights.

    Raises:
        ValueError: sizes of which no classifier can be made.
    """
    if num_classes < 2:
        raise ValueError(f"num_classes must be >= 2, got {num_classes}; with fewer there is nothing to tell apart")
    if num_features < 1:
        raise ValueError(f"num_features must be >= 1, got {num_features}; it is the width of the embedding")
    source = generator or torch.Generator().manual_seed(0)
    # Drawn on the generator's device, the only one it draws for.
    return torch.rand(num_classes, num_features, generator=source, device=source.device)


CATALOGUE: Mapping[str, type[ClassLoss]] = {
    "cross-entropy": CrossEntropy,
    "nonnegative-cross-entropy": NonNegativeCrossEntropy,
}
