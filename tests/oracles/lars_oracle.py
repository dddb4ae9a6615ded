"""you2017, Eq. 6 and Algorithm 1, in plain Python floats; the learning rate outside the momentum. No tensor code."""

import math

Vector = list[float]


def length(values: Vector) -> float:
    return math.sqrt(math.fsum(value * value for value in values))


def local_rate(weights: Vector, gradient: Vector, trust: float, decay: float) -> float:
    """Eq. 6; 1 where either is zero."""
    w, g = length(weights), length(gradient)
    return trust * w / (g + decay * w) if w > 0 and g > 0 else 1.0


def run(
    weights: Vector,
    gradients: list[Vector],
    *,
    rates: list[float],
    momentum: float,
    decay: float,
    trust: float,
    adapted: bool = True,
    clipped: bool = False,
) -> Vector:
    """Weights after one step per gradient."""
    velocity = [0.0] * len(weights)
    for gradient, rate in zip(gradients, rates, strict=True):
        ratio = local_rate(weights, gradient, trust, decay) if adapted else 1.0
        if adapted and clipped and length(weights) > 0 and length(gradient) > 0:
            ratio = min(ratio / rate, 1.0)
        for i, (w, g) in enumerate(zip(weights, gradient, strict=True)):
            velocity[i] = momentum * velocity[i] + ratio * (g + decay * w)
        weights = [w - rate * v for w, v in zip(weights, velocity, strict=True)]
    return weights
