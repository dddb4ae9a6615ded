"""Learning on real pictures: 5,000 of CIFAR-10 (JPEG, quality 75) against the pixels and an untrained encoder.

What a README shows as its command is what runs here. Half of the pack's 10,000 test images are trained on without
their labels; the other half is classified by its nearest neighbours among them.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import counterpoint as cp
from counterpoint.evaluation.protocol import Evaluation

ROOT = Path(__file__).resolve().parents[2]
PACK = "../shared/data/cifar10-pack/test.npz"
COMMON = (
    *("--data", PACK, "--source.holdout", "0.5"),
    *("--optim.learning-rate", "4e-3", "--views.crop-scale", "[0.25, 1.0]"),
)
RESNET = ("--encoder", "resnet9-narrow", "--engine.precision", "bf16", "--epochs", "60")
CONVNET = ("--encoder", "convnet", "--epochs", "10")


@pytest.fixture(autouse=True)
def beside_the_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pictures lie beside the repository, not in it."""
    monkeypatch.chdir(ROOT)
    if not Path(PACK).exists():
        pytest.skip("shared data are absent: cifar10-pack")


def trained(folder: Path, settings: Sequence[str]) -> Evaluation:
    """Run the command and evaluate what it made."""
    command = [sys.executable, "-m", "counterpoint", "train", *COMMON, *settings, "--out", str(folder), "-q"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    evaluation = cp.evaluate(folder, quiet=True)
    assert (evaluation.split.num_bank, evaluation.split.num_queries) == (5000, 5000)
    return evaluation


def gains(evaluation: Evaluation) -> tuple[float, float]:
    """By how much kNN on the representation beats kNN on an untrained encoder's, and on the pixels."""
    learned = evaluation.accuracy("representation")
    return learned - evaluation.accuracy("untrained encoder"), learned - evaluation.accuracy("pixels (PCA)")


@pytest.mark.thorough
def test_a_few_epochs_beat_pixels_and_an_untrained_encoder_already(tmp_path: Path) -> None:
    over_untrained, over_pixels = gains(trained(tmp_path / "run", CONVNET))
    assert over_untrained >= 0.10
    assert over_pixels >= 0.03


@pytest.mark.slow
def test_learning_beats_pixels_and_an_untrained_encoder_by_ten_points(tmp_path: Path) -> None:
    over_untrained, over_pixels = gains(trained(tmp_path / "run", RESNET))
    assert over_untrained >= 0.10
    assert over_pixels >= 0.10
