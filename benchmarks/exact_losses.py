r"""Loss and gradient in float64, row block by row block, from the closed form; imports nothing of the package.

NT-Xent and CLIP are the mean over 2 N anchors of the cross-entropy of picking the partner. With unit rows z,
:math:`s_{ij} = z_i \cdot z_j/\tau`, keys K(i) and :math:`l_i = \log \sum_{j \in K(i)} e^{s_{ij}}`,

.. math:: \frac{\partial L}{\partial z_i} = \frac{1}{2N\tau} \sum_{j \in K(i)}
          \big(e^{s_{ij} - l_i} + e^{s_{ij} - l_j} - 2\,[j = i']\big) z_j

because j has i among its keys whenever i has j. Keys are all rows but i itself (NT-Xent), or the other view (CLIP).
SupCon and the sigmoid loss are measured at small sizes: there one matrix of float64 and automatic derivatives serve.
"""

# N pairs, R = 2 N rows, C rows of a block, K keys, D features

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from problems import NUM_CLASSES, SIGMOID_BIAS, Kind, Precision
from torch import Tensor

LossFunction = Callable[[Tensor, Tensor], Tensor]
BLOCK_NUMBERS = 2**23  # scores held at once
# Largest error of the loss and, relative to its largest entry, of the gradient.
LIMITS: dict[Precision, float] = {"float32": 1e-5, "tf32": 1e-2, "bfloat16": 5e-2}


@dataclass(frozen=True)
class Truth:
    """The loss and the gradient of some of the 2 N input rows (first view before second)."""

    loss: float
    rows: Tensor
    gradient_RD: Tensor


@dataclass(frozen=True)
class Errors:
    """Relative errors of a loss and of its gradient (largest difference over largest entry)."""

    loss: float
    gradient: float

    def verdict(self, precision: Precision) -> str:
        """Empty if within the limit, else what differs and by how much."""
        limit = LIMITS[precision]
        for name, error in (("loss", self.loss), ("gradient", self.gradient)):
            if not error <= limit:  # also true of NaN
                return f"{name} differs from the float64 oracle by {error:.1e} (limit {limit:.0e})"
        return ""


@torch.no_grad()
def exact(
    x0: Tensor, x1: Tensor, kind: Kind, temperature: float, *, rows: Tensor | None = None, dtype: torch.dtype
) -> Truth:
    """The closed form in ``dtype``, gradient for ``rows`` (None: all)."""
    if kind in ONE_MATRIX:
        return _from_one_matrix(torch.cat([x0, x1]).to(dtype), ONE_MATRIX[kind], temperature, rows)
    x_RD = torch.cat([x0, x1]).to(dtype)
    norm_R = x_RD.norm(dim=1)
    z_RD = x_RD / norm_R[:, None]
    num_rows, num_pairs = len(z_RD), len(x0)
    every = torch.arange(num_rows, device=x0.device)
    lse_R = torch.cat([s_CK.logsumexp(1) for _, _, s_CK in _blocks(z_RD, every, kind, temperature)])
    positive = float((z_RD[:num_pairs] * z_RD[num_pairs:]).sum(dtype=torch.float64)) / temperature
    loss = (float(lse_R.sum(dtype=torch.float64)) - 2 * positive) / num_rows
    rows = every if rows is None else rows.sort().values
    parts = []
    for block, keys, s_CK in _blocks(z_RD, rows, kind, temperature):
        weight_CK = torch.exp(s_CK - lse_R[block, None]) + torch.exp(s_CK - lse_R[keys])
        partner_C = (block + num_pairs) % num_rows - keys.start
        weight_CK[torch.arange(len(block), device=block.device), partner_C] -= 2
        parts.append(weight_CK @ z_RD[keys] / (num_rows * temperature))
    g_RD, z_RD, norm_R = torch.cat(parts), z_RD[rows], norm_R[rows]
    gradient_RD = (g_RD - z_RD * (z_RD * g_RD).sum(1, keepdim=True)) / norm_R[:, None]
    return Truth(loss, rows, gradient_RD)


