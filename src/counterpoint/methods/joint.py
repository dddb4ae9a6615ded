"""Wirings whose loss sees the embeddings of two views: one encoder or one for each kind of data, or a classifier."""

# N samples per rank

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from counterpoint.core.checks import check_labels
from counterpoint.core.dist import check_equal_batches, gather_rows, merge_columns, own_rows, sum_over_ranks, world_size
from counterpoint.losses.bimodal import LogitScale
from counterpoint.losses.loss import Loss, Part
from counterpoint.methods.encoding import Chunks, EncoderMethod, Head, at_least_two, encode, to_embedding


class EmbeddingMethod(EncoderMethod):
    """A method whose loss depends on the embeddings of both views only, so that others can measure them, too."""

    @final
    def forward(
        self,
        view0: Tensor,
        view1: Tensor,
        labels: Tensor | None = None,
        step: int = 0,
        local: Tensor | None = None,
    ) -> Tensor:
        """See ``Method.forward``; output map and loss work in float32 at least, whatever autocast says.

        ``local`` holds local views, (l, n, ...), which go to losses of a distribution only.
        """
        z0, z1, *small = self.embed_views(view0, view1, *(() if local is None else local.unbind()))
        return self.score(z0, z1, labels, step, small)

    @abstractmethod
    def embed_views(self, view0: Tensor, view1: Tensor, *local: Tensor) -> tuple[Tensor, ...]:
        """Return what the loss compares: the embeddings of both views, then those of local ones."""

    @abstractmethod
    def score(
        self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, step: int = 0, local: Sequence[Tensor] = ()
    ) -> Tensor:
        """The loss of embeddings, as ``forward`` has it."""

    @final
    def after_step(self, progress: float = 1.0) -> None:
        """Bring learned scales of the loss back into their range."""
        for module in self.loss.modules():
            if isinstance(module, LogitScale):
                module.limit_()


class OneEncoder(EmbeddingMethod):
    """A method whose one encoder embeds both views.

    Labelled or not, all samples pass it, so that BatchNorm has the statistics of the batch.

    Args:
        backbone: maps samples to representations (n, width).
        head: projector and output map.
        loss: loss of the embeddings.
        chunks: function that makes an encoder work in chunks; None encodes all views of a size at once.
        is_apart: whether each view is encoded separately, so that BatchNorm has the statistics of one view.
    """

    def __init__(
        self, backbone: nn.Module, head: Head, loss: Loss, *, chunks: Chunks | None = None, is_apart: bool = False
    ) -> None:
        super().__init__(backbone, head, chunks)
        self.loss: Loss = loss  # pyright: ignore[reportIncompatibleVariableOverride]
        self.is_apart = is_apart

    @final
    def embed_views(self, view0: Tensor, view1: Tensor, *local: Tensor) -> tuple[Tensor, ...]:
        """Return what the loss compares: the embeddings of both views, then those of local ones."""
        return (*self._embed_same_size((view0, view1)), *(self._embed_same_size(local) if local else ()))

    def _embed_same_size(self, views: Sequence[Tensor]) -> Sequence[Tensor]:
        passes = views if self.is_apart else (torch.cat([*views]),)
        projected = torch.cat([encode(self.backbone, self.projector, samples, self.chunks) for samples in passes])
        return to_embedding(self.output_map, projected).chunk(len(views))


class JointEmbedding(OneEncoder):
    """SimCLR, NCL, DirectCLR, Barlow Twins, VICReg, SupCon: they differ in projector, output map and loss only.

    Both views pass the encoder together, so that BatchNorm has the statistics of both, unless ``is_apart``. Where
    several ranks share a batch, the keys of the loss are the samples of all ranks. Labels go to losses that use them.
    LeJEPA may have local views of each sample, further and smaller ones of parts of it: they pass the encoder after the
    two global ones, so that BatchNorm has the statistics of one size.

    Source: caron2020, section 3.2 (multi-crop); balestriero2025.
    """

    def score(
        self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, step: int = 0, local: Sequence[Tensor] = ()
    ) -> Tensor:
        """The loss of embeddings, as ``forward`` has it."""
        loss_labels = labels if self.loss.uses_labels else None
        if loss_labels is not None:
            # Every sample of unknown class is a class of its own, numbered over all ranks: no two attract each other.
            place_N = torch.arange(len(loss_labels), device=loss_labels.device) + own_rows(len(loss_labels)).start
            loss_labels = torch.where(loss_labels < 0, -1 - place_N.to(loss_labels.dtype), loss_labels)
        return loss_across_ranks(self.loss, z0, z1, loss_labels, step, local=local)


