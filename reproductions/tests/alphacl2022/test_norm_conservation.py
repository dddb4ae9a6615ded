"""What gradient flow conserves: drifts below 1e-9, what is not conserved beside it, and Lemma 6 as it must read."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint import losses
from oracles import alphacl_theory_oracle as oracle
from reproductions.flow_integrator import integrate

CONSERVED = 1e-9  # the drift that an adaptive integrator may leave
MOVED = 1e-4  # a drift that no rounding explains
seeds = st.integers(0, 2**31)


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Network:
    """Layers without biases, an activation between them, a normalisation after one of them (None: the last)."""

    activation: Activation = torch.relu
    normalisation: Activation | None = None
    normalised_layer: int | None = None

    def __call__(self, weights: Sequence[Tensor], x_ND: Tensor) -> Tensor:
        """Outputs of a batch."""
        place = len(weights) if self.normalised_layer is None else self.normalised_layer
        f_NK = x_ND
        for index, layer in enumerate(weights, start=1):
            f_NK = f_NK @ layer.T
            f_NK = f_NK if index == len(weights) else self.activation(f_NK)
            f_NK = self.normalisation(f_NK) if self.normalisation is not None and index == place else f_NK
        return f_NK


def l2_norm(f_NK: Tensor) -> Tensor:
    """Each sample by its length, f / |f|."""
    return f_NK / torch.linalg.vector_norm(f_NK, dim=1, keepdim=True)


def layer_norm(f_NK: Tensor) -> Tensor:
    r"""Each sample centred, by its length: :math:`(f - \bar f) / |f - \bar f|`; LayerNorm up to a factor sqrt(K).

    Source: alphacl2022, Lemma 6. Differs from it as printed, where the length is that of f before it is centred.
    """
    return l2_norm(f_NK - f_NK.mean(dim=1, keepdim=True))


def batch_norm(f_NK: Tensor) -> Tensor:
    """Each node centred over the batch, by its length; BatchNorm up to a factor sqrt(N)."""
    return layer_norm(f_NK.T).T


def leaky(x: Tensor) -> Tensor:
    return F.leaky_relu(x, 0.2)


def linear(x: Tensor) -> Tensor:
    return x


def squared(x: Tensor) -> Tensor:
    """Homogeneous of degree 2: h'(x) x = 2 h(x). Scale still passes through, and there is no kink."""
    return leaky(x) * x.abs()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"linear": linear, "leaky": leaky, "relu": torch.relu}


def loss_on(network: Network, seed: int, d: int) -> Callable[[Sequence[Tensor]], Tensor]:
    """InfoNCE of a network's outputs as they are, alpha moving along."""
    x = draw(seed + 99, 5, d)
    x_other = x + 0.3 * draw(seed + 98, 5, d)
    loss = losses.InfoNCE(0.5, normalize=False)
    return lambda w: loss(network(w, x), network(w, x_other))


def draw_weights(seed: int, widths: Sequence[int]) -> list[Tensor]:
    shapes = zip(widths[1:], widths[:-1], strict=True)
    return [draw(seed + k, *shape) / shape[1] ** 0.5 for k, shape in enumerate(shapes)]


@dataclass(frozen=True)
class Drifts:
    """How much each quantity changed along a flow, relative to the largest entry of its start, by layer or pair.

    |W_l|_F^2, the worst |w_lk|^2, W_l W_l^T - W_{l+1}^T W_{l+1} and its diagonal; and the loss at each time.
    """

    layer_norms_L: Tensor
    filter_norms_L: Tensor
    balances_L: Tensor
    node_balances_L: Tensor
    loss_T: Tensor


