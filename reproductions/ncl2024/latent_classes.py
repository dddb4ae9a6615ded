r"""Finite models of augmentation: how often two views occur together, and what a linear classifier can reach.

A positive pair is two independent draws from one source c: a latent class, or a natural sample whose augmentations the
views are. That one assumption fixes everything a contrastive loss can see, the co-occurrence matrix. Labels are sets of
sources without overlap, so that P(y|x) is a sum over sources, and a sum is linear in P(c|x): ideal features reach the
Bayes classifier with weights that can be read.
"""

# M sources (latent classes or natural samples), X views, Y views of the second kind, G groups, K features, C labels

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

    @property
    def overlap(self) -> Tensor:
        r"""Class overlap :math:`P(c_i, c_j) = \sum_x P(x) P(c_i|x) P(c_j|x)`, (m, m): ncl2024, Assumption 2."""
        return self.posterior.T @ (self.marginal[:, None] * self.posterior)

    @property
    def largest_overlap(self) -> float:
        """Largest overlap of two different sources: epsilon of ncl2024, Assumption 2. 0 for a single source."""
        overlap_MM = self.overlap
        return float((overlap_MM - torch.diag(overlap_MM.diagonal())).max())

    def grouped(self, group_M: Tensor) -> "LatentModel":
        r"""The model whose positive pairs are draws from one group of sources, such as all samples of a label.

        .. math:: P(g) = \sum_{c \in g} P(c), \qquad P(x|g) = \sum_{c \in g} P(c) P(x|c) / P(g)

        Source: ncl2024, section E.1 (positives of the same class).

        Args:
            group_M: number of each source's group, (m,); the numbers 0 ... g-1 all occur.

        Returns:
            A model of g sources and the same views.

        >>> model = LatentModel(torch.tensor([0.25, 0.25, 0.5]), torch.eye(3))
        >>> model.grouped(torch.tensor([0, 0, 1])).views_MX
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]], dtype=torch.float64)
        """
        member_GM = group_members(group_M, self.num_sources)
        weight_GM = member_GM * self.prior_M
        prior_G = weight_GM.sum(dim=1)
        return LatentModel(prior_G, (weight_GM @ self.views_MX) / prior_G[:, None])


