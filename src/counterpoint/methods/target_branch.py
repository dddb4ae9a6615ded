"""Wirings whose second branch gets no gradient: MoCo v2 contrasts with a queue of keys; BYOL and SimSiam predict it.

A momentum copy of the encoder makes the keys and BYOL's targets; SimSiam's are the encoder's own embeddings.
"""

# N samples, K keys in the queue, D features

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterpoint.core.checks import check_weight
from counterpoint.core.dist import gather_rows
from counterpoint.core.numerics import unit_rows
from counterpoint.kernels.contract import EXPONENTIAL, PairScores, ScoreTerms
from counterpoint.kernels.differentiable import reduce
from counterpoint.losses.inputs import check_temperature, prepare_views
from counterpoint.losses.loss import Loss, LossCard, Part
from counterpoint.losses.noncontrastive import Regression
from counterpoint.losses.pairs import LogPlus
from counterpoint.methods.encoding import Chunks, EncoderMethod, Head, MomentumCopy, at_least_two, encode, to_embedding


class QueueContrast(Loss):
    r"""InfoNCE whose negatives are a queue of earlier keys.

    .. math:: L = \frac{1}{n} \sum_i \log\Big(\epsilon + \sum_{j=1}^{K} e^{(\cos(q_i, k_j) - \cos(q_i, k_i))/\tau}\Big)

    At epsilon 1 this is the cross-entropy of picking the own key k_i among it and the K of the queue. ``z0`` holds
    queries and ``z1`` their keys, which are not interchangeable; keys get no gradient. Nothing of size n x K outlives
    a call where a streaming kernel serves the pair losses.

    Source: he2020, Eq. 1 and Algorithm 1; epsilon as in alphacl2022.

    Args:
        num_keys: number of keys in the queue, K >= 1.
        num_features: dimensions of a key, D >= 1.
        temperature: tau > 0; chen2020 (MoCo v2) uses 0.2.
        epsilon: weight of the positive in the denominator, >= 0; 0 leaves it out, as DCL does.
        generator: source of the first keys, uniform on the sphere; None means a new one of seed 0.

    Raises:
        ValueError: an argument out of range.

    >>> loss = QueueContrast(num_keys=2, num_features=3, temperature=1.0)
    >>> loss.enqueue(torch.eye(3)[1:])
    >>> z = torch.eye(3)[:1].repeat(2, 1)  # own keys agree with the query, queued ones are orthogonal to it
    >>> round(float(loss(z, z)), 6) == round(math.log(1 + 2 / math.e), 6)
    True
    """

    queue_KD: Tensor
    pointer: Tensor

    def __init__(
        self,
        num_keys: int,
        num_features: int,
        temperature: float = 0.2,
        epsilon: float = 1.0,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_temperature(temperature)
        if num_keys < 1:
            raise ValueError(f"target.queue_size must be >= 1, got {num_keys}; he2020 uses 65536, 4096 for CIFAR")
        if num_features < 1:
            raise ValueError(f"num_features must be >= 1, got {num_features}; it is the width of the embedding")
        check_weight(epsilon, "epsilon", hint="1 is InfoNCE, 0 is DCL")
        self.temperature, self.epsilon = temperature, epsilon
        source = generator or torch.Generator().manual_seed(0)
        # A normalised Gaussian vector is uniform on the sphere.
        first_KD = torch.randn(num_keys, num_features, generator=source, device=source.device)
        self.register_buffer("queue_KD", F.normalize(first_KD, dim=1))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))
        self.card = LossCard(
            name="QueueContrast",
            phi="log(x)" if epsilon == 0 else f"log({epsilon:g} + x)",
            psi=f"exp(x / {temperature:g})",
            alpha=f"exp(gap_ij / tau) / ({epsilon:g} + xi_i) / tau",
            negatives=f"a queue of {num_keys:,} earlier keys; anchors are the n queries",
            normalization="unit vectors; mean over queries",
            source="he2020, Eq. 1",
            fused="CPU, CUDA",
        )

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """Mean over queries ``z0`` with keys ``z1``; the queue stays as it is. Labels are only checked."""
        query_ND, key_ND = prepare_views(z0, z1, labels, normalize=True)
        if part is not None:
            query_ND, key_ND = query_ND[part.first : part.last], key_ND[part.first : part.last]
        key_ND, scale = key_ND.detach(), query_ND.new_tensor(1 / self.temperature)
        # u_ij = (cos(q_i, k_j) - cos(q_i, k_i)) / tau: the own key joins as what the query adds to all its scores.
        minus_own_N = -scale * (query_ND * key_ND).sum(1)
        # A copy: the queue moves on before the backward pass.
        queue_KD = self.queue_KD.to(query_ND.dtype, copy=True)
        log_sum_N = reduce(PairScores(ScoreTerms(query_ND, queue_KD, scale, minus_own_N)), EXPONENTIAL).rows_N
        return LogPlus(self.epsilon).of_log_sum(log_sum_N).mean()

    @torch.no_grad()
    def enqueue(self, keys_ND: Tensor) -> None:
        """Put keys in the place of the oldest; of more than K the last K stay.

        Args:
            keys_ND: keys to add, (n, D), of any length; they are stored at unit length.
        """
        num_keys = len(self.queue_KD)
        last_ND = keys_ND[-num_keys:]
        # Keys that are left out move the place on, as if each had been put in.
        start = self.pointer + (len(keys_ND) - len(last_ND))
        place_N = (start + torch.arange(len(last_ND), device=start.device)) % num_keys
        self.queue_KD[place_N] = unit_rows(last_ND.detach()).to(self.queue_KD.dtype)
        # Changed in place: the pointer is a buffer, and part of the state.
        self.pointer.copy_((self.pointer + len(keys_ND)) % num_keys)

    def num_negatives(self, n: int) -> int:
        """Number of keys that repel each query: K, whatever the batch."""
        return len(self.queue_KD)

    def chance(self, n: int) -> float:
        """Loss when all vectors look alike: log(epsilon + K)."""
        return math.log(self.epsilon + self.num_negatives(n))

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """No gap of unit vectors is below -2 (non-negative: -1): queue opposite to the query, own key equal to it."""
        gap = -1.0 if nonnegative else -2.0
        return math.log(self.epsilon + self.num_negatives(n) * math.exp(gap / self.temperature))


