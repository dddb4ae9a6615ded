"""Runs compared in pairs, over samples and over seeds: known answers, who is taken together, what is refused."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import CounterpointError, RunError, UsageError
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.evaluation.significance import paired_bootstrap, seeds_needed
from evaluated_folders import REPRESENTATION, write_evaluated, write_evaluation
from hit_rows import hit_values
from oracles import paired_tests as oracle
from oracles.number_checks import assert_numbers

EMBEDDING, PROBE, PIXELS = ("embedding", "knn"), ("representation", "linear probe"), ("pixels (PCA)", "knn")


def seeds_of(folder: Path, method: str, corrects: list[int], first: int = 0) -> list[Path]:
    """Runs of one method, whose seeds get so many of 100 queries right, each some others."""
    return [
        write_evaluated(
            folder / f"{method}-{seed}",
            {REPRESENTATION: np.random.default_rng(seed).permutation(100)[:correct].tolist()},
            seed=seed,
            method=method,
        )
        for seed, correct in enumerate(corrects, start=first)
    ]


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Two runs that differ clearly by one metric, hardly by another, and not at all on pixels."""
    ours = {REPRESENTATION: range(90), EMBEDDING: range(10, 90), PROBE: range(80), PIXELS: range(70)}
    theirs = {REPRESENTATION: range(70), EMBEDDING: range(12, 91), PROBE: range(2, 81), PIXELS: range(70)}
    folders = [tmp_path / "ours", tmp_path / "theirs"]
    return [write_evaluated(path, given, method=path.name) for path, given in zip(folders, (ours, theirs), strict=True)]  # pyright: ignore[reportArgumentType]


def test_two_runs_are_compared_query_by_query(two: list[Path]) -> None:
    found = cp.compare(two)
    assert [(row.features, row.metric) for row in found.rows] == [REPRESENTATION, EMBEDDING, PROBE]
    assert found.alike == (("knn", "pixels (PCA)"),)
    apart = [(20, 0), (2, 1), (2, 1)]
    p_values = [float(oracle.mcnemar_p(*counts)) for counts in apart]
    for row, counts, p, adjusted in zip(found.rows, apart, p_values, oracle.holm(p_values), strict=True):
        assert row.over_samples is not None
        assert row.over_seeds is row.seeds_needed is None
        ends = oracle.score_interval(*counts, 100)
        assert_numbers(
            [row.over_samples.value, row.over_samples.low, row.over_samples.high],
            [np.diff(counts[::-1])[0] / 100, *ends],
        )
        assert_numbers([row.over_samples.p_value, row.over_samples.p], [p, adjusted])
    assert [row.verdict for row in found.rows] == ["yes", "no", "no"]


def test_untrained_encoders_of_two_seeds_are_compared_where_they_are_asked_for(tmp_path: Path) -> None:
    untrained = ("untrained encoder", "knn")
    runs = [
        write_evaluated(tmp_path / name, {REPRESENTATION: range(right + 30), untrained: range(right)}, method=name)
        for name, right in (("a", 40), ("b", 60))
    ]
    assert [row.features for row in cp.compare(runs).rows] == ["representation"]
    assert [row.features for row in cp.compare(runs, features=["untrained encoder"]).rows] == ["untrained encoder"]


def test_the_correction_counts_what_is_compared_and_nothing_else(two: list[Path]) -> None:
    (row,) = cp.compare(two, metrics=["linear-probe"], features=["representation"]).rows
    assert row.over_samples is not None
    assert row.over_samples.p == row.over_samples.p_value


