"""Implementations that are measured: ours, the peers, dense torch and its chunked form, and bare matrix products.

Everyone takes raw rows and normalises them within the measured time. Libraries are imported only by who needs them, so
that a fresh process holds one of them and a missing one is named.
"""

# N pairs, R = 2 N rows, C rows of a chunk, D features

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from exact_losses import LossFunction
from problems import ALL_ROWS, SIGMOID_BIAS, Problem, labels_of
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK_ROWS = 512
OURS = "counterpoint"
DENSE = "dense torch"
MIB = 2**20


@dataclass(frozen=True)
class Built:
    """A loss ready to be called, and what a reader must know about it."""

    function: LossFunction
    note: str = ""


@dataclass(frozen=True)
class Provider:
    """An implementation of a loss.

    Attributes:
        build: makes the loss for a problem; raises ImportError if its library is missing.
        peak_bytes: rough extra memory of forward and backward, to skip what cannot fit.
        max_pairs: largest N worth trying.
        cuda_only: needs a GPU.
    """

    build: Callable[[Problem], Built]
    peak_bytes: Callable[[Problem], float]
    max_pairs: float = math.inf
    cuda_only: bool = False


def ours_nt_xent(problem: Problem) -> Built:
    """``losses.InfoNCE`` with its defaults, but for the temperature."""
    from counterpoint.losses import InfoNCE  # deferred: peers are measured without it

    return Built(InfoNCE(temperature=problem.temperature).to(problem.device))


def compiled(build: Callable[[Problem], Built]) -> Callable[[Problem], Built]:
    """The builder of a loss through ``torch.compile``, without breaks in its graph."""

    def build_compiled(problem: Problem) -> Built:
        built = build(problem)
        return Built(torch.compile(built.function, fullgraph=True, dynamic=False), built.note)

    return build_compiled


def ours_cross_modal(problem: Problem) -> Built:
    """``losses.CrossModal``; before it existed, InfoNCE across views, which has the same value for unit rows."""
    from counterpoint import losses  # deferred: peers are measured without it

    cross_modal = getattr(losses, "CrossModal", None)
    if cross_modal is not None:
        return Built(cross_modal(temperature=problem.temperature).to(problem.device))
    function = losses.InfoNCE(temperature=problem.temperature, negatives="cross-view")
    return Built(function.to(problem.device), "losses.CrossModal is missing; this is InfoNCE(negatives='cross-view')")


def ours_supervised(problem: Problem) -> Built:
    """``losses.SupCon`` with labels."""
    from counterpoint.losses import SupCon  # deferred: peers are measured without it

    loss, labels = SupCon(temperature=problem.temperature), labels_of(problem)
    return Built(lambda x0, x1: loss(x0, x1, labels))


def ours_sigmoid(problem: Problem) -> Built:
    """``losses.SigmoidPair`` with a fixed scale and bias."""
    from counterpoint.losses import SigmoidPair  # deferred: peers are measured without it

    return Built(SigmoidPair(1 / problem.temperature, SIGMOID_BIAS, learnable=False).to(problem.device))


def lightly_nt_xent(problem: Problem) -> Built:
    """``lightly.loss.NTXentLoss``."""
    from lightly.loss import NTXentLoss  # deferred: a peer, perhaps missing

    return Built(NTXentLoss(temperature=problem.temperature))


def metric_learning_nt_xent(problem: Problem) -> Built:
    """``pytorch_metric_learning.losses.NTXentLoss`` of two views."""
    from pytorch_metric_learning.losses import NTXentLoss, SelfSupervisedLoss  # deferred: a peer, perhaps missing

    return Built(SelfSupervisedLoss(NTXentLoss(temperature=problem.temperature)))


def metric_learning_supervised(problem: Problem) -> Built:
    """``pytorch_metric_learning.losses.SupConLoss`` of both views."""
    from pytorch_metric_learning.losses import SupConLoss  # deferred: a peer, perhaps missing

    loss, labels = SupConLoss(problem.temperature), labels_of(problem).repeat(2)
    return Built(lambda x0, x1: loss(torch.cat([x0, x1]), labels))


def open_clip_sigmoid(problem: Problem) -> Built:
    """``open_clip.loss.SigLipLoss`` on normalised rows."""
    from open_clip.loss import SigLipLoss  # deferred: a peer, perhaps missing

    return Built(_on_unit_rows(partial(SigLipLoss(), logit_scale=1 / problem.temperature, logit_bias=SIGMOID_BIAS)))


def open_clip_cross_modal(problem: Problem) -> Built:
    """``open_clip.loss.ClipLoss`` on normalised rows."""
    from open_clip.loss import ClipLoss  # deferred: a peer, perhaps missing

    return Built(_on_unit_rows(partial(ClipLoss(), logit_scale=1 / problem.temperature)))


