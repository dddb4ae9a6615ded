"""Fine-tuning: the recipe, the queries, few labels, the caller's module, and what is refused before any step."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import CounterpointError
from counterpoint.evaluation.trained_run import read_resolved

RNG = np.random.default_rng(0)
LABELS = np.array(["cat", "dog", "owl"])[np.arange(90) % 3]
VECTORS = (RNG.normal(size=(3, 6))[np.arange(90) % 3] + 0.3 * RNG.normal(size=(90, 6))).astype(np.float32)
IMAGES = RNG.integers(0, 256, (90, 8, 8), dtype=np.uint8)
SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 16, "quiet": True}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    out = tmp_path_factory.mktemp("first") / "run"
    return cp.train(VECTORS, labels=LABELS, out=str(out), **SMALL)


@pytest.fixture(scope="module")
def tuned(first: cp.Run) -> cp.FineTuned:
    return cp.fine_tune(first, quiet=True, batch_size=16, epochs=6)


def test_it_is_a_run_like_any_other_that_begins_with_the_encoder(first: cp.Run, tuned: cp.FineTuned) -> None:
    assert tuned.run.path == first.path.with_name("run-fine-tuned")
    settings = read_resolved(tuned.run.folder)
    assert (settings.method, settings.init, settings.views.preset) == ("supervised", str(first.path), "none")
    assert settings.optim.model_dump(include={"name", "learning_rate", "trust", "warmup_epochs"}) == {
        "name": "lars", "learning_rate": 0.4 * 16 / 256, "trust": 0.02, "warmup_epochs": 2.0,
    }  # fmt: skip
    assert tuned.run.folder.read_status().init["parts"] == ["backbone"]
    assert cp.verify(tuned.run, quiet=True).is_intact


def test_queries_are_those_held_out_of_the_first_training(first: cp.Run, tuned: cp.FineTuned) -> None:
    statuses = [run.folder.read_status() for run in (first, tuned.run)]
    assert statuses[0].split_fingerprint == statuses[1].split_fingerprint
    assert tuned.evaluation.split.num_queries == 18


def test_the_frozen_probe_is_that_of_the_first_run_and_the_gain_is_in_pairs(first: cp.Run, tuned: cp.FineTuned) -> None:
    frozen = cp.evaluate(first, metrics=("linear probe",), quiet=True)
    probe = tuned.evaluation.accuracy("initial encoder", "linear probe")
    assert probe == frozen.accuracy("representation", "linear probe")
    assert tuned.gain.value == pytest.approx(tuned.evaluation.accuracy("embedding", "classifier") - probe)
    text = str(tuned)
    assert "a linear probe on the frozen initial encoder" in text
    assert "in pairs on the same queries" in text


def test_its_rows_stay_when_the_run_is_evaluated_again(tuned: cp.FineTuned) -> None:
    cp.evaluate(tuned.run, metrics=("linear probe",), quiet=True)
    rows = json.loads(tuned.run.folder.evaluation.read_text())["rows"]
    assert {("initial encoder", "linear probe"), ("embedding", "classifier")} <= {
        (row["features"], row["protocol"]) for row in rows
    }


@pytest.mark.thorough
def test_pictures_are_cropped_and_flipped_as_suits_them_and_no_more(tmp_path: Path) -> None:
    run = cp.train(IMAGES, labels=LABELS, out=str(tmp_path / "run"), **SMALL)
    settings = read_resolved(cp.fine_tune(run, **SMALL).run.folder)
    assert settings.views.crop_scale == (0.6, 1.0)  # of the preset for grey pictures, which are not mirrored
    assert (settings.views.flip, settings.views.affine) == (0.0, 0.0)


def test_few_labels_are_a_fixed_share_of_each_class_and_the_probe_has_the_same(first: cp.Run, tmp_path: Path) -> None:
    tuned = cp.fine_tune(first, epochs=1, quiet=True, out=str(tmp_path / "run"), **{"source.label_share": 0.1})
    assert tuned.run.folder.read_status().class_counts == (2, 2, 2)
    assert (tuned.evaluation.split.num_bank, tuned.evaluation.split.num_queries) == (6, 18)


def test_queries_of_their_own_leave_all_others_for_training(first: cp.Run, tmp_path: Path) -> None:
    tuned = cp.fine_tune(first, test_data=VECTORS[:30], test_labels=LABELS[:30], out=str(tmp_path / "run"), **SMALL)
    assert tuned.run.folder.read_status().num_train == 90
    assert (tuned.evaluation.split.num_bank, tuned.evaluation.split.num_queries) == (90, 30)


def test_a_module_of_the_callers_is_copied_and_never_changed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    tuned = cp.fine_tune(module, data=VECTORS, labels=LABELS, out=str(tmp_path / "run"), **{**SMALL, "epochs": 3})
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not torch.equal(cp.load(tuned.run).backbone.state_dict()["0.weight"], before["0.weight"])
    assert tuned.evaluation.accuracy("initial encoder", "linear probe") > 0.5


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"data": VECTORS}, "supervised"),
        ({"data": VECTORS, "labels": ["cat"] * 90}, "num_classes .*1"),
        ({"test_data": VECTORS, "test_labels": ["cow"] * 90}, "cow"),
        ({"test_data": VECTORS[:, :3], "test_labels": LABELS}, r"have the shape \(3,\), those of array \(6,\)"),
        ({"data": VECTORS[:, :3], "labels": LABELS}, r"does not fit the encoder mlp: .*; 0.weight is 256 x 6 and not"),
        ({"source.label_share": 0.0}, "source.label_share must be .*got 0"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_step(
    first: cp.Run, tmp_path: Path, asked: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CounterpointError, match=sentence) as refusal:
        cp.fine_tune(first, out=str(tmp_path / "run"), **{**SMALL, **asked})
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_several_ranks_are_told_what_to_do(first: cp.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RANK", "LOCAL_RANK", "MASTER_PORT")
    for name, value in {**dict.fromkeys(names, "0"), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CounterpointError, match="fine-tune is one process; of several ranks train --init RUN"):
        cp.fine_tune(first, **SMALL)


@pytest.mark.thorough
def test_the_command_prints_the_table_and_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", images=IMAGES, labels=LABELS)
    cp.train("data.npz", out="run", **SMALL)
    words = ["fine-tune", "run", "--epochs", "1", "--batch-size", "16", "--source.label-share", "0.5"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("run-fine-tuned\n")
    assert re.search("embedding +classifier", captured.out)
    assert "begins with the encoder of run" in captured.err
    assert main([*words, "-q"]) == 2
    assert (
        "run-fine-tuned exists; continue it with `counterpoint resume`, replace it with --overwrite"
        in capsys.readouterr().err
    )
    assert main([*words, "-q", "--overwrite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == "run-fine-tuned"


@pytest.mark.thorough
def test_the_command_takes_an_encoder_and_its_weights_as_evaluate_does(
    first: cp.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x=VECTORS, labels=LABELS)
    torch.save({"state_dict": {f"net.{k}": v for k, v in cp.load(first).backbone.state_dict().items()}}, "net.ckpt")
    words = ["fine-tune", "--encoder", "mlp", "--weights", "net.ckpt", "--data", "data.npz"]
    assert main([*words, "--epochs", "1", "--batch-size", "16", "--out", "run"]) == 0
    assert "net.ckpt: took 10 tensors under state_dict.net" in capsys.readouterr().err
    assert cp.Run(Path("run")).folder.read_status().init["name"] == "net.ckpt"
