"""`counterpoint geometry`: what it prints and draws; bad input in one line with nothing written."""

import html
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from counterpoint import train
from counterpoint.cli import geometry_answer
from counterpoint.cli.main import main
from runs.folder_snapshot import snapshot

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
    found = [float(word) for word in re.findall(r"-?0\.\d{4}\b", said.split("degrees")[0])]
    assert found[:2] == pytest.approx([majority, majority], abs=2e-4)
    assert sorted(found)[-1] == pytest.approx(minority, abs=2e-4)
    (degrees,) = re.findall(r"No classes merge: the closest two, 2 and 3, are ([\d.]+)° apart\.", said)
    assert float(degrees) == pytest.approx(math.degrees(math.acos(minority)), abs=0.02)
    kind = "other classes" if flags else "any class"
    for words in ("risk ", "lower bound ", "duality gap ", "rank         2 of at most 2", f"negatives 512, of {kind}"):
        assert words in said
    assert said.endswith("Drawn in geometry.html.\n")
    assert "Optimal geometry of 3 classes" in (folder / "geometry.html").read_text()


def test_json_holds_the_certificate_and_draws_only_where_asked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, "1/3", "1/3", "1/3")
    assert found["gram"][0] == pytest.approx([1.0, -0.5, -0.5], abs=1e-6)
    assert found["angles"][0] == pytest.approx([0.0, 120.0, 120.0], abs=1e-3)
    assert found["lower_bound"] <= found["risk"] <= found["lower_bound"] + 1e-8 * abs(found["risk"])
    assert found["duality_gap"] == pytest.approx(found["risk"] - found["lower_bound"], abs=1e-12)
    assert (found["rank"], found["merged"]) == (2, [])
    assert list(folder.iterdir()) == []
    told(capsys, "1/3", "1/3", "1/3", "--out", "drawn.html")
    assert [path.name for path in folder.iterdir()] == ["drawn.html"]


def test_small_classes_merge_beside_a_large_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "0.96", "0.02", "0.02")["merged"] == [[2, 3]]
    assert main(["geometry", "0.96", "0.02", "0.02"]) == 0
    assert "Classes 2 and 3 merge; the others stay apart." in capsys.readouterr().out


def test_counts_are_normalised_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "200", "100", "100", "--normalize")
    assert found["proportions"] == [0.5, 0.25, 0.25]
    assert found["gram"] == told(capsys, "0.5", "0.25", "0.25")["gram"]


def test_infinity_is_the_default_number_of_negatives(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, *PAPER[1:])["gram"] == told(capsys, *PAPER[1:], "--negatives", "inf")["gram"]


def test_a_loss_by_name_with_its_temperature_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    sharp = told(capsys, *PAPER[1:], "--loss", "infonce", "--temperature", "0.2", "--negatives", "510")
    assert sharp["question"]["temperature"] == "0.2"
    assert sharp["gram"] != told(capsys, *PAPER[1:], "--negatives", "510")["gram"]
    option = ["--loss", "infonce", "--loss-options", "{temperature: 0.2}", "--negatives", "510"]
    assert told(capsys, *PAPER[1:], *option)["gram"] == sharp["gram"]
    # The paper's own loss at temperature 1, said in two ways.
    plain = told(capsys, *PAPER[1:])
    assert told(capsys, *PAPER[1:], "--temperature", "1")["risk"] == pytest.approx(plain["risk"], abs=1e-10)


def test_nonnegative_classes_are_orthogonal_and_few_dimensions_have_no_certificate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    orthogonal = told(capsys, *PAPER[1:], "--nonnegative")
    assert orthogonal["gram"][0] == pytest.approx([1.0, 0.0, 0.0], abs=1e-8)
    line = told(capsys, *PAPER[1:], "--dimension", "1")
    assert line["rank"] == 1
    assert line["is_certified"] is False


def test_the_threshold_stands_beside_the_papers_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PAPER, "--threshold"]) == 0
    said = capsys.readouterr().out
    for words in ("With one majority class, the 2 minority classes merge", ">= 0.9002", "0.9292"):
        assert words in said
    threshold = told(capsys, *PAPER[1:], "--threshold", "--supervised")["threshold"]
    assert threshold["majority_share"] == pytest.approx(0.7511, abs=5e-5)
    assert threshold["bound_stated"] == pytest.approx(0.9438, abs=5e-5)


