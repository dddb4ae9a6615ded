"""Findings: every check speaks up at its fault and only there; verdicts; what is written for the report."""

import json
import math
import re
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from counterpoint.core.schemas import ClassShare, EvaluationRow, read_record
from counterpoint.core.terminal_text import MAX_CHARACTERS
from counterpoint.diagnostics.evidence import (
    EMBEDDING,
    GREY_INPUT,
    RAW_INPUT,
    REPRESENTATION,
    UNTRAINED,
    AlteredInput,
    ClassRecord,
    ClassRow,
    ColourShortcut,
    Concept,
    Evidence,
    HeldOutRecord,
    Lever,
    Measurements,
    OptimumRecord,
    ToldApart,
)
from counterpoint.diagnostics.finding import LEVELS, Finding, Level
from counterpoint.diagnostics.findings import CATALOGUE, Findings, find, judged_anew
from counterpoint.diagnostics.measure import measure_place
from counterpoint.diagnostics.pair_record import PairRecord
from counterpoint.diagnostics.remedies import REMEDIES, advice
from counterpoint.report import run_reading
from hit_rows import hit_row

FIGURES = {
    "effective_rank": 50.0,
    "rank_ceiling": 62.0,
    "uniformity": -3.7,
    "sparsity": 0.0,
    "feature_correlation": 0.1,
    "dead_dims": 0,
    "alignment": 0.3,
    "positive_cosine": 0.85,
    "negative_cosine": 0.02,
    "class_consistency": 0.4,
    "overlap": 0.99,
    "moved_views": 0.0,
    "spread": 0.99,
    "duplicates": 0.0,
    "clumps": 0.0,
    "vanished": 0,
    "vanished_step": 6.0,
    "resolved": 64,
}


def healthy(*, num_samples: int = 1000, num_dims: int = 64, **changes: float | None) -> Measurements:
    """Measurements of a good embedding, with what a test changes."""
    return Measurements.model_validate({"num_samples": num_samples, "num_dims": num_dims, **FIGURES, **changes})


def evidence(*, places: dict[str, Measurements] | None = None, **others: Any) -> Evidence:
    """Evidence of a good run, with what a test changes."""
    good: dict[str, Any] = {
        "loss": 2.5,
        "chance": 6.2,
        "floor": 1.0,
        "votes": votes(accuracy(0.90)),
        "shortcut": ColourShortcut(overlap=0.7, followed=0.2, num_samples=1000),
        "values": {},
        "levers": frozenset(get_args(Lever)),
        "weight_change": 0.3,
    }
    representation = healthy(num_dims=256, effective_rank=100.0, rank_ceiling=230.0)
    untrained = healthy(num_dims=256, effective_rank=150.0, rank_ceiling=230.0)
    known = {EMBEDDING: healthy(), REPRESENTATION: representation, UNTRAINED: untrained, **(places or {})}
    return Evidence(known, **{**good, **others})


PIXELS = hit_row("pixels (PCA)", range(800), 1000)


def votes(learned: EvaluationRow | None, baseline: EvaluationRow | None = PIXELS) -> tuple[EvaluationRow, ...]:
    """kNN accuracies of the representation and of a baseline; the embedding's are those of the representation."""
    same = [learned, learned.model_copy(update={"features": "embedding"})] if learned else []
    return tuple(filter(None, [*same, baseline]))


def embedding(**changes: Any) -> Evidence:
    """Evidence with another embedding."""
    return evidence(places={EMBEDDING: healthy(**changes)})


def sliced(by: str, **changes: float) -> Evidence:
    """Evidence of an embedding one of whose slices is far from a Gaussian, with what a test changes."""
    counts = {"slice_count": 256, "slice_random": 2, "slice_principal": 3, "slice_dims": 4}
    shape = {"slice_worst": 0.05, "slice_limit": 0.003, "slice_dim": None, "slice_skewness": 0.2, "slice_kurtosis": 1.7}
    return replace(embedding(**{**counts, **shape, **changes}), gaussian_by=by)


def weighed(**changes: Any) -> Evidence:
    """Evidence with a look at pairs, of a good run but for what a test changes."""
    good: dict[str, Any] = {
        "loss": "InfoNCE",
        "temperature": 0.2,
        "run_batch": 256,
        "batch_size": 256,
        "num_batches": 7,
        "num_negatives": 510,
        "effective_negatives": 154.0,
        "hardest_share": 0.25,
        "copy_share": 0.02,
        "copy_mass": 0.001,
        "copy_chance": 0.0001,
    }
    return evidence(pairs=PairRecord(**{**good, **changes}))


def levels(given: Evidence) -> dict[str, Level]:
    return {finding.name: finding.level for finding in find(given)}


def accuracy(value: float) -> EvaluationRow:
    """Of 1000 queries of ten classes the first 100 are wrong, which the baseline gets right."""
    row = hit_row("representation", range(100, 100 + round(1000 * value)), 1000)
    shares = {f"class {number}": ClassShare(correct=0, total=100) for number in range(10)}
    return row.model_copy(update={"classes": shares})


