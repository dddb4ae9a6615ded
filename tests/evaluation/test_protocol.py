"""evaluate(): rows, baselines, intervals and the written record of a tiny run, checked against a loop over votes."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.core.derived_files import read_derived
from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.core.schemas import EvaluationRecord, EvaluationRow, EvaluationSplit, read_record
from counterpoint.diagnostics.evidence import Interval
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.evaluation_result import KNN, PROBE, Evaluation, query_fingerprint
from counterpoint.evaluation.features import extract
from counterpoint.evaluation.metric_types import Score, row_of, wilson
from counterpoint.evaluation.trained_run import open_trained
from hit_rows import packed
from oracles import class_votes as oracle

FEATURES = ["representation", "embedding", "untrained encoder", "input (PCA)"]


@pytest.fixture(scope="module")
def evaluation(run: cp.Run) -> cp.Evaluation:
    return cp.evaluate(run, quiet=True, k=7, temperature=0.2)


def test_every_kind_of_features_is_judged_by_both_protocols(evaluation: cp.Evaluation) -> None:
    assert [(row.features, row.protocol) for row in evaluation.rows] == [
        (features, protocol) for features in FEATURES for protocol in (KNN, PROBE)
    ]


def test_settings_are_recorded_beside_each_figure(evaluation: cp.Evaluation) -> None:
    knn, probe = evaluation.rows[6:]
    assert knn.settings == {"k": 7, "temperature": 0.2, "similarity": "cosine", "components": 6}
    stated = {"model": "logistic regression", "C": 0.1, "features": "standardised"}
    assert probe.settings == {**stated, "optimality": "gradient norm at most 1e-05", "components": 6}
    assert evaluation.rows[4].settings["norms"] == "set on the training samples"


def test_knn_accuracies_and_hits_are_those_of_a_loop_over_held_out_samples(
    run: cp.Run, clusters: Any, evaluation: cp.Evaluation
) -> None:
    """Features from the loaded encoder, votes from the oracle; only samples that training never saw are queries."""
    trained, encoder = open_trained(run, reporter=Reporter(quiet=True)), cp.load(run)
    bank, queries = trained.split.train.tolist(), trained.split.held_out.tolist()
    record, labels = read_record(EvaluationRecord, evaluation.to_dict(), "evaluation.json"), clusters.labels.tolist()
    raw = record.find_row("input (PCA)", KNN)
    assert raw is not None
    for features, values in (
        ("representation", encoder.represent(clusters.data)),
        ("embedding", encoder.embed(clusters.data)),
    ):
        vectors = values.astype(np.float64).tolist()
        known = ([vectors[i] for i in bank], [labels[i] for i in bank])
        right = [place for place, i in enumerate(queries) if oracle.knn_class(*known, vectors[i], 7, 0.2) == labels[i]]
        row = record.find_row(features, KNN)
        assert row is not None
        assert (row.correct, row.total, row.hits) == (len(right), 30, packed(right, 30))
        difference = row.minus(raw)
        assert difference is not None
        assert difference.value == pytest.approx(len(right) / 30 - evaluation.accuracy("input (PCA)"))


def test_features_that_hold_the_classes_beat_chance(evaluation: cp.Evaluation) -> None:
    for row in evaluation.rows:
        assert row.low is not None
        assert row.low > 1 / 3, row


def test_the_record_is_written_as_the_report_reads_it(run: cp.Run, evaluation: cp.Evaluation) -> None:
    written = read_derived(run.folder, run.folder.evaluation)
    assert written == json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    record = read_record(EvaluationRecord, written, "evaluation.json")
    assert json.loads(json.dumps(record.written())) == written
    assert all(set(row) == EvaluationRow.model_fields.keys() - {"value"} for row in written["rows"])
    assert written["split"] == {
        "source": "array",
        "num_unlabelled": 0,
        "num_bank": 45,
        "num_queries": 30,
        "num_classes": 3,
        "class_names": ["0", "1", "2"],
        "absent_classes": [],
        "num_shared": 0,
        "how": "40% of each class, held out of training",
        "query_fingerprint": written["split"]["query_fingerprint"],
        "data_fingerprint": written["split"]["data_fingerprint"],
    }


def test_the_fingerprint_of_queries_is_of_their_names_and_classes(run: cp.Run) -> None:
    source = open_trained(run, reporter=Reporter(quiet=True)).source
    assert source.labels is not None
    queries, others = torch.tensor([3, 5, 8]), torch.tensor([3, 5, 9])
    first = query_fingerprint(source, queries)
    relabelled = source.labels.clone()
    relabelled[5] = (relabelled[5] + 1) % 3
    assert first == query_fingerprint(replace(source, notes={"a": "b"}), queries)
    assert first != query_fingerprint(source, others)
    assert first != query_fingerprint(replace(source, labels=relabelled), queries)
    assert first != query_fingerprint(replace(source, fingerprint="of another array"), queries)
    # Files have names, which stay the same at another image size; the fingerprint of their content does not.
    named = replace(source, sample_names=tuple(f"{place}.png" for place in range(len(source))))
    assert query_fingerprint(named, queries) != first
    assert query_fingerprint(named, queries) == query_fingerprint(replace(named, fingerprint="at 64 px"), queries)


def test_rows_of_an_old_record_stay_where_another_metric_is_asked_for(run: cp.Run, tmp_path: Path) -> None:
    copy = replace(run, path=tmp_path / "run")
    shutil.copytree(run.path, copy.path)
    cp.evaluate(copy, quiet=True)
    values = read_sealed(copy.folder.evaluation)
    del values["split"]["query_fingerprint"], values["split"]["data_fingerprint"]
    for row in values["rows"]:
        row.pop("hits")
    write_sealed(copy.folder.evaluation, values)
    cp.evaluate(copy, metrics=["knn"], quiet=True)
    after = read_sealed(copy.folder.evaluation)
    assert len(after["rows"]) == len(values["rows"])
    assert {row["protocol"] for row in after["rows"] if "hits" in row} == {KNN}
    assert after["split"]["query_fingerprint"]


def test_the_table_shows_every_row(evaluation: cp.Evaluation) -> None:
    lines = str(evaluation).splitlines()
    assert "30 queries, 45 labelled samples, 3 classes" in lines[0]
    assert len(lines) == 2 + len(evaluation.rows)
    for line, row in zip(lines[2:], evaluation.rows, strict=True):
        assert line.startswith(row.features)
        assert f"{row.accuracy:.1%}" in line


def test_metrics_that_are_asked_for_join_those_measured_before(run: cp.Run, evaluation: cp.Evaluation) -> None:
    before = json.loads((run.path / "evaluation.json").read_text())["rows"]
    asked = cp.evaluate(run, metrics=["linear-probe"], quiet=True)
    assert {row.protocol for row in asked.rows} == {"linear probe"}
    after = json.loads((run.path / "evaluation.json").read_text())["rows"]
    assert sorted(map(json.dumps, after)) == sorted(map(json.dumps, before))
    with pytest.raises(UsageError, match="unknown metric 'knnn'; did you mean 'knn'"):
        cp.evaluate(run, metrics=["knnn"], quiet=True)


def test_a_row_that_is_not_there_is_named(evaluation: cp.Evaluation) -> None:
    assert evaluation.accuracy("embedding", PROBE) == evaluation.rows[3].accuracy
    with pytest.raises(KeyError, match="no row for 'pixels' with 'knn'"):
        evaluation.accuracy("pixels")


def test_other_data_are_judged_without_touching_the_record(
    run: cp.Run, other_clusters: Any, evaluation: cp.Evaluation
) -> None:
    before = run.folder.evaluation.read_bytes()
    other = cp.evaluate(run, data=other_clusters.data, labels=other_clusters.labels, k=7, quiet=True)
    assert run.folder.evaluation.read_bytes() == before
    assert {row.features for row in other.rows} == set(FEATURES)
    assert other.split.num_queries == 0.4 * len(other_clusters.data)
    assert other.split.num_bank == 0.6 * len(other_clusters.data)
    assert re.fullmatch(r"not the data of training; 40 ?% of each class are queries", other.split.how)


def test_queries_of_their_own_are_asked_about_and_all_other_samples_are_the_bank(
    run: cp.Run, evaluation: cp.Evaluation, clusters: Any, other_clusters: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = run.folder.evaluation.read_bytes()
    queries = np.concatenate([other_clusters.data, clusters.data[:4]])  # four of the bank's
    labels = np.concatenate([other_clusters.labels, clusters.labels[:4]])
    asked = cp.evaluate(run, test_data=queries[labels != 1], test_labels=labels[labels != 1], k=7, temperature=0.2)
    encoder = cp.load(run)
    bank = encoder.represent(clusters.data).astype(np.float64).tolist()
    answers = [
        oracle.knn_class(bank, clusters.labels.tolist(), vector, 7, 0.2) == label
        for vector, label in zip(encoder.represent(queries).astype(np.float64).tolist(), labels.tolist(), strict=True)
        if label != 1
    ]
    assert asked.accuracy("representation") == sum(answers) / len(answers)
    assert (asked.split.num_bank, asked.split.num_queries) == (75, len(answers))
    assert asked.split.absent_classes == ("1",)
    assert asked.split.num_shared == (clusters.labels[:4] != 1).sum()
    said = capsys.readouterr().err
    assert "1 class of the bank has no query: 1" in said
    assert f"of {len(answers)} queries are in the bank, too" in said
    assert run.folder.evaluation.read_bytes() == before


def test_classes_of_the_queries_that_the_bank_lacks_are_named(run: cp.Run, other_clusters: Any) -> None:
    foreign = np.where(other_clusters.labels == 1, 9, other_clusters.labels)
    words = re.escape("--source.classes 0,2")
    with pytest.raises(DataError, match=words):
        cp.evaluate(run, test_data=other_clusters.data, test_labels=foreign, quiet=True)
    with pytest.raises(UsageError, match="test_labels= goes with test_data="):
        cp.evaluate(run, test_labels=other_clusters.labels, quiet=True)


def test_classes_can_be_chosen_for_every_verb(run: cp.Run, clusters: Any, tmp_path: Path) -> None:
    assert cp.evaluate(run, classes="0,2", k=5, quiet=True).split.class_names == ("0", "2")
    assert len(cp.embed(run, classes="0,2", quiet=True)) == 50
    assert cp.diagnose(run, classes="0,2", quiet=True).settings["num_samples"] == 50


def test_other_labels_are_judged_apart_from_the_record(run: cp.Run, clusters: Any, tmp_path: Path) -> None:
    copy = replace(run, path=tmp_path / "run")
    shutil.copytree(run.path, copy.path)
    own = cp.evaluate(copy, k=7, quiet=True)
    shutil.rmtree(copy.folder.other_evaluations, ignore_errors=True)
    before = copy.folder.evaluation.read_bytes()
    other = cp.evaluate(copy, labels=(clusters.data[:, 0] > 0).astype(int), k=7, quiet=True)
    assert other.rows != own.rows
    assert copy.folder.evaluation.read_bytes() == before
    (written,) = copy.folder.other_evaluations.iterdir()
    assert read_derived(run.folder, written) == json.loads(json.dumps(other.to_dict()))
    assert written.name.startswith("array-")
    assert other.split.source == "array"


@pytest.mark.parametrize("is_labelled", [True, False])
def test_the_array_of_the_run_is_its_own_data(
    run: cp.Run, clusters: Any, evaluation: cp.Evaluation, is_labelled: bool
) -> None:
    """Given as data=, with labels to a bare folder, or without to a run that knows them."""
    given = {"labels": clusters.labels} if is_labelled else {}
    again = cp.evaluate(run.path if is_labelled else run, data=clusters.data, k=7, temperature=0.2, quiet=True, **given)
    assert again == evaluation
    assert read_derived(run.folder, run.folder.evaluation) == json.loads(json.dumps(evaluation.to_dict()))


def test_figures_do_not_depend_on_the_number_of_threads(run: cp.Run, evaluation: cp.Evaluation) -> None:
    trained, before = open_trained(run, reporter=Reporter(quiet=True)), torch.get_num_threads()
    features = []
    try:
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            assert cp.evaluate(run, k=7, temperature=0.2, quiet=True) == evaluation
            features.append(extract(trained.encoder, trained.source))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(each.representation, features[0].representation) for each in features)
    assert all(torch.equal(each.embedding, features[0].embedding) for each in features)


def test_each_figure_is_shown_when_it_is_known(
    run: cp.Run, evaluation: cp.Evaluation, capsys: pytest.CaptureFixture[str]
) -> None:
    cp.evaluate(run, k=7, temperature=0.2)
    shown = [line.strip() for line in capsys.readouterr().err.splitlines()]
    for row in evaluation.rows:
        assert f"{row.features}, {row.protocol}: {row.accuracy:.1%}" in shown


@pytest.mark.parametrize("verb", [cp.evaluate, cp.embed, cp.load, cp.report, cp.resume, cp.verify])
def test_what_is_no_run_is_refused_with_a_remedy(verb: Any) -> None:
    modules = () if verb in (cp.evaluate, cp.embed) else (torch.nn.Linear(2, 2),)  # these two take modules
    for wrong in (*modules, 5, None):
        with pytest.raises(UsageError, match=rf"run must be a run or .* got {type(wrong).__name__}; cp.train"):
            verb(wrong)


def test_samples_without_a_label_are_neither_bank_nor_query(
    clusters: Any, run: cp.Run, evaluation: cp.Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = open_trained(run, reporter=Reporter(quiet=True))
    assert trained.source.labels is not None
    labels = trained.source.labels.clone()
    labels[trained.split.train[:5]] = -1
    labels[trained.split.held_out[:4]] = -1
    partly = replace(trained, source=replace(trained.source, labels=labels), is_own_data=False, is_own_record=False)
    monkeypatch.setattr("counterpoint.evaluation.protocol.open_subject", lambda *_, **__: partly)
    partial = cp.evaluate(run, quiet=True)
    split = partial.split
    assert (split.num_bank, split.num_queries, split.num_unlabelled) == (40, 26, 9)
    assert "9 samples without a label take no part" in str(partial)


def test_labels_given_later_do_not_pass_trained_samples_off_as_held_out(run: cp.Run, clusters: Any) -> None:
    """The split goes by class: by other labels it holds out samples that were trained on, and must say so."""
    trained_on = set(open_trained(run, reporter=Reporter(quiet=True)).split.train.tolist())
    relabelled = replace(run, labels=(clusters.data[:, 0] > 0).astype(int))
    queries = set(open_trained(relabelled, reporter=Reporter(quiet=True)).split.held_out.tolist())
    assert queries & trained_on
    copy = replace(relabelled, path=run.path.with_name("relabelled"))
    shutil.copytree(run.path, copy.path)
    assert "held out of training" not in cp.evaluate(copy, quiet=True).split.how


def test_a_run_that_held_nothing_out_says_so(clusters: Any, tmp_path: Path) -> None:
    run = cp.train(data=clusters.data, epochs=1, batch_size=32, quiet=True, out=str(tmp_path / "all"))
    split = cp.evaluate(replace(run, labels=clusters.labels), quiet=True, k=5).split
    assert (split.num_bank, split.num_queries) == (60, 15)
    assert re.match(r"20 ?% of each class are queries; the encoder has seen them in training", split.how)


@pytest.mark.parametrize("k", [0, -1, 46])
def test_k_out_of_range_is_named(run: cp.Run, k: int) -> None:
    with pytest.raises(UsageError, match=rf"k must be between 1 and the number of labelled samples, 45, got {k}"):
        cp.evaluate(run, k=k, quiet=True)


@pytest.mark.parametrize("temperature", [0.0, -0.1, float("nan")])
def test_a_temperature_out_of_range_is_named(run: cp.Run, temperature: float) -> None:
    with pytest.raises(UsageError, match=rf"temperature .*got {temperature}"):
        cp.evaluate(run, temperature=temperature, quiet=True)


def test_of_all_metrics_those_that_cannot_be_measured_are_left_out_by_name(
    run: cp.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = {row.protocol for row in cp.evaluate(run, metrics=["all"]).rows}
    assert {"knn", "linear probe", "mAP@10", "balanced probe"} <= measured
    said = capsys.readouterr().err
    assert "corruption error" not in measured
    assert "corruption error is left out: it needs --corruptions" in said


def test_every_labelled_sample_may_vote(run: cp.Run, other_clusters: Any) -> None:
    evaluation = cp.evaluate(run, data=other_clusters.data, labels=other_clusters.labels, k=45, quiet=True)
    assert len(evaluation.rows) == 8


def test_two_encoders_of_the_same_nameless_samples_can_be_compared(tmp_path: Path) -> None:
    """Features without names are known by places and classes: the features themselves differ by encoder."""
    first, labels = np.random.default_rng(0).normal(size=(100, 6)).astype("float32"), np.arange(100) % 4
    asked = {"first": (first, labels), "second": (first**2, labels), "other": (first, labels[::-1].copy())}
    prints = {}
    for name, (features, classes) in asked.items():
        found = cp.evaluate(features, labels=classes, out=str(tmp_path / f"{name}.json"), quiet=True)
        prints[name] = found.split.query_fingerprint
    assert prints["first"] == prints["second"] != prints["other"]
    with pytest.raises(UsageError, match=r"metrics must be a list of names, such as \['all'\], got 'all'"):
        cp.evaluate(first, labels=labels, metrics="all", quiet=True)


def test_long_names_and_small_figures_fit_a_hundred_columns() -> None:
    small, share = Interval(0.000656, 0.0004, 0.0009), wilson(3893, 10_000)
    features = ["representation", "projected", "embedding", "untrained encoder", "timm:resnet18"]
    rows = [
        row_of(name, protocol, Score(outcome, {}))
        for protocol, outcome in (
            ("sepin@1", small), ("sepin@10", small), ("adam probe", share),
            ("linear probe on silhouettes.npz", share), ("knn", share),
        )
        for name in features
    ]  # fmt: skip
    split = EvaluationSplit(source="train.npz", num_queries=9, num_bank=9, num_classes=2, num_unlabelled=0)
    lines = str(Evaluation(split=split, rows=tuple(rows))).splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.split()[:4] == ["embedding", "adam", "probe", "38.9%"] for line in lines)  # of 0.2.0
    assert lines[-1].split() == ["timm:resnet18", "knn", "38.9%", "38.0%", "to", "39.9%"]
