"""Accuracy of a run's own classifier: classes go by their names, and a run without one has no such row."""

from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.core.errors import UsageError
from counterpoint.data.order import split_source
from counterpoint.engine.checkpoint import checkpoints_by_step, load_checkpoint
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.feature_sets import own_classes
from counterpoint.evaluation.trained_run import encoder_at


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory, clusters: Any) -> cp.Run:
    names = np.array(["a", "b", "c"])[clusters.labels]
    out = tmp_path_factory.mktemp("supervised") / "run"
    return cp.train(
        clusters.data, labels=names, method="supervised", epochs=3, batch_size=16, source={"holdout": 0.4},
        quiet=True, out=str(out),
    )  # fmt: skip


def test_its_row_is_the_share_of_held_out_samples_it_classifies(supervised: cp.Run, clusters: Any) -> None:
    evaluation = cp.evaluate(supervised, quiet=True)
    row = next(row for row in evaluation.rows if row.protocol == "classifier")
    assert row.features == "embedding"
    assert sum(each.protocol == "classifier" for each in evaluation.rows) == 1
    encoder, names = cp.load(supervised), np.array(["a", "b", "c"])[clusters.labels]
    held_out = split_source(len(names), torch.from_numpy(clusters.labels), 0.4).held_out.numpy()
    is_right = np.array(encoder.classify(clusters.data[held_out])) == names[held_out]
    assert (row.correct, row.total) == (is_right.sum(), len(held_out))
    assert row.hits is not None
    assert row.low is not None
    assert row.high is not None
    assert row.accuracy is not None
    assert row.low < row.accuracy < row.high or row.accuracy == 1


def test_its_row_is_the_same_whichever_layers_are_asked_for(supervised: cp.Run) -> None:
    whole = cp.evaluate(supervised, quiet=True).accuracy("embedding", "classifier")
    asked = cp.evaluate(supervised, metrics=("classifier",), layers=("embedding",), quiet=True)
    assert [(row.features, row.protocol, row.figure) for row in asked.rows] == [("embedding", "classifier", whole)]
    with pytest.raises(UsageError, match="classifier is a row of the embedding; layers must name it, got represent"):
        cp.evaluate(supervised, metrics=("classifier",), layers=("representation",), quiet=True)


def test_each_checkpoint_has_the_classifier_that_was_trained_so_far(supervised: cp.Run, clusters: Any) -> None:
    evaluation = cp.evaluate(supervised, metrics=("classifier",), layers=("embedding",), checkpoint="all", quiet=True)
    found = {row.features: row.figure for row in evaluation.rows}
    whole = cp.evaluate(supervised, quiet=True).accuracy("embedding", "classifier")
    steps = sorted(int(name.removeprefix("embedding at step ")) for name in found)
    assert len(steps) == 2
    assert found[f"embedding at step {steps[-1]}"] == whole
    first = load_checkpoint(checkpoints_by_step(supervised.folder.checkpoints)[steps[0]]).state.model
    earlier = encoder_at(supervised.folder, cp.load(supervised), steps[0])
    assert earlier.classifier is not None
    assert torch.equal(earlier.classifier.class_weights, first["loss.class_weights"])
    names = np.array(["a", "b", "c"])[clusters.labels]
    held_out = split_source(len(names), torch.from_numpy(clusters.labels), 0.4).held_out.numpy()
    is_right = np.array(earlier.classify(clusters.data[held_out])) == names[held_out]
    assert found[f"embedding at step {steps[0]}"] == is_right.mean()


def test_classes_go_by_name_and_unknown_ones_are_never_right(supervised: cp.Run, clusters: Any) -> None:
    encoder = cp.load(supervised)
    r = torch.from_numpy(encoder.represent(clusters.data))
    own, turned = (own_classes(encoder, r, names, Reporter(quiet=True)) for names in (("a", "b", "c"), ("c", "x", "a")))
    assert own is not None
    assert turned is not None
    assert torch.equal(turned, torch.tensor([2, -1, 0])[own])


def test_other_classes_leave_the_row_out_and_say_so(
    supervised: cp.Run, clusters: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = cp.evaluate(supervised, data=clusters.data, labels=clusters.labels)
    assert not [row for row in evaluation.rows if row.protocol == "classifier"]
    assert "classifier is left out: it knows none of the classes" in capsys.readouterr().err


def test_a_run_without_one_has_no_row_and_refuses_the_name(run: cp.Run) -> None:
    assert not [row for row in cp.evaluate(run, quiet=True).rows if row.protocol == "classifier"]
    with pytest.raises(UsageError, match="has no classifier; only learning from labels leaves one"):
        cp.evaluate(run, metrics=("classifier",), quiet=True)
