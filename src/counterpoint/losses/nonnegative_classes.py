"""Cross-entropy with non-negative features and non-negative class vectors: NCL for classes instead of pairs."""

# N samples per view, D features, C classes

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.kernels.cpu.row_blocks import product
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.linear_classes import check_sizes, class_targets
from counterpoint.losses.loss import Loss, LossCard, Part


class NonNegativeCrossEntropy(Loss):
    r"""Non-negative cross-entropy (NCE): ReLU on features and on class weights, no bias.

    .. math::
        L = -\frac{1}{2n} \sum_{z \in Z \cup Z'}
            \log \frac{e^{\langle z_+, w_{y+} \rangle}}{\sum_{c=1}^{C} e^{\langle z_+, w_{c+} \rangle}},
        \qquad x_+ = \max(0, x)

    The mean is over both views, which share their labels. The class weights are a parameter of the loss, shape (C, D):
    give ``loss.parameters()`` to the optimiser as well. For one view call it with the same tensor twice.

    Source: ncl2024, section 6. Differs from the print, which lacks the minus sign. ReLU on the weights and no bias
        are the author's word (issue 2 of the released code); inputs are taken as they are, neither scaled to unit
        length nor divided by a temperature.

    Args:
        num_classes: C >= 2.
        num_features: D >= 1.
        generator: draws the first weights, uniform between 0 and 1 / sqrt(D); None stands for a new one of seed 0. No
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

    card = LossCard(
        name="NonNegativeCrossEntropy",
        phi="-",
        psi="-",
        alpha="-",
        negatives="the weights of the other classes",
        normalization="ReLU on inputs and class weights; mean over both views",
        source="ncl2024, section 6",
        second_derivative="true",
        fused="no pairs",
    )

    uses_labels = True
    why_no_class_level = "it compares vectors with the weights of classes, not with each other"

    def __init__(self, num_classes: int, num_features: int, *, generator: torch.Generator | None = None) -> None:
        super().__init__()
        check_sizes(num_classes, num_features)
        source = generator or torch.Generator().manual_seed(0)
        weights_CD = torch.rand(num_classes, num_features, generator=source, device=source.device)
        self.class_weights = nn.Parameter(weights_CD / math.sqrt(num_features))

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """Mean over both views; ``labels`` are required, ``part`` is ignored.

        Args:
            z0: embeddings of the first view, shape (n, d), n >= 2, d as the class weights; signed, ReLU is applied
                here.
            z1: embeddings of the second view, same samples in the same order.
            labels: whole numbers (n,) from 0 to num_classes - 1.
            part: ignored.

        Returns:
            Scalar tensor; float32 for half-precision inputs.

        Raises:
            TypeError: inputs are not floating point.
            ValueError: as ``Loss.forward``; also labels missing or out of range (the first is named), or another
                number of features or another device than the class weights.
        """
        z0, z1 = prepare_views(z0, z1, labels, normalize=False)
        targets_N = class_targets(z0, labels, self.class_weights, "non-negative cross-entropy")
        weights_CD = F.relu(self.class_weights.to(z0.dtype))
        logits = product(F.relu(torch.cat([z0, z1])), weights_CD.T)
        return F.cross_entropy(logits, targets_N.repeat(2))

    def chance(self, n: int) -> float:
        """Loss when all vectors are silent; with balanced classes also the least when all are alike: log C."""
        return math.log(len(self.class_weights))

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Zero: a cross-entropy. Approached by long vectors along orthogonal class weights."""
        return 0.0


CATALOGUE: Mapping[str, type[NonNegativeCrossEntropy]] = {"nonnegative-cross-entropy": NonNegativeCrossEntropy}
