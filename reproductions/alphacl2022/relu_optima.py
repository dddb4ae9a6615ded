r"""Two ReLU layers on orthogonal modes: linear dynamics with weights that stick to zero, and where they end.

The network is :math:`z = W_2 [W_1 x]_+`. Every input has at most one positive entry and no negative one, and
augmentation only scales it (alphacl2022, Assumption 1, in coordinates where the modes are the axes, and with every
hidden node seeing the whole input). Then negative weights of the first layer do nothing (Lemma 3), and from
:math:`W_1 \ge 0` on the flow of the energy is that of a linear network in which an entry of W_1 that reached 0 stays
there (Theorem 4). A single node ends with one mode, and its start decides which (Theorem 5).

Under :math:`\|W_1\|_F = \|W_2\|_F = 1` a local maximum with E > 0 has either :math:`W_1 = v e_m^\top` with v >= 0 or a
first layer of rank above 1 (alphacl2022, Theorem 6). What is reachable has a short form. With b the leading eigenvector
of :math:`W_1 X_\alpha W_1^\top` and :math:`q = W_1^\top b`, the best W_2 gives :math:`2 E = q^\top X_\alpha q`. Nodes
with b > 0 make the positive part of q, nodes with b < 0 the negative one, so that by Cauchy and Schwarz

.. math:: \max 2 E = \max \{ q^\top X_\alpha q : \|q_+\| + \|q_-\| \le 1 \},

where a linear network has :math:`\|q\| \le 1`. Equality makes the nodes of each group parallel: at a global maximum
:math:`W_1` has rank at most 2.
"""

# N samples, M modes (inputs), K hidden nodes, O outputs

from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_weight
from counterpoint.core.errors import UsageError
from reproductions.alphacl2022.deep_linear import layer_velocities

STEP = 0.02  # length of a step of the ascent
NEGLIGIBLE = 1e-3  # of the largest; singular values and weights below do not count


@dataclass(frozen=True)
class FirstLayer:
    """The rank of a non-negative first layer, and the modes that its nodes respond to.

    Attributes:
        rank: singular values above a thousandth of the largest.
        single_mode: m where W_1 = v e_m^T, else None.
        concentration: mean over the nodes that see anything of the largest entry of their unit weights; 1: each sees
            one mode.
    """

    rank: int
    single_mode: int | None
    concentration: float


def draw_mixture(magnitudes_M: Tensor, num_samples: int, *, spread: float = 0.05, generator: torch.Generator) -> Tensor:
    r"""Two views (2, n, m) of orthogonal modes: magnitude times a log-normal factor, drawn for each view by itself.

    Every mode has a sample; the other samples draw theirs uniformly.

    Args:
        magnitudes_M: positive magnitude of each mode.
        num_samples: N >= M.
        spread: standard deviation of the factor's logarithm, >= 0.
        generator: source of randomness.

    Raises:
        ValueError: magnitudes that are not positive, too few samples, or a negative spread.

    >>> made = draw_mixture(torch.tensor([2.0, 1.0]), 4, spread=0.0, generator=torch.Generator().manual_seed(0))
    >>> made.shape, sorted(set(made[0].sum(1).tolist()))
    (torch.Size([2, 4, 2]), [1.0, 2.0])
    """
    check_weight(spread, "spread", hint="0.05 is a mild augmentation")
    if magnitudes_M.ndim != 1 or not bool((magnitudes_M > 0).all()):
        raise UsageError(f"magnitudes must be a vector of numbers > 0, got {magnitudes_M.tolist()}")
    num_modes = len(magnitudes_M)
    if num_samples < num_modes:
        raise UsageError(f"num_samples must be at least the number of modes {num_modes}, got {num_samples}")
    # Lemma 15 needs every mode; the order of samples is arbitrary, so the first ones cover them.
    rest_N = torch.randint(num_modes, (num_samples - num_modes,), generator=generator)
    mode_N = torch.cat([torch.arange(num_modes), rest_N])
    factor_2N = torch.exp(spread * torch.randn(2, num_samples, generator=generator, dtype=torch.float64))
    one_hot_NM = torch.nn.functional.one_hot(mode_N, num_modes).double()
    return one_hot_NM * (factor_2N * magnitudes_M.double()[mode_N])[:, :, None]


