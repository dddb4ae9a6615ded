"""Neural collapse and minority collapse: simplexes, noise, coinciding classes, and what must not matter."""

# N samples, D features, C classes

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics import class_geometry as module
from counterpoint.diagnostics.class_geometry import (
    ClassGeometry,
    class_geometry,
    minority_cosine,
    nc1,
    nc2_angles,
    nc2_lengths,
    nc4,
)
from counterpoint.diagnostics.measure import measure_place
from oracles import class_geometry_oracle as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_estimate

FIGURES: dict[str, Callable[[ClassGeometry], float]] = {
    "nc1": nc1,
    "trace ratio": lambda classes: nc1(classes, definition="trace ratio"),
    "nc2_lengths": nc2_lengths,
    "nc2_angles": nc2_angles,
    "nc4": nc4,
    "minority_cosine": minority_cosine,
}


def draw(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def simplex(num_classes: int, d: int) -> Tensor:
    """Corners of a regular simplex around 0, of length 1, turned at random in d dimensions."""
    eye = torch.eye(num_classes, d, dtype=torch.float64)
    centred = eye - eye.mean(dim=0)
    return torch.nn.functional.normalize(centred, dim=1) @ torch.linalg.qr(draw(d, d, 9)).Q


def figures(z: Tensor, labels: Tensor) -> list[float]:
    classes = class_geometry(z, labels)
    return [measure(classes) for measure in FIGURES.values()]


@settings(max_examples=60, deadline=None)
@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=6), d=st.integers(2, 5), seed=st.integers(0, 99))
def test_figures_are_those_of_the_loops(counts: list[int], d: int, seed: int) -> None:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = torch.cat([labels, torch.tensor([-1, -1])])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    z, numbers = draw(len(labels), d, seed), labels.tolist()
    rows = z.numpy()
    expected = [
        oracle.nc1(rows, numbers, "pseudo-inverse"),
        oracle.nc1(rows, numbers, "trace ratio"),
        oracle.nc2_lengths(rows, numbers),
        oracle.nc2_angles(rows, numbers),
        oracle.nc4(rows, numbers),
        oracle.minority_cosine(rows, numbers),
    ]
    for actual, value in zip(figures(z, labels), expected, strict=True):
        # Beside 1, as the figure may be 0 but for rounding, as of two classes.
        assert_numbers([1.0, actual], [1.0, value])


@pytest.mark.parametrize("counts", [[5] * 4, [50, 20, 7, 2], [2] * 10])
def test_a_simplex_has_collapsed_however_many_samples_each_class_has(counts: list[int]) -> None:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    z = simplex(len(counts), 12)[labels]
    *zeros, share, _ = figures(z, labels)
    assert_numbers([1.0, *zeros], [1.0, 0.0, 0.0, 0.0, 0.0])
    assert share == 1.0


def test_an_offset_leaves_a_simplex_one() -> None:
    """Corners on a cap around one direction: unit-length themselves, and regular around their mean."""
    corners = torch.cat([0.1 * simplex(5, 8), torch.ones(5, 1).double()], dim=1)
    *zeros, share, _ = figures(corners.repeat(3, 1), torch.arange(5).repeat(3))
    assert_numbers([1.0, *zeros], [1.0, 0.0, 0.0, 0.0, 0.0])
    assert share == 1.0


def test_noise_has_much_scatter_within_classes_and_is_near_chance() -> None:
    num, num_classes = 20_000, 4
    z, labels = draw(num, 8), torch.arange(num) % num_classes
    classes = class_geometry(z, labels)
    # Sigma_W = I / 8; Sigma_B has C - 1 directions of about C / (8 N): a trace of some (C - 1) N / C, with wide tails.
    assert nc1(classes) > 0.1 * num / num_classes
    # tr(Sigma_B) is on average (C - 1) / N; its scatter is that of a chi square with 8 (C - 1) degrees of freedom.
    between = (num_classes - 1) / num
    error = between * math.sqrt(2 / (8 * (num_classes - 1)))
    assert_estimate(1 / nc1(classes, definition="trace ratio"), between, error)
    assert 1 / num_classes < nc4(classes) < 1 / num_classes + 0.03


