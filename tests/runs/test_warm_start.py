"""Training that begins with weights: which parts take them, what is recorded, and what goes on without the file."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import counterpoint as cp
from counterpoint.core.errors import CounterpointError, RunError, UsageError
from counterpoint.engine.checkpoint import list_checkpoints
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.nn.encoders import build_encoder
from foreign_files import bomb, filled, prefixed, with_company

SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 16, "quiet": True, "engine": {"keep": 99}}
VECTORS = np.random.default_rng(0).normal(size=(48, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """A run that others begin with."""
    return cp.train(VECTORS, out=str(tmp_path_factory.mktemp("first") / "run"), seed=3, **SMALL)


def begun(out: Path, init: Path | str, data: Any = VECTORS, **settings: Any) -> cp.Run:
    return cp.train(data, out=str(out), init=str(init), **{**SMALL, **settings})


def at_step_0(run: cp.Run) -> dict[str, torch.Tensor]:
    return load_file(run.folder.checkpoints / "step-00000000" / "model.safetensors")


def parts_of(run: cp.Run) -> list[str]:
    return run.folder.read_status().init["parts"]


def test_encoder_and_projector_begin_with_the_weights_of_a_run(tmp_path: Path, first: cp.Run) -> None:
    run, own = begun(tmp_path / "run", first.path), load_file(first.folder.weights)
    start = at_step_0(run)
    assert all(torch.equal(start[name], value) for name, value in own.items())
    assert parts_of(run) == ["backbone", "projector"]
    assert run.folder.read_status().init["name"] == "run"  # no path of this machine
    assert read_resolved(run.folder).init == str(first.path)


def test_a_projector_of_another_shape_begins_anew(tmp_path: Path, first: cp.Run) -> None:
    run = begun(tmp_path / "run", first.path, projector={"features": 7})
    assert parts_of(run) == ["backbone"]


def test_input_is_prepared_as_the_weights_know_it(tmp_path: Path, first: cp.Run) -> None:
    run = begun(tmp_path / "run", first.path, 3 * VECTORS + 1)
    assert cp.load(run).card.mean == pytest.approx(cp.load(first).card.mean)


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_file_of_a_run_or_of_the_encoder_alone(tmp_path: Path, first: cp.Run, is_plain: bool) -> None:
    path = first.folder.weights
    if is_plain:
        path = tmp_path / "plain.safetensors"
        save_file(cp.load(first).backbone.state_dict(), path)
    run, own = begun(tmp_path / "run", path), load_file(first.folder.weights)
    start = at_step_0(run)
    assert all(torch.equal(start[name], value) for name, value in own.items() if name.startswith("backbone."))
    assert parts_of(run) == (["backbone"] if is_plain else ["backbone", "projector"])


@pytest.mark.thorough
def test_the_encoder_is_that_of_the_run_unless_named(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (32, 8, 8), dtype=np.uint8)
    narrow = cp.train(images, encoder="resnet9-narrow", out=tmp_path / "narrow", **{**SMALL, "epochs": 1})
    run = begun(tmp_path / "run", narrow.path, images, epochs=1)
    assert read_resolved(run.folder).encoder == "resnet9-narrow"
    assert "encoder: as narrow has it" in run.folder.resolved.read_text()
    with pytest.raises(UsageError, match=r"narrow does not fit the encoder convnet: it has \d+ of the encoder's 20"):
        begun(tmp_path / "other", narrow.path, images, encoder="convnet")
    assert not (tmp_path / "other").exists()


# --- weights of other programs


@pytest.fixture
def framework_file(tmp_path: Path, first: cp.Run) -> Path:
    """The encoder of a run as another program saves it: a checkpoint with a prefix, a head and an optimiser."""
    path = tmp_path / "moco.pth.tar"
    weights = prefixed("module.encoder_q.", {**cp.load(first).backbone.state_dict(), "fc.weight": torch.ones(2, 256)})
    torch.save(with_company(weights), path)
    return path


@pytest.mark.parametrize("is_own", [False, True], ids=["of the catalogue", "own module"])
def test_a_checkpoint_of_any_framework_begins_an_encoder(
    tmp_path: Path, first: cp.Run, framework_file: Path, is_own: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"encoder": build_encoder("mlp", (5,))} if is_own else {}
    run = begun(tmp_path / "run", framework_file, 3 * VECTORS + 1, **own, quiet=False)
    start = at_step_0(run)
    assert all(torch.equal(start[f"backbone.{name}"], value) for name, value in encoder_of(first).items())
    init = run.folder.read_status().init
    assert (init["parts"], init["name"]) == (["backbone"], "moco.pth.tar")
    assert init["remarks"] == [
        "took 10 tensors under state_dict.module.encoder_q",
        "left aside: scale, state_dict.module.encoder_q.fc.weight",
    ]
    assert all(f"moco.pth.tar: {remark}\n" in capsys.readouterr().err for remark in init["remarks"][:1])
    # Nothing says how their input was prepared: it is as the samples are.
    assert cp.load(cp.Run(run.path, **own)).card.mean == pytest.approx((3 * VECTORS + 1)[:38].mean(axis=0), abs=0.5)


def encoder_of(run: cp.Run) -> dict[str, torch.Tensor]:
    return cp.load(run).backbone.state_dict()


@pytest.mark.thorough
def test_weights_choose_the_input_of_an_encoder(tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed (extra `vision`)")
    theirs = filled(torchvision.models.resnet18())
    torch.save(with_company(prefixed("module.encoder_q.", theirs.state_dict())), tmp_path / "moco.pth.tar")
    images = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    run = begun(tmp_path / "run", tmp_path / "moco.pth.tar", images, encoder="timm:resnet18", epochs=1, batch_size=8)
    assert cp.load(run).card.mean == pytest.approx((0.485, 0.456, 0.406))
    # Every layer is theirs, whatever its name.
    own = [value.sum() for value in at_step_0(run).values() if value.ndim == 4]
    assert torch.equal(torch.stack(own).sort()[0], stacked(theirs.state_dict()).sort()[0])


def stacked(state: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.stack([value.sum() for value in state.values() if value.ndim == 4])


def stopped(run: cp.Run, out: Path, *, num_checkpoints: int) -> cp.Run:
    """A copy of a run as a kill after some checkpoints leaves it."""
    shutil.copytree(run.path, out)
    killed = cp.Run(out, data=VECTORS)
    for path in list_checkpoints(killed.folder.checkpoints)[: -num_checkpoints or None]:
        shutil.rmtree(path)
    for path in (killed.folder.encoder_card, killed.folder.weights):
        path.unlink()
    if not num_checkpoints:
        killed.folder.metrics.unlink()
        killed.folder.timings.unlink()
    killed.folder.update_status(status="interrupted", num_epochs=None)
    return killed


@pytest.mark.thorough
def test_resuming_and_verifying_need_the_weights_no_more(tmp_path: Path, first: cp.Run) -> None:
    origin = Path(shutil.copytree(first.path, tmp_path / "origin"))
    run = begun(tmp_path / "run", origin)
    killed = stopped(run, tmp_path / "killed", num_checkpoints=2)
    shutil.rmtree(origin)
    assert cp.verify(cp.Run(run.path, data=VECTORS), quiet=True).is_intact
    assert cp.resume(killed, quiet=True).folder.weights.read_bytes() == run.folder.weights.read_bytes()
    assert cp.load(killed).card == cp.load(run).card


@pytest.mark.thorough
def test_a_damaged_record_is_written_again_with_the_weights_it_began_with(tmp_path: Path, first: cp.Run) -> None:
    run = begun(tmp_path / "run", first.path)
    killed = stopped(run, tmp_path / "killed", num_checkpoints=2)
    killed.folder.status.write_text("{}")
    cp.resume(killed, quiet=True)
    assert killed.folder.read_status().init == run.folder.read_status().init


@pytest.mark.thorough
def test_before_the_first_checkpoint_the_same_weights_are_needed(tmp_path: Path, first: cp.Run) -> None:
    origin = Path(shutil.copytree(first.path, tmp_path / "origin"))
    run = begun(tmp_path / "run", origin)
    killed = stopped(run, tmp_path / "killed", num_checkpoints=0)
    other = cp.train(VECTORS, out=str(tmp_path / "other"), seed=4, **SMALL)
    shutil.move(origin, tmp_path / "away")
    with pytest.raises(CounterpointError, match="origin"):
        cp.resume(killed, quiet=True)
    shutil.move(other.path, origin)
    with pytest.raises(RunError, match=r"changed since .* began, and no checkpoint was saved yet; put it back"):
        cp.resume(killed, quiet=True)
    shutil.rmtree(origin)
    shutil.move(tmp_path / "away", origin)
    assert cp.resume(killed, quiet=True).folder.weights.read_bytes() == run.folder.weights.read_bytes()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"init": "nowhere"}, "init nowhere does not exist; give a run folder, or a file of weights"),
        ({"init": "notes.md"}, r"notes\.md"),
        ({"init": "broken.safetensors"}, r"broken\.safetensors"),
        ({"init": "call.pth"}, r"call\.pth asks to call posix\.system"),
        ({"init": "empty"}, "empty"),
        ({"init": "wide.safetensors"}, "init wide.safetensors does not fit the encoder mlp: it has weight, "),
        ({"init": "timm:resnet18"}, "timm:resnet18"),
        ({"pretrained_weights": "f"}, "pretrained_weights is gone: .*--encoder timm:NAME --init FILE"),
    ],
)
def test_what_cannot_be_begun_with_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.md").write_text("no weights")
    Path("broken.safetensors").write_bytes(b"no weights")
    Path("empty").mkdir()
    save_file({"weight": torch.ones(2)}, "wide.safetensors")
    torch.save({"state_dict": {"weight": bomb(tmp_path / "fired")}}, "call.pth")
    with pytest.raises(CounterpointError, match=sentence) as refusal:
        cp.train(VECTORS, out="run", **{**SMALL, **asked})
    assert "\n" not in str(refusal.value)
    assert not Path("run").exists()
    assert not Path("fired").exists()
