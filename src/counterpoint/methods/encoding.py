"""The path from samples to what a loss sees: encoder (or its momentum copy) and projector, then the output map."""

# N samples, C samples per chunk, D features

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from counterpoint.core.checks import check_positive
from counterpoint.nn.heads import OutputMap
from counterpoint.nn.method import Method

# A function from an encoder to one that works through a batch in chunks; a ``partial`` of ``GradientCache``.
Chunks = Callable[[nn.Module], nn.Module]


@dataclass(frozen=True)
class Head:
    """The parts between a representation and the loss.

    Attributes:
        projector: maps representations (n, width) to what the output map takes.
        output_map: sub-vector and non-negative map; losses scale to unit length themselves.
    """

    projector: nn.Module
    output_map: OutputMap


class EncoderMethod(Method):
    """A method around one encoder that users load; losses and further parts are its own.

    Args:
        backbone: maps samples to representations (n, width).
        head: projector and output map.
        chunks: function that makes an encoder work in chunks; None encodes all samples of a pass at once.
    """

    def __init__(self, backbone: nn.Module, head: Head, chunks: Chunks | None) -> None:
        super().__init__()
        self.backbone, self.projector, self.output_map = backbone, head.projector, head.output_map
        self.chunks = chunks


def encode(backbone: nn.Module, projector: nn.Module, samples: Tensor, chunks: Chunks | None) -> Tensor:
    """Projected representations of samples, before the output map; in whatever precision autocast asks for.

    Args:
        backbone: maps samples to representations.
        projector: maps representations to projected ones.
        samples: samples to encode, (n, ...).
        chunks: function that makes an encoder work in chunks; None sends all samples through at once.

    >>> encode(nn.Identity(), nn.Flatten(), torch.zeros(3, 2, 2), lambda encoder: GradientCache(encoder, 2)).shape
    torch.Size([3, 4])
    """
    if chunks is None:
        return projector(backbone(samples))
    # Made again at each call, so that it holds what the method holds now and no parameter has two names.
    return chunks(nn.Sequential(backbone, projector))(samples)


def to_embedding(output_map: OutputMap, projected_ND: Tensor) -> Tensor:
    """Apply the output map in float32 at least, whatever autocast says."""
    with torch.autocast(projected_ND.device.type, enabled=False):
        return output_map(projected_ND.to(torch.promote_types(projected_ND.dtype, torch.float32)))


def at_least_two(rows_N: Tensor) -> Tensor:
    """Rows as they are, or a single one twice, for a mean over samples: losses want two rows, and its mean stays.

    >>> at_least_two(torch.tensor([7])).tolist(), at_least_two(torch.tensor([1, 2])).tolist()
    ([7, 7], [1, 2])
    """
    return torch.cat([rows_N, rows_N]) if len(rows_N) == 1 else rows_N


