"""hessian_spectrum() of a loss, an encoder and a batch without a run: the dense spectrum, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.errors import UsageError
from counterpoint.losses import DCLW, AlphaCL, InfoNCE, SigmoidPair

N, WIDTH, D = 9, 4, 3
VIEWS = tuple(torch.randn(2, N, WIDTH, generator=torch.Generator().manual_seed(0)))


def encoder(*extra: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), *extra, nn.Linear(5, D))


def spectrum(loss: Any, parameters: Any, **settings: Any) -> cp.HessianSpectrum:
    return cp.hessian_spectrum(loss, parameters, VIEWS, quiet=True, **settings)


def dense(value: Callable[[list[Tensor]], Tensor], weights: list[Tensor]) -> Tensor:
    """Eigenvalues of the Hessian by plain autograd, ascending."""
    leaves = [weight.detach().double().requires_grad_() for weight in weights]
    gradient = torch.autograd.grad(value(leaves), leaves, create_graph=True)
    entries = torch.cat([part.reshape(-1) for part in gradient])
    rows = [torch.autograd.grad(entry, leaves, retain_graph=True) for entry in entries]
    return torch.linalg.eigvalsh(torch.stack([torch.cat([part.reshape(-1) for part in row]) for row in rows]))


def mlp(weights: list[Tensor], x: Tensor) -> Tensor:
    w1, b1, w2, b2 = weights
    return torch.tanh(x.double() @ w1.T + b1) @ w2.T + b2


def attract(z0: Tensor, z1: Tensor) -> Tensor:
    """A loss of one's own, not invariant to scale."""
    return (z0 - z1).square().sum(dim=1).mean() + (-(z0 @ z0.T)).exp().mean()


@pytest.mark.parametrize("loss", [InfoNCE(0.5), attract], ids=["object", "function"])
def test_it_is_the_dense_spectrum(loss: Any) -> None:
    module = encoder()
    values_P = dense(lambda weights: loss(mlp(weights, VIEWS[0]), mlp(weights, VIEWS[1])), list(module.parameters()))
    found = spectrum(loss, module, steps=200, top=4).last
    reach = float(values_P[-1] - values_P[0])
    for place in range(4):
        assert found.largest[place].value == pytest.approx(float(values_P[-1 - place]), abs=1e-10 * reach)
        assert found.smallest[place].value == pytest.approx(float(values_P[place]), abs=1e-10 * reach)


@pytest.mark.parametrize("steps", [6, 10, 16])
def test_an_eigenvalue_lies_within_each_error(steps: int) -> None:
    module = encoder()
    values_P = dense(lambda weights: attract(mlp(weights, VIEWS[0]), mlp(weights, VIEWS[1])), list(module.parameters()))
    found = spectrum(attract, module, steps=steps, top=3, probes=2).last
    for one in (*found.largest, *found.smallest):
        assert float((values_P - one.value).abs().min()) <= one.error
    low, high = found.trace.interval.low, found.trace.interval.high
    assert low < found.trace.value < high


def test_named_tensors_with_a_function_are_the_same() -> None:
    module = encoder()
    weights = {name: part.detach() for name, part in module.named_parameters()}

    def function(own: dict[str, Tensor], view: Tensor) -> Tensor:
        return torch.func.functional_call(module, own, (view,))

    ours = spectrum(InfoNCE(0.5), module, steps=5, precision="float32").last
    theirs = spectrum(InfoNCE(0.5), (function, weights), steps=5, precision="float32").last
    assert theirs.ritz_values == ours.ritz_values


def test_nothing_of_the_callers_changes() -> None:
    module = encoder(nn.BatchNorm1d(5))
    module.train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    found = spectrum(InfoNCE(), module, steps=4)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training
    assert (found.settings["batch_norm"], found.route.name) == ("batch", "kept")
    frozen = spectrum(InfoNCE(), module, steps=4, batch_norm="frozen", memory=0.0, chunk_size=2)
    assert (frozen.settings["batch_norm"], frozen.route.name) == ("frozen", "chunked")
    assert frozen.last.value != found.last.value


def test_chunks_change_nothing_and_an_encoder_that_mixes_samples_is_not_cut() -> None:
    module = encoder()
    kept, cut = spectrum(InfoNCE(), module, steps=6), spectrum(InfoNCE(), module, steps=6, memory=0.0, chunk_size=2)
    assert cut.route.name == "chunked"
    assert cut.last.ritz_values[0] == pytest.approx(kept.last.ritz_values[0], abs=1e-10)

    def centred(own: dict[str, Tensor], view: Tensor) -> Tensor:
        z = view.to(own["w"]) @ own["w"]
        return z - z.mean(dim=0)

    weights = {"w": torch.randn(WIDTH, D, generator=torch.Generator().manual_seed(3))}
    mixed = spectrum(InfoNCE(), (centred, weights), steps=4, memory=0.0)
    assert mixed.route.name == "kept"
    assert "mixes the samples" in mixed.remarks[0]


