r"""Where ReLU layers end on orthogonal modes, alpha held fixed: a node with one mode, two layers with up to two groups.

Under :math:`\|W_1\|_F = \|W_2\|_F = 1` a local maximum with E > 0 has either :math:`W_1 = v e_m^\top` with v >= 0 or a
first layer of rank above 1 (alphacl2022, Theorem 6). What is reachable has a short form. With b the leading eigenvector
of :math:`W_1 X_\alpha W_1^\top` and :math:`q = W_1^\top b`, the best W_2 gives :math:`2 E = q^\top X_\alpha q`. Nodes
with b > 0 make the positive part of q, nodes with b < 0 the negative one, so that by Cauchy and Schwarz

.. math:: \max 2 E = \max \{ q^\top X_\alpha q : \|q_+\| + \|q_-\| \le 1 \},

where a linear network has :math:`\|q\| \le 1`. Equality makes the nodes of each group parallel: at a global maximum
:math:`W_1` has rank at most 2.

A single node on the sphere moves by :math:`\dot w = (I - w w^\top) [w > 0] \odot X_\alpha w`. On the entries still
alive the flow is linear and heads for an eigenvector of mixed signs (Lemma 14), so that some entry reaches 0 and stays
there, until one is left (Theorem 5): it always ends with a single mode, and its start decides which.
"""

# M modes (inputs), K hidden nodes, O outputs, T steps or times

from dataclasses import dataclass

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import UsageError
from reproductions.alphacl2022.deep_linear import check_symmetric, twice_energy
from reproductions.alphacl2022.two_layer_relu import LayerVelocities, sticky_velocities
from reproductions.flow_integrator import TOLERANCE

STEP = 0.02  # length of a step of the ascent
NEGLIGIBLE = 1e-3  # of the largest; singular values and weights below do not count


@dataclass(frozen=True)
class StickyAscent:
    """How two ReLU layers changed while the energy rose.

    Attributes:
        objective_T: 2 E before each step, and after the last.
        w1_KM: first layer at the end, >= 0.
        w2_OK: second layer at the end.
        criticality: length of the gradient that the constraints leave, relative to 2 E; 0 at a critical point.
    """

    objective_T: Tensor
    w1_KM: Tensor
    w2_OK: Tensor
    criticality: float


@dataclass(frozen=True)
class FirstLayer:
    """What a non-negative first layer looks at.

    Attributes:
        rank: singular values above a thousandth of the largest.
        modes: inputs that some node sees.
        single_mode: m where W_1 = v e_m^T, else None.
        concentration: mean over the nodes that see anything of the largest entry of their unit weights; 1: each sees
            one mode.
        coverage: mean over modes of the largest such entry among the nodes; 1: every mode has a node of its own.
    """

    rank: int
    modes: tuple[int, ...]
    single_mode: int | None
    concentration: float
    coverage: float


def ascend_sticky(x_alpha_MM: Tensor, w1_KM: Tensor, w2_OK: Tensor, *, num_steps: int = 3000) -> StickyAscent:
    r"""Raise the energy of two ReLU layers under :math:`\|W_l\|_F = 1` and the sticky weight rule.

    Steps as in ``deep_linear.ascend``; an entry of W_1 that a step would take below 0 is set to 0 and stays there.

    Source: alphacl2022, Theorem 4 and Eq. 11.

    Args:
        x_alpha_MM: contrastive covariance of the input, symmetric.
        w1_KM: first layer at the start, >= 0, not all 0.
        w2_OK: second layer at the start, not all 0.
        num_steps: how many steps, >= 1.

    Raises:
        ValueError: a negative entry of W_1, a layer of zeros, or matrices that do not fit.

    >>> made = ascend_sticky(torch.tensor([[2.0, -1.0], [-1.0, 1.0]]), torch.ones(1, 2), torch.ones(1, 1))
    >>> made.w1_KM, round(float(made.objective_T[-1]), 9)
    (tensor([[1., 0.]], dtype=torch.float64), 2.0)
    """
    if num_steps < 1:
        raise UsageError(f"num_steps must be >= 1, got {num_steps}; 3000 usually converge")
    w1_KM, w2_OK = _unit(w1_KM.double(), "W_1"), _unit(w2_OK.double(), "W_2")
    objectives = [twice_energy(x_alpha_MM, [w1_KM, w2_OK])]
    for _ in range(num_steps):
        velocity = sticky_velocities(x_alpha_MM, w1_KM, w2_OK)
        largest = max(float(velocity.first_KM.norm()), float(velocity.second_OK.norm()))
        # tiny: at a critical point the velocities are 0, and nothing moves.
        scale = STEP / max(largest, torch.finfo(torch.float64).tiny)
        # Theorem 4: an entry that would cross 0 lands on it, and from there on its velocity is 0.
        w1_KM = _unit((w1_KM + scale * velocity.first_KM).clamp(min=0.0), "W_1")
        w2_OK = _unit(w2_OK + scale * velocity.second_OK, "W_2")
        objectives.append(twice_energy(x_alpha_MM, [w1_KM, w2_OK]))
    # Of the end: the last velocity of the loop is from before its step.
    velocity = sticky_velocities(x_alpha_MM, w1_KM, w2_OK)
    objective_T = torch.tensor(objectives, dtype=torch.float64)
    return StickyAscent(objective_T, w1_KM, w2_OK, _criticality(velocity, w1_KM, w2_OK))


