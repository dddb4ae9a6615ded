"""kNN accuracy on held-out samples while training continues: a measurement that leaves no trace in the run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError
from counterpoint.core.torch_state import own_draws
from counterpoint.data.order import SPLIT_SEED, Split, random_order
from counterpoint.data.source import Source
from counterpoint.evaluation.features import VIEW_EPOCH, raw_chunks
from counterpoint.evaluation.knn import Vote, knn_predict
from counterpoint.evaluation.metric_types import MIN_QUERIES
from counterpoint.nn.trained import Encoder

NEIGHBOURS = 20
FIGURE = f"knn{NEIGHBOURS}"
MAX_SAMPLES = 10_000  # of the bank, and of the queries


@dataclass(frozen=True)
class EpochKNN:
    """Accuracy of the weighted kNN-20 vote, training samples as bank, held-out ones as queries.

    Representations of the samples as they are (no augmentation, eval mode), cosine, temperature 0.1: the same protocol
    as ``evaluation.protocol``, and the same figure if no part has more than 10,000 samples; of larger ones a
    fixed random choice is taken, the same in every run.

    Every rank computes the figure on its copy of the weights, so that no rank waits for another and all agree; where
    the encoder is in shards, all ranks pass the same batches in the same order.

    Source: wu2018, section 3.4, through ``evaluation.knn``.

    Args:
        source: samples with labels, which this figure does not pass to training.
        split: training and held-out positions.
        encoder: encoder that prepares samples; the weights measured are those of the method at each epoch's end.
        every: number of epochs between measurements, >= 1; the last epoch is always measured.

    Raises:
        UsageError: too few labelled samples to say anything.
    """

    source: Source
    split: Split
    encoder: Encoder
    every: int

    def __post_init__(self) -> None:
        num_bank, num_queries = len(self.bank), len(self.queries)
        # This is checked before training, not at the end of its first epoch.
        num_classes = len(self._labels[self.bank].unique())
        if num_bank < NEIGHBOURS or num_queries < MIN_QUERIES or num_classes < 2:
            raise UsageError(
                f"engine.knn_every needs at least {NEIGHBOURS} labelled training samples of 2 classes and "
                f"{MIN_QUERIES} labelled held-out samples, got {num_bank} of {num_classes} and {num_queries}; give "
                "labels, raise --source.holdout, or leave it out"
            )

    @cached_property
    def bank(self) -> Tensor:
        """Positions of the samples that vote."""
        return self._chosen(self.split.train)

    @cached_property
    def queries(self) -> Tensor:
        """Positions of the samples that are classified."""
        return self._chosen(self.split.held_out)

    def __call__(self, epoch: int, is_last: bool, method: nn.Module) -> Mapping[str, float]:
        """``knn20`` by its name in an epoch that is measured, else an empty mapping."""
        # The last epoch is measured in any case, so that a run's last figure is of its final weights.
        if epoch % self.every != 0 and not is_last:
            return {}
        backbone = method.backbone
        assert isinstance(backbone, nn.Module)
        with unchanged(method):
            bank, queries = (self._represent(backbone.eval(), positions) for positions in (self.bank, self.queries))
        return {FIGURE: vote_accuracy((bank, self._labels[self.bank]), (queries, self._labels[self.queries]))}

    @torch.no_grad()
    def _represent(self, backbone: nn.Module, positions: Tensor) -> Tensor:
        device = _device(backbone)
        prepared = (self.encoder.prepare(samples) for samples in raw_chunks(self.source, positions))
        # Chunk by chunk to the CPU: the device holds one chunk's features beside what training needs.
        return torch.cat([backbone(samples.to(device)).float().cpu() for samples in prepared])

    @property
    def _labels(self) -> Tensor:
        """Class numbers; all are -1 for a source without labels."""
        labels = self.source.labels
        return torch.full((len(self.source),), -1) if labels is None else labels

    def _chosen(self, positions: Tensor) -> Tensor:
        """Positions with a label, or a fixed random choice of them if they are too many, in the source's order."""
        labelled = positions[self._labels[positions] >= 0]
        if len(labelled) <= MAX_SAMPLES:
            return labelled
        # SPLIT_SEED, not the run's: curves of several runs are measured on the same samples.
        return labelled[random_order(SPLIT_SEED, VIEW_EPOCH, len(labelled))[:MAX_SAMPLES]].sort().values


def vote_accuracy(bank: tuple[Tensor, Tensor], queries: tuple[Tensor, Tensor]) -> float:
    """Share of the queries that get their own class from their ``NEIGHBOURS`` nearest bank samples.

    Args:
        bank: features (n, d) and classes (n,) of the samples that vote, n >= ``NEIGHBOURS``.
        queries: features and classes of the queries.
    """
    predicted = knn_predict(*bank, queries[0], Vote(NEIGHBOURS))
    return int((predicted == queries[1]).sum()) / len(queries[1])


@contextmanager
def unchanged(method: nn.Module) -> Iterator[None]:
    """Give every part its mode back, and torch's generators their state, as an encoder in eval mode may draw."""
    # Each part is set by itself, since they may differ in mode: ``method.train()`` would set them all alike.
    modes = {part: part.training for part in method.modules()}
    device = _device(method)
    with own_draws(devices=[device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            for part, is_training in modes.items():
                part.training = is_training


def _device(module: nn.Module) -> torch.device:
    return next(module.parameters(), torch.empty(0)).device