def test_runs_that_differ_in_the_seed_alone_are_one_method(tmp_path: Path) -> None:
    ours, theirs = seeds_of(tmp_path, "ncl", [90, 92, 95]), seeds_of(tmp_path, "simclr", [80, 84, 83])
    found = cp.compare([*ours, theirs[2], theirs[0], theirs[1]])  # seeds are matched by number, not by place
    assert [(side.name, side.seeds) for side in found.sides] == [("ncl", (0, 1, 2)), ("simclr", (2, 0, 1))]
    (row,) = found.rows
    first, second = [0.90, 0.92, 0.95], [0.80, 0.84, 0.83]
    assert_numbers([row.first_figure, row.second_figure], [np.mean(first), np.mean(second)])
    test: Any = stats.ttest_rel(first, second)
    interval = test.confidence_interval(0.95)
    assert row.over_seeds is not None
    assert_numbers(
        [row.over_seeds.p_value, row.over_seeds.low, row.over_seeds.high], [test.pvalue, interval.low, interval.high]
    )
    assert row.seeds_needed == seeds_needed(first, second, is_paired=True)
    # Over samples: the share of seeds that gets each query right.
    shares = [np.zeros(100), np.zeros(100)]
    for share, corrects in zip(shares, ([90, 92, 95], [80, 84, 83]), strict=True):
        for seed, correct in enumerate(corrects):
            share[np.random.default_rng(seed).permutation(100)[:correct]] += 1 / 3
    expected = paired_bootstrap(*shares)
    assert row.over_samples is not None
    np.testing.assert_allclose(
        [row.over_samples.value, row.over_samples.low, row.over_samples.p_value],
        [expected.value, expected.low, expected.p_value],
        atol=1e-12,
    )


def test_folders_of_seeds_are_taken_whole(tmp_path: Path) -> None:
    for method, corrects in (("ncl", [90, 92]), ("simclr", [80, 84])):
        for seed, path in enumerate(seeds_of(tmp_path / "all", method, corrects)):
            (tmp_path / method).mkdir(exist_ok=True)
            path.rename(tmp_path / method / f"seed-{seed}")
    found = cp.compare([tmp_path / "ncl", tmp_path / "simclr"])
    assert [(side.name, side.seeds) for side in found.sides] == [("ncl", (0, 1)), ("simclr", (0, 1))]
    assert found.rows[0].over_seeds is not None


def test_other_seeds_are_compared_unpaired(tmp_path: Path) -> None:
    ours, theirs = seeds_of(tmp_path, "ncl", [90, 92, 95]), seeds_of(tmp_path, "simclr", [80, 84, 83], first=7)
    (row,) = cp.compare([*ours, *theirs]).rows
    assert row.over_seeds is not None
    assert row.over_seeds.test == "Welch's t test"
    test: Any = stats.ttest_ind([0.90, 0.92, 0.95], [0.80, 0.84, 0.83], equal_var=False)
    assert_numbers(row.over_seeds.p_value, test.pvalue)


def test_seeds_of_one_method_alone_are_compared_with_each_other(tmp_path: Path) -> None:
    found = cp.compare(seeds_of(tmp_path, "ncl", [90, 92, 95]))
    assert [side.name for side in found.sides] == ["ncl-0", "ncl-1", "ncl-2"]
    assert [(row.first, row.second) for row in found.rows] == [
        ("ncl-0", "ncl-1"),
        ("ncl-0", "ncl-2"),
        ("ncl-1", "ncl-2"),
    ]


def test_a_difference_over_samples_that_seeds_do_not_bear_out_is_not_called_real(tmp_path: Path) -> None:
    """99, 80 and 99 of 100 against 80, 79 and 81: far apart on these queries, by the luck of the seed."""
    ours, theirs = seeds_of(tmp_path, "ncl", [99, 80, 99]), seeds_of(tmp_path, "simclr", [80, 79, 81])
    (row,) = cp.compare([*ours, *theirs]).rows
    assert row.verdict == "samples"
    assert row.seeds_needed is not None
    assert row.seeds_needed > 3
    assert f"knn of representation {row.seeds_needed}" in str(cp.compare([*ours, *theirs]))


