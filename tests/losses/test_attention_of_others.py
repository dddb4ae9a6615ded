"""Attention of the losses beyond the family: the entropy of their own importance, in memory of fewer than all pairs."""

# N samples per view, A anchors

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from labelled_checks import LABELS
from memory_watch import LargestResult
from streamed_checks import KERNELS, on_kernel
from test_attention import draw_views, entropies
from torch import Tensor

from counterpoint.losses import alpha_energy, drawn_negatives
from counterpoint.losses.alpha_rules import RULES, AlphaRule
from counterpoint.losses.attention import Attention
from counterpoint.losses.bimodal import CrossModal
from counterpoint.losses.binary import MIOv1, MIOv2, MIOv3
from counterpoint.losses.blocks import NEGATIVES
from counterpoint.losses.family import SoftTriplet
from counterpoint.losses.imbalanced import LENGTHS, GeneralizedContrastive
from counterpoint.losses.importance import AlphaCL, OwnRule
from counterpoint.losses.infonce import DCLW, InfoNCE
from counterpoint.losses.sigmoid_pair import SigmoidPair
from counterpoint.losses.supervised import MultiPositive, SupCon
from counterpoint.losses.wrappers import HardNegatives
from oracles.number_checks import assert_numbers

each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_normalize = pytest.mark.parametrize("normalize", [True, False], ids=["unit", "raw"])
each_labels = pytest.mark.parametrize("name", LABELS)
MIO = {"v1": MIOv1, "v2": MIOv2, "v3": MIOv3}
STREAMED: dict[str, Callable[[], Any]] = {
    "alpha-cl": AlphaCL,
    "mio-v1": MIOv1,
    "mio-v3": MIOv3,
    "sigmoid": SigmoidPair,
    "dclw": DCLW,
    "cross-modal": CrossModal,
    "supcon": SupCon,
    "multi-positive": MultiPositive,
    "generalized": GeneralizedContrastive,
    "generalized-drawn": lambda: GeneralizedContrastive(3),
    "hard": lambda: HardNegatives(InfoNCE()),
}


def labels_of(name: str) -> Tensor | None:
    """Labels of five samples."""
    return None if LABELS[name] is None else torch.tensor(LABELS[name])


def assert_entropies(attention: Attention, alpha: Tensor, *, dtype: torch.dtype = torch.float64) -> None:
    """Attention says what the plain loops make of an importance, and never rounds below 0."""
    assert_numbers(attention.entropy_A, entropies(alpha), dtype=dtype)
    assert_numbers(attention.effective_negatives_A, [math.exp(h) for h in entropies(alpha)], dtype=dtype)
    assert attention.entropy_A.dtype == torch.float64
    assert bool((attention.entropy_A[~attention.entropy_A.isnan()] >= 0).all())


# --- agreement with importance


@each_normalize
@pytest.mark.parametrize("negatives", NEGATIVES)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("stream", [True, False])
def test_alpha_rules(name: str, negatives: Any, normalize: bool, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alpha_energy, "BLOCK_PAIRS", 1)
    monkeypatch.setattr(alpha_energy, "MIN_BLOCK_ROWS", 4)
    loss = AlphaCL(RULES[name](), negatives, normalize, stream=stream)
    views = draw_views()
    attention = loss.attention(*views)
    assert_entropies(attention, loss.importance(*views))
    assert attention.num_negatives == (10 if negatives == "two-view" else 5)


@each_kernel
@each_normalize
@pytest.mark.parametrize("version", MIO)
def test_mio(kernel: str, version: str, normalize: bool) -> None:
    loss, views = MIO[version](normalize=normalize), draw_views()
    with on_kernel(kernel):
        assert_entropies(loss.attention(*views), loss.importance(*views))


@each_kernel
@each_normalize
@pytest.mark.parametrize("bias", [-10.0, 0.0, 3.0])
@pytest.mark.parametrize("learnable", [True, False])
def test_sigmoid_has_first_view_anchors(kernel: str, normalize: bool, bias: float, learnable: bool) -> None:
    loss, views = SigmoidPair(3.0, bias, learnable, normalize=normalize), draw_views()
    alpha = loss.importance(*views)
    with on_kernel(kernel):
        assert_entropies(loss.attention(*views), alpha[:6])
    assert bool((alpha[6:] == 0).all())


@each_kernel
def test_dclw_and_hard_negatives_of_beta_zero(kernel: str) -> None:
    views = draw_views()
    for loss in (DCLW(0.3), HardNegatives(InfoNCE(0.3), beta=0.0)):
        with on_kernel(kernel):
            assert_entropies(loss.attention(*views), loss.importance(*views))