class GradientCache(nn.Module):
    r"""An encoder that keeps the activations of one chunk at a time, for any loss over the whole batch.

    With :math:`z_i = f_\theta(x_i)` the gradient splits into what the loss asks of each embedding and what the
    encoder makes of it,

    .. math:: \frac{dL}{d\theta} = \sum_{\text{chunks } B} \sum_{i \in B}
        \Big(\frac{\partial z_i}{\partial \theta}\Big)^{\!\top} \frac{\partial L}{\partial z_i}.

    Forward encodes chunk by chunk and keeps embeddings only. Backward first finds all :math:`\partial L/\partial z_i`,
    then encodes each chunk again, with the random numbers it had before, so that dropout repeats, and sends its
    gradients through. The result is the gradient of the unchunked pass, for one more forward pass of time.

    Source: gao2021, section 3 (GradCache). Differs from the paper's code: the second pass is part of backward (by
        checkpointing each chunk), so that the training loop, mixed precision, gradients of gradients, parameters of the
        loss and data-parallel wrappers work as they are.

    Args:
        encoder: maps samples (n, ...) to one tensor (n, ...); each sample independently.
        chunk_size: most samples per encoder pass, >= 1; the chunks of a batch are as even as can be. Both views pass
            the encoder together in ``JointEmbedding``: a batch of n pairs is 2n samples.
        allow_batch_norm: accept batch normalisation in training mode although its statistics are then those of each
            chunk, so that the gradient is the chunked pass's and not the unchunked one's. Running statistics are
            updated once per chunk.

    Raises:
        ValueError: chunk_size < 1.

    >>> encoder = nn.Linear(3, 2)
    >>> x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(GradientCache(encoder, chunk_size=2)(x), encoder(x))
    True
    """

    def __init__(self, encoder: nn.Module, chunk_size: int, *, allow_batch_norm: bool = False) -> None:
        super().__init__()
        check_positive(chunk_size, "chunk_size", hint="it is the number of samples that are encoded at once")
        self.encoder = encoder
        self.chunk_size = chunk_size
        self.allow_batch_norm = allow_batch_norm

    def forward(self, x: Tensor) -> Tensor:
        """Embeddings of all samples.

        Args:
            x: samples (n, ...).

        Returns:
            What the encoder returns for them, one after another.

        Raises:
            ValueError: the encoder has batch normalisation in training mode (the first such layer is named).
        """
        # Their output for a sample depends on the others of its batch, also in evaluation without running statistics.
        norms = {
            name: module
            for name, module in self.encoder.named_modules()
            if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
        }
        if norms and not self.allow_batch_norm:
            name, layer = next(iter(norms.items()))
            raise ValueError(
                f"encoder layer {name!r} ({type(layer).__name__}) mixes the samples of a batch, so chunks of "
                f"{self.chunk_size} change the gradient; use GroupNorm or LayerNorm, or accept statistics per chunk "
                "with allow_batch_norm=True"
            )
        # Chunks have even sizes: a small rest would have poor statistics, and a rest of one none.
        chunks = x.tensor_split(max(1, -(-len(x) // self.chunk_size)))
        # Non-reentrant: second derivatives, and samples that need no gradient themselves, work as they are.
        kept = {"use_reentrant": False, "context_fn": lambda: (nullcontext(), _StatisticsKept(list(norms.values())))}
        return torch.cat([checkpoint(self.encoder, chunk, **kept) for chunk in chunks])


class _StatisticsKept(AbstractContextManager[None]):
    """Let layers update copies of running statistics inside the block: a second pass must not count a batch again.

    It may be entered again and again, since a second derivative takes a third pass.
    """

    def __init__(self, norms: list[_BatchNorm]) -> None:
        self._norms = norms
        self._originals: list[dict[str, Tensor]] = []

    # The originals come back on leaving: what was counted in between is dropped with the copies.
    def __enter__(self) -> None:
        self._originals = [dict(norm.named_buffers()) for norm in self._norms]
        for norm, buffers in zip(self._norms, self._originals, strict=True):
            for name, buffer in buffers.items():
                setattr(norm, name, buffer.clone())

    def __exit__(self, *raised: object) -> None:
        for norm, buffers in zip(self._norms, self._originals, strict=True):
            for name, buffer in buffers.items():
                setattr(norm, name, buffer)


class MomentumCopy(nn.Module):
    r"""A momentum copy: an exponential moving average of a module's weights, as a module.

    .. math:: \xi \leftarrow m \xi + (1 - m) \theta

    It starts as an exact copy, has no gradient, and takes over buffers (BatchNorm's running statistics) as they are.
    All of it is in ``state_dict()``. In training mode its BatchNorm uses the statistics of the batch at hand. The
    source is not part of it: hand it to ``follow`` each time.

    Own code beside torch's ``AveragedModel``, whose momentum is fixed where methods raise theirs, and whose first step
    only copies.

    Source: he2020, Eq. 2; grill2020, Eq. 1.

    Args:
        source: module that is copied; it stays as it is.

    >>> online = nn.Linear(1, 1, bias=False)
    >>> average = MomentumCopy(online)
    >>> start = float(average.module.weight)
    >>> with torch.no_grad():
    ...     _ = online.weight.add_(1.0)
    >>> average.follow(online, momentum=0.75)
    >>> round(float(average.module.weight) - start, 6)
    0.25
    """

    def __init__(self, source: nn.Module) -> None:
        super().__init__()
        self.module = copy.deepcopy(source).requires_grad_(False)

    @torch.no_grad()
    def forward(self, *inputs: Any) -> Any:
        """Output of the copy, without gradient."""
        return self.module(*inputs)

    @torch.no_grad()
    def follow(self, source: nn.Module, momentum: float) -> None:
        """Move one step towards the source.

        Args:
            source: a module with the same structure.
            momentum: m, share of the copy that is kept, 0 to 1.

        Raises:
            ValueError: momentum out of range.
        """
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must be between 0 and 1, got {momentum}; 0.99 to 0.999 are common")
        ours, theirs = list[Tensor](self.module.parameters()), [parameter.detach() for parameter in source.parameters()]
        if ours:  # foreach operations refuse empty lists: nn.Identity, for example
            # xi + (1 - m) (theta - xi): he2020, Eq. 2
            torch._foreach_lerp_(ours, theirs, 1 - momentum)  # pyright: ignore[reportPrivateImportUsage]
        # Running statistics are averages already, and the number of batches is a whole number: neither is averaged.
        for own, other in zip(self.module.buffers(), source.buffers(), strict=True):
            own.copy_(other)
