"""Each verb from words to results: what is printed where, and with which exit code."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.derived_files import read_derived
from counterpoint.core.files import read_sealed
from counterpoint.diagnostics.findings import CATALOGUE as CHECKS
from counterpoint.losses import CATALOGUE as LOSSES
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.methods.joint import JointEmbedding
from counterpoint.nn.encoders import CATALOGUE as ENCODERS
from counterpoint.nn.foreign import LIBRARIES
from counterpoint.runs.run_table import list_runs

TRAIN = ["train", "--data", "images.npz", "--epochs", "1", "--batch-size", "16"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a few labelled images."""
    images = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", images=images, labels=np.arange(60) % 3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> cp.Run:
    return cp.train("images.npz", out="run", epochs=1, batch_size=16, quiet=True)


def test_train_prints_the_run_folder_last_and_progress_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()  # an empty folder is nobody's
    assert main([*TRAIN, "--out", "run", "--method", "ncl", "--seed", "4"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "run\n"
    assert "30 negatives" in captured.err
    status = cp.Run(Path("run")).folder.read_status()
    assert (status.method, status.seed, status.status) == ("ncl", 4, "finished")


def test_train_ends_with_the_sentence_that_diagnose_and_runs_begin_with(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--out", "run"]) == 0
    said = capsys.readouterr().err.splitlines()[-1]
    assert "chance 33.3%" in said
    assert cp.diagnose("run", quiet=True).verdict == list_runs(Path("run")).lines[0].verdict == said
    Path("run/encoder.safetensors").unlink()
    assert main(["resume", "run", "--no-diagnosis"]) == 0
    assert "chance 33.3%" not in capsys.readouterr().err


def test_train_prints_json_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--out", "run", "--json", "-q"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"path": "run", "runs": [{"run": "run", "verdict": cp.diagnose("run", quiet=True).verdict}]}


def test_a_run_of_each_seed_gets_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--out", "run", "--seeds", "2"]) == 0
    said = capsys.readouterr().err.splitlines()[-2:]
    assert [line.split(":")[0] for line in said] == ["seed-0", "seed-1"]


def test_without_out_a_run_is_named_after_data_and_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "-q"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("runs/images-simclr\n", "")


def test_the_python_call_and_the_command_give_the_same_bits(run: cp.Run) -> None:
    assert main([*TRAIN, "--out", "again", "-q"]) == 0
    assert cp.Run(Path("again")).folder.weights.read_bytes() == run.folder.weights.read_bytes()


def test_a_config_file_with_flags_above_it(folder: Path) -> None:
    (folder / "run.yaml").write_text("data: images.npz\nout: run\nepochs: 7\nbatch_size: 16\noptim:\n  name: sgd\n")
    assert main(["train", "--config", "run.yaml", "--epochs", "1", "-q"]) == 0
    run = cp.Run(Path("run"))
    assert len(run.metrics) == 1
    assert "name: sgd" in run.folder.config.read_text()
    assert main(["preview", "--config", "run.yaml", "-q"]) == 0  # its out is the run's, not the sheet's
    assert (folder / "preview.png").exists()
    assert len(cp.Run(Path("run")).metrics) == 1


def test_overwrite_and_resume(run: cp.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--out", "run", "--overwrite", "--seed", "7", "-q"]) == 0
    assert run.folder.read_status().seed == 7
    assert main([*TRAIN, "--out", "run", "--resume"]) == 0
    assert main(["resume", "run"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "run\n" * 3
    assert captured.err.count("nothing to resume") == 2
    assert main(["resume", "run", "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_evaluate_prints_a_table_or_json(run: cp.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "run", "--k", "3", "-q"]) == 0
    table = capsys.readouterr().out
    for name in ("representation", "embedding", "untrained encoder", "pixels (PCA)", "knn", "linear probe", "95 %"):
        assert name in table
    assert main(["evaluate", "run", "--k", "3", "--json", "-q"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values == read_derived(run.folder, run.folder.evaluation)
    assert {row["settings"]["k"] for row in values["rows"] if row["protocol"] == "knn"} == {3}


def test_evaluate_writes_a_record_elsewhere(run: cp.Run) -> None:
    assert main(["evaluate", "run", "--metrics", "knn", "--k", "3", "-q", "--out", "a.json"]) == 0
    assert {row["metric"] if "metric" in row else row["protocol"] for row in read_sealed(Path("a.json"))["rows"]} == {
        "knn"
    }
    assert not run.folder.evaluation.exists()


def test_as_many_bad_pictures_may_be_left_out_as_the_error_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("0", "1"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(30):
            pixels = np.full((8, 8), 100 * int(name) + number, np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    (tmp_path / "photos" / "0" / "broken.png").write_bytes(b"no picture")
    asked = ["evaluate", "--encoder", "convnet", "--data", "photos", "--metrics", "knn", "--k", "3", "-q"]
    assert main(asked) == 2
    allowed = capsys.readouterr().err.rpartition("allow them with ")[2].split()
    assert main([*asked, *allowed]) == 0
    assert "photos: 12 queries, 48 labelled samples, 2 classes" in capsys.readouterr().out


def test_diagnose_a_run_or_features(run: cp.Run, capsys: pytest.CaptureFixture[str], rng: np.random.Generator) -> None:
    assert main(["diagnose", "run", "-q"]) == 0
    assert capsys.readouterr().out
    assert run.folder.findings.exists()
    assert run.folder.arrays.exists()
    assert main(["diagnose", "run", "-q", "--pairs"]) == 0
    assert re.search(r"pairs: an anchor weighs .* negatives .*\n  closest pairs", capsys.readouterr().out)
    np.save("features.npy", rng.normal(size=(50, 8)))
    assert main(["diagnose", "features.npy", "-q", "--pairs"]) == 0
    assert "pairs: not measured" in capsys.readouterr().out
    np.save("labels.npy", np.arange(50) % 2)
    assert main(["diagnose", "features.npy", "--labels", "labels.npy", "--views", "features.npy", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["places"]["embedding"]["alignment"] == pytest.approx(0.0, abs=1e-9)
    Path("labels.csv").write_text("file,label\n" + "".join(f"{row},{row % 2}\n" for row in range(50)))
    assert main(["diagnose", "features.npy", "--labels", "labels.csv", "--views", "features.npy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == values


def test_fail_on_makes_a_collapse_fail_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("collapsed.npy", np.ones((300, 8)))
    assert main(["diagnose", "collapsed.npy", "-q"]) == 0
    for level in ("note", "warning", "severe"):
        assert main(["diagnose", "collapsed.npy", "--fail-on", level, "-q"]) == 3
    assert "severe" in capsys.readouterr().out


def test_embed_prints_the_file(run: cp.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", "run", "--out", "table.npz", "--layer", "embedding", "-q"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("table.npz\n", "")
    with np.load("table.npz") as arrays:
        assert arrays["vectors"].shape == (60, 128)
        assert arrays["labels"].tolist() == [str(i % 3) for i in range(60)]
    assert main(["embed", "run", "images.npz", "--out", "table.npz", "--overwrite", "-q"]) == 0
    with np.load("table.npz") as arrays:
        assert arrays["vectors"].shape == (60, 256)


def test_report_prints_the_file(run: cp.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "run", "--bare", "-q"]) == 0
    assert not run.folder.evaluation.exists()
    assert capsys.readouterr().out == "run/report.html\n"
    assert main(["report", "run", "-q"]) == 0
    assert run.folder.evaluation.exists()
    (line,) = capsys.readouterr().out.splitlines()
    assert Path(line) == Path("run/report.html")
    assert Path(line).read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_preview_prints_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preview", "--data", "images.npz", "--samples", "2", "--columns", "3", "--views.flip", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "preview.png\n"
    assert "preset digits" in captured.err
    assert [path.name for path in folder.iterdir() if path.suffix == ".png"] == ["preview.png"]


def test_list_names_everything_that_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    everything = capsys.readouterr().out
    libraries = (f"{prefix}NAME" for prefix in LIBRARIES)
    for name in (*METHODS, *ENCODERS, *LOSSES, *CHECKS, *libraries, "package.module:name", "small-images"):
        assert f"\n  {name} " in everything
    assert main(["list", "methods"]) == 0
    methods = capsys.readouterr().out
    assert methods in everything
    assert "convnet" not in methods


@pytest.mark.thorough
def test_the_demo_ends_with_the_sentence_of_its_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", "demo", "--epochs", "1", "-q"]) == 0
    said = capsys.readouterr().out
    assert "\npatterns-rendered: 800 queries" in said
    page, verdict = said.splitlines()[-2:]
    assert page == "The page: demo/report.html"
    assert re.search(r"kNN \([\d.]+% .* chance 12.5%", verdict)
    line = list_runs(Path("demo")).lines[0]
    assert (line.verdict, line.data) == (verdict, "patterns-rendered")
    assert "patterns-rendered" in Path("demo/report.html").read_text(encoding="utf-8")


def test_a_failed_run_leaves_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--out", "run", "--optim.learning-rate", "1e30", "-q"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("counterpoint train: error: the loss is nan at step")
    assert "try a lower --optim.learning-rate" in captured.err
    assert captured.err.count("\n") == 1


def test_sigterm_saves_says_how_to_go_on_and_leaves_with_the_code_of_the_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = JointEmbedding.forward

    def forward(self: JointEmbedding, *views: Any) -> Tensor:
        signal.raise_signal(signal.SIGTERM)
        return original(self, *views)

    with monkeypatch.context() as patch:
        patch.setattr(JointEmbedding, "forward", forward)
        assert main([*TRAIN, "--out", "run", "-q"]) == 143
    expected = "counterpoint train: stopped and saved at step 1 of 3; continue with: counterpoint resume run\n"
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", expected)
    assert main(["resume", "run", "-q"]) == 0
    assert cp.Run(Path("run")).folder.read_status().status == "finished"


# --- several seeds


SEEDS = ["--encoder", "convnet", "--projector.features", "8", "--projector.hidden", "8"]


@pytest.mark.thorough
def test_seeds_are_trained_gone_on_with_and_evaluated_together(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TRAIN, "--out", "seeds", "--seeds", "2", "--seed", "1", *SEEDS]) == 0
    captured = capsys.readouterr()
    assert captured.out == "seeds\n"
    assert "seed 1, 1 of 2\n" in captured.err
    assert "seed 2, 2 of 2\n" in captured.err
    assert main(["resume", "seeds", "-q"]) == 0
    assert capsys.readouterr().out == "seeds\n"
    assert main(["evaluate", "seeds", "--metrics", "knn", "--k", "3", "-q"]) == 0
    table = capsys.readouterr().out
    assert "seeds 1, 2, on images.npz: 12 queries" in table
    assert max(map(len, table.splitlines()[1:])) <= 100
    assert main(["evaluate", "seeds", "--metrics", "knn", "--k", "3", "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    kept = read_sealed(folder / "seeds" / "evaluation.json")
    assert told == kept
    assert [len(row["values"]) for row in told["rows"]] == [2] * len(told["rows"])
    assert main(["compare", "seeds", "-q"]) == 0
    assert "seed-1" in capsys.readouterr().out
