"""MIO, versions 1 to 3: each pair judged by itself, against the paper's double sums."""

# N samples per view, D features

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from loss_checks import (
    KERNELS,
    Oracle,
    assert_matches,
    assert_simplex_attains_the_floor,
    draw_views,
    gradient_of_held_pairs,
    gradients,
    on_kernel,
    simplex,
    with_edges,
)

from counterpoint.core.errors import NonFiniteError
from counterpoint.losses.binary import BinaryContrast, MIOv1, MIOv2, MIOv3
from oracles import pairwise_losses as oracle
from oracles.number_checks import assert_numbers
from tolerances import assert_close

VERSIONS: dict[int, Callable[..., BinaryContrast]] = {1: MIOv1, 2: MIOv2, 3: MIOv3}
each_version = pytest.mark.parametrize("version", VERSIONS)
each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
each_unit = pytest.mark.parametrize("normalize", [True, False])


def truth_of(version: int, tau: float, normalize: bool) -> Oracle:
    return partial(oracle.mio, version=version, tau=tau, normalize=normalize)


@each_version
@each_kernel
@each_dtype
@each_unit
@pytest.mark.parametrize(("n", "d", "tau"), [(2, 3, 0.5), (5, 3, 0.5), (7, 2, 1.0), (4, 6, 2.0)])
@pytest.mark.sampled(3)
def test_value_and_gradient_are_the_papers(
    *, version: int, kernel: str, dtype: torch.dtype, normalize: bool, n: int, d: int, tau: float
) -> None:
    z0, z1 = draw_views(n, d, dtype=dtype)
    with on_kernel(kernel):
        assert_matches(VERSIONS[version](tau, normalize), truth_of(version, tau, normalize), z0, z1)


@each_version
@each_kernel
@each_dtype
@pytest.mark.parametrize(("normalize", "size", "tau"), [(True, 1e3, 0.05), (True, 1e3, 100.0), (False, 2.0, 0.5)])
@pytest.mark.sampled(2)
def test_duplicated_silent_and_long_vectors(
    *, version: int, kernel: str, dtype: torch.dtype, normalize: bool, size: float, tau: float
) -> None:
    with on_kernel(kernel):
        z0, z1 = with_edges(size, dtype)
        assert_matches(VERSIONS[version](tau, normalize), truth_of(version, tau, normalize), z0, z1)


@each_version
@each_kernel
@pytest.mark.parametrize("tau", [0.01, 100.0])
def test_extreme_temperatures(version: int, kernel: str, tau: float) -> None:
    """At 0.01 the exponentials of version 3 reach 1e43, a number in float64."""
    with on_kernel(kernel):
        z0, z1 = with_edges(1.0, torch.float64)
        assert_matches(VERSIONS[version](tau), truth_of(version, tau, True), z0, z1)


@each_kernel
def test_an_exponential_beyond_the_dtype_is_named(kernel: str) -> None:
    z = torch.ones(3, 2, requires_grad=True)
    with on_kernel(kernel):
        with pytest.raises(
            NonFiniteError, match=r"exp\(C / temperature\) must stay below e\^84\.12 .* got e\^100; raise"
        ):
            MIOv3(0.01)(z, z)
        with pytest.raises(ValueError, match=r"raise the temperature \(0\.2\), normalise the vectors"):
            MIOv3(0.2, normalize=False)(30 * z, 30 * z)
        assert_numbers(MIOv3(0.01)(z.double(), z.double()), math.exp(100) - 100)


@each_kernel
def test_version_3_fills_the_range_of_float32(kernel: str) -> None:
    """Nearly equal vectors at a temperature of 1/80: e^80, which no sum of unshifted exponentials would hold."""
    z0, z1 = (1 + 1e-3 * z.detach() for z in draw_views(30))
    single = [z.float().requires_grad_() for z in (z0, z1)]
    with on_kernel(kernel):
        value = MIOv3(1 / 80)(*single)
        assert bool(torch.isfinite(gradients(value, *single)).all())
    assert float(value.detach()) * 60 * 58 * 80 > torch.finfo(torch.float32).max
    assert_close(value.log(), MIOv3(1 / 80)(z0, z1).log())


@each_version
@pytest.mark.parametrize("n", [2, 3, 7])
@pytest.mark.parametrize("tau", [0.2, 1.0])
def test_the_floor_is_attained_and_never_passed(version: int, n: int, tau: float) -> None:
    assert_simplex_attains_the_floor(VERSIONS[version](tau), n)


def test_the_floors_of_dot_products() -> None:
    """Long orthogonal vectors approach them; by hand at infinity."""
    floors = [VERSIONS[version](0.5, False).floor(4) for version in VERSIONS]
    assert floors == [0.0, -math.inf, -math.inf]
    floors = [VERSIONS[version](0.5, False).floor(4, nonnegative=True) for version in VERSIONS]
    assert floors == [math.log(2), -math.inf, -math.inf]
    long = 100 * torch.eye(4, dtype=torch.float64)
    assert_numbers(MIOv1(0.5, False)(long, long), math.log(2))
    assert_numbers(
        MIOv1(0.5, False)(10 * simplex(4), 10 * simplex(4)), 0.0 + math.log1p(math.exp(-50)), dtype=torch.float32
    )


@each_version
@each_unit
def test_importance_gives_the_gradient(version: int, normalize: bool) -> None:
    tau = 0.5
    loss = VERSIONS[version](tau, normalize)
    z0, z1 = ((F.normalize(z.detach()) if normalize else z.detach()).requires_grad_() for z in draw_views())
    alpha = loss.importance(z0, z1)
    own = (z0 * z1).detach().sum(1)
    pull = (torch.sigmoid(-own / tau) if version == 1 else torch.ones_like(own)) / tau
    expected = gradient_of_held_pairs(alpha / 10, pull / 5, z0, z1)
    unnormalized = VERSIONS[version](tau, normalize=False)
    assert_close(gradients(unnormalized(z0, z1), z0, z1), expected)
    sample = torch.arange(10) % 5
    assert not alpha[sample[:, None] == sample].any()
    assert bool((alpha[sample[:, None] != sample] > 0).all())
