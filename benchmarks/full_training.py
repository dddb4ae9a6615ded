"""A whole run on CIFAR-10 as lightly's benchmark has it, and its accuracy after the last epoch."""

import json
from pathlib import Path
from typing import Any

from measuring import Quartiles, quartiles
from training_report import Verdict, at_least, at_most
from training_runs import Setup

import counterpoint as cp
from counterpoint.core.settings import SourceSettings
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import extract
from counterpoint.evaluation.knn import Vote, knn_predict

EPOCHS, NEIGHBOURS, VOTE_TEMPERATURE = 200, 200, 0.1  # of lightly's CIFAR-10 benchmark
BASE_RATE, BASE_BATCH, DECAY = 0.06, 128, 5e-4
LEAST_ACCURACY, MOST_SECONDS = 0.87, 6.0


def parts_of_cifar(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Data and source settings of both parts: a folder of two packs, or one as torchvision keeps it."""
    if (folder / "train.npz").exists():
        return {split: (str(folder / f"{split}.npz"), {}) for split in ("train", "test")}
    return {split: ("cifar10", {"root": str(folder), "split": split}) for split in ("train", "test")}


def train_to_the_end(setup: Setup, folder: Path, out: Path, *, num_epochs: int = EPOCHS) -> list[Verdict]:
    """Train on all training images and classify the test images by their neighbours among them.

    Args:
        setup: encoder, batch and device.
        folder: holds CIFAR-10.
        out: run folder.
        num_epochs: passes over the training images.
    """
    parts = parts_of_cifar(folder)
    data, source = parts["train"]
    run = cp.train(
        data,
        out=out,
        encoder=setup.encoder,
        batch_size=setup.batch_size,
        epochs=num_epochs,
        temperature=0.5,
        source={**source, "holdout": 0.0},
        optim={"name": "sgd", "learning_rate": BASE_RATE * setup.batch_size / BASE_BATCH, "weight_decay": DECAY},
        engine={"device": setup.device, "precision": "bf16" if setup.device == "cuda" else "fp32"},
    )
    seconds = [record["seconds"] for record in read_records(run.folder.timings)]
    accuracy = last_accuracy(run, parts)
    return [
        at_least(f"kNN-{NEIGHBOURS} after {num_epochs} epochs, the last", exactly(accuracy), LEAST_ACCURACY, unit=""),
        at_most("median epoch of that run", quartiles(seconds), MOST_SECONDS, unit="s"),
    ]


def last_accuracy(run: Any, parts: dict[str, tuple[str, dict[str, Any]]]) -> float:
    """Share of the test images whose nearest training images vote for their class."""
    encoder = cp.load(run)
    sources: list[Source] = [
        open_source(data, SourceSettings(**source), labels=None, progress=Reporter(quiet=True).bar)
        for data, source in parts.values()
    ]
    bank, queries = (extract(encoder, source).representation for source in sources)
    labels, truth = (source.labels for source in sources)
    assert labels is not None
    assert truth is not None
    k = min(NEIGHBOURS, len(bank))
    predicted = knn_predict(bank, labels, queries, Vote(k, VOTE_TEMPERATURE))
    return float((predicted == truth).double().mean())


def read_records(path: Path) -> list[dict[str, Any]]:
    """Records of a file of lines of JSON."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def exactly(value: float) -> Quartiles:
    """A figure measured once."""
    return Quartiles(value, value, value)
