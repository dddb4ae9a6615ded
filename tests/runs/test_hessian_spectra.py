"""hessian_spectrum() of runs: the dense spectrum on a small one, checkpoints, and what is refused."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from folder_snapshot import snapshot
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.derived_files import read_derived
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.schemas import read_record
from counterpoint.engine.checkpoint import restore_checkpoint
from counterpoint.engine.checkpoint_format import step_of
from counterpoint.engine.progress import Reporter
from counterpoint.runs.curvature_record import CurvatureSettings
from counterpoint.runs.fixed_loss import exact_products, run_loss
from counterpoint.runs.one_run import open_job

NUM, DIMS = 60, 5
LABELS = np.arange(NUM) % 3


def draw(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(NUM, DIMS)).astype(np.float32)


def smooth(*extra: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(DIMS, 4), nn.Tanh(), *extra, nn.Linear(4, 3))


def train(out: Path, encoder: nn.Module | None = None, **settings: Any) -> cp.Run:
    asked = {"epochs": 2, "batch_size": 16, "projector": {"kind": "none"}, "engine": {"keep": 5}, **settings}
    return cp.train(draw(), labels=LABELS, encoder=encoder or smooth(), out=str(out), quiet=True, **asked)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    return train(tmp_path_factory.mktemp("curvature") / "run")


def spectrum(run: cp.Run, **settings: Any) -> cp.HessianSpectrum:
    return cp.hessian_spectrum(run, quiet=True, **{"steps": 12, "batch_size": 20, **settings})


def loss_of_run(run: cp.Run, asked: CurvatureSettings) -> Any:
    snapshot = restore_checkpoint(run.folder.checkpoints).snapshot
    return run_loss(open_job(run, Reporter(quiet=True)), asked).at(snapshot.state.model)


def dense_eigenvalues(coupled: Any) -> Tensor:
    leaves = {name: value.clone().requires_grad_() for name, value in coupled.parameters.items()}
    value = coupled.loss(leaves, coupled.encode(leaves, coupled.inputs))
    gradient = torch.autograd.grad(value, list(leaves.values()), create_graph=True)
    entries = torch.cat([part.reshape(-1) for part in gradient])
    rows = [torch.autograd.grad(entry, list(leaves.values()), retain_graph=True) for entry in entries]
    return torch.linalg.eigvalsh(torch.stack([torch.cat([part.reshape(-1) for part in row]) for row in rows]))


def test_at_full_order_it_is_the_dense_spectrum(run: cp.Run) -> None:
    dense_P = dense_eigenvalues(loss_of_run(run, CurvatureSettings(batch_size=20)))
    found = spectrum(run, steps=200, threshold=0.1)
    assert found.num_parameters == len(dense_P) == 4 * DIMS + 4 + 3 * 4 + 3
    ritz_M = torch.tensor(found.last.ritz_values[0], dtype=torch.float64)
    reach = float(dense_P[-1] - dense_P[0])
    assert max(float((dense_P - value).abs().min()) for value in ritz_M) < 1e-10 * reach
    assert max(float((ritz_M - value).abs().min()) for value in dense_P) < 1e-10 * reach
    counts = found.last.masses
    for mass, truth in (
        (counts.below, int((dense_P < -0.1).sum())),
        (counts.within, int((dense_P.abs() <= 0.1).sum())),
        (counts.above, int((dense_P > 0.1).sum())),
    ):
        assert mass.count[0] <= truth <= mass.count[1]
        assert mass.at_least <= truth
    assert abs(found.last.trace.value - float(dense_P.sum())) <= 5 * found.last.trace.error + 1e-9


def test_the_loss_is_that_of_training_on_the_same_views(run: cp.Run) -> None:
    asked = CurvatureSettings(batch_size=20)
    job = open_job(run, Reporter(quiet=True))
    method = job.method
    method.load_state_dict(restore_checkpoint(run.folder.checkpoints).snapshot.state.model)
    fixed = run_loss(job, asked)
    value = float(method(*fixed.inputs, None).detach())
    assert spectrum(run).last.value == pytest.approx(value, rel=1e-12)


def test_float32_agrees(run: cp.Run) -> None:
    low, high = spectrum(run, precision="float32", steps=6), spectrum(run, steps=6)
    assert low.last.largest[0].value == pytest.approx(high.last.largest[0].value, rel=1e-4)
    assert low.last.noise > high.last.noise


def test_checkpoints_share_batch_views_and_probes(run: cp.Run) -> None:
    evolution = spectrum(run, checkpoint="all", probes=2)
    steps = [state.step for state in evolution.states]
    assert len(steps) >= 2
    assert steps == sorted(steps)
    first = spectrum(run, checkpoint=str(steps[0]), probes=2)
    assert first.last.ritz_values == evolution.states[0].found.ritz_values
    assert spectrum(run, probes=2).last.ritz_values == evolution.last.ritz_values
    assert evolution.states[0].found.value != evolution.last.value


def test_the_record_says_all_in_words_and_plain_values(run: cp.Run) -> None:
    found = spectrum(run, checkpoint="all", probes=2)
    written = read_derived(run.folder, run.folder.spectrum, must_be_sealed=True)
    assert written == json.loads(json.dumps(found.to_dict()))
    assert written["settings"]["batch_size"] == 20
    assert written["settings"]["batch_norm"] == "none"
    for weights in (weights for state in found.states for weights in state.found.ritz_weights):
        assert math.isclose(sum(weights), 1)
    text = str(found)
    assert max(map(len, text.splitlines())) <= 100
    assert text.startswith("Curvature of run: ")
    assert "20 pairs" in text.replace("\n  ", " ")


def test_the_same_call_gives_the_same_figures(run: cp.Run) -> None:
    assert spectrum(run).to_dict() == spectrum(run).to_dict()
    assert spectrum(run, seed=5).last.ritz_values != spectrum(run).last.ritz_values


def test_batch_norm_is_a_choice_that_is_recorded(tmp_path: Path) -> None:
    run = train(tmp_path / "norm", smooth(nn.BatchNorm1d(4)))
    batch, frozen = spectrum(run), spectrum(run, batch_norm="frozen")
    assert (batch.settings["batch_norm"], frozen.settings["batch_norm"]) == ("batch", "frozen")
    assert batch.last.value != frozen.last.value
    assert spectrum(run).last.value == batch.last.value  # nothing was gathered


class Attention(nn.Module):
    """Of the features of a sample, each a token."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lift, self.attend = nn.Linear(1, 4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x_ND: Tensor) -> Tensor:
        tokens = self.lift(x_ND[..., None])
        return self.attend(tokens, tokens, tokens, need_weights=False)[0].mean(dim=1)


