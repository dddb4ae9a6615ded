"""Symmetric matrices with drawn spectra under a random rotation: never diagonal, where some probes have no variance."""

# P dimensions

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

SPECTRA = 200


@dataclass(frozen=True)
class Known:
    """A matrix with its eigenvalues (ascending) and eigenvectors (columns)."""

    matrix_PP: Tensor
    values_P: Tensor
    vectors_PP: Tensor

    def share_up_to(self, start_P: Tensor, threshold: float) -> float:
        """Share of a vector in the eigenvectors whose values are at most the threshold."""
        weights_P = (self.vectors_PP.T @ (start_P / start_P.norm())).square()
        return float(weights_P[self.values_P <= threshold].sum())


def known_spectrum(rng: np.random.Generator, *, has_repeats: bool = True) -> Known:
    """Bulks, outliers, zeros, negative tails, repeated values and scales from 1e-6 to 1e6, by chance."""
    dims = int(rng.integers(5, 120))
    kinds = [
        lambda n: rng.normal(size=n),
        lambda n: rng.exponential(size=n),
        np.zeros,
        lambda n: rng.integers(-2 * has_repeats, 1 + 2 * has_repeats, size=n).astype(float),
        lambda n: 1e-4 * rng.normal(size=n),
        lambda n: 60 * rng.random(size=n),
        lambda n: -rng.random(size=n),
    ]
    parts = rng.multinomial(dims, np.ones(len(kinds)) / len(kinds))
    values = np.sort(np.concatenate([kind(n) for kind, n in zip(kinds, parts, strict=True)]))
    values *= 10.0 ** rng.integers(-6, 7)
    vectors, _ = np.linalg.qr(rng.normal(size=(dims, dims)))
    matrix = vectors * values @ vectors.T
    return Known(torch.from_numpy((matrix + matrix.T) / 2), torch.from_numpy(values), torch.from_numpy(vectors))


def gaussian(rng: np.random.Generator, dims: int) -> Tensor:
    """A drawn probe."""
    return torch.from_numpy(rng.normal(size=dims))