def test_figures_that_are_no_shares_are_compared_over_seeds_alone(tmp_path: Path) -> None:
    folders = [*seeds_of(tmp_path, "ncl", [90, 92, 95]), *seeds_of(tmp_path, "simclr", [80, 84, 83])]
    for place, folder in enumerate(folders):
        value = 0.5 + 0.01 * place + 0.2 * (place < 3)
        write_evaluation(folder / "evaluation.json", [{"features": "embedding", "protocol": "mig", "value": value}])
    (row,) = cp.compare(folders).rows
    assert (row.over_samples, row.unit) == (None, "number")
    assert row.over_seeds is None  # each gap is the same: no scatter
    assert row.verdict == "-"
    assert "Not compared over samples, since which queries were right is not kept: mig of embedding." in str(
        cp.compare(folders)
    )


def test_other_settings_of_a_metric_are_remarked(two: list[Path]) -> None:
    rows = [{**hit_values("representation", "knn", range(80), 100), "settings": {"k": 5}}]
    write_evaluation(two[0] / "evaluation.json", rows)
    assert "knn of representation, ours and theirs: other k." in str(cp.compare(two))


def test_other_queries_are_refused_with_a_remedy(two: list[Path], tmp_path: Path) -> None:
    other = write_evaluated(tmp_path / "other", {REPRESENTATION: range(50)}, fingerprint="other", total=60)
    words = r"ours \(100 of digits\) and .*other \(60 of digits\) were evaluated on different queries; evaluate both on"
    with pytest.raises(UsageError, match=words):
        cp.compare([*two, other])


def test_records_without_hits_or_evaluation_are_refused_with_a_remedy(two: list[Path], tmp_path: Path) -> None:
    ours, theirs = two
    old = write_evaluated(tmp_path / "old", {REPRESENTATION: range(50)}, fingerprint=None)
    words = "does not keep which queries were right.*evaluate again with: counterpoint evaluate .*old"
    with pytest.raises(RunError, match=words):
        cp.compare([ours, old])
    (theirs / "evaluation.json").unlink()
    with pytest.raises(RunError, match=r"theirs has no evaluation; make it with: counterpoint evaluate .*theirs"):
        cp.compare([ours, theirs])


def test_the_table_fits_and_says_what_it_must(two: list[Path], tmp_path: Path) -> None:
    long = "backbone.layer4.1.downsample.conv2"
    pair = [
        write_evaluated(
            tmp_path / f"{name}-with-a-name-as-long-as-those-that-people-give-to-runs-on-clusters-of-many-machines",
            {(long, "knn"): range(right), REPRESENTATION: range(100 - right)},
            method=name,
        )
        for name, right in (("a", 0), ("b", 100))
    ]
    for found in (cp.compare(two), cp.compare(pair)):
        assert max(map(len, str(found).splitlines())) <= 100
    text = str(cp.compare(two))
    assert "A  ours (seed 0)" in text
    assert "100 queries of digits" in text
    assert "corrected by Holm" in text
    assert "another seed may give others" in text
    assert "Left out, since it is the same in all runs: knn of pixels (PCA)." in text
    assert "representation  90.00  70.00  +20.00" in text


