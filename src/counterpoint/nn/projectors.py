"""Projectors: the head between representation and output map."""

# N samples, D features, R rank

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from counterpoint.core.checks import check_choice
from counterpoint.core.errors import UsageError
from counterpoint.nn.perceptron import perceptron

KINDS = ("none", "linear", "mlp", "low-rank", "diagonal")


@dataclass(frozen=True)
class ProjectorDetails:
    """What only some projectors have.

    Attributes:
        layers: layers of the mlp, >= 2.
        norm: ``none``, or ``batch`` for a BatchNorm after each hidden layer of the mlp.
        output_norm: with ``batch``: one without scale and shift after the last layer, too, as SimSiam has it.
        rank: of the low-rank projector; None is half the width.
    """

    layers: int = 2
    norm: str = "none"
    output_norm: bool = False
    rank: int | None = None


PLAIN = ProjectorDetails()


def build_projector(
    kind: str, width: int, *, hidden: int, features: int, details: ProjectorDetails = PLAIN
) -> nn.Module:
    """Build a projector; its weights are drawn from torch's generator.

    Args:
        kind: ``none`` (identity), ``linear``, ``mlp``, ``low-rank`` (fixed at random) or ``diagonal`` (a trained scale
            per dimension).
        width: dimensions of the representation.
        hidden: width of the mlp's hidden layers.
        features: dimensions of the embedding, of linear and mlp only (see ``output_width``).
        details: layers and BatchNorm of the mlp, rank of the low-rank projector.

    Raises:
        ValueError: an unknown kind or norm, or a rank or number of layers out of range.

    >>> sum(p.numel() for p in build_projector("mlp", 4, hidden=3, features=2).parameters())
    23
    """
    check_choice(kind, "projector kind", KINDS)
    if kind == "none":
        return nn.Identity()
    if kind == "linear":
        return nn.Linear(width, features, bias=False)
    if kind == "low-rank":
        return LowRank(width, _rank(width, details.rank))
    if kind == "diagonal":
        return Diagonal(width)
    check_choice(details.norm, "projector norm", ("none", "batch"))
    if details.layers < 2:
        raise ValueError(f"projector layers must be >= 2, got {details.layers}; one layer is the kind linear")
    widths = [width, *[hidden] * (details.layers - 1), features]
    has_norm = details.norm == "batch"
    return perceptron(widths, has_norm=has_norm, output_norm=has_norm and details.output_norm)


def output_width(kind: str, width: int, *, features: int, rank: int | None = None) -> int:
    """Dimensions of what a projector returns.

    Args:
        kind: as ``build_projector`` takes it.
        width: dimensions of the representation.
        features: what linear and mlp return.
        rank: of the low-rank projector; None is half the width.

    Raises:
        UsageError: a rank out of range.

    >>> output_width("diagonal", 512, features=128), output_width("low-rank", 512, features=128)
    (512, 256)
    """
    if kind == "low-rank":
        return _rank(width, rank)
    return width if kind in ("none", "diagonal") else features


def _rank(width: int, rank: int | None) -> int:
    """The rank asked for, or half the width."""
    rank = max(1, width // 2) if rank is None else rank
    if not 1 <= rank <= width:
        raise UsageError(f"projector.rank must be between 1 and the width of the representation, {width}, got {rank}")
    return rank


class LowRank(nn.Module):
    r"""A fixed projection onto a random subspace, z = Q r with orthonormal rows.

    Singular values are R ones, singular vectors are random: inner products, and with them every loss of
    similarities and distances, are those of the D x D matrix :math:`Q^\top Q` of rank R.

    Source: directclr2022, section 6.3 (fixed low-rank projector). Differs from the D x D matrix there, U Q, by an
        orthogonal matrix U, which no loss of inner products sees.

    Args:
        width: D.
        rank: R, 1 to D.
    """

    rows_RD: Tensor

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        columns_DR, upper_RR = torch.linalg.qr(torch.randn(width, rank))
        # The sign makes the subspace's basis uniform over all orthonormal ones, whatever LAPACK's convention.
        self.register_buffer("rows_RD", (columns_DR * upper_RR.diagonal().sign()).T.contiguous())

    def forward(self, r_ND: Tensor) -> Tensor:
        """Map (n, D) to (n, R)."""
        return r_ND @ self.rows_RD.T.to(r_ND.dtype)


class Diagonal(nn.Module):
    """A trained scale per dimension, z = s * r, at first 1.

    Source: directclr2022, section 6.3 (trainable diagonal projector).

    Args:
        width: dimensions of the representation.

    >>> Diagonal(2)(torch.tensor([[3.0, 4.0]])).tolist()
    [[3.0, 4.0]]
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale_D = nn.Parameter(torch.ones(width))

    def forward(self, r_ND: Tensor) -> Tensor:
        """Scale each dimension."""
        return r_ND * self.scale_D