HIDING = (accuracy(0.90), hit_row("embedding", range(100, 400), 1000), PIXELS)
SILENT = {  # these say nothing where all is well
    "label-noise", "label-leak", "imbalance", "shared-cluster", "parted-label", "batch-effect", "neural-collapse",
    "identical-views", "stray-views", "shift", "altered-input",
    "untrained", "unrelated-views", "duplicates", "offset", "uneven-spectrum", "cluster-collapse", "dead-dimensions",
    "few-negatives", "temperature-low", "temperature-high", "false-negatives",
    "little-evidence", "duplicate-dimensions", "minority-collapse", "held-out", "leakage", "shortcut",
    "outliers", "near-copies", "scales", "heavy-tails", "saturated", "quantised", "hubs", "row-order",
    "non-uniformity", "not-finite", "projector-hides", "rate-too-high", "narrow-embedding", "hiding-views",
    "gaussian-slices", "sparse-code",
}  # fmt: skip


def rare(**changes: Any) -> ClassRecord:
    """Three classes, the two rare ones with one mean."""
    rows = tuple(ClassRow(name=name, count=n, is_rare=n < 20) for name, n in (("a", 40), ("b", 5), ("c", 5)))
    return ClassRecord(**{"rows": rows, "rare_cosine": 0.97, "low": 0.9, "high": 1.0, **changes})


def of_classes(**changes: Any) -> Evidence:
    """Evidence with three classes that have the same number of samples, but for what a test changes."""
    rows = tuple(ClassRow(name=name, count=50) for name in "abc")
    return evidence(classes=ClassRecord(**{"rows": rows, **changes}))


def noisy_labels() -> Evidence:
    """A fifth of the labels is wrong."""
    figures = healthy(label_noise=0.2).model_copy(update={"intervals": {"label_noise": (0.15, 0.25)}})
    return evidence(places={EMBEDDING: figures})


def collapsed_to_classes(**changes: Any) -> Evidence:
    """Nine directions for ten classes, which are told apart."""
    rows = tuple(ClassRow(name=str(number), count=50) for number in range(10))
    learned = hit_row(REPRESENTATION, range(100, 1000), 1000)
    shares = {str(number): ClassShare(correct=90, total=100) for number in range(10)}
    known = votes(learned.model_copy(update={"classes": shares}))
    places = {EMBEDDING: healthy(participation_ratio=9.0, **changes)}
    return evidence(places=places, classes=ClassRecord(rows=rows, within_share=0.1), votes=known)


ONE_CLASS = tuple(ClassRow(name=name, count=count) for name, count in (("a", 900), ("b", 100)))


def told(raw: float, by_embedding: float) -> dict[str, ToldApart]:
    """Areas under the curve of parts that are told apart, where chance has 0.5."""
    areas = {RAW_INPUT: raw, EMBEDDING: by_embedding}
    return {place: ToldApart(auc=auc, chance=0.5, error=0.03, num_samples=400) for place, auc in areas.items()}


def leaked(count: int) -> HeldOutRecord:
    return HeldOutRecord(num_held_out=100, num_copies=count, num_either=count, copies_low=0.01, copies_high=0.3)


def sparse_code(explained: float = 0.8, **changes: Any) -> Evidence:
    """Eight of 64 units are active on each of 1,000 samples, but for what a test changes."""
    places = {EMBEDDING: healthy(**{"sparsity": 0.875, **changes})}
    return evidence(places=places, reconstruction=explained, is_nonnegative=True)


SCALED = {
    "largest_scale": 100.0, "scale_spread": 1000.0, "standard_vanished": 0, "standard_participation_ratio": 60.0,
    "raw_participation_ratio": 5.0,
}  # fmt: skip
VALUES = {"epochs": 10, "temperature": 0.2, "projector.features": 64}


def hidden_views() -> Evidence:
    """Views that neither an untrained encoder nor a trained one can tell to belong together."""
    untrained = healthy(num_dims=256, effective_rank=150.0, rank_ceiling=230.0, overlap=0.52)
    return evidence(places={UNTRAINED: untrained, EMBEDDING: healthy(overlap=0.58)})


