"""The reduction under autograd: two derivatives in every mode, in every term, and a word where a third is asked."""

# N anchors, M keys, D features

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from pair_cases import FUNCTIONS, KINDS, draw_weight, flat, inputs_of, make_scores, small_tiles, with_terms
from torch import Tensor

import derivatives
from counterpoint.kernels import dense
from counterpoint.kernels.contract import EXPONENTIAL, HINGE, IDENTITY, SOFTPLUS, PairFunction, PairScores
from counterpoint.kernels.cpu import tiled
from counterpoint.kernels.differentiable import reduce
from counterpoint.kernels.select import CATALOGUE, use
from tolerances import assert_close, relative_error

HESSIAN_LIMIT = 1e-9  # the bound for Hessian-vector products in float64
SMOOTH = [f for f in FUNCTIONS.values() if f is not HINGE]

each_kind = pytest.mark.parametrize("kind", KINDS)
each_psi = pytest.mark.parametrize("psi", FUNCTIONS.values(), ids=lambda psi: psi.name)
each_smooth_psi = pytest.mark.parametrize("psi", SMOOTH, ids=lambda psi: psi.name)
has_biases = pytest.mark.parametrize("has_biases", [False, True], ids=["plain", "biased"])


def total(scores: PairScores, psi: PairFunction, kernel: Any) -> Callable[..., Tensor]:
    """A curved function of all statistics, of the terms that are there."""
    weight = draw_weight(scores)

    def function(*given: Tensor) -> Tensor:
        with small_tiles():
            result = reduce(with_terms(scores, given), psi, kernel)
        value = (weight.rows_N * result.rows_N).sum() + 0.1 * result.rows_N.square().sum()
        if result.columns_M is None or weight.columns_M is None:
            return value
        return value + (weight.columns_M * result.columns_M).sin().sum()

    return function


@pytest.fixture(autouse=True)
def _tiles_of_three() -> Any:
    """Backward runs after forward has returned: tiles are small throughout."""
    with small_tiles():
        yield


@each_kind
@has_biases
@each_psi
@pytest.mark.sampled(12)
def test_hessian_vector_products_are_those_of_the_dense_hessian(kind: str, has_biases: bool, psi: PairFunction) -> None:
    """Reverse over reverse and forward over reverse, through tiles, against autograd through the whole matrix."""
    scores = make_scores(kind, "excluded", has_biases=has_biases)
    inputs = inputs_of(scores)
    rows = torch.autograd.functional.hessian(total(scores, psi, dense), inputs)
    hessian = torch.cat(
        [torch.cat([b.reshape(a.numel(), -1) for b in row], 1) for a, row in zip(inputs, rows, strict=True)]
    )
    moves = tuple(torch.randn(x.shape, generator=torch.Generator().manual_seed(3), dtype=x.dtype) for x in inputs)
    expected, function = hessian @ flat(moves), total(scores, psi, tiled)
    products = [f(function, inputs, moves)[1] for f in (torch.autograd.functional.hvp, torch.autograd.functional.vhp)]
    primals = tuple(x.detach() for x in inputs)
    gradient = torch.func.grad(function, argnums=tuple(range(len(inputs))))
    products.append(torch.func.jvp(gradient, primals, moves)[1])
    for product in products:
        assert relative_error(flat(product), expected) < HESSIAN_LIMIT
    assert float(expected.abs().max()) > 1e-3


