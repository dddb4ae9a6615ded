r"""Losses as two other libraries call them: by columns of sentences, and by labelled embeddings.

Neither library is imported: sentence-transformers (extra ``text``) calls ``SentenceLoss(model)`` with the features of
its columns, and whoever trains with pytorch-metric-learning calls ``EmbeddingLoss(loss)`` with vectors and labels.
"""

# N samples, K columns of negatives, P positive pairs, D features

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from counterpoint.core.checks import check_labels
from counterpoint.core.dist import check_equal_batches, gather_rows, merge_columns, own_rows
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.numerics import row_dots
from counterpoint.kernels.contract import PairMask, PairScores, ScoreTerms
from counterpoint.kernels.differentiable import reduce
from counterpoint.losses.bimodal import LogitScale
from counterpoint.losses.importance import AlphaCL
from counterpoint.losses.infonce import InfoNCE
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.loss import Loss, Part
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.losses.pairs import Pairing
from counterpoint.losses.supervised import SupCon
from counterpoint.losses.wrappers import HardNegatives
from counterpoint.methods.encoding import GradientCache, to_embedding
from counterpoint.methods.joint import loss_across_ranks
from counterpoint.nn.heads import OutputMap

ONE_DIRECTION = Pairing("cross-view", "first")
Features = Mapping[str, Any]  # features of one column: input_ids, attention_mask, ..., as the model takes them