FAST = {**VALUES, "optim.learning_rate": 30.0, "optim.name": "sgd"}
FAULTS: list[tuple[str, Evidence, Level, str]] = [
    ("untrained", evidence(weight_change=1e-7), "severe", "its weights changed by 1e-07 of their norm"),
    ("untrained", evidence(weight_change=0.0, levers=frozenset()), "warning", "its weights are random"),
    (
        "rate-too-high",
        evidence(values=FAST),
        "warning",
        "The learning rate 30 is far above the usual ones of sgd",
    ),
    ("hiding-views", hidden_views(), "severe", "untrained, two of one sample are closer in 52% of the cases"),
    ("rate-too-high", evidence(weight_change=300.0), "severe", "changed by 300 times their norm"),
    ("full-collapse", embedding(spread=0.004), "severe", "coincide"),
    ("full-collapse", embedding(spread=0.99, effective_rank=0.0), "severe", "coincide"),
    (
        "offset",
        evidence(places={EMBEDDING: healthy(spread=0.16)}, levers=frozenset()),
        "note",
        "an offset 6.2 times as long as their spread",
    ),
    ("loss-at-chance", evidence(loss=6.19), "severe", "The loss, 6.19, is at chance (6.20)"),
    ("loss-at-chance", evidence(loss=7.5), "severe", "at chance"),
    ("dimensional-collapse", embedding(vanished=1), "note", "1 of 64 directions of the embedding have vanished"),
    ("dimensional-collapse", embedding(vanished=20), "warning", "20 of 64"),
    ("dimensional-collapse", embedding(vanished=40), "severe", "40 of 64"),
    ("dimensional-collapse", embedding(vanished=20, vanished_step=1.5), "note", "20 of 64"),
    ("dimensional-collapse", embedding(vanished=40, vanished_step=1.5), "warning", "40 of 64"),
    ("uneven-spectrum", embedding(effective_rank=10.0), "note", "effective rank 10.0 of 62 possible"),
    ("uneven-spectrum", embedding(effective_rank=2.0), "warning", "effective rank 2.0 of 62"),
    ("uneven-spectrum", embedding(first_share=0.93), "warning", "One direction carries 93% of the variance"),
    ("uneven-spectrum", embedding(raw_first_share=0.75), "note", "One direction carries 75%"),
    ("outliers", embedding(outliers=3, outlier_variance=0.9), "warning", "3 of 1,000 samples are outliers"),
    ("outliers", embedding(outliers=1, outlier_variance=0.02), "note", "1 of 1,000 samples"),
    ("near-copies", embedding(near_copies=0.5), "warning", "50% of the samples have near-copies"),
    ("near-copies", embedding(near_copies=0.05), "note", "5% of the samples"),
    ("scales", embedding(**SCALED), "warning", "very different scales"),
    ("scales", embedding(**SCALED, vanished=12), "warning", "very different scales"),
    ("scales", embedding(**SCALED, scale_order=-1.0), "note", "very different scales"),
    ("heavy-tails", embedding(tail_share=0.5), "warning", "the most distant 1% of the samples carry 50%"),
    ("heavy-tails", embedding(entry_tail_share=0.5), "note", "entries of a dimension carry 50%"),
    ("saturated", embedding(saturated=0.5), "warning", "50% of the entries"),
    ("quantised", embedding(distinct_values=5.0), "note", "takes 5 different values"),
    ("hubs", embedding(largest_hub=0.9), "warning", "among the 10 nearest of 90%"),
    ("hubs", embedding(distance_hub=0.6), "note", "among the 10 nearest of 60%"),
    ("row-order", embedding(row_order=0.3), "note", "or rows are sorted"),
    ("row-order", embedding(row_order=0.3, row_order_within=0.2), "warning", "within classes"),
    ("cluster-collapse", embedding(clumps=1.0), "warning", "100% of the samples lie in clumps"),
    ("duplicates", embedding(duplicates=0.05), "note", "50 of 1,000 samples are exact copies"),
    ("duplicates", embedding(duplicates=0.5), "warning", "500 of 1,000 samples are exact copies"),
    ("unrelated-views", embedding(overlap=0.51), "severe", "are unrelated"),
    ("unrelated-views", embedding(overlap=0.7, moved_views=0.97), "severe", "different orders"),
    ("gaussian-slices", sliced("theory", slice_dim=5, slice_kurtosis=8.0), "warning", "dimension 5 has heavy tails"),
    ("gaussian-slices", sliced("loss"), "warning", "a direction falls into groups"),
    ("gaussian-slices", sliced("theory"), "note", "a direction falls into groups"),
    ("gaussian-slices", sliced("", slice_dim=5, slice_kurtosis=2.0), "note", "dimension 5 has short tails"),
    ("representation-rank", evidence(places={REPRESENTATION: healthy(effective_rank=20.0)}), "warning", "20"),
    ("alignment", embedding(positive_cosine=0.20), "warning", "0.20, different samples 0.02"),
    ("alignment", embedding(negative_cosine=0.80), "warning", "0.85, different samples 0.80"),
    ("non-uniformity", embedding(uniformity=-0.5), "warning", "crowded on the sphere: uniformity -0.50"),
    ("shortcut", evidence(shortcut=ColourShortcut(overlap=0.99, followed=0.8, num_samples=500)), "warning", "80%"),
    ("shift", evidence(held_out=HeldOutRecord(told=told(0.9, 0.9))), "warning", "AUC 0.90 by raw input"),
    ("shift", evidence(held_out=HeldOutRecord(told=told(0.5, 0.9))), "note", "knows which samples"),
    (
        "altered-input",
        evidence(altered=AlteredInput(change="inverted", distance=1.2, undone=0.1)),
        "warning",
        "inverted",
    ),
    ("not-finite", evidence(not_finite=("7", "9")), "warning", "2 of 1,002 rows hold NaN or infinity"),
    ("projector-hides", evidence(votes=HIDING), "warning", "30.0% against 90.0%"),
    ("narrow-embedding", embedding(num_dims=4, resolved=4), "warning", "has 4 dimensions of the representation's 100"),
    (
        "classes",
        evidence(votes=votes(accuracy(0.11), None)),
        "warning",
        "at chance, 11.0% by kNN; the largest class has",
    ),
    ("gain", evidence(votes=votes(accuracy(0.70))), "warning", "no, worse by kNN (70.0% against 80.0%)"),
    ("gain", evidence(votes=votes(accuracy(0.81))), "note", "not told apart by kNN (81.0% against"),
    ("dead-dimensions", embedding(dead_dims=3), "note", "3 of 64"),
    ("dead-dimensions", embedding(dead_dims=40), "warning", "40 of 64"),
    ("sparse-code", sparse_code(dead_dims=12), "note", "18.8% of 64 units"),
    ("sparse-code", sparse_code(dead_dims=14), "warning", "21.9% of 64 units"),
    ("sparse-code", sparse_code(dead_dims=50, sparsity=0.9995), "note", "78.1% of 64 units"),
    ("sparse-code", sparse_code(explained=-0.1, dead_dims=0), "warning", "gives back -10%"),
    ("duplicate-dimensions", embedding(duplicate_dims=3), "note", "3 of 64 embedding dimensions repeat"),
    ("duplicate-dimensions", embedding(duplicate_dims=32), "warning", "32 of 64 embedding dimensions repeat"),
    ("minority-collapse", evidence(classes=rare()), "warning", "b, c; the cosine between their means is 0.97, -0.50"),
    (
        "minority-collapse",
        evidence(classes=rare(optimum=OptimumRecord(rare_cosine=-0.2))),
        "warning",
        "-0.20 at the optimum of this loss",
    ),
    (
        "minority-collapse",
        evidence(classes=rare(frequent_cosine=-0.1, optimum=OptimumRecord(rare_cosine=1.0))),
        "warning",
        "-0.10 between frequent classes",
    ),
    ("held-out", evidence(held_out=HeldOutRecord(gap=0.3, low=0.2, high=0.4)), "warning", "by 0.30 in cosine"),
    ("leakage", evidence(held_out=leaked(3)), "note", "3 of 100 held-out samples"),
    ("leakage", evidence(held_out=leaked(20)), "warning", "20 of 100 held-out samples"),
    ("temperature-low", weighed(temperature=0.005, effective_negatives=12.2), "warning", "looks at 12.2 of 510"),
    (
        "temperature-low",
        evidence(pairs=weighed(temperature=0.01).pairs, places={EMBEDDING: healthy(uniformity=-0.1)}),
        "warning",
        "samples have crowded: uniformity -0.10",
    ),
    (
        "temperature-high",
        weighed(temperature=10.0, effective_negatives=508.9),
        "warning",
        "all negatives weigh nearly alike",
    ),
    ("temperature-high", weighed(temperature=1.5, effective_negatives=0.95 * 510), "warning", "484 of 510 count"),
    ("few-negatives", weighed(num_negatives=6, run_batch=4, effective_negatives=3.1), "warning", "6 negatives only"),
    ("few-negatives", weighed(num_negatives=30, run_batch=16), "warning", "30 negatives only (batches of 16)"),
    ("false-negatives", weighed(copy_share=1.0, copy_mass=0.14), "warning", "14% of the push goes against near-copies"),
    ("false-negatives", weighed(copy_share=1.0, copy_mass=0.013), "note", "1% of the push goes against near-copies"),
    ("label-noise", noisy_labels(), "warning", "At least 15% of the labels look wrong"),
    ("label-leak", embedding(leaked_dims=2), "warning", "2 coordinates give the label away"),
    ("imbalance", of_classes(rows=ONE_CLASS), "warning", "90% of the samples are of class a, the rarest class has 100"),
    ("shared-cluster", of_classes(shared=(("a", "b"),)), "note", "a and b"),
    ("parted-label", of_classes(parted=("c",)), "note", "c"),
    ("batch-effect", embedding(hidden_modes=0.4), "note", "the smaller has 40% of the samples"),
    ("neural-collapse", collapsed_to_classes(), "note", "9 directions for 10 classes"),
    ("identical-views", embedding(same_views=1.0), "warning", "views of 100% of the samples"),
    ("stray-views", embedding(stray_views=0.3), "warning", "About 30% of the view rows"),
    ("little-evidence", embedding(num_samples=50), "note", "50 samples in 64 dimensions"),
    ("little-evidence", embedding(num_samples=400, num_dims=512), "note", "400 samples in 512 dimensions"),
]