def drifts(network: Network, seed: int, *, widths: Sequence[int] = (3, 4, 3), end: float = 0.2) -> Drifts:
    """Follow the gradient flow of a network's loss by an adaptive integrator."""
    loss = loss_on(network, seed, widths[0])

    def velocity(layers: Sequence[Tensor]) -> Sequence[Tensor]:
        leaves = [layer.detach().requires_grad_() for layer in layers]
        return [-slope for slope in torch.autograd.grad(loss(leaves), leaves)]

    path = integrate(velocity, draw_weights(seed, widths), torch.linspace(0, end, 5))
    layers = [torch.stack(states) for states in zip(*path.states, strict=True)]
    filters = [layer_TKD.square().sum(2) for layer_TKD in layers]
    balances = [lower @ lower.mT - upper.mT @ upper for lower, upper in itertools.pairwise(layers)]
    series = ([f.sum(1) for f in filters], filters, balances, [b.diagonal(dim1=1, dim2=2) for b in balances])
    changes = (torch.stack([(q_T - q_T[0]).abs().max() / q_T[0].abs().max() for q_T in each]) for each in series)
    return Drifts(*changes, loss_T=torch.stack([loss(state) for state in path.states]))


@settings(max_examples=2, phases=[Phase.generate])  # a flow is too slow to shrink
@given(activation=st.sampled_from([linear, squared]), normalisation=st.sampled_from([l2_norm, layer_norm]), seed=seeds)
@pytest.mark.thorough
def test_lemma_7_layers_below_l2_and_layer_norm_keep_their_norms(
    activation: Callable[[Tensor], Tensor], normalisation: Callable[[Tensor], Tensor], seed: int
) -> None:
    found = drifts(Network(activation, normalisation), seed)
    assert float(found.layer_norms_L.max()) < CONSERVED
    assert bool((found.loss_T.diff() < 0).all())  # and yet the network learns


@settings(max_examples=40)
@given(
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    normalisation=st.sampled_from([l2_norm, layer_norm, batch_norm]),
    seed=seeds,
    depth=st.integers(1, 4),
)
def test_lemma_7_gradients_are_orthogonal_to_the_layers_they_move(
    activation: str, normalisation: Callable[[Tensor], Tensor], seed: int, depth: int
) -> None:
    """The law at one instant, for the activations of the paper; under batch norm for each filter of the last layer."""
    network = Network(lambda x: ACTIVATIONS[activation](x) + 1e-3 * x, normalisation)  # no sample is silent
    layers = [w.requires_grad_() for w in draw_weights(seed, [4] * (depth + 1))]
    slopes = torch.autograd.grad(loss_on(network, seed, 4)(layers), layers)
    for layer, slope in zip([w.detach() for w in layers], slopes, strict=True):
        assert abs(float((layer * slope).sum())) <= 1e-10 * float(layer.norm() * slope.norm())
    if normalisation is batch_norm:
        last = layers[-1].detach()
        assert float((last * slopes[-1]).sum(1).abs().max()) <= 1e-10 * float(last.norm() * slopes[-1].norm())


@pytest.mark.thorough
def test_layers_above_a_normalisation_do_change_length() -> None:
    found = drifts(Network(squared, l2_norm, normalised_layer=2), 2, widths=(3, 4, 4, 3))
    assert float(found.layer_norms_L[:2].max()) < CONSERVED
    assert float(found.layer_norms_L[2]) > MOVED


@pytest.mark.parametrize("activation", [linear, squared])
@pytest.mark.thorough
def test_lemma_11_filters_below_batch_norm_keep_their_norms(activation: Callable[[Tensor], Tensor]) -> None:
    """Each filter of the layer right below; of the layers further down the whole norm."""
    found = drifts(Network(activation, batch_norm, normalised_layer=2), 3, widths=(3, 4, 4, 3))
    assert float(found.filter_norms_L[1]) < CONSERVED
    assert float(found.layer_norms_L[0]) < CONSERVED
    assert float(found.filter_norms_L[0]) > MOVED
    assert float(found.layer_norms_L[2]) > MOVED


@settings(max_examples=4, phases=[Phase.generate])  # a flow is too slow to shrink
@given(seed=seeds)
def test_neighbouring_linear_layers_stay_balanced(seed: int) -> None:
    """Section 4.1, for a loss whose alpha moves along."""
    found = drifts(Network(linear), seed, end=0.3)
    assert float(found.balances_L.max()) < CONSERVED
    assert float(found.layer_norms_L.max()) > MOVED


