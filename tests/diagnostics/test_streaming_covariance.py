"""Streamed covariances equal those of all rows at once, and spectra of 12 decades come back; floors of rounding."""

# N samples, D features

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics.spectra import StreamingCovariance, covariance_spectrum
from oracles import feature_measures as oracle
from oracles.number_checks import assert_numbers

EPS = torch.finfo(torch.float64).eps


def draw(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def streamed(z_ND: Tensor, size: int) -> StreamingCovariance:
    stream = StreamingCovariance()
    for batch in z_ND.split(size):
        stream.update(batch)
    return stream


def with_spectrum(lambda_D: Tensor, n: int, seed: int = 0) -> Tensor:
    """Rows whose covariance has exactly these eigenvalues, in a random basis."""
    centred = draw(n, len(lambda_D), seed)
    q_ND = torch.linalg.qr(centred - centred.mean(dim=0)).Q
    turn_DD = torch.linalg.qr(draw(len(lambda_D), len(lambda_D), seed + 1)).Q
    return ((n - 1) * lambda_D).sqrt() * q_ND @ turn_DD


@pytest.mark.parametrize("shape", [(1300, 7), (40, 90), (1201, 300)])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_every_batch_size_gives_the_spectrum_of_all_rows(shape: tuple[int, int], offset: float) -> None:
    z_ND = draw(*shape) + offset
    expected = torch.from_numpy(oracle.covariance_singular_values(z_ND.numpy()))
    for size in (63, 512, len(z_ND) - 1, len(z_ND)):
        found = streamed(z_ND, size)
        assert found.num_samples == len(z_ND)
        # An offset of 1e4 rounds the rows themselves to 1e-12.
        limit = 1e-12 * float(expected[0]) * (1 if offset == 0 else 10)
        assert float((found.spectrum() - expected).abs().max()) < limit
        assert_numbers(found.mean_square, float(z_ND.square().sum(dim=1).mean()))


@given(n=st.integers(2, 30), d=st.integers(1, 12), size=st.integers(1, 31), seed=st.integers(0, 99))
@settings(max_examples=60)
def test_small_streams_are_the_one_shot_spectrum(n: int, d: int, size: int, seed: int) -> None:
    z_ND = draw(n, d, seed)
    expected = covariance_spectrum(z_ND)
    assert float((streamed(z_ND, size).spectrum() - expected).abs().max()) <= 1e-12 * float(expected[0])


@pytest.mark.parametrize("n", [300, 3000])
def test_twelve_decades_come_back_in_float64(n: int) -> None:
    lambda_D = torch.logspace(0, -12, 64, dtype=torch.float64)
    found = streamed(with_spectrum(lambda_D, n), 100).spectrum()
    # The covariance is known to a few eps of its largest value, hence 1e-12 to a few parts in ten thousand.
    assert float((found / lambda_D - 1).abs().max()) < 2e-3
    assert float((found / lambda_D - 1).abs()[:32].max()) < 1e-8


def test_values_below_the_floor_of_float64_are_none() -> None:
    stream = streamed(with_spectrum(torch.tensor([1.0, 1e-6, 1e-18], dtype=torch.float64), 2000), 256)
    assert stream.spectrum()[2] == 0
    assert stream.floor(float(stream.spectrum()[0])) == pytest.approx(3 * EPS, rel=1e-6)


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (37.0, 0.0), (1.0, 3.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rounded_features_have_the_floor_that_is_derived(scale: float, offset: float, dtype: torch.dtype) -> None:
    """Of 32 dimensions 16 are filled; what rounding leaves in the others is read off singular values of the rows."""
    z_ND = scale * (draw(4000, 16) @ torch.linalg.qr(draw(32, 32, 5)).Q[:16] + offset * draw(1, 32, 6))
    rows = z_ND.to(dtype).double().numpy()
    lambda_D = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2 / (len(rows) - 1)
    floor = streamed(z_ND, 4000).floor(0.0, dtype=dtype)
    assert lambda_D[16:].mean() == pytest.approx(floor, rel=0.25)
    assert lambda_D[15] > 100 * floor


def test_bad_batches_are_refused() -> None:
    stream = StreamingCovariance()
    for act in (stream.spectrum, lambda: (stream.update(draw(1, 3)), stream.spectrum())):
        with pytest.raises(ValueError, match=r"a covariance needs at least 2 rows, got [01]"):
            act()
    with pytest.raises(ValueError, match="batch must be finite, but row 1 holds"):
        stream.update(torch.tensor([[1.0, 2.0, 3.0], [1.0, math.nan, 2.0]]))
    assert stream.num_samples == 1
