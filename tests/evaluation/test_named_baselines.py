"""Encoders that the user names as baselines: what they see, what is recorded, and what is refused."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import CounterpointError
from counterpoint.core.files import read_sealed
from counterpoint.nn.encoders import build_encoder

RNG = np.random.default_rng(0)
LABELS = np.arange(120) % 3
VECTORS = (RNG.normal(size=(3, 6))[LABELS] + RNG.normal(size=(120, 6))).astype(np.float32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained")
    np.savez(path / "data.npz", x=VECTORS, labels=LABELS)
    with contextlib.chdir(path):  # its data are named as seen from there
        cp.train("data.npz", out="run", epochs=1, batch_size=32, quiet=True)
    return path


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cp.Run:
    """A run of one's own in the current folder, with its data."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return cp.Run(Path("run"))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(3)
    torch.save({"state_dict": {f"net.{k}": v for k, v in build_encoder("mlp", (6,)).state_dict().items()}}, "net.ckpt")
    return tmp_path / "net.ckpt"


def test_a_baseline_has_the_figures_of_its_own_evaluation_and_differences_in_pairs(run: cp.Run, weights: Path) -> None:
    asked: dict[str, Any] = {"metrics": ("knn",), "cache": False, "quiet": True}
    found = cp.evaluate(run, baselines=("mlp",), baseline_weights=(str(weights),), **asked)
    alone = cp.evaluate("mlp", data="data.npz", weights=str(weights), **asked)
    assert found.accuracy("mlp net") == alone.accuracy("representation")
    rows = {row["features"]: row for row in read_sealed(run.folder.evaluation)["rows"]}
    assert rows["mlp net"]["settings"]["baseline"] is True
    assert rows["mlp net"]["hits"] == alone.to_dict()["rows"][0]["hits"]
    gain = 100 * (found.accuracy("representation") - found.accuracy("mlp net"))
    assert f"representation minus mlp net, in pairs: knn {gain:+.1f} points (" in str(found)
    assert "minus" not in str(alone)


def test_several_baselines_are_named_on_the_command_line(
    run: cp.Run, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", str(run.path), "--metrics", "knn", "--baseline", "mlp", "--baseline", "mlp"]
    assert main([*words, "--baseline-weights", str(weights)]) == 0
    captured = capsys.readouterr()
    assert "mlp net: took 10 tensors under state_dict.net" in captured.err
    assert "mlp: random weights (seed 0)" in captured.err
    assert [line.split("  ")[0] for line in captured.out.splitlines() if " knn  " in line][-3:-1] == ["mlp net", "mlp"]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"baselines": ("resent18",)}, "unknown encoder 'resent18'; did you mean 'resnet18'"),
        ({"baselines": ("resnet18",)}, "takes images, but the data are vectors"),
        ({"baselines": ("mlp", "mlp")}, "baselines has the same encoder twice: mlp, mlp"),
        ({"baseline_weights": ("f.pth",)}, "baseline_weights has 1 files for 0 baselines; name an encoder for each"),
        ({"baselines": ("mlp",), "baseline_weights": ("no.pth",)}, "no weights can be read from no.pth"),
    ],
)
def test_what_is_no_baseline_is_refused_and_nothing_is_written(
    run: cp.Run, asked: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CounterpointError, match=sentence):
        cp.evaluate(run, quiet=True, **asked)
    assert not run.folder.evaluation.exists()


def test_features_have_no_samples_for_a_baseline() -> None:
    with pytest.raises(CounterpointError, match="baselines encode samples, and features are all there is here"):
        cp.evaluate(VECTORS, labels=LABELS, baselines=("mlp",), quiet=True)


@pytest.mark.thorough
def test_images_are_brought_to_the_size_that_weights_are_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    timm = pytest.importorskip("timm", reason="timm is not installed (extra `vision`)")
    monkeypatch.chdir(tmp_path)
    torch.save(timm.create_model("resnet10t").state_dict(), "w.pth")
    images = RNG.integers(0, 256, (60, 8, 8), dtype=np.uint8)
    run = cp.train(images, labels=LABELS[:60], out="run", epochs=1, batch_size=16, quiet=True)
    asked: dict[str, Any] = {"baselines": ("timm:resnet10t",), "baseline_weights": ("w.pth",)}
    found = cp.evaluate(run, metrics=("knn",), k=5, cache=False, **asked)
    said = capsys.readouterr().err
    assert "timm:resnet10t w: images of 8 px are brought to 176 px" in said
    assert "timm:resnet10t w: grey images as three equal channels" in said
    assert 0 <= found.accuracy("timm:resnet10t w") <= 1
