"""Streamed covariances equal those of all rows at once, and spectra of 12 decades come back; floors of rounding."""

# N samples, D features

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint.diagnostics.spectra import covariance_spectrum
from counterpoint.diagnostics.streaming_covariance import (
    StreamingCovariance,
    arithmetic_floor,
    computed_floor,
    rounding_floor,
)
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


@pytest.mark.parametrize("shape", [(1300, 7), (700, 600), (40, 90), (1201, 600), (512, 512)])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_every_batch_size_gives_the_spectrum_of_all_rows(shape: tuple[int, int], offset: float) -> None:
    z_ND = draw(*shape) + offset
    expected = torch.from_numpy(oracle.covariance_singular_values(z_ND.numpy()))
    for size in (1, 2, 63, 512, len(z_ND) - 1, len(z_ND)):
        if size == 1 and shape[1] > 500:
            continue
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


def test_the_batch_size_changes_no_bit() -> None:
    z_ND = draw(1500, 20)
    spectra = [streamed(z_ND, size).spectrum() for size in (1, 7, 512, 1500)]
    assert all(torch.equal(spectrum, spectra[0]) for spectrum in spectra)


def test_a_look_in_between_changes_nothing() -> None:
    z_ND = draw(1500, 20)
    looked = StreamingCovariance()
    for batch in z_ND.split(300):
        looked.update(batch)
        if looked.num_samples > 1:
            looked.spectrum()
    assert torch.equal(looked.spectrum(), streamed(z_ND, 1500).spectrum())


@pytest.mark.parametrize("n", [300, 3000])
def test_twelve_decades_come_back_in_float64(n: int) -> None:
    lambda_D = torch.logspace(0, -12, 64, dtype=torch.float64)
    found = streamed(with_spectrum(lambda_D, n), 100).spectrum()
    # The covariance is known to a few eps of its largest value, hence 1e-12 to a few parts in ten thousand.
    assert float((found / lambda_D - 1).abs().max()) < 2e-3
    assert float((found / lambda_D - 1).abs()[:32].max()) < 1e-8


def test_values_below_the_floor_of_float64_are_none() -> None:
    lambda_D = torch.tensor([1.0, 1e-6, 1e-18], dtype=torch.float64)
    stream = streamed(with_spectrum(lambda_D, 2000), 256)
    assert stream.spectrum()[2] == 0
    assert arithmetic_floor(stream.spectrum(), [0.0]) == pytest.approx(3 * EPS, rel=1e-6)
    assert arithmetic_floor(stream.spectrum(), [1e-9]) == 1e-9


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e-3, 0.0), (37.0, 0.0), (1.0, 3.0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rounded_features_have_the_floor_that_is_derived(scale: float, offset: float, dtype: torch.dtype) -> None:
    """Of 32 dimensions 16 are filled; what rounding leaves in the others is read off singular values of the rows."""
    z_ND = scale * (draw(4000, 16) @ torch.linalg.qr(draw(32, 32, 5)).Q[:16] + offset * draw(1, 32, 6))
    rows = z_ND.to(dtype).double().numpy()
    lambda_D = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2 / (len(rows) - 1)
    floor = rounding_floor(float(z_ND.square().sum(dim=1).mean()), 32, dtype=dtype)
    # float16 of 1e-3 is nearly subnormal: its steps are wider than the formula's.
    if not (dtype == torch.float16 and scale < 1):
        assert lambda_D[16:].mean() == pytest.approx(floor, rel=0.25)
    assert lambda_D[15] > 100 * floor


def test_the_floor_of_a_computation_is_its_error_without_what_all_rows_share() -> None:
    exact_ND, error_ND = draw(5000, 6), draw(5000, 6, 3)
    assert computed_floor(exact_ND + 0.1 * error_ND, exact_ND) == pytest.approx(0.01, rel=0.05)
    assert computed_floor(exact_ND + 5.0, exact_ND) < 1e-28


def test_a_layer_in_float32_stops_at_its_floor() -> None:
    """A product of rank 8 in float32 leaves directions at the level of its rounding, and nothing far below."""
    x_ND, w_DD = draw(3000, 256), draw(256, 8) @ draw(8, 64, 1)
    computed_ND = x_ND.float() @ w_DD.float()
    stream = streamed(computed_ND, 500)
    rows = computed_ND.double().numpy()
    lambda_D = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2 / (len(rows) - 1)
    measured = computed_floor(computed_ND, x_ND.float().double() @ w_DD.float().double())
    storage = rounding_floor(stream.mean_square, 64)
    assert measured > storage
    # The weights' own rounding is of full rank and belongs to the layer; what comes on top is the measured floor.
    assert lambda_D[8:].min() > 0.1 * storage
    assert math.log10(float(lambda_D[0]) / measured) > 12


def test_bad_batches_are_refused() -> None:
    stream = StreamingCovariance()
    for act in (stream.spectrum, lambda: (stream.update(draw(1, 3)), stream.spectrum())):
        with pytest.raises(ValueError, match=r"a covariance needs at least 2 rows, got [01]"):
            act()
    with pytest.raises(ValueError, match="batch must have 3 features like those before, got 4"):
        stream.update(draw(2, 4))
    with pytest.raises(ValueError, match="batch must be finite, but row 1 holds"):
        stream.update(torch.tensor([[1.0, 2.0, 3.0], [1.0, math.nan, 2.0]]))
    with pytest.raises(TypeError, match="batch must be a floating-point tensor"):
        stream.update(torch.ones(2, 3, dtype=torch.int64))
    assert stream.num_samples == 1
