"""Every loss in W processes with samples of their own is the loss of one process on all samples."""

# N samples of all ranks, D features

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from small_methods import numbers
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from counterpoint.core import dist
from counterpoint.losses import CATALOGUE, InfoNCE
from counterpoint.losses.loss import Loss, LossCard, Part
from counterpoint.methods.encoding import GradientCache
from counterpoint.methods.joint import loss_across_ranks
from rank_processes import RankResult, Result, run_on_ranks
from tolerances import relative_error

pytestmark = pytest.mark.thorough

N, D = 6, 4
LIMIT = 1e-12
LABELS = torch.tensor([0, 1, 0, 1, 2, 2])
STEP = 5

# Arguments of the entries that need some or that have more than one way to share a batch; the others have defaults.
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "infonce": [{}, {"negatives": "cross-view"}, {"negatives": "same-view", "normalize": False}],
    "triplet": [{}, {"negatives": "cross-view"}, {"negatives": "same-view", "normalize": False}],
    "generalized-contrastive": [{}, {"num_negatives": 3}],
    "cross-entropy": [{"num_classes": 3, "num_features": D}],
    "nonnegative-cross-entropy": [{"num_classes": 3, "num_features": D}],
    "hard-negatives": [{"loss": InfoNCE(0.5)}, {"loss": InfoNCE(0.5, reduction="sum"), "beta": 0.5}],
    "sparsity-penalty": [{"loss": InfoNCE(0.5, negatives="cross-view")}],
}


class TwoWay(Loss):
    """Rows and columns of one matrix, a log-sum-exp and a plain sum per column, and a learnable scale."""

    card = LossCard("TwoWay", *["-"] * 6, second_derivative="autograd", fused="no pairs")

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        own = slice(0, len(z0)) if part is None else slice(part.first, part.last)
        scores = self.scale * z0[own] @ z1.mT
        log_sums, sums = torch.logsumexp(scores, 0), scores.sigmoid().sum(0)
        if part is not None:
            log_sums, sums = part.merge(log_sums, True), part.merge(sums, False)
        rows = torch.logsumexp(scores, 1) - 2 * self.scale * (z0 * z1).sum(1)[own]
        return (rows + log_sums[own] + sums[own].square()).mean()

    def chance(self, n: int) -> float:
        return 0.0

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        return -math.inf


def in_words(name: str, given: dict[str, Any]) -> str:
    return ", ".join([name, *(f"{key}={value}" for key, value in given.items())])


CASES: dict[str, Callable[[], Loss]] = {
    **{
        in_words(name, given): partial(build, **given)
        for name, build in CATALOGUE.items()
        for given in ARGUMENTS.get(name, [{}])
    },
    "two ways, of this test": TwoWay,
}


# --- what a rank computes


def views() -> tuple[Tensor, Tensor]:
    z0 = numbers(1, N, D)
    return z0, z0 + 0.5 * numbers(2, N, D)


def measured(name: str, rows: slice, *, is_shared: bool) -> dict[str, Tensor]:
    """Value, gradients and a Hessian-vector product of one case, from these rows of the samples."""
    loss = CASES[name]().double()
    z0, z1 = (z[rows].clone().requires_grad_() for z in views())
    value = value_of(loss, z0, z1, LABELS[rows], is_shared=is_shared)
    inputs = {"z0": z0, "z1": z1, **dict(loss.named_parameters())}
    return {"value": value, **dict(zip(inputs, gradients(value, list(inputs.values())), strict=True))}


def value_of(loss: Loss, z0: Tensor, z1: Tensor, labels: Tensor, *, is_shared: bool) -> Tensor:
    """A call of number ``STEP`` of the loss across ranks, or of the loss itself."""
    if is_shared:
        return loss_across_ranks(loss, z0, z1, labels, STEP)
    return loss(z0, z1, labels, **({"step": STEP} if loss.draws_by_step else {}))


def gradients(value: Tensor, inputs: list[Tensor], *, create_graph: bool = False) -> list[Tensor]:
    """Zeros where nothing depends on an input."""
    if not value.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad(value, inputs, allow_unused=True, create_graph=create_graph)
    return [torch.zeros_like(x) if gradient is None else gradient for x, gradient in zip(inputs, found, strict=True)]


def curvature(name: str, rows: slice, *, is_shared: bool) -> dict[str, Tensor]:
    """The Hessian times a direction, by differentiating the gradient."""
    loss = CASES[name]().double()
    z0, z1 = (z[rows].clone().requires_grad_() for z in views())
    value = value_of(loss, z0, z1, LABELS[rows], is_shared=is_shared)
    first = gradients(value, [z0, z1], create_graph=True)
    along = sum((g * numbers(3 + i, N, D)[rows]).sum() for i, g in enumerate(first))
    return dict(zip(("z0", "z1"), gradients(torch.as_tensor(along), [z0, z1]), strict=True))