def inf_cl_cross_modal(problem: Problem) -> Built:
    """``inf_cl.cal_flash_loss`` both ways."""
    from inf_cl import cal_flash_loss  # deferred: a peer, perhaps missing # pyright: ignore[reportMissingImports]

    options = {"scale": 1 / problem.temperature, "head_dim": min(256, problem.num_features)}

    def both_ways(a_ND: Tensor, b_ND: Tensor) -> Tensor:
        return (cal_flash_loss(a_ND, b_ND, **options) + cal_flash_loss(b_ND, a_ND, **options)) / 2

    return Built(_on_unit_rows(both_ways))


def memeff_cross_modal(problem: Problem) -> Built:
    """``memeff.MemoryEfficientCLIPLoss`` with the true gradient scale."""
    from memeff import MemoryEfficientCLIPLoss  # deferred: a peer, perhaps missing # pyright: ignore[reportMissingImports]

    return Built(MemoryEfficientCLIPLoss(temperature=problem.temperature, stable=False))


def dense_nt_xent(problem: Problem) -> Built:
    """One R x R matrix of cosines and a cross-entropy."""
    partner_R = _partners(problem)

    def loss(x0: Tensor, x1: Tensor) -> Tensor:
        z_RD = F.normalize(torch.cat([x0, x1]))
        s_RR = z_RD @ z_RD.T / problem.temperature
        s_RR.fill_diagonal_(-math.inf)
        return F.cross_entropy(s_RR, partner_R)

    return Built(loss)


def dense_supervised(problem: Problem) -> Built:
    """khosla2020, Eq. 2, from one matrix."""
    labels = labels_of(problem).repeat(2)
    is_positive = (labels[:, None] == labels).fill_diagonal_(False)
    num_positives = is_positive.sum(1)

    def loss(x0: Tensor, x1: Tensor) -> Tensor:
        z = F.normalize(torch.cat([x0, x1]))
        logits = (z @ z.T / problem.temperature).fill_diagonal_(-math.inf)
        log_p = logits.log_softmax(1)
        return -(log_p.masked_fill(~is_positive, 0.0).sum(1) / num_positives).mean()

    return Built(loss)


def dense_sigmoid(problem: Problem) -> Built:
    """One N x N matrix of logits, positives on its diagonal."""
    signs_NN = 2 * torch.eye(problem.num_pairs, device=problem.device) - 1

    def loss(x_ND: Tensor, y_ND: Tensor) -> Tensor:
        logits_NN = x_ND @ y_ND.T / problem.temperature + SIGMOID_BIAS
        return -F.logsigmoid(signs_NN * logits_NN).sum() / problem.num_pairs

    return Built(_on_unit_rows(loss))


def dense_cross_modal(problem: Problem) -> Built:
    """One N x N matrix read along rows and columns."""
    own_N = torch.arange(problem.num_pairs, device=problem.device)

    def loss(a_ND: Tensor, b_ND: Tensor) -> Tensor:
        s_NN = a_ND @ b_ND.T / problem.temperature
        return (F.cross_entropy(s_NN, own_N) + F.cross_entropy(s_NN.T, own_N)) / 2

    return Built(_on_unit_rows(loss))


def chunked_nt_xent(problem: Problem) -> Built:
    """The dense loss, rows in chunks that are computed again in the backward pass."""
    partner_R = _partners(problem)

    def chunk(z_CD: Tensor, z_RD: Tensor, first: int) -> Tensor:
        s_CR = z_CD @ z_RD.T / problem.temperature
        s_CR.diagonal(first).fill_(-math.inf)
        return F.cross_entropy(s_CR, partner_R[first : first + len(z_CD)], reduction="sum")

    def loss(x0: Tensor, x1: Tensor) -> Tensor:
        z_RD = F.normalize(torch.cat([x0, x1]))
        return _sum_of_chunks(chunk, z_RD, z_RD) / len(z_RD)

    return Built(loss)


def chunked_cross_modal(problem: Problem) -> Built:
    """Rows of each side in chunks against the whole other side."""
    own_N = torch.arange(problem.num_pairs, device=problem.device)

    def chunk(z_CD: Tensor, keys_ND: Tensor, first: int) -> Tensor:
        s_CN = z_CD @ keys_ND.T / problem.temperature
        return F.cross_entropy(s_CN, own_N[first : first + len(z_CD)], reduction="sum")

    def loss(a_ND: Tensor, b_ND: Tensor) -> Tensor:
        return (_sum_of_chunks(chunk, a_ND, b_ND) + _sum_of_chunks(chunk, b_ND, a_ND)) / (2 * len(a_ND))

    return Built(_on_unit_rows(loss))