def test_attention_has_a_second_derivative(tmp_path: Path) -> None:
    found = spectrum(train(tmp_path / "run", Attention()), steps=4)
    assert found.last.certificates[0].holds
    assert found.last.largest[0].value != 0


def test_dropout_is_off_and_said(tmp_path: Path) -> None:
    found = spectrum(train(tmp_path / "run", smooth(nn.Dropout(0.5))))
    assert "layers that draw are off" in found.remarks[0]
    assert found.last.certificates[0].holds


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "mio"},
        {"method": "supcon"},
        {"method": "barlow-twins", "projector": {"kind": "linear", "features": 3}},
        {"method": "supervised"},
        {"loss": {"name": "sigmoid"}},
    ],
    ids=str,
)
def test_other_methods_have_a_spectrum(settings: dict[str, Any], tmp_path: Path) -> None:
    found = spectrum(train(tmp_path / "run", **settings))
    assert found.last.certificates[0].holds
    assert found.settings["weights"] == "weights of the last update"
    assert not any("held fixed" in each for each in found.remarks)
    if settings.get("method") in ("supervised",) or "loss" in settings:
        assert found.num_parameters > 39  # what the loss learns is part of it


TARGETS = {
    "byol": {"predictor_hidden": 3, "momentum": 0.5},
    "simsiam": {"predictor_hidden": 3},
    "moco": {"queue_size": 16, "momentum": 0.5},
}