@each_kernel
@each_normalize
@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize("learnable", [True, False])
def test_cross_modal(kernel: str, normalize: bool, nonnegative: bool, learnable: bool) -> None:
    loss, views = CrossModal(0.3, learnable, nonnegative=nonnegative, normalize=normalize), draw_views()
    with on_kernel(kernel):
        assert_entropies(loss.attention(*views), loss.importance(*views))


@each_kernel
@each_labels
def test_labelled(kernel: str, name: str) -> None:
    views, labels = draw_views(5), labels_of(name)
    for loss in (SupCon(0.3), SupCon(0.3, base_temperature=0.1), MultiPositive(0.3)):
        with on_kernel(kernel):
            attention = loss.attention(*views, labels)
        alpha = loss.importance(*views, labels)
        assert_entropies(attention, alpha)
        assert attention.num_negatives == int((alpha > 0).sum(1).max())


@each_kernel
@pytest.mark.parametrize(
    ("name", "supervised"), [(k, s) for k, v in LABELS.items() for s in (True, False) if v or not s]
)
@pytest.mark.parametrize("normalize", LENGTHS)
@pytest.mark.parametrize("num_draws", [None, 1, 4, 30])
@pytest.mark.sampled(5)
def test_generalized(
    kernel: str, name: str, normalize: Any, supervised: bool, num_draws: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawn_negatives, "STRIP_NUMBERS", 30)  # 3 anchors at a time
    loss = GeneralizedContrastive(num_draws, supervised, normalize, temperature=0.4, seed=3)
    views, labels = draw_views(5), labels_of(name)
    with on_kernel(kernel):
        attention = loss.attention(*views, labels, step=2)
    alpha = loss.importance(*views, labels, step=2)
    assert_entropies(attention, alpha)
    assert int((alpha > 0).sum(1).max()) <= attention.num_negatives <= (num_draws or 10)


# --- precision


@each_kernel
@pytest.mark.parametrize("name", [name for name in STREAMED if name != "hard"])
def test_float32_is_raised_to_float64(kernel: str, name: str) -> None:
    views, loss = [z.float() for z in draw_views()], STREAMED[name]()
    with on_kernel(kernel):
        attention = loss.attention(*views)
    alpha = loss.importance(*(z.double() for z in views))
    assert_entropies(attention, alpha[: len(attention.entropy_A)], dtype=torch.float32)


@each_kernel
@pytest.mark.parametrize(
    "loss",
    [
        AlphaCL(RULES["entropy"](0.01), normalize=False),
        MIOv1(0.01, normalize=False),
        SigmoidPair(100.0, normalize=False),
        CrossModal(0.01, normalize=False),
        GeneralizedContrastive(normalize="none", temperature=0.01),
        GeneralizedContrastive(3, normalize="none", temperature=0.01),
    ],
    ids=lambda loss: loss.card.name,
)
def test_raw_float32_vectors_lose_nothing(kernel: str, loss: Any) -> None:
    """Entropy is a difference of numbers near 1 / temperature: taken in float32 it would keep few digits."""
    views = [z.float() for z in draw_views()]
    with on_kernel(kernel):
        ours, wanted = (loss.attention(*(z.to(dtype) for z in views)) for dtype in (torch.float32, torch.float64))
    assert_numbers(ours.entropy_A, wanted.entropy_A)


# --- hard negatives: the weights of the sum


@each_kernel
@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_hard_negatives_attend_by_the_terms_of_their_sum(kernel: str, beta: float) -> None:
    """By hand: softmax of (1 + beta) cos / tau over both views of the other samples, whatever phi and margin."""
    z0, z1 = draw_views()
    vectors = torch.cat([z0, z1]) / torch.cat([z0, z1]).norm(dim=1, keepdim=True)
    rows = []
    for i in range(12):
        cosines = [math.fsum(x * y for x, y in zip(*vectors[[i, j]].tolist(), strict=True)) for j in range(12)]
        rows.append([math.exp((1 + beta) * c / 0.5) if j % 6 != i % 6 else 0.0 for j, c in enumerate(cosines)])
    for inner in (InfoNCE(0.5), InfoNCE(0.5, reduction="sum"), SoftTriplet(0.5, margin=0.3)):
        with on_kernel(kernel):
            attention = HardNegatives(inner, beta).attention(z0, z1)
        assert_entropies(attention, torch.tensor(rows, dtype=torch.float64))
    assert bool((HardNegatives(InfoNCE(0.5), beta).importance(z0, z1) < 0).any())  # that is no distribution


def test_harder_weighting_attends_to_fewer() -> None:
    views = draw_views(8, 4)
    means = [HardNegatives(InfoNCE(), beta).attention(*views).mean_effective_negatives for beta in (0.0, 1.0, 5.0)]
    assert means[0] > 1.1 * means[1] > 1.1 * means[2]


