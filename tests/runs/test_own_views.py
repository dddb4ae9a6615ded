"""Training with views of one's own: a function in Python, what makes it by name on the command line."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.errors import UsageError
from counterpoint.core.validation import read_yaml_mapping
from counterpoint.data.views.own_views import Draws, OwnViews

SMALL = {"epochs": 2, "batch_size": 16, "quiet": True}
SOURCE = """
def make():
    def shifted(samples, draws):
        return samples + 0.1 * draws.normal(1).reshape(-1, *[1] * (samples.ndim - 1))
    return shifted
"""


def shifted(samples: Tensor, draws: Draws) -> Tensor:
    return samples + 0.1 * draws.normal(1).reshape(-1, *[1] * (samples.ndim - 1))


def dimmed(samples: Tensor, draws: Draws) -> Tensor:
    """Only the second view is changed, by a transform that uses torch's generator."""
    if draws.view == 0:
        return samples
    factors = []
    for seed in draws.seeds():
        torch.manual_seed(seed)
        factors.append(torch.rand(()))
    return samples * torch.stack(factors).reshape(-1, *[1] * (samples.ndim - 1))


def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (96, 8, 8, 3), dtype=np.uint8)


def train(out: Path, views: Any = shifted, **settings: Any) -> cp.Run:
    return cp.train(images(), views=views, out=out, **{**SMALL, **settings})


def weights_of(run: cp.Run) -> bytes:
    return run.folder.weights.read_bytes()


# --- the function


@pytest.mark.parametrize("view", [0, 1])
@pytest.mark.parametrize("views", [shifted, dimmed])
def test_a_view_follows_from_seed_epoch_sample_and_view_alone(views: Any, view: int) -> None:
    samples, own = torch.rand(6, 3, 8, 8), OwnViews(views)

    def drawn(rows: list[int], *, seed: int = 3, epoch: int = 5) -> Tensor:
        ids = torch.tensor(rows)
        return own.draw(samples[ids], Draws(seed, epoch, ids, view))

    together = drawn([0, 1, 2, 3, 4, 5])
    torch.rand(7)
    assert torch.equal(drawn([4, 1]), together[[4, 1]])
    if view == 1:
        assert not torch.equal(drawn([0], epoch=6), together[:1])
        assert not torch.equal(drawn([0], seed=4), together[:1])


def test_the_two_views_have_draws_of_their_own() -> None:
    ids = torch.arange(500)
    first, second = (Draws(0, 0, ids, view).normal(1)[:, 0] for view in (0, 1))
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 5 / 500**0.5


def test_a_function_that_seeds_leaves_the_caller_s_random_numbers_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    OwnViews(dimmed).draw(torch.rand(2, 4), Draws(0, 0, torch.arange(2), 1))
    torch.manual_seed(0)
    OwnViews(dimmed).draw(torch.ones(2, 4), Draws(0, 0, torch.arange(2), 1))
    assert torch.equal(torch.rand(3), expected)


def test_the_samples_stay_as_they_are() -> None:
    samples = torch.rand(2, 4)
    before = samples.clone()
    OwnViews(lambda given, draws: given.zero_()).draw(samples, Draws(0, 0, torch.arange(2), 0))
    assert torch.equal(samples, before)


# --- what is refused, in one line


REFUSED = {
    "no function": (3, "views must be settings such as {'preset': 'photos'}, or a function"),
    "no tensor": (lambda samples, draws: [samples, samples], "must return a tensor for one view, got list"),
    "two views": (lambda samples, draws: torch.cat([samples, samples]), r"of the samples' shape \(4, 3, 8, 8\)"),
    "another size": (lambda samples, draws: samples[:, :, :4], r"got torch.float32 of shape \(4, 3, 4, 8\)"),
    "another dtype": (lambda samples, draws: samples.double(), "must return float32"),
    "no numbers": (lambda samples, draws: samples / 0 * 0, "must return finite numbers, got NaN"),
    "an error": (lambda samples, draws: samples.nosuch, "AttributeError: 'Tensor' object has no attribute 'nosuch'"),
    "other arguments": (lambda samples: samples, "takes 1 positional argument but 2 were given"),
    "its own dice": (lambda samples, draws: samples * torch.rand(len(samples), 1, 1, 1), "or from call to call"),
    "one for all": (lambda samples, draws: samples * torch.rand(()), "take random numbers from draws.uniform"),
    "neighbours": (lambda samples, draws: samples - samples.mean(dim=0), "with the samples beside it"),
}


