"""What single dimensions mean, against loops; which are named after a class; which repeat another."""

# N samples, D features, C classes

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from counterpoint.diagnostics import concepts as module
from counterpoint.diagnostics.concepts import (
    class_purity,
    consistency_interval,
    duplicate_dims,
    expected_activation,
    feature_correlation,
    is_active,
    sparsity,
    top_concepts,
)
from counterpoint.diagnostics.evidence import Interval
from draws import draw_single as draw
from oracles import class_directions_oracle
from oracles import feature_measures as oracle
from oracles.number_checks import assert_numbers

THRESHOLD = 1e-5
# Small whole numbers bring zeros, silent rows, dead columns and ties.
codes = arrays.arrays(
    np.float64,
    st.tuples(st.integers(2, 7), st.integers(1, 5)),
    elements=st.integers(-2, 3).map(lambda value: float(max(value, 0))),
)


def labels_for(z: np.ndarray, seed: int) -> list[int]:
    """Classes 0 to 2, and -1 for samples without a label."""
    return np.random.default_rng(seed).integers(-1, 3, size=len(z)).tolist()


@given(codes)
@settings(max_examples=50)
def test_sparsity_and_expected_activation_are_those_of_the_loops(z: np.ndarray) -> None:
    features = torch.from_numpy(z)
    assert_numbers([1.0, sparsity(features)], [1.0, oracle.sparsity(z, THRESHOLD)])
    assert_numbers([1.0, sparsity(features, threshold=0.5)], [1.0, oracle.sparsity(z, 0.5)])
    assert_numbers(expected_activation(features), oracle.expected_activation(z))


def test_an_entry_at_the_threshold_is_silent_and_signs_do_not_count() -> None:
    z = torch.tensor([[3.0, -4.0]], dtype=torch.float64)  # unit: 0.6, -0.8
    assert is_active(z, 0.6).tolist() == [[False, True]]
    assert is_active(z, 0.59).tolist() == [[True, True]]
    assert sparsity(z, threshold=0.6) == 0.5
    assert_numbers(expected_activation(z), [0.6, 0.8])


@given(codes, st.integers(0, 9))
@settings(max_examples=50)
@example(np.eye(2), 11)  # no sample has a label
def test_purity_is_the_share_of_the_commonest_class(z: np.ndarray, seed: int) -> None:
    labels = labels_for(z, seed)
    purity = class_purity(torch.from_numpy(z), torch.tensor(labels, dtype=torch.int32))
    shares = oracle.class_shares(z, labels, THRESHOLD)
    assert_numbers(purity.share_D, [max(share.values(), default=math.nan) for share in shares])
    for share, chosen in zip(shares, purity.class_D.tolist(), strict=True):
        assert chosen == -1 if not share else share[chosen] == max(share.values())
    live = [max(share.values()) for share in shares if share]
    assert_numbers(purity.consistency, math.fsum(live) / len(live) if live else math.nan)


@given(codes)
@settings(max_examples=50)
def test_correlation_is_the_mean_cosine_of_live_columns(z: np.ndarray) -> None:
    assert_numbers(feature_correlation(torch.from_numpy(z)), oracle.mean_column_cosine(z))


@pytest.mark.parametrize("num_classes", [2, 10])
def test_a_dense_code_names_no_class(num_classes: int) -> None:
    """Every dimension fires on every sample: its commonest class is the largest one, and a tie picks it at random."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % num_classes  # a tie
    skewed = (torch.rand(400, generator=generator) * 1.2).clamp(max=0.99).mul(num_classes).long()  # a largest class
    for classes in (labels, skewed):
        assert not class_purity(torch.randn(400, 32, generator=generator), classes).is_named_D.any()


def test_sparse_codes_with_random_labels_are_named_at_most_at_the_chosen_level() -> None:
    """100 codes: at most 5 of them should have any named dimension; 12 or more have a chance of 0.4 %."""
    generator = torch.Generator().manual_seed(0)
    num_named = 0
    for _ in range(100):
        z = torch.randn(200, 24, generator=generator)
        z = torch.relu(z - torch.linspace(-1, 2, 24))  # from almost always active to rarely
        labels = torch.randint(10, (200,), generator=generator)
        num_named += bool(class_purity(z, labels).is_named_D.any())
    assert num_named < 12


def test_a_real_concept_is_named() -> None:
    """One dimension fires on class 2 and on a tenth of the rest, one on everything, one on a single sample."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 5
    is_noise = torch.rand(300, generator=generator) < 0.1
    fires = torch.stack([(labels == 2) | is_noise, torch.ones(300, dtype=torch.bool), torch.arange(300) == 7], dim=1)
    purity = class_purity(fires.double(), labels)
    assert purity.class_D[0] == 2
    assert purity.is_named_D.tolist() == [True, False, False]


