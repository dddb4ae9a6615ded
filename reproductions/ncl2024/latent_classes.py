"""Finite models of augmentation: how often two views occur together.

A positive pair is two independent draws from one source c: a latent class, or a natural sample whose augmentations the
views are. That one assumption fixes everything a contrastive loss can see, the co-occurrence matrix.
"""

# M sources (latent classes or natural samples), X views, Y views of the second kind

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.errors import UsageError

SUM_TOLERANCE = 1e-6  # float32 inputs; what is kept is divided by its sum


@dataclass(frozen=True)
class LatentModel:
    r"""Sources and the views they emit.

    .. math:: P(x) = \sum_c P(c) P(x|c), \qquad P(c|x) = P(c) P(x|c) / P(x)

    Source: ncl2024, section 4.1. With natural samples for sources, P(x|c) is the augmentation distribution A(x|c) and
    the model is that of haochen2021; with latent classes it is Assumption 1.

    Attributes:
        prior_M: P(c), (m,), positive, sums to 1.
        views_MX: P(x|c), (m, x), rows sum to 1. Every view is emitted by some source.

    Raises:
        UsageError: a value that is no probability, another shape, or a view that never occurs.

    >>> model = LatentModel(torch.tensor([0.5, 0.5]), torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]))
    >>> model.marginal
    tensor([0.2500, 0.5000, 0.2500], dtype=torch.float64)
    >>> model.posterior
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000],
            [0.0000, 1.0000]], dtype=torch.float64)
    """

    prior_M: Tensor
    views_MX: Tensor

    def __post_init__(self) -> None:
        """Keep float64 copies, checked, that sum to 1 as exactly as float64 can."""
        prior_M, views_MX = self.prior_M.detach().double(), self.views_MX.detach().double()
        if prior_M.ndim != 1 or views_MX.ndim != 2 or len(prior_M) != len(views_MX):
            shapes = f"{tuple(prior_M.shape)} and {tuple(views_MX.shape)}"
            raise UsageError(f"prior and views must have shapes (m,) and (m, x), got {shapes}")
        _check_distribution(prior_M, "prior")
        for source, row_X in enumerate(views_MX):
            _check_distribution(row_X, f"views of source {source}")
        if bool((prior_M == 0).any()):
            raise UsageError(f"prior must be > 0, got 0 at source {int(prior_M.argmin())}; leave that source out")
        is_silent_X = (prior_M @ views_MX) == 0
        if bool(is_silent_X.any()):
            view = int(is_silent_X.nonzero()[0])
            raise UsageError(f"every view must occur, but view {view} has probability 0; leave its column out")
        # the record is frozen; what it keeps sums to 1, whatever rounding its arguments had
        object.__setattr__(self, "prior_M", prior_M / prior_M.sum())
        object.__setattr__(self, "views_MX", views_MX / views_MX.sum(dim=1, keepdim=True))

    @property
    def num_sources(self) -> int:
        """Number of sources, m."""
        return len(self.prior_M)

    @property
    def marginal(self) -> Tensor:
        """P(x), (x,)."""
        return self.prior_M @ self.views_MX

    @property
    def posterior(self) -> Tensor:
        """P(c|x), (x, m): psi(x) of ncl2024, section 4.1, the ideal representation of a view."""
        joint_MX = self.prior_M[:, None] * self.views_MX
        # divided by their own sum, not by P(x), which another order of operations rounds otherwise
        return (joint_MX / joint_MX.sum(dim=0)).T


@dataclass(frozen=True)
class Cooccurrence:
    r"""Probabilities with which views x and y form a positive pair.

    .. math:: A_{xy} = P(x, y), \qquad
        \bar A_{xy} = \frac{P(x, y)}{\sqrt{P(x) P(y)}} = \big(D_1^{-1/2} A D_2^{-1/2}\big)_{xy}

    Source: ncl2024, Eq. 3 and Appendix C; haochen2021.

    Attributes:
        joint_XY: A, (x, y), sums to 1; symmetric if both kinds of views are one.
        first_X: P(x), its row sums.
        second_Y: P(y), its column sums.
        is_symmetric: whether views of one kind are paired with each other, so that one encoder serves both.
    """

    joint_XY: Tensor
    first_X: Tensor
    second_Y: Tensor
    is_symmetric: bool

    @property
    def normalised(self) -> Tensor:
        """A-bar, (x, y): singular values lie in [0, 1], the largest is 1."""
        return self.joint_XY / torch.sqrt(self.first_X[:, None] * self.second_Y)


def cooccurrence(model: LatentModel) -> Cooccurrence:
    r"""Co-occurrence of two views of one source.

    .. math:: A_{xx'} = \sum_c P(c) P(x|c) P(x'|c)

    Source: ncl2024, Assumption 1 and the line below Eq. 3.

    Returns:
        Symmetric, and A-bar is positive semi-definite.

    >>> model = LatentModel(torch.tensor([0.5, 0.5]), torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]))
    >>> cooccurrence(model).joint_XY
    tensor([[0.1250, 0.1250, 0.0000],
            [0.1250, 0.2500, 0.1250],
            [0.0000, 0.1250, 0.1250]], dtype=torch.float64)
    """
    # Assumption 1
    joint_XX = (model.prior_M[:, None] * model.views_MX).T @ model.views_MX
    joint_XX = (joint_XX + joint_XX.T) / 2  # a product of matrices rounds its two triangles differently
    return Cooccurrence(joint_XX, model.marginal, model.marginal, is_symmetric=True)


def paired_cooccurrence(first: LatentModel, second: LatentModel) -> Cooccurrence:
    r"""Co-occurrence of two kinds of data, such as pictures and captions, that come from one source.

    .. math:: (A_M)_{xy} = \sum_c P(c) P(x|c) P(y|c)

    Source: ncl2024, Appendix C.

    Args:
        first: sources and their views of the first kind.
        second: the same sources and their views of the second kind.

    Raises:
        UsageError: the two have different sources.

    >>> prior = torch.tensor([0.5, 0.5])
    >>> pair = paired_cooccurrence(LatentModel(prior, torch.eye(2)), LatentModel(prior, torch.full((2, 1), 1.0)))
    >>> pair.joint_XY
    tensor([[0.5000],
            [0.5000]], dtype=torch.float64)
    """
    if not torch.equal(first.prior_M, second.prior_M):
        raise UsageError(f"both kinds must have the same sources, got P(c) = {first.prior_M} and {second.prior_M}")
    # Appendix C: draws from one source, independent given it
    joint_XY = (first.prior_M[:, None] * first.views_MX).T @ second.views_MX
    return Cooccurrence(joint_XY, first.marginal, second.marginal, is_symmetric=False)


def _check_distribution(p_N: Tensor, name: str) -> None:
    """Require finite, non-negative numbers that sum to 1."""
    if not bool(torch.isfinite(p_N).all()) or bool((p_N < 0).any()):
        raise UsageError(f"{name} must be probabilities >= 0, got {p_N.tolist()}")
    total = float(p_N.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise UsageError(f"{name} must sum to 1, got {total:.6g}; divide by the sum")
