"""Train many small encoders on each of several data sets, healthy and faulty ones, and rank them without labels.

    python benchmarks/select_encoders.py --fit digits patterns --publish photos/ more.npz --out selection

Method, temperature, views, rate, batch, length and projector differ from encoder to encoder, and every fourth has a
fault: views that change nothing, hardly any training, a rate or a temperature far off. The weights of the aggregate
(``runs.selection``) are chosen on the first sets; published are rank correlation with the linear probe and what is lost
by taking the first one, on the others. Encoders that the folder already has are not trained again.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from counterpoint.core.array_layout import fit_images, to_unit_float
from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.run import Run
from counterpoint.core.validation import nest
from counterpoint.data.sources import open_source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.protocol import evaluate
from counterpoint.runs.training import train

SIDE, NUM_TRAINED = 12, 800
METHODS = ("simclr", "simclr", "simclr", "ncl", "vicreg", "barlow-twins", "byol", "simsiam", "spectral")
WITH_TEMPERATURE = ("simclr", "ncl")
FAULTS: Sequence[Mapping[str, Any]] = (
    {"views.preset": "none"},
    {"optim.learning_rate": 1e-6},
    {"optim.learning_rate": 1e-1},
    {"method": "simclr", "temperature": 5.0},
    {"method": "simclr", "temperature": 0.01},
    {"views.crop_scale": (0.95, 1.0), "views.flip": 0.0, "views.jitter": 0.0, "views.grayscale": 0.0},
    {"epochs": 1, "optim.learning_rate": 1e-4},
    {"batch_size": 4, "method": "simclr", "epochs": 4},
)


def drawn_settings(place: int) -> dict[str, Any]:
    """Settings of an encoder by its number: the same on every data set."""
    draws = np.random.default_rng(place)
    method = str(draws.choice(METHODS))
    settings: dict[str, Any] = {
        "method": method,
        "encoder": "convnet",
        "epochs": int(np.exp(draws.uniform(np.log(4), np.log(17)))),
        "batch_size": int(draws.choice([16, 32, 64])),
        "optim.learning_rate": float(10 ** draws.uniform(-3.7, -2.3)),
        "projector.features": int(draws.choice([8, 32, 64, 128])),
        "views.crop_scale": (float(draws.choice([0.08, 0.2, 0.4, 0.7])), 1.0),
    }
    if draws.random() < 0.3:
        settings["projector.kind"] = str(draws.choice(["none", "linear"]))
        if settings["projector.kind"] == "none":
            del settings["projector.features"]
    temperature = float(np.exp(draws.uniform(np.log(0.05), np.log(1.5))))
    if method in WITH_TEMPERATURE:
        settings["temperature"] = temperature
    if place % 4 == 3:
        settings |= FAULTS[place // 4 % len(FAULTS)]
    return settings


def read_set(data: str) -> tuple[np.ndarray, np.ndarray]:
    """Small pictures and their classes, in an order of its own."""
    source = open_source(data, SourceSettings(), progress=Reporter(quiet=True).bar)
    assert source.labels is not None
    order = np.random.default_rng(0).permutation(len(source))
    pictures = to_unit_float(source.store.fetch(order.tolist()))
    fitted = fit_images(pictures, (pictures.shape[1], SIDE, SIDE)) if pictures.shape[2] > SIDE else pictures
    return (fitted * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy(), source.labels.numpy()[order]


def encoder_of(place: int, pictures: np.ndarray, classes: np.ndarray, folder: Path) -> Run | None:
    """A trained and evaluated run, or what the folder has of it; None of a training that stopped."""
    own = {"data": pictures[:NUM_TRAINED], "labels": classes[:NUM_TRAINED]}
    run, error = Run(folder, **own), folder.with_suffix(".error")
    if error.exists():
        return None
    if not run.folder.evaluation.exists():
        try:
            asked = {"source.holdout": 0.0, "seed": place, **drawn_settings(place)}
            train(own["data"], labels=own["labels"], out=str(folder), quiet=True, **nest(asked))
        except Exception as caught:  # a training that diverges has no encoder to choose
            error.write_text(f"{type(caught).__name__}: {caught}", encoding="utf-8")
            return None
        rest = {"test_data": pictures[NUM_TRAINED:], "test_labels": classes[NUM_TRAINED:]}
        evaluate(run, **rest, metrics=("knn", "linear-probe"), out=str(folder / "evaluation.json"), quiet=True)
    return run
