"""Fused programs under triton's interpreter, on the CPU. ``test_triton_pairs`` runs this in a process of its own."""

# N anchors, M keys, D features

import os
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import dense_derivatives
import pytest
import torch
from pair_cases import FUNCTIONS, KINDS, MASKS, as_lists, as_pairs, by_name, draw_weight, in_float64, make_scores

from counterpoint.kernels import dense, select
from counterpoint.kernels.contract import (
    EXPONENTIAL,
    SOFTPLUS,
    PairFunction,
    PairMask,
    PairScores,
    PerAnchor,
    ScoreTerms,
)
from counterpoint.kernels.differentiable import reduce
from counterpoint.kernels.triton import triton_launch, triton_pairs
from counterpoint.kernels.triton.triton_pairs import TritonPairs
from counterpoint.kernels.triton.triton_records import Shape
from counterpoint.losses import InfoNCE, Loss, inputs
from counterpoint.losses.family import SoftTriplet
from oracles import pair_reductions as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close, assert_low_precision, relative_error

assert os.environ.get("TRITON_INTERPRET") == "1", "to be run by test_triton_pairs.py"

KERNEL = TritonPairs()
PLACES = ["registers", "slabs"]

each_kind = pytest.mark.parametrize("kind", KINDS)
each_psi = pytest.mark.parametrize("psi", FUNCTIONS.values(), ids=lambda psi: psi.name)
each_place = pytest.mark.parametrize("place", PLACES)


@pytest.fixture
def small_shapes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tiles of 32 by 16, features 16 at a time, slabs of two by two tiles; float64 in registers too, if asked."""
    place = request.getfixturevalue("place")
    monkeypatch.setattr(triton_pairs, "holds_gradient", lambda *_: place == "registers")
    monkeypatch.setattr(triton_pairs, "gradient_shape", lambda *_: Shape(32, 16, 16, 1, 1))
    monkeypatch.setattr(triton_pairs, "product_shape", lambda *_: Shape(32, 16, 16, 1, 1))
    monkeypatch.setattr(triton_launch.SlabSums, "_slab_size", lambda _: (32, 64))
    return iter([None])


def draw(
    n: int, m: int, d: int, *, kind: str = "self", seed: int = 0, dtype: torch.dtype = torch.float64
) -> PairScores:
    """Random scores with biases; self and one other are left out."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    m = n if kind == "self" else m
    sizes = (n, m, m, n)[: 4 if kind == "two-way" else 2]
    biases = [numbers(size) for size in sizes] + [None] * (4 - len(sizes))
    keys = None if kind == "self" else numbers(m, d) / d**0.5
    terms = ScoreTerms(numbers(n, d) / d**0.5, keys, torch.tensor(1.3, dtype=dtype), *biases)
    own = torch.arange(n)
    other = own ^ 1  # pairs neighbours, as two views of a sample
    other = torch.where(other < m, other, -1)
    excluded = torch.stack([torch.where(own < m, own, -1), other], 1)
    return PairScores(terms, PairMask(excluded, is_ragged=True), kind == "two-way")


def positive_weight(scores: PairScores) -> PerAnchor:
    """Weights of one sign: sums that cancel say little in float32."""
    weight = draw_weight(scores)
    return PerAnchor(*(None if part is None else 0.5 + part.abs() for part in (weight.rows_N, weight.columns_M)))  # pyright: ignore[reportArgumentType]


def assert_all_close(ours: Any, theirs: Any, *, dtype: torch.dtype | None = None) -> None:
    """Every field of two records."""
    for field in fields(ours):
        actual, truth = getattr(ours, field.name), getattr(theirs, field.name)
        assert (actual is None) == (truth is None), field.name
        if actual is not None:
            assert_close(actual, truth, dtype=dtype)


