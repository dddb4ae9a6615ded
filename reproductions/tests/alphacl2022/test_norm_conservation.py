"""Laws that gradient flow conserves at one instant, what it does not conserve, and Lemma 6 as it must read.

A quantity is conserved if the gradient has no part along it: d|W|^2 / dt = -2 <W, G> (alphacl2022, Lemma 7).
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from counterpoint import losses
from draws import draw
from oracles import alphacl_theory_oracle as oracle

CONSERVED = 1e-10  # what rounding leaves
MOVED = 1e-3  # what no rounding explains
seeds = st.integers(0, 2**31)
Activation = Callable[[Tensor], Tensor]


def l2_norm(f_NK: Tensor) -> Tensor:
    """Divide each sample by its length, f / |f|."""
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


def mostly_relu(x: Tensor) -> Tensor:
    """A ReLU that leaves no sample silent, which a normalisation could not divide."""
    return x.relu() + 1e-3 * x


def network(
    weights: Sequence[Tensor], x_ND: Tensor, activation: Activation, normalisation: Activation, place: int
) -> Tensor:
    """Outputs of layers without biases, an activation between them and a normalisation after one of them."""
    f_NK = x_ND
    for index, layer in enumerate(weights, start=1):
        f_NK = f_NK @ layer.T
        f_NK = f_NK if index == len(weights) else activation(f_NK)
        f_NK = normalisation(f_NK) if index == place else f_NK
    return f_NK


def rates(activation: Activation, normalisation: Activation, seed: int, *, depth: int, place: int) -> Tensor:
    """Rate of each filter's |w_lk|^2 / 2 along the flow in units of |W_l| |G_l|, (l, k); that of |W_l|_F^2 is the sum.

    The loss is InfoNCE of the outputs as they are, alpha moving along.
    """
    x_ND = draw(5, 4, seed)
    weights = [(draw(4, 4, seed + 1 + layer) / 2).requires_grad_() for layer in range(depth)]
    views = (x_ND, x_ND + 0.3 * draw(5, 4, seed + 99))
    z, z_other = (network(weights, view_ND, activation, normalisation, place) for view_ND in views)
    slopes = torch.autograd.grad(losses.InfoNCE(0.5, normalize=False)(z, z_other), weights)
    w_LKD, g_LKD = torch.stack([w.detach() for w in weights]), torch.stack(slopes)
    return (w_LKD * g_LKD).sum(2) / (w_LKD.norm(dim=(1, 2)) * g_LKD.norm(dim=(1, 2)))[:, None]


@settings(max_examples=60)
@given(
    activation=st.sampled_from([linear, leaky, mostly_relu, squared]),
    normalisation=st.sampled_from([l2_norm, layer_norm, batch_norm]),
    seed=seeds,
    place=st.integers(1, 4),
    num_above=st.integers(0, 1),
)
def test_lemmas_7_and_11_layers_below_a_normalisation_keep_their_norms(
    activation: Activation, normalisation: Activation, seed: int, place: int, num_above: int
) -> None:
    """Under batch norm each filter of the layer right below; of the layers further down the whole norm."""
    filters_LK = rates(activation, normalisation, seed, depth=place + num_above, place=place)
    assert float(filters_LK[:place].sum(1).abs().max()) <= CONSERVED
    if normalisation is batch_norm:
        assert float(filters_LK[place - 1].abs().max()) <= CONSERVED


def test_what_stands_above_or_is_not_homogeneous_changes_its_length() -> None:
    filters_LK = rates(squared, batch_norm, 3, depth=3, place=2)
    assert float(filters_LK[0].abs().max()) > MOVED  # of a layer further down the whole norm alone is kept
    assert float(filters_LK[2].sum().abs()) > MOVED
    norms_L = rates(torch.tanh, l2_norm, 6, depth=3, place=3).sum(1).abs()
    assert float(norms_L[-1]) <= CONSERVED  # nothing but linear maps between the last layer and the norm
    assert float(norms_L[:-1].min()) > MOVED


def with_epsilon(f: Tensor) -> Tensor:
    return f / (f.square().sum(1, keepdim=True) + 0.1).sqrt()


def with_bias(f: Tensor) -> Tensor:
    return l2_norm(f + torch.linspace(-1, 1, f.shape[1]).double())


@pytest.mark.parametrize("normalisation", [with_epsilon, with_bias], ids=["epsilon", "bias"])
def test_an_epsilon_under_the_root_or_a_bias_ends_the_conservation(normalisation: Activation) -> None:
    assert float(rates(squared, normalisation, 5, depth=2, place=2).sum(1).abs().max()) > MOVED


def test_erratum_lemma_6_must_divide_by_the_length_of_the_centred_vector() -> None:
    """J is a projection over that length; as printed it is not the "symmetric matrix" that the lemma speaks of."""
    x = draw(1, 5, 9)[0].numpy()
    right, printed = (
        oracle.jacobian(lambda v, own=own: oracle.centred_over_length(v, length_of_centred=own), x)
        for own in (True, False)
    )
    unit = layer_norm(torch.from_numpy(x)[None])[0].numpy()
    projection = np.eye(5) - 1 / 5 - np.outer(unit, unit)
    assert np.abs(right - projection / np.linalg.norm(x - x.mean())).max() < 1e-14
    assert np.linalg.norm(printed - printed.T) > 0.01
    assert np.linalg.norm(right - printed) > 0.01


def test_erratum_lemma_6_has_no_forward_rule_with_its_own_jacobian() -> None:
    """y = J(x) x cannot hold with a J that projects x away; what Lemma 7 uses is J(x) x = 0."""
    x = draw(1, 5, 10)[0]
    for normalise in (l2_norm, layer_norm):
        image = torch.func.jacrev(lambda v, of=normalise: of(v[None])[0])(x) @ x
        assert float(image.norm()) < 1e-14
        assert float(normalise(x[None]).norm()) == pytest.approx(1)