def sticky_velocities(x_alpha_MM: Tensor, w1_KM: Tensor, w2_OK: Tensor) -> tuple[Tensor, ...]:
    r"""The linear network's gradient, with the sticky weight rule: entries of W_1 at zero do not move.

    .. math:: \dot W_1 = [W_1 > 0] \odot W_2^\top W_2 W_1 X_\alpha, \qquad \dot W_2 = W_2 W_1 X_\alpha W_1^\top

    Equal to the gradient of the energy through the gates (Eq. 39) on data that obey Assumption 1.

    Source: alphacl2022, Theorem 4, Eq. 40 and Lemma 1.

    Args:
        x_alpha_MM: contrastive covariance of the input, symmetric.
        w1_KM: first layer, >= 0.
        w2_OK: second layer.

    Raises:
        ValueError: a negative entry of W_1 (it does nothing: take its positive part), or matrices that do not fit.

    >>> sticky_velocities(torch.tensor([[2.0, -2.0], [-2.0, 2.0]]), torch.eye(2), torch.eye(2))[0]
    tensor([[2., 0.],
            [0., 2.]], dtype=torch.float64)
    """
    if bool((w1_KM < 0).any()):
        raise UsageError(
            f"W_1 must be >= 0, got {float(w1_KM.min()):g}; Lemma 3: use its positive part, w1.clamp(min=0)"
        )
    first_KM, second_OK = layer_velocities(x_alpha_MM, [w1_KM, w2_OK])
    return torch.where(w1_KM > 0, first_KM, 0.0), second_OK  # Eq. 40


def ascend_sticky(x_alpha_MM: Tensor, w1_KM: Tensor, w2_OK: Tensor, *, num_steps: int = 3000) -> tuple[Tensor, Tensor]:
    r"""Raise the energy of two ReLU layers under :math:`\|W_l\|_F = 1` and the sticky weight rule.

    Steps as in ``deep_linear.ascend``; an entry of W_1 that a step would take below 0 is set to 0 and stays there.

    Source: alphacl2022, Theorem 4 and Eq. 11.

    Args:
        x_alpha_MM: contrastive covariance of the input, symmetric.
        w1_KM: first layer at the start, >= 0, not all 0.
        w2_OK: second layer at the start, not all 0.
        num_steps: how many steps, >= 1.

    Returns:
        Both layers at the end.

    Raises:
        ValueError: a negative entry of W_1, a layer of zeros, or matrices that do not fit.

    >>> ascend_sticky(torch.tensor([[2.0, -1.0], [-1.0, 1.0]]), torch.ones(1, 2), torch.ones(1, 1))[0]
    tensor([[1., 0.]], dtype=torch.float64)
    """
    if num_steps < 1:
        raise UsageError(f"num_steps must be >= 1, got {num_steps}; 3000 usually converge")
    w1_KM, w2_OK = _unit(w1_KM.double(), "W_1"), _unit(w2_OK.double(), "W_2")
    for _ in range(num_steps):
        first_KM, second_OK = sticky_velocities(x_alpha_MM, w1_KM, w2_OK)
        largest = max(float(first_KM.norm()), float(second_OK.norm()))
        # tiny: at a critical point the velocities are 0, and nothing moves.
        scale = STEP / max(largest, torch.finfo(torch.float64).tiny)
        # Theorem 4: an entry that would cross 0 lands on it, and from there on its velocity is 0.
        w1_KM = _unit((w1_KM + scale * first_KM).clamp(min=0.0), "W_1")
        w2_OK = _unit(w2_OK + scale * second_OK, "W_2")
    return w1_KM, w2_OK


def describe_first_layer(w1_KM: Tensor) -> FirstLayer:
    """Describe which modes a first layer responds to; negative entries do nothing and do not count (Lemma 3).

    Source: alphacl2022, Theorem 6; concentration is that of its released code, except that nodes which see nothing are
        left out of the mean.

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
    modes = w_KM.any(dim=0).nonzero()[:, 0].tolist()
    seeing_KM = w_KM[w_KM.any(dim=1)]
    unit_KM = seeing_KM / seeing_KM.norm(dim=1, keepdim=True)  # silent nodes have no direction
    return FirstLayer(rank, modes[0] if len(modes) == 1 else None, float(unit_KM.amax(dim=1).mean()))


def _unit(layer: Tensor, name: str) -> Tensor:
    """Scale a layer to Frobenius norm 1; a layer of zeros is refused."""
    norm = layer.norm()
    if not bool(norm > 0):
        raise UsageError(f"{name} must not be all zeros")
    return layer / norm