class Method(nn.Module):
    """Encoder and loss, wired as a training step has them."""

    def __init__(self, chunk_size: int | None, *, is_shared: bool) -> None:
        super().__init__()
        encoder = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, D)).double()
        with torch.no_grad():
            for seed, parameter in enumerate(encoder.parameters()):
                parameter.copy_(numbers(40 + seed, *parameter.shape))
        self.encoder = encoder if chunk_size is None else GradientCache(encoder, chunk_size)
        self.loss, self.is_shared = TwoWay().double(), is_shared

    def forward(self, x0: Tensor, x1: Tensor) -> Tensor:
        z0, z1 = self.encoder(torch.cat([x0, x1])).chunk(2)
        return loss_across_ranks(self.loss, z0, z1) if self.is_shared else self.loss(z0, z1)


def step_gradients(method: nn.Module, rows: slice) -> dict[str, Tensor]:
    method(numbers(5, N, 3)[rows], numbers(6, N, 3)[rows]).backward()
    found = {name: parameter.grad for name, parameter in method.named_parameters()}
    return {name.split(".")[-2] + name.split(".")[-1]: g for name, g in found.items() if g is not None}


def told(compute: Callable[..., dict[str, Tensor]], name: str, prefix: str) -> Result:
    """What is computed, or why it could not be."""
    try:
        rows = dist.own_rows(N // dist.world_size())
        return {f"{prefix}|{what}": tensor for what, tensor in compute(name, rows, is_shared=True).items()}
    except Exception as error:
        return {prefix: in_one_line(error)}


def in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def on_a_rank() -> Result:
    """Every case; one that raises does so on every rank."""
    result: Result = {}
    for name in CASES:
        result.update(told(curvature, name, f"{name}|curvature"))
        result.update(told(measured, name, f"{name}|"))
    for chunk_size in (None, 3):
        method = DistributedDataParallel(Method(chunk_size, is_shared=True))
        gradients_here = step_gradients(method, dist.own_rows(N // dist.world_size()))
        result.update({f"step {chunk_size}|{what}": gradient for what, gradient in gradients_here.items()})
    uneven = torch.zeros(2 if dist.rank() else 3, D)
    try:
        loss_across_ranks(TwoWay(), uneven, uneven)
    except ValueError as error:
        result["uneven"] = str(error)
    return result


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[RankResult]:
    return run_on_ranks(on_a_rank, request.param, tmp_path_factory.mktemp("ranks"))


# --- what one process computes, and the comparison


@cache
def expected(name: str) -> dict[str, Tensor]:
    return measured(name, slice(0, N), is_shared=False)


def errors(ranks: list[RankResult], prefix: str, expected: dict[str, Tensor]) -> dict[str, float]:
    """Relative error of each quantity: of the mean over ranks, or of the rows of all ranks."""
    found = {}
    for what, truth in expected.items():
        parts = [result.tensors[f"{prefix}|{what}"] for result in ranks]
        # The gradient at a sample is that of the sum over ranks: averaging over W is left to the parameters.
        whole = torch.cat(parts) / len(parts) if what in ("z0", "z1") else torch.stack(parts).mean(0)
        found[what] = relative_error(whole, truth)
    return found


def agrees(found: dict[str, float]) -> bool:
    return all(error <= LIMIT for error in found.values())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(39)
def test_every_loss_is_that_of_one_process(name: str, ranks: list[RankResult]) -> None:
    assert {result.texts.get(f"{name}|") for result in ranks} == {None}
    found = errors(ranks, f"{name}|", expected(name))
    assert {"value", "z0", "z1"} <= set(found)
    assert agrees(found), found


@pytest.mark.parametrize("name", CASES)
def test_the_hessian_of_every_loss_is_that_of_one_process(name: str, ranks: list[RankResult]) -> None:
    said = {result.texts.get(f"{name}|curvature") for result in ranks}
    if CASES[name]().card.second_derivative.startswith("none"):
        with pytest.raises(Exception) as refusal:  # noqa: PT011 - the same on every rank is what counts here
            curvature(name, slice(0, N), is_shared=False)
        assert said == {in_one_line(refusal.value)}
        return
    assert said == {None}
    found = errors(ranks, f"{name}|curvature", curvature(name, slice(0, N), is_shared=False))
    assert agrees(found), found


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_averaged_parameter_gradients_are_those_of_one_process(chunk_size: int | None, ranks: list[RankResult]) -> None:
    truth = step_gradients(Method(None, is_shared=False), slice(0, N))
    assert len(truth) == 5
    found = errors(ranks, f"step {chunk_size}", truth)
    assert agrees(found), found
    for result in ranks:  # averaged already: the same on every rank
        one = {what: relative_error(result.tensors[f"step {chunk_size}|{what}"], truth[what]) for what in truth}
        assert agrees(one), one


def test_the_mean_over_uneven_batches_is_refused_on_every_rank(ranks: list[RankResult]) -> None:
    sizes = ["3, 2", "3, 2, 2"][len(ranks) - 2]
    for result in ranks:
        refusal = result.texts.get("uneven", "")
        assert f"got {sizes} samples" in refusal
        assert "drop_last" in refusal