def test_scatter_of_known_size() -> None:
    """Classes at +-c along one axis, samples off it by +-s: none of the scatter lies where class means differ."""
    cosine, sine = math.cos(0.3), math.sin(0.3)
    z = torch.tensor([[cosine, sine], [cosine, -sine], [-cosine, sine], [-cosine, -sine]], dtype=torch.float64)
    classes = class_geometry(z, torch.tensor([0, 0, 1, 1]))
    assert_numbers([1.0, nc1(classes)], [1.0, 0.0])
    assert_numbers(nc1(classes, definition="trace ratio"), math.tan(0.3) ** 2)
    # Turned by 90 degrees, all of it does not: the means are at (0, +-s).
    classes = class_geometry(z, torch.tensor([0, 1, 0, 1]))
    assert_numbers(nc1(classes, definition="trace ratio"), math.tan(0.3) ** -2)


def test_two_classes_are_always_a_simplex() -> None:
    z, labels = draw(40, 6), torch.arange(40) % 2
    classes = class_geometry(z, labels)
    assert_numbers([1.0, nc2_lengths(classes), nc2_angles(classes)], [1.0, 0.0, 0.0])
    assert nc1(classes) > 1
    assert math.isnan(minority_cosine(classes))


def test_classes_that_coincide_share_their_samples_by_chance() -> None:
    """Every row of a class is also one of its twin's, in another order: two of four means are equal."""
    labels = torch.arange(30) % 3
    z = simplex(3, 8)[labels] + 0.01 * draw(30, 8)
    twin = z[labels == 0].flip(0)
    classes = class_geometry(torch.cat([z, twin]), torch.cat([labels, torch.full((10,), 3)]))
    assert_numbers(nc4(classes), 0.75)
    assert nc1(classes) < 0.01  # the direction between the twins is rounding and does not count
    apart = class_geometry(z, labels)
    assert nc2_angles(classes) > 0.2 > nc2_angles(apart)


def test_classes_that_all_coincide_are_at_chance() -> None:
    half = draw(500, 5)
    # The same rows in another order and twice, so that means differ by rounding.
    labels = torch.arange(2).repeat_interleave(torch.tensor([500, 1000]))
    classes = class_geometry(torch.cat([half, half.flip(0), half.flip(0)]), labels)
    assert float(classes.means_CD.abs().max()) > 0
    assert nc1(classes) == nc1(classes, definition="trace ratio") == math.inf
    assert math.isnan(nc2_lengths(classes))
    assert math.isnan(nc2_angles(classes))
    assert nc4(classes) == 0.5


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6])
@pytest.mark.parametrize("d", [1, 3])
def test_constant_features_have_no_geometry(value: float, d: int) -> None:
    *others, share, rare = figures(torch.full((99, d), value), torch.arange(99) % 3)
    assert all(math.isnan(other) for other in [*others, rare])
    assert share == pytest.approx(1 / 3)


@pytest.mark.parametrize("labels", [[0] * 6, [-1] * 6, [3, -1, -1, 3, 3, -1]])
def test_one_class_or_none_has_no_figures(labels: list[int]) -> None:
    assert all(math.isnan(value) for value in figures(draw(6, 3), torch.tensor(labels)))


def test_single_samples_say_nothing_of_scatter() -> None:
    classes = class_geometry(draw(5, 3), torch.arange(5))
    assert math.isnan(nc1(classes))
    assert math.isnan(nc4(classes))
    assert nc2_angles(classes) > 0


def test_a_class_mean_at_the_centre_has_no_direction() -> None:
    z = torch.tensor([[1.0], [1.0], [0.0], [0.0], [-1.0], [-1.0]])
    assert_numbers(nc2_angles(class_geometry(z, torch.tensor([0, 0, 1, 1, 2, 2]))), 0.5)


