"""Training as a recipe: the run folder it leaves, the same bits for the same seed, and what it refuses to touch."""

import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import counterpoint as cp
from counterpoint.core.errors import DataError, RunError, TrainingError, UsageError
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import leaf_fields, parse_yaml
from counterpoint.data.order import split_source
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.methods.joint import JointEmbedding
from counterpoint.nn import trained
from counterpoint.runs.active_settings import idle_settings
from data import picture_files as pictures
from runs.folder_snapshot import snapshot
from tolerances import assert_close

NUM_SAMPLES = 60
SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 16, "quiet": True}


@pytest.fixture
def images(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (NUM_SAMPLES, 8, 8), dtype=np.uint8)


@pytest.fixture
def labels() -> np.ndarray:
    return np.arange(NUM_SAMPLES) % 3


def weights_of(run: cp.Run) -> bytes:
    return run.folder.weights.read_bytes()


@pytest.mark.parametrize(("method", "level"), [("barlow-twins", 12.0), ("simclr", math.log(2 * 16 - 1))])
def test_every_epoch_names_the_loss_of_vectors_that_are_all_alike(
    tmp_path: Path, images: np.ndarray, method: str, level: float
) -> None:
    """zbontar2021, Eq. 1: of constants nothing correlates, which leaves one per feature; of the others log(2n - 1)."""
    run = cp.train(images, method=method, projector={"features": 12}, out=tmp_path / "run", **SMALL)
    log = (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    chance = [json.loads(line).get("chance") for line in log]
    assert chance == pytest.approx([level] * 2)


# --- the same bits


@pytest.mark.parametrize(
    "settings",
    [{"method": "simclr"}, {"method": "ncl"}, {"method": "directclr"}, {"optim": {"name": "sgd"}}],
    ids=["simclr", "ncl", "directclr", "sgd"],
)
@pytest.mark.sampled(4)
@pytest.mark.thorough
def test_a_seed_fixes_every_bit_of_the_weights(tmp_path: Path, images: np.ndarray, settings: dict[str, Any]) -> None:
    first = cp.train(images, out=tmp_path / "first", seed=3, **settings, **SMALL)
    torch.manual_seed(99)  # the caller's random numbers have no say
    second = cp.train(images, out=tmp_path / "second", seed=3, **settings, **SMALL)
    other = cp.train(images, out=tmp_path / "other", seed=4, **settings, **SMALL)
    assert weights_of(second) == weights_of(first)
    assert weights_of(other) != weights_of(first)
    assert [record["loss"] for record in second.metrics] == [record["loss"] for record in first.metrics]


def test_loader_workers_change_no_bit(tmp_path: Path, images: np.ndarray) -> None:
    alone, helped = (
        cp.train(images, out=tmp_path / str(workers), engine={"workers": workers}, **SMALL) for workers in (0, 2)
    )
    assert weights_of(alone) == weights_of(helped)


def test_labels_have_no_say_in_training(tmp_path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    without = cp.train(images, out=tmp_path / "without", **SMALL)
    with_labels = cp.train(images, labels=labels, source={"holdout": 0.0}, out=tmp_path / "with", **SMALL)
    assert weights_of(without) == weights_of(with_labels)


@pytest.mark.thorough
def test_held_out_samples_have_no_say_in_training(tmp_path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    split = split_source(NUM_SAMPLES, torch.from_numpy(labels), 0.2)
    changed, in_training = images.copy(), images.copy()
    changed[split.held_out.numpy()] = 0
    in_training[int(split.train[0])] = 0
    runs = [
        cp.train(array, labels=labels, out=tmp_path / name, **SMALL)
        for name, array in (("a", images), ("b", changed), ("c", in_training))
    ]
    assert weights_of(runs[0]) == weights_of(runs[1])
    assert weights_of(runs[0]) != weights_of(runs[2])


def test_the_callers_random_numbers_are_left_alone(tmp_path: Path, images: np.ndarray) -> None:
    before = torch.get_rng_state()
    cp.load(cp.train(images, out=tmp_path / "run", **SMALL))
    assert torch.equal(torch.get_rng_state(), before)


# --- the run folder


def test_the_run_folder_tells_the_whole_story(tmp_path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    run = cp.train(images, labels=labels, method="ncl", out=tmp_path / "deep" / "run", seed=5, **SMALL)
    assert run.path == tmp_path / "deep" / "run"
    names = {"config.yaml", "resolved.yaml", "run.json", "metrics.jsonl", "encoder.safetensors", "encoder.json"}
    assert {path.name for path in run.path.iterdir()} == names | {".counterpoint", "timings.jsonl", "checkpoints"}
    status = run.folder.read_status()
    assert status.status == "finished"
    assert (status.seed, status.method, status.data, status.version) == (5, "ncl", "array", cp.__version__)
    assert (status.num_samples, status.num_train) == (60, 48)
    assert (status.negatives_per_anchor, status.embedding_dims, status.width) == (30, 128, 256)
    assert status.num_threads == torch.get_num_threads()
    assert (status.seconds or 0.0) > 0
    assert (status.peak_memory_mb or 0.0) > 0
    config = parse_yaml(run.folder.config.read_text(), "config")
    assert config == {"data": "array", "method": "ncl", "out": str(run.path), "epochs": 2, "batch_size": 16, "seed": 5}
    assert [record["epoch"] for record in run.metrics] == [1, 2]
    assert len(list(run.folder.checkpoints.glob("step-*"))) == 2
    text = "".join(path.read_text() for path in (run.folder.resolved, run.folder.encoder_card))
    assert str(tmp_path.parent) not in text.replace(str(run.path), "")


ANSWERED_BY_THE_DATA = {"source.labels", "source.split"}


@pytest.mark.parametrize("method", ["simclr", "ncl", "directclr"])
def test_every_auto_is_filled_in_with_a_reason(
    tmp_path: Path, images: np.ndarray, labels: np.ndarray, method: str
) -> None:
    run = cp.train(images, labels=labels, method=method, out=tmp_path / "run", temperature=0.3, **SMALL)
    resolved = parse_yaml(run.folder.resolved.read_text(), "resolved")
    reasons = resolved.pop("reasons")
    autos = {path for path, field in leaf_fields(TrainSettings) if field.default == "auto"}
    given = {"temperature", "epochs", "batch_size"}
    idle = idle_settings(read_resolved(run.folder), (1, 8, 8))
    assert {"target.momentum", "projector.rank", "source.image_column", "views.noise"} <= set(idle)
    for path in autos:
        value = resolved
        for step in path.split("."):
            value = value.get(step, {})
        assert (value == {}) == (path in idle), path
        assert (value == "auto") == (path in ANSWERED_BY_THE_DATA), path
        assert (path in reasons) == (path not in {*given, *ANSWERED_BY_THE_DATA, *idle}), path
    assert all(isinstance(reason, str) and reason for reason in reasons.values())
    assert set(reasons) <= autos
    assert (resolved["temperature"], resolved["seed"], resolved["source"]["holdout"]) == (0.3, 0, 0.2)


def test_progress_says_what_is_trained_and_quiet_says_nothing(
    tmp_path: Path, images: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SMALL, "quiet": False}
    cp.train(images, out=tmp_path / "loud", **settings)
    captured = capsys.readouterr()
    assert captured.out == ""
    for words in ("60 images 1x8x8", "30 negatives", "device cpu", "precision fp32", "parameters", "epoch 2/2"):
        assert words in captured.err
    assert "chance" in captured.err
    assert "floor" in captured.err
    cp.train(images, out=tmp_path / "quiet", **SMALL)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_methods_differ_in_what_the_loss_compares(tmp_path: Path, images: np.ndarray) -> None:
    encoders = {
        method: cp.load(cp.train(images, method=method, out=tmp_path / method, **SMALL))
        for method in ("simclr", "ncl", "directclr")
    }
    assert (encoders["ncl"].embed(images) >= 0).all()
    assert (encoders["simclr"].embed(images) < 0).any()
    assert encoders["directclr"].card.projector == "none"
    assert encoders["directclr"].embedding_dims == round(256 * 360 / 2048)
    floors = [cp.Run(tmp_path / method).metrics[0]["floor"] for method in ("simclr", "ncl")]
    assert floors[0] < floors[1]  # non-negative vectors cannot lie further apart than at a right angle


# --- all kinds of data


def test_vectors_tensors_and_paths_are_trained_on(tmp_path: Path, rng: np.random.Generator) -> None:
    vectors = rng.normal(size=(40, 6)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors)
    runs = [
        cp.train(data, out=tmp_path / name, **SMALL)
        for name, data in (("a", vectors), ("b", torch.from_numpy(vectors)), ("c", tmp_path / "vectors.npy"))
    ]
    assert weights_of(runs[0]) == weights_of(runs[1]) == weights_of(runs[2])
    assert cp.load(runs[0]).represent(vectors).shape == (40, 256)
    assert cp.load(runs[2].path).card.kind == "vectors"


def test_four_samples_are_enough_and_three_are_not(tmp_path: Path, images: np.ndarray) -> None:
    cp.train(images[:4], out=tmp_path / "four", epochs=1, quiet=True)
    with pytest.raises(DataError, match="at least 4"):
        cp.train(images[:3, ..., None], out=tmp_path / "three", epochs=1, quiet=True)
    assert not (tmp_path / "three").exists()


def test_a_constant_channel_does_not_divide_by_zero(tmp_path: Path, images: np.ndarray) -> None:
    flat = np.full((20, 8, 8, 3), 255, np.uint8)
    flat[..., 0] = images[:20]
    encoder = cp.load(cp.train(flat, out=tmp_path / "run", **SMALL))
    assert encoder.card.std[1] == 1.0
    assert np.isfinite(encoder.embed(flat)).all()


def test_mean_and_deviation_are_those_of_the_training_pixels(tmp_path: Path, images: np.ndarray) -> None:
    card = cp.load(cp.train(images, out=tmp_path / "run", **SMALL)).card
    assert card.mean[0] == pytest.approx((images / 255).mean())
    assert card.std[0] == pytest.approx((images / 255).std(ddof=1))


def test_a_folder_of_mixed_pictures_trains_and_its_bad_files_are_recorded(
    tmp_path: Path, rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "photos"
    names = pictures.save_mixed(folder, rng)
    reasons = pictures.save_bad(folder, rng)
    settings = {"epochs": 1, "batch_size": 4, "out": tmp_path / "run"}
    with pytest.raises(DataError, match=r"--source\.max-bad"):
        cp.train(folder, **settings)
    assert not (tmp_path / "run").exists()
    run = cp.train(folder, **{"source.max_bad": 0.2}, **settings)
    said = capsys.readouterr().err
    assert "skipped 2 of 11 files" in said
    recorded = {item.name: item.reason or "" for item in run.folder.read_status().skipped}
    assert recorded.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert reason in recorded[name]
        assert f"skipped {name}: {recorded[name]}" in said
    table = cp.embed(run, quiet=True)
    assert set(table.names) == set(names)


# --- the user's own module


class OwnNetwork(nn.Module):
    """A convolution whose maps are left for the library to pool."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 12, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        return self.convolution(images).relu()


def test_the_users_module_from_training_to_evaluation(tmp_path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    torch.manual_seed(0)
    module = OwnNetwork()
    before = module.convolution.weight.detach().clone()
    run = cp.train(images, labels=labels, encoder=module, out=tmp_path / "run", **SMALL)
    assert torch.equal(module.convolution.weight, before)
    assert not torch.equal(cp.load(run).backbone.state_dict()["body.convolution.weight"], before)
    answers = [
        cp.load(where, encoder=given).represent(images)
        for where, given in ((run, None), (run.path, OwnNetwork()), (cp.Run(run.path, encoder=OwnNetwork()), None))
    ]
    assert answers[0].shape == (NUM_SAMPLES, 12)
    for answer in answers:
        assert_close(torch.from_numpy(answer), torch.from_numpy(answers[0]))
    as_text: Any = str(run.path)
    known = cp.Run(as_text, data=images, labels=labels, encoder=OwnNetwork())
    evaluation = cp.evaluate(known, k=3, quiet=True)
    assert {row.features for row in evaluation.rows} == {"representation", "embedding", "pixels (PCA)"}
    assert evaluation.rows == cp.evaluate(run, k=3, quiet=True).rows
    assert cp.diagnose(known, quiet=True).places.keys() == {"representation", "embedding"}
    assert cp.embed(known, quiet=True).vectors.shape == (NUM_SAMPLES, 12)
    for verb in (cp.load, cp.evaluate, cp.diagnose, cp.embed):
        with pytest.raises(UsageError, match="encoder="):
            verb(run.path)
    with pytest.raises(UsageError, match="encoder="):
        cp.train("digits", encoder="custom", out=tmp_path / "other")


def test_training_and_loading_leave_the_users_module_as_it_is(tmp_path: Path, images: np.ndarray) -> None:
    module = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.Dropout(0.1), nn.Flatten(), nn.Linear(216, 5))
    module[0].requires_grad_(False)
    module[1].eval()
    module.register_forward_pre_hook(lambda *_: None)

    def state() -> list[object]:
        values = [(name, value.tolist()) for name, value in module.state_dict().items()]
        settings = [(p.requires_grad, p.grad, p.device) for p in module.parameters()]
        return [values, settings, [part.training for part in module.modules()], len(module._forward_pre_hooks)]

    before = state()
    run = cp.train(images, encoder=module, out=tmp_path / "run", **SMALL)
    assert state() == before
    trained = cp.load(run)
    assert state() == before
    assert not torch.equal(trained.backbone.state_dict()["4.weight"], module.state_dict()["4.weight"])
    with pytest.raises(UsageError, match=r"pass encoder\.backbone"):
        cp.train(images, encoder=trained, out=tmp_path / "next", **SMALL)


def test_a_module_that_cannot_be_copied_is_refused_in_one_line(tmp_path: Path, images: np.ndarray) -> None:
    module = OwnNetwork()
    vars(module)["lock"] = threading.Lock()
    with pytest.raises(UsageError, match=r"OwnNetwork cannot be copied .*training works on a copy") as caught:
        cp.train(images, encoder=module, out=tmp_path / "run", **SMALL)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_array_must_be_given_again(tmp_path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    run = cp.train(images, labels=labels, out=tmp_path / "run", **SMALL)
    for verb in (cp.evaluate, cp.diagnose, cp.embed):
        with pytest.raises(UsageError, match="data="):
            verb(run.path, quiet=True)
    again = cp.Run(run.path, data=images, labels=labels)
    assert cp.evaluate(again, k=3, quiet=True).rows == cp.evaluate(run, k=3, quiet=True).rows
    assert np.array_equal(cp.embed(again, quiet=True).vectors, cp.load(run.path).represent(images))


# --- what is refused, and what is left alone


@pytest.mark.parametrize(
    "mistake",
    [
        {"epoch": 3},
        {"method": "simcrl"},
        {"batch_size": 61},
        {"output": {"d0": 129}},
        {"engine": {"device": "tpu"}},
        {"encoder": nn.Linear(3, 3)},
        {"labels": [1, 2]},
        {"data": np.full((NUM_SAMPLES, 8, 8), np.nan)},
        {"data": "missing"},
        {"data": None},
    ],
    ids=lambda mistake: str(mistake)[:30],
)
@pytest.mark.sampled(5)
def test_a_mistake_is_found_before_the_old_run_is_replaced(
    tmp_path: Path, images: np.ndarray, mistake: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cp.train(images, out="run", epochs=1, batch_size=16, quiet=True)
    before = snapshot(tmp_path)
    with pytest.raises((UsageError, DataError)) as caught:
        cp.train(**{"data": images, "out": "run", "overwrite": True, **SMALL, **mistake})
    assert "\n" not in str(caught.value)
    assert snapshot(tmp_path) == before


# --- divergence


def test_a_loss_that_is_not_finite_stops_the_run_and_is_recorded(
    tmp_path: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = JointEmbedding.forward, []

    def forward(self: JointEmbedding, *views: Any) -> Tensor:
        calls.append(1)
        return original(self, *views) * (float("nan") if len(calls) == 5 else 1.0)

    monkeypatch.setattr(JointEmbedding, "forward", forward)
    with pytest.raises(TrainingError, match=r"the loss is nan at step 4 \(epoch 2\): .*samples .*\d+, \d+"):
        cp.train(images, out=tmp_path / "run", **SMALL)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    assert not (tmp_path / "run" / "encoder.safetensors").exists()
    monkeypatch.undo()
    run = cp.resume(cp.Run(tmp_path / "run", data=images), quiet=True)
    assert run.folder.read_status().status == "finished"


def test_a_disk_that_fills_up_at_the_very_end_is_told_and_the_run_can_go_on(
    tmp_path: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trained, "write_tensors", full)
    with pytest.raises(RunError, match=r"cannot write .*encoder\.safetensors: No space left on device"):
        cp.train(images, out=tmp_path / "run", **SMALL)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    monkeypatch.undo()
    resumed = cp.resume(cp.Run(tmp_path / "run", data=images), quiet=True)
    assert weights_of(resumed) == weights_of(cp.train(images, out=tmp_path / "other", **SMALL))
