"""Learning with labels: a classifier on the embeddings of both views; samples of unknown class are left out."""

# N samples, D features

import torch
from torch import Tensor, nn

from counterpoint.core.dist import sum_over_ranks, world_size
from counterpoint.losses.cross_entropy import ClassLoss
from counterpoint.methods.encoding import Chunks, Head, at_least_two, embed_both
from counterpoint.methods.joint import EmbeddingMethod


class Classification(EmbeddingMethod):
    r"""Supervised cross-entropy, plain or non-negative.

    .. math:: L = \frac{1}{|\mathcal{Y}|} \sum_{i \in \mathcal{Y}} \tfrac12 \big(\ell(z_i, y_i) + \ell(z_i', y_i)\big)

    over the samples :math:`\mathcal{Y}` of all ranks whose class is known. A batch without any has loss 0 and gradient
    0. Both views pass the encoder together, unless ``is_apart``.

    Source: ncl2024, section 6.

    Args:
        backbone: maps samples to representations (n, width).
        head: projector and output map.
        loss: holds the classifier.
        chunks: encode in chunks; None encodes the 2n samples at once.
        is_apart: encode each view by itself, so that BatchNorm has the statistics of one view.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        loss: ClassLoss,
        *,
        chunks: Chunks | None = None,
        is_apart: bool = False,
    ) -> None:
        super().__init__(backbone, head, chunks)
        self.loss: ClassLoss = loss  # pyright: ignore[reportIncompatibleVariableOverride]
        self.is_apart = is_apart

    def embed_views(self, view0: Tensor, view1: Tensor) -> tuple[Tensor, Tensor]:
        """What is classified: the embeddings of both views."""
        # Labelled or not, all samples pass the encoder: its BatchNorm has the statistics of the batch.
        return embed_both(self, (view0, view1), is_apart=self.is_apart)

    def score(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, step: int = 0) -> Tensor:
        """The loss of embeddings, as ``forward`` has it.

        Raises:
            ValueError: no labels, or one that is no class.
        """
        if labels is None:
            raise ValueError("labels must be given: a supervised method learns from nothing else")
        known_N = (labels >= 0).nonzero().flatten()
        # Before any return: ranks without a label take part in the collective, too.
        num_known = sum_over_ranks(torch.tensor([float(len(known_N))], device=z0.device)).squeeze()
        if len(known_N) == 0:
            # With gradient zero for every parameter: data-parallel wrappers wait for each of them.
            unused = [parameter.sum() for parameter in self.loss.parameters()]
            return 0.0 * (z0.sum() + z1.sum() + torch.stack(unused).sum())
        # A rank's share of the mean over all ranks' known samples; the mean over ranks adds the shares up.
        share = world_size() * len(known_N) / num_known.to(z0.dtype)
        # A single sample twice has the same mean; the share above counts it once.
        rows = at_least_two(known_N)
        return share * self.loss(z0[rows], z1[rows], labels[rows])

    def after_step(self, progress: float = 1.0) -> None:
        """Nothing is due."""