@pytest.mark.parametrize(
    ("merged", "expected"),
    [
        (slice(0, 0), 0.0),
        # Means e_1 ... e_4 and three times e_5, centre (1, 1, 1, 1, 3) / 7: cosines of the frequent ones are -1 / 48.
        (slice(4, 7), 1 + 1 / 48),
        # Four times e_1 and e_5, e_6, e_7, centre (4, 1, 1, 1) / 7: cosines of the rare ones are 5 / 54.
        (slice(0, 4), 5 / 54 - 1),
    ],
)
def test_rare_classes_that_fall_together_are_told(merged: slice, expected: float) -> None:
    corners = simplex(7, 10)
    corners[merged] = corners[merged][:1].clone()
    labels = torch.arange(7).repeat_interleave(torch.tensor([40, 40, 40, 40, 5, 5, 5]))
    value = minority_cosine(class_geometry(corners[labels], labels))
    assert_numbers([1.0, value], [1.0, expected])


@pytest.mark.parametrize(
    ("counts", "exists"),
    [([4] * 6, False), ([9, 4, 4], False), ([9, 9, 9, 4], False), ([2, 4, 4, 9], False), ([9, 9, 4, 4], True)],
)
def test_rare_and_frequent_classes_must_be_told_apart_by_their_counts(counts: list[int], exists: bool) -> None:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    assert math.isfinite(minority_cosine(class_geometry(draw(len(labels), 5), labels))) == exists


@pytest.mark.parametrize("change", ["names", "gaps", "rotation", "rows", "lengths", "unlabelled"])
def test_what_does_not_matter(change: str) -> None:
    z, labels = draw(60, 6), torch.arange(6).repeat_interleave(torch.tensor([20, 14, 10, 8, 5, 3]))
    z = z + 2 * draw(6, 6, 1)[labels]
    before = figures(z, labels)
    assert all(math.isfinite(value) and value != 0 for value in before)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(3))
    after = {
        "names": lambda: figures(z, torch.tensor([3, 5, 0, 1, 4, 2])[labels]),
        "gaps": lambda: figures(z, 1000 * labels + 7),
        "rotation": lambda: figures(z @ torch.linalg.qr(draw(6, 6, 2)).Q, labels),
        "rows": lambda: figures(z[order], labels[order]),
        "lengths": lambda: figures(z * torch.linspace(0.1, 9, 60)[:, None], labels),
        "unlabelled": lambda: figures(torch.cat([10 + draw(30, 6, 4), z]), torch.cat([torch.full((30,), -1), labels])),
    }[change]()
    assert_numbers(after, before)


def test_what_is_looked_at_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = class_geometry(draw(4000, 2), torch.arange(4000) % 40)
    share, angles = nc4(classes), nc2_angles(classes)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    assert_numbers(nc4(classes), share)
    monkeypatch.setattr(module, "MOST_DISTANCES", 4000)
    # 200 of the samples: N x D distances are allowed.
    assert_estimate(nc4(classes), share, math.sqrt(share * (1 - share) / 200))
    assert nc4(classes) != share
    monkeypatch.setattr(module, "MOST_CLASSES", 20)
    assert nc2_angles(classes) != angles
    assert nc2_angles(classes) == pytest.approx(angles, rel=0.2)


def test_metrics_are_measured_with_labels_only() -> None:
    z, labels = draw(30, 4), torch.arange(5).repeat_interleave(torch.tensor([10, 8, 6, 4, 2]))
    with_labels, without = measure_place(z, labels=labels).figures, measure_place(z).figures
    classes = class_geometry(z, labels)
    for name in ("nc1", "nc2_lengths", "nc2_angles", "nc4", "minority_cosine"):
        assert_numbers(getattr(with_labels, name), FIGURES[name](classes))
        assert getattr(without, name) is None


def test_what_cannot_be_measured_is_named() -> None:
    with pytest.raises(ValueError, match="definition must be one of pseudo-inverse, trace ratio, got 'trace'"):
        nc1(class_geometry(torch.eye(2), torch.arange(2)), definition="trace")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="labels must be one per sample"):
        class_geometry(torch.eye(2), torch.arange(3))
