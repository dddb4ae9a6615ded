"""The joint-embedding wiring: two views, one encoder, one projector, one output map, one loss."""

# N samples

import torch
from torch import Tensor, nn

from counterpoint.core.dist import own_rows
from counterpoint.losses.loss import Loss
from counterpoint.methods.across_ranks import AcrossRanks
from counterpoint.methods.encoding import Chunks, encode_views, limit_learned_scales, to_embedding
from counterpoint.nn.heads import OutputMap
from counterpoint.nn.method import Method


class JointEmbedding(Method):
    """SimCLR, NCL, DirectCLR, Barlow Twins, VICReg, SupCon: they differ in projector, output map and loss only.

    Both views pass the encoder together, so that BatchNorm has the statistics of both, unless ``is_apart``. Where
    several ranks share a batch, the keys of the loss are the samples of all ranks.

    Args:
        backbone: maps samples to representations (n, width).
        projector: maps representations to what the output map takes.
        output_map: sub-vector, non-negative map, unit length.
        loss: called as ``loss(z0, z1)``, and with labels if it uses them.
        chunks: encode in chunks; None encodes the 2n samples at once.
        is_apart: encode each view by itself, so that BatchNorm has the statistics of one view.
    """

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        output_map: OutputMap,
        loss: Loss,
        *,
        chunks: Chunks | None = None,
        is_apart: bool = False,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.projector = projector
        self.output_map = output_map
        self.loss: Loss = loss  # pyright: ignore[reportIncompatibleVariableOverride]
        self.chunks, self.is_apart = chunks, is_apart

    def forward(self, view0: Tensor, view1: Tensor, labels: Tensor | None = None, step: int = 0) -> Tensor:
        """See ``Method.forward``; the loss is computed in full precision."""
        encoder = (self.backbone, self.projector)
        projected = encode_views(*encoder, (view0, view1), self.chunks, is_apart=self.is_apart)
        z0, z1 = to_embedding(self.output_map, projected).chunk(2)
        used = labels if self.loss.uses_labels else None
        return AcrossRanks(self.loss)(z0, z1, None if used is None else each_unknown_its_own(used), step)

    def after_step(self, progress: float = 1.0) -> None:
        """Bring learned scales of the loss back into their range."""
        limit_learned_scales(self.loss)


def each_unknown_its_own(labels_N: Tensor) -> Tensor:
    """Labels in which every sample of unknown class, -1, is a class of its own: no two of them attract each other.

    Args:
        labels_N: this rank's class numbers, -1 where unknown.

    >>> each_unknown_its_own(torch.tensor([3, -1, 0, -1])).tolist()
    [3, -2, 0, -4]
    """
    place_N = torch.arange(len(labels_N), device=labels_N.device) + own_rows(len(labels_N)).start
    return torch.where(labels_N < 0, -1 - place_N.to(labels_N.dtype), labels_N)
