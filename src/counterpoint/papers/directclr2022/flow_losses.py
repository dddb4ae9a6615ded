"""The two losses of the toy models with the gradients that a flow follows, and the matrix X that drives linear ones.

Both depend on inner products of embeddings only. For z = W x the gradient in W is therefore -W X, with a symmetric X
made of the inputs and of the softmax weights alpha: a covariance of the data minus one of the augmentation.
"""

# N samples, D input dimensions, K embedding dimensions

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.papers.directclr2022.toy_augmentations import ToyViews


@dataclass(frozen=True)
class LossAt:
    """A loss and its gradients at one pair of embeddings.

    Attributes:
        value: L.
        gradient_NK: dL/dz_i, one row per sample.
        other_gradient_NK: dL/dz'_i.
    """

    value: float
    gradient_NK: Tensor
    other_gradient_NK: Tensor


@dataclass(frozen=True)
class CovarianceGap:
    r"""The parts of X, where :math:`dL/dW = -W X`.

    Attributes:
        data_DD: :math:`\hat\Sigma_0`, weighted covariance of differences between samples; no eigenvalue below 0.
        augmentation_DD: :math:`\hat\Sigma_1`, the same of differences between two views of one sample.
        popularity_DD: what is left where negatives come from the other view: samples that attract more than their
            share of softmax weight count less. 0 for Eq. 2.
    """

    data_DD: Tensor
    augmentation_DD: Tensor
    popularity_DD: Tensor

    @property
    def gap(self) -> Tensor:
        """X itself (d, d)."""
        return self.data_DD - self.augmentation_DD + self.popularity_DD


class FlowLoss(Protocol):
    """What the flows ask of a loss."""

    def at(self, z_NK: Tensor, other_NK: Tensor) -> LossAt:
        """Value and gradients at two views' embeddings."""
        ...

    def covariance_gap(self, views: ToyViews, z_NK: Tensor, other_NK: Tensor) -> CovarianceGap:
        """Return X of the inputs, with the weights alpha taken at their embeddings."""
        ...


@dataclass(frozen=True)
class DistanceInfoNCE:
    r"""InfoNCE of squared distances, negatives from the same view, summed over samples.

    .. math:: L = -\sum_i \log \frac{e^{-|z_i - z_i'|^2/2}}
        {\sum_{j \ne i} e^{-|z_i - z_j|^2/2} + e^{-|z_i - z_i'|^2/2}}

    Source: directclr2022, Eq. 2; gradients Eq. 4. It is ``losses.InfoNCE(1.0, 1.0, "same-view", False,
    anchors="first", reduction="sum")``. Unchanged by shifting or rotating all embeddings.

    >>> z = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> round(DistanceInfoNCE().at(z, z).value, 6)  # 2 log(1 + exp(-1/2))
    0.948154
    """

    def at(self, z_NK: Tensor, other_NK: Tensor) -> LossAt:
        """Value, and the gradients of Eq. 4."""
        weights = _distance_weights(z_NK, other_NK)
        # Eq. 4. The sum over negatives is 1 - alpha_ii, without its cancellation where the positive has won.
        pull_NK = weights.alpha_NN.sum(dim=1, keepdim=True) * (other_NK - z_NK)
        mutual_NN = weights.alpha_NN + weights.alpha_NN.T
        gradient_NK = mutual_NN @ z_NK - mutual_NN.sum(dim=1)[:, None] * z_NK - pull_NK
        return LossAt(weights.loss, gradient_NK, pull_NK)

    def covariance_gap(self, views: ToyViews, z_NK: Tensor, other_NK: Tensor) -> CovarianceGap:
        r"""Lemma 2.

        .. math:: X = \sum_{ij} \alpha_{ij} (x_i-x_j)(x_i-x_j)^\top - \sum_i (1-\alpha_{ii}) (x_i'-x_i)(x_i'-x_i)^\top

        Differs from the printed Eq. 6, which begins with a minus sign that appendix B.2 does not have.
        """
        weights = _distance_weights(z_NK, other_NK)
        data_DD = difference_covariance(weights.alpha_NN, views.x_ND, views.x_ND)
        noise_ND = views.other_ND - views.x_ND
        augmentation_DD = noise_ND.T @ (weights.alpha_NN.sum(dim=1, keepdim=True) * noise_ND)
        return CovarianceGap(data_DD, augmentation_DD, torch.zeros_like(data_DD))