def bare_products(problem: Problem, x0: Tensor, x1: Tensor) -> Callable[[], None]:
    """The three products a dense loss needs, results preallocated: S = A B^T, S B, S^T A (A = B: all rows meet)."""
    with torch.no_grad():
        a_RD = torch.cat([x0, x1]) if problem.kind in ALL_ROWS else x0.clone()
        b_RD = a_RD if problem.kind in ALL_ROWS else x1.clone()
    s_RR = a_RD.new_empty(problem.side, problem.side)
    for_a_RD, for_b_RD = torch.empty_like(a_RD), torch.empty_like(b_RD)

    @torch.no_grad()
    def products() -> None:
        torch.mm(a_RD, b_RD.T, out=s_RR)
        torch.mm(s_RR, b_RD, out=for_a_RD)
        torch.mm(s_RR.T, a_RD, out=for_b_RD)

    return products


def _partners(problem: Problem) -> Tensor:
    """Row of each row's positive."""
    return torch.arange(problem.side, device=problem.device).roll(problem.num_pairs)


def _on_unit_rows(function: LossFunction) -> LossFunction:
    """The loss of normalised rows."""
    return lambda x0, x1: function(F.normalize(x0), F.normalize(x1))


def _sum_of_chunks(chunk: Callable[[Tensor, Tensor, int], Tensor], rows_RD: Tensor, keys_MD: Tensor) -> Tensor:
    """Sum over chunks of rows; nothing of a chunk is kept for the backward pass."""
    total = rows_RD.new_zeros((), dtype=torch.float32)
    for number, z_CD in enumerate(rows_RD.split(CHUNK_ROWS)):
        part = checkpoint(chunk, z_CD, keys_MD, number * CHUNK_ROWS, use_reentrant=False, preserve_rng_state=False)
        total = total + part
    return total


def _matrix_bytes(count: float) -> Callable[[Problem], float]:
    """Extra memory of so many score matrices at once."""
    return lambda problem: count * problem.matrix_bytes


def _linear_bytes(problem: Problem) -> float:
    """Extra memory that is linear in the rows."""
    return 64 * MIB + 64 * problem.side * problem.num_features


def _chunk_bytes(problem: Problem) -> float:
    return _linear_bytes(problem) + 20 * CHUNK_ROWS * problem.side


def _pairs_of_pairs_bytes(problem: Problem) -> float:
    """Extra memory of every positive pair against every negative pair; 4.25 copies were measured."""
    return 4.5 * problem.side * problem.matrix_bytes


NT_XENT: Mapping[str, Provider] = {
    OURS: Provider(ours_nt_xent, _linear_bytes),
    DENSE: Provider(dense_nt_xent, _matrix_bytes(5)),
    "dense torch, chunked": Provider(chunked_nt_xent, _chunk_bytes),
    "lightly": Provider(lightly_nt_xent, _matrix_bytes(7)),
    "pytorch-metric-learning": Provider(metric_learning_nt_xent, _pairs_of_pairs_bytes, max_pairs=256),
}
CROSS_MODAL: Mapping[str, Provider] = {
    OURS: Provider(ours_cross_modal, _linear_bytes),
    DENSE: Provider(dense_cross_modal, _matrix_bytes(5)),
    "dense torch, chunked": Provider(chunked_cross_modal, _chunk_bytes),
    "open_clip": Provider(open_clip_cross_modal, _matrix_bytes(6)),
    "Inf-CL": Provider(inf_cl_cross_modal, _linear_bytes, cuda_only=True),
    "memeff": Provider(memeff_cross_modal, _linear_bytes, cuda_only=True),
}
SUPERVISED: Mapping[str, Provider] = {
    OURS: Provider(ours_supervised, _linear_bytes),
    DENSE: Provider(dense_supervised, _matrix_bytes(6)),
    "pytorch-metric-learning": Provider(metric_learning_supervised, _matrix_bytes(8)),
}
SIGMOID: Mapping[str, Provider] = {
    OURS: Provider(ours_sigmoid, _linear_bytes),
    DENSE: Provider(dense_sigmoid, _matrix_bytes(6)),
    "open_clip": Provider(open_clip_sigmoid, _matrix_bytes(6)),
}
CATALOGUE: Mapping[str, Mapping[str, Provider]] = {
    "nt-xent": NT_XENT,
    "cross-modal": CROSS_MODAL,
    "supervised": SUPERVISED,
    "sigmoid": SIGMOID,
}
# Compiling takes longer than all the rest: at some sizes only.
COMPILED: Mapping[str, Mapping[str, Provider]] = {
    "nt-xent": {
        f"{DENSE}, compiled": Provider(compiled(dense_nt_xent), _matrix_bytes(5)),
    },
    "cross-modal": {},
    "supervised": {},
    "sigmoid": {},
}
