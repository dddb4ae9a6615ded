"""Losses on the features of a batch, not on its pairs: views agree, and no two features say the same."""

# N samples per view, D features

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.checks import check_positive, check_weight
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.loss import Loss, LossCard, Part


class BarlowTwins(Loss):
    r"""Barlow Twins: the cross-correlation of the features of two views should be the identity.

    .. math::
        L = \sum_p (1 - C_{pp})^2 + \lambda \sum_p \sum_{q \ne p} C_{pq}^2, \qquad
        C_{pq} = \frac{1}{n} \sum_i \hat z_{ip} \hat z'_{iq}, \qquad
        \hat z_{ip} = \frac{z_{ip} - \bar z_p}{\sqrt{\mathrm{var}_p + \epsilon}}

    Each feature is standardised over the batch, each view by itself, with the variance's sum over samples divided by
    n; both terms are sums over features, so that the value grows with their number. Equal to lightly's
    ``BarlowTwinsLoss(lambda_param)`` without a difference in normalisation.

    Source: zbontar2021, Eq. 1 and 2. Differs from the paper: epsilon, as in the authors' code (a batch
        normalisation), so that a constant feature correlates with nothing instead of being 0 / 0. The paper's
        Algorithm 1 divides the variance by n - 1.

    Args:
        lambda_: weight of the correlations between different features, >= 0.
        variance_epsilon: added to each variance, > 0.

    Raises:
        ValueError: lambda_ < 0 or variance_epsilon <= 0.

    Unchanged by permuting samples, by swapping views and, but for epsilon, by scaling or shifting a feature. Takes the
    whole batch in every process: a correlation is not a sum of losses over samples.

    >>> z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> round(float(BarlowTwins()(z, z)), 6), round(float(BarlowTwins()(z, -z)), 3)
    (0.0, 8.0)
    """

    card = LossCard(
        name="BarlowTwins",
        phi="-",
        psi="-",
        alpha="-",
        negatives="none: features repel each other",
        normalization="features standardised over the batch; sum over features",
        source="zbontar2021, Eq. 1 and 2",
        second_derivative="true",
        fused="no pairs",
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
        correlation_DD = _standardized(z0, self.variance_epsilon).T @ _standardized(z1, self.variance_epsilon) / len(z0)
        own_D = correlation_DD.diagonal()
        return (1 - own_D).square().sum() + self.lambda_ * _square_sum_off_diagonal(correlation_DD)

    def chance(self, n: int, *, num_features: int | None = None) -> float:
        """Loss when all vectors are alike: the number of features, since constant ones correlate with nothing.

        Args:
            n: samples per batch; makes no difference.
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
    process: a covariance is not a sum of losses over samples.

    >>> z = 2 * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> float(VICReg()(z, z)), float(VICReg()(z, -z))
    (0.0, 400.0)
    """

    card = LossCard(
        name="VICReg",
        phi="-",
        psi="-",
        alpha="-",
        negatives="none: features repel each other",
        normalization="inputs as they are; mean over samples and features",
        source="bardes2022, Eq. 1 to 6",
        second_derivative="true",
        fused="no pairs",
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
        spread = torch.stack([self._missing_deviation(z_ND) for z_ND in centred]).mean()
        shared = torch.stack([_shared_variance(z_ND) for z_ND in centred]).sum()
        return self.similarity * (z0 - z1).square().mean() + self.variance * spread + self.covariance * shared

    def chance(self, n: int) -> float:
        """Loss when all vectors are alike: only the hinge is left, mu (1 - sqrt(epsilon))."""
        return self.variance * max(0.0, 1 - math.sqrt(self.variance_epsilon))

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Zero: no term can be negative. Attained if n > D, with no negative entry too (vectors may be moved)."""
        return 0.0

    def _missing_deviation(self, centred_ND: Tensor) -> Tensor:
        """v(Z), Eq. 1 and 2."""
        deviation_D = (centred_ND.square().sum(dim=0) / (len(centred_ND) - 1) + self.variance_epsilon).sqrt()
        return F.relu(1 - deviation_D).mean()


def _standardized(z_ND: Tensor, epsilon: float) -> Tensor:
    """Each feature with mean 0 and deviation 1 over the batch, as batch normalisation does."""
    centred_ND = z_ND - z_ND.mean(dim=0)
    return centred_ND / (centred_ND.square().mean(dim=0) + epsilon).sqrt()


def _shared_variance(centred_ND: Tensor) -> Tensor:
    """c(Z), Eq. 3 and 4."""
    num_samples, num_features = centred_ND.shape
    return _square_sum_off_diagonal(centred_ND.T @ centred_ND / (num_samples - 1)) / num_features


def _square_sum_off_diagonal(matrix_DD: Tensor) -> Tensor:
    """Sum of squares without the diagonal, which is taken out before squaring: no two large sums are subtracted."""
    return (matrix_DD - torch.diag(matrix_DD.diagonal())).square().sum()


CATALOGUE: Mapping[str, type[BarlowTwins] | type[VICReg]] = {"barlow-twins": BarlowTwins, "vicreg": VICReg}