@dataclass(frozen=True)
class Cooccurrence:
    r"""How often views x and y form a positive pair.

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

    @property
    def ratio(self) -> Tensor:
        """P(x, y) / (P(x) P(y)), (x, y): how much likelier than by chance a pair is."""
        return self.joint_XY / (self.first_X[:, None] * self.second_Y)


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


def group_members(group_M: Tensor, num_sources: int) -> Tensor:
    """Indicator of which source belongs to which group, (g, m), from each source's number.

    Raises:
        UsageError: not one whole number per source, or a number between 0 and the largest that no source has.

    >>> group_members(torch.tensor([1, 0, 1]), 3)
    tensor([[0., 1., 0.],
            [1., 0., 1.]], dtype=torch.float64)
    """
    if group_M.shape != (num_sources,) or group_M.is_floating_point():
        raise UsageError(
            f"groups must be one whole number per source, shape ({num_sources},), got {tuple(group_M.shape)} of "
            f"{group_M.dtype}"
        )
    # bincount refuses negative numbers with an error of its own
    counts_G = torch.bincount(group_M) if bool((group_M >= 0).all()) else torch.zeros(1)
    if bool((counts_G == 0).any()):
        raise UsageError(f"groups must be numbered from 0 without a gap, got {group_M.tolist()}")
    return torch.nn.functional.one_hot(group_M.long(), len(counts_G)).T.double()


def _check_distribution(p_N: Tensor, name: str) -> None:
    """Require finite, non-negative numbers that sum to 1."""
    if not bool(torch.isfinite(p_N).all()) or bool((p_N < 0).any()):
        raise UsageError(f"{name} must be probabilities >= 0, got {p_N.tolist()}")
    total = float(p_N.sum())
    if abs(total - 1) > SUM_TOLERANCE:
        raise UsageError(f"{name} must sum to 1, got {total:.6g}; divide by the sum")


@dataclass(frozen=True)
class Classification:
    """A classifier on a finite model, judged exactly.

    Attributes:
        scores_XC: one score per view and label.
        predicted_X: label of the largest score.
        error: probability that it is wrong, over views and their labels.
        bayes_error: the least that any classifier of views can have.
    """

    scores_XC: Tensor
    predicted_X: Tensor
    error: float
    bayes_error: float

    @property
    def is_bayes_optimal(self) -> bool:
        """Whether no classifier does better; ties between labels are all optimal."""
        return self.error <= self.bayes_error + 1e-12


def label_posterior(model: LatentModel, label_M: Tensor) -> Tensor:
    r"""Probability of each label given the view, :math:`P(y|x) = \sum_{c \in C_y} P(c|x)`.

    Source: ncl2024, section 4.4.

    Args:
        model: sources and views.
        label_M: label of each source; 0 ... C-1 all occur.

    Returns:
        Tensor (x, c), rows sum to 1.

    Raises:
        UsageError: labels that do not fit the sources.

    >>> import torch
    >>> model = LatentModel(torch.tensor([0.25, 0.25, 0.5]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]))
    >>> label_posterior(model, torch.tensor([0, 0, 1]))
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]], dtype=torch.float64)
    """
    return model.posterior @ group_members(label_M, model.num_sources).T


def bayes_weights(model: LatentModel, label_M: Tensor) -> Tensor:
    r"""Weights with which a linear classifier of ``source_features`` gives P(y|x) itself.

    .. math:: (w_y)_c = \sqrt{P(c)}\, 1_{c \in C_y}, \qquad \langle w_y, \phi(x) \rangle = P(y|x)

    Only a label's own sources weigh, so that the classifier can be read.

    Source: ncl2024, Eq. 10 (Theorem 6). The proof prints the indicator under the root, where it happens to do no harm.

    Args:
        model: sources and views.
        label_M: label of each source; 0 ... C-1 all occur.

    Returns:
        Tensor (m, c): w_y is a column.

    Raises:
        UsageError: labels that do not fit the sources.

    >>> import torch
    >>> bayes_weights(LatentModel(torch.tensor([0.25, 0.25, 0.5]), torch.eye(3)), torch.tensor([1, 1, 0]))
    tensor([[0.0000, 0.5000],
            [0.0000, 0.5000],
            [0.7071, 0.0000]], dtype=torch.float64)
    """
    # Eq. 10, as in the main text: the indicator beside the root
    return model.prior_M.sqrt()[:, None] * group_members(label_M, model.num_sources).T


def classify(model: LatentModel, label_M: Tensor, features_XK: Tensor, weights_KC: Tensor) -> Classification:
    r"""Judge a linear classifier, :math:`\arg\max_y \langle w_y, f(x) \rangle`, against the Bayes classifier.

    .. math:: \mathrm{error} = 1 - \sum_x P(x) P(\hat y(x) | x), \qquad
        \mathrm{Bayes\ error} = 1 - \sum_x P(x) \max_y P(y|x)

    Source: ncl2024, Theorem 6: ``source_features`` with ``bayes_weights`` reach the Bayes error. So do signed features
    of the same rank, f = T phi with weights T w: the theorem tells non-negative features from others by which weights
    are zero, not by the error.

    Args:
        model: sources and views.
        label_M: label of each source; 0 ... C-1 all occur.
        features_XK: one row per view.
        weights_KC: a column per label.

    Raises:
        UsageError: labels, features or weights that do not fit.

    >>> import torch
    >>> from reproductions.ncl2024.factorisation import source_features
    >>> model = LatentModel(torch.tensor([0.25, 0.25, 0.5]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.2, 0.8]]))
    >>> labels = torch.tensor([0, 0, 1])
    >>> judged = classify(model, labels, source_features(model), bayes_weights(model, labels))
    >>> judged.predicted_X.tolist(), round(judged.error, 6), judged.is_bayes_optimal
    ([0, 1], 0.35, True)
    """
    posterior_XC = label_posterior(model, label_M)
    expected = (len(posterior_XC), features_XK.shape[-1], posterior_XC.shape[1])
    given = (len(features_XK), len(weights_KC), weights_KC.shape[-1])
    if expected != given:
        raise UsageError(
            f"features and weights must have shapes ({expected[0]}, k) and (k, {expected[2]}), got "
            f"{tuple(features_XK.shape)} and {tuple(weights_KC.shape)}"
        )
    scores_XC = features_XK.double() @ weights_KC.double()
    predicted_X = scores_XC.argmax(dim=1)
    # P(y^|x): the chance that the predicted label is right
    right_X = posterior_XC.gather(1, predicted_X[:, None]).squeeze(1)
    error = 1 - float(model.marginal @ right_X)
    bayes_error = 1 - float(model.marginal @ posterior_XC.amax(dim=1))
    return Classification(scores_XC, predicted_X, error, bayes_error)
