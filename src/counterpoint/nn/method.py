"""The interface of every wiring to the training loop."""

# N samples

from abc import ABC, abstractmethod

from torch import Tensor, nn


class Method(nn.Module, ABC):
    """A module from two views of a batch to a loss: all that the training loop knows of a method.

    Everything a resumed run needs is in ``state_dict()``: a momentum encoder's weights and a queue included. Where
    several ranks share a batch, each calls the method on its own samples and the mean of the values over the ranks is
    the loss of the whole batch (``core.dist``).

    Attributes:
        backbone: maps samples to representations (n, width); what users load.
        projector: maps representations to embeddings before the output map; what users load.
        loss: loss of ``counterpoint.losses``.
    """

    backbone: nn.Module
    projector: nn.Module
    loss: nn.Module

    @abstractmethod
    def forward(self, view0: Tensor, view1: Tensor, labels: Tensor | None = None, step: int = 0) -> Tensor:
        """Loss of this rank's samples.

        Args:
            view0: first view of each sample, (n, ...).
            view1: second view, same samples in the same order; of another modality for paired data.
            labels: class numbers (n,), -1 where unknown; None for data without labels. Only supervised methods
                use them.
            step: number of the call in the course of the run, the same on all ranks; losses that draw at random draw
                again for each.

        Returns:
            Scalar tensor in float32 at least.
        """

    @abstractmethod
    def after_step(self, progress: float) -> None:
        """Finish an update: a momentum encoder follows, learned scales stay in range.

        Args:
            progress: share of all updates that are done, in (0, 1].
        """
