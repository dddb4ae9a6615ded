"""Data and losses of the toy models: two views that differ by Gaussian noise, and what a flow follows.

Both losses depend on inner products of embeddings only. For z = W x the gradient in W is therefore -W X, with a
symmetric X made of the inputs and of the softmax weights alpha: a covariance of the data minus one of the augmentation.
"""

# N samples, P given points, D input dimensions, K embedding dimensions

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_positive, check_weight
from counterpoint.core.errors import UsageError


@dataclass(frozen=True)
class ToyViews:
    """Two views of the same samples.

    Attributes:
        x_ND: the first view, float64.
        other_ND: the second view of the same samples, x' in the paper.
    """

    x_ND: Tensor
    other_ND: Tensor

    def __post_init__(self) -> None:
        """Keep float64, and check that both views are matrices of one shape."""
        for name in ("x_ND", "other_ND"):
            check_features(getattr(self, name), name.removesuffix("_ND"))
            object.__setattr__(self, name, getattr(self, name).double())
        if self.x_ND.shape != self.other_ND.shape:
            shapes = f"{tuple(self.x_ND.shape)} and {tuple(self.other_ND.shape)}"
            raise UsageError(f"both views must have one shape, got {shapes}")


@dataclass(frozen=True)
class ToyData:
    r"""Samples :math:`x` and views :math:`x + n`, with :math:`n \sim N(0, B B^\top)` drawn anew for each view.

    Source: directclr2022, sections 4.1 and 5.1 ("the augmentation is an additive noise"); the released toys draw
    :math:`x \sim N(0, I_{16})` once, 10000 of them, and put noise on both views.

    Attributes:
        noise_DD: B, a factor of the noise's covariance.
        points_PD: the points to draw samples from, with replacement.
    """

    noise_DD: Tensor
    points_PD: Tensor

    def __post_init__(self) -> None:
        """Check that the factor is square and as wide as the points."""
        check_features(self.noise_DD, "noise", min_rows=1)
        if self.noise_DD.shape[0] != self.noise_DD.shape[1]:
            raise UsageError(f"noise must be a square factor of a covariance, got shape {tuple(self.noise_DD.shape)}")
        check_features(self.points_PD, "points")
        if self.points_PD.shape[1] != len(self.noise_DD):
            widths = f"{self.points_PD.shape[1]} and {len(self.noise_DD)}"
            raise UsageError(f"points and noise must have one number of dimensions, got {widths}")


def block_noise(num_dims: int, scale: float, *, first: int = 0) -> Tensor:
    """Factor (d, d) of noise on the dimensions from ``first`` on, of standard deviation ``scale`` >= 0.

    Source: the released toy of directclr2022, section 4: noise on the last 8 of 16 dimensions.

    Raises:
        UsageError: ``first`` outside 0 ... num_dims, or fewer than 1 dimension.
        ValueError: a scale below 0.

    >>> block_noise(3, 1.5, first=2).diagonal()
    tensor([0.0000, 0.0000, 1.5000], dtype=torch.float64)
    """
    if num_dims < 1:
        raise UsageError(f"num_dims must be >= 1, got {num_dims}; the paper has 16")
    if not 0 <= first <= num_dims:
        raise UsageError(f"first must be between 0 and num_dims = {num_dims}, got {first}")
    check_weight(scale, "scale", hint="the released toys have 0.001 (weak) and 1.5 (strong)")
    scale_D = torch.zeros(num_dims, dtype=torch.float64)
    scale_D[first:] = scale
    return torch.diag(scale_D)


def gaussian_points(num_samples: int, num_dims: int, *, generator: torch.Generator) -> Tensor:
    """Draw points (n, d) from N(0, I) in float64."""
    return torch.randn(num_samples, num_dims, generator=generator, dtype=torch.float64)


def draw_views(data: ToyData, num_samples: int, *, generator: torch.Generator) -> ToyViews:
    """Draw a batch: samples first, then the noise of each view.

    Args:
        data: where samples and noise come from.
        num_samples: n >= 2, each the others' negative.
        generator: the only source of randomness.

    >>> data = ToyData(block_noise(3, 0.0), torch.eye(3))
    >>> views = draw_views(data, 4, generator=torch.Generator().manual_seed(0))
    >>> bool((views.x_ND == views.other_ND).all()), views.x_ND.shape
    (True, torch.Size([4, 3]))
    """
    if num_samples < 2:
        raise UsageError(f"num_samples must be >= 2, got {num_samples}; samples are each other's negatives")
    drawn_N = torch.randint(len(data.points_PD), (num_samples,), generator=generator)
    clean_ND = data.points_PD[drawn_N].double()
    noise_2ND = torch.randn(2, *clean_ND.shape, generator=generator, dtype=torch.float64) @ data.noise_DD.T
    return ToyViews(*(clean_ND + noise_2ND))


@dataclass(frozen=True)
class LossAt:
    """A loss and its gradients at one pair of embeddings, or at the weights of a network.

    Attributes:
        value: L.
        gradients: dL/dz and dL/dz', one row per sample; or dL/dW_1 first, shaped as the weights.
    """

    value: float
    gradients: tuple[Tensor, ...]