def test_views_that_share_few_units_of_a_sparse_code_are_no_fault() -> None:
    figures = {"positive_cosine": 0.20, "negative_cosine": 0.02}
    assert levels(sparse_code(**figures))["alignment"] == "note"
    assert levels(embedding(**figures))["alignment"] == "warning"


def test_a_sparse_code_whose_units_are_in_use_is_fine_and_says_both_figures_once() -> None:
    found = {finding.name: finding for finding in find(sparse_code(dead_dims=3))}
    assert found["sparse-code"].level == "good"
    assert "4.7% of 64 units are silent, and the code gives back 80%" in found["sparse-code"].title
    assert "dead-dimensions" not in found


@pytest.mark.parametrize(("name", "faulty", "level", "words"), FAULTS, ids=[f"{f[0]}-{f[2]}-{f[3]}" for f in FAULTS])
def test_each_fault_is_found_and_said_and_leaves_other_checks_alone(
    name: str, faulty: Evidence, level: Level, words: str
) -> None:
    (finding,) = (finding for finding in find(faulty) if finding.level != "good")
    assert (finding.name, finding.level) == (name, level)
    assert words in finding.title
    assert finding.remedy


def test_a_finding_on_features_from_anywhere_names_no_setting_of_a_run() -> None:
    """Of the faults those that lie in the embedding; the others leave healthy features, of which nothing is said."""
    features = [faulty.places[EMBEDDING] for _, faulty, _, _ in FAULTS]
    faults = [each for z in features for each in find(Evidence({EMBEDDING: z})) if each.level != "good"]
    assert {"offset", "hubs", "alignment", "label-leak", "little-evidence"} <= {each.name for each in faults}
    for each in faults:
        assert each.remedy, each
        assert not re.search(r"--|counterpoint|temperature|learning rate|epochs", each.remedy), each


