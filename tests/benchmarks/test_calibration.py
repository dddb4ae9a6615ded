"""Counting what was found, going on with a record, and trainings with a fault as a user starts them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from calibrate_diagnosis import main
from calibration.calibration import Calibration, is_named, read_cases
from calibration.cases import EVIDENCE, Case

from counterpoint.diagnostics.evidence import EMBEDDING, Evidence
from counterpoint.diagnostics.measure import measure_place

GOOD = Evidence(
    {EMBEDDING: measure_place(torch.randn(300, 8)).figures}, loss=2.0, chance=5.0, floor=1.0,
    weight_change=0.3, levers=frozenset({"learning rate"}),
    values={"optim.learning_rate": 1e-9, "optim.name": "adamw"},
)  # fmt: skip
UNTRAINED = replace(GOOD, weight_change=1e-9)


def case(fault: str, evidence: Evidence, remedied: Evidence | None = None, seed: int = 0) -> Case:
    again = EVIDENCE.dump_python(remedied, mode="json") if remedied else None
    return Case(
        fault=fault, seed=seed, evidence=EVIDENCE.dump_python(evidence, mode="json"), remedied=again,
        remedy="untrained" if remedied else "",
    )  # fmt: skip


def test_a_fault_counts_as_named_by_its_own_finding_and_healthy_means_nothing_severe() -> None:
    assert is_named(case("untrained", UNTRAINED))
    assert not is_named(case("copies", UNTRAINED))
    assert is_named(case("healthy", GOOD))
    assert not is_named(case("healthy", UNTRAINED))


def test_a_remedy_improves_where_its_finding_goes_or_its_figure_gets_better() -> None:
    better, worse = replace(UNTRAINED, weight_change=1e-4), replace(UNTRAINED, weight_change=1e-12)
    assert case("untrained", UNTRAINED, GOOD).is_improved is True
    assert case("untrained", UNTRAINED, better).is_improved is True
    assert case("untrained", UNTRAINED, worse).is_improved is False
    assert case("untrained", UNTRAINED).is_improved is None


def test_the_table_counts_cases_and_remedies_and_says_what_stopped() -> None:
    cases = (
        case("untrained", UNTRAINED, GOOD), case("untrained", GOOD, seed=1), case("healthy", GOOD),
        Case(fault="copies", seed=0, error="TrainingError: no"),
    )  # fmt: skip
    found = Calibration(cases, "choosing")
    assert (found.num_named("untrained"), found.remedies) == (1, (1, 1))
    text = found.to_markdown()
    assert "| untrained | a learning rate of nothing | 1 of 2 |" in text
    assert "First remedies: 1 of 1 improve their figure." in text
    assert "1 trainings stopped: copies, seed 0: TrainingError: no" in text


@pytest.mark.slow
def test_the_command_finds_a_fault_and_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draws = np.random.default_rng(0)
    base = draws.integers(0, 256, (10, 16, 16, 3))
    labels = np.arange(2000) % 10
    pictures = (base[labels] + draws.normal(0, 30, (2000, 16, 16, 3))).clip(0, 255).astype(np.uint8)
    np.savez(tmp_path / "set.npz", images=pictures, labels=labels)
    flags = ["--faults", "untrained", "copies", "--out", str(tmp_path / "out"), "--no-remedies", "--jobs", "1", "-q"]
    main([str(tmp_path / "set.npz"), "--seeds", "1", *flags])
    assert "| 1 of 1 |" in capsys.readouterr().out
    record = tmp_path / "out" / "cases-choosing.jsonl"
    first = record.read_text()
    assert len(list(read_cases(record))) == 2
    record.write_text(first + '{"fault": "unfin')
    main([str(tmp_path / "set.npz"), "--seeds", "2", *flags])
    assert len(list(read_cases(record))) == 4
