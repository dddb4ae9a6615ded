r"""What a linear classifier on ideal features can reach: the Bayes classifier, and with which weights.

Labels are sets of sources without overlap, so that P(y|x) is a sum over sources, and a sum is linear in P(c|x).
"""

# X views, K features, M sources, C labels

from dataclasses import dataclass

from torch import Tensor

from counterpoint.core.errors import UsageError
from counterpoint.papers.ncl2024.cooccurrence import LatentModel, group_members


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
    >>> from counterpoint.papers.ncl2024.factorisation import source_features
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
    right_X = posterior_XC.gather(1, predicted_X[:, None]).squeeze(1)
    error = 1 - float(model.marginal @ right_X)
    bayes_error = 1 - float(model.marginal @ posterior_XC.amax(dim=1))
    return Classification(scores_XC, predicted_X, error, bayes_error)