def assert_equals_dense(scores: PairScores, psi: PairFunction) -> None:
    """Statistic and gradient."""
    statistic, weight = KERNEL.reduce(scores, psi), positive_weight(scores)
    assert_all_close(statistic, dense.reduce(scores, psi))
    assert_all_close(
        KERNEL.gradient(scores, psi, statistic, weight), dense_derivatives.gradient(scores, psi, statistic, weight)
    )


@each_psi
@each_kind
@pytest.mark.parametrize(
    ("place", "mask"),
    [
        *(("registers", mask) for mask in MASKS if mask not in ("same-label", "other-label-excluded")),
        ("slabs", "ragged"),
    ],
)
@pytest.mark.usefixtures("small_shapes")
def test_statistic_and_gradient_are_the_definition(psi: PairFunction, kind: str, place: str, mask: str) -> None:
    scores = make_scores(kind, mask, has_biases=mask != "excluded")
    weight, pairs = draw_weight(scores), as_pairs(scores)
    statistic = KERNEL.reduce(scores, psi)
    for ours, theirs in zip(as_lists(statistic), oracle.statistics(pairs, oracle.PSI[psi.name]), strict=True):
        assert_numbers(torch.tensor(ours, dtype=torch.float64), [complex(r).real for r in theirs])
    theirs = oracle.gradient(pairs, oracle.PSI[psi.name], as_lists(weight))
    for name, ours in by_name(KERNEL.gradient(scores, psi, statistic, weight)).items():
        assert_close(ours, torch.tensor(theirs[name], dtype=torch.complex128).real)


@each_kind
@each_place
@pytest.mark.usefixtures("small_shapes")
@pytest.mark.parametrize(("psi", "n", "m"), [(EXPONENTIAL, 37, 70)], ids=["exp"])
def test_many_tiles_spans_and_chunks(psi: PairFunction, kind: str, place: str, n: int, m: int) -> None:
    assert_equals_dense(draw(n, m, 35, kind=kind), psi)


@pytest.mark.parametrize("kind", ["self", "two-way"])
@each_place
@pytest.mark.usefixtures("small_shapes")
@pytest.mark.parametrize("scale", [3.0, 3000.0], ids=["close", "far"])
def test_scores_that_lie_close_together_and_others(kind: str, place: str, scale: float) -> None:
    """Without biases their bound is known; far apart, one exponential cannot serve both readings."""
    scores = draw(70, 90, 20, kind=kind)
    terms = ScoreTerms(scores.terms.anchors_ND, scores.terms.keys_MD, torch.tensor(scale, dtype=torch.float64))
    assert_equals_dense(replace(scores, terms=terms), EXPONENTIAL)


