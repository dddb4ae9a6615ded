"""Train many small encoders on each of several data sets, healthy and faulty ones, and rank them without labels.

    python benchmarks/select_encoders.py photos/ more.npz --encoders 24 --out selection

Method, temperature, views, rate, batch, length and projector differ from encoder to encoder, and every fourth has a
fault: views that change nothing, hardly any training, a rate or a temperature far off. Of each figure of ``select`` it
prints Spearman's correlation with linear probe and kNN, and what is lost by taking its best encoder. Encoders that the
folder already has are not trained again.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata

from counterpoint.core.array_layout import fit_images, to_unit_float
from counterpoint.core.data_settings import SourceSettings
from counterpoint.core.files import read_sealed
from counterpoint.core.run import Run
from counterpoint.core.run_records import EvaluationRecord, read_record
from counterpoint.core.validation import nest
from counterpoint.core.written_tables import markdown_table
from counterpoint.data.sources import open_source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.protocol import evaluate
from counterpoint.runs.selection import RANKERS, select
from counterpoint.runs.training import train

SIDE, NUM_TRAINED = 12, 800
REPRESENTATION, PROTOCOLS = "representation", ("linear probe", "knn")
LOW_IS_GOOD = ("alignment", "uniformity", "hubness")
NUM_RESAMPLES = 400
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


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's correlation."""
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


@dataclass(frozen=True)
class Ranked:
    """The encoders of one data set.

    Attributes:
        name: of the data.
        accuracies: (n, 2) of the representation, by ``PROTOCOLS``.
        figures: (n, figures), by ``RANKERS``.
        places: of the encoders as ``select`` ranks them, the first one first.
    """

    name: str
    accuracies: np.ndarray
    figures: np.ndarray
    places: list[int]

    def correlations(self, rows: np.ndarray) -> np.ndarray:
        """Spearman's of each figure with each accuracy, (figures, 2), of some encoders."""
        return np.array(
            [[rank_correlation(column, each) for each in self.accuracies[rows].T] for column in self.figures[rows].T]
        )

    def losses(self) -> np.ndarray:
        """Points of each accuracy lost by taking the best encoder of each figure, (figures, 2)."""
        signs = np.array([-1 if ranker.name in LOW_IS_GOOD else 1 for ranker in RANKERS])
        chosen = (signs * self.figures).argmax(axis=0)
        return 100 * (self.accuracies.max(axis=0) - self.accuracies[chosen])


def ranked_set(data: str, num_encoders: int, out: Path) -> Ranked:
    """Train, evaluate and rank the encoders of one data set."""
    pictures, classes = read_set(data)
    name = Path(data).stem
    (out / name).mkdir(parents=True, exist_ok=True)
    known = {
        f"{place:03}": run
        for place in range(num_encoders)
        if (run := encoder_of(place, pictures, classes, out / name / f"{place:03}"))
    }
    found = select(list(known.values()), quiet=True)
    order = list(known)
    by_name = {each.name: each for each in found.candidates}
    accuracies = []
    for run in known.values():
        file = run.folder.evaluation
        record = read_record(EvaluationRecord, read_sealed(file), str(file))
        rows = [record.row(REPRESENTATION, protocol) for protocol in PROTOCOLS]
        accuracies.append([row.figure if row else np.nan for row in rows])
    figures = [[by_name[key].figures[ranker.key] for ranker in RANKERS] for key in order]
    return Ranked(name, np.array(accuracies), np.array(figures), [order.index(each.name) for each in found.candidates])


def report(sets: Sequence[Ranked]) -> str:
    """Mean correlations over all sets with an interval by a bootstrap over encoders, and losses set by set."""
    draws = np.random.default_rng(0)
    whole = np.mean([each.correlations(np.arange(len(each.figures))) for each in sets], axis=0)
    resampled = [
        np.mean([each.correlations(draws.integers(0, len(each.figures), len(each.figures))) for each in sets], axis=0)
        for _ in range(NUM_RESAMPLES)
    ]
    low, high = np.nanquantile(resampled, [0.025, 0.975], axis=0)
    lost = [each.losses() for each in sets]
    head = ["figure", *PROTOCOLS, *(f"points lost, {each.name}" for each in sets)]
    rows = [
        [
            ranker.key,
            *(f"{whole[row, k]:+.2f} ({low[row, k]:+.2f} to {high[row, k]:+.2f})" for k in range(len(PROTOCOLS))),
            *(" / ".join(f"{points:.1f}" for points in each[row]) for each in lost),
        ]
        for row, ranker in enumerate(RANKERS)
    ]
    lines = [markdown_table(head, rows, "l" + "r" * (len(head) - 1)), ""]
    for each in sets:
        gaps = 100 * (each.accuracies.max(axis=0) - each.accuracies[each.places[0]])
        rho = [-rank_correlation(np.argsort(each.places), column) for column in each.accuracies.T]
        lines.append(
            f"{each.name}: {len(each.places)} encoders; the order of select has {rho[0]:+.2f} with the probe and "
            f"{rho[1]:+.2f} with kNN, and its first encoder loses {gaps[0]:.1f} and {gaps[1]:.1f} points."
        )
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Train, rank, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="pictures with classes, more than 800: anything that train takes")
    parser.add_argument("--encoders", type=int, default=24, metavar="N", help="of each set (default 24)")
    parser.add_argument("--out", default="selection", help="folder of the runs (default selection)")
    flags = parser.parse_args(words)
    print(report([ranked_set(each, flags.encoders, Path(flags.out)) for each in flags.data]))


if __name__ == "__main__":
    main()
