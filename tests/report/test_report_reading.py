"""A run folder is read whole, in part or not at all, and what is wrong with it is said in one line."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from run_folders import edit_json

from counterpoint.core.errors import RunError
from counterpoint.core.files import read_sealed, sha256_of, write_sealed, write_text
from counterpoint.report.run_reading import read_run
from counterpoint.report.sections.configuration_section import configuration_section
from counterpoint.report.sections.evaluation_section import baseline_words, evaluation_section
from counterpoint.report.sections.headline import HEADLINES, compare, side_by_side
from counterpoint.report.sections.training_section import loss_reading
from counterpoint.runs.run_files import MARK
from hit_rows import hit_row, hit_values, packed
from oracles import paired_tests as oracle


def read(path, order=0, name="run"):
    return read_run(path, name=name, order=order)


def test_numbers_arrive_as_written(make_run):
    folder = make_run()
    record = read(folder)
    stored = json.loads((folder / "findings.json").read_text())
    embedding = record.place("embedding")
    assert embedding is not None
    assert record.diagnosis is not None
    assert record.evaluation is not None
    assert embedding.effective_rank == stored["places"]["embedding"]["effective_rank"]
    knn = record.evaluation.find_row("representation", "knn")
    assert knn is not None
    assert knn.correct == 354
    assert record.settings["optim.weight_decay"] == "0.0001"
    assert record.config_names == {"data", "method", "epochs"}
    assert record.reasons["optim.learning_rate"] == "adamw default"
    assert len(record.epochs) == 20


def test_only_run_json_is_needed(tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "run.json").write_text('{"format": 1, "status": "running"}')
    record = read(folder)
    assert (record.evaluation, record.diagnosis, record.epochs) == (None, None, ())
    assert record.spectra == {}


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "findings.json",
            lambda c: c["places"]["embedding"].update(alignment="x"),
            "alignment must be a number or null",
        ),
        ("findings.json", lambda c: c.update(findings={}), "findings must be a list"),
        ("evaluation.json", lambda c: c["rows"].append(3), r"rows\[8\] must hold named values"),
        ("run.json", lambda c: [], r"run\.json"),
    ],
)
def test_a_wrong_type_names_file_and_field(make_run, file, change, message):
    folder = make_run()
    edit_json(folder / file, change)
    with pytest.raises(RunError, match=message):
        read(folder)


@pytest.mark.parametrize("file", ["findings.json", "evaluation.json", "arrays.npz", "resolved.yaml"])
def test_a_damaged_file_is_an_error(make_run, file):
    folder = make_run()
    (folder / file).write_bytes(b"\x80{: [")
    with pytest.raises(RunError, match="damaged"):
        read(folder)


def test_arrays_that_are_not_those_of_the_findings_are_refused(make_run):
    folder = make_run()
    with np.load(folder / "arrays.npz") as stored:
        arrays = dict(stored)
    seal = {"sha256": sha256_of(folder / "arrays.npz")}
    write_sealed(folder / "findings.json", {**read_sealed(folder / "findings.json"), "arrays": seal})
    assert read(folder).spectra
    arrays["spectrum/embedding"] = arrays["spectrum/embedding"] * 2  # its checksums will be right
    np.savez(folder / "arrays.npz", **arrays)
    with pytest.raises(RunError, match=r"arrays\.npz .*counterpoint diagnose"):
        read(folder)


def test_settings_that_lost_their_hash_are_refused(make_run):
    folder = make_run()
    assert read(folder).settings  # of version 0.1.0, which wrote none
    write_text(folder / ".counterpoint", MARK)
    run_json = folder / "run.json"
    write_sealed(run_json, json.loads(run_json.read_text()))
    with pytest.raises(RunError, match=r"resolved\.yaml"):
        read(folder)


def test_what_was_asked_for_is_not_known_without_its_file(make_run):
    folder = make_run()
    (folder / "config.yaml").unlink()
    page = str(configuration_section([read(folder)]))
    assert "config.yaml is missing: which settings were given is not known" in page
    assert ">given<" not in page


def test_figures_on_request_stand_in_the_table_and_not_in_the_words(make_run):
    folder = make_run()
    row = {"features": "representation", "protocol": "mAP@10", "settings": {"k": 10}, "value": 0.7301}
    edit_json(folder / "evaluation.json", lambda content: content["rows"].append(row))
    run = read(folder)
    assert "By kNN" in baseline_words(run)
    assert "mAP" not in baseline_words(run)
    assert "<strong>0.73</strong>" in str(evaluation_section([run]))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"spectrum/embedding": np.array([{"a": 1}], dtype=object)}, "damaged"),
        ({"spectrum/embedding": np.zeros((2, 2))}, r"arrays\.npz"),
        ({"band/embedding": np.array([["a", "b"], ["c", "d"]])}, r"arrays\.npz"),
        (
            {"cosines/edges": np.zeros(3), "cosines/positive": np.zeros(3), "cosines/negative": np.zeros(3)},
            r"arrays\.npz",
        ),
    ],
    ids=["a pickle", "a matrix", "text", "counts"],
)
def test_pickles_and_arrays_of_a_wrong_shape_are_refused(make_run, arrays, message):
    folder = make_run()
    np.savez(folder / "arrays.npz", **arrays)
    with pytest.raises(RunError, match=message):
        read(folder)


def test_not_a_number_and_infinity_read_as_missing(make_run):
    folder = make_run()
    (folder / "metrics.jsonl").write_text(
        '{"epoch": 1, "loss": NaN, "chance": Infinity, "floor": 1e999}\n{"epoch": 2, "lo'
    )
    record = read(folder)
    assert [(epoch.loss, epoch.chance, epoch.floor) for epoch in record.epochs] == [(None, None, None)]


def test_spectra_are_sorted_and_finite(make_run):
    folder = make_run()
    spectra: dict[str, Any] = {"spectrum/embedding": np.array([1.0, np.nan, 3.0, -1e-18])}
    np.savez(folder / "arrays.npz", **spectra)
    assert read(folder).spectra["embedding"].tolist() == [3.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([6.3, 6.24], "at chance"),
        ([6.0, 3.0], "66 % of the way"),
        ([*np.linspace(6, 3, 40)], "still falling"),
        ([*np.linspace(6, 3, 20), *[3.0] * 40], "levelled off"),
        ([5.0], "After 1 epoch the loss is 5."),
        ([None, None], ""),
    ],
)
def test_training_is_read_from_its_numbers(make_run, losses, words):
    folder = make_run()
    lines = [{"epoch": k + 1, "loss": loss, "chance": 6.24, "floor": 1.3} for k, loss in enumerate(losses)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    reading = loss_reading(read(folder)).replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert words in reading
    assert bool(reading) == bool(words)


# Of 360 queries, those that a representation gets right by kNN.
MOST, FEWER, MOVED = range(354), range(324), range(5, 355)
BETTER, WORSE = [*range(300), *range(320, 337)], [*range(266), *range(320, 347)]  # 88.1 and 81.4 %: intervals overlap


def paired_words(only_first, only_second):
    """Interval and p of so many queries of 360 that only one gets right."""
    low, high = (f"{100 * end:.1f}".replace("-", "−") for end in oracle.score_interval(only_first, only_second, 360))
    p = float(oracle.mcnemar_p(only_first, only_second))
    return f"95 % interval {low} to {high} points, p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}"


def runs_with(make_run, *rights):
    """Runs a, b, ... whose representations get these queries right."""
    runs = []
    for order, (name, right) in enumerate(zip("abc", rights, strict=False)):
        folder = make_run(name)
        edit_json(folder / "evaluation.json", lambda c, r=right: _set_right(c, r))
        runs.append(read(folder, order, name))
    return runs


@pytest.mark.parametrize(
    ("rights", "leader", "words"),
    [
        ((FEWER, MOST), "b", f"b is ahead by 8.3 points ({paired_words(30, 0)})"),
        ((BETTER, WORSE), "a", f"a is ahead by 6.7 points ({paired_words(34, 10)})"),  # their intervals overlap
        ((MOST, MOVED), None, f"a is ahead by 1.1 points ({paired_words(5, 1)}): not told apart"),
        ((MOST, MOST), None, "a and b are practically equal"),
        ((MOST, MOVED, FEWER), None, "a is ahead, told apart from c, not told apart from b"),
    ],
    ids=["apart", "overlapping and apart", "not apart", "equal", "three"],
)
def test_a_lead_is_what_the_test_in_pairs_supports(make_run, rights, leader, words):
    runs = runs_with(make_run, *rights)
    outcome = compare(HEADLINES[0], runs)
    assert outcome.words.replace("\N{NARROW NO-BREAK SPACE}", " ") == words
    assert (outcome.ahead.name if outcome.ahead else None) == leader
    # The other numbers are equal or have no interval.
    assert str(side_by_side(runs)).count('class="lead-mark"') == (leader is not None)


@pytest.mark.parametrize(("lead", "leader"), [(7, "a"), (6, None)])
def test_p_of_a_lead_among_three_is_corrected_for_all_pairs(make_run, lead, leader):
    """7 queries to 0 have p = 0.016 alone, and 0.047 among three runs; 6 to 0 have 0.031, and 0.094."""
    outcome = compare(HEADLINES[0], runs_with(make_run, range(350), range(350 - lead), range(lead, 350)))
    assert (outcome.ahead.name if outcome.ahead else None) == leader


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: [row.pop("hits") for row in c["rows"]] and None, "which queries were right is not known"),
        (lambda c: c["split"].update(query_fingerprint="other"), "on other queries"),
        (lambda c: c["split"].pop("query_fingerprint") and None, "on other queries"),
    ],
    ids=["an old record", "other queries", "unknown queries"],
)
def test_what_cannot_be_compared_in_pairs_has_no_lead_and_says_why(make_run, change, words):
    folders = [make_run("a"), make_run("b")]
    edit_json(folders[0] / "evaluation.json", lambda c: _set_right(c, FEWER))
    edit_json(folders[0] / "evaluation.json", change)
    runs = [read(folder, order, folder.name) for order, folder in enumerate(folders)]
    outcome = compare(HEADLINES[0], runs)
    assert outcome.ahead is None
    assert f"b is ahead, not compared with a ({words}" in outcome.words


def test_a_representation_is_compared_in_pairs_with_the_best_baseline(make_run):
    """6.7 points below pixels: the intervals overlap, and still that is no chance."""
    (run,) = runs_with(make_run, WORSE)
    assert run.evaluation is not None
    rows = [
        hit_row("pixels (PCA)", BETTER, 360) if row.features == "pixels (PCA)" else row for row in run.evaluation.rows
    ]
    judged = replace(run, evaluation=run.evaluation.model_copy(update={"rows": tuple(rows)}))
    words = baseline_words(judged).replace("\N{NARROW NO-BREAK SPACE}", " ")
    assert (
        "By kNN, the representation reaches 81.4 %, 6.7 points below pixels (PCA) (88.1 %); on the same queries they "
        f"are told apart ({paired_words(10, 34)})."
    ) in words
    old = replace(run, evaluation=run.evaluation.model_copy(update={"rows": tuple(map(without_hits, rows))}))
    assert "whether that is chance is not known (which queries were right is not known" in baseline_words(old)


def without_hits(row):
    return row.model_copy(update={"hits": None})


@pytest.mark.parametrize("hits", ["", "AAAA", "not base64!", "_" * 60], ids=["none", "short", "odd", "too many"])
def test_bits_that_do_not_fit_their_counts_are_named(make_run, hits):
    folder = make_run()
    edit_json(folder / "evaluation.json", lambda c: c["rows"][0].update(hits=hits))
    with pytest.raises(RunError, match=r"evaluation\.json: rows\[0\] must have a bit for each query in hits"):
        read(folder)


def test_bits_of_many_queries_reach_the_page_whole(make_run):
    """Texts of a page are cut at 300 characters, and what looks like a path loses its folders."""
    folder = make_run()
    right = range(0, 9000, 2)
    edit_json(
        folder / "evaluation.json", lambda c: c["rows"].__setitem__(0, hit_values("representation", "knn", right, 9000))
    )
    record = read(folder).evaluation
    assert record is not None
    assert record.rows[0].hits == packed(right, 9000)


def test_numbers_without_an_interval_mark_no_lead(make_run):
    runs = [read(make_run(name, method=name), order, name) for order, name in enumerate(("ncl", "simclr"))]
    sparsity = next(each for each in HEADLINES if each.metric.title == "Sparsity")
    outcome = compare(sparsity, runs)
    assert outcome.ahead is None
    assert outcome.words.endswith("; no interval")


def test_different_data_are_not_compared_at_all(make_run):
    folders = [make_run("a"), make_run("b", method="simclr")]
    edit_json(folders[1] / "run.json", lambda card: card.update(data_fingerprint="other"))
    runs = [read(folder, order, folder.name) for order, folder in enumerate(folders)]
    assert {compare(each, runs).words for each in HEADLINES} == {"not compared: other data"}


def _set_right(content, right):
    content["rows"][0].update(hit_values("representation", "knn", right, 360))
