"""BYOL and SimSiam: predict the other view's embedding; what keeps it from collapse is the target without gradient."""

# N samples, D features

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from counterpoint.losses.noncontrastive import Regression
from counterpoint.methods.encoding import Chunks, EncoderMethod, Head, MomentumCopy, at_least_two, encode, to_embedding


class Predictive(EncoderMethod):
    r"""BYOL (with a momentum encoder) or SimSiam (without).

    .. math::
        \text{BYOL:}\quad L = \ell(p_0, z_1') + \ell(p_1, z_0'), \qquad
        \text{SimSiam:}\quad L = \tfrac12 \ell(p_0, z_1) + \tfrac12 \ell(p_1, z_0)

    with predictions p from the encoder's embeddings z, targets z' from its momentum copy, and the loss of one
    direction, :math:`\ell`, the squared distance of unit vectors (BYOL) or minus the cosine (SimSiam): the form of
    the loss decides between the sum and the mean. Targets get no gradient. Each view passes the encoder separately, as
    in both papers, so that BatchNorm has the statistics of one view; in training mode the momentum copy's BatchNorm
    uses those of its own batch.

    Source: grill2020, section 3.1 (Eq. 2) and Algorithm 1; chen2021, Eq. 1 to 4 and Algorithm 1.

    Args:
        backbone: maps samples to representations (n, width).
        head: projector and output map.
        predictor: maps projected representations to predictions of the same width.
        loss: of one direction.
        momentum: m of the first update, 0 to 1 (grill2020: 0.996); None has no momentum encoder.
        chunks: encode in chunks; None encodes all samples of a view at once.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        predictor: nn.Module,
        loss: Regression,
        *,
        momentum: float | None = None,
        chunks: Chunks | None = None,
    ) -> None:
        super().__init__(backbone, head, chunks)
        self.predictor = predictor
        # SimSiam has one encoder: its targets are the encoder's own embeddings, detached.
        has_copy = momentum is not None
        self.target_backbone = MomentumCopy(backbone) if has_copy else None
        self.target_projector = MomentumCopy(head.projector) if has_copy else None
        self.loss: Regression = loss  # pyright: ignore[reportIncompatibleVariableOverride]
        self.momentum = momentum

    def forward(self, view0: Tensor, view1: Tensor, labels: Tensor | None = None, step: int = 0) -> Tensor:
        """See ``Method.forward``; labels are not looked at.

        A mean over samples: ranks need not know each other's, and the mean of their means is that of all.
        """
        return self.score(*self.branches(view0, view1))

    def branches(self, view0: Tensor, view1: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Predictions of both views, and the target of each, without gradient."""
        # One pass per view, unlike SimCLR: BatchNorm then has the statistics of one view.
        projected = [encode(self.backbone, self.projector, view, self.chunks) for view in (view0, view1)]
        predictions = [to_embedding(self.output_map, self.predictor(p)) for p in projected]
        return predictions, self._targets((view0, view1), projected)[::-1]

    def score(self, predictions: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """The loss of both directions."""
        pairs = zip(predictions, targets, strict=True)
        one_way, other_way = (self.loss(at_least_two(p_ND), at_least_two(target_ND)) for p_ND, target_ND in pairs)
        # grill2020, section 3.1: both directions added; chen2021, Eq. 4: their mean.
        return one_way + other_way if self.loss.form == "squared" else (one_way + other_way) / 2

    def after_step(self, progress: float) -> None:
        """Move the momentum copy towards the encoder."""
        if self.momentum is None:
            return
        # grill2020, section 3.2: from its start to 1 along a cosine.
        momentum = 1 - (1 - self.momentum) * (math.cos(math.pi * progress) + 1) / 2
        assert self.target_backbone is not None
        assert self.target_projector is not None
        # The predictor has no copy (grill2020, section 3.1): targets are projections.
        self.target_backbone.follow(self.backbone, momentum)
        self.target_projector.follow(self.projector, momentum)

    @torch.no_grad()
    def _targets(self, views: tuple[Tensor, Tensor], projected: Sequence[Tensor]) -> list[Tensor]:
        if self.target_backbone is None or self.target_projector is None:
            return [to_embedding(self.output_map, p.detach()) for p in projected]  # chen2021, Eq. 3
        copied = (encode(self.target_backbone, self.target_projector, view, self.chunks) for view in views)
        return [to_embedding(self.output_map, p) for p in copied]