def deviation(gram: list[list[float]]) -> float:
    """Largest distance of a cosine from the simplex's."""
    size = len(gram)
    pairs = [(row, column) for row in range(size) for column in range(row)]
    return max(abs(gram[row][column] + 1 / (size - 1)) for row, column in pairs)


def test_rebalancing_samples_with_what_the_solver_finds_near_the_simplex(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = [0.6, 0.2, 0.2]
    plan = told(capsys, *map(str, shares), "--rebalance")["rebalancing"]
    sampled, gamma = plan["sampling"]["proportions"], plan["sampling"]["exponent"]
    assert sampled == pytest.approx([share**gamma / sum(s**gamma for s in shares) for share in shares])
    drawn = zip(shares, plan["sampling"]["repeat_factors"], strict=True)
    assert [share * factor for share, factor in drawn] == pytest.approx(sampled)
    assert plan["deviation"] == pytest.approx(deviation(told(capsys, *map(str, shares))["gram"]))
    solved = deviation(told(capsys, *(repr(share) for share in sampled))["gram"])
    assert 0.049 < solved <= 0.05
    assert plan["sampling"]["deviation"] == pytest.approx(solved, abs=1e-6)
    assert plan["weighting"]["deviation"] == pytest.approx(deviation(plan["weighting"]["gram"]))
    assert list(folder.iterdir()) == []


def test_rebalancing_is_printed_and_drawn_class_by_class(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["geometry", "0.6", "0.2", "0.2", "--rebalance", "--deviation", "0.1"]) == 0
    said = capsys.readouterr().out
    assert "The optimum is 0.475 from the simplex in its worst cosine (0.1 allowed)." in said
    (exponent,) = re.findall(r"in proportion to share\^([\d.]+) comes to 0\.1 from it", said)
    assert 0.12 < float(exponent) < 1  # what reaches 0.05 is nearer to equal classes
    assert [len(line.split()) for line in said.split("weight of a sample\n")[1].splitlines()[:3]] == [6, 6, 6]
    page = (folder / "geometry.html").read_text()
    for words in ("What brings balance back?", f"share^{exponent}", "Cosines with anchors weighed so"):
        assert words in page


def test_weights_that_restore_the_simplex_and_a_balance_that_needs_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = told(capsys, "0.4", "0.3", "0.3", "--rebalance")["rebalancing"]["weighting"]
    assert plan["is_exact"]
    assert plan["gram"][1] == pytest.approx([-0.5, 1.0, -0.5], abs=1e-6)
    assert main(["geometry", "0.4", "0.3", "0.3", "--rebalance"]) == 0
    assert "Weighing anchors instead restores it exactly." in capsys.readouterr().out
    assert told(capsys, "1/3", "1/3", "1/3", "--rebalance")["rebalancing"]["is_balanced"]
    assert main(["geometry", "1/3", "1/3", "1/3", "--rebalance"]) == 0
    assert "Nothing to rebalance" in capsys.readouterr().out
    assert "Nothing to rebalance" in (folder / "geometry.html").read_text()


@pytest.fixture
def few_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry_answer, "NUM_SHARES", 3)


@pytest.mark.parametrize(("flags", "one", "infinite"), [([], 0.8075, 0.9002), (["--supervised"], 0.6915, 0.7511)])
@pytest.mark.usefixtures("few_shares")
@pytest.mark.thorough
def test_the_phase_diagram_holds_thresholds_and_the_solvers_cosines(
    flags: list[str], one: float, infinite: float, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, *PAPER[1:], "--phase-diagram", *flags)["phase_diagram"]
    assert (found["negatives"], found["temperatures"]) == ([1, 8, 64, "inf"], [0.2, 0.5, 1.0])
    assert [found["threshold"][k][2] for k in (0, 3)] == pytest.approx([one, infinite], abs=5e-5)
    least, middle, largest = found["majority_shares"]
    assert (least, largest) == pytest.approx((1 / 3, 0.99))
    assert [row[0] for tables in found["minority_cosine"] for row in tables] == pytest.approx([-0.5] * 12, abs=1e-6)
    assert found["minority_cosine"][3][2][2] == 1
    rest = (1 - middle) / 2
    options = ["--temperature", "0.5", "--negatives", "8", "--tolerance", "1e-12", *flags]
    solved = told(capsys, repr(middle), repr(rest), repr(rest), *options)
    assert found["minority_cosine"][1][1][1] == pytest.approx(solved["gram"][1][2], abs=1e-5)
    assert found["majority_cosine"][1][1][1] == pytest.approx(solved["gram"][0][1], abs=1e-5)


