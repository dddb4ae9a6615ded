"""Lanczos on known spectra: orthonormal, exact moments, no ghosts, the same at any scale; and on a whole encoder."""

import numpy as np
import pytest
import torch
from known_spectra import SPECTRA, Known, gaussian, known_spectrum
from small_problems import dense_hessian, encoder, make, problem
from torch import Tensor

from counterpoint.diagnostics.curvature.hessian_products import hessian_operator
from counterpoint.diagnostics.curvature.operator_spectrum import lanczos, ritz


def many(rng: np.random.Generator) -> list[tuple[Known, Tensor, int]]:
    drawn = [known_spectrum(rng) for _ in range(SPECTRA)]
    return [(one, gaussian(rng, len(one.values_P)), int(rng.integers(1, len(one.values_P) + 3))) for one in drawn]


def test_moments_are_exact_up_to_twice_the_steps(rng: np.random.Generator) -> None:
    for known, start_P, steps in many(rng):
        tridiagonal = lanczos(known.matrix_PP.__matmul__, start_P, steps=steps)
        assert tridiagonal.orthogonality < 1e-12
        found = ritz(tridiagonal)
        scale = max(1e-300, float(known.values_P.abs().max()))
        weights_P = (known.vectors_PP.T @ (start_P / start_P.norm())).square()
        for power in range(2 * len(found.values_M)):
            ours = float((found.weights_M * (found.values_M / scale) ** power).sum())
            theirs = float((weights_P * (known.values_P / scale) ** power).sum())
            assert ours == pytest.approx(theirs, abs=1e-11)


def test_no_eigenvalue_comes_twice(rng: np.random.Generator) -> None:
    dims = 300
    values = np.concatenate([np.linspace(5, 60, 20), 1e-4 * rng.random(250), -1e-2 * rng.random(30)])
    vectors, _ = np.linalg.qr(rng.normal(size=(dims, dims)))
    matrix = torch.from_numpy(vectors * values @ vectors.T)
    for dtype in (torch.float64, torch.float32):
        symmetric = ((matrix + matrix.T) / 2).to(dtype)
        tridiagonal = lanczos(symmetric.__matmul__, gaussian(rng, dims).to(dtype), steps=150)
        found = ritz(tridiagonal).values_M
        assert int((found > 1).sum()) == 20
        assert torch.allclose(found[found > 1], torch.linspace(5, 60, 20, dtype=torch.float64), rtol=1e-5)


def test_a_count_of_ritz_values_is_no_count_of_eigenvalues() -> None:
    """A hundred steps see 12 values between 0 and 1 where there are 441, or 941: their weights say the share."""
    outliers = np.geomspace(1, 200, 60)[1:]
    for num_small in (441, 941):
        small = np.random.default_rng(0).random(num_small) ** 4
        values = torch.from_numpy(np.concatenate([outliers, np.linspace(-2, -0.01, 100), 0.9 * small + 1e-3]))
        is_small = (values > 0) & (values < 1)
        assert int(is_small.sum()) == num_small
        signs = torch.from_numpy(np.random.default_rng(1).choice([-1.0, 1.0], len(values)))
        found = ritz(lanczos(torch.diag(values).__matmul__, signs, steps=100))
        counted = (found.values_M > 0) & (found.values_M < 1)
        assert int(counted.sum()) < 30
        share = float(found.weights_M[counted].sum())
        assert share == pytest.approx(num_small / len(values), abs=0.02)


@pytest.mark.thorough
def test_residuals_bound_the_error_of_every_value(rng: np.random.Generator) -> None:
    for known, start_P, steps in many(rng)[:60]:
        found = ritz(lanczos(known.matrix_PP.__matmul__, start_P, steps=steps))
        slack = 1e-12 * float(known.values_P.abs().max())
        for value, residual in zip(found.values_M, found.residuals_M, strict=True):
            assert float((known.values_P - value).abs().min()) <= float(residual) + slack


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_end_of_the_space_is_found_at_any_scale(scale: float, rng: np.random.Generator) -> None:
    vectors, _ = np.linalg.qr(rng.normal(size=(40, 40)))
    values = np.repeat([-1.0, 0.5, 3.0], [5, 15, 20]) * scale
    matrix = torch.from_numpy(vectors * values @ vectors.T)
    tridiagonal = lanczos(((matrix + matrix.T) / 2).__matmul__, gaussian(rng, 40), steps=40)
    assert tridiagonal.is_exhausted
    found = ritz(tridiagonal)
    kept = found.values_M[found.weights_M > 1e-10] / scale
    assert kept.tolist() == pytest.approx([-1.0, 0.5, 3.0], rel=1e-12)


def test_a_zero_operator_is_all_zero() -> None:
    tridiagonal = lanczos(torch.zeros_like, torch.ones(6).double(), steps=4)
    assert tridiagonal.is_exhausted
    assert ritz(tridiagonal).values_M.tolist() == [0.0]


def test_neither_zero_steps_nor_a_zero_start_are_taken() -> None:
    with pytest.raises(ValueError, match="steps"):
        lanczos(torch.clone, torch.ones(3), steps=0)
    with pytest.raises(ValueError, match="zero vector"):
        lanczos(torch.clone, torch.zeros(3), steps=2)


@pytest.mark.parametrize("name", ["infonce", "mio-v3", "barlow-twins"])
@pytest.mark.sampled(3)
def test_at_full_order_it_is_the_dense_spectrum_of_an_encoder(name: str, rng: np.random.Generator) -> None:
    coupled = problem(make(name), encoder())
    dense_P = torch.linalg.eigvalsh(dense_hessian(coupled))
    dims = coupled.num_parameters
    tridiagonal = lanczos(hessian_operator(coupled).__matmul__, gaussian(rng, dims), steps=dims)
    values_M = ritz(tridiagonal).values_M
    # Equal eigenvalues (zeros of the symmetries) come once; all others one by one.
    reach = float(dense_P[-1] - dense_P[0])
    assert max(float((dense_P - value).abs().min()) for value in values_M) < 1e-10 * reach
    assert max(float((values_M - value).abs().min()) for value in dense_P) < 1e-10 * reach