class SentenceLoss(nn.Module):
    r"""A loss of Counterpoint for the trainer of sentence-transformers.

    Columns are ``(anchor, positive, negative, ...)``. Anchors and positives are the two views of a loss. With columns
    of negatives the anchors alone are scored, each against all N positives and all K N negatives:

    .. math:: L = \frac1N \sum_{i=1}^{N} \phi\Big(\sum_{j \ne i} \psi(\cos(a_i, p_j) - \cos(a_i, p_i))
        + \sum_{k,j} \psi(\cos(a_i, n_{kj}) - \cos(a_i, p_i))\Big)

    Without ``loss`` it is ``MultipleNegativesRankingLoss(model)`` (scale 20, cosines, one direction), in value and
    gradient, in memory that is linear in N.

    Args:
        model: a ``SentenceTransformer``.
        loss: any loss of ``counterpoint.losses``; None is ``InfoNCE(0.05, negatives="cross-view", anchors="first")``.
            Columns of negatives need these two settings of ``InfoNCE``, ``PairLoss``, ``AlphaCL`` or ``HardNegatives``,
            of unit vectors. Losses that use labels get the column ``label``.
        output: sub-vector and non-negative map (NCL) before the loss, or None; ``model.encode`` does not apply it.
        mini_batch_size: sentences per pass of the model, whose activations are then computed again in backward
            (``GradientCache``), as in ``CachedMultipleNegativesRankingLoss``; None is all of a column at once.
        gather_across_devices: whether positives and negatives of all ranks are keys, and the mean over ranks is the
            loss of the whole batch. Ranks need equally many samples (``dataloader_drop_last=True``).

    Raises:
        UsageError: ``loss`` is not a loss.

    Draws of losses that draw are numbered by the calls of this object.
    """

    citation = "@software{counterpoint, author = {{The Counterpoint authors}}, title = {Counterpoint}}"

    def __init__(
        self,
        model: nn.Module,
        loss: Loss | None = None,
        *,
        output: OutputMap | None = None,
        mini_batch_size: int | None = None,
        gather_across_devices: bool = False,
    ) -> None:
        super().__init__()
        self.model = model  # the trainer puts its own copy here
        self.loss = _check_loss(loss or InfoNCE(0.05, negatives="cross-view", anchors="first"))
        self.output = OutputMap(normalize=False) if output is None else output
        self.mini_batch_size, self.gather_across_devices = mini_batch_size, gather_across_devices
        self.num_calls = 0

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """The loss of a batch, a scalar tensor.

        Args:
            sentence_features: features of each column, as the trainer's collator makes them.
            labels: the column ``label``, (N,); only losses that learn from labels use them.

        Raises:
            DataError: too few columns or sentences, or columns of negatives for a loss that does not take them.
            ValueError: labels of another length, or rows that are not finite.
        """
        columns = [to_embedding(self.output, self._embed(features)) for features in sentence_features]
        if len(columns) < 2:
            raise DataError(f"a batch must have the columns (anchor, positive, negative, ...), got {len(columns)}")
        if len(columns) == 2 and len(columns[0]) < 2:
            raise DataError(
                f"a batch of {len(columns[0])} pair(s) has no negatives; set dataloader_drop_last=True, or give a "
                "column of negatives"
            )
        for module in self.loss.modules():
            if isinstance(module, LogitScale):
                module.limit_()  # the last step of the optimiser may have passed the limit
        if len(columns) > 2:
            return self._beside_negatives(columns)
        z0, z1 = columns
        self.num_calls += 1
        used = labels if self.loss.uses_labels else None
        if self.gather_across_devices:
            return loss_across_ranks(self.loss, z0, z1, used, self.num_calls)
        drawn = {"step": self.num_calls} if self.loss.draws_by_step else {}
        return self.loss(z0, z1, used, **drawn)

    def get_config_dict(self) -> dict[str, Any]:
        """Return what the model card says of the loss."""
        output = {"d0": self.output.d0, "nonnegative": self.output.nonnegative}
        return {"loss": repr(self.loss), **output, "mini_batch_size": self.mini_batch_size}

    def _embed(self, features: Features) -> Tensor:
        if self.mini_batch_size is None:
            return _sentence_embedding(self.model, dict(features))
        rows_N = torch.arange(len(features["attention_mask"]), device=features["attention_mask"].device)
        return GradientCache(_Column(self.model, features), self.mini_batch_size)(rows_N)

    def _beside_negatives(self, columns: list[Tensor]) -> Tensor:
        """Score anchors against all positives and negatives; a negative is a sample that is no anchor."""
        loss = self.loss
        is_pairwise = isinstance(loss, PairLoss | HardNegatives | AlphaCL) and loss.pairing == ONE_DIRECTION
        if not is_pairwise or (isinstance(loss, AlphaCL) and not loss.streams):
            raise DataError(
                "columns of negatives need a loss of pairs whose anchors are the first column, such as InfoNCE(0.05, "
                f"negatives='cross-view', anchors='first'), got {loss!r}; leave the negatives out"
            )
        own = slice(0, len(columns[0]))
        if self.gather_across_devices:
            check_equal_batches(columns[0])
            own = own_rows(len(columns[0]))
            columns = list(gather_rows(torch.stack(columns, dim=1)).unbind(1))
        anchors_ND, positives_ND, *negatives = columns
        z0, z1 = torch.cat([anchors_ND, *negatives]), torch.cat([positives_ND, *negatives])
        return loss(z0, z1, part=Part(own.start, own.stop, merge_columns))


class _Column(nn.Module):
    def __init__(self, model: nn.Module, features: Features) -> None:
        super().__init__()
        self.model, self.features = model, features

    def forward(self, rows_N: Tensor) -> Tensor:
        """Map places in the column, (n,), to embeddings (n, D)."""
        parts = {name: value[rows_N] if isinstance(value, Tensor) else value for name, value in self.features.items()}
        return _sentence_embedding(self.model, parts)


def _sentence_embedding(model: nn.Module, features: dict[str, Any]) -> Tensor:
    result = model(features)  # the model adds to the features
    if not isinstance(result, Mapping) or "sentence_embedding" not in result:
        raise UsageError(
            f"model must give a sentence_embedding, as a SentenceTransformer does, got {type(model).__name__}; "
            "pip install 'counterpoint[text]'"
        )
    return result["sentence_embedding"]