@given(st.integers(1, 12), st.integers(0, 12), st.integers(1, 9))
def test_naming_is_the_exact_test_of_a_share(num_active: int, num_hits: int, tenths: int) -> None:
    """Chance of so many of a class at its base rate, summed term by term, against the level shared by two classes."""
    num_hits = min(num_hits, num_active)
    if 2 * num_hits <= num_active:  # then the other class is the commonest
        return
    rest = 1000 - num_active
    labels = torch.tensor([0] * num_hits + [1] * (num_active - num_hits))
    others = torch.cat([torch.zeros(100 * tenths - num_hits), torch.ones(rest + num_hits - 100 * tenths)]).long()
    z = torch.zeros(1000, 2, dtype=torch.float64)
    z[:num_active, 0], z[:, 1] = 1.0, 1.0  # the second dimension always fires
    rate = tenths / 10
    chance = sum(
        math.comb(num_active, k) * rate**k * (1 - rate) ** (num_active - k) for k in range(num_hits, num_active + 1)
    )
    assert class_purity(z, torch.cat([labels, others])).is_named_D.tolist() == [chance * 2 * 2 < 0.05, False]


@given(codes, st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=50)
def test_concepts_are_the_dimensions_and_samples_that_fire_most(
    z: np.ndarray, num_concepts: int, num_samples: int
) -> None:
    concepts = top_concepts(torch.from_numpy(z), num_concepts=num_concepts, num_samples=num_samples)
    expected, unit = oracle.expected_activation(z), oracle.unit(z)
    live = [d for d in range(z.shape[1]) if expected[d] > 0]
    assert len(concepts) == min(num_concepts, len(live))
    left_out = [expected[d] for d in live if d not in {concept.dim for concept in concepts}]
    assert_numbers([c.expected_activation for c in concepts], sorted(expected, reverse=True)[: len(concepts)])
    assert max(left_out, default=0.0) <= min((c.expected_activation or 0.0 for c in concepts), default=0.0) + 1e-12
    for concept in concepts:
        active = [i for i in range(len(z)) if unit[i, concept.dim] > THRESHOLD]
        assert_numbers(concept.expected_activation, expected[concept.dim])
        assert_numbers(concept.fires, len(active) / len(z))
        assert_numbers(concept.mean_activation, math.fsum(unit[i, concept.dim] for i in active) / len(active))
        assert_numbers(concept.values, sorted((unit[i, concept.dim] for i in active), reverse=True)[:num_samples])
        assert_numbers(concept.values, [unit[i, concept.dim] for i in concept.top])
        assert len(set(concept.top)) == len(concept.top)


def test_equal_samples_come_in_their_own_order() -> None:
    (concept,) = top_concepts(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0], [3.0, 0.0]]), num_samples=2)
    assert concept.top == (0, 1)
    assert concept.values == (1.0, 1.0)
    assert concept.fires == 0.75


def test_signed_features_are_ranked_by_size_and_shown_from_the_top() -> None:
    """Dimension 1 is larger in size; its largest value is sample 0's, its most negative one comes last."""
    z = torch.tensor([[0.0, 1.0], [3.0, -4.0], [4.0, -3.0]], dtype=torch.float64)
    first, second = top_concepts(z)
    assert (first.dim, second.dim) == (1, 0)
    assert first.top == (0, 2, 1)
    assert_numbers(first.values, [1.0, -0.6, -0.8])
    assert second.top == (2, 1)


def test_a_threshold_out_of_range_is_named() -> None:
    with pytest.raises(ValueError, match=r"threshold must be >= 0 and < 1, the length of a vector, got -0\.1; 1e-5"):
        is_active(torch.eye(2), -0.1)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(12, 40), d=st.integers(1, 6), repeats=st.integers(0, 6), seed=st.integers(0, 99))
def test_repeated_dimensions_are_those_of_the_loop(n: int, d: int, repeats: int, seed: int) -> None:
    z = draw(n, d, seed)
    source = torch.randint(d, (repeats,), generator=torch.Generator().manual_seed(seed))
    z = torch.cat([z, z[:, source] * -3 + 0.05 * draw(n, repeats, seed + 1)], dim=1)
    assert duplicate_dims(z) == class_directions_oracle.duplicate_dims(z.double().numpy())


@pytest.mark.parametrize(
    ("z", "expected"),
    [
        (draw(500, 64), 0),
        (draw(500, 64).repeat(1, 2), 64),
        (torch.ones(500, 8), 0),
        (torch.cat([draw(500, 4), torch.zeros(500, 4)], dim=1), 0),
        (draw(500, 1) * torch.linspace(1, 2, 16), 15),
        (draw(500, 8) + 1e3, 0),
        (torch.cat([draw(500, 4), draw(500, 4) + 0.25 * draw(500, 4, 1)], dim=1), 0),  # correlations of 0.97
        (torch.eye(100)[:, :1].repeat(1, 2), 0),
    ],
    ids=["isotropic", "each twice", "constant", "silent", "rank 1", "offset", "much alike", "each fires once"],
)
def test_repeated_dimensions_of_plain_cases(z: Tensor, expected: int) -> None:
    assert duplicate_dims(z) == expected


def test_blocks_and_many_samples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.cat([draw(300, 20), -draw(300, 20)], dim=1)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    assert duplicate_dims(z) == 20
    monkeypatch.setattr(module, "MOST_SAMPLES", 50)
    assert duplicate_dims(z) == 20


def test_units_that_no_labelled_sample_activates_have_no_class() -> None:
    z, labels = torch.zeros(40, 3), torch.zeros(40, dtype=torch.int64)
    assert consistency_interval(z, labels) is None
    z[5, 1] = 1.0  # and nine of ten parts of the samples activate it
    assert consistency_interval(z, labels) == Interval(1.0, 1.0, 1.0)
    assert consistency_interval(z + 1, labels - 1) is None
