"""Helper of evaluation.py: evaluates a run in a fresh process; prints seconds and accuracies.

Arguments: run folder, implementation, width, pictures, calls.
"""

# N pictures, D features

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from beside_load import timed_calls
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import counterpoint as cp
from counterpoint.data.order import split_source

OURS, PEER = "Counterpoint", "scikit-learn"
LABELS, HOLDOUT = 10, 0.2
NEIGHBOURS, TEMPERATURE = 20, 0.1


@dataclass(frozen=True)
class Pictures:
    """Noisy patterns with their classes."""

    images: np.ndarray
    labels: np.ndarray


def pictures(num_pictures: int) -> Pictures:
    """A coarse pattern for each class, under noise; the same in every process."""
    rng = np.random.default_rng(0)
    labels = rng.integers(LABELS, size=num_pictures)
    patterns = np.repeat(np.repeat(rng.normal(size=(LABELS, 8, 8, 3)), 4, 1), 4, 2)
    values = 128 + 12 * patterns[labels] + 60 * rng.normal(size=(num_pictures, 32, 32, 3))
    return Pictures(values.clip(0, 255).astype(np.uint8), labels)


def small_network(width: int) -> nn.Module:
    """Three convolutions and a mean."""
    layers = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(64, width, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def evaluate_ours(run: Path, data: Pictures, width: int) -> dict[str, float]:
    """Accuracies by ``cp.evaluate``."""
    rows = cp.evaluate(cp.Run(run, data=data.images, labels=data.labels, encoder=small_network(width)), quiet=True).rows
    return {f"{row.features}, {row.protocol}": row.accuracy or 0.0 for row in rows}


def votes(distances: np.ndarray) -> np.ndarray:
    """Weights of the neighbours."""
    return np.exp(-distances / TEMPERATURE)


def evaluate_peer(run: Path, data: Pictures, width: int) -> dict[str, float]:
    """Accuracies of the same features by the loaded encoder, with kNN, probe and PCA of scikit-learn."""
    encoder = cp.load(run, encoder=small_network(width))
    is_query = np.zeros(len(data.labels), bool)
    is_query[split_source(len(is_query), torch.from_numpy(data.labels), HOLDOUT).held_out.numpy()] = True
    representation, embedding = (output.numpy() for output in encoder.both(data.images))
    flat = data.images.reshape(len(data.images), -1).astype(np.float32) / 255
    components = PCA(min(128, int((~is_query).sum()) - 1), svd_solver="randomized", random_state=0).fit(flat[~is_query])
    features = {"representation": representation, "embedding": embedding, "pixels (PCA)": components.transform(flat)}
    models = {
        "knn": KNeighborsClassifier(NEIGHBOURS, metric="cosine", weights=votes),  # pyright: ignore[reportArgumentType]
        "linear probe": make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)),
    }
    return {
        f"{name}, {kind}": float(
            model.fit(z_ND[~is_query], data.labels[~is_query]).score(z_ND[is_query], data.labels[is_query])
        )
        for name, z_ND in features.items()
        for kind, model in models.items()
    }


def main() -> None:
    """Time the calls."""
    run, provider, width, num_pictures, num_calls = sys.argv[1:]
    data = pictures(int(num_pictures))
    evaluate = evaluate_ours if provider == OURS else evaluate_peer
    seconds, accuracies = timed_calls(lambda: evaluate(Path(run), data, int(width)), int(num_calls))
    print(json.dumps({"seconds": seconds, "accuracies": accuracies}))


if __name__ == "__main__":
    main()
