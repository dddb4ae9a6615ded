"""Train many small encoders on each of several data sets, healthy and faulty ones, and rank them without labels.

    python benchmarks/select_encoders.py photos/ more.npz --encoders 24 --out selection

Method, temperature, views, rate, batch, length and projector differ from encoder to encoder, and every fourth has a
fault: views that change nothing, hardly any training, a rate or a temperature far off. Of each figure of ``select`` it
prints Spearman's correlation with linear probe and kNN, and what is lost by taking its best encoder; the same of 100,
200 and 400 labels. Encoders that the folder already has are not trained again.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import rankdata

from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.files import read_sealed
from counterpoint.core.run import Run
from counterpoint.core.schemas import EvaluationRecord, read_record
from counterpoint.core.settings import LookSettings, SourceSettings
from counterpoint.core.terminal_text import TextTable
from counterpoint.core.validation import nest
from counterpoint.data.sources import open_source
from counterpoint.diagnostics.label_agreement import left_out_places
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import extract
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.evaluation.protocol import evaluate
from counterpoint.nn.resizing import fit_images
from counterpoint.runs.selection import IDENTIFIED, PARTICIPATION, select
from counterpoint.runs.training import train

SIDE, MOST_TRAINED, MOST_EPOCHS = 12, 2000, 30
NUM_LABELS, LABEL_DRAWS = (100, 200, 400), 5
REPRESENTATION, PROTOCOLS = "representation", ("linear probe", "knn")
RANKERS = (IDENTIFIED, PARTICIPATION)  # of each protocol
NUM_RESAMPLES = 400
BEHIND_ALL = 1e6  # taken off the figures of encoders with a serious fault, which stand last
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
    draws.random()  # those of the length are its own
    settings: dict[str, Any] = {
        "method": method,
        "encoder": "convnet",
        "epochs": int(np.exp(np.random.default_rng([7, place]).uniform(np.log(4), np.log(MOST_EPOCHS)))),
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


def num_trained(pictures: np.ndarray) -> int:
    """Number of the pictures that are trained on; the rest are queries."""
    return min(MOST_TRAINED, len(pictures) // 2)


def encoder_of(place: int, pictures: np.ndarray, classes: np.ndarray, folder: Path) -> Run | None:
    """A trained and evaluated run, or the one that the folder holds; None if the training stopped."""
    num = num_trained(pictures)
    own = {"data": pictures[:num], "labels": classes[:num]}
    run, error = Run(folder, **own), folder.with_suffix(".error")
    if error.exists():
        return None
    if not run.folder.evaluation.exists():
        try:
            settings = {"source.holdout": 0.0, "seed": place, **drawn_settings(place)}
            train(own["data"], labels=own["labels"], out=str(folder), quiet=True, **nest(settings))
        except Exception as caught:  # a training that diverges has no encoder to choose
            error.write_text(f"{type(caught).__name__}: {caught}", encoding="utf-8")
            return None
        rest = {"test_data": pictures[num:], "test_labels": classes[num:]}
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
        figures: by name, (draws, n); more is better. One draw without labels.
        told: by ``RANKERS``, how many are told apart from the best one, and of how many of these its accuracy is worse.
    """

    name: str
    accuracies: np.ndarray
    figures: Mapping[str, np.ndarray]
    told: Sequence[tuple[int, int]]

    def correlations(self, rows: Any = slice(None)) -> np.ndarray:
        """Spearman's of each figure with each accuracy, (figures, 2), of some encoders; means over draws."""
        return np.array(
            [
                [np.mean([rank_correlation(draw[rows], each[rows]) for draw in draws]) for each in self.accuracies.T]
                for draws in self.figures.values()
            ]
        )

    def losses(self) -> np.ndarray:
        """Points of each accuracy lost by taking the best encoder of each figure, (figures, 2)."""
        best = self.accuracies.max(axis=0)
        return np.array(
            [100 * (best - self.accuracies[draws.argmax(axis=1)]).mean(axis=0) for draws in self.figures.values()]
        )


