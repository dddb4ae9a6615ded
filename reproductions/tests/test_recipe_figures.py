"""Every recipe has the figures of its paper, written by hand, and takes steps with them on random pictures."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, nest
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.placement import place
from counterpoint.engine.progress import Reporter
from counterpoint.engine.step import take_step
from counterpoint.runs.active_settings import check_choices, refuse_idle
from counterpoint.runs.assembly import assemble
from counterpoint.runs.recipes import all_recipes, recipe_named
from counterpoint.runs.resolve import resolve_holdout
from counterpoint.runs.run_job import training_job
from counterpoint.runs.user_inputs import UserInputs, open_user_data

# The parts of named sets and the size of photographs in folders have no meaning for a file of pictures.
ELSEWHERE = ("source.split", "source.image_size", "engine.device")
CLASSES = ("airplane", "automobile", "bird", "cat")
SIDES = {"cifar10": 32, "cifar100": 32, "dsprites": 64, "tinyimagenet": 64, "stl10": 96}  # others are of photographs


# Section 6, Table 4 and README of alphacl2022; section 3.2 of mio2021; G.5, G.6 and D of ncl2024; main.py of
# directclr2022; section 7.1 of imbalanced2026.
FIGURES: dict[str, dict[str, Any]] = {
    "alphacl-cifar10-resnet18": {
        "optim.name": "adam", "optim.learning_rate": 0.01, "optim.weight_decay": 0.0, "batch_size": 128, "epochs": 500,
        "projector.hidden": 512, "projector.features": 128, "optim.cosine_epochs": 50_000 // 128,
        "loss.options": {"rule": "direct", "exponent": 4.0, "temperature": 0.5, "epsilon": 0.0},
    },
    "alphacl-cifar10-resnet18-nce": {"method": "simclr", "loss.name": "infonce", "temperature": 0.5},
    "alphacl-cifar10-resnet18-square": {"loss.options": {"rule": "square", "temperature": 5.0}},
    "alphacl-cifar10-resnet18-exact-inverse": {
        "loss.options": {"rule": "inverse-power", "temperature": 0.5, "gamma": 2.0}
    },
    "alphacl-stl10-resnet18": {
        "source.split": "train+unlabeled", "stem": "large", "optim.cosine_epochs": 105_000 // 128, "batch_size": 128,
    },
    "alphacl-stl10-resnet18-p8": {
        "loss.options": {"rule": "direct", "exponent": 8.0, "temperature": 0.5, "epsilon": 0.0}
    },
    "alphacl-cifar100-resnet50": {"encoder": "resnet50", "optim.learning_rate": 0.001, "batch_size": 128},
    "alphacl-stl10-resnet50-large-nce": {
        "batch_size": 256, "optim.cosine_epochs": 105_000 // 256, "optim.learning_rate": 0.001, "loss.name": "infonce",
    },
    "mio-cifar10-resnet18": {
        "optim.name": "sgd", "optim.learning_rate": 0.06, "optim.weight_decay": 5e-4, "batch_size": 128, "epochs": 200,
        "temperature": 0.2, "projector.hidden": 512, "projector.features": 128, "projector.norm": "none",
    },
    "mio-cifar100-resnet18-simclr": {"temperature": 0.1, "loss.name": "infonce", "optim.learning_rate": 0.06},
    "mio-stl10-resnet18-dclw": {"temperature": 0.1, "loss.name": "dclw", "optim.learning_rate": 0.03, "stem": "large"},
    "mio-tinyimagenet-resnet18-moco": {
        "temperature": 0.07, "target.queue_size": 4096, "target.momentum": 0.99, "optim.learning_rate": 0.03,
    },
    "mio-cifar10-resnet18-byol": {
        "projector.hidden": 1024, "projector.features": 256, "target.predictor_hidden": 1024, "target.momentum": 0.99,
    },
    "mio-cifar10-resnet18-barlow": {"projector.hidden": 2048, "projector.features": 2048},
    "mio-cifar10-resnet9": {"encoder": "resnet9", "epochs": 500, "batch_size": 128},
    "mio-cifar100-resnet9-byol": {"encoder": "resnet9", "epochs": 200},
    "ncl-cifar100-resnet18": {
        "optim.name": "lars", "optim.learning_rate": 0.4, "optim.weight_decay": 1e-4, "optim.trust": 0.02,
        "optim.trust_clip": True, "batch_size": 256, "epochs": 200, "temperature": 0.2, "optim.warmup_epochs": 10.0,
        "projector.hidden": 2048, "projector.features": 256, "output.nonnegative": "relu-gelu", "stem": "small-padded",
    },
    "ncl-imagenet100-resnet18": {
        "projector.hidden": 4096, "projector.features": 512, "batch_size": 256, "epochs": 200,
        "output.nonnegative": "relu",
        "optim.learning_rate": 0.3, "stem": "large",
    },
    "ncl-imagenet100-resnet18-released": {
        "projector.hidden": 16384, "projector.features": 2048, "batch_size": 128, "epochs": 100,
        "optim.learning_rate": 0.3 * 128 / 256,
    },
    "ncl-imagenet100-resnet18-supervised-nce-projector": {
        "projector.hidden": 16384, "projector.features": 2048, "epochs": 100, "output.nonnegative": "relu",
    },
    "ncl-imagenet100-resnet18-finetune-nce": {"epochs": 50, "output.nonnegative": "relu", "projector.kind": "none"},
    "ncl-cifar10-resnet18-finetune": {"epochs": 30, "optim.learning_rate": 0.4, "optim.trust": 0.02, "batch_size": 256},
    "ncl-dsprites-convnet": {"optim.name": "adam", "optim.learning_rate": 1e-4, "batch_size": 64},
    "mio-cifar10-resnet50-released": {
        "optim.name": "lars", "optim.learning_rate": 1.5, "optim.weight_decay": 1e-6, "optim.trust": 1e-3,
        "batch_size": 128, "epochs": 250, "optim.cosine_epochs": 1000.0, "temperature": 0.5, "stem": "small-cut",
        "projector.hidden": 2048, "projector.features": 128, "source.holdout": 0.2,
    },
    "ncl-cifar10-resnet18-spectral-l1": {
        "batch_size": 256, "optim.weight_decay": 1e-4, "epochs": 200,
        "loss.options": {"loss": "spectral", "weight": 0.01, "normalize": False},
    },
    "directclr-imagenet-resnet50": {
        "optim.name": "lars", "optim.learning_rate": 4.8, "optim.weight_decay": 1e-6, "optim.trust": 1e-3,
        "batch_size": 4096, "epochs": 100, "temperature": 0.1, "output.d0": 360, "optim.warmup_epochs": 10.0,
        "optim.final_share": 0.001, "initial": "normal-zero", "loss.negatives": "cross-view",
    },
    "directclr-imagenet-resnet50-simclr": {
        "projector.hidden": 2048, "projector.features": 128, "projector.norm": "batch",
        "projector.output_norm": "batch",
    },
    "directclr-imagenet-resnet50-low-rank": {"projector.kind": "low-rank", "projector.rank": 360, "output.d0": "all"},
    "imbalanced-cifar10-resnet50": {
        "optim.name": "adam", "optim.learning_rate": 0.001, "batch_size": 512, "epochs": 1000, "projector.features": 2,
        "source.class_counts": [750, 750, 1500],
        "loss.options": {"num_negatives": 512, "supervised": True, "normalize": "ball"},
    },
    "imbalanced-cifar10-resnet50-heavy-ucl": {
        "source.class_counts": [150, 150, 2700],
        "loss.options": {"num_negatives": 512, "supervised": False, "normalize": "ball"},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_a_recipe_has_the_figures_of_its_paper(name: str) -> None:
    settings = recipe_named(name).settings
    assert {path: settings[path] for path in FIGURES[name]} == FIGURES[name]


def first_losses(settings: TrainSettings, folder: Path) -> list[float]:
    """Losses of two steps of the training job as ``train`` builds it; nothing is written."""
    check_choices(settings)
    placement = place(settings.engine.device, settings.engine.precision)
    source = open_user_data(settings, UserInputs(), Reporter(quiet=True))
    assembled = assemble(resolve_holdout(settings, source), source, placement, UserInputs())
    refuse_idle(settings, assembled.resolution.idle)
    job = training_job(assembled, RunFolder(folder / "run"))
    job.engine.setup(job.method, job.optimizer)
    job.method.train()
    batches = zip(range(2), job.loader.epoch(0, first_batch=0), strict=False)
    return [take_step(job, batch, Position(0, number, number)).loss for number, batch in batches]


@pytest.mark.slow
@pytest.mark.parametrize("name", all_recipes())
def test_a_recipe_takes_two_steps_at_its_own_hyper_parameters(name: str, tmp_path: Path) -> None:
    """Its own batch is used, in chunks if it does not fit 16 GiB; on a CPU photographs have a seventh of their side."""
    settings = recipe_named(name).settings
    side = SIDES.get(name.split("-")[1], 224 if torch.cuda.is_available() else 224 // 7)
    counts = settings.get("source.class_counts", ())
    queue = settings.get("target.queue_size", 0) if settings["method"] == "moco" else 0
    train_share = 1 - settings.get("source.holdout", 0.0)
    number = max(math.ceil((2 * settings["batch_size"] + len(CLASSES)) / train_share), queue)
    labels = np.repeat(CLASSES[: len(counts)], counts) if counts else np.resize(CLASSES, number)
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), side, side, 3), dtype=np.uint8)
    data = tmp_path / "pictures.npz"
    np.savez(data, images=pixels, labels=labels)
    most = 256 if settings["encoder"] == "resnet50" else 512  # 22 MB of activations for a picture of 32 px
    fields = {**settings, "data": str(data), **{path: "auto" for path in ELSEWHERE if path in settings}}
    if settings["batch_size"] > most:
        fields |= {"engine.chunk_size": 256, "engine.chunk_norm": True}
    losses = first_losses(build(TrainSettings, nest(fields), name), tmp_path)
    assert len(losses) == 2
    assert all(math.isfinite(loss) for loss in losses)
