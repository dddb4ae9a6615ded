"""A sparse non-negative code of features: a wide layer of which each sample keeps its k largest values."""

# N samples, D features, H units, K active units

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.core.numerics import unit_rows


class SparseCode(nn.Module):
    r"""Top-k autoencoder, whose code is :math:`z = \mathrm{TopK}(\mathrm{ReLU}(W_e (x - b) + c))`.

    Its decoder gives :math:`\hat x = W_d z + b`. A code with fewer active units is that of its largest values: one
    encoder serves every k up to ``active``.

    Source: wen2025 (the code); gao2024 (top-k autoencoder). Differs from both in the first weights, see ``begin_at``.

    Args:
        width: D.
        dims: H, units.
        active: k, units that a sample keeps, 1 to H.

    >>> code = SparseCode(2, 3, active=1)
    >>> code.begin_at(torch.tensor([[3.0, 0.0], [0.0, 4.0], [-1.0, 0.0]]), torch.zeros(2))
    >>> code(torch.tensor([[5.0, 1.0]])).tolist()
    [[5.0, 0.0, 0.0]]
    """

    def __init__(self, width: int, dims: int, active: int) -> None:
        super().__init__()
        if not 1 <= active <= dims:
            raise ValueError(f"k must be between 1 and the number of units, {dims}, got {active}")
        self.active = active
        self.centre_D = nn.Parameter(torch.zeros(width))
        self.encoder_HD = nn.Parameter(unit_rows(torch.randn(dims, width)))
        self.shift_H = nn.Parameter(torch.zeros(dims))
        self.decoder_HD = nn.Parameter(self.encoder_HD.detach().clone())

    @torch.no_grad()
    def begin_at(self, features_HD: Tensor, centre_D: Tensor) -> None:
        """Point each unit at a sample, as seen from the centre: no unit begins where there are no data.

        Args:
            features_HD: one sample for each unit.
            centre_D: mean of the features.
        """
        self.centre_D.copy_(centre_D)
        self.encoder_HD.copy_(unit_rows(features_HD - centre_D))
        self.decoder_HD.copy_(self.encoder_HD)

    def activations(self, x_ND: Tensor) -> Tensor:
        """All units before the choice of the largest, (n, H)."""
        return F.relu(F.linear(x_ND - self.centre_D, self.encoder_HD, self.shift_H))

    def forward(self, x_ND: Tensor) -> Tensor:
        """Codes (n, H) with at most ``active`` values above 0 in a row."""
        return keep_largest(self.activations(x_ND), self.active)

    def decode(self, z_NH: Tensor) -> Tensor:
        """Features (n, D) from codes."""
        return z_NH @ self.decoder_HD + self.centre_D

    def decode_entries(self, values_NK: Tensor, units_NK: Tensor) -> Tensor:
        """The same from the entries of codes that may be above 0, without the zeros between them."""
        rebuilt_ND = F.embedding_bag(units_NK, self.decoder_HD, per_sample_weights=values_NK, mode="sum")
        return rebuilt_ND + self.centre_D


def keep_largest(z_NH: Tensor, k: int) -> Tensor:
    """Set all but the k largest values of each row to 0.

    >>> keep_largest(torch.tensor([[1.0, 3.0, 2.0]]), 2)
    tensor([[0., 3., 2.]])
    """
    values_NK, units_NK = z_NH.topk(min(k, z_NH.shape[1]), dim=1)
    return torch.zeros_like(z_NH).scatter(1, units_NK, values_NK)