# --- what the numbers mean


@pytest.mark.parametrize(
    ("name", "num_negatives"),
    [(name, 14) for name in ("alpha-cl", "mio-v1", "mio-v3", "dclw", "supcon", "multi-positive", "hard")]
    + [("sigmoid", 7), ("cross-modal", 7), ("generalized", 16)],
)
def test_pairs_that_look_alike_count_in_full(name: str, num_negatives: int) -> None:
    z = torch.ones(8, 3, dtype=torch.float64)
    attention = STREAMED[name]().attention(z, z)
    assert attention.num_negatives == num_negatives
    num_anchors = 8 if name == "sigmoid" else 16
    assert_numbers(attention.effective_negatives_A, [float(num_negatives)] * num_anchors)


def test_draws_of_one_vector_are_one_negative() -> None:
    z = torch.ones(2, 3, dtype=torch.float64)
    attention = GeneralizedContrastive(50).attention(z, z)
    assert attention.num_negatives == 4
    assert float(attention.effective_negatives_A.max()) <= 4
    assert float(attention.effective_negatives_A.min()) > 3
    assert_numbers(GeneralizedContrastive(1).attention(z, z).entropy_A, [0.0] * 4)


def test_each_step_has_its_own_draws() -> None:
    views, loss = draw_views(), GeneralizedContrastive(4)
    first, again, later = (loss.attention(*views, step=step).entropy_A for step in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


def test_anchors_without_weight_have_no_attention() -> None:
    z0, z1 = draw_views()
    nothing = OwnRule(lambda cost, own: torch.zeros_like(cost))
    assert bool(AlphaCL(nothing).attention(z0, z1).entropy_A.isnan().all())
    underflow = SigmoidPair(1.0, -1e4).attention(z0, z1)
    assert bool(underflow.entropy_A.isnan().all())
    one_class = SupCon().attention(z0, z1, torch.zeros(6).long())
    assert one_class.num_negatives == 0
    assert one_class.entropy_A.shape == (12,)
    assert math.isnan(one_class.mean_effective_negatives)


@pytest.mark.parametrize("name", STREAMED)
def test_it_carries_no_graph(name: str) -> None:
    z0, z1 = (z.requires_grad_() for z in draw_views())
    assert not STREAMED[name]().attention(z0, z1).entropy_A.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", STREAMED)
def test_half_precision_is_lifted(name: str, dtype: torch.dtype) -> None:
    z0, z1 = (z.to(dtype) for z in draw_views())
    attention = STREAMED[name]().attention(z0, z1)
    assert attention.entropy_A.dtype == torch.float64
    assert torch.equal(attention.entropy_A, STREAMED[name]().attention(z0.float(), z1.float()).entropy_A)


# --- memory


@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.sampled(11)
@pytest.mark.thorough
def test_no_tensor_of_all_pairs_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alpha_energy, "BLOCK_PAIRS", 1)
    monkeypatch.setattr(drawn_negatives, "STRIP_NUMBERS", 600)
    n, (z0, z1) = 100, draw_views(100, 4)
    with on_kernel("tiled"), LargestResult() as largest:
        STREAMED[name]().attention(z0, z1)
    bound = alpha_energy.MIN_BLOCK_ROWS * 2 * n if name == "alpha-cl" else 2 * n * 4
    assert largest.num_elements <= bound < n * n


def test_a_rule_that_needs_all_pairs_gets_them() -> None:
    shapes: list[tuple[int, ...]] = []

    def note(cost: Tensor, own: Tensor) -> Tensor:
        shapes.append(tuple(cost.shape))
        return torch.softmax(-cost, dim=1)

    rule: AlphaRule = OwnRule(note)
    AlphaCL(rule).attention(*draw_views())
    assert shapes == [(12, 12)]


# --- bad input


@pytest.mark.parametrize("name", STREAMED)
def test_bad_input_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="row 1 holds NaN"):
        STREAMED[name]().attention(torch.tensor([[1.0], [math.nan]]), torch.ones(2, 1))


def test_bad_labels_are_named() -> None:
    z = torch.eye(3)
    with pytest.raises(ValueError, match="labels must hold at least 2 classes for MultiPositive, got label 7 only"):
        MultiPositive().attention(z, z, torch.tensor([7, 7, 7]))
    with pytest.raises(ValueError, match="labels must be given, got None"):
        GeneralizedContrastive(supervised=True).attention(z, z)
    with pytest.raises(ValueError, match="step must be a whole number"):
        GeneralizedContrastive(2).attention(z, z, step=-1)
