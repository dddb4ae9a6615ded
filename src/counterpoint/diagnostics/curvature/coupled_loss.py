"""A loss that couples all samples of a batch, seen as a function of the parameters of an encoder."""

# N samples, P parameters in one vector

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

Parameters = Mapping[str, Tensor]
Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class CoupledLoss:
    r"""A loss of a whole batch, in the two parts that gradient caching needs.

    .. math:: L(\theta) = \ell(\theta, Z), \qquad Z = \big(f_\theta(x_1), \dots, f_\theta(x_N)\big)

    The encoder f takes any subset of the samples, one by one or in chunks; the loss takes all embeddings at once.
    Both must be functions: the same views, and no dropout. Where the encoder mixes samples (BatchNorm with the
    statistics of the batch), only the whole batch may be encoded at once: ``is_separable`` is then False.

    Attributes:
        encode: ``encode(parameters, inputs)`` gives the embeddings (n, ...) of some samples, both views together.
        loss: ``loss(parameters, embeddings)`` gives a scalar; it may look at parameters of its own.
        parameters: by name; what the Hessian is taken with respect to.
        inputs: tensors (N, ...) whose rows belong together, such as both views.
        is_separable: whether the embedding of a sample depends on no other sample.
    """

    encode: Callable[[Parameters, Inputs], Tensor]
    loss: Callable[[Parameters, Tensor], Tensor]
    parameters: Parameters
    inputs: Inputs
    is_separable: bool = True

    @property
    def num_samples(self) -> int:
        """N."""
        return len(self.inputs[0])

    @cached_property
    def num_parameters(self) -> int:
        """P."""
        return sum(value.numel() for value in self.parameters.values())

    def leaves(self) -> dict[str, Tensor]:
        """The parameters as new leaves, of which derivatives can be taken."""
        return {name: value.detach().requires_grad_() for name, value in self.parameters.items()}

    def chunks(self, size: int) -> Iterator[Inputs]:
        """The inputs in parts of at most ``size`` samples."""
        return zip(*(tensor.split(size) for tensor in self.inputs), strict=True)

    def value(self, parameters: Parameters | None = None, *, chunk_size: int | None = None) -> Tensor:
        """The loss, without derivatives.

        Args:
            parameters: at which it is taken; None takes ``self.parameters``.
            chunk_size: samples that are encoded at once; None takes all.
        """
        at = self.parameters if parameters is None else parameters
        with torch.no_grad():
            parts = [self.encode(at, chunk) for chunk in self.chunks(chunk_size or self.num_samples)]
            return self.loss(at, torch.cat(parts))

    def split(self, v_P: Tensor) -> list[Tensor]:
        """A vector of all parameters as tensors of their shapes."""
        parts = v_P.split([value.numel() for value in self.parameters.values()])
        return [part.reshape(value.shape) for part, value in zip(parts, self.parameters.values(), strict=True)]


def flat(parts: Sequence[Tensor]) -> Tensor:
    """Tensors one behind the other in one vector."""
    return torch.cat([part.reshape(-1) for part in parts])
