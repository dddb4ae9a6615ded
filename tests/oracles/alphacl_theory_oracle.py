"""The theory of alphacl2022 in plain NumPy loops, from the paper's equations; nothing of the package is imported.

Rows are samples. Derivatives are complex steps: f is analytic, so Im f(x + ih) / h is exact to rounding for a tiny h.
"""

from collections.abc import Callable

import numpy as np

STEP = 1e-30
Scalar = Callable[[complex], complex]
Array = np.ndarray


def half_square(a: Array, b: Array) -> complex:
    """d^2 = |a - b|^2 / 2, analytic."""
    return sum((x - y) * (x - y) for x, y in zip(a, b, strict=True)) / 2


def covariance(alpha: Array, a: Array, a_other: Array, b: Array, b_other: Array) -> Array:
    """Eq. 5."""
    total = np.zeros((a.shape[1], b.shape[1]))
    for i in range(len(a)):
        for j in range(len(a)):
            if j != i:
                total += alpha[i, j] * np.outer(a[i] - a[j], b[i] - b[j])
                total -= alpha[i, j] * np.outer(a[i] - a_other[i], b[i] - b_other[i])
    return total


def energy(alpha: Array, z: Array, z_other: Array) -> complex:
    """Eq. 20."""
    total = 0.0
    for i in range(len(z)):
        for j in range(len(z)):
            if j != i:
                total = total + alpha[i, j] * (half_square(z[i], z[j]) - half_square(z[i], z_other[i]))
    return total


def pair_sum(z: Array, z_other: Array, i: int, psi: Scalar) -> complex:
    """xi_i of Eq. 1."""
    own = half_square(z[i], z_other[i])
    return sum(psi(own - half_square(z[i], z[j])) for j in range(len(z)) if j != i)


def slope(function: Scalar, x: complex) -> float:
    """f'(x) of a real x."""
    return complex(function(complex(complex(x).real, STEP))).imag / STEP


def importance(z: Array, z_other: Array, phi: Scalar, psi: Scalar) -> Array:
    """Eq. 4."""
    alpha = np.zeros((len(z), len(z)))
    for i in range(len(z)):
        own = half_square(z[i], z_other[i])
        outer = slope(phi, pair_sum(z, z_other, i, psi))
        for j in range(len(z)):
            if j != i:
                alpha[i, j] = outer * slope(psi, own - half_square(z[i], z[j]))
    return alpha


def gradient(function: Callable[[Array], complex], x: Array) -> Array:
    """df/dx entry by entry."""
    result = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[place] += 1j * STEP
        result[place] = complex(function(moved)).imag / STEP
    return result


def nce(tau: float, epsilon: float) -> tuple[Scalar, Scalar]:
    """phi and psi of Eq. 2, with the paper's factor tau."""
    return lambda x: tau * np.log(epsilon + x), lambda x: np.exp(x / tau)


def deep_output(weights: list[Array], x: Array) -> Array:
    """Eq. 10 for one sample."""
    for layer in weights:
        x = np.array([sum(layer[k, m] * x[m] for m in range(len(x))) for k in range(len(layer))])
    return x


def deep_energy(weights: list[Array], alpha: Array, x: Array, x_other: Array) -> complex:
    """E of a deep linear network's outputs."""
    z, z_other = (np.array([deep_output(weights, row) for row in rows]) for rows in (x, x_other))
    return energy(alpha, z, z_other)


def relu_output(w1: Array, w2: Array, x: Array) -> Array:
    """Two layers with a gate at each hidden node, open where the real part of its input is positive."""
    hidden = [sum(row[m] * x[m] for m in range(len(x))) for row in w1]
    hidden = [h if complex(h).real > 0 else 0.0 for h in hidden]
    return np.array([sum(row[k] * hidden[k] for k in range(len(hidden))) for row in w2])


def relu_energy(w1: Array, w2: Array, alpha: Array, x: Array, x_other: Array) -> complex:
    """E of the outputs of two ReLU layers."""
    z, z_other = (np.array([relu_output(w1, w2, row) for row in rows]) for rows in (x, x_other))
    return energy(alpha, z, z_other)


def centred_over_length(x: Array, *, length_of_centred: bool) -> Array:
    """(x - mean) over |x - mean|, or over |x| as Lemma 6 prints it."""
    centred = x - sum(x) / len(x)
    base = centred if length_of_centred else x
    return centred / np.sqrt(sum(v * v for v in base))


def jacobian(function: Callable[[Array], Array], x: Array) -> Array:
    """dy_k / dx_m."""
    columns = []
    for m in range(len(x)):
        moved = x.astype(complex)
        moved[m] += 1j * STEP
        columns.append(np.imag(function(moved)) / STEP)
    return np.stack(columns, axis=1)
