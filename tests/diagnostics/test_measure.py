"""All figures of one place, each against its own loop; intervals, by leaving rows out and by how often they hold."""

import copy
import json
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.core.numerics import unit_rows
from counterpoint.core.paired_shares import jackknife_half_width
from counterpoint.diagnostics import crowding, measure
from counterpoint.diagnostics.crowding import clump_share, spread
from counterpoint.diagnostics.measure import CATALOGUE, GROUPS, MOST_DIMS, figure_intervals, measure_place
from counterpoint.diagnostics.spectra import covariance_spectrum, effective_rank, rank_ceiling, vanished_directions
from draws import draw
from oracles import class_directions_oracle as directions
from oracles import feature_measures as oracle
from oracles import pair_oracle, rank_oracle
from oracles.number_checks import assert_numbers

WITH_OUTLIERS = [f"{name}_with_outliers" for name in ("effective_rank", "rankme", "participation_ratio", "vanished")]
OWN_TESTS = (  # in test_value_checks, test_label_checks and test_gaussian_slices
    "label_noise", "leaked_dims", "stray_views", "hidden_modes", "same_views",
    "tail_share", "entry_tail_share", "raw_first_share", "raw_participation_ratio", "largest_scale", "scale_spread",
    "scale_order", "standard_first_share", "standard_participation_ratio", "standard_vanished", "row_order",
    "row_order_within", "distinct_values", "saturated", *WITH_OUTLIERS,
    "slice_worst", "slice_limit", "slice_typical", "slice_count", "slice_random", "slice_principal", "slice_dims",
    "slice_dim", "slice_skewness", "slice_kurtosis",
)  # fmt: skip


@pytest.fixture
def z() -> Tensor:
    """Non-negative features (9, 5) of different lengths: dimension 3 is dead."""
    values = np.random.default_rng(1).normal(size=(9, 5)) * np.linspace(0.5, 4, 9)[:, None]
    values[:, 3] = 0.0
    values[:, 0] += 1.0
    return torch.from_numpy(values.clip(0))


def test_every_figure_is_that_of_its_loop(z: Tensor) -> None:
    noise = torch.from_numpy(np.random.default_rng(2).normal(size=(6, 5)))
    views, labels = (z[:6], z[:6] + 0.1 * noise), [0, 0, 1, 1, 2, 2, -1, 0, 1]
    place = measure_place(z, views=views, labels=torch.tensor(labels))
    first, second = (view.numpy() for view in views)
    spectrum = oracle.covariance_singular_values(oracle.unit(z.numpy()))
    shares = oracle.class_shares(z.numpy(), labels, 1e-5)
    positive = [float(a @ b) for a, b in zip(oracle.unit(first), oracle.unit(second), strict=True)]
    assert_numbers(place.spectrum, spectrum)
    variances = rank_oracle.eigenvalues(oracle.unit(z.numpy()))[:4]  # the fifth is that of the dead dimension
    counts = pair_oracle.neighbour_counts(z.tolist(), 10)
    expected = {
        "num_samples": 9,
        "num_dims": 5,
        "effective_rank": oracle.effective_rank([max(0.0, float(value)) for value in spectrum[:4]]),
        "rank_ceiling": rank_ceiling(torch.empty(9, 5)),
        "uniformity": oracle.uniformity(z.numpy()),
        "sparsity": oracle.sparsity(z.numpy(), 1e-5),
        "feature_correlation": oracle.mean_column_cosine(z.numpy()),
        "dead_dims": 1,
        "alignment": oracle.alignment(first, second),
        "positive_cosine": math.fsum(positive) / 6,
        "negative_cosine": float(np.mean(oracle.cosines_of_pairs(z.numpy()))),
        "overlap": oracle.overlap(first, second),
        "moved_views": oracle.moved_views(first, second),
        "spread": oracle.spread(z.numpy()),
        "duplicates": 0.0,
        "clumps": clump_share(z),
        "rankme": rank_oracle.rankme(oracle.unit(z.numpy()), "uncentred", 1e-7),
        "participation_ratio": rank_oracle.participation_ratio(variances),
        "vanished": 1,  # the dead dimension
        "vanished_step": place.figures.vanished_step,  # down to what rounding leaves
        "resolved": 5,
        "class_consistency": float(np.mean([max(share.values()) for share in shares if share])),
        "within_share": directions.within_share(z.numpy(), labels),
        "rare_cosine": directions.rare_cosine(z.numpy(), labels),
        "duplicate_dims": directions.duplicate_dims(z.numpy(), fewest=8),
        "outliers": 0,
        "outlier_variance": 0.0,
        "near_copies": 0.0,
        "distance_hub": 0.0,
        "largest_hub": max(counts) / 8,
        "first_share": variances[0] / sum(variances),
        **{name: place.figures.figures[name] for name in OWN_TESTS},
    }
    actual = place.figures.model_dump()
    assert set(actual.pop("intervals")) == {"positive_cosine"}  # of fewer samples no spectrum has one
    assert actual.keys() == expected.keys()
    assert actual.pop("rare_cosine") is expected.pop("rare_cosine") is None  # of three classes two are as frequent
    assert [actual.pop(name) for name in WITH_OUTLIERS] == [expected.pop(name) for name in WITH_OUTLIERS] == [None] * 4
    for name, value in expected.items():
        assert actual[name] is value is None or assert_numbers(actual[name], value) is None
    assert place.cosines is not None
    assert int(place.cosines.positive.sum()) == 6


def test_what_was_not_given_is_none(z: Tensor) -> None:
    place = measure_place(z)
    absent = ("alignment", "positive_cosine", "overlap", "moved_views", "class_consistency", "within_share")
    for name in absent:
        assert getattr(place.figures, name) is None
    assert place.cosines is None
    json.dumps(place.figures.model_dump(), allow_nan=False)


