"""Cases are the same whenever they are drawn, findings are counted, and a record goes on where it was cut off."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from calibrate_diagnosis import main
from calibration.calibration import read_cases
from calibration.calibration_tables import feature_tables, trained_tables
from calibration.cases import EVIDENCE, SETS, Case, FeatureWork, Set
from calibration.feature_faults import FAULTS
from calibration.feature_sets import FeatureSet
from calibration.healthy_features import FAMILIES
from calibration.spoiled_samples import Sample
from calibration.trained_faults import HEALTHY, TRAINED_FAULTS

from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields
from counterpoint.diagnostics.evidence import EMBEDDING, Evidence
from counterpoint.diagnostics.measure import measure_place

pytestmark = pytest.mark.thorough

GOOD = Evidence(
    {EMBEDDING: measure_place(torch.randn(300, 8)).figures}, loss=2.0, chance=5.0, floor=1.0,
    weight_change=0.3, levers=frozenset({"learning rate"}),
    values={"optim.learning_rate": 1e-9, "optim.name": "adamw"},
)  # fmt: skip
UNTRAINED = replace(GOOD, weight_change=1e-9)
SCORES, BETTER = {"knn": 0.5, "linear probe": 0.6}, {"knn": 0.6, "linear probe": 0.62}


def case(fault: str, evidence: Evidence, remedied: Evidence | None = None, seed: int = 0) -> Case:
    again = EVIDENCE.dump_python(remedied, mode="json") if remedied else None
    return Case(
        fault=fault, seed=seed, kind="photos", evidence=EVIDENCE.dump_python(evidence, mode="json"), scores=SCORES,
        remedied=again, remedy="untrained" if remedied else "", changes="optim.learning_rate 0.1" if remedied else "",
        remedied_scores=BETTER if remedied else {},
    )  # fmt: skip


def pictures_with_classes(num: int = 960, num_classes: int = 8, side: int = 16) -> Sample:
    draws = np.random.default_rng(0)
    base = draws.integers(0, 256, (num_classes, side, side, 3))
    labels = np.arange(num) % num_classes
    return Sample((base[labels] + draws.normal(0, 30, (num, side, side, 3))).clip(0, 255).astype(np.uint8), labels)


PHOTOS = pictures_with_classes()


def bits(drawn: FeatureSet) -> Sequence[object]:
    parts = (drawn.z_ND, drawn.labels, drawn.views)
    return [None if part is None else part.tolist() if part.dtype == object else part.tobytes() for part in parts]


@pytest.mark.parametrize("kind", SETS)
def test_a_fault_or_family_drawn_twice_has_the_same_bits_whatever_was_drawn_before(kind: Set) -> None:
    one, other = FeatureWork(kind, PHOTOS), FeatureWork(kind, PHOTOS)
    names = [*FAULTS, *FAMILIES]
    drawn = {name: one.drawn(name, seed) for seed, name in enumerate(names)}
    for seed, name in reversed(list(enumerate(names))):
        again = other.drawn(name, seed)
        assert bits(again) == bits(drawn[name]), name
        assert bits(one.drawn(name, seed + 1)) != bits(again), name
        assert again.z_ND.ndim == 2
        assert 20 <= len(again.z_ND) <= 4000
        assert 2 <= again.z_ND.shape[1] <= 512


def test_a_fault_is_in_the_features_and_the_same_features_without_it_differ() -> None:
    work = FeatureWork("publishing", None)
    assert not np.isfinite(work.drawn("values that are no numbers", 0).z_ND).all()
    drawn = work.drawn("copies", 1).z_ND
    assert len(np.unique(drawn, axis=0)) < len(drawn)
    drawn = work.drawn("one strong direction", 1).z_ND
    share = np.linalg.svd(drawn - drawn.mean(axis=0), compute_uv=False) ** 2
    assert 0.88 < share[0] / share.sum() < 0.985
    labels = work.drawn("unequal classes", 1).labels
    assert labels is not None
    assert 0.84 < np.bincount(labels).max() / len(labels) < 0.98
    hubs = work.drawn("hubs", 0).z_ND
    apart = torch.cdist(torch.from_numpy(hubs), torch.from_numpy(hubs)).fill_diagonal_(torch.inf)
    chosen = torch.bincount(apart.topk(10, largest=False).indices.flatten(), minlength=len(hubs))
    assert chosen.max() > 0.5 * len(hubs)


def test_the_tables_count_cases_remedies_and_alarms_and_say_what_stopped() -> None:
    cases = (
        case("untrained", UNTRAINED, GOOD), case("untrained", GOOD, seed=1), case("healthy", GOOD),
        Case(fault="copies", seed=0, error="TrainingError: no"),
    )  # fmt: skip
    text = trained_tables(cases)
    assert "| untrained | a learning rate of nothing | 1 of 2 |" in text
    assert "50.0 → 60.0 | 60.0 → 62.0 |" in text
    assert "First remedies: 1 of 1 improve their figure." in text
    assert "| untrained | 1 of 1 | +6.0 |" in text
    assert "1 cases stopped: copies, seed 0: TrainingError: no" in text
    text = feature_tables((case("copies", UNTRAINED), case("isotropic", GOOD), case("isotropic", UNTRAINED)))
    assert "0 of 1 (0.0% to 79.3%) named in the first 2 findings" in text
    assert "severe verdicts 1 of 2" in text
    assert "misleading warnings 0 of 2" in text


def test_an_interrupted_record_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--faults", "copies", "isotropic", "--healthy", "1", "--out", str(tmp_path), "--jobs", "1", "-q"]
    main(["--seeds", "1", *flags])
    assert "| 1 of 1 |" in capsys.readouterr().out
    record = tmp_path / "features-choosing.jsonl"
    first = record.read_text()
    assert len(list(read_cases(record))) == 2
    record.write_text(first + '{"fault": "unfin')
    main(["--seeds", "2", *flags])
    assert record.read_text().startswith(first)
    assert len(list(read_cases(record))) == 3


@pytest.mark.slow
def test_a_training_is_diagnosed_and_trained_again_with_its_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = pictures_with_classes(1500)
    np.savez(tmp_path / "set.npz", images=sample.pictures, labels=sample.classes)
    main(
        [str(tmp_path / "set.npz"), "--trained", "--seeds", "1", "--faults", "untrained", "--out", str(tmp_path), "-q"]
    )
    assert "| untrained | a learning rate of nothing | 1 of 1 |" in capsys.readouterr().out
    (found,) = read_cases(tmp_path / "trained-choosing.jsonl")
    assert found.remedy == "untrained"
    assert found.gain is not None


@pytest.mark.parametrize("name", TRAINED_FAULTS)
def test_each_trained_fault_has_settings_that_exist_and_findings_that_name_it(name: str) -> None:
    fault = TRAINED_FAULTS[name]
    assert (fault.found_as == ()) == (name == HEALTHY)
    paths = {path for path, _ in leaf_fields(TrainSettings)}
    for form in (fault.choosing, fault.publishing):
        assert set(form.settings) <= paths
