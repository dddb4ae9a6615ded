"""Both routines of a product give what float64 gives for any layout, and losses do not tell them apart."""

import math
import sys
from pathlib import Path

import pytest
import torch

from counterpoint.core import processor_routines
from counterpoint.core.processor_routines import add_product_, exp_, multiply
from counterpoint.evaluation.knn import nearest
from counterpoint.losses import AlphaCL, InfoNCE, SigmoidPair, SupCon
from tolerances import assert_close

LAYOUTS = ("rows", "columns", "rows with gaps", "columns with gaps")


@pytest.fixture(params=[True, False], ids=["oneDNN", "MKL"])
def routine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param and not torch.backends.mkldnn.is_available():
        pytest.skip("this torch has no oneDNN")
    monkeypatch.setattr(processor_routines, "has_slow_mkl", lambda: request.param)
    monkeypatch.setattr(processor_routines, "least_for_onednn", lambda: 1 << 20 if request.param else math.inf)
    return request.param


def matrix(height: int, width: int, layout: str, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    values = torch.randn(height, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    room = torch.full((2 * height, 2 * width) if "gaps" in layout else (height, width), math.nan, dtype=dtype)
    room = room.T.contiguous().T if "columns" in layout else room
    return room[-height:, -width:].copy_(values)


@pytest.mark.usefixtures("routine")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("other_layout", LAYOUTS)
@pytest.mark.parametrize(("height", "depth", "width"), [(256, 128, 257), (3, 4, 5), (9, 600, 700), (2, 2048, 512)])
def test_products_of_all_layouts(height: int, depth: int, width: int, layout: str, other_layout: str) -> None:
    left, right = matrix(height, depth, layout, 0), matrix(depth, width, other_layout, 1)
    exact = left.double() @ right.double()
    room = torch.full((height, width), math.nan)
    assert_close(multiply(left, right), exact.float())
    assert_close(multiply(left, right, scale=-2.5, room_HW=room), -2.5 * exact.float())
    total = torch.ones(height, width)
    assert add_product_(total, left, right, scale=0.5) is total
    assert_close(total, (1 + 0.5 * exact).float())


@pytest.mark.usefixtures("routine")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_keep_torchs_own_product(dtype: torch.dtype) -> None:
    left, right = matrix(256, 128, "rows", 0, dtype), matrix(128, 256, "columns", 1, dtype)
    assert torch.equal(multiply(left, right), left @ right)
    assert torch.equal(exp_(left.clone()), left.exp())


@pytest.mark.usefixtures("routine")
def test_an_exponential_has_the_digits_of_its_argument() -> None:
    """Half of the last place of x, and of the rounded log2 e, are x times as much in the exponential."""
    x = torch.linspace(-85.0, 85.0, 100_001)
    error = (exp_(x.clone()).double() / x.double().exp() - 1).abs()
    assert bool((error <= (1.25 * x.double().abs() + 2) * 2.0**-24).all())
    assert torch.equal(exp_(torch.tensor([-math.inf, 0.0, math.inf])), torch.tensor([0.0, 1.0, math.inf]))
    assert exp_(torch.tensor([math.nan])).isnan().all()


@pytest.mark.parametrize("num_samples", [300, 700])
@pytest.mark.parametrize("loss", [InfoNCE(0.07), InfoNCE(0.01), AlphaCL(), SigmoidPair(), SupCon(0.1)], ids=repr)
def test_losses_do_not_tell_routines_apart(loss, num_samples: int, routine: bool) -> None:
    """Value and gradient of float32 are those of float64, which takes torch's own product either way."""
    results = {}
    for dtype in (torch.float32, torch.float64):
        views = [matrix(num_samples, 64, "rows", seed).to(dtype).requires_grad_() for seed in (0, 1)]
        labels = (torch.arange(num_samples) % 7,) if isinstance(loss, SupCon) else ()
        value = loss.to(dtype)(*views, *labels)
        results[dtype] = (value.detach(), *torch.autograd.grad(value, views))
    for low, exact in zip(results[torch.float32], results[torch.float64], strict=True):
        assert_close(low, exact.float())


@pytest.mark.usefixtures("routine")
def test_a_search_finds_copies_at_equal_similarity() -> None:
    """Wherever two copies of a sample stand, in a block or at its end, their products have the same bits."""
    bank = matrix(20_000, 64, "rows", 0)
    bank[19_999] = bank[3] = bank[4_097]
    answer = nearest(bank, bank[4_000:5_000], 3)
    assert answer.positions_QK[97].tolist() == [3, 4_097, 19_999]
    assert answer.similarity_QK[97].unique().numel() == 1


@pytest.mark.parametrize(
    ("left", "right", "is_taken"),
    [((64, 128), (128, 128), True), ((64, 127), (127, 128), False), ((7, 2048), (2048, 512), False)],
    ids=["large", "small", "few rows"],
)
def test_large_products_alone_go_to_onednn(
    left: tuple[int, int], right: tuple[int, int], is_taken: bool, routine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, by_onednn = [], processor_routines._by_onednn
    monkeypatch.setattr(processor_routines, "_by_onednn", lambda a, b: taken.append(a.shape) or by_onednn(a, b))
    multiply(torch.ones(left), torch.ones(right))
    add_product_(torch.zeros(left[0], right[1]), torch.ones(left), torch.ones(right))
    assert len(taken) == 2 * (is_taken and routine)


ZEN_4, ZEN_5, ZEN_6 = (
    f"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: {family}\nmodel\t\t: 1\n" for family in (25, 26, 27)
)
INTEL = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 26\nmodel\t\t: 143\n"


@pytest.mark.parametrize(
    ("processor", "instructions", "switch", "least"),
    [
        (ZEN_5, "AVX512", "1", 1 << 20),
        (ZEN_6, "AVX512", "1", 1 << 20),
        (ZEN_4, "AVX512", "1", 1 << 28),
        (ZEN_4, "AVX2", "1", math.inf),  # Zen 3, of the same family
        (INTEL, "AVX512", "1", math.inf),
        (ZEN_5, "AVX512", "0", math.inf),
        ("", "AVX512", "1", math.inf),
    ],
)
def test_the_rule_reads_family_instructions_and_the_users_leave(
    processor: str, instructions: str, switch: str, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(Path, "read_text", lambda path, **_: processor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setenv("COUNTERPOINT_TUNE", switch)
    monkeypatch.setattr(processor_routines, "has_slow_mkl", processor_routines.has_slow_mkl.__wrapped__)
    assert processor_routines.least_for_onednn.__wrapped__() == least
    assert processor_routines.product_library() == ("torch" if math.isinf(least) else "oneDNN")
