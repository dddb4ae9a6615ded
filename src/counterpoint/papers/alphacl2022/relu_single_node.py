r"""One ReLU node on orthogonal modes: it always ends with a single mode, and its start decides which.

On the sphere, :math:`\dot w = (I - w w^\top) [w > 0] \odot X_\alpha w`. On the entries still alive the flow is linear
and heads for an eigenvector of mixed signs (Lemma 14), so that some entry reaches 0 and stays there, until one is left
(alphacl2022, Theorem 5).
"""

# M modes, T times

from dataclasses import dataclass

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import UsageError
from counterpoint.papers.alphacl2022.deep_linear import check_symmetric
from counterpoint.papers.flow_integrator import TOLERANCE


@dataclass(frozen=True)
class SingleNodePath:
    """The weights of one ReLU node along the flow of the energy.

    Attributes:
        times_T: when, in units of 1 / |X_alpha|.
        weights_TM: unit vectors, >= 0.
        order: modes in the order in which they died.
        mode: the one that is left; None if more are.
        status: what happened, as a sentence.
    """

    times_T: Tensor
    weights_TM: Tensor
    order: tuple[int, ...]
    mode: int | None
    status: str


@dataclass(frozen=True)
class _Stretch:
    """The flow until the next entry dies: states as columns, and who died (none at the horizon)."""

    times_T: np.ndarray
    states_ST: np.ndarray
    died: int | None


def follow_single_node(x_alpha_MM: Tensor, w_M: Tensor, *, horizon: float = 1e4) -> SingleNodePath:
    r"""Follow one ReLU node until it holds a single mode.

    Source: alphacl2022, Theorem 5 and Eq. 41. Its proof leaves out one start: the eigenvector of the smallest
        eigenvalue, whose entries are all positive, is a fixed point (on any set of living entries). It repels, so that
        almost every start ends with one mode.

    Args:
        x_alpha_MM: contrastive covariance of the input, with negative off-diagonal entries (Lemma 15).
        w_M: weights at the start; negative ones do nothing and are dropped (Lemma 3).
        horizon: when to stop, in units of 1 / |X_alpha|.

    Returns:
        The path; ``mode`` is None where it has not ended by the horizon.

    Raises:
        ValueError: no positive weight, an off-diagonal entry that is not negative, a single mode of covariance 0, or
            matrices that do not fit.

    >>> x_alpha = torch.tensor([[3.0, -1.0], [-1.0, 1.0]])
    >>> follow_single_node(x_alpha, torch.tensor([1.0, 1.0])).mode
    0
    >>> follow_single_node(x_alpha, torch.tensor([0.1, 1.0])).mode  # the start decides
    1
    """
    check_positive(horizon, "horizon", hint="1e4 is the default")
    x_MM, u_M = check_symmetric(x_alpha_MM).numpy(), w_M.detach().double().clamp(min=0.0).numpy()
    _check(x_MM, u_M)
    x_MM, u_M, now = x_MM / np.linalg.norm(x_MM, 2), u_M / np.linalg.norm(u_M), 0.0
    times, weights, order = [np.zeros(1)], [u_M[None]], []
    alive = np.flatnonzero(u_M)
    while len(alive) > 1 and now < horizon:
        stretch = _until_one_dies(x_MM[np.ix_(alive, alive)], u_M[alive], (now, horizon))
        states_TM = np.zeros((len(stretch.times_T), len(u_M)))
        states_TM[:, alive] = stretch.states_ST.T.clip(min=0.0)
        times.append(stretch.times_T)
        weights.append(states_TM)
        u_M, now = states_TM[-1] / np.linalg.norm(states_TM[-1]), float(stretch.times_T[-1])
        if stretch.died is not None:
            order.append(int(alive[stretch.died]))
            alive = np.delete(alive, stretch.died)
            u_M[order[-1]] = 0.0
    mode = int(alive[0]) if len(alive) == 1 else None
    weights_TM = torch.from_numpy(np.concatenate([*weights, u_M[None] / np.linalg.norm(u_M)]))
    times_T = torch.from_numpy(np.concatenate([*times, [now]]))
    return SingleNodePath(times_T, weights_TM, tuple(order), mode, _status(mode, len(alive), horizon))


def _until_one_dies(x_SS: np.ndarray, w_S: np.ndarray, span: tuple[float, float]) -> _Stretch:
    """Linear flow on the sphere among the living entries, up to the first that reaches 0."""

    def velocity(time: float, u_S: np.ndarray) -> np.ndarray:
        pull_S = x_SS @ u_S
        return pull_S - (u_S @ pull_S) * u_S

    def least(time: float, u_S: np.ndarray) -> float:
        return float(u_S.min())

    least.terminal, least.direction = True, -1.0  # type: ignore[attr-defined]
    solved = solve_ivp(velocity, span, w_S, method="DOP853", events=least, rtol=TOLERANCE, atol=TOLERANCE)
    is_over = solved.status == 0  # the horizon came first
    return _Stretch(solved.t, solved.y, None if is_over else int(solved.y[:, -1].argmin()))


def _status(mode: int | None, num_alive: int, horizon: float) -> str:
    """What happened."""
    if mode is not None:
        return f"one mode is left: {mode}"
    return f"{num_alive} modes are left at the horizon {horizon:g}; the start is close to a fixed point that repels"


def _check(x_MM: np.ndarray, w_M: np.ndarray) -> None:
    """Require what Theorem 5 assumes."""
    if w_M.shape != (len(x_MM),):
        raise UsageError(f"weights must be one number per mode, shape ({len(x_MM)},), got {w_M.shape}")
    if not (w_M > 0).any():
        raise UsageError("w must have a positive entry; a ReLU node without one is silent for ever")
    if not x_MM.any():
        raise UsageError("X_alpha must not be zero; nothing moves, and time has no unit")
    largest = float((x_MM - np.diag(np.full(len(x_MM), np.inf))).max()) if len(x_MM) > 1 else -1.0
    if largest >= 0:
        raise UsageError(f"X_alpha must have negative off-diagonal entries (Lemma 15), got {largest:g}")