def supervised(z_RD: Tensor, temperature: float) -> Tensor:
    """khosla2020, Eq. 2: for each row the mean over the others of its class of -log of their share among all others."""
    labels_R = (torch.arange(len(z_RD) // 2, device=z_RD.device) % NUM_CLASSES).repeat(2)
    own_RR = torch.eye(len(z_RD), dtype=torch.bool, device=z_RD.device)
    logits_RR = (z_RD @ z_RD.T / temperature).masked_fill(own_RR, -math.inf)
    share_RR = logits_RR - logits_RR.logsumexp(1, keepdim=True)
    is_positive_RR = (labels_R[:, None] == labels_R) & ~own_RR
    return -(share_RR.masked_fill(~is_positive_RR, 0.0).sum(1) / is_positive_RR.sum(1)).mean()


def sigmoid_pairs(z_RD: Tensor, temperature: float) -> Tensor:
    """zhai2023, Algorithm 1: -log sigmoid of the signed logits of all pairs, divided by N."""
    x_ND, y_ND = z_RD.chunk(2)
    signs_NN = 2 * torch.eye(len(x_ND), dtype=x_ND.dtype, device=x_ND.device) - 1
    return -F.logsigmoid(signs_NN * (x_ND @ y_ND.T / temperature + SIGMOID_BIAS)).sum() / len(x_ND)


ONE_MATRIX: Mapping[Kind, Callable[[Tensor, float], Tensor]] = {"supervised": supervised, "sigmoid": sigmoid_pairs}


def _from_one_matrix(
    x_RD: Tensor, loss_of: Callable[[Tensor, float], Tensor], temperature: float, rows: Tensor | None
) -> Truth:
    """Automatic derivatives of a loss of unit rows."""
    with torch.enable_grad():
        x_RD = x_RD.detach().requires_grad_()
        loss = loss_of(F.normalize(x_RD), temperature)
        (gradient_RD,) = torch.autograd.grad(loss, x_RD)
    rows = torch.arange(len(x_RD), device=x_RD.device) if rows is None else rows.sort().values
    return Truth(float(loss), rows, gradient_RD[rows])


def errors_of(loss_function: LossFunction, x0: Tensor, x1: Tensor, truth: Truth) -> Errors:
    """Run a loss forward and backward on fresh gradients and compare."""
    x0.grad = x1.grad = None
    loss = loss_function(x0, x1)
    loss.backward()
    if x0.grad is None or x1.grad is None:
        return Errors(math.nan, math.nan)
    gradient_RD = torch.cat([x0.grad, x1.grad])[truth.rows].to(truth.gradient_RD.dtype)
    x0.grad = x1.grad = None
    scale = float(truth.gradient_RD.abs().max())
    difference = float((gradient_RD - truth.gradient_RD).abs().max())
    return Errors(abs(float(loss.detach()) - truth.loss) / abs(truth.loss), difference / scale)


def _blocks(z_RD: Tensor, rows: Tensor, kind: Kind, temperature: float) -> Iterator[tuple[Tensor, slice, Tensor]]:
    """Yield some rows of one view, their keys and scores; a row is no key of its own."""
    num_pairs = len(z_RD) // 2
    for is_second, half in ((False, rows[rows < num_pairs]), (True, rows[rows >= num_pairs])):
        if kind == "nt-xent":
            keys = slice(0, 2 * num_pairs)
        else:
            keys = slice(0, num_pairs) if is_second else slice(num_pairs, 2 * num_pairs)
        for block in half.split(max(1, BLOCK_NUMBERS // (keys.stop - keys.start))):
            s_CK = z_RD[block] @ z_RD[keys].T / temperature
            if kind == "nt-xent":
                s_CK[torch.arange(len(block), device=block.device), block] = -math.inf
            yield block, keys, s_CK
