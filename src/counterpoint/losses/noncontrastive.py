"""Losses without negatives: two views agree, and what speaks against collapse lies elsewhere.

Barlow Twins and VICReg want no two features to say the same; the regression of BYOL and SimSiam leaves that to the
method.
"""

# N samples per view, D features

import math
from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.checks import check_choice, check_positive, check_weight
from counterpoint.core.numerics import is_transformed, product
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.loss import Loss, LossCard, Part


class BarlowTwins(Loss):
    r"""Barlow Twins: the cross-correlation of the features of two views should be the identity.

    .. math::
        L = \sum_p (1 - C_{pp})^2 + \lambda \sum_p \sum_{q \ne p} C_{pq}^2, \qquad
        C_{pq} = \frac{1}{n} \sum_i \hat z_{ip} \hat z'_{iq}, \qquad
        \hat z_{ip} = \frac{z_{ip} - \bar z_p}{\sqrt{\mathrm{var}_p + \epsilon}}

    Each feature is standardised over the batch, each view separately, with the variance's sum over samples divided by
    n; both terms are sums over features, so that the value grows with their number. Equal to lightly's
    ``BarlowTwinsLoss(lambda_param)`` without a difference in normalisation.

    Use it where batches are too small for many negatives; the embedding should be wide (method ``barlow-twins``).

    Source: zbontar2021, Eq. 1 and 2. Differs from the paper: epsilon, as in the authors' code (a batch
        normalisation), so that a constant feature correlates with nothing instead of being 0 / 0. The paper's
        Algorithm 1 divides the variance by n - 1.

    Args:
        lambda_: weight of the correlations between different features, >= 0.
        variance_epsilon: added to each variance, > 0.

    Raises:
        ValueError: ``lambda_`` < 0 or ``variance_epsilon`` <= 0.

    Unchanged by permuting samples, by swapping views and, except for epsilon, by scaling or shifting a feature. Takes
    the whole batch in every process: a correlation is not a sum of losses over samples. With D >= 4n features no D x D
    matrix is made: time n^2 D, memory n D.

    >>> z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> round(float(BarlowTwins()(z, z)), 6), round(float(BarlowTwins()(z, -z)), 3)
    (0.0, 8.0)
    """

    card = LossCard(
        name="BarlowTwins",
        negatives="none: features repel each other",
        normalization="features standardised over the batch; sum over features",
        source="zbontar2021, Eq. 1 and 2",
    )

    why_no_class_level = "it compares features over the batch: no vector has negatives"

    def __init__(self, lambda_: float = 0.005, variance_epsilon: float = 1e-5) -> None:
        super().__init__()
        check_weight(lambda_, "lambda_", hint="zbontar2021 uses 0.005")
        check_positive(variance_epsilon, "variance_epsilon", hint="1e-5 is batch normalisation's")
        self.lambda_ = lambda_
        self.variance_epsilon = variance_epsilon

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """Loss of the whole batch; see ``Loss.forward``. Labels are only checked, ``part`` is ignored."""
        z0, z1 = prepare_views(z0, z1, labels, normalize=False)
        centred = (z_ND - z_ND.mean(dim=0) for z_ND in (z0, z1))
        # Each feature with mean 0 and deviation 1 over the batch, over root n: 1 / sqrt(n (var + epsilon)), once from
        # each view, has the 1 / n of Eq. 2 in the product.
        noise = len(z0) * self.variance_epsilon
        first_ND, second_ND = (z_ND * (z_ND.square().sum(dim=0) + noise).rsqrt() for z_ND in centred)
        own_D = (first_ND * second_ND).sum(dim=0)  # C_pp, Eq. 2
        # Eq. 1
        return (1 - own_D).square().sum() + self.lambda_ * _square_sum_off_diagonal(first_ND, second_ND)

    def chance(self, n: int, *, num_features: int | None = None) -> float:
        """Loss when all vectors are alike: the number of features, since constant ones correlate with nothing.

        Args:
            n: number of samples per batch; makes no difference.
            num_features: D. Without it the answer is NaN: this loss is a sum over features, and no one number is right.
        """
        return math.nan if num_features is None else float(num_features)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Zero: a sum of squares. Approached if n > D; standardised features say nothing of signs."""
        return 0.0


class VICReg(Loss):
    r"""VICReg: views agree, every feature keeps a deviation of 1, and features do not covary.

    .. math::
        L = \frac{\lambda}{nd} \sum_i |z_i - z_i'|^2 + \frac{\mu}{2} (v(Z) + v(Z')) + \nu (c(Z) + c(Z'))

        v(Z) = \frac{1}{d} \sum_p \max\big(0, 1 - \sqrt{\mathrm{var}_p + \epsilon}\big), \qquad
        c(Z) = \frac{1}{d} \sum_p \sum_{q \ne p} \mathrm{cov}_{pq}^2

    Variances and covariances divide by n - 1. Equal to lightly's ``VICRegLoss(lambda, mu, nu)``.

    Use it where batches are too small for many negatives, and where agreement, spread and covariance should have
    weights of their own (method ``vicreg``).

    Source: bardes2022, Eq. 1 to 6. Differs from the paper, as the authors' code and lightly do: the squared distance
        is a mean over features too (Eq. 5: a sum), and the two variance terms are averaged (Eq. 6: added); so that
        the paper's own weights belong to this form.

    Args:
        similarity: lambda, weight of the distance between views, >= 0.
        variance: mu, weight of the hinge on each feature's deviation, >= 0.
        covariance: nu, weight of the squared covariances of different features, >= 0.
        variance_epsilon: added to each variance under the root, > 0.

    Raises:
        ValueError: a weight < 0 or variance_epsilon <= 0.

    Unchanged by permuting samples, swapping views and moving all vectors together. Takes the whole batch in every
    process: a covariance is not a sum of losses over samples. With D >= 2n features no D x D matrix is made, unless few
    of them are so large that the sum would cancel: time n^2 D, memory n D.

    >>> z = 2 * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> round(float(VICReg()(z, z)), 3), round(float(VICReg()(z, -z)), 3)
    (0.0, 400.0)
    """

    card = LossCard(
        name="VICReg",
        negatives="none: features repel each other",
        normalization="inputs as they are; mean over samples and features",
        source="bardes2022, Eq. 1 to 6",
    )

    why_no_class_level = "it compares features over the batch: no vector has negatives"

    def __init__(
        self, similarity: float = 25.0, variance: float = 25.0, covariance: float = 1.0, variance_epsilon: float = 1e-4
    ) -> None:
        super().__init__()
        for value, name in ((similarity, "similarity"), (variance, "variance"), (covariance, "covariance")):
            check_weight(value, name, hint="bardes2022 uses 25, 25 and 1")
        check_positive(variance_epsilon, "variance_epsilon", hint="bardes2022 uses 1e-4")
        self.similarity = similarity
        self.variance = variance
        self.covariance = covariance
        self.variance_epsilon = variance_epsilon

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """Loss of the whole batch; see ``Loss.forward``. Labels are only checked, ``part`` is ignored."""
        z0, z1 = prepare_views(z0, z1, labels, normalize=False)
        centred = [z_ND - z_ND.mean(dim=0) for z_ND in (z0, z1)]
        # Eq. 1 and 2 for each view; Eq. 6 adds the two, their mean is mu / 2 of the sum.
        variances = [z_ND.square().sum(dim=0) / (len(z_ND) - 1) for z_ND in centred]
        spread = torch.stack([F.relu(1 - (var_D + self.variance_epsilon).sqrt()).mean() for var_D in variances]).mean()
        scaled = [z_ND / math.sqrt(len(z_ND) - 1) for z_ND in centred]
        # Eq. 3 and 4: at 1 / sqrt(n - 1) inner products of features are covariances.
        shared = torch.stack([_square_sum_off_diagonal(z_ND, z_ND) for z_ND in scaled]).sum() / z0.shape[1]
        # Eq. 5 and 6. Row by row: torch splits a sum of all entries by the number of threads, and its bits follow.
        return self.similarity * (z0 - z1).square().mean(1).mean() + self.variance * spread + self.covariance * shared

    def chance(self, n: int) -> float:
        """Loss when all vectors are alike: only the hinge is left, mu (1 - sqrt(epsilon))."""
        return self.variance * max(0.0, 1 - math.sqrt(self.variance_epsilon))

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Zero: no term can be negative. Attained if n > D, with no negative entry too (vectors may be moved)."""
        return 0.0


def _square_sum_off_diagonal(first_ND: Tensor, second_ND: Tensor) -> Tensor:
    r"""Sum of the squares :math:`\langle a_p, b_q \rangle^2` of different features of A and B.

    The matrix of all features is D x D. Where features are many it is not made: the squares of all its entries add up
    to :math:`\langle A A^\top, B B^\top \rangle`, of two matrices n x n, from which the diagonal's are subtracted.
    """
    if _are_many(first_ND, second_ND):
        gram_NN = product(first_ND, first_ND.mT)
        other_NN = gram_NN if second_ND is first_ND else product(second_ND, second_ND.mT)
        # Rows first: the bits of a sum of all entries at once depend on the number of threads.
        return (gram_NN * other_NN).sum(1).sum() - (first_ND * second_ND).sum(dim=0).square().sum()
    num_features = first_ND.shape[1]
    # Without its last entry the flat matrix has the diagonal in the first column of rows that are one longer.
    rows = product(first_ND.mT, second_ND).flatten()[:-1].view(num_features - 1, num_features + 1)
    return rows[:, 1:].square().sum(1).sum()


def _are_many(first_ND: Tensor, second_ND: Tensor) -> bool:
    r"""Tell whether there are too many features for all to be uncorrelated, so that nothing cancels.

    With :math:`v_p = |a_p| |b_p|` their effective number is :math:`(\sum_p v_p)^2 / \sum_p v_p^2`: D for features of
    one size, less where few are much larger. If A = B, whose rank is below n, and it is at least 1.5 n, the squares off
    the diagonal add up to at least a third of all. Under transforms, which show no value, the answer is no.
    """
    num_samples, num_features = first_ND.shape
    # Two matrices n x n against one D x D, or one against one; products of either size take the same time.
    smallest = 2 * num_samples if second_ND is first_ND else 4 * num_samples
    if num_features < smallest or is_transformed():
        return False
    # A choice of the way only: both ways have the same value and derivatives.
    with torch.no_grad():
        size_D = torch.linalg.vector_norm(first_ND, dim=0) * torch.linalg.vector_norm(second_ND, dim=0)
        return bool(size_D.sum().square() >= 1.5 * num_samples * size_D.square().sum())


Form = Literal["cosine", "squared"]
FORMS: Mapping[str, str] = {
    "cosine": "minus the cosine (SimSiam), from -1 to 1",
    "squared": "squared distance of the unit vectors (BYOL), 2 - 2 cos, from 0 to 4",
}


class Regression(Loss):
    r"""Negative cosine between predictions ``z0`` and targets ``z1``, or the squared distance of the unit vectors.

    .. math::
        L = -\frac{1}{n} \sum_i \cos(p_i, z_i') \quad\text{or}\quad
        L = \frac{1}{n} \sum_i \Big|\frac{p_i}{|p_i|} - \frac{z_i'}{|z_i'|}\Big|^2
          = \frac{1}{n} \sum_i (2 - 2 \cos(p_i, z_i'))

    One direction only: ``z0`` holds predictions and ``z1`` targets, which are not interchangeable. Who wants
    the symmetric loss calls it twice and takes the mean (SimSiam, Eq. 2) or the sum (BYOL): ``loss(p0, z1)`` and
    ``loss(p1, z0)``. "cosine" equals lightly's ``NegativeCosineSimilarity`` (which detaches nothing itself).

    Use it with a predictor and a target branch; without these it collapses (methods ``byol`` and ``simsiam``).

    Source: chen2021, Eq. 1 to 4 (cosine); grill2020, Eq. 2 (squared). The squared form is computed from
        differences, so that it keeps its digits when prediction and target nearly agree.

    Args:
        form: ``cosine`` or ``squared``.
        detach_target: give ``z1`` no gradient (stop-gradient), without which both methods collapse at once.

    Raises:
        ValueError: an unknown form.

    Unchanged by permuting samples, by rotating all vectors and by the length of any vector. A zero vector stays zero:
    cosine 0, squared distance 1 to a unit vector, no gradient. There are no negatives: vectors that are all alike reach
    the floor, so a low value alone says nothing; look at the spectrum. A mean over samples, so ``part`` is ignored:
    each process takes the whole batch.

    >>> p, z = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[5.0, 0.0], [3.0, 0.0]])
    >>> float(Regression()(p, z)), float(Regression("squared")(p, z))
    (-0.5, 1.0)
    """

    card = LossCard(
        name="Regression",
        negatives="none",
        normalization="inputs to unit length; mean over samples",
        source="chen2021, Eq. 1 to 4; grill2020, Eq. 2",
    )

    why_no_class_level = "it has no negatives"

    def __init__(self, form: Form = "cosine", detach_target: bool = True) -> None:
        super().__init__()
        check_choice(form, "form", FORMS)
        self.form: Form = form
        self.detach_target = detach_target

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """Mean over samples; ``z0`` predictions, ``z1`` targets.

        See ``Loss.forward``; labels are only checked, ``part`` is ignored.
        """
        prediction_ND, target_ND = prepare_views(z0, z1, labels, normalize=True)
        if self.detach_target:
            target_ND = target_ND.detach()
        if self.form == "cosine":
            return -(prediction_ND * target_ND).sum(dim=1).mean()
        # 2 - 2 cos would leave only rounding errors where the two nearly agree.
        return (prediction_ND - target_ND).square().sum(dim=1).mean()

    def chance(self, n: int) -> float:
        """Loss when all vectors are alike: the floor, since nothing in this loss speaks against collapse."""
        return self.floor(n)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Minus one (cosine) or zero (squared), by Cauchy-Schwarz; attained by equal directions of any sign."""
        return -1.0 if self.form == "cosine" else 0.0


CATALOGUE: Mapping[str, type[Loss]] = {"barlow-twins": BarlowTwins, "vicreg": VICReg, "regression": Regression}
