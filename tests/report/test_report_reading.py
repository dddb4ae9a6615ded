"""A run folder is read whole, in part or not at all, and what is wrong with it is said in one line."""

import json
from typing import Any

import numpy as np
import pytest
from run_folders import edit_json

from counterpoint.core.errors import RunError
from counterpoint.core.files import read_sealed, sha256_of, write_sealed, write_text
from counterpoint.core.run_contents import MARK
from counterpoint.report.run_record import read_run
from counterpoint.report.sections.concept_overview import concept_words
from counterpoint.report.sections.concepts_section import PLANS, gallery_section
from counterpoint.report.sections.configuration_section import configuration_section
from counterpoint.report.sections.headline import HEADLINES, compare, side_by_side
from counterpoint.report.sections.training_section import loss_reading


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
    assert [concept.dim for concept in record.diagnosis.concepts] == [concept["dim"] for concept in stored["concepts"]]
    knn = record.evaluation.row("representation", "knn")
    assert knn is not None
    assert knn.correct == 354
    assert record.settings["optim.weight_decay"] == "0.0001"
    assert record.asked == {"data", "method", "epochs"}
    assert record.reasons["optim.learning_rate"] == "adamw default"
    assert len(record.epochs) == 20


def test_only_run_json_is_needed(tmp_path):
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "run.json").write_text('{"format": 1, "status": "running"}')
    record = read(folder)
    assert (record.evaluation, record.diagnosis, record.epochs) == (None, None, ())
    assert record.arrays.spectra == {}


def test_a_folder_without_run_json_is_refused(tmp_path):
    with pytest.raises(RunError, match="not a run folder"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "findings.json",
            lambda c: c["places"]["embedding"].update(alignment="x"),
            "alignment must be a number or null",
        ),
        ("findings.json", lambda c: c.update(findings={}), "findings must be a list"),
        ("findings.json", lambda c: c.update(settings=[1]), "settings must hold named values"),
        ("evaluation.json", lambda c: c["rows"].append(3), r"rows\[8\] must hold named values"),
        ("evaluation.json", lambda c: c["rows"][0].update(accuracy=True), "accuracy must be a number or null"),
        ("run.json", lambda c: c.update(method={"a": 1}), "method must be text"),
        ("run.json", lambda c: [], "not a run folder"),
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
    assert read(folder).arrays.spectra
    arrays["spectrum/embedding"] = arrays["spectrum/embedding"] * 2  # its checksums will be right
    np.savez(folder / "arrays.npz", **arrays)
    with pytest.raises(RunError, match=r"arrays\.npz was changed after it was written; counterpoint diagnose"):
        read(folder)


def test_settings_that_lost_their_hash_are_refused(make_run):
    folder = make_run()
    assert read(folder).settings  # of version 0.1.0, which wrote none
    write_text(folder / ".counterpoint", MARK)
    run_json = folder / "run.json"
    write_sealed(run_json, json.loads(run_json.read_text()))
    with pytest.raises(RunError, match=r"resolved\.yaml was changed after it was written"):
        read(folder)


def test_what_was_asked_for_is_not_known_without_its_file(make_run):
    folder = make_run()
    (folder / "config.yaml").unlink()
    page = str(configuration_section([read(folder)]))
    assert "config.yaml is missing: which others were asked for is not known" in page
    assert "asked for</td>" not in page


def test_pickles_are_refused(make_run):
    folder = make_run()
    np.savez(folder / "arrays.npz", thumbnails=np.array([{"a": 1}], dtype=object))
    with pytest.raises(RunError, match="damaged"):
        read(folder)


@pytest.mark.parametrize(
    "arrays",
    [
        {"thumbnails": np.zeros((2, 3, 4, 5), np.uint8)},
        {"thumbnails": np.zeros((2, 3, 4), np.float32)},
        {"spectrum/embedding": np.zeros((2, 2))},
        {"cosines/edges": np.zeros(3), "cosines/positive": np.zeros(3), "cosines/negative": np.zeros(3)},
    ],
)
def test_arrays_of_a_wrong_shape_are_refused(make_run, arrays):
    folder = make_run()
    np.savez(folder / "arrays.npz", **arrays)
    with pytest.raises(RunError, match=r"arrays\.npz"):
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
    assert read(folder).arrays.spectra["embedding"].tolist() == [3.0, 1.0, 0.0]


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


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((0.98, 0.97, 0.99), (0.90, 0.88, 0.92), "a is ahead; the intervals do not overlap"),
        ((0.98, 0.96, 0.99), (0.97, 0.95, 0.98), "a is ahead, but the intervals overlap: not told apart"),
        ((0.90, 0.88, 0.92), (0.98, 0.97, 0.99), "b is ahead; the intervals do not overlap"),
        ((0.97, 0.95, 0.98), (0.97, 0.95, 0.98), "a and b are practically equal"),
    ],
)
def test_comparison_in_words_respects_the_intervals(make_run, first, second, words):
    folders = [make_run("a"), make_run("b", method="simclr")]
    for folder, (accuracy, low, high) in zip(folders, (first, second), strict=True):
        edit_json(folder / "evaluation.json", lambda c, v=(accuracy, low, high): _set_accuracy(c, v))
    runs = [read(folder, order, name) for order, (folder, name) in enumerate(zip(folders, "ab", strict=True))]
    assert compare(HEADLINES[0], runs).words == words


