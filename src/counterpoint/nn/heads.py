"""Heads, from a representation to the vectors that a loss compares: projectors, predictors, output maps."""

# N samples, D features, R rank, H units and K active units of a sparse code

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.core.checks import check_choice
from counterpoint.core.errors import UsageError
from counterpoint.core.numerics import unit_rows
from counterpoint.core.operating_system import installed_memory

BYTES_PER_WEIGHT = 16  # in training: the weight, its gradient and two moments, in float32


def perceptron(widths: Sequence[int], *, norm: str, output_norm: str = "none") -> nn.Sequential:
    """Linear layers with ReLU between them; weights are drawn from torch's generator.

    A layer before a BatchNorm has no bias: the norm would subtract it.

    Args:
        widths: widths of the input, of each hidden layer and of the output.
        norm: ``batch`` for a BatchNorm after each hidden layer, ``batch-plain`` for one without scale and shift, or
            ``none``.
        output_norm: norm after the last layer, by the same names.

    >>> [type(layer).__name__ for layer in perceptron([4, 3, 2], norm="batch")]
    ['Linear', 'BatchNorm1d', 'ReLU', 'Linear']
    """
    layers: list[nn.Module] = []
    for width_in, width in itertools.pairwise(widths[:-1]):
        layers += [_linear(width_in, width, bias=norm == "none"), *_batch_norm(width, norm), nn.ReLU()]
    layers += [_linear(widths[-2], widths[-1], bias=output_norm == "none"), *_batch_norm(widths[-1], output_norm)]
    return nn.Sequential(*layers)


def _batch_norm(width: int, norm: str) -> list[nn.Module]:
    return [] if norm == "none" else [nn.BatchNorm1d(width, affine=norm == "batch")]


NORMS = ("none", "batch", "batch-plain")
KINDS = ("none", "linear", "mlp", "low-rank", "diagonal", "sparse")


@dataclass(frozen=True)
class ProjectorDetails:
    """Settings that only some projectors have.

    Attributes:
        layers: number of layers of the mlp, >= 2.
        norm: ``none``, or ``batch`` for a BatchNorm after each hidden layer of the mlp, ``batch-plain`` for one
            without scale and shift.
        output_norm: whether there is a norm after the last layer, too, where the hidden layers have one.
        rank: rank of the low-rank projector; None is half the width.
        output_scale: whether the norm after the last layer has scale and shift; SimSiam's has not.
        active: number of values that the sparse code of a sample keeps.
    """

    layers: int = 2
    norm: str = "none"
    output_norm: bool = False
    rank: int | None = None
    output_scale: bool = False
    active: int = 8


PLAIN = ProjectorDetails()


def _linear(width_in: int, width: int, *, bias: bool) -> nn.Linear:
    """Build a linear layer; refuse before its allocation if training it would take more memory than there is."""
    needed, installed = BYTES_PER_WEIGHT * width_in * width, installed_memory()
    if needed > installed:
        raise UsageError(
            f"a layer from {width_in} to {width} features needs {needed / 1e9:,.0f} GB in training, and this machine "
            f"has {installed / 1e9:,.0f} GB; lower projector.hidden, projector.features or target.predictor_hidden"
        )
    return nn.Linear(width_in, width, bias=bias)


def build_projector(
    kind: str, width: int, *, hidden: int, features: int, details: ProjectorDetails = PLAIN
) -> nn.Module:
    """Build a projector; its weights are drawn from torch's generator.

    Args:
        kind: ``none`` (identity), ``linear``, ``mlp``, ``low-rank`` (fixed at random), ``diagonal`` (a trained scale
            per dimension) or ``sparse`` (see ``SparseCode``).
        width: dimensions of the representation.
        hidden: width of the mlp's hidden layers.
        features: dimensions of the embedding, of linear, mlp and sparse only (see ``output_width``).
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
        # It has no bias, as the linear projectors of directclr2022's code and of radford2021.
        return _linear(width, features, bias=False)
    if kind == "low-rank":
        return LowRank(width, _rank(width, details.rank))
    if kind == "diagonal":
        return Diagonal(width)
    if kind == "sparse":
        return SparseCode(width, features, details.active)
    check_choice(details.norm, "projector norm", NORMS)
    if details.layers < 2:
        raise ValueError(f"projector layers must be >= 2, got {details.layers}; one layer is the kind linear")
    widths = [width, *[hidden] * (details.layers - 1), features]
    has_last = details.norm != "none" and details.output_norm
    last = "none" if not has_last else "batch" if details.output_scale else "batch-plain"
    return perceptron(widths, norm=details.norm, output_norm=last)


def output_width(kind: str, width: int, *, features: int, rank: int | None = None) -> int:
    """Dimensions of what a projector returns.

    Args:
        kind: kind of the projector, as ``build_projector`` takes it.
        width: dimensions of the representation.
        features: dimensions that linear, mlp and sparse return.
        rank: rank of the low-rank projector; None is half the width.

    Raises:
        UsageError: a rank out of range.

    >>> output_width("diagonal", 512, features=128), output_width("low-rank", 512, features=128)
    (512, 256)
    """
    if kind == "low-rank":
        return _rank(width, rank)
    return width if kind in ("none", "diagonal") else features


def _rank(width: int, rank: int | None) -> int:
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
        width: dimensions of the representation, D.
        rank: rank of the projection, R, 1 to D.
    """

    rows_RD: Tensor

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        # Q of a Gaussian matrix: a random subspace, uniform over all of rank R.
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


