"""`counterpoint geometry`: what it prints, of shares and of a run."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from counterpoint import train
from counterpoint.cli import geometry_answer
from counterpoint.cli.main import main
from counterpoint.theory import optimal_geometry
from counterpoint.theory.collapse.minority_collapse import collapse_threshold
from counterpoint.theory.collapse.rebalancing import rebalance

PAPER = ["geometry", "0.5", "0.25", "0.25"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    """What the command prints as JSON."""
    assert main(["geometry", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("flags", "majority", "minority"), [([], -0.6265, -0.2151), (["--supervised"], -0.6860, -0.0588)]
)
def test_the_geometries_of_the_paper(
    flags: list[str], majority: float, minority: float, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PAPER, "--negatives", "512", *flags]) == 0
    said = capsys.readouterr().out
    assert str(optimal_geometry([0.5, 0.25, 0.25], num_negatives=512, supervised=bool(flags))) in said
    assert f"negatives 512, of {'other classes' if flags else 'any class'}" in said
    gram = told(capsys, *PAPER[1:], "--negatives", "512", *flags)["geometry"]["gram"]
    assert [gram[0][1], gram[1][2]] == pytest.approx([majority, minority], abs=2e-4)
    assert list(folder.iterdir()) == []


def test_json_has_the_fields_of_the_records(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "200", "100", "100", "--normalize", "--loss", "infonce", "--negatives", "9", "--threshold")
    geometry, threshold = found["geometry"], found["threshold"]
    assert geometry["proportions"] == [0.5, 0.25, 0.25]
    assert geometry["lower_bound"] <= geometry["risk"] <= geometry["lower_bound"] + 1e-8 * geometry["risk"]
    assert geometry["angles"][0][1] == pytest.approx(math.degrees(math.acos(geometry["gram"][0][1])))
    assert (geometry["rank"], geometry["is_certified"], geometry["merged_classes"]) == (2, True, [])
    assert (threshold["num_negatives"], threshold["collapses_above"]) == (9, True)
    assert found["question"] == {"loss": "InfoNCE", "negatives": "9, of any class", "temperature": "0.5"}


def test_a_loss_by_name_with_its_temperature_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    sharp = told(capsys, *PAPER[1:], "--loss", "infonce", "--temperature", "0.2", "--negatives", "510")
    assert sharp["question"]["temperature"] == "0.2"
    plain = told(capsys, *PAPER[1:], "--negatives", "510")
    assert sharp["geometry"]["gram"] != plain["geometry"]["gram"]
    option = ["--loss", "infonce", "--loss-options", "{temperature: 0.2}", "--negatives", "510"]
    assert told(capsys, *PAPER[1:], *option)["geometry"] == sharp["geometry"]
    # The paper's own loss at temperature 1 and for infinitely many negatives, said in two ways.
    same = told(capsys, *PAPER[1:], "--temperature", "1", "--negatives", "inf")
    assert same["geometry"]["risk"] == pytest.approx(told(capsys, *PAPER[1:])["geometry"]["risk"], abs=1e-10)


def test_nonnegative_classes_are_orthogonal_and_few_dimensions_have_no_certificate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    orthogonal = told(capsys, *PAPER[1:], "--nonnegative")["geometry"]
    assert orthogonal["gram"][0] == pytest.approx([1.0, 0.0, 0.0], abs=1e-8)
    line = told(capsys, *PAPER[1:], "--dimension", "1")["geometry"]
    assert (line["rank"], line["is_certified"]) == (1, False)


@pytest.mark.parametrize("flags", [[], ["--supervised"]])
def test_the_threshold_and_the_plan_are_those_of_theory(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    threshold = collapse_threshold(3, supervised=bool(flags))
    plan = rebalance([0.6, 0.2, 0.2], deviation=0.1, supervised=bool(flags))
    words = ["0.6", "0.2", "0.2", "--threshold", "--rebalance", "--deviation", "0.1", *flags]
    assert main(["geometry", *words]) == 0
    said = capsys.readouterr().out
    assert str(threshold) in said
    assert str(plan) in said
    found = told(capsys, *words)
    assert found["threshold"]["share"] == threshold.share
    assert found["rebalancing"]["sampling"]["exponent"] == plan.sampling.exponent


@pytest.mark.parametrize(("flags", "one", "infinite"), [([], 0.8075, 0.9002), (["--supervised"], 0.6915, 0.7511)])
@pytest.mark.thorough
def test_the_phase_diagram_holds_thresholds_and_the_solvers_cosines(
    flags: list[str],
    one: float,
    infinite: float,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(geometry_answer, "NUM_SHARES", 3)
    found = told(capsys, *PAPER[1:], "--phase-diagram", *flags)["phase_diagram"]
    assert (found["num_negatives"], found["temperatures"]) == ([1, 8, 64, "inf"], [0.2, 0.5, 1.0])
    assert [found["threshold"][k][2] for k in (0, 3)] == pytest.approx([one, infinite], abs=5e-5)
    least, middle, largest = found["shares"]
    assert (least, largest) == pytest.approx((1 / 3, 0.99))
    assert [row[0] for tables in found["minority_cosine"] for row in tables] == pytest.approx([-0.5] * 12, abs=1e-6)
    assert found["minority_cosine"][3][2][2] == 1
    rest = (1 - middle) / 2
    options = ["--temperature", "0.5", "--negatives", "8", "--tolerance", "1e-12", *flags]
    gram = told(capsys, repr(middle), repr(rest), repr(rest), *options)["geometry"]["gram"]
    assert found["minority_cosine"][1][1][1] == pytest.approx(gram[1][2], abs=1e-5)
    assert found["majority_cosine"][1][1][1] == pytest.approx(gram[0][1], abs=1e-5)


@pytest.mark.parametrize(
    ("flags", "said", "unsaid"),
    [
        ([], ["Holds for positives drawn from the anchor's class"], ["differences"]),
        (["--loss", "infonce", "--supervised"], ["only differences of it mean something"], ["Holds for"]),
    ],
)
def test_what_a_reader_must_know_is_said(
    flags: list[str], said: list[str], unsaid: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PAPER, *flags]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    assert all(words in screen for words in said)
    assert not any(words in screen for words in unsaid)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A labelled run on vectors of three classes in unequal numbers."""
    folder = tmp_path_factory.mktemp("run") / "run"
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), [60, 20, 20])
    x = (generator.normal(size=(3, 8))[labels] * 3 + generator.normal(size=(100, 8))).astype(np.float32)
    np.savez(folder.parent / "data.npz", x=x, y=labels)
    train(str(folder.parent / "data.npz"), epochs=2, batch_size=16, out=str(folder), quiet=True)
    return folder


def test_a_run_is_measured_beside_the_optimum_of_its_loss(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["geometry", "--run", str(run_folder), "-q"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 110
    for words in ("loss InfoNCE; negatives 15, of any class", "gap ", ": optimal", "(rare)", "mean cosine"):
        assert words in said


def test_a_run_as_json_asks_the_question_that_its_shares_ask(
    run_folder: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, "--run", str(run_folder), "-q")
    assert list(folder.iterdir()) == []
    counts = [str(row["count"]) for row in found["rows"]]
    assert len(counts) == 3
    options = ["--loss", "infonce", "--temperature", "0.2", "--loss-options", "{epsilon: 0.5}", "--negatives", "15"]
    expected = told(capsys, *counts, "--normalize", *options)
    assert np.array(found["optimum"]["optimum"]) == pytest.approx(np.array(expected["geometry"]["gram"]), abs=1e-5)
    assert found["geometry"]["is_certified"]
    assert found["geometry"]["lower_bound"] <= found["geometry"]["risk"]
    assert found["optimum"]["low"] <= found["optimum"]["distance"] <= found["optimum"]["high"]
