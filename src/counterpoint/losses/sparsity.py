"""An l1 penalty around any loss: the baseline that non-negative contrastive learning is compared with."""

# N samples per view, D features

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from counterpoint.core.checks import check_weight
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.loss import Loss, Part


class SparsityPenalty(Loss):
    r"""Another loss plus the mean l1 norm of the embeddings.

    .. math:: L = L_{\mathrm{inner}}(Z, Z') + \frac{\lambda}{2n} \sum_{z \in Z \cup Z'} |z|_1

    The mean is over both views. By default the l1 norm is that of the vectors at unit length, from 1 (one active
    feature) to sqrt(D) (all equally active): most losses do not see a vector's length, and a penalty on raw vectors
    would then only shrink them, with no zero gained.

    Source: ncl2024, Eq. 14 (appendix D.2, with the spectral loss and lambda = 0.01). Eq. 14 takes vectors as they are:
        ``normalize=False``.

    Args:
        loss: the loss that is penalised; gets labels and part as they come.
        weight: lambda >= 0.
        normalize: take the l1 norm at unit length; zero vectors count 0. What the inner loss does is its own matter.

    Raises:
        TypeError: ``loss`` is not a Loss.
        ValueError: weight < 0 or not finite.

    Unchanged by permuting samples and swapping views where the inner loss is; not by rotation, which is its point. The
    penalty is a mean over samples: each process takes that of the whole batch, whatever its part.

    >>> from counterpoint.losses.spectral import SpectralContrastive
    >>> z = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> inner = SpectralContrastive()
    >>> penalised = SparsityPenalty(inner, weight=10.0)
    >>> round(float(penalised(z, z) - inner(z, z)), 4)
    7.0
    """

    why_no_class_level = "its l1 norm depends on the axes, not on inner products alone"

    def __init__(self, loss: Loss, weight: float = 0.01, *, normalize: bool = True) -> None:
        super().__init__()
        if not isinstance(loss, Loss):
            raise TypeError(f"loss must be one of counterpoint.losses, got {type(loss).__name__}; build it first")
        check_weight(weight, "weight", hint="ncl2024 uses 0.01")
        self.loss = loss
        self.uses_labels, self.draws_by_step = loss.uses_labels, loss.draws_by_step
        self.weight = weight
        self.normalize = normalize
        norm = f"{weight:g} x mean l1 norm {'at unit length' if normalize else 'as they are'}"
        self.card = replace(
            loss.card,
            name=f"SparsityPenalty({loss.card.name})",
            normalization=f"{loss.card.normalization}; plus {norm}",
            source=f"{loss.card.source}; ncl2024, Eq. 14",
        )

    def forward(
        self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None, **drawn: int
    ) -> Tensor:
        """The inner loss with its labels, part and step, plus the penalty on both views; see ``Loss.forward``."""
        vectors = torch.cat(prepare_views(z0, z1, labels, normalize=self.normalize))
        return self.loss(z0, z1, labels, part=part, **drawn) + self.weight * vectors.abs().sum(dim=1).mean()

    def chance(self, n: int) -> float:
        """Least loss of non-zero vectors that are all alike: one active feature, whose l1 norm is 1 at unit length.

        Vectors as they are may be as short as one likes: then it is the inner loss's.
        """
        return self.loss.chance(n) + (self.weight if self.normalize else 0.0)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """The inner loss's: no l1 norm is negative, and zero vectors have none."""
        return self.loss.floor(n, nonnegative=nonnegative)


CATALOGUE: Mapping[str, type[SparsityPenalty]] = {"sparsity-penalty": SparsityPenalty}
