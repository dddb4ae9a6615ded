"""What ``auto`` becomes once data, method and device are known; what the user gave stays."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, nest
from counterpoint.data.formats.labels import number_labels
from counterpoint.data.source import Source, memory_source
from counterpoint.data.stores import MemoryStore
from counterpoint.engine.placement import Placement
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.runs.active_settings import check_choices
from counterpoint.runs.resolve import Resolution, resolve, resolve_holdout, resolve_widths

REASONS = {"engine.device": "because", "engine.precision": "because"}
CPU, GPU = Placement("cpu", "fp32", REASONS), Placement("cuda", "bf16", REASONS)


def source_of(shape: tuple[int, ...], num_samples: int = 100, *, labelled: bool = False) -> Source:
    labels = number_labels(torch.arange(num_samples) % 2, num_samples) if labelled else None
    return memory_source("test", torch.zeros(num_samples, *shape), labels)


def resolved(
    shape: tuple[int, ...] = (1, 8, 8),
    num_samples: int = 100,
    placement: Placement = CPU,
    width: int = 256,
    **asked: Any,
) -> Resolution:
    source = source_of(shape, num_samples)
    resolution = resolve_holdout(build(TrainSettings, nest(asked), "test"), source)
    return resolve_widths(resolve(resolution, source, num_samples, placement), width)


def test_labels_decide_the_holdout() -> None:
    for labelled, share in ((True, 0.2), (False, 0.0)):
        resolution = resolve_holdout(TrainSettings(), source_of((1, 8, 8), labelled=labelled))
        assert resolution.settings.source.holdout == share
        assert "labels" in resolution.reasons["source.holdout"]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_decides_its_wiring(name: str) -> None:
    method, settings = METHODS[name], resolved(method=name).settings
    assert settings.projector.kind == method.projector
    assert settings.output.nonnegative == method.nonnegative
    resolution = resolved(method=name)
    chosen: dict[str, tuple[object, object]] = {"loss.negatives": (settings.loss.negatives, method.negatives)}
    chosen["temperature"] = (settings.temperature, method.temperature)
    for path, (value, of_method) in chosen.items():
        assert value == ("auto" if path in resolution.idle else of_method)
        assert (path in resolution.reasons) == (path not in resolution.idle)
        assert method.source in resolution.reasons.get(path, method.source)


def test_directclr_sees_the_papers_share_of_the_representation() -> None:
    assert resolved(method="directclr", width=2048).settings.output.d0 == 360
    assert resolved(method="directclr", width=512).settings.output.d0 == 90
    assert resolved(method="directclr", width=5).settings.output.d0 == 2
    assert resolved(method="simclr", width=512).settings.output.d0 == "all"


@pytest.mark.parametrize(
    ("shape", "placement", "encoder", "preset"),
    [
        ((30,), CPU, "mlp", "vectors"),
        ((1, 8, 8), CPU, "convnet", "digits"),
        ((1, 8, 8), GPU, "convnet", "digits"),
        ((3, 32, 32), CPU, "convnet", "small-images"),
        ((3, 32, 32), GPU, "resnet18", "small-images"),
        ((3, 64, 64), CPU, "convnet", "photos"),
        ((3, 96, 96), CPU, "resnet9", "photos"),
        ((3, 96, 96), GPU, "resnet18", "photos"),
    ],
)
def test_the_data_and_the_device_decide_encoder_and_views(
    shape: tuple[int, ...], placement: Placement, encoder: str, preset: str
) -> None:
    settings = resolved(shape, placement=placement).settings
    assert (settings.encoder, settings.views.preset) == (encoder, preset)
    assert (settings.engine.device, settings.engine.precision) == (placement.device, placement.precision)
    assert settings.source.image_size == (8 if len(shape) == 1 else shape[1])


def test_drawings_are_seen_and_the_reason_says_so() -> None:
    page = torch.full((20, 3, 64, 64), 255, dtype=torch.uint8)
    for number in range(20):
        page[number, :, 10 + number : 13 + number, 8:56] = 0
    source = replace(source_of((3, 64, 64)), store=MemoryStore(page))

    def views(**asked: Any) -> Resolution:
        settings = build(TrainSettings, nest(asked), "test")
        return resolve(resolve_holdout(settings, source), source, 20, CPU)

    found = views()
    assert found.settings.views.preset == "drawings"
    assert (found.settings.views.flip, found.settings.views.jitter, found.settings.views.fill) == (0.0, 0.0, "edge")
    assert "100%" in found.reasons["views.preset"]
    asked = views(**{"views.preset": "photos"})
    assert asked.settings.views.jitter == 0.8
    assert "views.preset" not in asked.reasons


@pytest.mark.parametrize(("side", "stem"), [(32, "small"), (64, "small"), (96, "large"), (128, "large")])
def test_the_size_of_the_images_decides_the_stem_of_a_resnet(side: int, stem: str) -> None:
    resolution = resolved((3, side, side), encoder="resnet9")
    assert resolution.settings.stem == stem
    assert resolution.reasons["stem"] == f"images of {side} px; large above 64 px"
    assert resolved((3, side, side), encoder="resnet9", stem="small").settings.stem == "small"
    assert resolved((3, side, side), encoder="convnet").settings.stem == "auto"
    settings = build(TrainSettings, {"encoder": "convnet", "stem": "large"}, "test")
    with pytest.raises(UsageError, match=r"stem has no effect .* encoder convnet has one stem"):
        check_choices(settings)


@pytest.mark.parametrize("name", METHODS)
def test_how_both_views_are_encoded_is_said_or_refused(name: str) -> None:
    apart = {"encode_views": "apart"}
    if METHODS[name].wiring in ("joint", "classification"):
        assert resolved(method=name).settings.engine.encode_views == "together"
        assert "BatchNorm" in resolved(method=name).reasons["engine.encode_views"]
        assert resolved(method=name, engine=apart).settings.engine.encode_views == "apart"
    else:
        assert resolved(method=name).settings.engine.encode_views == "auto"
        with pytest.raises(UsageError, match=f"no effect with method {name}: it encodes each view separately"):
            check_choices(build(TrainSettings, {"method": name, "engine": apart}, "test"))


@pytest.mark.parametrize("num_train", [2, 3, 4, 7, 8, 15, 16, 1023, 1024, 1438, 50_000])
def test_the_batch_is_a_power_of_two_that_the_data_can_fill(num_train: int) -> None:
    batch = resolved(num_samples=num_train).settings.batch_size
    assert isinstance(batch, int)
    assert 2 <= batch <= min(256, num_train)
    assert batch & (batch - 1) == 0
    assert batch == 2 or batch <= num_train / 4
    assert batch == 256 or 2 * batch > num_train / 4


@pytest.mark.parametrize(
    ("num_train", "batch_size", "batches"), [(1438, 256, 5), (60, 16, 3), (16, 8, 2), (4, 2, 2), (50_000, 256, 195)]
)
def test_the_epochs_make_the_updates_that_the_reason_names(num_train: int, batch_size: int, batches: int) -> None:
    resolution = resolved(num_samples=num_train, batch_size=batch_size)
    reason, epochs = resolution.reasons["epochs"], int(resolution.settings.epochs)
    match = re.fullmatch(r"about (\d+) updates at (\d+) per epoch, between (\d+) and (\d+) epochs", reason)
    assert match is not None
    updates, per_epoch, low, high = map(int, match.groups())
    assert per_epoch == batches
    assert epochs == min(high, max(low, math.ceil(updates / batches)))
    assert 300 <= updates <= 1000
    assert resolution.settings.engine.checkpoint_every == math.ceil(epochs / 10)
    assert resolution.settings.optim.warmup_epochs == pytest.approx(0.05 * epochs, abs=0.005)


def test_the_optimiser_decides_its_rates() -> None:
    adamw = resolved(batch_size=64).settings.optim
    assert (adamw.learning_rate, adamw.weight_decay) == (2e-3, 1e-4)
    for batch_size, rate in ((128, 0.06), (64, 0.03), (32, 0.015)):
        sgd = resolved(num_samples=200, batch_size=batch_size, optim={"name": "sgd"}).settings.optim
        assert (sgd.learning_rate, sgd.weight_decay) == (pytest.approx(rate), 5e-4)


def test_the_projector_is_as_wide_as_its_wider_end() -> None:
    assert resolved(width=512).settings.projector.hidden == 512
    assert resolved(width=64).settings.projector.hidden == 128
    assert resolved(width=64, projector={"features": 300}).settings.projector.hidden == 300


def test_what_was_given_stays_and_has_no_reason() -> None:
    asked: dict[str, Any] = {
        "encoder": "resnet9", "epochs": 3, "batch_size": 10, "temperature": 0.7, "projector.kind": "linear",
        "projector.features": 40, "output.nonnegative": "softplus", "output.d0": 5, "loss.negatives": "same-view",
        "optim.learning_rate": 0.5, "optim.weight_decay": 0.0, "optim.warmup_epochs": 0.0, "views.flip": 0.5,
        "views.crop_scale": (0.3, 0.4), "engine.checkpoint_every": 2, "source.holdout": 0.5, "source.image_size": 8,
    }  # fmt: skip
    resolution = resolved(method="directclr", **asked)
    for path, value in asked.items():
        found: Any = resolution.settings
        for step in path.split("."):
            found = getattr(found, step)
        assert found == value, path
        assert path not in resolution.reasons


@pytest.mark.parametrize(
    ("shape", "asked", "complaint"),
    [
        ((1, 8, 8), {"views.preset": "vectors"}, "is not for images"),
        ((5,), {"views.preset": "digits"}, "is not for vectors"),
        ((1, 8, 8), {"source.image_size": 32}, "8 px"),
        ((1, 8, 8), {"views.zoom": (1.2, 0.8)}, "views.zoom"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(shape: tuple[int, ...], asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolved(shape, **asked)
    assert complaint in str(caught.value)


def test_the_sources_own_notes_are_kept_as_reasons() -> None:
    source = replace(source_of((3, 32, 32)), notes={"source.image_size": "the median short side"})
    resolution = resolve_holdout(TrainSettings(), source)
    assert resolution.settings.source.image_size == 32
    assert resolution.reasons["source.image_size"] == "the median short side"
