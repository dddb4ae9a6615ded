"""Totals of plain sums in one pass: value and every derivative as by the reduction itself."""

# N anchors, M keys, D features

from collections.abc import Callable, Iterator

import pytest
import torch
from pair_cases import FUNCTIONS, KINDS, MASKS, flat, inputs_of, make_scores, small_tiles, with_terms
from torch import Tensor

import derivatives
from counterpoint.kernels import dense
from counterpoint.kernels.contract import EXPONENTIAL, HINGE, PairFunction, PairScores
from counterpoint.kernels.cpu import tiled
from counterpoint.kernels.cpu.one_operation import reduce_total
from counterpoint.kernels.differentiable import reduce
from counterpoint.kernels.select import use
from tolerances import assert_close, relative_error

HESSIAN_LIMIT = 1e-9
WEIGHT = -0.3
PLAIN = [f for f in FUNCTIONS.values() if f is not EXPONENTIAL]

each_kind = pytest.mark.parametrize("kind", KINDS)
each_psi = pytest.mark.parametrize("psi", PLAIN, ids=lambda psi: psi.name)
each_smooth_psi = pytest.mark.parametrize("psi", [f for f in PLAIN if f is not HINGE], ids=lambda psi: psi.name)


@pytest.fixture(autouse=True)
def _tiled_by_three() -> Iterator[None]:
    with use("tiled"), small_tiles():
        yield


def in_one_pass(scores: PairScores, psi: PairFunction) -> Callable[..., Tensor]:
    """Not linear in the total, so that what comes from above matters."""
    return lambda *given: (0.1 * reduce_total(with_terms(scores, given), psi, WEIGHT)).sin()


def by_matrix(scores: PairScores, psi: PairFunction) -> Callable[..., Tensor]:
    def function(*given: Tensor) -> Tensor:
        result = reduce(with_terms(scores, given), psi, dense)
        total = result.rows_N.sum() + (0.0 if result.columns_M is None else result.columns_M.sum())
        return (0.1 * WEIGHT * total).sin()

    return function


@each_kind
@each_psi
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.sampled(3)
def test_value_and_gradient_are_those_of_the_whole_matrix(kind: str, psi: PairFunction, mask: str) -> None:
    for has_biases in (False, True):
        scores = make_scores(kind, mask, has_biases=has_biases)
        inputs = inputs_of(scores)
        ours, theirs = (f(*inputs) for f in (in_one_pass(scores, psi), by_matrix(scores, psi)))
        assert_close(ours, theirs)
        assert_close(*(flat(torch.autograd.grad(value, inputs)) for value in (ours, theirs)))


@each_kind
@each_smooth_psi
@pytest.mark.sampled(18)
def test_transforms_and_hessians_are_those_of_the_whole_matrix(kind: str, psi: PairFunction) -> None:
    scores = make_scores(kind, "excluded", has_biases=True)
    anchors, *others = (x.detach() for x in inputs_of(scores))

    def ours(a: Tensor) -> Tensor:
        return in_one_pass(scores, psi)(a, *others)

    def theirs(a: Tensor) -> Tensor:
        return by_matrix(scores, psi)(a, *others)

    gradient = derivatives.jacobian(theirs, anchors)
    hessian = derivatives.hessian(theirs, anchors)
    for transform in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd):
        assert_close(transform(ours)(anchors), gradient)
    for second in (torch.func.hessian, lambda f: torch.func.jacrev(torch.func.grad(f))):
        assert relative_error(second(ours)(anchors), hessian) < HESSIAN_LIMIT
    v = torch.randn(anchors.shape, generator=torch.Generator().manual_seed(8), dtype=anchors.dtype)
    product = torch.einsum("abcd,cd->ab", hessian, v)
    for multiply in (derivatives.hvp, derivatives.vhp):
        assert relative_error(multiply(ours, anchors, v), product) < HESSIAN_LIMIT
    assert relative_error(torch.func.jvp(torch.func.grad(ours), (anchors,), (v,))[1], product) < HESSIAN_LIMIT
    batch = torch.stack([anchors, -anchors])
    expected = torch.stack([derivatives.jacobian(theirs, a) for a in batch])
    assert_close(torch.func.vmap(torch.func.grad(ours))(batch), expected)


def test_each_tile_is_computed_once_for_value_and_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The point of it: backward reads what forward kept."""
    calls = []
    for name in ("reduce", "gradient", "total_and_gradient"):
        original = getattr(tiled, name)
        monkeypatch.setattr(
            tiled, name, lambda *args, name=name, original=original: calls.append(name) or original(*args)
        )
    scores = make_scores("self", "excluded", has_biases=False)
    inputs = inputs_of(scores)
    torch.autograd.grad(reduce_total(with_terms(scores, inputs), FUNCTIONS["softplus"], 1.0), inputs)
    assert calls == ["total_and_gradient"]