@pytest.mark.parametrize("kind", ["self", "two-way"])
def test_weights_of_any_size_have_a_gradient(kind: str) -> None:
    scores = draw(40, 50, 8, kind=kind, dtype=torch.float32)
    anchors, keys = (8 * torch.nn.functional.normalize(v) for v in (scores.terms.anchors_ND, scores.keys_MD))
    terms = ScoreTerms(anchors, None if scores.terms.keys_MD is None else keys, torch.tensor(0.6))
    scores = replace(scores, terms=terms)
    statistic, weight = KERNEL.reduce(scores, EXPONENTIAL), positive_weight(scores)
    huge = PerAnchor(*(None if part is None else 1e25 * part for part in (weight.rows_N, weight.columns_M)))  # pyright: ignore[reportArgumentType]
    ours, theirs = (KERNEL.gradient(scores, EXPONENTIAL, statistic, w).anchors_ND for w in (huge, weight))
    assert_close(ours / 1e25, theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_loss_of_half_precision_takes_the_half_precision_program(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select, "PROGRAM_DEVICES", ("cpu",))
    monkeypatch.setattr(select, "DENSE_PAIRS", 0)
    z0, z1 = (torch.randn(40, 24, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (0, 1))
    loss = InfoNCE(0.2, negatives="cross-view")
    with select.recording() as choices:
        value, gradient = with_gradient(loss, z0, z1)
        with_gradient(loss, z0.float(), z1.float())
    assert [choice.name for choice in choices] == [select.FUSED_HALF[dtype], "triton"]
    assert dtype in products_of(choices[0].name, z0)
    exact_value, exact = with_gradient(loss, z0.double(), z1.double())
    low_value, low = with_gradient(dense_infonce, z0, z1)
    assert_low_precision(value.reshape(1), low_value.reshape(1), exact_value.reshape(1))
    assert_low_precision(gradient, low, exact)


def with_gradient(loss: Any, z0: torch.Tensor, z1: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    z0, z1 = z0.clone().requires_grad_(), z1.clone().requires_grad_()
    value = loss(z0, z1)
    return value.detach(), torch.cat(torch.autograd.grad(value, (z0, z1)))


def dense_infonce(z0: torch.Tensor, z1: torch.Tensor) -> torch.Tensor:
    """Cross-view InfoNCE in the precision of its inputs: the positive is in the denominator."""
    logits = torch.nn.functional.normalize(z0) @ torch.nn.functional.normalize(z1).T / 0.2
    target = torch.arange(len(z0))
    entropy = torch.nn.functional.cross_entropy
    return (entropy(logits, target) + entropy(logits.T, target)) / 2


def products_of(name: str, z_ND: torch.Tensor) -> list[torch.dtype]:
    """Dtype of the vectors that a kernel of the catalogue multiplies, for lifted inputs."""
    scores = PairScores(ScoreTerms(z_ND.float(), None, torch.ones(())))
    return [select.CATALOGUE[name]._dtype(scores)]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading waits, and programs run where the interpreter runs them."""
    monkeypatch.setattr(select, "PROGRAM_DEVICES", ("cpu",))
    monkeypatch.setattr(inputs, "READS_ARE_FREE", ())


def draw_views(dtype: torch.dtype) -> list[torch.Tensor]:
    z = torch.randn(2, 37, 20, generator=torch.Generator().manual_seed(3))
    return [z[0].to(dtype), (z[0] + 0.5 * z[1]).to(dtype)]


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("loss", [InfoNCE(0.5), InfoNCE(0.01), SoftTriplet(0.2, 0.3)], ids=lambda loss: loss.card.name)
def test_two_views_in_one_operation_are_the_general_route(loss: Loss) -> None:
    z0, z1 = draw_views(torch.float32)
    with select.recording() as choices:
        ours = with_gradient(loss, z0, z1)
    assert [choice.reason.partition(",")[0] for choice in choices] == ["two views"]
    for actual, expected in zip(ours, with_gradient(loss, z0.double(), z1.double()), strict=True):
        assert_close(actual, expected, dtype=torch.float32)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_two_views_in_half_precision_err_no_more_than_the_dense_operation(dtype: torch.dtype) -> None:
    z0, z1 = draw_views(dtype)
    exact = with_gradient(InfoNCE(0.2), z0.double(), z1.double())
    ours, low = with_gradient(InfoNCE(0.2), z0, z1), with_gradient(dense_nt_xent, z0, z1)
    for actual, dense_one, expected in zip(ours, low, exact, strict=True):
        assert_low_precision(actual.view(-1), dense_one.view(-1), expected.view(-1))


def dense_nt_xent(z0: torch.Tensor, z1: torch.Tensor) -> torch.Tensor:
    """Two-view InfoNCE in the precision of its inputs."""
    z = torch.nn.functional.normalize(torch.cat([z0, z1]))
    logits = (z @ z.T / 0.2).fill_diagonal_(-torch.inf)
    return torch.nn.functional.cross_entropy(logits, torch.arange(len(z)).roll(len(z0)))


@pytest.mark.usefixtures("as_on_a_gpu")
def test_unusual_rows_and_second_derivatives_take_the_general_route() -> None:
    z0, z1 = draw_views(torch.float32)
    for length in (0.0, 1e-30, 1e30):
        z0[5] *= length / z0[5].norm()
        value, gradient = with_gradient(InfoNCE(), z0, z1)
        assert_close(value, with_gradient(InfoNCE(), z0.double(), z1.double())[0], dtype=torch.float32)
        assert bool(torch.isfinite(gradient).all())
        z0, z1 = draw_views(torch.float32)
    z0[5] = torch.nan
    with pytest.raises(ValueError, match="row 5"):
        InfoNCE()(z0, z1)

    def hessian_product(z0: torch.Tensor, z1: torch.Tensor) -> torch.Tensor:
        z0 = z0.clone().requires_grad_()
        (slope,) = torch.autograd.grad(InfoNCE()(z0, z1), z0, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), z0)[0]

    z0, z1 = draw_views(torch.float32)
    assert_close(hessian_product(z0, z1), hessian_product(z0.double(), z1.double()), dtype=torch.float32)


@pytest.mark.parametrize("kind", ["self", "two-way"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_features", [24, 300])
def test_half_precision_errs_no_more_than_the_dense_operation(kind: str, dtype: torch.dtype, num_features: int) -> None:
    scores = draw(50, 40, num_features, kind=kind, dtype=dtype)
    weight, exact = positive_weight(scores), in_float64(scores)
    statistic, low = KERNEL.reduce(scores, EXPONENTIAL), dense.reduce(scores, EXPONENTIAL)
    truth = dense.reduce(exact, EXPONENTIAL)
    assert statistic.rows_N.dtype == torch.float32
    assert_low_precision(statistic.rows_N, low.rows_N, truth.rows_N)
    ours = KERNEL.gradient(scores, EXPONENTIAL, statistic, weight)
    theirs = dense_derivatives.gradient(scores, EXPONENTIAL, low, weight)
    truth = dense_derivatives.gradient(exact, EXPONENTIAL, truth, in_float64(weight))
    for name, value in by_name(ours).items():
        assert value.dtype == dtype
        if value.ndim == 2:
            assert_low_precision(value, by_name(theirs)[name], by_name(truth)[name])


def test_float16_weights_below_its_smallest_number_are_not_lost() -> None:
    scores = draw(40, 30, 8, kind="two-way", dtype=torch.float16)
    scores = replace(scores, terms=widened(scores.terms))  # scale and biases, and so their gradients, in float32
    statistic, weight = KERNEL.reduce(scores, EXPONENTIAL), PerAnchor(torch.ones(40), torch.full((30,), 2.0))
    tiny = PerAnchor(*(1e-9 * part for part in (weight.rows_N, weight.columns_M) if part is not None))
    small, large = (by_name(KERNEL.gradient(scores, EXPONENTIAL, statistic, w)) for w in (tiny, weight))
    for name in ("scale", "row_own", "row_other", "column_own", "column_other"):
        assert_close(1e9 * small[name], large[name])


def test_anchors_without_keys_and_empty_sides() -> None:
    kernel = KERNEL
    scores = draw(20, 2, 4, kind="one-way", dtype=torch.float32)
    scores = replace(scores, mask=PairMask(torch.tensor([[0, 1], [-1, 1]]).repeat(10, 1), is_ragged=True))
    statistic = kernel.reduce(scores, EXPONENTIAL)
    assert bool((statistic.rows_N[::2] == float("-inf")).all())
    weight = PerAnchor(torch.ones(20))
    gradient = kernel.gradient(scores, EXPONENTIAL, statistic, weight)
    assert bool((gradient.anchors_ND[::2] == 0).all())
    assert_all_close(gradient, dense_without(scores, weight))
    nobody = PairScores(ScoreTerms(torch.zeros(3, 4), torch.zeros(0, 4), torch.ones(())))
    statistic = kernel.reduce(nobody, EXPONENTIAL)
    assert statistic.rows_N.tolist() == [float("-inf")] * 3
    assert not kernel.gradient(nobody, EXPONENTIAL, statistic, PerAnchor(torch.ones(3))).anchors_ND.any()


def dense_without(scores: PairScores, weight: PerAnchor) -> ScoreTerms:
    """The dense gradient of the anchors that have a key, zeros for the others; only key 0 is left."""
    terms, kept = scores.terms, slice(1, None, 2)
    part = PairScores(
        ScoreTerms(terms.anchors_ND[kept], terms.keys_MD, terms.scale, terms.row_own_N[kept], terms.row_other_M),  # pyright: ignore[reportOptionalSubscript]
        PairMask(torch.ones(10, 1, dtype=torch.int64)),
    )
    some = dense_derivatives.gradient(
        part, EXPONENTIAL, dense.reduce(part, EXPONENTIAL), PerAnchor(weight.rows_N[kept])
    )
    anchors, own = torch.zeros_like(terms.anchors_ND), torch.zeros_like(weight.rows_N)
    assert some.row_own_N is not None
    anchors[kept], own[kept] = some.anchors_ND, some.row_own_N
    return replace(some, anchors_ND=anchors, row_own_N=own)


def test_softplus_keeps_its_relative_precision_where_it_is_small() -> None:
    u = torch.linspace(-60.0, 3.0, 64)
    scores = PairScores(ScoreTerms(torch.zeros(64, 1), torch.zeros(1, 1), torch.ones(()), row_own_N=u))
    ours, truth = KERNEL.reduce(scores, SOFTPLUS).rows_N.double(), torch.log1p(torch.exp(u.double()))
    assert_close((ours / truth).float(), torch.ones(64))
    slope = KERNEL.gradient(scores, SOFTPLUS, PerAnchor(u), PerAnchor(torch.ones(64))).row_own_N
    assert slope is not None
    assert_close((slope.double() / torch.sigmoid(u.double())).float(), torch.ones(64))


@each_kind
def test_two_derivatives_under_autograd(kind: str) -> None:
    scores = draw(18, 20, 5, kind=kind)
    given = [None if term is None else term.clone().requires_grad_() for term in scores.terms.flat()]
    there = [term for term in given if term is not None]

    def second_derivative(kernel: Any) -> tuple[torch.Tensor, ...]:
        result = reduce(replace(scores, terms=ScoreTerms(*given)), EXPONENTIAL, kernel)  # pyright: ignore[reportArgumentType]
        value = result.rows_N.square().sum() + (0.0 if result.columns_M is None else result.columns_M.sin().sum())
        gradient = torch.autograd.grad(value, there, create_graph=True)
        return (*gradient, *torch.autograd.grad(sum(part.square().sum() for part in gradient), there))  # pyright: ignore[reportArgumentType, reportCallIssue]

    for ours, theirs in zip(second_derivative(TritonPairs()), second_derivative(dense), strict=True):
        assert_close(ours, theirs)


def widened(terms: ScoreTerms) -> ScoreTerms:
    """Half-precision vectors, all else in float32."""
    given = {n: v.float() for n, v in vars(terms).items() if v is not None and n not in ("anchors_ND", "keys_MD")}
    return replace(terms, **given)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_float16_gradients_of_a_small_loss_are_not_lost() -> None:
    z = torch.randn(2, 37, 20, generator=torch.Generator().manual_seed(3))
    views = [z[0].half(), (z[0] + 0.01 * z[1]).half()]

    def slopes(z0: torch.Tensor, z1: torch.Tensor) -> torch.Tensor:
        z0 = z0.clone().requires_grad_()
        value = InfoNCE(0.03)(z0, z1)
        return torch.autograd.grad(value, z0, torch.full_like(value, 2.0**24))[0]  # as a scaler of gradients has it

    exact = slopes(*(view.double() for view in views))
    # A cosine is rounded by half a place, and divided by the temperature.
    assert relative_error(slopes(*views), exact) <= torch.finfo(torch.float16).eps / 2 / 0.03
