"""Two encoders for two kinds of data, such as pictures and the vectors of their captions, in one space."""

# N samples

from torch import Tensor, nn

from counterpoint.losses.loss import Loss
from counterpoint.methods.across_ranks import AcrossRanks
from counterpoint.methods.encoding import Chunks, Head, encode, limit_learned_scales, to_embedding
from counterpoint.nn.method import Method


class TwoTowers(Method):
    """CLIP: each kind of data has an encoder and a projector of its own; the loss compares their embeddings.

    View 0 goes to ``backbone``, which is what users load, and view 1 to ``second_backbone``.

    Source: radford2021, section 2.4 (a linear projection from each encoder to the shared space).

    Args:
        backbone: maps samples of the first kind to representations (n, width).
        head: its projector, and the output map of both towers.
        second_backbone: maps samples of the second kind to representations (n, second width).
        second_projector: maps those to the width that ``head.projector`` returns.
        loss: called as ``loss(z0, z1)``, and with labels if it uses them.
        chunks: encode in chunks; None encodes all samples of a kind at once.
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
        super().__init__()
        self.backbone, self.projector, self.output_map = backbone, head.projector, head.output_map
        self.second_backbone, self.second_projector = second_backbone, second_projector
        self.loss: Loss = loss  # pyright: ignore[reportIncompatibleVariableOverride]
        self.chunks = chunks

    def forward(self, view0: Tensor, view1: Tensor, labels: Tensor | None = None, step: int = 0) -> Tensor:
        """See ``Method.forward``; the loss is computed in full precision. Labels are not looked at."""
        projected0 = encode(self.backbone, self.projector, view0, self.chunks)
        projected1 = encode(self.second_backbone, self.second_projector, view1, self.chunks)
        z0, z1 = (to_embedding(self.output_map, p) for p in (projected0, projected1))
        return AcrossRanks(self.loss)(z0, z1, None, step)

    def after_step(self, progress: float = 1.0) -> None:
        """Bring learned scales of the loss back into their range."""
        limit_learned_scales(self.loss)