class MomentumQueue(EncoderMethod):
    """MoCo v2: queries from the encoder, keys from its momentum copy, negatives from a queue.

    View 0 makes queries and view 1 keys. The momentum copy has no gradient; after each update it moves towards the
    encoder. Keys enter the queue after they served as positives, gathered over ranks in the order of ranks, so that
    all ranks hold the same queue. In training mode the copy's BatchNorm uses the statistics of its own batch of keys.

    Source: he2020, Algorithm 1; chen2020 (MLP projector, temperature 0.2). Differs from the code in not shuffling the
        batch for BatchNorm: shuffling keeps a query's statistics on one device from giving its key away, and with
        statistics over all ranks there is nothing to give away.

    Args:
        backbone: maps samples to representations (n, width).
        head: projector and output map.
        loss: loss that holds the queue.
        momentum: share of the copy that an update keeps, 0 to 1; 0.999 on ImageNet.
        chunks: function that makes an encoder work in chunks; None encodes all samples at once.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        loss: QueueContrast,
        *,
        momentum: float = 0.99,
        chunks: Chunks | None = None,
    ) -> None:
        super().__init__(backbone, head, chunks)
        self.target_backbone, self.target_projector = MomentumCopy(backbone), MomentumCopy(head.projector)
        self.loss: QueueContrast = loss  # pyright: ignore[reportIncompatibleVariableOverride]
        self.momentum = momentum

    def forward(self, view0: Tensor, view1: Tensor, labels: Tensor | None = None, step: int = 0) -> Tensor:
        """See ``Method.forward``; labels are not looked at. In training mode the keys are enqueued."""
        queries, keys = self.branches(view0, view1)
        # Gathered before a loss that may raise on one rank alone.
        all_keys_MD = gather_rows(keys[0]) if self.training else keys[0]
        loss = self.score(queries, keys)
        # After the loss: this batch's keys are positives now, and negatives from the next batch on.
        if self.training:
            self.loss.enqueue(all_keys_MD)
        return loss

    def branches(self, view0: Tensor, view1: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Queries of view 0, and their keys from view 1, without gradient; each alone in its list."""
        query_ND = to_embedding(self.output_map, encode(self.backbone, self.projector, view0, self.chunks))
        with torch.no_grad():
            projected = encode(self.target_backbone, self.target_projector, view1, self.chunks)
            return [query_ND], [to_embedding(self.output_map, projected)]

    def score(self, queries: Sequence[Tensor], keys: Sequence[Tensor]) -> Tensor:
        """The loss beside the queue as it is."""
        return self.loss(at_least_two(queries[0]), at_least_two(keys[0]))

    def after_step(self, progress: float = 1.0) -> None:
        """Move the momentum copy towards the encoder."""
        self.target_backbone.follow(self.backbone, self.momentum)
        self.target_projector.follow(self.projector, self.momentum)


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
        loss: loss of one direction.
        momentum: momentum m of the first update, 0 to 1 (grill2020: 0.996); None if there is no momentum encoder.
        chunks: function that makes an encoder work in chunks; None encodes all samples of a view at once.
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
        with torch.no_grad():
            if self.target_backbone is None or self.target_projector is None:
                copied = [p.detach() for p in projected]  # chen2021, Eq. 3
            else:
                copied = [encode(self.target_backbone, self.target_projector, v, self.chunks) for v in (view0, view1)]
            return predictions, [to_embedding(self.output_map, p) for p in copied][::-1]

    def score(self, predictions: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """The loss of both directions."""
        pairs = zip(predictions, targets, strict=True)
        one_way, other_way = (self.loss(at_least_two(p_ND), at_least_two(target_ND)) for p_ND, target_ND in pairs)
        # grill2020, section 3.1: both directions added; chen2021, Eq. 4: their mean.
        return one_way + other_way if self.loss.form == "squared" else (one_way + other_way) / 2

    def after_step(self, progress: float) -> None:
        """Move the momentum copy towards the encoder."""
        if self.momentum is None or self.target_backbone is None or self.target_projector is None:
            return
        # grill2020, section 3.2: from its start to 1 along a cosine.
        momentum = 1 - (1 - self.momentum) * (math.cos(math.pi * progress) + 1) / 2
        # The predictor has no copy (grill2020, section 3.1): targets are projections.
        self.target_backbone.follow(self.backbone, momentum)
        self.target_projector.follow(self.projector, momentum)
