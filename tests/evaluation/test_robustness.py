"""A frozen classifier under corruptions and on other sources: loops from the equations, known answers, matching."""

# Q queries, D features

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from counterpoint.core.errors import DataError
from counterpoint.data.corruptions import corrupt
from counterpoint.data.formats.labels import Labels
from counterpoint.data.source import Source, memory_source
from counterpoint.data.stores import MemoryStore, Store
from counterpoint.evaluation.distribution_shift import LabelledSamples, frozen, frozen_scores, matched
from counterpoint.evaluation.evaluation_result import KNN, PROBE
from counterpoint.evaluation.knn import knn_score
from counterpoint.evaluation.linear_probe import probe_score
from counterpoint.evaluation.metric_types import IntervalEstimate, Labelled, Proportion, Score, accuracy
from counterpoint.evaluation.robustness import Robustness, mean_corruption_errors
from oracles.number_checks import assert_numbers


def scored(is_hit: np.ndarray) -> Score:
    return accuracy(torch.from_numpy(is_hit).long(), torch.ones(len(is_hit)).long(), {})


def robustness(clean: float, errors: list[list[float]], num_queries: int = 200) -> Robustness:
    """Hits with exactly these errors, spread over the queries."""

    def hits(error: float) -> Score:
        return scored(np.random.default_rng(round(error * 1000)).permutation(num_queries) >= error * num_queries)

    names = [f"corruption {place}" for place in range(len(errors))]
    corrupted = {
        (name, 1 + place): hits(error)
        for name, row in zip(names, errors, strict=True)
        for place, error in enumerate(row)
    }
    return Robustness(hits(clean), corrupted, len(errors[0]))


OWN = [[0.2, 0.3, 0.5], [0.1, 0.4, 0.4]]
REFERENCE = [[0.4, 0.6, 0.7], [0.5, 0.5, 0.8]]


def test_the_mean_corruption_error_is_equation_one() -> None:
    found = mean_corruption_errors(robustness(0.1, OWN), robustness(0.3, REFERENCE))
    ratios = [sum(own) / sum(reference) for own, reference in zip(OWN, REFERENCE, strict=True)]
    lost = [(sum(own) - 0.3) / (sum(reference) - 0.9) for own, reference in zip(OWN, REFERENCE, strict=True)]
    assert_numbers(found["corruption error"].value, sum(map(sum, OWN)) / 6)
    assert_numbers([found["mCE"].value, found["relative mCE"].value], [sum(ratios) / 2, sum(lost) / 2])
    for estimate in found.values():
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high


def test_a_classifier_is_its_own_measure() -> None:
    own = robustness(0.1, OWN)
    found = mean_corruption_errors(own, own)
    for name in ("mCE", "relative mCE"):
        assert found[name] == IntervalEstimate(1.0, 1.0, 1.0)


def test_without_errors_of_the_reference_there_is_no_ratio() -> None:
    perfect = robustness(0.0, [[0.0, 0.0, 0.0]] * 2)
    assert mean_corruption_errors(robustness(0.1, OWN), perfect).keys() == {"corruption error"}
    assert mean_corruption_errors(robustness(0.1, OWN), None).keys() == {"corruption error"}
    unmoved = robustness(0.4, [[0.4, 0.4, 0.4]] * 2)
    assert mean_corruption_errors(robustness(0.1, OWN), unmoved).keys() == {"corruption error", "mCE"}


def test_the_interval_of_the_error_is_that_of_a_mean() -> None:
    """One corruption at one severity: the bootstrap of a share, whose deviation is known."""
    found = mean_corruption_errors(robustness(0.1, [[0.3]], num_queries=1000), None)["corruption error"]
    assert found.low is not None
    assert found.high is not None
    deviation = math.sqrt(0.3 * 0.7 / 1000)
    assert_numbers([0.3], [found.value])
    assert (found.high - found.low) / (2 * 1.96 * deviation) == pytest.approx(1.0, abs=0.1)


