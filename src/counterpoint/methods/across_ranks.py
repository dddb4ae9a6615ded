r"""One loss over a batch that several processes share: gather once, score own anchors, let the gradients flow back."""

# N samples per rank, D features

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from counterpoint.core.checks import check_labels
from counterpoint.core.dist import check_equal_batches, gather_rows, merge_columns, own_rows, world_size
from counterpoint.losses.loss import Loss, Part


@dataclass(frozen=True)
class SharedBatch:
    """The samples of all ranks, in the order of ranks, and which of them are anchors here.

    Attributes:
        z0: first views (W n, d).
        z1: second views, same samples.
        labels: (W n,) or None.
        part: this rank's samples; None in a single process.
    """

    z0: Tensor
    z1: Tensor
    labels: Tensor | None
    part: Part | None


class AcrossRanks(nn.Module):
    r"""A loss whose keys are the samples of all ranks and whose anchors are this rank's.

    .. math:: \frac{1}{W} \sum_{r=1}^{W} L_r = L(\text{the batches of all ranks, one after another})

    The gradient that reaches the embeddings is that of :math:`\sum_r L_r`; averaging parameter gradients over the
    ranks, as ``DistributedDataParallel`` does, then gives the gradient that one process would have found on the whole
    batch. That holds for the loss's own parameters, too, such as a learnable temperature: let them be averaged along.
    A single process gets the loss as it is.

    Args:
        loss: any loss of ``counterpoint.losses``.

    >>> from counterpoint.losses import InfoNCE
    >>> z = torch.eye(2)
    >>> AcrossRanks(InfoNCE())(z, z) == InfoNCE()(z, z)
    tensor(True)
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, step: int = 0) -> Tensor:
        """This rank's share of the loss; only the mean over ranks has a meaning of its own.

        Args:
            z0: this rank's embeddings of the first view, (n, d), equally many on every rank.
            z1: second view, same samples.
            labels: whole numbers (n,) or None, on all ranks alike.
            step: number of the call, on all ranks alike; a loss that draws gets it.

        Returns:
            Scalar tensor.

        Raises:
            TypeError: as the loss raises.
            ValueError: as the loss raises, or the ranks' batches differ in size (on every rank at once).
        """
        shared = shared_batch(z0, z1, labels)
        drawn = {"step": step} if self.loss.draws_by_step else {}
        return self.loss(shared.z0, shared.z1, shared.labels, part=shared.part, **drawn)


def shared_batch(z0: Tensor, z1: Tensor, labels: Tensor | None = None) -> SharedBatch:
    """Gather both views in one collective, and the labels in a second; gradients of all ranks come back summed.

    Args:
        z0: this rank's first views, (n, d).
        z1: second views, same shape and dtype.
        labels: whole numbers (n,), or None.

    Raises:
        TypeError: views of two dtypes.
        ValueError: views of another shape, labels of another length, or unequal batches.
    """
    if world_size() == 1:
        return SharedBatch(z0, z1, labels, part=None)
    _check_stackable(z0, z1)
    if labels is not None:
        check_labels(labels, len(z0))
    check_equal_batches(z0, labels)
    own = own_rows(len(z0))
    z0_all, z1_all = gather_rows(torch.stack([z0, z1], dim=1)).unbind(1)
    labels_all = None if labels is None else gather_rows(labels)
    return SharedBatch(z0_all, z1_all, labels_all, Part(own.start, own.stop, merge_columns))


def _check_stackable(z0: Tensor, z1: Tensor) -> None:
    """The loss checks the gathered views; this only keeps stacking from failing without a word or from casting."""
    if z0.ndim != 2 or z0.shape != z1.shape:
        shapes = f"{tuple(z0.shape)} and {tuple(z1.shape)}"
        raise ValueError(f"z0 and z1 must have the same shape (samples, features), got {shapes}")
    if z0.dtype != z1.dtype:
        raise TypeError(f"z0 and z1 must have the same dtype, got {z0.dtype} and {z1.dtype}; convert one of them")
