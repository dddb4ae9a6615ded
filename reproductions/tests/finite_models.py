"""Random finite models of augmentation for the property tests, as plain lists and as the package's records."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from reproductions.ncl2024.latent_classes import LatentModel


@dataclass(frozen=True)
class Drawn:
    """One random model: probabilities as lists, for the oracles, and a generator for whatever else a test needs."""

    prior: list[float]
    emission: list[list[float]]
    rng: np.random.Generator

    @property
    def model(self) -> LatentModel:
        return LatentModel(*(torch.tensor(p, dtype=torch.float64) for p in (self.prior, self.emission)))

    def features(self, num_features: int, *, nonnegative: bool = False) -> Tensor:
        z = self.rng.normal(size=(len(self.emission[0]), num_features))
        return torch.from_numpy(np.abs(z) if nonnegative else z)


def draw(num_sources: int, num_views: int, seed: int, *, unique: bool, prior: list[float] | None = None) -> Drawn:
    """Emissions with about half of their entries zero; every view occurs; ``unique`` gives each source its own view."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.1, 1.0, num_sources)
    emission = rng.uniform(0.05, 1.0, (num_sources, num_views)) * (rng.uniform(size=(num_sources, num_views)) < 0.5)
    emission[rng.integers(num_sources, size=num_views), np.arange(num_views)] += 0.5  # every view occurs
    emission[:, rng.integers(num_views)] += 0.1  # every source emits something
    if unique:
        own = np.diag(rng.uniform(0.2, 1.0, num_sources))
        emission = np.concatenate([own, emission], axis=1)
    emission /= emission.sum(axis=1, keepdims=True)
    return Drawn(prior or (weights / weights.sum()).tolist(), emission.tolist(), rng)


seeds = st.integers(0, 2**32 - 1)
few_sources, few_views = st.integers(1, 5), st.integers(2, 8)
any_models = st.builds(draw, few_sources, few_views, seeds, unique=st.booleans())
identifiable_models = st.builds(draw, few_sources, few_views, seeds, unique=st.just(True))


@st.composite
def paired_models(draw_from: st.DrawFn, *, unique: bool = False) -> tuple[Drawn, Drawn]:
    """Two kinds of views of the same sources."""
    num_sources = draw_from(few_sources)
    first = draw(num_sources, draw_from(few_views), draw_from(seeds), unique=unique)
    second = draw(num_sources, draw_from(few_views), draw_from(seeds), unique=unique, prior=first.prior)
    return first, second
