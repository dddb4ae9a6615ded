"""What the newest checkpoint of a run makes of a small sample, computed beside the run and without touching it."""

import base64
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from folder_snapshot import snapshot

import counterpoint as cp
from counterpoint.core.markup import printable
from counterpoint.diagnostics.findings import Findings
from counterpoint.report.live.live_sampling import Sampler
from counterpoint.runs.live_sample import answer


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on 120 vectors of 3 classes, from files."""
    folder = tmp_path_factory.mktemp("live")
    generator = np.random.default_rng(0)
    labels = np.arange(120) % 3
    vectors = 5 * np.eye(3, 6)[labels] + generator.normal(0, 0.3, (120, 6))
    np.savez(folder / "vectors.npz", x=vectors.astype(np.float32), y=labels)
    found = cp.train(str(folder / "vectors.npz"), out=folder / "run", epochs=2, quiet=True)
    return found.path


def test_it_is_of_the_newest_checkpoint_and_leaves_the_folder_alone(run: Path) -> None:
    before = snapshot(run)
    found = json.loads(json.dumps(answer(run, {})))
    assert snapshot(run) == before
    assert (found["epoch"], found["num_samples"]) == (2, 120)
    assert found["step"] == max(int(path.name.removeprefix("step-")) for path in run.glob("checkpoints/step-*"))
    places = Findings.model_validate(found["findings"]).places
    assert set(places) == {"representation", "embedding"}
    with np.load(io.BytesIO(base64.b64decode(found["arrays"]))) as arrays:
        assert len(arrays["spectrum/representation"]) == places["representation"].num_dims


def test_its_features_are_those_that_users_load(run: Path) -> None:
    # With as few samples all are looked at: the figures are those of `cp.load` on the same samples.
    found = answer(run, {})
    with np.load(run.parent / "vectors.npz") as data:
        representation = cp.load(run).represent(data["x"])
    rank = found["findings"]["places"]["representation"]["effective_rank"]
    assert rank == pytest.approx(cp.diagnose(representation).places["embedding"].effective_rank, rel=1e-4)
    assert found["knn"] > 0.9  # three far blobs


def test_data_are_opened_once(run: Path) -> None:
    known = {}
    answer(run, known)
    first = known[run]
    answer(run, known)
    assert known[run] is first


def test_why_there_is_nothing(tmp_path: Path, run: Path) -> None:
    assert answer(tmp_path, {})["why"] == "no checkpoint was saved yet"
    array = cp.train(np.random.default_rng(0).normal(size=(20, 4)), out=tmp_path / "run", epochs=1, quiet=True)
    assert "an array in memory" in answer(array.path, {})["why"]


@pytest.mark.thorough
def test_the_process_answers_line_by_line_and_ends_with_its_input(run: Path, tmp_path: Path) -> None:
    asked = f"{json.dumps(str(run))}\n{json.dumps(str(tmp_path))}\n"
    command = [sys.executable, "-m", "counterpoint.runs.live_sample"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["epoch"] == 2
    assert second["why"] == "no checkpoint was saved yet"


def test_the_server_takes_an_answer_and_keeps_the_curve(run: Path) -> None:
    sampler, told = Sampler(), answer(run, {})
    sampler._take(run, {**told, "epoch": 1, "knn": 0.5})
    sampler._take(run, told)
    assert dict(sampler.found[run].knn) == {1: 0.5, 2: told["knn"]}
    # Resumed from an earlier checkpoint: epochs that are taken again are forgotten.
    sampler._take(run, {**told, "epoch": 1, "knn": 0.25})
    assert dict(sampler.found[run].knn) == {1: 0.25}
    sampler._take(run, {"run": str(run), "why": f"cannot read {run}/x"})
    assert sampler.why[run] == printable(f"cannot read {run}/x")
    assert str(run.parent) not in sampler.why[run]