def pictures(num: int, seed: int) -> tuple[Tensor, Tensor]:
    """Grey pictures of two classes: dark and bright."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num) % 2
    noise = torch.randint(0, 90, (num, 1, 8, 8), generator=generator)
    return (noise + 70 * labels[:, None, None, None]).to(torch.uint8), labels


def represent(store: Store) -> dict[str, Tensor]:
    images = store.fetch(range(len(store))).float() / 255
    return {"pixels": images.flatten(1), "mean": images.mean((1, 2, 3), keepdim=False)[:, None]}


@pytest.mark.parametrize("protocol", [PROBE, KNN])
def test_a_frozen_classifier_on_clean_queries_is_the_metric(protocol: str) -> None:
    (bank, bank_labels), (queries, labels) = pictures(40, 0), pictures(30, 1)
    features = represent(MemoryStore(bank)), represent(MemoryStore(queries))
    known = {
        name: Labelled(features[0][name], bank_labels, features[1][name], labels, k=3, temperature=0.1)
        for name in features[0]
    }
    classifiers = {name: frozen(each, protocol) for name, each in known.items()}
    asked = LabelledSamples(MemoryStore(queries), torch.arange(30), labels)
    metric = probe_score if protocol == PROBE else knn_score
    for name, score in frozen_scores(classifiers, represent, asked).items():
        assert score == metric(known[name])


def test_under_a_corruption_the_corrupted_samples_are_asked_about() -> None:
    (bank, bank_labels), (queries, labels) = pictures(40, 0), pictures(30, 1)
    known = Labelled(
        represent(MemoryStore(bank))["pixels"], bank_labels, torch.zeros(1, 64), labels[:1], k=1, temperature=1.0
    )
    chosen = torch.tensor([3, 8, 21, 4, 0])
    asked = LabelledSamples(MemoryStore(queries), chosen, labels[chosen]).under("brightness", 5)
    classifier = frozen(known, PROBE)
    (score,) = frozen_scores({"pixels": classifier}, represent, asked).values()
    brighter = corrupt(queries, "brightness", 5, ids_B=torch.arange(30))[chosen]
    predicted = classifier.classify(represent(MemoryStore(brighter))["pixels"])
    assert score == accuracy(predicted, labels[chosen], classifier.settings)
    assert isinstance(score.outcome, Proportion)
    assert score.outcome.value < 1.0  # dark pictures become bright


def test_a_corruption_has_its_bits_whichever_samples_are_asked_about() -> None:
    queries, labels = pictures(30, 1)
    asked = LabelledSamples(MemoryStore(queries), torch.arange(30), labels).under("gaussian noise", 3, seed=4)
    assert torch.equal(asked.store.fetch([7]), asked.store.fetch(range(30))[7:8])


def test_another_protocol_is_refused() -> None:
    known = Labelled(torch.eye(2), torch.arange(2), torch.eye(2), torch.arange(2), k=1, temperature=1.0)
    with pytest.raises(ValueError, match="a frozen classifier must be 'linear probe' or 'knn', got '1-shot'"):
        frozen(known, "1-shot")


def source(labels: list[int], names: tuple[str, ...]) -> Source:
    return memory_source("other", torch.zeros(len(labels), 1, 8, 8).byte(), Labels(torch.tensor(labels), names))


def test_classes_are_matched_by_name_and_the_others_named_and_counted() -> None:
    other = source([2, 0, 1, -1, 0, 2, 3], ("Cat", "bear", "ship", "oven"))
    found = matched(other, ("dog", "ship", "cat"))
    assert found.asked.positions_Q.tolist() == [0, 1, 4, 5]
    assert found.asked.labels_Q.tolist() == [1, 2, 2, 1]
    assert found.left_out == {"bear": 1, "oven": 1}
    assert found.told() == "2 samples of 2 classes left out: bear, oven"
    assert matched(source([0], ("dog",)), ("dog",)).told() == ""


def test_a_source_without_a_known_class_is_refused() -> None:
    with pytest.raises(DataError, match="no class of other is known: it has bear, oven; the classifier knows dog, cat"):
        matched(source([0, 1], ("bear", "oven")), ("dog", "cat"))
    unlabelled = memory_source("other", torch.zeros(2, 1, 8, 8).byte(), None)
    with pytest.raises(DataError, match="other has no labels"):
        matched(unlabelled, ("dog",))