def test_the_command_prints_the_table_or_json(two: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", *map(str, two)]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (f"{cp.compare(two)}\n", "")
    assert main([*words, "--json", "--metrics", "knn", "--features", "representation"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert row["real"] == "yes"


def test_plain_values_hold_every_difference(two: list[Path]) -> None:
    found = cp.compare(two)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert len(values["comparisons"]) == len(found.rows)
    for row, value in zip(found.rows, values["comparisons"], strict=True):
        assert row.over_samples is not None
        assert (value["metric"], value["features"], value["real"]) == (row.metric, row.features, row.verdict)
        assert_numbers(value["difference"], row.difference)
        assert value["over_samples"]["adjusted_p"] == row.over_samples.p
        assert value["over_seeds"] is value["seeds_needed"] is None


@pytest.mark.thorough
def test_comparing_loads_no_torch(two: list[Path]) -> None:
    code = f"import sys, counterpoint as cp; cp.compare({list(map(str, two))}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- files of evaluations


def file_of(path: Path, correct: int, **known: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    return write_evaluation(path, [hit_values(*REPRESENTATION, range(correct), 100)], **known)


def test_an_encoder_from_elsewhere_is_compared_by_its_file(two: list[Path], tmp_path: Path) -> None:
    about = {"encoder": "timm:resnet18", "weights": "moco.pth.tar"}
    found = cp.compare([two[0], file_of(tmp_path / "evaluations" / "a.json", 60, encoder=about)])
    assert [side.name for side in found.sides] == ["ours", "timm:resnet18 moco.pth.tar"]
    assert [str(side) for side in found.sides] == ["ours (seed 0)", "timm:resnet18 moco.pth.tar"]
    (row,) = found.rows
    assert row.over_samples is not None
    assert_numbers(row.over_samples.p_value, float(oracle.mcnemar_p(30, 0)))


def test_sides_of_files_have_names_of_their_own(tmp_path: Path) -> None:
    known = [{"encoder": "timm:resnet18", "weights": None}] * 2 + [{"encoder": "features"}, None]
    files = [file_of(tmp_path / "all" / f"{place}.json", 60 + place, encoder=each) for place, each in enumerate(known)]
    names = [side.name for side in cp.compare(files).sides]
    assert names == ["all/timm:resnet18 (1)", "all/timm:resnet18 (2)", "2", "3"]


def test_a_file_of_a_run_counts_as_the_run(two: list[Path]) -> None:
    for path in two:
        (path / ".counterpoint").touch()
        write_sealed(path / "run.json", read_sealed(path / "run.json"))
        file_of(path / "evaluations" / "pets.json", 50 + len(path.name))
    found = cp.compare([path / "evaluations" / "pets.json" for path in two])
    assert [(side.name, side.seeds) for side in found.sides] == [("ours", (0,)), ("theirs", (0,))]
    assert [row.difference for row in found.rows] == [pytest.approx(-0.02)]


@pytest.mark.parametrize(
    ("known", "sentence"),
    [
        (
            {"fingerprint": "other"},
            r"ours \(100 of digits\) and .*a.json \(100 of digits\) were evaluated on different",
        ),
        ({"fingerprint": None}, "a.json does not keep which queries were right.*counterpoint evaluate --encoder NAME"),
    ],
)
def test_a_file_that_cannot_be_compared_is_refused(
    two: list[Path], tmp_path: Path, known: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CounterpointError, match=sentence):
        cp.compare([two[0], file_of(tmp_path / "a.json", 60, encoder={"encoder": "timm:resnet18"}, **known)])


def test_a_file_that_is_no_evaluation_is_refused(two: list[Path]) -> None:
    with pytest.raises(RunError, match=r"findings\.json is not an evaluation; make one with: counterpoint evaluate"):
        cp.compare([two[0], write_evaluation(two[1].parent / "findings.json", [])])


@pytest.mark.thorough
def test_a_run_and_an_encoder_evaluated_on_the_same_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(4, 6))[np.arange(200) % 4] + rng.normal(size=(200, 6))).astype(np.float32)
    np.savez("data.npz", x=vectors, labels=np.arange(200) % 4)
    run = cp.train("data.npz", out="run", epochs=2, batch_size=32, quiet=True)
    ours = cp.evaluate(run, quiet=True, cache=False)
    file = Path("theirs.json")
    theirs = cp.evaluate("mlp", data="data.npz", out=str(file), quiet=True, cache=False)
    found = cp.compare([run, file], features=["representation"])
    assert [side.name for side in found.sides] == ["run", "mlp"]
    for row in found.rows:
        figures = (ours.accuracy(row.features, row.metric), theirs.accuracy(row.features, row.metric))
        assert (row.first_figure, row.second_figure) == pytest.approx(figures)
        assert row.over_samples is not None