def test_advice_keeps_to_what_the_run_can_change() -> None:
    collapsed = healthy(spread=0.001)
    (first, *_) = find(Evidence({EMBEDDING: collapsed}, levers=frozenset({"learning rate", "preview"})))
    assert first.name == "full-collapse"
    assert first.remedy == (
        "a lower learning rate (--optim.learning-rate) or a look at the views, which may be blank "
        "(counterpoint preview)"
    )


def test_every_check_is_tried_at_its_fault() -> None:
    assert {name for name, *_ in FAULTS} == set(CATALOGUE)


def test_healthy_evidence_is_found_healthy() -> None:
    found = levels(evidence())
    assert set(found.values()) == {"good"}
    assert set(found) == set(CATALOGUE) - SILENT


@pytest.mark.parametrize(
    ("name", "unknown"),
    [
        ("alignment", embedding(positive_cosine=None)),
        ("loss-at-chance", evidence(loss=None)),
        ("loss-at-chance", evidence(chance=None)),
        ("loss-at-chance", evidence(floor=None)),
        ("gain", evidence(votes=votes(None))),
        ("gain", evidence(votes=votes(accuracy(0.9), None))),
        ("representation-rank", Evidence({EMBEDDING: healthy(), REPRESENTATION: healthy()})),
        ("representation-rank", Evidence({EMBEDDING: healthy(), UNTRAINED: healthy()})),
    ],
)
def test_nothing_is_said_about_what_is_not_known(name: str, unknown: Evidence) -> None:
    assert name not in levels(unknown)


@pytest.mark.parametrize(
    "silent",
    [
        weighed(),
        weighed(why="this loss weighs no pairs", effective_negatives=None, num_negatives=None, temperature=None),
        weighed(temperature=None, effective_negatives=2.0),
        weighed(temperature=0.5, effective_negatives=509.0),  # uniform for another reason than the temperature
        weighed(num_negatives=32, effective_negatives=1.0),
        weighed(temperature=1.0, effective_negatives=0.95 * 510),
        weighed(copy_share=0.2, copy_mass=0.2),
        weighed(copy_share=1.0, copy_mass=0.002),
    ],
)
def test_attention_without_a_fault_is_not_spoken_of(silent: Evidence) -> None:
    assert set(levels(silent)) == set(CATALOGUE) - SILENT


def test_what_follows_from_neural_collapse_is_no_warning() -> None:
    faults = dict(vanished=40, duplicate_dims=50, clumps=1.0, effective_rank=3.0, **SCALED)
    assert "warning" in levels(embedding(**faults)).values()
    assert not {"warning", "severe"} & set(levels(collapsed_to_classes(**faults)).values())


def test_clumps_of_few_dimensions_that_are_the_classes_are_no_warning() -> None:
    """Two dimensions have no direction to spare, so that half of them being left says nothing."""
    flat = collapsed_to_classes(num_dims=2, rank_ceiling=2.0, effective_rank=1.9, resolved=2, clumps=1.0)
    known = {**flat.places, EMBEDDING: flat.places[EMBEDDING].model_copy(update={"participation_ratio": 1.8})}
    assert levels(replace(flat, places=known))["cluster-collapse"] == "note"