class EmbeddingLoss(nn.Module):
    r"""A loss of Counterpoint for pytorch-metric-learning's ``(embeddings, labels)``.

    A ``PairLoss`` of unit vectors, such as ``InfoNCE``, is taken over all positive pairs of the batch; vectors of other
    labels are the negatives, whatever its pairing says:

    .. math:: L = \frac{1}{|P|} \sum_{(i,p) \in P} \phi\Big(\sum_{j : y_j \ne y_i} \psi(\cos_{ij} - \cos_{ip})\Big)

    ``InfoNCE(tau)`` is then ``NTXentLoss(tau)`` and ``SupCon(tau)`` is ``SupConLoss(tau)``. Any other loss needs labels
    of which each occurs twice: the two views of a sample.

    Args:
        loss: any loss of ``counterpoint.losses``.
        output: sub-vector and non-negative map before the loss (NCL); None for none.

    Raises:
        UsageError: ``loss`` is not a loss.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(2, 1)
    >>> EmbeddingLoss(InfoNCE(1.0))(z, torch.tensor([0, 1, 0, 1])) == InfoNCE(1.0)(*z.chunk(2))
    tensor(True)
    """

    def __init__(self, loss: Loss, *, output: OutputMap | None = None) -> None:
        super().__init__()
        self.loss = _check_loss(loss)
        self.output = OutputMap(normalize=False) if output is None else output

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: object = None) -> Tensor:
        """The loss of a batch, a scalar tensor.

        Args:
            embeddings: embeddings of the samples, (N, D), N >= 2.
            labels: labels of the samples, whole numbers (N,).
            indices_tuple: pairs that a miner chose; must be None, as all pairs count.

        Raises:
            UsageError: pairs of a miner.
            DataError: no two vectors of one label, or of two; or not two of each label where the loss needs that.
            ValueError: labels of another length, fewer than 2 vectors, or rows that are not finite.
        """
        if indices_tuple is not None:
            raise UsageError("indices_tuple must be None: all pairs count; AlphaCL and HardNegatives weigh them")
        z_ND = to_embedding(self.output, embeddings)
        check_labels(labels, len(z_ND))
        labels = labels.to(z_ND.device)
        if isinstance(self.loss, SupCon):
            return self.loss(z_ND, labels=labels)
        if isinstance(self.loss, PairLoss) and self.loss.pairing.normalize:
            return _over_positive_pairs(self.loss, z_ND, labels)
        pairs_N2 = labels.argsort(stable=True).view(-1, 2) if len(labels) % 2 == 0 else labels.new_zeros(0, 2)
        first_N, second_N = labels[pairs_N2].unbind(1)
        if not len(pairs_N2) or not torch.equal(first_N, second_N) or len(first_N.unique()) < len(first_N):
            raise DataError(f"{self.loss.card.name} needs labels of which each occurs twice, the views of a sample")
        return self.loss(*z_ND[pairs_N2].unbind(1))


def _over_positive_pairs(loss: PairLoss, z_ND: Tensor, labels_N: Tensor) -> Tensor:
    """Compute a loss: phi of each positive pair's sum over the vectors of other labels."""
    z_ND = prepare_views(z_ND, z_ND, labels_N, normalize=True)[0]
    is_same_NN = labels_N[:, None] == labels_N
    anchor_P, positive_P = is_same_NN.fill_diagonal_(False).nonzero().unbind(1)
    if not len(anchor_P) or len(labels_N.unique()) < 2:
        raise DataError("a batch must have two vectors of one label and one of another; sample several of each label")
    psi = loss.psi
    own_P = psi.margin - psi.scale * row_dots(z_ND[anchor_P], z_ND[positive_P])
    scale = z_ND.new_full((), psi.scale)
    if psi.function.in_log_domain:  # own_P is a factor of the sum: once per anchor, not per pair
        scores = PairScores(ScoreTerms(z_ND, None, scale), PairMask(None, labels_N, labels_N), is_unit=True)
        statistic_P = reduce(scores, psi.function).rows_N[anchor_P] + own_P
    else:
        mask = PairMask(None, labels_N[anchor_P], labels_N)
        scores = PairScores(ScoreTerms(z_ND[anchor_P], z_ND, scale, own_P), mask, is_unit=True)
        statistic_P = reduce(scores, psi.function).rows_N
    return loss.reduced(loss.phi_of(statistic_P), 1.0)


def _check_loss(loss: Loss) -> Loss:
    if not isinstance(loss, Loss):
        raise UsageError(f"loss must be one of counterpoint.losses, such as InfoNCE(0.05), got {type(loss).__name__}")
    return loss
