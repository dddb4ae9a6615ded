"""AlphaCL against the paper's loops, Theorems 1 and 2, its memory and its derivatives."""

# N samples per view, D features

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from family_cases import KINDS
from loss_checks import assert_only_a_first_derivative, assert_parts_average_to_the_whole, draw_views, gradients
from torch import Tensor

from counterpoint.losses import InfoNCE, importance
from counterpoint.losses.alpha_rules import AlphaRule, Direct, Entropy, FixedInverse, InversePower, OwnRule, Square
from counterpoint.losses.importance import AlphaCL
from memory_watch import LargestResult
from oracles import alpha_rules_oracle as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

RULES: dict[str, tuple[AlphaRule, Callable[[list[float], float], list[float]]]] = {
    "entropy": (Entropy(0.5), lambda c, o: oracle.entropy(c, o, 0.5)),
    "entropy-epsilon": (Entropy(0.5, 0.3), lambda c, o: oracle.entropy(c, o, 0.5, 0.3)),
    "inverse-power": (InversePower(0.02, 2.0), lambda c, o: oracle.inverse_power(c, 0.02, 2.0)),
    "square": (Square(0.5), lambda c, o: oracle.square(c, 0.5)),
    "direct": (Direct(0.5, 4), lambda c, o: oracle.direct(c, 0.5, 4)),
    "direct-epsilon": (Direct(0.5, 4, 0.1), lambda c, o: oracle.direct(c, 0.5, 4, 0.1)),
    "direct-free": (Direct(0.5, 4, normalised=False), lambda c, o: oracle.direct_unnormalised(c, 0.5, 4)),
    "fixed-inverse": (FixedInverse(0.5), lambda c, o: oracle.fixed_inverse(c, 0.5, 1, 2)),
}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_rule = pytest.mark.parametrize("name", RULES)
each_normalize = pytest.mark.parametrize("normalize", [True, False], ids=["unit", "raw"])


def assert_is_the_papers(loss: AlphaCL, weights: Any, z0: Tensor, z1: Tensor, kind: str, *, normalize: bool) -> None:
    """Importance, value and gradient."""
    dtype = torch.float64 if z0.dtype == torch.float64 else torch.float32
    vectors = [*z0.tolist(), *z1.tolist()]
    alpha = oracle.importance(vectors, weights, kind, normalize)
    value = loss(z0, z1)
    assert value.dtype == dtype
    assert_numbers(loss.importance(z0, z1), alpha, dtype=dtype)
    assert_numbers([1.0, value.item()], [1.0, oracle.energy(vectors, alpha, kind, normalize).real], dtype=dtype)
    slopes = gradients(value, z0, z1).flatten(0, 1)
    assert_numbers(slopes, oracle.energy_gradient(vectors, alpha, kind, normalize), dtype=dtype)


@pytest.fixture
def tiny_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two anchors."""
    monkeypatch.setattr(importance, "BLOCK_PAIRS", 1)
    monkeypatch.setattr(importance, "MIN_BLOCK_ROWS", 2)


# --- the paper


@each_kind
@each_rule
@each_normalize
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.sampled(3)
def test_value_gradient_and_importance_are_the_papers(
    kind: Any, name: str, normalize: bool, dtype: torch.dtype
) -> None:
    rule, weights = RULES[name]
    z0, z1 = draw_views(4, dtype=dtype)
    assert_is_the_papers(AlphaCL(rule, kind, normalize), weights, z0, z1, kind, normalize=normalize)


# --- loss -> alpha -> loss


@each_kind
@each_normalize
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_theorem_1_the_alpha_of_a_loss_has_its_gradient(kind: Any, normalize: bool, epsilon: float) -> None:
    z0, z1 = draw_views(4)
    loss = InfoNCE(0.4, epsilon, negatives=kind, normalize=normalize)
    rule = OwnRule(lambda cost, own: loss.importance(z0, z1).detach())
    energy = AlphaCL(rule, kind, normalize)
    assert_close(gradients(energy(z0, z1), z0, z1), gradients(loss(z0, z1), z0, z1))
    assert_close(energy.importance(z0, z1), loss.importance(z0, z1))


@each_kind
@each_normalize
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_theorem_2_the_alpha_of_an_exponential_loss_is_the_entropy_rules(
    kind: Any, normalize: bool, epsilon: float
) -> None:
    """The paper's InfoNCE has a factor tau in front."""
    z0, z1 = draw_views(4)
    alpha = AlphaCL(Entropy(0.4, epsilon), kind, normalize).importance(z0, z1)
    assert_close(alpha, 0.4 * InfoNCE(0.4, epsilon, negatives=kind, normalize=normalize).importance(z0, z1))


# --- memory


@each_kind
@each_rule
@pytest.mark.parametrize("backpropagate", [False, True])
@pytest.mark.sampled(9)
def test_no_matrix_of_all_pairs_exists(
    kind: Any, name: str, backpropagate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importance, "BLOCK_PAIRS", 1)
    z0, z1 = draw_views(100, 4)
    largest = {}
    for stream in (True, False):
        loss = AlphaCL(RULES[name][0], kind, backpropagate_alpha=backpropagate, stream=stream)
        with LargestResult() as record:
            loss(z0, z1).backward()
        largest[stream] = record.num_elements
    assert largest[True] <= importance.MIN_BLOCK_ROWS * 200
    assert largest[False] >= 200 * 200  # the record does see such a matrix