def ranked_set(data: str, num_encoders: int, out: Path) -> Ranked:
    """Train, evaluate and rank the encoders of one data set."""
    pictures, classes = read_set(data)
    name = Path(data).stem
    (out / name).mkdir(parents=True, exist_ok=True)
    runs = {
        f"{place:03}": run
        for place in range(num_encoders)
        if (run := encoder_of(place, pictures, classes, out / name / f"{place:03}"))
    }
    chosen = {candidate.name: candidate for candidate in select(list(runs.values()), quiet=True).candidates}
    last_N = np.array([BEHIND_ALL if chosen[key].faults else 0.0 for key in runs])
    figures = np.array([[chosen[key].figures[ranker.name].value for ranker in RANKERS] for key in runs])
    figures -= last_N[:, None]
    accuracies, labelled = [], []
    for run in runs.values():
        file = run.folder.evaluation
        record = read_record(EvaluationRecord, read_sealed(file), str(file))
        rows = [record.find_row(REPRESENTATION, protocol) for protocol in PROTOCOLS]
        accuracies.append([row.figure if row else np.nan for row in rows])
        labelled.append(places_by_labels(run, torch.from_numpy(classes)))
    told = []
    for ranker, (protocol, best) in zip(RANKERS, enumerate(figures.argmax(axis=0)), strict=True):
        apart = [k for k, key in enumerate(runs) if k != best and chosen[key].figures[ranker.name].is_told_apart]
        told.append((len(apart), sum(accuracies[k][protocol] <= accuracies[best][protocol] for k in apart)))
    by_name = {ranker.name: figures[None, :, k] for k, ranker in enumerate(RANKERS)}
    by_name |= dict(zip((f"{size} labels" for size in NUM_LABELS), np.stack(labelled, axis=-1) - last_N, strict=True))
    return Ranked(name, np.array(accuracies), by_name, told)


def places_by_labels(run: Run, labels_N: torch.Tensor) -> np.ndarray:
    """Scores of the classes by so many labels of training samples, (sizes, draws); see ``left_out_places``."""
    subject = open_subject(run, Samples(), LookSettings(), Reporter(quiet=True))
    z_ND = extract(subject.encoder, subject.source).representation
    scores = np.empty((len(NUM_LABELS), LABEL_DRAWS))
    for draw in range(LABEL_DRAWS):
        order_N = torch.randperm(len(z_ND), generator=torch.Generator().manual_seed(draw))
        for row, size in enumerate(NUM_LABELS):
            place_M = left_out_places(z_ND[order_N[:size]], labels_N[order_N[:size]])
            scores[row, draw] = -float(place_M.double().log1p().mean())
    return scores


def report(sets: Sequence[Ranked]) -> str:
    """Mean correlations over all sets with an interval by a bootstrap over encoders, and losses set by set."""
    draws = np.random.default_rng(0)
    means = np.mean([each.correlations() for each in sets], axis=0)
    resampled = [
        np.mean([each.correlations(draws.integers(0, n, n)) for each in sets for n in [len(each.accuracies)]], axis=0)
        for _ in range(NUM_RESAMPLES)
    ]
    low, high = np.nanquantile(resampled, [0.025, 0.975], axis=0)
    head = ["figure", *PROTOCOLS, *(f"points lost, {each.name}" for each in sets)]
    lost = [each.losses() for each in sets]
    rows = [
        [
            name,
            *(f"{means[row, k]:+.2f} ({low[row, k]:+.2f} to {high[row, k]:+.2f})" for k in range(len(PROTOCOLS))),
            *(" / ".join(f"{points:.1f}" for points in each[row]) for each in lost),
        ]
        for row, name in enumerate(sets[0].figures)
    ]
    lines = [TextTable(head, rows, "l" + "r" * (len(head) - 1)).to_markdown(), ""]
    for each in sets:
        own, both = each.correlations(), rank_correlation(*each.accuracies.T)
        lines.append(f"{each.name}: {len(each.accuracies)} encoders, Spearman's of probe with kNN {both:+.2f}")
        for k, (ranker, (num, right)) in enumerate(zip(RANKERS, each.told, strict=True)):
            lines.append(
                f"- {ranker.name} with the {ranker.judge} {own[k, k]:+.2f}; of {num} told apart from its best one, "
                f"{right} are not better by the {ranker.judge}"
            )
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Train, rank, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="pictures with classes, at least 200: anything that train takes")
    parser.add_argument("--encoders", type=int, default=24, metavar="N", help="of each set (default 24)")
    parser.add_argument("--out", default="selection", help="folder of the runs (default selection)")
    flags = parser.parse_args(words)
    print(report([ranked_set(data, flags.encoders, Path(flags.out)) for data in flags.data]))


if __name__ == "__main__":
    main()
