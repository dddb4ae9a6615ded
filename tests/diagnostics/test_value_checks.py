"""Outliers, near-copies, scales, tails, values, hubs and the order of rows: named where drawn, silent where healthy."""

# N samples, D features

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from counterpoint.diagnostics.concepts import duplicate_dims
from counterpoint.diagnostics.evidence import EMBEDDING, Evidence
from counterpoint.diagnostics.feature_values import distinct_values, ordered_values, outlier_rows, saturated_share
from counterpoint.diagnostics.finding import Finding
from counterpoint.diagnostics.findings import find
from counterpoint.diagnostics.measure import measure_place
from counterpoint.diagnostics.sample_shift import order_share
from draws import draw_single as draw

NEW = {"outliers", "near-copies", "scales", "heavy-tails", "saturated", "quantised", "hubs", "row-order"}


def judged(z: Tensor, labels: Tensor | None = None) -> dict[str, Finding]:
    """Findings that are not good, by name, in their order."""
    place = measure_place(z, labels=labels)
    suspects = place.suspect_names([str(row) for row in range(len(z))])
    is_nonnegative = float(z.min()) == 0
    found = find(Evidence({EMBEDDING: place.figures}, is_nonnegative=is_nonnegative, suspects=suspects))
    return {each.name: each for each in found if each.level != "good"}


@pytest.mark.parametrize("rows", [[3], [3, 500, 999]])
def test_outliers_are_named_and_change_no_other_figure(rows: list[int]) -> None:
    z, far = draw(), draw()
    far[rows, :9] += 1000.0
    found = judged(far)
    assert next(iter(found)) == "outliers"
    assert "duplicate-dimensions" not in found
    assert sorted(found["outliers"].samples, key=int) == [str(row) for row in rows]
    left = torch.ones(1000, dtype=torch.bool).index_fill(0, torch.tensor(rows), False)
    with_them, without = measure_place(far).figures, measure_place(z[left]).figures
    assert with_them.effective_rank == without.effective_rank
    assert with_them.effective_rank_with_outliers == pytest.approx(64, rel=0.1)
    assert without.effective_rank_with_outliers is None


def test_single_rows_at_the_end_of_long_tails_are_named_as_such() -> None:
    torch.manual_seed(0)
    long = torch.distributions.StudentT(2.0).sample((400, 24))
    long[3] *= 20
    assert list(judged(long))[:2] == ["outliers", "heavy-tails"]
    damaged = draw(400, 24)
    damaged[3] *= 200
    assert "heavy-tails" not in judged(damaged)


def test_a_class_far_away_and_a_tail_without_a_gap_are_no_outliers() -> None:
    z = draw()
    z[:30] += 20.0
    assert len(outlier_rows(z)) == 30
    assert len(outlier_rows(z, torch.arange(1000) < 30)) == 0
    assert len(outlier_rows(draw() * torch.linspace(0, 4, 1000).exp()[:, None])) == 0
    assert len(outlier_rows(draw(19))) == len(outlier_rows(torch.ones(50, 3))) == 0


def test_few_samples_at_a_distance_repeat_no_dimensions() -> None:
    z = draw()
    z[7, :9] = 1e4
    assert duplicate_dims(z) == 0
    assert duplicate_dims(torch.cat([z, -2 * z], dim=1)) == 64
    sparse = z * (draw(seed=1) > 2)
    assert duplicate_dims(torch.cat([sparse, 3 * sparse], dim=1)) >= 60  # a few differ on fewer than ten samples


def test_small_scales_are_named_and_no_layer_is_blamed() -> None:
    z = draw()
    z[:, ::6] *= 1e-4
    found = judged(z)
    assert found["scales"].level == "warning"
    assert "dimensional-collapse" not in found
    lost = draw(width=52) @ draw(52, 64, 1)  # rank 52: no scale brings back what is not there
    assert "scales" not in judged(lost)
    assert judged(lost)["dimensional-collapse"].level == "warning"


def test_principal_components_have_falling_scales_by_nature() -> None:
    z = draw() * torch.arange(1, 65) ** -1.0
    assert judged(z)["scales"].level == "note"


@pytest.mark.parametrize("is_rotated", [False, True])
def test_one_direction_with_nearly_all_variance_is_named(is_rotated: bool) -> None:
    z = draw()
    z[:, 0] *= 29.0  # 841 / (841 + 63) = 93 %
    z = z @ torch.linalg.qr(draw(64)).Q if is_rotated else z
    found = judged(z)
    assert found["uneven-spectrum"].level == "warning"
    assert found["uneven-spectrum"].measured == pytest.approx(0.93, abs=0.015)
    assert list(found).index("uneven-spectrum") < 2


def test_pairs_are_near_copies_and_no_collapse() -> None:
    z = draw(200, 500)
    found = judged(torch.cat([z, z + 1e-3 * draw(200, 500, 1)]))
    assert next(iter(found)) == "near-copies"
    assert found["near-copies"].samples
    assert "dimensional-collapse" not in found


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_near_copies_of_some_rows_are_found(share: float) -> None:
    z, num = draw(), int(1000 * share)
    assert "near-copies" in judged(torch.cat([z[num:], z[-num:] + 0.01 * draw(num, seed=1)]))