def test_back_propagation_keeps_no_pairs_between_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "BLOCK_PAIRS", 1)
    z0, z1 = draw_views(100, 4)
    kept = {}
    for stream in (True, False):
        sizes: list[int] = []

        def record(saved: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(saved.numel())
            return saved

        with torch.autograd.graph.saved_tensors_hooks(record, lambda saved: saved):
            AlphaCL(Entropy(), backpropagate_alpha=True, stream=stream)(z0, z1)
        kept[stream] = sum(sizes)
    assert kept[True] < 200 * 200 < kept[False]


# --- derivatives


@pytest.mark.parametrize("rule", [Entropy(0.5), Square(0.5)], ids=str)
def test_held_alpha_has_no_second_derivative(rule: AlphaRule) -> None:
    refusal = r"no second derivative .* use AlphaCL\(\.\.\., backpropagate_alpha=True\)"
    assert_only_a_first_derivative(AlphaCL(rule), *draw_views(3), refusal)


@each_rule
@each_normalize
@pytest.mark.sampled(12)
def test_back_propagation_through_alpha_has_true_derivatives(name: str, normalize: bool) -> None:
    z0, z1 = draw_views(3, 2, seed=3)
    through, held = (AlphaCL(RULES[name][0], "two-view", normalize, backpropagate_alpha=b) for b in (True, False))
    assert torch.autograd.gradcheck(through, (z0, z1))
    assert torch.autograd.gradgradcheck(through, (z0, z1))
    assert_close(through(z0, z1), held(z0, z1))
    difference = gradients(through(z0, z1), z0, z1) - gradients(held(z0, z1), z0, z1)
    assert float(difference.abs().max()) > 1e-3


@each_kind
@pytest.mark.thorough
def test_recomputed_blocks_have_the_derivatives_of_the_matrix(kind: Any, tiny_blocks: None) -> None:
    z0, z1 = draw_views(3, 2)
    whole = AlphaCL(Entropy(0.5), kind, backpropagate_alpha=True, stream=False)
    blocks = AlphaCL(Entropy(0.5), kind, backpropagate_alpha=True, stream=True)
    assert_close(gradients(blocks(z0, z1), z0, z1), gradients(whole(z0, z1), z0, z1))
    assert torch.autograd.gradgradcheck(blocks, (z0, z1))


# --- parts


@pytest.mark.parametrize("stream", [True, False], ids=["blocks", "all-pairs"])
@pytest.mark.parametrize("num_parts", [2, 3])
def test_the_parts_of_several_processes_average_to_the_whole(num_parts: int, stream: bool) -> None:
    for kind in KINDS:
        assert_parts_average_to_the_whole(AlphaCL(Square(0.5), kind, stream=stream), *draw_views(6, 3), num_parts)


# --- edges


@each_kind
@each_rule
@each_normalize
def test_duplicates_keep_a_finite_gradient(kind: Any, name: str, normalize: bool) -> None:
    rows = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.2, 1.5]], dtype=torch.float64)
    rule, weights = RULES[name]
    z0, z1 = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    assert_is_the_papers(AlphaCL(rule, kind, normalize), weights, z0, z1, kind, normalize=normalize)
    through = AlphaCL(rule, kind, normalize, backpropagate_alpha=True)(z0, z1)
    assert bool(torch.isfinite(gradients(through, z0, z1)).all())