def test_what_the_loss_learns_is_part_of_it() -> None:
    found = spectrum(SigmoidPair(), encoder(), steps=4)
    assert found.num_parameters == sum(part.numel() for part in encoder().parameters()) + 2
    assert found.name.endswith(" of Sequential")


def test_attention_has_a_second_derivative() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.lift, self.attend = nn.Linear(1, 4), nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x_ND: Tensor) -> Tensor:
            tokens = self.lift(x_ND[..., None])
            return self.attend(tokens, tokens, tokens, need_weights=False)[0].mean(dim=1)

    assert spectrum(InfoNCE(), Attention(), steps=4).last.certificates[0].holds


def stopped(z0: Tensor, z1: Tensor) -> Tensor:
    return -(z0 * z1.detach()).sum(dim=1).mean()


def frozen_alpha(z0: Tensor, z1: Tensor) -> Tensor:
    """The gradient of a log-sum-exp through weights that are held fixed, the value that of another function."""
    scores = z0 @ z1.T
    return (scores.softmax(dim=1).detach() * scores).sum() - scores.diagonal().sum()


def random_each_time(z0: Tensor, z1: Tensor) -> Tensor:
    return attract(nn.functional.dropout(z0, 0.5), z1)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (stopped, "not the slope of its value"),
        (frozen_alpha, "not the slope of its value"),
        (random_each_time, "not the same at a second call"),
        (lambda z0, z1: z0 - z1, "one finite number"),
        (lambda z0, z1: attract(z0, z1) / 0, "one finite number"),
        (lambda z0, z1: attract(z0.detach(), z1.detach()), "does not depend on the parameters"),
        (AlphaCL(), "backpropagate_alpha=True"),
        (DCLW(), "backpropagate_weights=True"),
        ("infonce", "does not exist|no run|run folder"),
        (3, "loss must be a loss"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,  # a function's address differs
)
def test_losses_that_have_no_hessian_are_refused(loss: Any, words: str) -> None:
    with pytest.raises((UsageError, cp.CounterpointError), match=words):
        cp.hessian_spectrum(loss, encoder() if loss != "infonce" else None, None if loss == "infonce" else VIEWS)


@pytest.mark.parametrize(
    ("parameters", "batch", "settings", "words"),
    [
        (encoder(nn.Dropout(0.5)), VIEWS, {}, r"2 draws at random.*encoder\.eval\(\)"),
        (encoder(), VIEWS[0], {}, "batch must be two tensors"),
        (encoder(), (VIEWS[0], VIEWS[1][:3]), {}, "batch must be two tensors"),
        (encoder(), tuple(view.long() for view in VIEWS), {}, r"does not take views of torch\.int64"),
        (encoder(), tuple(view + 0j for view in VIEWS), {}, "tensor of real numbers"),
        (encoder(), tuple(view.to_sparse() for view in VIEWS), {}, "must be a dense tensor"),
        (encoder(), tuple(view.to("meta") for view in VIEWS), {}, "on the device meta"),
        (encoder(), (VIEWS[0][0, 0], VIEWS[1][0, 0]), {}, "batch must be two tensors"),
        (encoder().to("meta"), VIEWS, {}, "on the device meta"),
        ((lambda own, view: view @ own["w"], {"w": torch.ones(3, 2) + 0j}), VIEWS, {}, "w must be a tensor of real"),
        ({"w": torch.ones(2)}, VIEWS, {}, "parameters must be a module, or a pair"),
        (nn.Unflatten(1, (2, 2)), VIEWS, {}, "must give a vector for each sample"),
        (encoder(), VIEWS, {"batch_size": 4}, "batch_size is a setting for runs"),
        (encoder(), VIEWS, {"checkpoint": "all"}, "checkpoint is a setting for runs"),
        (encoder(), VIEWS, {"data": VIEWS[0]}, "data= goes with a run"),
        (encoder(), VIEWS, {"stepz": 4}, "steps"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str) else type(value).__name__,
)
def test_mistakes_are_told(parameters: Any, batch: Any, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        cp.hessian_spectrum(attract, parameters, batch, quiet=True, **settings)


def test_dropout_that_is_off_is_no_obstacle_and_a_frozen_target_is_none_either() -> None:
    module = encoder(nn.Dropout(0.5)).eval()
    target = module(VIEWS[1]).detach().double()
    found = spectrum(lambda z0, _: (z0 - target).square().sum(dim=1).mean(), module, steps=4)
    assert found.last.certificates[0].holds