def test_figures_that_do_not_exist_are_none_rather_than_nan() -> None:
    """A silent embedding has no correlation, and no dimension a class."""
    figures = measure_place(torch.zeros(4, 3), labels=torch.tensor([0, 1, 0, 1])).figures
    assert figures.feature_correlation is None
    assert figures.class_consistency is None
    assert (figures.dead_dims, figures.sparsity, figures.effective_rank) == (3, 1.0, 0.0)
    json.dumps(figures.model_dump(), allow_nan=False)


def test_the_threshold_decides_what_is_dead(z: Tensor) -> None:
    strict = measure_place(z, threshold=0.99).figures
    assert strict.sparsity > measure_place(z).figures.sparsity
    assert strict.dead_dims > 1


def test_a_figure_is_an_attribute_by_its_name_and_a_wrong_name_has_its_neighbour(z: Tensor) -> None:
    figures = measure_place(z).figures
    assert figures.sparsity == figures.figures["sparsity"]
    with pytest.raises(AttributeError, match="no metric is called 'sparsty'; did you mean 'sparsity'"):
        _ = figures.sparsty
    assert pickle.loads(pickle.dumps(figures)) == copy.deepcopy(figures) == figures


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(1, 6), st.integers(0, 2**16), st.booleans(), st.sampled_from([1e-3, 1.0, 1e3]))
def test_every_figure_lies_in_the_range_that_its_record_states(
    num_samples: int, num_dims: int, seed: int, is_sparse: bool, size: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    z, other = size * torch.randn(2, num_samples, num_dims, generator=generator)
    z = z.clamp(min=0) if is_sparse else z
    labels = torch.randint(-1, 3, (num_samples,), generator=generator)
    figures = measure_place(z, views=(z, other), labels=labels).figures.figures
    assert figures.keys() == CATALOGUE.keys()
    for name, value in figures.items():
        low, high = CATALOGUE[name].low, CATALOGUE[name].high
        assert value is None or low is None or value >= low - 1e-9, name
        assert value is None or high is None or value <= high + 1e-9, name


def test_figures_have_the_same_bits_for_one_thread_and_for_two(z: Tensor) -> None:
    many = torch.cat([z * scale for scale in torch.linspace(0.3, 2, 40)])
    before, found = torch.get_num_threads(), []
    try:
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            found.append(measure_place(many, views=(many, many.roll(1, 0)), labels=torch.arange(len(many)) % 3).figures)
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]


def test_copies_make_no_direction_vanish() -> None:
    """Of 200 samples that occur twice each, 199 directions can be seen, not 250."""
    z = torch.randn(200, 250, generator=torch.Generator().manual_seed(0))
    twice = measure_place(z.repeat(2, 1)).figures
    assert (twice.duplicates, twice.vanished) == (0.5, 0)
    assert twice.resolved == measure_place(z).figures.resolved


def test_only_what_is_asked_for_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nobody asked for it")

    for name in ("near_copies", "neighbour_counts"):
        monkeypatch.setattr(crowding, name, refuse)
    for name in ("measure_scales", "class_geometry", "label_agreement"):
        monkeypatch.setattr(measure, name, refuse)
    z = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    place = measure_place(z, labels=torch.arange(60) % 3, only=("sparsity", "effective_rank"))
    assert set(place.figures.figures) == {"sparsity", "effective_rank"}
    with pytest.raises(AssertionError, match="nobody asked"):
        measure_place(z, only=("near_copies",))


# --- intervals


def features(n: int, width: int, seed: int = 0) -> Tensor:
    return unit_rows(draw(n, width, seed) * torch.linspace(1, 3, width) + 0.3)


def test_sums_of_groups_give_what_leaving_rows_out_gives() -> None:
    z = features(97, 12)
    left = [torch.cat([z[part::GROUPS] for part in range(GROUPS) if part != out]) for out in range(GROUPS)]
    found = figure_intervals(z, None)
    figures = {
        "spread": lambda rows: spread(covariance_spectrum(rows), len(rows)),
        "effective_rank": lambda rows: effective_rank(covariance_spectrum(rows)),
        "vanished": lambda rows: float(vanished_directions(covariance_spectrum(rows), len(rows)).count),
    }
    for name, figure in figures.items():
        half, whole = jackknife_half_width([figure(rows) for rows in left]), figure(z)
        assert found[name] == pytest.approx((max(whole - half, 0.0), whole + half), rel=1e-8)


def test_intervals_of_draws_hold_the_truth_nearly_always() -> None:
    """The spread of a population that is drawn from; 95 % of 100, with three standard errors to spare."""
    truth = spread(covariance_spectrum(features(200_000, 8, seed=7)), 200_000)
    held = 0
    for seed in range(100):
        low, high = figure_intervals(features(300, 8, seed=100 + seed), None)["spread"]
        held += low <= truth <= high
    assert held >= 88


def test_the_cosine_of_views_has_the_interval_of_a_mean() -> None:
    z = features(400, 8)
    other = unit_rows(z + 0.3 * features(400, 8, seed=1))
    cosines = (z * other).sum(dim=1)
    half = 1.959964 * float(cosines.std()) / math.sqrt(400)
    low, high = figure_intervals(z, (z, other))["positive_cosine"]
    assert (low, high) == pytest.approx((float(cosines.mean()) - half, float(cosines.mean()) + half), abs=1e-6)


def test_very_wide_features_and_few_samples_have_none() -> None:
    assert figure_intervals(features(2 * GROUPS - 1, 4), None) == {}
    assert figure_intervals(features(50, MOST_DIMS + 1), None) == {}