@pytest.mark.parametrize(("views", "words"), REFUSED.values(), ids=REFUSED)
def test_what_gives_no_views_is_refused_before_training(views: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        train(tmp_path / "run", views)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_settings_of_presets_are_refused_beside_them(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"views.flip has no effect .*: views of your own take their numbers where you"
    ):
        cp.train(images(), views={"preset": "custom", "flip": 0.1}, out=tmp_path / "run", **SMALL)
    with pytest.raises(UsageError, match="this run was trained with views of your own; pass them as views="):
        cp.train(images(), views={"preset": "custom"}, out=tmp_path / "run", **SMALL)


# --- a run


def test_a_run_is_the_same_bits_again_and_another_with_other_views(tmp_path: Path) -> None:
    first, again, other = train(tmp_path / "a"), train(tmp_path / "b"), train(tmp_path / "c", dimmed)
    assert weights_of(first) == weights_of(again) != weights_of(other)
    assert read_yaml_mapping(first.folder.resolved)["views"] == {"preset": "custom"}


def test_vectors_have_views_of_their_own_too(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).normal(size=(48, 12)).astype("float32")
    run = cp.train(samples, views=shifted, encoder="mlp", out=tmp_path / "run", **SMALL)
    assert len(run.metrics) == 2


def test_resume_verify_and_diagnose_need_them_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path / "run", epochs=3, engine={"checkpoint_every": 1})
    whole = weights_of(run)
    run.folder.update_status(status="interrupted")
    newest = sorted((run.path / "checkpoints").glob("step-*"))[-1]
    newest.rename(tmp_path / "taken")
    with pytest.raises(UsageError, match="trained with views of your own; pass them as views="):
        cp.resume(cp.Run(run.path, data=images()), quiet=True)
    known = cp.Run(run.path, data=images(), views=shifted)
    assert weights_of(cp.resume(known, quiet=True)) == whole
    replayed = {check.what.split()[0]: check for check in cp.verify(known, quiet=True).checks}["replayed"]
    assert replayed.result == "ok"
    without = {check.what: check for check in cp.verify(cp.Run(run.path, data=images()), quiet=True).checks}
    assert "views of your own" in without["data"].detail
    seen, unseen = (
        cp.diagnose(cp.Run(run.path, data=images(), views=views)).to_dict()["places"]["embedding"]["alignment"]
        for views in (shifted, None)
    )
    assert seen is not None
    assert unseen is None
    assert "no alignment is measured" in capsys.readouterr().err


# --- on the command line


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_views.py").write_text(SOURCE, encoding="utf-8")
    np.savez(tmp_path / "samples.npz", images=images(), labels=np.arange(96) % 4)
    monkeypatch.delitem(sys.modules, "my_views", raising=False)
    return tmp_path


WORDS = "train --data samples.npz --epochs 2 --batch-size 16 --out run -q"


def test_a_named_function_makes_them_and_nothing_but_the_command_names_it(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [*WORDS.split(), "--views.preset", "my_views:make"]
    assert main(named) == 0
    sha256 = hashlib.sha256(SOURCE.encode()).hexdigest()
    status = json.loads((workplace / "run" / "run.json").read_text(encoding="utf-8"))
    assert status["own_views"] == {"name": "my_views:make", "sha256": sha256}
    assert "my_views" not in (workplace / "run" / "resolved.yaml").read_text(encoding="utf-8")
    in_python = cp.train("samples.npz", views=shifted, out="python", **SMALL)
    assert weights_of(in_python) == weights_of(cp.Run(workplace / "run"))
    assert main([*named, "--resume"]) == 0
    (workplace / "my_views.py").unlink()
    for words in ("evaluate run -q", "diagnose run -q", "embed run --out rows.npz -q", "verify run", "report run -q"):
        assert main(words.split()) == 0, words
    assert "Traceback" not in capsys.readouterr().err


def test_preview_draws_them(workplace: Path) -> None:
    words = ["preview", "--data", "samples.npz", "--views.preset", "my_views:make"]
    assert main([*words, "--out", "named.png", "-q"]) == 0
    cp.preview("samples.npz", views=shifted, out=workplace / "given.png", quiet=True)
    cp.preview("samples.npz", views={"preset": "none"}, out=workplace / "none.png", quiet=True)
    sheets = [(workplace / f"{name}.png").read_bytes() for name in ("named", "given", "none")]
    assert sheets[0] == sheets[1] != sheets[2]
