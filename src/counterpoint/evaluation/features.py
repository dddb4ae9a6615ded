"""Features of every sample, extracted once and shared by all protocols; and the two baselines' features."""

# N samples, D features

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.own_parts import CUSTOM
from counterpoint.core.thread_parts import side_by_side
from counterpoint.core.torch_state import own_draws
from counterpoint.data.source import Source
from counterpoint.nn.trained import CHUNK, Encoder

PCA_DIMS = 128
PIECE = 128  # samples that one thread passes through the encoder at a time
VIEW_EPOCH = 2**31  # no training epoch: views for evaluation are never those trained on

Advance = Callable[[], None]
Note = Callable[[Tensor, Tensor], None]  # takes positions, and the samples there
Other = TypeVar("Other")


@dataclass(frozen=True)
class Features:
    """Float32 features of the samples of a source, in its order."""

    representation: Tensor
    embedding: Tensor


class Contents:
    """What samples hold, as hashes that are noted while the samples pass: which of them are in two parts of the data.

    Args:
        num_samples: of the source.
    """

    def __init__(self, num_samples: int) -> None:
        self._hashes = np.zeros(num_samples, dtype="V16")

    def note(self, positions: Tensor, samples: Tensor) -> None:
        """Take some samples as they are stored."""
        for position, sample in zip(positions.tolist(), samples.contiguous().numpy(), strict=True):
            self._hashes[position] = hashlib.blake2b(sample.data, digest_size=16).digest()

    def num_shared(self, bank: Tensor, queries: Tensor) -> int:
        """How many queries hold what a sample of the bank holds."""
        known = set(self._hashes[bank.numpy()].tolist())
        return sum(content in known for content in self._hashes[queries.numpy()].tolist())


def extract(encoder: Encoder, source: Source, advance: Advance = lambda: None) -> Features:
    """Pass every sample through the encoder once; ``advance`` is called once per piece of ``PIECE`` samples."""
    return extract_beside(encoder, source, lambda: None, advance)[0]


def extract_beside(
    encoder: Encoder,
    source: Source,
    other: Callable[[], Other],
    advance: Advance,
    note: Note = lambda positions, samples: None,
) -> tuple[Features, Other]:
    """Pass every sample through the encoder while a thread does something else; gives the features, and the other.

    ``note`` is called with each piece of samples.
    """

    def work(positions: Tensor | None) -> Any:
        if positions is None:
            return other()
        samples = source.store.fetch(positions.tolist())
        note(positions, samples)
        outputs = encoder.both(samples)
        advance()
        return outputs

    # None first: the other work is one long piece, which should not begin when the short ones are done.
    done, *parts = with_encoder(encoder, work, [None, *torch.arange(len(source)).split(PIECE)])
    return Features(torch.cat([r for r, _ in parts]).float(), torch.cat([z for _, z in parts]).float()), done


def with_encoder(encoder: Encoder, work: Callable[[Any], Any], pieces: Iterable[Any]) -> list[Any]:
    """What ``work`` gives for each piece, side by side; a user's own code is called by one thread only."""
    is_own = encoder.card.architecture == CUSTOM and not all(map(_is_of_torch, encoder.backbone.modules()))
    return [work(piece) for piece in pieces] if is_own else side_by_side(work, pieces)


def _is_of_torch(module: nn.Module) -> bool:
    """Several threads may call it: a layer of torch, whose evaluation keeps nothing of a pass, as torch made it."""
    is_plain = type(module).__module__.startswith("torch.nn.") and "forward" not in vars(module)
    # A hook is the user's own code, which may keep something of a pass.
    return is_plain and not (module._forward_hooks or module._forward_pre_hooks)


def num_pieces(source: Source) -> int:
    """How often ``extract`` advances."""
    return -(-len(source) // PIECE)


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
    # Its representation alone is used; an untrained projector is no baseline of anything.
    card = replace(encoder.card, projector="none", nonnegative="none", d0=None)
    return Encoder(card, calibrate_norms(copy.deepcopy(backbone), prepared), nn.Identity())


def input_components(source: Source, train: Tensor) -> tuple[Tensor, int]:
    """Principal components of the raw input (pixels or features): the baseline that needs no learning.

    Returns:
        Scores (n, k) and k, at most ``PCA_DIMS``; the components are fitted on the training samples.
    """
    flat = torch.cat([_flat(samples, source) for samples in raw_chunks(source)]).numpy()
    # n centred samples span at most n - 1 directions.
    num_components = min(PCA_DIMS, flat.shape[1], len(train) - 1)
    # Randomised, but with a fixed seed: the same figure for the same data.
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
    # Dropout in train mode draws; the caller's random numbers stay where they are.
    with torch.no_grad(), own_draws():
        for chunk in inputs:
            # BatchNorm refuses to train on one vector, which has no variance.
            if len(chunk) > 1:
                backbone(chunk)
    return backbone.eval()


def _flat(samples: Tensor, source: Source) -> Tensor:
    """Samples as float rows."""
    values = to_unit_float(samples) if source.kind == "images" else samples
    return values.flatten(1)
