"""Training with a loss of one's own: an object in Python, a function's name on the command line."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lightly.loss import NTXentLoss
from torch import nn

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import UsageError
from counterpoint.core.validation import read_yaml_mapping

SMALL = {"epochs": 2, "batch_size": 16, "encoder": "mlp", "quiet": True}
SOURCE = """
import torch
from counterpoint.losses import PairLoss

def make(power=1.0):
    return PairLoss(lambda x: x ** power, torch.exp)
"""


def samples() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(64, 12)).astype("float32")


def losses_of(run: cp.Run) -> list[float]:
    return [line["loss"] for line in run.metrics]


def test_a_module_of_a_peer_trains_as_our_loss_does(tmp_path: Path) -> None:
    ours = cp.train(
        samples(), loss={"name": "infonce", "epsilon": 1.0}, temperature=0.2, out=tmp_path / "ours", **SMALL
    )
    theirs = cp.train(samples(), loss=NTXentLoss(temperature=0.2), out=tmp_path / "theirs", **SMALL)
    assert losses_of(theirs) == pytest.approx(losses_of(ours), rel=1e-5)
    assert read_yaml_mapping(theirs.folder.resolved)["loss"]["name"] == "custom"


def test_a_copy_is_trained(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(2.0))

        def forward(self, z0: torch.Tensor, z1: torch.Tensor) -> torch.Tensor:
            return (self.scale * (z0 - z1)).square().mean() + self.scale.square()

    own = Scaled()
    cp.train(samples(), loss=own, out=tmp_path / "run", **SMALL)
    assert float(own.scale.detach()) == 2.0


def test_resuming_needs_it_again(tmp_path: Path) -> None:
    own = cp.losses.PairLoss(torch.sqrt, torch.exp)
    run = cp.train(samples(), loss=own, out=tmp_path / "run", **SMALL)
    run.folder.update_status(status="interrupted")
    with pytest.raises(UsageError, match="this run was trained with a loss of your own; pass it as loss="):
        cp.resume(cp.Run(run.path, data=samples()), quiet=True)
    again = cp.resume(cp.Run(run.path, data=samples(), loss=own), quiet=True)
    assert losses_of(again) == losses_of(run)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (3, "loss must be a loss of counterpoint.losses"),
        (nn.Linear(12, 3), "loss.name custom"),
        ({"name": "custom"}, "pass it as loss="),
    ],
)
def test_what_is_no_loss_is_refused_before_training(loss: object, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        cp.train(samples(), loss=loss, out=tmp_path / "run", **SMALL)  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "run").exists()


def test_a_setting_that_it_does_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="temperature has no effect"):
        cp.train(samples(), loss=cp.losses.InfoNCE(), temperature=0.3, out=tmp_path / "run", **SMALL)


# --- on the command line


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_losses.py").write_text(SOURCE, encoding="utf-8")
    np.save(tmp_path / "samples.npy", samples())
    monkeypatch.delitem(sys.modules, "my_losses", raising=False)
    return tmp_path


WORDS = "train --data samples.npy --epochs 2 --batch-size 16 --encoder mlp --out run -q"


def test_a_named_function_makes_it_and_nothing_but_the_command_names_it(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [*WORDS.split(), "--loss.name", "my_losses:make", "--loss.options", "{power: 0.5}"]
    assert main(named) == 0
    sha256 = hashlib.sha256(SOURCE.encode()).hexdigest()
    status = json.loads((workplace / "run" / "run.json").read_text(encoding="utf-8"))
    assert status["own_loss"] == {"name": "my_losses:make", "sha256": sha256}
    assert "my_losses" not in (workplace / "run" / "resolved.yaml").read_text(encoding="utf-8")
    (workplace / "my_losses.py").unlink()
    for words in ("diagnose run -q", "embed run --out rows.npz -q", "verify run"):
        assert main(words.split()) == 0, words
    assert "Traceback" not in capsys.readouterr().err