def describe_first_layer(w1_KM: Tensor) -> FirstLayer:
    """Say which modes a first layer looks at; negative entries do nothing and do not count (Lemma 3).

    Source: alphacl2022, Theorem 6; concentration and coverage are those of its released code, except that nodes which
        see nothing are left out of the mean.

    Args:
        w1_KM: first layer, one row per node, with a positive entry.

    Raises:
        ValueError: no positive entry.

    >>> describe_first_layer(torch.tensor([[1.0, 0.0], [0.5, 0.0]])).single_mode
    0
    >>> describe_first_layer(torch.eye(2)).rank
    2
    """
    w_KM = w1_KM.double().clamp(min=0.0)
    if not bool((w_KM > 0).any()):
        raise UsageError("W_1 must have a positive entry; nodes without one are silent")
    singular = torch.linalg.svdvals(w_KM)
    rank = int((singular > NEGLIGIBLE * singular[0]).sum())
    w_KM = torch.where(w_KM > NEGLIGIBLE * w_KM.max(), w_KM, 0.0)
    modes = tuple(int(m) for m in w_KM.any(dim=0).nonzero()[:, 0])
    seeing_KM = w_KM[w_KM.any(dim=1)]
    unit_KM = seeing_KM / seeing_KM.norm(dim=1, keepdim=True)  # silent nodes have no direction
    concentration, coverage = float(unit_KM.amax(dim=1).mean()), float(unit_KM.amax(dim=0).mean())
    return FirstLayer(rank, modes, modes[0] if len(modes) == 1 else None, concentration, coverage)


def _unit(layer: Tensor, name: str) -> Tensor:
    """Scale to Frobenius norm 1."""
    norm = layer.norm()
    if not bool(norm > 0):
        raise UsageError(f"{name} must not be all zeros")
    return layer / norm


def _criticality(velocity: LayerVelocities, w1_KM: Tensor, w2_OK: Tensor) -> float:
    """What is left of the gradients beside the layers themselves, relative to 2 E = <W_l, velocity_l>."""
    pairs = ((velocity.first_KM, w1_KM), (velocity.second_OK, w2_OK))
    # Along the layer itself the gradient is the multiplier of |W_l|_F = 1, 2 E for both layers (Eq. 30).
    pulls = [float((v * w).sum()) for v, w in pairs]
    rest = max(float((v - pull * w).norm()) for (v, w), pull in zip(pairs, pulls, strict=True))
    return rest / max(abs(pulls[0]), torch.finfo(torch.float64).tiny)


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
    # Time in units of 1 / |X_alpha|: one horizon for all scales of the data.
    x_MM, u_M, now = x_MM / np.linalg.norm(x_MM, 2), u_M / np.linalg.norm(u_M), 0.0
    times, weights, order = [np.zeros(1)], [u_M[None]], []
    alive = np.flatnonzero(u_M)
    # u_M is 0 outside ``alive``; a turn ends with one living entry fewer, or at the horizon.
    while len(alive) > 1 and now < horizon:
        stretch = _until_one_dies(x_MM[np.ix_(alive, alive)], u_M[alive], (now, horizon))
        states_TM = np.zeros((len(stretch.times_T), len(u_M)))
        # The event is found up to rounding, on either side of 0.
        states_TM[:, alive] = stretch.states_ST.T.clip(min=0.0)
        times.append(stretch.times_T)
        weights.append(states_TM)
        u_M, now = states_TM[-1] / np.linalg.norm(states_TM[-1]), float(stretch.times_T[-1])
        if stretch.died is not None:
            order.append(int(alive[stretch.died]))
            alive = np.delete(alive, stretch.died)
            u_M[order[-1]] = 0.0
    mode = int(alive[0]) if len(alive) == 1 else None
    # The last state once more, with the dead entry exactly 0.
    weights_TM = torch.from_numpy(np.concatenate([*weights, u_M[None] / np.linalg.norm(u_M)]))
    times_T = torch.from_numpy(np.concatenate([*times, [now]]))
    status = f"one mode is left: {mode}"
    if mode is None:
        status = (
            f"{len(alive)} modes are left at the horizon {horizon:g}; the start is close to a fixed point that repels"
        )
    return SingleNodePath(times_T, weights_TM, tuple(order), mode, status)


def _until_one_dies(x_SS: np.ndarray, w_S: np.ndarray, span: tuple[float, float]) -> _Stretch:
    """Linear flow on the sphere among the living entries, up to the first that reaches 0."""

    def velocity(time: float, u_S: np.ndarray) -> np.ndarray:
        pull_S = x_SS @ u_S
        return pull_S - (u_S @ pull_S) * u_S  # Eq. 41 on the sphere

    def least(time: float, u_S: np.ndarray) -> float:
        return float(u_S.min())

    # Downwards only: an entry that starts next to 0 and grows is alive.
    least.terminal, least.direction = True, -1.0  # type: ignore[attr-defined]
    solved = solve_ivp(velocity, span, w_S, method="DOP853", events=least, rtol=TOLERANCE, atol=TOLERANCE)
    is_over = solved.status == 0  # the horizon came first
    return _Stretch(solved.t, solved.y, None if is_over else int(solved.y[:, -1].argmin()))


def _check(x_MM: np.ndarray, w_M: np.ndarray) -> None:
    """Require what Theorem 5 assumes."""
    if w_M.shape != (len(x_MM),):
        raise UsageError(f"weights must be one number per mode, shape ({len(x_MM)},), got {w_M.shape}")
    if not (w_M > 0).any():
        raise UsageError("w must have a positive entry; a ReLU node without one is silent for ever")
    if not x_MM.any():
        raise UsageError("X_alpha must not be zero; nothing moves, and time has no unit")
    # The diagonal less infinity leaves the largest off-diagonal entry.
    largest = float((x_MM - np.diag(np.full(len(x_MM), np.inf))).max()) if len(x_MM) > 1 else -1.0
    if largest >= 0:
        raise UsageError(f"X_alpha must have negative off-diagonal entries (Lemma 15), got {largest:g}")