def test_an_activation_leaves_the_balance_of_each_node_only() -> None:
    found = drifts(Network(leaky), 3, end=0.1)
    assert float(found.node_balances_L.max()) < CONSERVED
    assert float(found.balances_L.min()) > MOVED


def with_epsilon(f: Tensor) -> Tensor:
    return f / (f.square().sum(1, keepdim=True) + 0.1).sqrt()


def with_bias(f: Tensor) -> Tensor:
    return l2_norm(f + torch.linspace(-1, 1, f.shape[1]).double())


@pytest.mark.parametrize("normalisation", [with_epsilon, with_bias], ids=["epsilon", "bias"])
def test_an_epsilon_under_the_root_or_a_bias_ends_the_conservation(normalisation: Callable[[Tensor], Tensor]) -> None:
    assert float(drifts(Network(squared, normalisation), 5).layer_norms_L.max()) > MOVED


def test_an_activation_that_is_not_homogeneous_ends_it_too() -> None:
    found = drifts(Network(torch.tanh, l2_norm), 6)
    assert float(found.layer_norms_L[-1]) < CONSERVED  # nothing but linear maps between the last layer and the norm
    assert float(found.layer_norms_L[:-1].min()) > MOVED


@settings(max_examples=12)
@given(seed=seeds, k=st.integers(3, 6), is_centred=st.booleans())
def test_lemma_6_the_jacobian_is_a_projection_over_a_length(seed: int, k: int, is_centred: bool) -> None:
    """J = P / |x|, and J x = 0, which is all that the conservation of norms needs."""
    x_K, normalise = draw(seed, k), layer_norm if is_centred else l2_norm
    jacobian_KK = torch.func.jacrev(lambda v: normalise(v[None])[0])(x_K)
    centring_KK = torch.eye(k, dtype=torch.float64) - (1 / k if is_centred else 0.0)
    length, unit_K = (centring_KK @ x_K).norm(), normalise(x_K[None])[0]
    expected_KK = (centring_KK - torch.outer(unit_K, unit_K)) / length
    assert float((jacobian_KK - expected_KK).norm()) <= 1e-10 * float(expected_KK.norm())
    assert float((jacobian_KK @ x_K).norm()) <= 1e-10 * float(expected_KK.norm() * x_K.norm())


def test_erratum_lemma_6_must_divide_by_the_length_of_the_centred_vector() -> None:
    """As printed the Jacobian is not the "symmetric matrix" that the lemma speaks of."""
    x = draw(9, 5).numpy()
    right, printed = (
        oracle.jacobian(lambda v, own=own: oracle.centred_over_length(v, length_of_centred=own), x)
        for own in (True, False)
    )
    assert np.abs(right - right.T).max() < 1e-14
    assert np.linalg.norm(printed - printed.T) > 0.01
    assert np.linalg.norm(right - printed) > 0.01


def test_erratum_lemma_6_has_no_forward_rule_with_its_own_jacobian() -> None:
    """y = J(x) x cannot hold with a J that projects x away; what Lemma 7 uses is J(x) x = 0."""
    x = draw(10, 5)
    for normalise in (l2_norm, layer_norm):
        image = torch.func.jacrev(lambda v, of=normalise: of(v[None])[0])(x) @ x
        assert float(image.norm()) < 1e-14
        assert float(normalise(x[None]).norm()) == pytest.approx(1)


@pytest.mark.thorough
def test_flows_that_do_not_advance_or_grow_without_bound_are_refused_in_words() -> None:
    times_T = torch.tensor([0.0, 2.0])
    with pytest.raises(ValueError, match=r"300 evaluations led to time 1\.?\d* only; .* slides along a kink"):
        integrate(lambda state: [-state[0].sign()], [torch.ones(1, 1)], times_T, max_evaluations=300)
    with pytest.raises(ValueError, match="without bound"):
        integrate(lambda state: [4 * state[0] ** 3], [torch.ones(1, 1)], times_T)
