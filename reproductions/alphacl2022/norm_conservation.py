r"""What gradient flow conserves below a normalisation layer, and between neighbouring layers.

A network whose output does not change when :math:`W_l` is scaled has
:math:`\langle W_l, \nabla_{W_l} L \rangle = 0` for every loss L, so that along :math:`\dot W = -\nabla L`

.. math:: \tfrac{d}{dt} \|W_l\|_F^2 = 0

below l2 or layer normalisation (alphacl2022, Lemmas 2 and 7), and :math:`\tfrac{d}{dt} \|w_{lk}\|^2 = 0` for each
filter under batch normalisation (Lemma 11). It needs layers without biases, activations with h(x) = h'(x) x, a
normalisation without an epsilon under its root, and a flow: a step of SGD of rate eta makes the square of such a norm
grow by :math:`\eta^2 \|\nabla L\|^2`.
"""

# N samples, K nodes, D inputs, T times; weights W_l have shape (n_l, n_{l-1}), first layer first

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.core.checks import check_features
from counterpoint.core.errors import UsageError
from reproductions.flow_integrator import MAX_EVALUATIONS, integrate


@dataclass(frozen=True)
class LayerFlow:
    """Layers along a gradient flow.

    Attributes:
        times_T: when.
        layers: one tensor (times, n_l, n_{l-1}) per layer.
        loss_T: the loss at these times; never rises.
    """

    times_T: Tensor
    layers: tuple[Tensor, ...]
    loss_T: Tensor


@dataclass(frozen=True)
class Drifts:
    """How much each quantity changed, at most, relative to the largest entry of its start.

    Attributes:
        layer_norms_L: :math:`|W_l|_F^2` per layer.
        filter_norms_L: the worst :math:`|w_lk|^2` of each layer.
        balances_L: :math:`W_l W_l^T - W_{l+1}^T W_{l+1}` for each pair of neighbours.
        node_balances_L: the diagonal of the same.
    """

    layer_norms_L: Tensor
    filter_norms_L: Tensor
    balances_L: Tensor
    node_balances_L: Tensor


def normalisation_jacobian(x_K: Tensor, *, is_centred: bool) -> Tensor:
    r"""The Jacobian of x / |x|, or centred of (x - mean) / |x - mean|.

    .. math:: J(x) = \frac{P^\perp_{x}}{\|x\|}, \qquad J(x) = \frac{P^\perp_{x,1}}{\|P^\perp_1 x\|}

    with the projection on what is orthogonal to x (and to the vector of ones). It is symmetric, and
    :math:`J(x)\,x = 0`, which is all that the conservation of norms needs.

    Source: alphacl2022, Lemma 6. Differs from its forward rule y = J(x) x, which cannot hold: J(x) x is 0 and y is not.

    Args:
        x_K: a vector, not zero; centred: not constant.
        is_centred: take the mean off first.

    Raises:
        ValueError: not a finite vector, or nothing to scale.

    >>> normalisation_jacobian(torch.tensor([2.0, 0.0]), is_centred=False)
    tensor([[0.0000, 0.0000],
            [0.0000, 0.5000]], dtype=torch.float64)
    """
    check_features(x_K[None], "x", min_rows=1)
    x_K = x_K.double()
    centring_KK = torch.eye(len(x_K), dtype=torch.float64) - (1.0 / len(x_K) if is_centred else 0.0)  # I - 1 1^T / K
    centred_K = centring_KK @ x_K
    length = float(centred_K.norm())
    # Rounding leaves about eps |x| of a constant vector, not 0.
    if length <= 4 * torch.finfo(torch.float64).eps * float(x_K.norm()):
        raise UsageError("x must not be zero, nor constant where the mean is taken off; it has no direction")
    # Differs from Lemma 6, where y is divided by |x|: the length is that of the centred vector.
    unit_K = centred_K / length
    # Centred, u is orthogonal to 1, so that its projection is simply taken off.
    return (centring_KK - torch.outer(unit_K, unit_K)) / length


def loss_flow(
    weights: Sequence[Tensor],
    loss_of_weights: Callable[[Sequence[Tensor]], Tensor],
    times_T: Tensor,
    *,
    max_evaluations: int = MAX_EVALUATIONS,
) -> LayerFlow:
    r"""Follow :math:`\dot W_l = -\partial L / \partial W_l` with an adaptive integrator, for any loss of the layers.

    ``toy_networks.gradient_flow`` is the flow of the toy networks, with gradients written out.

    Args:
        weights: layers at the start, first one first.
        loss_of_weights: any differentiable loss of the layers; the flow is that of its gradient.
        times_T: increasing times, at least 2.
        max_evaluations: of the gradient, before giving up.

    Raises:
        ValueError: times that do not increase; a flow that grows without bound before the last (layers without a
            normalisation and alpha held fixed do); or one that slides along a kink of the activation, as the gradients
            on both sides of it push towards it (networks with ReLU do so sooner or later).

    >>> flow = loss_flow([torch.ones(1, 1)], lambda layers: layers[0].square().sum() / 2, torch.tensor([0.0, 1.0]))
    >>> round(float(flow.layers[0][-1]), 9)
    0.367879441
    """

    def velocity(layers: Sequence[Tensor]) -> Sequence[Tensor]:
        # States of the integrator have no graph; each evaluation starts one.
        leaves = [layer.detach().requires_grad_() for layer in layers]
        return [-slope for slope in torch.autograd.grad(loss_of_weights(leaves), leaves)]

    path = integrate(velocity, weights, times_T, max_evaluations=max_evaluations)
    layers = tuple(torch.stack(states) for states in zip(*path.states, strict=True))
    with torch.no_grad():
        loss_T = torch.stack([loss_of_weights(state) for state in path.states])
    return LayerFlow(path.times_T, layers, loss_T)


def drifts(flow: LayerFlow) -> Drifts:
    r"""How much the conserved quantities changed along a flow.

    Which of them are conserved: ``layer_norms`` of all layers below l2 or layer normalisation; ``filter_norms`` of the
    layer right below batch normalisation, and ``layer_norms`` of all below; ``balances`` in a linear network without
    normalisation between the two layers, of which ReLU leaves ``node_balances``.

    Source: alphacl2022, Lemmas 2, 7, 11 and section 4.1.

    >>> flow = LayerFlow(torch.tensor([0.0, 1.0]), (torch.tensor([[[3.0, 4.0]], [[4.0, 3.0]]]),), torch.zeros(2))
    >>> drifts(flow).layer_norms_L, drifts(flow).balances_L
    (tensor([0.]), tensor([]))
    """
    filters = [layer_TKD.square().sum(2) for layer_TKD in flow.layers]  # |w_lk|^2 at each time
    norms = [filter_TK.sum(1) for filter_TK in filters]
    pairs = list(zip(flow.layers, flow.layers[1:], strict=False))
    balances = [lower @ lower.mT - upper.mT @ upper for lower, upper in pairs]  # of neighbours (section 4.1)
    nodes = [balance.diagonal(dim1=1, dim2=2) for balance in balances]
    return Drifts(*(_relative_drifts(series) for series in (norms, filters, balances, nodes)))


def _relative_drifts(series: Sequence[Tensor]) -> Tensor:
    """Largest change of each quantity over the largest entry of its start."""
    values = [(q_T - q_T[0]).abs().max() / q_T[0].abs().max() for q_T in series]
    return torch.stack(values) if values else torch.zeros(0)
