"""Labels and views: each fault is named first, and healthy sets are silent."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import counterpoint as cp

DRAWN = np.random.default_rng(0)
CLASSES = DRAWN.integers(0, 10, 800)
HEALTHY = (DRAWN.normal(size=(10, 32))[CLASSES] + DRAWN.normal(size=(800, 32))).astype(np.float32)
NEW = {
    "label-noise", "label-leak", "imbalance", "neural-collapse", "batch-effect", "shared-cluster", "identical-views",
    "stray-views",
}  # fmt: skip


def _found(*given: object, **others: object) -> dict[str, str]:
    findings = cp.diagnose(*given, quiet=True, **others).findings  # pyright: ignore[reportArgumentType]
    return {finding.name: finding.level for finding in findings if finding.level != "good"}


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.4])
def test_wrong_labels_are_named_with_samples_that_have_them(rate: float) -> None:
    is_wrong = np.random.default_rng(1).random(800) < rate
    labels = np.where(is_wrong, (CLASSES + np.random.default_rng(2).integers(1, 10, 800)) % 10, CLASSES)
    first = cp.diagnose(HEALTHY, labels=labels, quiet=True).findings[0]
    assert first.name == "label-noise"
    assert first.low is not None
    assert first.low <= is_wrong.mean() + 0.02
    assert len(first.samples) == 10
    assert all(is_wrong[int(name)] for name in first.samples)


@pytest.mark.parametrize(("width", "least"), [(32, 10), (12, 6)])  # in 12 dimensions classes overlap
def test_two_labels_of_one_cluster_are_named_and_labels_of_classes_that_overlap_are_not(width: int, least: int) -> None:
    features, found = HEALTHY[:, :width], []
    assert "shared-cluster" not in _found(features, labels=CLASSES)
    for label in range(10):
        halved = np.where((label == CLASSES) & (np.random.default_rng(label).random(800) < 0.5), 10, CLASSES)
        said = [each for each in cp.diagnose(features, labels=halved).findings if each.name == "shared-cluster"]
        assert all(f"{label} and 10" in each.title for each in said)
        found += said
    assert len(found) >= least


@pytest.mark.parametrize("seed", range(1, 7))
def test_classes_that_are_hardly_told_apart_lie_in_no_two_clusters(seed: int) -> None:
    """A hundred samples in 32 dimensions fall into two halves wherever these are drawn by the samples they are of."""
    draws, labels = np.random.default_rng(seed), np.arange(500) % 5
    weak = 0.3 * draws.normal(size=(5, 32))[labels] + draws.normal(size=(500, 32))
    assert "parted-label" not in _found(weak, labels=labels)


@pytest.mark.parametrize("seed", [2, 4, 38])
def test_labels_of_noise_lie_in_no_two_clusters(seed: int) -> None:
    noise = torch.randn(200, 8, generator=torch.Generator().manual_seed(seed))
    assert "parted-label" not in _found(noise, labels=np.arange(200) % 4)


@pytest.mark.parametrize("leak", ["one-hot", "number"])
def test_labels_in_the_features_are_named(leak: str) -> None:
    written = np.eye(10)[CLASSES] if leak == "one-hot" else CLASSES[:, None] / 3
    assert _found(np.concatenate([HEALTHY, written], axis=1), labels=CLASSES)["label-leak"] == "warning"


def test_two_modes_in_every_class_are_noted() -> None:
    assert _found(HEALTHY + 6 * (np.arange(800) % 3 == 0)[:, None], labels=CLASSES)["batch-effect"] == "note"


def test_most_samples_of_one_class_are_named_as_imbalance() -> None:
    assert next(iter(_found(HEALTHY, labels=(np.arange(800) % 10 == 0).astype(int)))) == "imbalance"


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.9])
def test_a_part_of_the_view_rows_that_was_moved_is_named(share: float) -> None:
    moved, rows = np.random.default_rng(3).permutation(800)[: int(share * 800)], np.arange(800)
    rows[moved] = np.roll(moved, 1)
    views = HEALTHY + 0.5 * DRAWN.normal(size=HEALTHY.shape).astype(np.float32)
    assert "stray-views" in _found(HEALTHY, views=views[rows])
    assert not NEW & set(_found(HEALTHY, views=views))


def test_views_that_change_nothing_are_named() -> None:
    assert _found(HEALTHY, views=HEALTHY + 1e-4)["identical-views"] == "warning"


@pytest.mark.parametrize("kind", ["apart", "overlapping", "two of 1 in 3", "relu", "few", "wide", "many classes"])
def test_healthy_labelled_sets_are_silent(kind: str) -> None:
    drawn = np.random.default_rng(5)
    num, dims, classes, apart = {
        "apart": (800, 32, 10, 1.0), "overlapping": (800, 32, 10, 0.35), "two of 1 in 3": (600, 8, 2, 0.4),
        "relu": (800, 64, 10, 0.8), "few": (60, 16, 3, 1.5), "wide": (100, 512, 4, 0.5),
        "many classes": (1000, 64, 300, 1.5),
    }[kind]  # fmt: skip
    labels = drawn.integers(0, classes, num)
    features = apart * drawn.normal(size=(classes, dims))[labels] + drawn.normal(size=(num, dims))
    features = np.maximum(features, 0) if kind == "relu" else features
    assert not NEW & set(_found(features, labels=labels)) - {"neural-collapse"}


@pytest.mark.parametrize("hidden", [(128,), (256, 64)], ids=str)
@pytest.mark.thorough
def test_a_network_that_learned_its_labels_well_has_neural_collapse_and_no_fault(hidden: tuple[int, ...]) -> None:
    """The hidden layer of digits classifiers: 93 % of unseen digits are right, and about nine directions are left."""
    digits, labels = load_digits(return_X_y=True)
    network = MLPClassifier(hidden, max_iter=300, random_state=1).fit(digits[:1200] / 16, labels[:1200])
    layer_ND = digits[1200:] / 16
    for weight, bias in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
        layer_ND = np.maximum(layer_ND @ weight + bias, 0)
    found = {each.name: each.level for each in cp.diagnose(layer_ND, labels=labels[1200:], quiet=True).findings}
    assert found["neural-collapse"] == "note"
    about_collapse = ("dimensional-collapse", "cluster-collapse", "uneven-spectrum", "duplicate-dimensions")
    assert all(found.get(name, "good") in ("good", "note") for name in about_collapse)