@pytest.mark.usefixtures("few_shares")
@pytest.mark.thorough
def test_the_phase_diagram_is_printed_and_drawn_with_what_was_given(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--loss", "dcl", "--temperature", "0.3", "--negatives", "512"]
    assert main(["geometry", *(["0.25"] * 4), "--phase-diagram", *options]) == 0
    said = capsys.readouterr().out.split("minorities of 4 classes merge")[1]
    assert [line.split()[0] for line in said.splitlines()[2:7]] == ["1", "8", "64", "512", "infinite"]
    assert re.findall(r"tau = ([\d.]+)", said) == ["0.2", "0.3", "0.5", "1"]
    page = (folder / "geometry.html").read_text()
    assert re.findall(r"<strong>Temperature ([\d.]+)</strong>", page) == ["0.2", "0.3", "0.5", "1"]
    assert "From which share on do minorities merge?" in page


def test_of_many_classes_the_first_are_printed_and_the_page_stays_small(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["geometry", *("1" for _ in range(40)), "--normalize"]) == 0
    said = capsys.readouterr().out
    assert "12 of 40 rows and columns" in said
    assert max(len(line) for line in said.splitlines()) < 130
    assert (folder / "geometry.html").stat().st_size < 4_000_000


BAD = {
    "shares too far apart to be weighed": (
        "10 0.177 1e30 --negatives 512 --normalize --rebalance",
        ["proportions from 1.77e-31 to 1", "leave out the smallest classes"],
    ),
    "nothing": ("", ["SHARE"]),
    "one class": ("1", ["2"]),
    "dimensions without number": (f"0.5 0.5 --dimension 1{25 * '0'}", ["dimension must be at most 1,000,000"]),
    "a sum below 1": ("0.5 0.25 0.2", ["proportions must sum to 1, got 0.95", "--normalize"]),
    "counts": ("50 25 25", ["proportions must sum to 1, got 100", "--normalize"]),
    "a share below 0": ("1.5 -0.5", ["> 0"]),
    "a share of 0": ("1 0", ["> 0"]),
    "a count of 0": ("5 0 --normalize", ["> 0"]),
    "counts of nothing": ("0 0 --normalize", ["> 0"]),
    "no number": ("half half", ["0.25 or 1/4", "'half'"]),
    "division by nothing": ("1/0 1/2", ["'1/0'"]),
    "not finite": ("nan 0.5", ["finite"]),
    "infinite": ("inf 1 --normalize", ["finite"]),
    "no negatives": ("0.5 0.5 --negatives 0", ["--negatives", "'0'", "512"]),
    "half a negative": ("0.5 0.5 --negatives 1.5", ["--negatives", "'1.5'"]),
    "negatives in words": ("0.5 0.5 --negatives many", ["--negatives", "'many'"]),
    "unknown loss": ("0.5 0.5 --loss infonec", ["unknown loss 'infonec'", "did you mean 'infonce'"]),
    "a loss that is not covered": ("0.5 0.5 --loss barlow-twins", ["no class-level risk", "InfoNCE"]),
    "a temperature below 0": ("0.5 0.5 --loss infonce --temperature -1", ["temperature must be > 0", "-1"]),
    "a temperature of a loss without": ("0.5 0.5 --loss spectral --temperature 1", ["takes no temperature"]),
    "an unknown option": ("0.5 0.5 --loss triplet --loss-options {margni:1}", ["takes no margni", "margin"]),
    "options of no shape": ("0.5 0.5 --loss triplet --loss-options 3", ["--loss-options", "{margin: 0.5}"]),
    "more negatives than count": ("0.5 0.5 --negatives 99999999999999999999", ["--negatives", "give inf"]),
    "counts beyond all bounds": ("1e308 1e308 --normalize", ["finite"]),
    "options that are not YAML": ("0.5 0.5 --loss triplet --loss-options {", ["--loss-options", "YAML"]),
    "dimension 0": ("0.5 0.5 --dimension 0", ["dimension", "0"]),
    "tolerance 0": ("0.5 0.5 --tolerance 0", ["tolerance", "0"]),
    "threshold of two classes": ("0.5 0.5 --threshold", ["--threshold needs 3 or more shares, got 2"]),
    "threshold of a loss without": ("0.5 0.3 0.2 --threshold --loss triplet", ["stay apart", "leave out --threshold"]),
    "no shares": ("--phase-diagram", ["SHARE"]),
    "phases of two classes": ("0.5 0.5 --phase-diagram", [">= 3", "2"]),
    "phases without temperature": ("0.5 0.3 0.2 --phase-diagram --loss spectral", ["spectral takes no temperature"]),
    "phases of an unknown loss": ("0.5 0.3 0.2 --phase-diagram --loss infonec", ["did you mean 'infonce'"]),
    "phases in a plane": ("0.5 0.3 0.2 --phase-diagram --dimension 2", ["--phase-diagram", "leave out --dimension"]),
    "phases in no dimension": ("0.5 0.3 0.2 --phase-diagram --dimension 0", ["leave out --dimension"]),
    "phases without signs": ("0.5 0.3 0.2 --phase-diagram --nonnegative", ["leave out --nonnegative"]),
    "balance in a plane": ("0.5 0.3 0.2 --rebalance --dimension 2", ["--rebalance", "leave out --dimension"]),
    "balance without signs": ("0.5 0.3 0.2 --rebalance --nonnegative", ["leave out --nonnegative"]),
    "a deviation of 0": ("0.5 0.3 0.2 --rebalance --deviation 0", ["deviation must be between 0 and 2", "0.05"]),
    "a deviation of 2": ("0.5 0.3 0.2 --rebalance --deviation 2", ["deviation must be between 0 and 2"]),
    "a deviation of nan": ("0.5 0.3 0.2 --rebalance --deviation nan", ["deviation must be between 0 and 2"]),
    "a deviation in words": ("0.5 0.3 0.2 --rebalance --deviation little", ["--deviation", "'little'"]),
    "a deviation of nothing": ("0.5 0.3 0.2 --deviation 0", ["add --rebalance"]),
    "unknown flag": ("0.5 0.5 --suprevised", ["unknown flag --suprevised", "'--supervised'"]),
    "over another file": ("0.5 0.5 --out thesis.html", ["thesis.html exists", "--out"]),
    "over a folder": ("0.5 0.5 --out thesis", ["thesis is a folder"]),
    "into a missing folder": ("0.5 0.5 --out nowhere/new.html", ["nowhere"]),
    "below a file": ("0.5 0.5 --out thesis.html/new.html", ["thesis.html"]),
}


@pytest.mark.parametrize(("words", "complaints"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_nothing_is_touched(
    folder: Path, words: str, complaints: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "thesis").mkdir()
    (folder / "thesis.html").write_text("<p>years of work")
    before = snapshot(folder)
    try:
        code = main(["geometry", *words.split()])
    except SystemExit as stop:  # argparse leaves so
        code = stop.code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("counterpoint geometry: error: ")
    for complaint in complaints:
        assert complaint in captured.err
    assert code == 2
    assert snapshot(folder) == before


def test_a_file_of_ours_in_the_default_place_is_replaced_and_another_is_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["geometry", "0.5", "0.5"]) == 0
    assert main(["geometry", "0.5", "0.25", "0.25"]) == 0
    assert "3 classes" in (folder / "geometry.html").read_text()
    (folder / "geometry.html").write_text("mine")
    capsys.readouterr()
    assert main(["geometry", "0.5", "0.5"]) == 2
    assert "geometry.html exists" in capsys.readouterr().err
    assert (folder / "geometry.html").read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--loss-options", "{1: 2}"], "{margin: 0.5}"),
        (["--temperature", "1", "--loss-options", "{temperature: 2}"], "temperature is given twice"),
    ],
)
def test_options_without_names_and_two_temperatures_are_refused(
    options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PAPER, "--loss", "infonce", *options]) == 2
    told = capsys.readouterr().err
    assert complaint in told
    assert told.count("\n") == 1