def test_entries_of_a_long_tail_are_named_beside_outliers_and_not_without() -> None:
    tails = {"tail_share": 0.03, "entry_tail_share": 0.3}
    beside = embedding(outliers=3, outlier_variance=0.3, **tails)
    assert levels(beside)["heavy-tails"] == levels(beside)["outliers"] == "warning"
    assert "heavy-tails" not in levels(embedding(**tails))
    assert "heavy-tails" not in levels(
        embedding(outliers=3, outlier_variance=0.3, tail_share=0.03, entry_tail_share=0.1)
    )


def test_where_all_samples_coincide_no_temperature_is_judged() -> None:
    uniform = weighed(temperature=10.0, effective_negatives=510.0)
    assert "temperature-high" in levels(uniform)
    collapsed = replace(uniform, places={**uniform.places, EMBEDDING: healthy(spread=0.001)})
    assert "temperature-high" not in levels(collapsed)


def test_changes_name_a_setting_only_where_the_run_has_it() -> None:
    cold = weighed(temperature=0.005, effective_negatives=12.2)
    (finding,) = (each for each in find(cold) if each.name == "temperature-low")
    assert "--temperature" in finding.remedy
    assert finding.confirm
    assert finding.cannot_tell
    (other,) = (each for each in find(replace(cold, levers=frozenset())) if each.name == "temperature-low")
    assert other.changes == {}
    known = replace(cold, values={"temperature": 0.005})
    assert advice(known, *REMEDIES["temperature-low"][0])["changes"] == {"temperature": 0.2}
    few = replace(weighed(num_negatives=6, run_batch=4), values={"batch_size": 4, "epochs": 3})
    changes = advice(few, *REMEDIES["few-negatives"][0])["changes"]
    assert changes == {"batch_size": 256, "epochs": 192}  # as many updates


def test_classes_of_very_unequal_size_are_judged_by_the_mean_over_classes() -> None:
    """90 % name the commonest class; 87 % with half of each rare class right is worse by that, and not by chance."""
    shares = {
        "a": ClassShare(correct=820, total=900), "b": ClassShare(correct=25, total=50),
        "c": ClassShare(correct=25, total=50),
    }  # fmt: skip
    uneven = accuracy(0.87).model_copy(update={"classes": shares})
    (finding,) = (each for each in find(evidence(votes=votes(uneven, None))) if each.name == "classes")
    assert finding.level == "good"
    assert "63.7% by kNN in the mean over 3 classes" in finding.title
    blind = {"a": ClassShare(correct=870, total=900), **{name: ClassShare(correct=0, total=50) for name in "bc"}}
    none = accuracy(0.87).model_copy(update={"classes": blind})
    assert levels(evidence(votes=votes(none, None)))["classes"] == "warning"


def test_an_embedding_alone_is_enough() -> None:
    assert set(levels(Evidence({EMBEDDING: healthy()}))) == {"full-collapse", "dimensional-collapse", "alignment"}


def test_a_nonnegative_embedding_may_be_narrow_and_partly_silent() -> None:
    """Silent dimensions belong to the design and are said once; other directions may not vanish."""
    narrow = healthy(dead_dims=40, vanished=42, spread=0.3)
    nonnegative = levels(Evidence({EMBEDDING: narrow}, is_nonnegative=True))
    assert [nonnegative[name] for name in ("dimensional-collapse", "dead-dimensions", "offset")] == ["note"] * 3
    collapsed = evidence(places={EMBEDDING: healthy(dead_dims=10, vanished=55)}, is_nonnegative=True)
    assert levels(collapsed)["dimensional-collapse"] == "severe"


def test_learning_from_labels_draws_classes_together() -> None:
    assert levels(evidence(places={EMBEDDING: healthy(clumps=1.0)}, is_supervised=True))["cluster-collapse"] == "note"


def test_of_five_samples_nothing_is_said_but_that() -> None:
    few = Findings(findings=find(embedding(num_samples=5, spread=0.0)))
    assert [each.name for each in few.findings] == ["little-evidence"]
    assert few.verdict == "No verdict: 5 samples are too few."


@pytest.mark.parametrize(
    ("grey", "kept"),
    [(hit_row(GREY_INPUT, range(300), 1000), True), (hit_row(GREY_INPUT, range(795), 1000), False), (None, False)],
    ids=["worse without colour", "as good without", "not asked"],
)
def test_views_keep_colours_where_these_tell_the_classes(grey: EvaluationRow | None, kept: bool) -> None:
    raw = hit_row(RAW_INPUT, range(800), 1000)
    asked = tuple(filter(None, [*votes(accuracy(0.70), raw), grey]))
    known = evidence(votes=asked, levers=frozenset({"kept colour"}), values=VALUES)
    (finding,) = (each for each in find(known) if each.name == "gain")
    assert (finding.changes == {"views.jitter": 0.0, "views.grayscale": 0.0}) == kept
    assert finding.remedy.startswith("views that keep colours" if kept else "more data")
    assert ("Colours separate these classes" in finding.text) == kept