class SparseCode(nn.Module):
    r"""Top-k autoencoder, whose code is :math:`z = \mathrm{TopK}(\mathrm{ReLU}(W_e (x - b) + c))`.

    Its decoder gives :math:`\hat x = W_d z + b`. A code with fewer active units is that of its largest values: one
    encoder serves every k up to ``active``.

    Source: wen2025 (the code); gao2024 (top-k autoencoder). Differs from both in the first weights, see ``begin_at``.

    Args:
        width: dimensions of the features, D.
        dims: number of units, H.
        active: number of units that a sample keeps, k, 1 to H.

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
            features_HD: features of one sample for each unit, (H, D).
            centre_D: mean of the features, (D,).
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
        """Features (n, D) from the entries of codes that may be above 0, without the zeros between them."""
        rebuilt_ND = F.embedding_bag(units_NK, self.decoder_HD, per_sample_weights=values_NK, mode="sum")
        return rebuilt_ND + self.centre_D


def keep_largest(z_NH: Tensor, k: int) -> Tensor:
    """Set all but the k largest values of each row to 0.

    >>> keep_largest(torch.tensor([[1.0, 3.0, 2.0]]), 2)
    tensor([[0., 3., 2.]])
    """
    values_NK, units_NK = z_NH.topk(min(k, z_NH.shape[1]), dim=1)
    return torch.zeros_like(z_NH).scatter(1, units_NK, values_NK)


class OutputMap(nn.Module):
    """Sub-vector, then non-negative map, then unit length; each part optional.

    Args:
        d0: keep only the first d0 dimensions (directclr2022, section 6); None keeps all.
        nonnegative: a key of ``NONNEGATIVE``, or ``none``.
        normalize: scale to unit length (zero vectors stay zero).

    >>> OutputMap(d0=2, nonnegative="relu")(torch.tensor([[3.0, -4.0, 9.0]]))
    tensor([[1., 0.]])
    """

    def __init__(self, *, d0: int | None = None, nonnegative: str = "none", normalize: bool = True) -> None:
        super().__init__()
        check_choice(nonnegative, "nonnegative", ["none", *NONNEGATIVE])
        self.d0 = d0
        self.nonnegative = nonnegative
        self.normalize = normalize

    def forward(self, projected_ND: Tensor) -> Tensor:
        """Map (n, d) to (n, d0 or d)."""
        # directclr2022, section 6.2: z = r[0 : d0]
        z = projected_ND if self.d0 is None else projected_ND[:, : self.d0]
        # ncl2024, Eq. 6
        if self.nonnegative != "none":
            z = NONNEGATIVE[self.nonnegative](z)
        # Length last, as the parts before it change it; a row of silent features stays zero.
        return unit_rows(z) if self.normalize else z


def check_subvector(d0: int, width: int) -> None:
    """Require a sub-vector to fit.

    Raises:
        UsageError: d0 exceeds the width.
    """
    if d0 > width:
        raise UsageError(f"output.d0 must be at most the width of the vectors it cuts, {width}, got {d0}")


class _ReluGelu(torch.autograd.Function):
    """Forward ReLU; backward the exact GELU's derivative, so that silent features can wake up again."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        # ncl2024, Eq. 7, in closed form: the paper adds GELU and subtracts its detached value.
        return x.clamp(min=0)

    @staticmethod
    def setup_context(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grad_outputs: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors  # pyright: ignore[reportAttributeAccessIssue]
        normal_cdf = 0.5 * (1 + torch.erf(x * 0.5**0.5))
        normal_pdf = torch.exp(-0.5 * x.square()) * (0.5 / torch.pi) ** 0.5
        # Derivative of x Phi(x), which GELU is: Phi(x) + x phi(x)
        return grad_outputs[0] * (normal_cdf + x * normal_pdf)


def relu_gelu(x: Tensor) -> Tensor:
    """ReLU whose gradient is GELU's (ncl2024's released "rep_relu", used for CIFAR)."""
    return _ReluGelu.apply(x)  # pyright: ignore[reportReturnType]


NONNEGATIVE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "relu-gelu": relu_gelu,
}