@pytest.mark.parametrize(("kind", "psi"), [("self", SOFTPLUS), ("two-way", EXPONENTIAL)])
@pytest.mark.thorough
def test_transforms_of_functions_agree_with_plain_autograd(kind: str, psi: PairFunction) -> None:
    scores = make_scores(kind, "ragged", has_biases=True)
    anchors, *others = inputs_of(scores)
    others = [x.detach() for x in others]
    x = anchors.detach()

    def function(kernel: Any) -> Callable[[Tensor], Tensor]:
        of_all = total(scores, psi, kernel)
        return lambda a: of_all(a, *others)

    ours, plain = function(tiled), function(dense)
    gradient = derivatives.jacobian(plain, x)
    hessian = derivatives.hessian(plain, x)
    for transform in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd):
        assert_close(transform(ours)(x), gradient)
    for second in (
        torch.func.hessian,
        lambda f: torch.func.jacrev(torch.func.grad(f)),
        lambda f: torch.func.jacfwd(torch.func.grad(f)),
        lambda f: torch.func.jacrev(torch.func.jacfwd(f)),
    ):
        assert relative_error(second(ours)(x), hessian) < HESSIAN_LIMIT
    batch = torch.stack([x, 2 * x, -x])
    assert_close(torch.func.vmap(ours)(batch), torch.stack([plain(b) for b in batch]))
    slopes = torch.stack([derivatives.jacobian(plain, b) for b in batch])
    assert_close(torch.func.vmap(torch.func.grad(ours))(batch), slopes)


def third(function: Callable[[Tensor], Tensor], x: Tensor, v: Tensor) -> Tensor:
    """Derivative of <v, Hv>, reverse three times."""
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(function(x), x, create_graph=True)
    (curve,) = torch.autograd.grad((slope * v).sum(), x, create_graph=True)
    return torch.autograd.grad((curve * v).sum(), x)[0]


@each_kind
@each_smooth_psi
@pytest.mark.sampled(3)
def test_a_third_derivative_is_true_on_dense_and_refused_on_tiled(kind: str, psi: PairFunction) -> None:
    scores = make_scores(kind, "ragged", has_biases=True)
    anchors, *others = (x.detach() for x in inputs_of(scores))
    v = torch.randn(anchors.shape, generator=torch.Generator().manual_seed(4), dtype=anchors.dtype)
    functions = [lambda a, kernel=kernel: total(scores, psi, kernel)(a, *others) for kernel in (dense, tiled)]
    hessians = [derivatives.hvp(functions[0], anchors + s * v, v) for s in (1e-4, -1e-4)]
    assert relative_error(third(functions[0], anchors, v), (hessians[0] - hessians[1]) / 2e-4) < 1e-5
    with pytest.raises(RuntimeError, match=r"a third derivative of a pairwise loss needs every pair at once.*'dense'"):
        third(functions[1], anchors, v)
    with pytest.raises(RuntimeError, match="third derivative"):
        torch.func.jvp(lambda a: torch.func.jvp(torch.func.grad(functions[1]), (a,), (v,))[1], (anchors,), (v,))
    with pytest.raises(RuntimeError, match="third derivative"):
        torch.func.grad(lambda a: (torch.func.jvp(torch.func.grad(functions[1]), (a,), (v,))[1] * v).sum())(anchors)


def test_the_kernel_of_forward_is_that_of_backward() -> None:
    """``use`` counts where the loss is called, not where its gradient is taken."""
    scores = make_scores("self", "excluded", has_biases=False)
    x = scores.terms.anchors_ND.clone().requires_grad_()
    with use("tiled"):
        value = reduce(replace(scores, terms=replace(scores.terms, anchors_ND=x)), EXPONENTIAL).rows_N.sum()
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    with use("dense"):
        (curve,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="third derivative"):
            torch.autograd.grad(curve.square().sum(), x)


def test_a_linear_psi_is_differentiated_through_sums_of_vectors() -> None:
    for kind in KINDS:
        scores = make_scores(kind, "excluded", has_biases=True)
        inputs = inputs_of(scores)
        ours, expected = (total(scores, IDENTITY, CATALOGUE[name]) for name in ("linear", "dense"))
        assert_close(*(flat(torch.autograd.grad(f(*inputs), inputs)) for f in (ours, expected)))
        assert torch.autograd.gradgradcheck(ours, inputs, check_fwd_over_rev=True, fast_mode=True)
