"""An encoder that works in chunks has the gradient of one that does not, and holds one chunk's activations."""

# N samples, D features

import re
import weakref

import pytest
import torch
from torch import Tensor, nn

from counterpoint.losses import InfoNCE
from counterpoint.methods.encoding import GradientCache
from tolerances import assert_close

N, D = 7, 4


class LearnableScale(nn.Module):
    """Cross-entropy of picking the positive, every sample with every other, at a temperature that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(self, z0: Tensor, z1: Tensor) -> Tensor:
        scores = self.log_scale.exp() * z0 @ z1.mT
        return (torch.logsumexp(scores, 1) - scores.diagonal()).mean()


def encoder_of(*middle: nn.Module) -> nn.Sequential:
    """The same weights every time."""
    encoder = nn.Sequential(nn.Linear(3, 5), *middle, nn.Tanh(), nn.Linear(5, D)).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return encoder


def samples(num: int = 2 * N) -> Tensor:
    return torch.randn(num, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def step(encoder: nn.Module, loss: nn.Module) -> tuple[Tensor, list[Tensor]]:
    """Value of the loss and the gradient of every parameter and of the samples."""
    x = samples().requires_grad_()
    value = loss(*encoder(x).chunk(2))
    return value, list(torch.autograd.grad(value, [x, *encoder.parameters(), *loss.parameters()]))


def assert_same(found: tuple[Tensor, list[Tensor]], truth: tuple[Tensor, list[Tensor]]) -> None:
    assert_close(found[0], truth[0])
    for actual, exact in zip(found[1], truth[1], strict=True):
        assert_close(actual, exact)


@pytest.mark.parametrize("loss", [LearnableScale(), InfoNCE(), InfoNCE(negatives="same-view")])
@pytest.mark.parametrize("chunk_size", [1, 3, 7, 14, 100])
def test_the_gradient_is_that_of_the_unchunked_pass(chunk_size: int, loss: nn.Module) -> None:
    assert_same(step(GradientCache(encoder_of(), chunk_size), loss), step(encoder_of(), loss))


def test_second_derivatives_are_those_of_the_unchunked_pass() -> None:
    def curvatures(encoder: nn.Module) -> list[Tensor]:
        _, gradients = step_with_graph(encoder)
        return list(torch.autograd.grad(sum((g.square().sum() for g in gradients), torch.zeros(())), weights(encoder)))

    def weights(encoder: nn.Module) -> list[nn.Parameter]:
        return [parameter for parameter in encoder.parameters() if parameter.ndim == 2]

    def step_with_graph(encoder: nn.Module) -> tuple[Tensor, tuple[Tensor, ...]]:
        value = LearnableScale()(*encoder(samples()).chunk(2))
        return value, torch.autograd.grad(value, weights(encoder), create_graph=True)

    for actual, exact in zip(curvatures(GradientCache(encoder_of(), 4)), curvatures(encoder_of()), strict=True):
        assert_close(actual, exact)


def test_dropout_repeats_what_it_drew() -> None:
    def in_plain_chunks(encoder: nn.Module, x: Tensor) -> Tensor:
        return torch.cat([encoder(chunk) for chunk in x.tensor_split(4)])

    plain, loss = encoder_of(nn.Dropout(0.5)), LearnableScale()
    torch.manual_seed(3)
    value = loss(*in_plain_chunks(plain, samples()).chunk(2))
    truth = torch.autograd.grad(value, list(plain.parameters()))

    cached = GradientCache(encoder_of(nn.Dropout(0.5)), 4)
    torch.manual_seed(3)
    repeated = loss(*cached(samples()).chunk(2))
    after = torch.get_rng_state()
    torch.rand(5)  # whatever the loss draws must not reach the second pass
    found = torch.autograd.grad(repeated, list(cached.parameters()))
    assert torch.equal(repeated, value)
    for actual, exact in zip(found, truth, strict=True):
        assert_close(actual, exact)
    torch.set_rng_state(after)
    expected_next = torch.rand(1)
    torch.manual_seed(3)
    in_plain_chunks(plain, samples())
    assert torch.equal(torch.rand(1), expected_next)  # the second pass leaves the state as it found it


def most_alive(encoder: nn.Sequential, cached: nn.Module) -> int:
    """Rows of hidden activations that exist at once, at worst, over a forward and a backward pass."""
    seen: list[weakref.ref[Tensor]] = []
    counts: list[int] = []

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append(weakref.ref(output))
        counts.append(sum(len(tensor) for reference in seen if (tensor := reference()) is not None))

    handle = encoder[1].register_forward_hook(count)
    LearnableScale()(*cached(samples(64)).chunk(2)).backward()
    handle.remove()
    assert sum(len(output) for reference in seen if (output := reference()) is not None) == 0
    return max(counts)


def test_no_more_than_one_chunk_of_activations_is_held() -> None:
    encoder = encoder_of()
    assert most_alive(encoder, GradientCache(encoder, 4)) == 4


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(5), nn.SyncBatchNorm(5), nn.BatchNorm1d(5, track_running_stats=False).eval()]
)
def test_batch_normalisation_is_refused_by_name(layer: nn.Module) -> None:
    kind = type(layer).__name__
    words = (
        f"encoder layer '1' ({kind}) mixes the samples of a batch, so chunks of 4 change the gradient; use GroupNorm"
    )
    with pytest.raises(ValueError, match=re.escape(words)):
        GradientCache(nn.Sequential(nn.Linear(3, 5), layer), 4)(samples().float())


def test_accepted_batch_normalisation_counts_each_chunk_once() -> None:
    cached = GradientCache(encoder_of(nn.BatchNorm1d(5)), 4, allow_batch_norm=True)
    plain, loss = encoder_of(nn.BatchNorm1d(5)), LearnableScale()
    found = step(cached, loss)
    x = samples().requires_grad_()
    value = loss(*torch.cat([plain(chunk) for chunk in x.tensor_split(4)]).chunk(2))
    gradients = torch.autograd.grad(value, [x, *plain.parameters(), *loss.parameters()])
    assert_same(found, (value, list(gradients)))
    for name, buffer in plain.named_buffers():
        assert torch.equal(cached.encoder.get_buffer(name), buffer), name