class FlowLoss(Protocol):
    """A loss whose value, gradients and matrix X the flows can compute."""

    def at(self, z_NK: Tensor, other_NK: Tensor) -> LossAt:
        """Return value and gradients at two views' embeddings."""
        ...

    def covariance_gap(self, views: ToyViews, weight_KD: Tensor) -> Tensor:
        """Return X of the inputs, with dL/dW = -W X and the weights alpha taken at the embeddings z = W x."""
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
        """Return the value, and the gradients of Eq. 4."""
        weights = _distance_weights(z_NK, other_NK)
        # Eq. 4. The sum over negatives is 1 - alpha_ii, without its cancellation where the positive has won.
        pull_NK = weights.alpha_NN.sum(dim=1, keepdim=True) * (other_NK - z_NK)
        # Pairs repel from both ends: alpha_ij as i's negative, alpha_ji as j's.
        mutual_NN = weights.alpha_NN + weights.alpha_NN.T
        gradient_NK = mutual_NN @ z_NK - mutual_NN.sum(dim=1)[:, None] * z_NK - pull_NK
        return LossAt(weights.loss, (gradient_NK, pull_NK))

    def covariance_gap(self, views: ToyViews, weight_KD: Tensor) -> Tensor:
        r"""Return X of Lemma 2.

        .. math:: X = \sum_{ij} \alpha_{ij} (x_i-x_j)(x_i-x_j)^\top - \sum_i (1-\alpha_{ii}) (x_i'-x_i)(x_i'-x_i)^\top

        Differs from the printed Eq. 6, which begins with a minus sign that appendix B.2 does not have.
        """
        weights = _distance_weights(views.x_ND @ weight_KD.T, views.other_ND @ weight_KD.T)
        data_DD = difference_covariance(weights.alpha_NN, views.x_ND, views.x_ND)  # Sigma_0 of Lemma 2
        noise_ND = views.other_ND - views.x_ND
        # Sigma_1; the sum of a row is 1 - alpha_ii.
        augmentation_DD = noise_ND.T @ (weights.alpha_NN.sum(dim=1, keepdim=True) * noise_ND)
        return data_DD - augmentation_DD


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
        """Check that the temperature is a number above 0."""
        check_positive(self.temperature, "temperature", hint="the released toys have 0.1")

    def at(self, z_NK: Tensor, other_NK: Tensor) -> LossAt:
        """Return value and gradients at two views' embeddings."""
        log_p_NN = (z_NK @ other_NK.T / self.temperature).log_softmax(dim=1)
        value = -float(log_p_NN.diagonal().mean())
        push_NN = log_p_NN.exp().fill_diagonal_(0.0)
        push_NN.diagonal().sub_(push_NN.sum(dim=1))  # p_ii - 1, without its cancellation
        # Mean over the batch, and the slope of z z' / tau.
        push_NN /= len(z_NK) * self.temperature
        # Only first views are anchors: z_i gets row i of the weights, z_j' column j.
        return LossAt(value, (push_NN @ other_NK, push_NN.T @ z_NK))

    def covariance_gap(self, views: ToyViews, weight_KD: Tensor) -> Tensor:
        r"""Return X of the released loss, whose identity the paper does not derive.

        .. math:: N \tau X = \sum_{ij} p_{ij} (x_i-x_j')(x_i-x_j')^\top - \sum_i (x_i-x_i')(x_i-x_i')^\top
            + \sum_j (1 - \sum_i p_{ij})\, x_j' x_j'^\top
        """
        z_NK, other_NK = views.x_ND @ weight_KD.T, views.other_ND @ weight_KD.T
        p_NN = (z_NK @ other_NK.T / self.temperature).softmax(dim=1)
        scale = 1 / (len(z_NK) * self.temperature)
        noise_ND, other_ND = views.x_ND - views.other_ND, views.other_ND
        data_DD = scale * difference_covariance(p_NN, views.x_ND, other_ND)  # Sigma_0
        augmentation_DD = scale * noise_ND.T @ noise_ND  # Sigma_1
        # What Lemma 2 does not have: columns of p sum to 1 only on average.
        popularity_DD = scale * other_ND.T @ ((1 - p_NN.sum(dim=0))[:, None] * other_ND)
        return data_DD - augmentation_DD + popularity_DD


def difference_covariance(weight_NM: Tensor, x_ND: Tensor, other_MD: Tensor) -> Tensor:
    r"""Weighted covariance of differences, :math:`\sum_{ij} w_{ij} (x_i - y_j)(x_i - y_j)^\top`.

    >>> difference_covariance(torch.ones(1, 2), torch.tensor([[1.0]]), torch.tensor([[0.0], [3.0]]))
    tensor([[5.]])
    """
    # Expanded, so that the differences need no (n, m, d) tensor.
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
    # Scores -|z_i - z_j|^2 / 2; on the diagonal stands the positive pair, where i = j would give 0.
    half_N = z_NK.square().sum(dim=1) / 2
    score_NN = z_NK @ z_NK.T - half_N[:, None] - half_N
    score_NN.diagonal().copy_(-(z_NK - other_NK).square().sum(dim=1) / 2)
    log_alpha_NN = score_NN.log_softmax(dim=1)
    return _Weights(log_alpha_NN.exp().fill_diagonal_(0.0), -float(log_alpha_NN.diagonal().sum()))


CATALOGUE: Mapping[str, FlowLoss] = {"eq2": DistanceInfoNCE(), "released": ProductInfoNCE()}