def test_a_drawing_that_cannot_be_read_is_one_line_before_any_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.html").write_text("mine")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(geometry_answer, "optimal_geometry", refuse)
    assert main([*PAPER, "--out", "mine.html"]) == 2
    assert "cannot read mine.html: Permission denied; choose another --out" in capsys.readouterr().err


def test_the_question_names_the_loss_and_all_that_matters_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    plain, same = told(capsys, *PAPER[1:]), told(capsys, *PAPER[1:], "--temperature", "1")
    assert plain["question"] == same["question"]
    assert plain["question"]["temperature"] == "1"
    triplet = told(capsys, *PAPER[1:], "--loss", "triplet", "--negatives", "3")["question"]
    assert (triplet["loss"], triplet["margin"]) == ("Triplet", "1")
    assert told(capsys, *PAPER[1:], "--loss", "infonce", "--negatives", "3")["question"]["temperature"] == "0.5"


def test_json_says_what_its_numbers_mean(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, *PAPER[1:], "--loss", "infonce", "--supervised", "--tolerance", "1e-7")
    expected = {"loss": "InfoNCE", "num_negatives": "inf", "supervised": True, "temperature": 0.5, "tolerance": 1e-7}
    assert expected.items() <= found.items()
    assert found["classes_counted_from"] == 1
    assert 0 <= found["relative_gap"] <= 1e-7
    assert told(capsys, *PAPER[1:], "--negatives", "8")["num_negatives"] == 8


