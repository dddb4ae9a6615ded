"""One tiny trained run that all tests of this folder look at and none changes."""

from dataclasses import dataclass

import numpy as np
import pytest

import counterpoint as cp

NUM_CLASSES, PER_CLASS, NUM_FEATURES = 3, 25, 6


@dataclass(frozen=True)
class Sample:
    """Clusters of vectors with their classes."""

    data: np.ndarray
    labels: np.ndarray


def draw_clusters(seed: int) -> Sample:
    """Three overlapping clusters."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(NUM_CLASSES), PER_CLASS))
    centres = np.random.default_rng(0).normal(size=(NUM_CLASSES, NUM_FEATURES))
    return Sample((centres[labels] + rng.normal(size=(len(labels), NUM_FEATURES))).astype(np.float32), labels)


@pytest.fixture(scope="session")
def clusters() -> Sample:
    """What the run was trained on."""
    return draw_clusters(1)


@pytest.fixture(scope="session")
def other_clusters() -> Sample:
    """Other samples of the same kind."""
    return draw_clusters(2)


@pytest.fixture(scope="session")
def run(clusters: Sample, tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """Two epochs, with 40 % of each class held out."""
    return cp.train(
        data=clusters.data,
        labels=clusters.labels,
        epochs=2,
        batch_size=16,
        source={"holdout": 0.4},
        projector={"features": 8},
        quiet=True,
        out=str(tmp_path_factory.mktemp("evaluation") / "run"),
    )