@pytest.mark.parametrize("normalize", [True, False])
def test_squared_distances_never_round_below_zero(normalize: bool) -> None:
    """Of 200 vectors equal to another, some have a cosine above 1; a broken power of it would be NaN."""
    z = torch.rand(200, 7, generator=torch.Generator().manual_seed(0))
    z = z[torch.arange(200) // 2]
    smallest: list[float] = []

    def record(cost: Tensor, own: Tensor) -> Tensor:
        smallest.extend([float(cost.min()), float(own.min())])
        return Direct(exponent=3)(cost, own)

    value = AlphaCL(OwnRule(record), normalize=normalize)(z, z)
    assert math.isfinite(float(value))
    assert smallest == [0.0, 0.0]


@each_kind
@each_rule
@pytest.mark.parametrize("backpropagate", [False, True])
def test_a_silent_row_has_cosine_zero_and_no_gradient(kind: Any, name: str, backpropagate: bool) -> None:
    z0, z1 = draw_views(4)
    with torch.no_grad():
        z0[1] = 0.0
        z1[2] = 0.0
    rule, weights = RULES[name]
    loss = AlphaCL(rule, kind, backpropagate_alpha=backpropagate)
    vectors = [*z0.tolist(), *z1.tolist()]
    alpha = oracle.importance(vectors, weights, kind, True)
    assert_numbers(loss(z0, z1), oracle.energy(vectors, alpha, kind, True).real)
    slopes = gradients(loss(z0, z1), z0, z1).flatten(0, 1)
    assert bool(torch.isfinite(slopes).all())
    assert [i for i in range(8) if not slopes[i].any()] == [1, 6]


@each_kind
@each_rule
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_long_raw_vectors(kind: Any, name: str, dtype: torch.dtype) -> None:
    """|z| near 1e3, whole numbers so that the oracle can tell; two of them lie close together."""
    z0 = torch.tensor([[617.0, -283.0], [-412.0, 903.0], [616.0, -283.0]], dtype=dtype, requires_grad=True)
    z1 = torch.tensor([[617.0, -284.0], [333.0, -699.0], [-58.0, -947.0]], dtype=dtype, requires_grad=True)
    rule, weights = RULES[name]
    assert_is_the_papers(AlphaCL(rule, kind, normalize=False), weights, z0, z1, kind, normalize=False)


# --- what a curve is read against


@each_kind
@each_rule
@pytest.mark.sampled(24)
@pytest.mark.thorough
def test_no_embedding_undercuts_the_floor(kind: Any, name: str) -> None:
    loss = AlphaCL(RULES[name][0], kind)
    generator = torch.Generator().manual_seed(7)
    for n in (2, 3, 5):
        centred = torch.eye(n, dtype=torch.float64) - 1 / n
        views = [torch.randn(2, n, d, generator=generator, dtype=torch.float64) for d in (1, 2, 5) for _ in range(4)]
        for z0, z1 in [*views, *((z, z) for z, _ in views), (centred, centred), (centred, -centred)]:
            assert float(loss(z0, z1)) >= loss.floor(n) - 1e-12
            assert float(loss(z0.relu(), z1.relu())) >= loss.floor(n, nonnegative=True) - 1e-12


@each_kind
@pytest.mark.parametrize("name", ["entropy", "inverse-power", "square", "direct", "fixed-inverse"])
def test_rules_on_the_simplex_attain_the_floor(kind: Any, name: str) -> None:
    loss = AlphaCL(RULES[name][0], kind)
    for n in (2, 3, 6):
        basis = torch.eye(n, dtype=torch.float64)
        assert_numbers(loss(basis - 1 / n, basis - 1 / n), loss.floor(n))
        assert_numbers(loss(basis, basis), loss.floor(n, nonnegative=True))
        assert_numbers([loss.floor(n), loss.floor(n, nonnegative=True)], [-n / (n - 1), -1.0])


def test_there_is_no_floor_for_long_vectors_and_unknown_rules() -> None:
    assert AlphaCL(Entropy(), normalize=False).floor(4) == -math.inf
    assert AlphaCL(OwnRule(Entropy())).floor(4) == -math.inf


# --- bad input


GOOD = torch.ones(4, 2)
build: Any = AlphaCL  # with arguments that its types refuse
BAD_SETTINGS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: build(negatives="all"), ValueError, r"negatives must be one of two-view, .*, got 'all'"),
    (lambda: AlphaCL(OwnRule(Entropy()), stream=True), ValueError, r"decides each row independently"),
    (lambda: build(lambda cost, own: cost), TypeError, r"rule must be a rule such as Entropy\(\).*got <function"),
    (lambda: build(Entropy), TypeError, r"rule must be a rule such as .*Entropy"),
    (lambda: AlphaCL().importance(GOOD[:1], GOOD[:1]), ValueError, r"z0 .*rows, got 1"),
    (lambda: AlphaCL(OwnRule(lambda cost, own: -own))(GOOD, GOOD), ValueError, r"alpha must be of the shape"),
]


@pytest.mark.parametrize(("ask", "error", "sentence"), BAD_SETTINGS)
def test_bad_input_is_named_with_a_remedy(ask: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        ask()


@pytest.mark.parametrize("backpropagate", [False, True])
def test_a_rule_that_overflows_is_named(backpropagate: bool) -> None:
    far = torch.tensor([[1e20, 0.0], [-1e20, 0.0], [0.0, 1e20]], dtype=torch.float64)
    loss = AlphaCL(Direct(exponent=20), normalize=False, backpropagate_alpha=backpropagate)
    with pytest.raises(ValueError, match=r"AlphaCL .*: its rule gives weights that are NaN or infinite"):
        loss(far, far)


def test_direct_is_the_released_code() -> None:
    """Loss type "dual2": w = exp(-(1 - cos)^a / tau), alpha = w / (sum w + eps (2n - 2)), mean of weighted gaps."""
    z0, z1 = draw_views(6)
    z = F.normalize(torch.cat([z0, z1]), dim=1)
    cosines = z @ z.T
    own = torch.arange(12) % 6
    weight = torch.exp(-((1 - cosines.detach()) ** 2) / 0.5).masked_fill(own[:, None] == own, 0.0)
    alpha = weight / (weight.sum(1, keepdim=True) + 0.1 * 10)
    released = (alpha * (cosines - cosines.diagonal(6).repeat(2)[:, None])).sum(1).mean()
    ours = AlphaCL(Direct(0.5, exponent=4, epsilon=0.1))(z0, z1)
    assert_close(ours, released)
    assert_close(gradients(ours, z0, z1), gradients(released, z0, z1))