class TwoTowers(EmbeddingMethod):
    """CLIP: each kind of data has an encoder and a projector of its own; the loss compares their embeddings.

    View 0 goes to ``backbone``, which is what users load, and view 1 to ``second_backbone``.

    Source: radford2021, section 2.4 (a linear projection from each encoder to the shared space).

    Args:
        backbone: maps samples of the first kind to representations (n, width).
        head: its projector, and the output map of both towers.
        second_backbone: maps samples of the second kind to representations (n, second width).
        second_projector: maps those to the width that ``head.projector`` returns.
        loss: loss that is called as ``loss(z0, z1)``, and with labels if it uses them.
        chunks: function that makes an encoder work in chunks; None encodes all samples of a kind at once.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        second_backbone: nn.Module,
        second_projector: nn.Module,
        loss: Loss,
        *,
        chunks: Chunks | None = None,
    ) -> None:
        super().__init__(backbone, head, chunks)
        self.second_backbone, self.second_projector = second_backbone, second_projector
        self.loss: Loss = loss  # pyright: ignore[reportIncompatibleVariableOverride]

    def embed_views(self, view0: Tensor, view1: Tensor, *local: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the loss compares: the embeddings of both kinds of sample."""
        # The encoders work in the precision of autocast, output map and loss in float32 at least.
        projected0 = encode(self.backbone, self.projector, view0, self.chunks)
        projected1 = encode(self.second_backbone, self.second_projector, view1, self.chunks)
        return to_embedding(self.output_map, projected0), to_embedding(self.output_map, projected1)

    def score(
        self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, step: int = 0, local: Sequence[Tensor] = ()
    ) -> Tensor:
        """The loss of embeddings, as ``forward`` has it; labels are not looked at."""
        return loss_across_ranks(self.loss, z0, z1, None, step)


def loss_across_ranks(
    loss: Loss, z0: Tensor, z1: Tensor, labels: Tensor | None = None, step: int = 0, *, local: Sequence[Tensor] = ()
) -> Tensor:
    r"""This rank's share of a loss whose keys are the samples of all ranks and whose anchors are this rank's.

    .. math:: \frac{1}{W} \sum_{r=1}^{W} L_r = L(\text{the batches of all ranks, one after another})

    Only the mean over ranks has a meaning of its own. The gradient that reaches the embeddings is that of
    :math:`\sum_r L_r`; averaging parameter gradients over the ranks, as ``DistributedDataParallel`` does, then gives
    the gradient that one process would have found on the whole batch. That holds for the loss's own parameters, too,
    such as a learnable temperature: let them be averaged along. A single process gets the loss as it is.

    All views are gathered in one collective and the labels in a second; gradients of all ranks come back summed.

    Args:
        loss: any loss of ``counterpoint.losses``.
        z0: this rank's embeddings of the first view, (n, d), equally many on every rank.
        z1: second view, same samples and dtype.
        labels: class of each sample, whole numbers (n,), or None; given on all ranks or on none.
        step: number of the call, on all ranks alike; a loss that draws gets it.
        local: further views of the same samples, each (n, d), for a loss of a distribution.

    Returns:
        Scalar tensor.

    Raises:
        TypeError: as the loss raises.
        ValueError: as the loss raises, or the ranks' batches differ in size (on every rank at once).

    >>> from counterpoint.losses import InfoNCE
    >>> z = torch.eye(2)
    >>> loss_across_ranks(InfoNCE(), z, z) == InfoNCE()(z, z)
    tensor(True)
    """
    # Draws go by step, not by a generator: resumed runs and all ranks draw the same.
    named: dict[str, Any] = {"step": step} if loss.draws_by_step else {}
    if world_size() == 1:
        return loss(z0, z1, labels, **named, **({"local_LND": torch.stack([*local])} if local else {}))
    if labels is not None:
        check_labels(labels, len(z0))
    # Before the gather, which wants equal shapes on all ranks.
    check_equal_batches(z0, labels)
    own = own_rows(len(z0))
    # (n, views, d): rows of all views travel together, and come back in the order of ranks.
    z0_all, z1_all, *local_all = gather_rows(torch.stack([z0, z1, *local], dim=1)).unbind(1)
    if local_all:
        named["local_LND"] = torch.stack(local_all)
    labels_all = None if labels is None else gather_rows(labels)
    # All samples are keys, this rank's rows are anchors; merge_columns adds what other ranks' anchors give a key.
    return loss(z0_all, z1_all, labels_all, part=Part(own.start, own.stop, merge_columns), **named)


class Classification(OneEncoder):
    r"""Supervised cross-entropy, plain or non-negative.

    .. math:: L = \frac{1}{|\mathcal{Y}|} \sum_{i \in \mathcal{Y}} \tfrac12 \big(\ell(z_i, y_i) + \ell(z_i', y_i)\big)

    over the samples :math:`\mathcal{Y}` of all ranks whose class is known. A batch without any has loss 0 and gradient
    0. Both views pass the encoder together, unless ``is_apart``.

    Source: ncl2024, section 6.
    """

    def score(
        self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, step: int = 0, local: Sequence[Tensor] = ()
    ) -> Tensor:
        """The loss of embeddings, as ``forward`` has it.

        Raises:
            ValueError: no labels, or one that is not a class.
        """
        if labels is None:
            raise ValueError("labels must be given: a supervised method learns from nothing else")
        labelled_N = (labels >= 0).nonzero().flatten()
        # Before any return: ranks without a label take part in the collective, too.
        num_labelled = sum_over_ranks(torch.tensor([float(len(labelled_N))], device=z0.device)).squeeze()
        if len(labelled_N) == 0:
            # Every parameter gets a gradient of zero: data-parallel wrappers wait for each of them.
            unused = [parameter.sum() for parameter in self.loss.parameters()]
            return 0.0 * (z0.sum() + z1.sum() + torch.stack(unused).sum())
        # A rank's share of the mean over all ranks' known samples; the mean over ranks adds the shares up.
        share = world_size() * len(labelled_N) / num_labelled.to(z0.dtype)
        # A single sample twice has the same mean; the share above counts it once.
        rows = at_least_two(labelled_N)
        return share * self.loss(z0[rows], z1[rows], labels[rows])