@pytest.mark.parametrize("method", TARGETS)
def test_with_targets_held_fixed_it_is_the_hessian_of_the_printed_loss(method: str, tmp_path: Path) -> None:
    """grill2020, Eq. 2; chen2021, Eq. 1 to 4; he2020, Eq. 1: targets are numbers, also where the weights move."""
    run = train(tmp_path / "run", method=method, target=TARGETS[method], projector={"kind": "linear", "features": 3})
    job = open_job(run, Reporter(quiet=True))
    asked = CurvatureSettings(batch_size=20, batch_norm="frozen", precision="float64")
    coupled = run_loss(job, asked).at(restore_checkpoint(run.folder.checkpoints).snapshot.state.model)
    wiring: Any = job.method

    def part(weights: Any, name: str, x: Tensor) -> Tensor:
        own = {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}
        return torch.func.functional_call(getattr(wiring, name), own, (x,))

    def unit(x: Tensor) -> Tensor:
        return x / x.norm(dim=1, keepdim=True)

    copies = ["target_backbone", "target_projector"] if method != "simsiam" else ["backbone", "projector"]
    with torch.no_grad():
        fixed = [unit(getattr(wiring, copies[1])(getattr(wiring, copies[0])(view))) for view in coupled.inputs]

    def printed(weights: Any) -> Tensor:
        z = [part(weights, "projector", part(weights, "backbone", view)) for view in coupled.inputs]
        if method == "moco":
            query, queue = unit(z[0]), wiring.loss.queue_KD.double()
            logits = torch.cat([(query * fixed[1]).sum(1, keepdim=True), query @ queue.T], dim=1)
            return torch.nn.functional.cross_entropy(logits / wiring.loss.temperature, torch.zeros(20).long())
        p = [unit(part(weights, "predictor", each)) for each in z]
        cosines = (p[0] * fixed[1]).sum(1).mean() + (p[1] * fixed[0]).sum(1).mean()
        return 4 - 2 * cosines if method == "byol" else -cosines / 2

    def hessian(loss: Any) -> tuple[float, Tensor]:
        leaves = coupled.leaves()
        value = loss(leaves)
        slopes = torch.autograd.grad(value, list(leaves.values()), create_graph=True, materialize_grads=True)
        entries = torch.cat([slope.reshape(-1) for slope in slopes])
        rows = [
            torch.autograd.grad(each, list(leaves.values()), retain_graph=True, materialize_grads=True)
            if each.requires_grad
            else [torch.zeros_like(leaf) for leaf in leaves.values()]
            for each in entries
        ]
        return float(value.detach()), torch.stack([torch.cat([each.reshape(-1) for each in row]) for row in rows])

    value, ours = hessian(lambda weights: coupled.loss(weights, coupled.encode(weights, coupled.inputs)))
    expected, theirs = hessian(printed)
    assert value == pytest.approx(expected, rel=1e-9)
    assert theirs.abs().max() > 1e-3
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9)
    found = spectrum(run, steps=6)
    assert found.last.certificates[0].holds
    assert "held fixed" in " ".join(found.remarks)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "alpha-cl"}, "backpropagate_alpha=True"),
        ({"loss": {"name": "dclw"}}, "backpropagate_weights=True"),
        ({"method": "visreg"}, "held fixed"),
        ({"output": {"nonnegative": "relu-gelu"}}, "no gradient"),
    ],
    ids=lambda part: str(part)[:30],
)
def test_what_follows_no_gradient_is_refused(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    run = train(tmp_path / "run", **settings)
    with pytest.raises(UsageError, match=words):
        spectrum(run)


def test_targets_of_a_users_loss_are_held_fixed_and_said_to_be(tmp_path: Path) -> None:
    loss = cp.losses.Regression()
    run = train(tmp_path / "run", loss=loss)
    asked = cp.Run(run.path, encoder=run.encoder, loss=loss)
    assert "held fixed" in " ".join(spectrum(asked, data=draw(), labels=LABELS).remarks)


def test_a_run_on_an_array_needs_that_array(run: cp.Run) -> None:
    without = cp.Run(run.path, encoder=run.encoder)
    with pytest.raises(UsageError, match="data="):
        spectrum(without)
    again = cp.hessian_spectrum(without, data=draw(), labels=LABELS, quiet=True, steps=3, batch_size=20)
    assert again.last.value == spectrum(run, steps=3).last.value
    with pytest.raises(RunError, match="data"):
        cp.hessian_spectrum(without, data=draw(1), labels=LABELS, quiet=True)


def test_data_that_have_moved_are_pointed_to(tmp_path: Path) -> None:
    np.save(tmp_path / "before.npy", draw())
    asked = {"epochs": 1, "batch_size": 16, "projector": {"features": 3}}
    run = cp.train(str(tmp_path / "before.npy"), out=str(tmp_path / "run"), quiet=True, **asked)
    first = spectrum(run, steps=3)
    (tmp_path / "before.npy").rename(tmp_path / "after.npy")
    with pytest.raises(UsageError, match=r"before\.npy.* point to them with --data"):
        spectrum(run, steps=3)
    assert spectrum(run, steps=3, data=str(tmp_path / "after.npy")).last == first.last


@pytest.mark.thorough
def test_two_towers_have_one_spectrum(tmp_path: Path, rng: np.random.Generator) -> None:
    pictures, captions = rng.integers(0, 256, (64, 8, 8), dtype=np.uint8), rng.normal(size=(64, 3)).astype(np.float32)
    np.savez(tmp_path / "pairs.npz", images=pictures, captions=captions)
    asked = {"epochs": 1, "batch_size": 32, "views": {"preset": "none"}, "projector": {"features": 4}}
    run = cp.train(str(tmp_path / "pairs.npz"), method="cross-modal", out=str(tmp_path / "run"), quiet=True, **asked)
    found = spectrum(run, steps=4, batch_norm="frozen")
    assert found.last.certificates[0].holds


def test_a_batch_whose_graph_does_not_fit_is_refused(run: cp.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.runs.hessian_spectra.available_memory", lambda: 8_000)
    with pytest.raises(UsageError, match=r"graph of 20 pairs.* lower --batch-size"):
        spectrum(run)
    monkeypatch.setattr("counterpoint.runs.hessian_spectra.available_memory", lambda: 3_000)
    with pytest.raises(UsageError, match="lower --steps"):
        spectrum(run)


def test_without_a_checkpoint_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    for path in run.folder.checkpoints.iterdir():
        for file in path.iterdir() if path.is_dir() else ():
            file.unlink()
    with pytest.raises(RunError, match="checkpoint"):
        spectrum(run)


def test_a_damaged_newest_checkpoint_is_not_passed_over(run: cp.Run, tmp_path: Path) -> None:
    folder = shutil.copytree(run.path, tmp_path / "run")
    copy = replace(run, path=folder)
    older, *_, newest = sorted((folder / "checkpoints").glob("step-*"))
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    before = snapshot(folder)
    with pytest.raises(RunError, match=rf"damaged \({newest.name}: model.*--checkpoint"):
        spectrum(copy)
    assert snapshot(folder) == before
    step = step_of(older)
    assert spectrum(copy, checkpoint=str(step)).states[-1].step == step


def test_a_run_that_is_made_anew_has_no_spectrum(tmp_path: Path) -> None:
    run = train(tmp_path / "run")
    spectrum(run)
    train(tmp_path / "run", overwrite=True)
    assert not run.folder.spectrum.exists()


def test_products_have_all_digits_inside_and_the_callers_choice_after() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        with exact_products():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_record_of_another_kind_is_an_error_with_its_remedy() -> None:
    with pytest.raises(RunError, match=r"spectrum\.json: .*counterpoint spectrum.* writes it again"):
        read_record(cp.HessianSpectrum, {"name": "x", "states": []}, "spectrum.json")
