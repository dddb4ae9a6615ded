"""The joint-embedding wiring: two views, one encoder, one projector, one output map, one loss."""

import torch
from torch import Tensor, nn

from counterpoint.losses.logit_scale import LogitScale
from counterpoint.nn.outputs import OutputMap


class JointEmbedding(nn.Module):
    """SimCLR, NCL and DirectCLR: they differ in projector, output map and loss settings only.

    Args:
        backbone: maps samples to representations (n, width).
        projector: maps representations to what the output map takes.
        output_map: sub-vector, non-negative map, unit length.
        loss: called as ``loss(z0, z1)``.
    """

    def __init__(self, backbone: nn.Module, projector: nn.Module, output_map: OutputMap, loss: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.projector = projector
        self.output_map = output_map
        self.loss = loss

    def forward(self, view0: Tensor, view1: Tensor) -> Tensor:
        """Loss of one batch: both views pass the encoder together, the loss is computed in full precision.

        Args:
            view0: first view of each sample, (n, ...).
            view1: second view, same shape and order.
        """
        projected = self.projector(self.backbone(torch.cat([view0, view1])))
        with torch.autocast(projected.device.type, enabled=False):
            z0, z1 = self.output_map(projected.float()).chunk(2)
            return self.loss(z0, z1)

    def after_step(self) -> None:
        """Bring learned scales of the loss back into their range."""
        for module in self.loss.modules():
            if isinstance(module, LogitScale):
                module.limit_()
