"""Every file of a run folder says which run, and which weights, it is of: readers refuse others by name."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from folder_snapshot import snapshot

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import StaleFileError
from counterpoint.core.files import read_json, read_sealed, write_sealed
from counterpoint.core.rundir import RunFolder
from counterpoint.runs import one_run

WORDS = ["--method", "supervised", "--encoder", "mlp", "--optim.name", "sgd", "--batch-size", "16"]
WORDS += ["--engine.device", "cpu", "--engine.checkpoint-steps", "2", "-q"]
NUM_STEPS = ["--steps", "3", "--top", "1", "--batch-size", "16", "-q"]
NEWEST, OLDER = "checkpoints/step-00000006", "checkpoints/step-00000004"

# What a verb is told beside the run; they stand for all that read a file.
READERS = {
    "compare": ["compare", "RUN", "OTHER"],
    "compare another": ["compare", "EVALUATION", "OTHERS"],
    "report": ["report", "RUN", "--bare", "--out", "page.html", "-q"],
    "diagnose": ["diagnose", "RUN", "-q"],
    "fix": ["diagnose", "RUN", "--fix", "fixed.yaml", "-q"],
    "export": ["export", "RUN", "--to", "safetensors", "--out", "exported", "-q"],
    "embed": ["embed", "RUN", "--out", "table.npz", "-q"],
    "spectrum": ["spectrum", "RUN", *NUM_STEPS],
    "spectrum at 4": ["spectrum", "RUN", "--checkpoint", "4", *NUM_STEPS],
    "resume": ["resume", "RUN", "-q"],
}
ALL_READ = ("compare", "report", "diagnose", "export", "embed", "spectrum")
# Files that are put in the place of a run's own, who reads them, and what the table of runs says.
SWAPS: dict[str, tuple[Sequence[str], Sequence[str], str]] = {
    "evaluation": (["evaluation.json"], ("compare", "report", "diagnose", "export"), "damaged"),
    "another evaluation": (["evaluations/*.json"], ("compare another", "report"), "done"),
    "findings": (["findings.json"], ("report", "export"), "damaged"),
    "whole diagnosis": (["findings.json", "arrays.npz", "collection.npz"], ("report", "export"), "damaged"),
    "arrays": (["arrays.npz"], ("report",), "done"),
    "collection": (["collection.npz"], ("report",), "done"),
    "map": (["map.json"], ("report",), "done"),
    "spectrum": (["spectrum.json"], ("report",), "done"),
    "status": (["run.json"], ALL_READ, "damaged"),
    "settings": (["resolved.yaml"], (*ALL_READ, "resume"), "damaged"),
    "config": (["config.yaml"], ("report", "fix"), "done"),
    "metrics": (["metrics.jsonl"], ("report",), "done"),
    "timings": (["timings.jsonl"], ("report",), "done"),
    "classifier": (["classifier.json", "classifier.safetensors"], ("embed", "export"), "done"),
    "card": (["encoder.json"], ("embed", "export", "compare", "report"), "damaged"),
    "encoder": (["encoder.json", "encoder.safetensors"], ("embed", "export", "compare", "report"), "damaged"),
    "newest checkpoint": ([NEWEST], ("spectrum", "resume"), "done"),
    "older checkpoint": ([OLDER], ("spectrum at 4",), "done"),
}


def train(out: Path, data: Path, *, seed: int = 0, epochs: int = 2) -> Path:
    words = ["train", "--data", str(data), "--out", str(out), "--seed", str(seed), "--epochs", str(epochs), *WORDS]
    assert main(words) == 0
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that differ in the seed, each with all that verbs write, and their data."""
    folder = tmp_path_factory.mktemp("made")
    labels = np.arange(60) % 3
    for name, seed in (("own.npz", 0), ("others.npz", 1)):
        vectors = np.random.default_rng(seed).standard_normal((60, 6)) + 3 * np.eye(6)[labels]
        np.savez(folder / name, x=vectors.astype(np.float32), labels=labels)
    for name, seed in (("run", 0), ("other", 1)):
        run = str(train(folder / name, folder / "own.npz", seed=seed))
        for words in (
            ["evaluate", run, "-q"],
            ["evaluate", run, "--data", str(folder / "others.npz"), "-q"],
            ["spectrum", run, *NUM_STEPS],
            ["diagnose", run, "-q"],
            ["report", run, "-q"],
        ):
            assert main(words) == 0
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the first run, where outputs of verbs lie beside it."""
    shutil.copytree(made / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


def swap(names: Sequence[str], run: Path, other: Path) -> None:
    for pattern in names:
        for path in other.glob(pattern):
            place = run / path.relative_to(other)
            if path.is_dir():
                shutil.rmtree(place)
                shutil.copytree(path, place)
            else:
                shutil.copy(path, place)


def failed(run: Path) -> dict[str, str]:
    return {check.what: check.detail for check in cp.verify(run, quiet=True).checks if check.result == "failed"}


def put_in(words: list[str], run: Path, other: Path) -> list[str]:
    files = [str(next(folder.glob("evaluations/*.json"))) for folder in (run, other)]
    known = {"RUN": str(run), "OTHER": str(other), "EVALUATION": files[0], "OTHERS": files[1]}
    return [known.get(word, word) for word in words]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("swapped", SWAPS)
def test_a_file_of_another_run_is_refused_by_name(
    swapped: str, made: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, readers, listed = SWAPS[swapped]
    swap(names, run, made / "other")
    before = snapshot(run)
    for reader in readers:
        capsys.readouterr()
        assert main(put_in(READERS[reader], run, made / "other")) == 2, reader
        (line,) = capsys.readouterr().err.splitlines()
        # An array is known by the file that vouches for it.
        assert any(Path(name.replace("*", "")).stem in line for name in names), line
        assert str(run) in line
        assert snapshot(run) == before, reader
    assert main(["verify", str(run), "-q"]) == 1
    assert any(Path(names[0].replace("*", "")).stem in what for what in failed(run))
    capsys.readouterr()
    assert main(["runs", str(run)]) == 0
    assert listed in capsys.readouterr().out
    assert snapshot(run) == before


def test_runs_are_intact_and_known_by_what_they_compute(made: Path, run: Path, tmp_path: Path) -> None:
    assert not failed(run)
    assert not failed(made / "other")
    same = train(tmp_path / "same", made / "own.npz")
    assert RunFolder(same).run_id == RunFolder(run).run_id != RunFolder(made / "other").run_id
    for name in ("metrics.jsonl", "encoder.json"):  # the id is no chance
        assert (same / name).read_bytes() == (run / name).read_bytes()
    swap(["evaluation.json", "metrics.jsonl", NEWEST], run, same)
    assert not failed(run)


@pytest.mark.parametrize("names", [["run.json"], ["encoder.json", "encoder.safetensors"]], ids=" ".join)
def test_resuming_writes_a_foreign_record_again(names: list[str], made: Path, run: Path) -> None:
    swap(names, run, made / "other")
    assert failed(run)
    cp.resume(run, quiet=True)
    assert not failed(run)
    assert read_sealed(run / "run.json")["seed"] == 0


def test_a_result_of_earlier_weights_is_stale(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = read_sealed(run / "evaluation.json")
    write_sealed(run / "evaluation.json", {**values, "of": {**values["of"], "weights": "0" * 64}})
    with pytest.raises(StaleFileError, match=r"evaluation\.json is of other weights"):
        cp.report(run, out=run.with_name("page.html"), bare=True, quiet=True)
    assert list(failed(run)) == ["evaluation.json"]
    capsys.readouterr()
    cp.evaluate(run)
    assert "it is replaced" in capsys.readouterr().err
    assert not failed(run)


def test_a_run_of_an_earlier_version_needs_no_ids(
    made: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_run, "new_run_id", lambda *_: None)
    old = train(tmp_path / "old", made / "own.npz")
    assert RunFolder(old).run_id is None
    cp.evaluate(old, quiet=True)
    assert "of" not in read_json(old / "evaluation.json")
    assert not failed(old)
    shutil.copy(run / "evaluation.json", old / "evaluation.json")
    assert list(failed(old)) == ["evaluation.json"]
    # The other way round: a run that has an id takes no file without one.
    values = read_sealed(run / "evaluation.json")
    write_sealed(run / "evaluation.json", {name: value for name, value in values.items() if name != "of"})
    assert list(failed(run)) == ["evaluation.json"]


def test_a_run_that_is_mixed_can_be_replaced(made: Path, run: Path) -> None:
    swap(["run.json", NEWEST], run, made / "other")
    words = ["train", "--data", os.fspath(made / "own.npz"), "--out", str(run), "--overwrite", "--epochs", "1", *WORDS]
    assert main(words) == 0
    assert not failed(run)