def test_comparison_of_three_names_those_it_is_clear_of(make_run):
    values = {"a": (0.98, 0.97, 0.99), "b": (0.975, 0.965, 0.985), "c": (0.90, 0.88, 0.92)}
    runs = []
    for order, (name, value) in enumerate(values.items()):
        folder = make_run(name)
        edit_json(folder / "evaluation.json", lambda c, v=value: _set_accuracy(c, v))
        runs.append(read(folder, order, name))
    assert compare(HEADLINES[0], runs).words == "a is ahead, clear of c, not told apart from b"


def headline(title):
    return next(each for each in HEADLINES if each.title == title)


@pytest.mark.parametrize(
    ("intervals", "leader"),
    [
        ([(0.98, 0.97, 0.99), (0.90, 0.88, 0.92)], "a"),
        ([(0.98, 0.96, 0.99), (0.97, 0.95, 0.98)], None),  # they overlap
        ([(0.98, 0.97, 0.99), (0.90, 0.88, 0.92), (0.80, 0.78, 0.82)], "a"),
        ([(0.98, 0.97, 0.99), (0.975, 0.965, 0.985), (0.90, 0.88, 0.92)], None),  # clear of one of two only
        ([(0.97, 0.95, 0.98), (0.97, 0.95, 0.98)], None),
    ],
)
def test_a_lead_is_marked_where_its_interval_lies_above_all_others(make_run, intervals, leader):
    runs = []
    for order, (name, value) in enumerate(zip("abc", intervals, strict=False)):
        folder = make_run(name)
        edit_json(folder / "evaluation.json", lambda c, v=value: _set_accuracy(c, v))
        runs.append(read(folder, order, name))
    ahead = compare(headline("kNN accuracy"), runs).ahead
    assert (ahead.name if ahead else None) == leader
    marks = str(side_by_side(runs)).count('class="lead-mark"')
    assert marks == (leader is not None)  # the other numbers overlap, are equal or have no interval


def test_numbers_without_an_interval_mark_no_lead(make_run):
    runs = [read(make_run(name, method=name), order, name) for order, name in enumerate(("ncl", "simclr"))]
    for title in ("Class consistency", "Sparsity", "Training time"):
        outcome = compare(headline(title), runs)
        assert outcome.ahead is None
        assert outcome.words.endswith("; no interval")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "simclr took the least time; no interval"),
        ({"device": "cuda"}, "not compared: the runs differ in device"),
        ({"data_fingerprint": "other"}, "not compared: the runs differ in data"),
        ({"num_threads": 2}, "simclr took the least time; no interval"),  # unknown in the other
        ({"precision": "bf16", "world_size": 4}, "not compared: the runs differ in precision"),
    ],
    ids=str,
)
def test_time_is_compared_between_like_runs_only(make_run, change, words):
    folders = [make_run("ncl"), make_run("simclr", method="simclr")]
    edit_json(folders[1] / "run.json", lambda card: card.update(change))
    runs = [read(folder, order, folder.name) for order, folder in enumerate(folders)]
    assert compare(headline("Training time"), runs).words == words


def test_time_is_not_compared_between_unequal_epochs(make_run):
    folders = [make_run("long", num_epochs=20), make_run("short", method="simclr", num_epochs=5)]
    runs = [read(folder, order, folder.name) for order, folder in enumerate(folders)]
    assert compare(headline("Training time"), runs).words == "not compared: the runs differ in epochs"


def test_different_data_are_not_compared_at_all(make_run):
    folders = [make_run("a"), make_run("b", method="simclr")]
    edit_json(folders[1] / "run.json", lambda card: card.update(data_fingerprint="other"))
    runs = [read(folder, order, folder.name) for order, folder in enumerate(folders)]
    assert {compare(each, runs).words for each in HEADLINES} == {"not compared: the runs differ in data"}


def test_fewer_than_two_numbers_are_not_compared(make_run):
    folders = [make_run("a"), make_run("b")]
    (folders[1] / "evaluation.json").unlink()
    runs = [read(folder, order, folder.name) for order, folder in enumerate(folders)]
    assert compare(HEADLINES[0], runs).words == ""


def _set_accuracy(content, value):
    accuracy, low, high = value
    content["rows"][0].update(accuracy=accuracy, low=low, high=high)


def test_a_dimension_without_a_class_is_shown_without_a_name(make_run):
    folder = make_run()

    def unname(content):
        for concept in content["concepts"]:
            concept["top_class"] = None

    edit_json(folder / "findings.json", unname)
    record = read(folder)
    plan = PLANS[0]
    assert "no class beyond chance" in str(gallery_section([record], plan))
    assert 'class="class-name"' not in str(gallery_section([record], plan))
    assert record.diagnosis is not None
    num_concepts = len(record.diagnosis.concepts)
    assert "none is at least 80" in concept_words(record)
    assert f"In {num_concepts} dimensions no class is more common than chance allows." in concept_words(record)
