"""Toy data of the linear models: points, and two views of each that differ by additive Gaussian noise."""

# N samples, P given points, D input dimensions

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features, check_weight
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
        """Keep float64; both views are matrices of one shape."""
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
        points_PD: the points to draw samples from, with replacement; None draws each from N(0, I).
        is_first_clean: leave the first view without noise.
    """

    noise_DD: Tensor
    points_PD: Tensor | None = None
    is_first_clean: bool = False

    def __post_init__(self) -> None:
        """The factor is square and as wide as the points."""
        check_features(self.noise_DD, "noise", min_rows=1)
        if self.noise_DD.shape[0] != self.noise_DD.shape[1]:
            raise UsageError(f"noise must be a square factor of a covariance, got shape {tuple(self.noise_DD.shape)}")
        if self.points_PD is not None:
            check_features(self.points_PD, "points")
            if self.points_PD.shape[1] != self.num_dims:
                widths = f"{self.points_PD.shape[1]} and {self.num_dims}"
                raise UsageError(f"points and noise must have one number of dimensions, got {widths}")

    @property
    def num_dims(self) -> int:
        """D."""
        return len(self.noise_DD)


def isotropic_noise(num_dims: int, scale: float) -> Tensor:
    """Factor (d, d) of noise of one standard deviation, ``scale`` >= 0, in every dimension.

    >>> isotropic_noise(2, 0.5)
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]], dtype=torch.float64)
    """
    return block_noise(num_dims, scale, first=0)


def block_noise(num_dims: int, scale: float, *, first: int) -> Tensor:
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


def covariance_factor(covariance_DD: Tensor) -> Tensor:
    """Symmetric square root (d, d) of a noise covariance, the factor that ``ToyData`` takes.

    Raises:
        UsageError: not symmetric, or with an eigenvalue below 0.

    >>> covariance_factor(torch.diag(torch.tensor([4.0, 9.0]))).diagonal()
    tensor([2., 3.], dtype=torch.float64)
    """
    check_features(covariance_DD, "covariance", min_rows=1)
    covariance_DD = covariance_DD.double()
    if covariance_DD.shape[0] != covariance_DD.shape[1] or not torch.allclose(covariance_DD, covariance_DD.T):
        raise UsageError("covariance must be square and symmetric; use (c + c.T) / 2")
    lambda_D, u_DD = torch.linalg.eigh(covariance_DD)
    if float(lambda_D[0]) < -1e-10 * max(1.0, float(lambda_D[-1])):
        raise UsageError(f"covariance must have no eigenvalue below 0, got {float(lambda_D[0]):.3g}")
    return (u_DD * lambda_D.clamp(min=0).sqrt()) @ u_DD.T


def gaussian_points(num_samples: int, num_dims: int, *, generator: torch.Generator) -> Tensor:
    """Draw points (n, d) from N(0, I) in float64."""
    return torch.randn(num_samples, num_dims, generator=generator, dtype=torch.float64)


def draw_views(data: ToyData, num_samples: int, *, generator: torch.Generator) -> ToyViews:
    """Draw a batch: samples first, then the noise of each view.

    Args:
        data: where samples and noise come from.
        num_samples: n >= 2, each the others' negative.
        generator: the only source of randomness.

    >>> views = draw_views(ToyData(isotropic_noise(3, 0.0)), 4, generator=torch.Generator().manual_seed(0))
    >>> bool((views.x_ND == views.other_ND).all()), views.x_ND.shape
    (True, torch.Size([4, 3]))
    """
    if num_samples < 2:
        raise UsageError(f"num_samples must be >= 2, got {num_samples}; samples are each other's negatives")
    if data.points_PD is None:
        clean_ND = gaussian_points(num_samples, data.num_dims, generator=generator)
    else:
        drawn_N = torch.randint(len(data.points_PD), (num_samples,), generator=generator)
        clean_ND = data.points_PD[drawn_N].double()
    noise_2ND = torch.randn(2, num_samples, data.num_dims, generator=generator, dtype=torch.float64) @ data.noise_DD.T
    return ToyViews(clean_ND if data.is_first_clean else clean_ND + noise_2ND[0], clean_ND + noise_2ND[1])