@pytest.mark.parametrize(
    ("known", "level"),
    [
        (evidence(values=FAST, levers=frozenset()), "warning"),
        (evidence(values=FAST, levers=frozenset(), loss=6.15), "severe"),
        (evidence(values=FAST, levers=frozenset(), places={EMBEDDING: healthy(spread=0.004)}), "severe"),
    ],
    ids=["trained", "at chance", "collapsed"],
)
def test_a_rate_beyond_usual_is_severe_where_the_training_failed(known: Evidence, level: Level) -> None:
    (finding,) = (each for each in find(known) if each.name == "rate-too-high")
    assert finding.level == level


@pytest.mark.parametrize(("step", "has_views"), [(7.9, True), (8.1, False)])
def test_what_a_layer_has_cut_off_no_views_bring_back(step: float, has_views: bool) -> None:
    levers = frozenset({"views", "directclr"})
    known = evidence(places={EMBEDDING: healthy(vanished=40, vanished_step=step)}, levers=levers, values=VALUES)
    (finding,) = (each for each in find(known) if each.name == "dimensional-collapse")
    assert finding.level == "severe"
    assert bool(finding.changes) == has_views
    assert finding.remedy.startswith("DirectCLR" if has_views else "a wider layer where they end")


def test_a_gain_is_judged_in_pairs_where_intervals_overlap() -> None:
    """Wilson's intervals of 88.1 and 81.4 % overlap; 34 queries of 360 speak for the one, 10 for the other."""
    better = hit_row("pixels (PCA)", [*range(300), *range(320, 337)], 360)
    worse = hit_row("representation", [*range(266), *range(320, 347)], 360)
    assert better.low is not None
    assert worse.high is not None
    assert better.low < worse.high
    (finding,) = (each for each in find(evidence(votes=votes(worse, better))) if each.name == "gain")
    assert finding.level == "warning"
    assert "the difference is -6.7 points" in finding.text
    assert "p < 0.001 (exact McNemar test)" in finding.text


def test_the_loss_is_read_as_a_share_of_the_way_to_its_floor() -> None:
    """(6 - 3) / (6 - 1) = 60 %."""
    (finding,) = (f for f in find(evidence(loss=3.0, chance=6.0, floor=1.0)) if f.name == "loss-at-chance")
    assert "60%" in finding.title
    assert (finding.measured, finding.reference) == (3.0, 6.0)


def features(kind: str) -> Tensor:
    """Features whose fault is known by construction."""
    generator = torch.Generator().manual_seed(1)
    spread = torch.randn(400, 32, generator=generator)
    line = torch.randn(400, 1, generator=generator)
    return {
        "healthy": spread,
        "one point": torch.ones(400, 32) + 1e-3 * spread,
        "offset": torch.ones(400, 32) * 6 + spread,
        "constant": torch.full((400, 32), 0.1),
        "silent": torch.zeros(400, 32),
        "a line": line * torch.linspace(1, 2, 32) + 1e-4 * spread,
        "half dead": spread * (torch.arange(32) >= 20),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("healthy", {}),
        ("one point", {"full-collapse": "severe"}),
        ("constant", {"full-collapse": "severe"}),
        ("silent", {"full-collapse": "severe", "dead-dimensions": "warning"}),
        ("offset", {"offset": "note"}),
        (
            "a line",
            {
                "dimensional-collapse": "severe",
                "uneven-spectrum": "warning",
                "unrelated-views": "severe",
                "duplicate-dimensions": "warning",
            },
        ),
        ("half dead", {"dimensional-collapse": "severe", "dead-dimensions": "warning"}),
    ],
)
def test_real_features_with_a_known_fault_are_diagnosed(kind: str, expected: dict[str, Any]) -> None:
    z = features(kind)
    noise = 0.1 * torch.randn(z.shape, generator=torch.Generator().manual_seed(2)) * z.abs()
    place = measure_place(z, views=(z, z + noise))
    found = {name: level for name, level in levels(Evidence({EMBEDDING: place.figures})).items() if level != "good"}
    assert found == expected
    assert place.figures.dead_dims == {"silent": 32, "half dead": 20}.get(kind, 0)


def finding(level: Level, title: str = "Something") -> Finding:
    return Finding(
        name="name", level=level, title=title, measured=1.0, reference_name="nothing", text="Text.", remedy="do this"
    )


BETTER = Finding(name="gain", level="good", title="Better than raw input: yes by kNN")
ABOVE_CHANCE = Finding(name="classes", level="good", title="The features tell the classes apart")


def findings_of(*found: Finding) -> Findings:
    concept = Concept(dim=3, values=(0.5, 0.2))
    return Findings(
        findings=found, places={EMBEDDING: healthy()}, concepts=(concept,), settings={"sparsity_threshold": 1e-5}
    )