@pytest.mark.parametrize(
    ("flags", "said", "unsaid"),
    [
        ([], ["Holds for positives drawn from the anchor's class"], ["differences", "two-view"]),
        (["--loss", "infonce"], ["less its growth with log k", "only differences of it mean something"], ["two-view"]),
        (["--loss", "triplet", "--supervised"], ["divided by the number k"], ["Holds for positives", "two-view"]),
        (["--loss", "infonce", "--negatives", "9"], ["k = n - 1 with margin log 2"], ["differences"]),
        (
            ["--loss", "infonce", "--negatives", "9", "--loss-options", "{negatives: cross-view}"],
            ["pairing cross-view"],
            ["log 2"],
        ),
    ],
)
def test_what_a_reader_must_know_is_on_screen_and_page(
    flags: list[str], said: list[str], unsaid: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PAPER, *flags]) == 0
    screen = " ".join(capsys.readouterr().out.split())
    page = html.unescape((folder / "geometry.html").read_text())
    for words in said:
        assert words in screen
        assert words.removeprefix("pairing ") in page
    for words in unsaid:
        assert words not in screen
        assert words not in page


def test_a_rank_is_bounded_only_where_the_loss_bounds_it(capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--loss", "spectral"], ["--nonnegative"]):
        assert main([*PAPER, *flags]) == 0
        assert "rank         3\n" in capsys.readouterr().out


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


def test_a_run_is_measured_beside_the_optimum_of_its_loss(
    run_folder: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["geometry", "--run", str(run_folder), "-q"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    for words in ("loss InfoNCE; negatives 15, of any class", "lower bound  ", "status       optimal", "(rare)"):
        assert words in said
    page = (folder / "geometry.html").read_text()
    assert page.index("Cosines of class means, measured") < page.index("The same at the optimum")
    assert "duality gap" in page


def test_a_run_as_json_asks_the_question_that_its_shares_ask(
    run_folder: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, "--run", str(run_folder), "-q")
    assert list(folder.iterdir()) == []
    counts = [str(row["count"]) for row in found["rows"]]
    assert len(counts) == 3
    options = ["--loss", "infonce", "--temperature", "0.2", "--loss-options", "{epsilon: 0.5}", "--negatives", "15"]
    expected = told(capsys, *counts, "--normalize", *options)
    assert np.array(found["optimum"]["optimum"]) == pytest.approx(np.array(expected["gram"]), abs=1e-5)
    assert found["certificate"]["is_certified"]
    assert found["certificate"]["lower_bound"] <= found["certificate"]["risk"]
    assert found["optimum"]["low"] <= found["optimum"]["distance"] <= found["optimum"]["high"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["0.5", "0.5", "--run", "{run}"], "one of them only"),
        (["--run", "{run}", "--loss", "infonce"], "--loss has no effect here: the run has its own"),
        (["--run", "{run}", "--dimension", "3"], "--dimension has no effect here"),
        (["0.5", "0.5", "--labels", "y.npy"], "--labels has no effect here: it goes with --run"),
        (["--run", "nowhere"], "nowhere"),
        (["--run", "{run}", "--checkpoint", "9999"], "checkpoint 9999 is not kept"),
    ],
)
def test_flags_that_a_run_answers_itself_are_refused(
    words: list[str], complaint: str, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["geometry", *(word.format(run=run_folder) for word in words), "-q"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert complaint in said.err
