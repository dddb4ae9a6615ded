"""From samples to what a loss sees: encoder and projector, whole or in chunks, then the output map."""

# N samples, D features

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from counterpoint.core.transforms import without_autocast
from counterpoint.losses.bimodal import LogitScale
from counterpoint.losses.inputs import lift
from counterpoint.methods.gradient_cache import GradientCache
from counterpoint.nn.heads import OutputMap


@dataclass(frozen=True)
class Chunks:
    """How an encoder works through a batch that is too large for it; see ``GradientCache``.

    Attributes:
        size: samples per pass, >= 1.
        allow_batch_norm: accept statistics per chunk.
    """

    size: int
    allow_batch_norm: bool = False


@dataclass(frozen=True)
class Head:
    """What stands between a representation and the loss.

    Attributes:
        projector: maps representations (n, width) to what the output map takes.
        output_map: sub-vector and non-negative map; losses scale to unit length themselves.
    """

    projector: nn.Module
    output_map: OutputMap


def encode(backbone: nn.Module, projector: nn.Module, samples: Tensor, chunks: Chunks | None) -> Tensor:
    """Projected representations of samples, before the output map; in whatever precision autocast asks for.

    Args:
        backbone: maps samples to representations.
        projector: maps representations to projected ones.
        samples: (n, ...).
        chunks: None sends all samples through at once.

    >>> encode(nn.Identity(), nn.Flatten(), torch.zeros(3, 2, 2), Chunks(2)).shape
    torch.Size([3, 4])
    """
    if chunks is None:
        return projector(backbone(samples))
    # Made anew at each call, so that it holds what the method holds now and no parameter has two names.
    encoder = nn.Sequential(backbone, projector)
    return GradientCache(encoder, chunks.size, allow_batch_norm=chunks.allow_batch_norm)(samples)


def encode_views(
    backbone: nn.Module, projector: nn.Module, views: tuple[Tensor, Tensor], chunks: Chunks | None, *, is_apart: bool
) -> Tensor:
    """Projected representations of both views, (2n, ...), the first view's before the second's.

    Args:
        backbone: maps samples to representations.
        projector: maps representations to projected ones.
        views: (n, ...) each.
        chunks: of each pass; None sends its samples through at once.
        is_apart: one pass per view, each with BatchNorm statistics of its own, instead of one for both.
    """
    passes = views if is_apart else (torch.cat(views),)
    return torch.cat([encode(backbone, projector, samples, chunks) for samples in passes])


def to_embedding(output_map: OutputMap, projected_ND: Tensor) -> Tensor:
    """Apply the output map in float32 at least, whatever autocast says."""
    with without_autocast([projected_ND.device.type]):
        return output_map(lift(projected_ND))


def at_least_two(rows_N: Tensor) -> Tensor:
    """Rows as they are, or a single one twice, for a mean over samples: losses want two rows, and its mean stays.

    >>> at_least_two(torch.tensor([7])).tolist(), at_least_two(torch.tensor([1, 2])).tolist()
    ([7, 7], [1, 2])
    """
    return torch.cat([rows_N, rows_N]) if len(rows_N) == 1 else rows_N


def limit_learned_scales(loss: nn.Module) -> None:
    """Bring the learned scales of a loss back into their range, as is due after each update."""
    for module in loss.modules():
        if isinstance(module, LogitScale):
            module.limit_()