@dataclass(frozen=True)
class ProductInfoNCE:
    r"""InfoNCE of inner products of any length, negatives from the other view, mean over samples.

    .. math:: L = -\frac1N \sum_i \log \frac{e^{z_i^\top z_i'/\tau}}{\sum_j e^{z_i^\top z_j'/\tau}}

    Source: the released toys of directclr2022, tau = 0.1, one direction. For embeddings of one length it is
    ``losses.InfoNCE(tau, 1.0, "cross-view", anchors="first")``; longer ones attract more here, since no squared
    length is subtracted. Unchanged by rotating all embeddings, not by shifting them.

    >>> z = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> round(ProductInfoNCE(temperature=1.0).at(z, z).value, 6)
    0.503204
    """

    temperature: float = 0.1

    def __post_init__(self) -> None:
        """The temperature is a number above 0."""
        check_positive(self.temperature, "temperature", hint="the released toys have 0.1")

    def at(self, z_NK: Tensor, other_NK: Tensor) -> LossAt:
        """Value and gradients."""
        log_p_NN = (z_NK @ other_NK.T / self.temperature).log_softmax(dim=1)
        value = -float(log_p_NN.diagonal().mean())
        push_NN = log_p_NN.exp().fill_diagonal_(0.0)
        push_NN.diagonal().sub_(push_NN.sum(dim=1))  # p_ii - 1, without its cancellation
        push_NN /= len(z_NK) * self.temperature
        return LossAt(value, push_NN @ other_NK, push_NN.T @ z_NK)

    def covariance_gap(self, views: ToyViews, z_NK: Tensor, other_NK: Tensor) -> CovarianceGap:
        r"""The same identity for the released loss, which the paper does not derive.

        .. math:: N \tau X = \sum_{ij} p_{ij} (x_i-x_j')(x_i-x_j')^\top - \sum_i (x_i-x_i')(x_i-x_i')^\top
            + \sum_j (1 - \sum_i p_{ij})\, x_j' x_j'^\top
        """
        p_NN = (z_NK @ other_NK.T / self.temperature).softmax(dim=1)
        scale = 1 / (len(z_NK) * self.temperature)
        noise_ND, other_ND = views.x_ND - views.other_ND, views.other_ND
        return CovarianceGap(
            scale * difference_covariance(p_NN, views.x_ND, other_ND),
            scale * noise_ND.T @ noise_ND,
            scale * other_ND.T @ ((1 - p_NN.sum(dim=0))[:, None] * other_ND),
        )


def difference_covariance(weight_NM: Tensor, x_ND: Tensor, other_MD: Tensor) -> Tensor:
    r"""Weighted covariance of differences, :math:`\sum_{ij} w_{ij} (x_i - y_j)(x_i - y_j)^\top`.

    >>> difference_covariance(torch.ones(1, 2), torch.tensor([[1.0]]), torch.tensor([[0.0], [3.0]]))
    tensor([[5.]])
    """
    cross_DD = x_ND.T @ weight_NM @ other_MD
    own_DD = x_ND.T @ (weight_NM.sum(dim=1)[:, None] * x_ND)
    return own_DD + other_MD.T @ (weight_NM.sum(dim=0)[:, None] * other_MD) - cross_DD - cross_DD.T


@dataclass(frozen=True)
class _Weights:
    """The softmax of Eq. 2 without the positives: alpha_ij with zero diagonal (n, n), and the loss."""

    alpha_NN: Tensor
    loss: float


def _distance_weights(z_NK: Tensor, other_NK: Tensor) -> _Weights:
    """Softmax over -d_ij, with -d_ii' of the positive pair on the diagonal."""
    half_N = z_NK.square().sum(dim=1) / 2
    score_NN = z_NK @ z_NK.T - half_N[:, None] - half_N
    score_NN.diagonal().copy_(-(z_NK - other_NK).square().sum(dim=1) / 2)
    log_alpha_NN = score_NN.log_softmax(dim=1)
    return _Weights(log_alpha_NN.exp().fill_diagonal_(0.0), -float(log_alpha_NN.diagonal().sum()))


CATALOGUE: Mapping[str, FlowLoss] = {"eq2": DistanceInfoNCE(), "released": ProductInfoNCE()}
