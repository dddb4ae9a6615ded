"""An adaptive integrator for matrices that move together, such as the layers of a network."""

# T times; S numbers of the whole state

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from counterpoint.core.checks import check_features, check_positive
from counterpoint.core.errors import UsageError

State = tuple[Tensor, ...]
MAX_EVALUATIONS = 200_000  # flows of the papers take a few thousand
TOLERANCE = 1e-11  # keeps quadratic invariants to about 1e-10 over the flows of the papers


@dataclass(frozen=True)
class FlowPath:
    """Matrices at each time of a flow.

    Attributes:
        times_T: increasing, as asked.
        states: the matrices at each time, as many as times.
    """

    times_T: Tensor
    states: tuple[State, ...]


def integrate(
    velocity: Callable[[State], Sequence[Tensor]],
    start: Sequence[Tensor],
    times_T: Tensor,
    *,
    tolerance: float = TOLERANCE,
    max_evaluations: int = MAX_EVALUATIONS,
) -> FlowPath:
    r"""Solve :math:`\dot S = v(S)` from ``times_T[0]`` on by an explicit Runge-Kutta pair of order 8 (DOP853).

    Args:
        velocity: of the matrices, shaped as they are.
        start: matrices at the first time, taken in float64.
        times_T: at least 2 increasing times.
        tolerance: > 0, of each step's error, relative and absolute.
        max_evaluations: of the velocity, before giving up.

    Raises:
        UsageError: fewer than 2 times, or not increasing; the flow leaves every bound before the last time, or takes
            too many steps.

    >>> path = integrate(lambda state: [-state[0]], [torch.ones(1, 1)], torch.tensor([0.0, 1.0]))
    >>> round(float(path.states[-1][0]), 9)
    0.367879441
    """
    check_positive(tolerance, "tolerance", hint="common values are 1e-6 to 1e-12")
    for place, matrix in enumerate(start, start=1):
        check_features(matrix, f"start matrix {place}", min_rows=1)
    times_T = times_T.detach().double().cpu()
    if times_T.ndim != 1 or len(times_T) < 2 or not bool((times_T.diff() > 0).all()):
        raise UsageError("times must be at least 2 numbers that increase; use torch.linspace(0, end, 50)")
    shapes = [tuple(matrix.shape) for matrix in start]

    times = [float(times_T[0])]

    def flat_velocity(time: float, flat_S: np.ndarray) -> np.ndarray:
        times.append(time)
        # solve_ivp has no limit of its own, and a flow that slides along a kink would not end.
        if len(times) > max_evaluations:
            remedy = "ask for earlier times or a larger tolerance (a flow that slides along a kink does not advance)"
            raise UsageError(f"{max_evaluations} evaluations led to time {time:.4g} only; {remedy}")
        return _flatten(velocity(_unflatten(flat_S, shapes)))

    with np.errstate(over="ignore", invalid="ignore"):  # a flow that blows up is reported below
        solved = solve_ivp(
            flat_velocity,
            (float(times_T[0]), float(times_T[-1])),
            _flatten(start),
            method="DOP853",
            t_eval=times_T.numpy(),  # dense output: the steps do not depend on the times asked for
            rtol=max(tolerance, 3e-14),  # below 100 machine epsilons scipy warns and takes those
            atol=tolerance,
        )
    if not solved.success or not np.isfinite(solved.y).all():
        raise UsageError(f"the flow grows without bound or stiffens after time {max(times):.4g}; ask for earlier times")
    states = tuple(_unflatten(solved.y[:, place], shapes) for place in range(len(times_T)))
    return FlowPath(times_T, states)


def _flatten(matrices: Sequence[Tensor]) -> np.ndarray:
    """Put the entries of all matrices into one vector."""
    # detached: numpy() refuses tensors that require a gradient
    return torch.cat([matrix.detach().double().reshape(-1) for matrix in matrices]).numpy()


def _unflatten(flat_S: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> State:
    """Cut a vector into matrices of these shapes."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    # A copy, since from_numpy would share memory with the solver's own array.
    parts = torch.from_numpy(np.array(flat_S, dtype=np.float64)).split(sizes)
    return tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
