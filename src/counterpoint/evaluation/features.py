"""Features of every sample, extracted once and shared by all protocols; and the two baselines' features."""

# N samples, D features

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn

from counterpoint.core.array_layout import to_unit_float
from counterpoint.data.source import Source
from counterpoint.nn.trained import CHUNK, Encoder

PCA_DIMS = 128
VIEW_EPOCH = 2**31  # no training epoch: views for evaluation are never those trained on


@dataclass(frozen=True)
class Features:
    """Float32 features of the samples of a source, in its order."""

    representation: Tensor
    embedding: Tensor


def extract(encoder: Encoder, source: Source) -> Features:
    """Pass every sample through the encoder once."""
    parts = [encoder.both(samples) for samples in raw_chunks(source)]
    return Features(torch.cat([r for r, _ in parts]).float(), torch.cat([z for _, z in parts]).float())


def untrained_encoder(backbone: nn.Module, encoder: Encoder, source: Source, train: Tensor) -> Encoder:
    """The baseline of an untrained network: ``represent`` works, there is no embedding of its own.

    Its BatchNorm statistics are first set on the training samples; with their initial values the
    baseline would be weaker than an untrained network really is.

    Args:
        backbone: untrained, of the trained encoder's architecture.
        encoder: prepares the input.
        source: the samples.
        train: positions of the training samples.
    """
    prepared = [encoder.prepare(samples) for samples in raw_chunks(source, train)]
    card = replace(encoder.card, projector="none", nonnegative="none", d0=None)
    return Encoder(card, calibrate_norms(copy.deepcopy(backbone), prepared), nn.Identity())


def input_components(source: Source, train: Tensor) -> tuple[Tensor, int]:
    """Principal components of the raw input (pixels or features): the baseline that needs no learning.

    Returns:
        Scores (n, k) and k, at most ``PCA_DIMS``; the components are fitted on the training samples.
    """
    flat = torch.cat([_flat(samples, source) for samples in raw_chunks(source)]).numpy()
    num_components = min(PCA_DIMS, flat.shape[1], len(train) - 1)
    pca = PCA(num_components, svd_solver="randomized" if flat.shape[1] > 512 else "full", random_state=0)
    pca.fit(flat[train.numpy()])
    return torch.from_numpy(pca.transform(flat)).float(), num_components


def raw_chunks(source: Source, positions: Tensor | None = None) -> Iterator[Tensor]:
    """Raw samples in chunks, in order."""
    chosen = torch.arange(len(source)) if positions is None else positions
    for part in chosen.split(CHUNK):
        yield source.store.fetch(part.tolist())


def calibrate_norms(backbone: nn.Module, inputs: list[Tensor]) -> nn.Module:
    """Set the running statistics of every BatchNorm to their averages over some inputs."""
    norms = [module for module in backbone.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over the chunks
    backbone.train()
    with torch.no_grad(), torch.random.fork_rng():
        for chunk in inputs:
            if len(chunk) > 1:
                backbone(chunk)
    return backbone.eval()


def _flat(samples: Tensor, source: Source) -> Tensor:
    """Samples as float rows."""
    values = to_unit_float(samples) if source.kind == "images" else samples
    return values.flatten(1)