def test_silent_dimensions_of_a_rectified_map_are_neither_alive_nor_lost() -> None:
    z = torch.zeros(1000, 128)
    z[:, :32] = draw(width=32).abs()
    z[0, 0] = 0.0
    place = measure_place(z)
    found = find(Evidence({EMBEDDING: place.figures}, is_nonnegative=True))
    (collapse,) = (each for each in found if each.name == "dimensional-collapse")
    assert collapse.level == "good"
    assert "32" in collapse.title
    assert "128" not in collapse.title


def hub() -> Tensor:
    z = draw() + 1.0
    z[0] = z.mean(dim=0)
    return z


FAULTS: dict[str, tuple[str, Callable[[], Tensor]]] = {
    "clipped": ("saturated", lambda: draw().clamp(-1, 1)),
    "tanh": ("saturated", lambda: torch.tanh(8 * draw())),
    "rounded": ("quantised", lambda: draw().round(decimals=0)),
    "signs": ("quantised", lambda: torch.sign(draw())),
    "Cauchy entries": ("heavy-tails", lambda: draw(width=16) / draw(width=16, seed=1)),
    "lengths of a wide law": ("heavy-tails", lambda: draw() * (1.2 * draw(width=1, seed=1)).exp()),
    "a mean sample": ("hubs", hub),
    "drift": ("row-order", lambda: draw() + torch.linspace(-1, 1, 1000)[:, None]),
    "growing": ("row-order", lambda: draw() * torch.linspace(1, 2, 1000)[:, None]),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_of_values_and_rows_is_among_the_first_two(kind: str) -> None:
    name, faulty = FAULTS[kind]
    assert name in list(judged(faulty()))[:2]


def test_a_rectified_map_to_which_a_constant_was_added_is_not_cut_off() -> None:
    rectified = draw().clamp(min=0.2)
    assert "saturated" not in judged(rectified - 4)
    assert judged(rectified.clamp(max=0.4) - 1)["saturated"].level == "warning"


def test_rows_in_the_order_of_their_classes_do_not_drift() -> None:
    labels = torch.arange(10).repeat_interleave(100)
    z = draw(10, 64, 1)[labels] + draw()
    assert judged(z)["row-order"].level == "note"
    assert "row-order" not in judged(z, labels)
    shuffled = torch.randperm(1000, generator=torch.Generator().manual_seed(0))
    drifting = z[shuffled] + torch.linspace(-1, 1, 1000)[:, None]
    assert judged(drifting, labels[shuffled])["row-order"].level == "warning"


def test_what_cannot_be_told_is_nan() -> None:
    assert math.isnan(order_share(draw(99)))
    counts = torch.randint(0, 5, (200, 4), generator=torch.Generator().manual_seed(0)).float()
    for measure in (distinct_values, saturated_share):
        assert math.isnan(measure(ordered_values(counts)))


def healthy(seed: int) -> dict[str, Tensor]:
    """Healthy features, by their kind."""
    generator = torch.Generator().manual_seed(seed)
    n, width = ((60, 16), (300, 64), (1000, 32), (400, 500))[seed % 4]
    z = draw(n, width, seed)
    groups = draw(10, width, seed + 1)[torch.randint(0, 10, (n,), generator=generator)]
    mix = draw(width, width, seed + 2) / width**0.5
    turn = 1.5 * torch.pi * (1 + 2 * torch.rand(n, generator=generator))
    return {
        "Gaussian": z,
        "groups": groups + z,
        "an offset": z + 0.5,
        "rectified": ((groups + z) @ mix).relu(),
        "sparse": ((groups + z) @ mix - 1.5).relu(),
        "power law": (z * torch.arange(1, width + 1) ** -0.75) @ torch.linalg.qr(draw(width, width, 5)).Q,
        "Swiss roll": torch.stack([turn * turn.cos(), 20 * torch.rand(n, generator=generator), turn * turn.sin()], 1),
        "half precision": (groups + z).half().float(),
        "categories": torch.randint(0, 5, (n, width), generator=generator).float(),
        "random net": (((z + 1) @ mix).relu() @ mix.T).relu(),
        "two dimensions": z[:, :2],
        "classes of three": draw(n, width, 7).repeat(3, 1) + 0.7 * draw(3 * n, width, 8),
        "unit length": torch.nn.functional.normalize(groups + z),
        "Laplace": z.sign() * torch.rand(n, width, generator=generator).clamp(min=1e-6).log(),
        "uneven lengths": z * (0.3 * draw(n, 1, 9)).exp(),
        "flat": torch.rand(n, width, generator=generator),
    }


@pytest.mark.parametrize("kind", healthy(0))
@pytest.mark.sampled(2)
def test_healthy_features_have_no_warning_of_these_checks(kind: str) -> None:
    for seed in range(4):
        found = judged(healthy(seed)[kind])
        assert not {name for name, each in found.items() if name in NEW and each.level in ("warning", "severe")}
        assert "uneven-spectrum" not in found or found["uneven-spectrum"].level == "note"