def test_the_worst_comes_first_and_otherwise_the_catalogues_order_holds() -> None:
    found = find(embedding(dead_dims=40, num_samples=50, positive_cosine=0.1, vanished=60))
    ranks = [LEVELS.index(each.level) for each in found]
    assert ranks == sorted(ranks, reverse=True)
    assert found[0].name == "dimensional-collapse"
    order = list(CATALOGUE)
    for level in LEVELS:
        places = [order.index(each.name) for each in found if each.level == level]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("found", "level", "sentence"),
    [
        ((), "good", "No fault found."),
        ((ABOVE_CHANCE,), "good", "No fault found."),
        ((BETTER,), "good", "Healthy: no fault found."),
        ((finding("note"), finding("good")), "note", "No fault found, with notes."),
        ((finding("note"), BETTER), "note", "Healthy, with notes."),
        ((finding("warning"), finding("note"), BETTER), "warning", "With a warning: Something."),
        ((finding("severe", "A"), finding("severe", "B"), finding("warning")), "severe", "A (and 1 more)."),
    ],
)
def test_the_verdict_names_the_worst_and_calls_healthy_only_what_was_measured(
    found: tuple[Finding, ...], level: Level, sentence: str
) -> None:
    findings = findings_of(*found)
    assert findings.level == level
    assert findings.verdict.endswith(sentence)
    assert findings.verdict.startswith("With a serious fault") == (level == "severe")


def test_beside_the_verdict_stands_what_was_not_looked_at() -> None:
    known = [
        ((None, None), {"labels", "raw input"}),
        ((accuracy(0.9), None), {"raw input"}),
        ((accuracy(0.9), PIXELS), set()),
    ]
    for rows, lacking in known:
        assert set(Evidence({}, votes=votes(*rows)).not_looked_at) == lacking
    assert set(Evidence({EMBEDDING: healthy(overlap=None)}).not_looked_at) == {"labels", "raw input", "views"}
    later = judged_anew(Findings(unjudged=("labels", "raw input", "views")), votes(accuracy(0.9)))
    assert later.limits.endswith(": views.")


def test_an_evaluation_that_came_later_is_judged_too() -> None:
    correct = {"representation": 900, "embedding": 990, "pixels (PCA)": 800, "untrained": 700}
    rows = [hit_row(name, range(num), 1000) for name, num in correct.items()]
    before = findings_of(finding("note"))
    after = judged_anew(before, rows)
    assert [(each.name, each.level) for each in after.findings] == [("name", "note"), ("gain", "good")]
    assert (after.findings[1].measured, after.findings[1].reference) == (0.9, 0.8)
    assert judged_anew(after, rows) == after
    assert judged_anew(after, []) == after  # the diagnosis has its own


def test_printed_findings_show_why_and_what_to_try_only_where_something_is_wrong() -> None:
    wrong = finding("warning").model_copy(
        update={"low": 0.5, "high": 1.5, "reference": 0.0, "confirm": "look", "cannot_tell": "the rest"}
    )
    lines = str(findings_of(wrong, finding("note"), finding("good"))).splitlines()
    assert lines[0] == findings_of(wrong).verdict
    assert [line.strip() for line in lines[-3:-1]] == ["note     Something", "try: do this"]
    assert [line.strip() for line in lines[2:-3]] == [
        "measured: 1 (95 % interval 0.5 to 1.5); nothing: 0",
        "why: Text.",
        "test: look",
        "try: do this",
        "open: the rest",
    ]
    assert lines[-1].split() == ["good", "Something"]


def test_what_is_written_is_plain_json_with_the_keys_that_the_report_reads() -> None:
    findings = Findings(
        findings=find(evidence(loss=6.19)),
        places=evidence().places,
        concepts=(Concept(dim=3),),
        settings={"num_samples": 9},
    )
    written = json.loads(json.dumps(findings.to_dict(), allow_nan=False))
    assert set(written) == {
        "verdict", "answer", "findings", "places", "concepts", "settings", "unjudged", "levers", "classes", "held_out",
        "pairs",
    }  # fmt: skip
    assert written["verdict"] == {"level": "severe", "sentence": findings.verdict}
    assert read_record(Findings, written, "findings.json") == findings
    assert set(written["places"]) == {EMBEDDING, REPRESENTATION, UNTRAINED} == set(run_reading.PLACES)
    assert all({"num_samples", "num_dims", "intervals", *FIGURES} == set(place) for place in written["places"].values())
    assert written["findings"][0]["measured"] == 6.19
    assert (written["concepts"], written["settings"]) == ([{"dim": 3}], {"num_samples": 9})


def test_every_figure_of_every_finding_is_finite_and_every_sentence_ends() -> None:
    for _, faulty, *_ in FAULTS:
        for each in find(faulty):
            assert each.measured is not None
            assert math.isfinite(each.measured)
            assert each.reference is None or math.isfinite(each.reference)
            assert each.text.endswith(".")
            assert len(each.text) <= MAX_CHARACTERS  # a page would cut it
            assert not each.title.endswith(".")
