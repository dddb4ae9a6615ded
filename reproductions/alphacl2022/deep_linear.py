r"""Representation learning with a deep linear network is PCA of the contrastive covariance.

With :math:`z = W_L \cdots W_1 x`, alpha held fixed and :math:`X_\alpha = C_\alpha[x]`, the max player solves

.. math:: \max\ 2 E = \operatorname{tr}(W X_\alpha W^\top), \qquad W = W_L \cdots W_1,\quad \|W_l\|_F = 1,

whose local maxima are all global, of rank one, and worth :math:`\lambda_{max}(X_\alpha)` (alphacl2022, Theorem 3).
"""

# L layers, D inputs, T steps; weights W_l have shape (n_l, n_{l-1}), first layer first; starts are axes before these

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.core.errors import UsageError

STEP = 0.05  # length of a step of the ascent
SYMMETRIC = 1e-9  # asymmetry that rounding explains, relative to the largest entry
Matrix = TypeVar("Matrix", Tensor, np.ndarray)


@dataclass(frozen=True)
class Ascent:
    """Layers of a deep linear network while its energy is raised step by step.

    Attributes:
        objective_T: 2 E before each step, and after the last, of shape (T, ...).
        largest_eigenvalue: lambda_max(X_alpha), the global maximum, of shape (...).
        layers_T: each layer at the same times, of shape (T, ..., n_l, n_{l-1}).
    """

    objective_T: Tensor
    largest_eigenvalue: Tensor
    layers_T: tuple[Tensor, ...]

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """The layers at the end."""
        return tuple(layer_T[-1] for layer_T in self.layers_T)

    @property
    def ratio(self) -> Tensor:
        """The objective at each time, as a share of its maximum."""
        return self.objective_T / self.largest_eigenvalue

    def singular_values(self, times: slice) -> Tensor:
        """The two largest singular values of each layer (0 where there is one only), of shape (T, ..., L, 2)."""
        largest = [torch.linalg.svdvals(layer_T[times])[..., :2] for layer_T in self.layers_T]
        return torch.stack([F.pad(values, (0, 2 - values.shape[-1])) for values in largest], dim=-2)


@dataclass(frozen=True)
class Alignment:
    """The distance of layers from W_l = v_l v_{l-1}^T with unit vectors v.

    Attributes:
        vectors: v_0 to v_L; v_0 is the first layer's leading input direction.
        residual: largest ``|W_l - v_l v_{l-1}^T|_F``; 0 for an aligned-rank-1 solution (Definition 4).
        unevenness: largest ``||[v_l]_k| - 1/sqrt(n_l)|`` over inner layers; 0 for an aligned-uniform solution
            (Definition 5).
    """

    vectors: tuple[Tensor, ...]
    residual: float
    unevenness: float


def layer_velocities(x_alpha_DD: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    r"""The gradient of E by each layer: what gradient descent on the loss adds to it.

    .. math:: \dot W_l = W_{>l}^\top W_{>l} W_l\, C_\alpha[f_{l-1}], \qquad
        C_\alpha[f_{l-1}] = W_{<l} X_\alpha W_{<l}^\top

    By Euler's theorem :math:`\langle W_l, \dot W_l \rangle = 2 E` for every l (Eq. 30). Along the flow
    :math:`W_l W_l^\top - W_{l+1}^\top W_{l+1}` does not change.

    Source: alphacl2022, Lemma 1. Differs from Eq. 27 of its proof, which lacks a minus sign.

    Args:
        x_alpha_DD: contrastive covariance of the input, symmetric.
        weights: the layers, first one first.

    Raises:
        ValueError: a matrix that is not symmetric and finite, or layers that do not fit.

    >>> layer_velocities(torch.eye(2), [torch.tensor([[2.0, 0.0]])])[0]
    tensor([[2., 0.]], dtype=torch.float64)
    """
    x_DD, layers = _checked(x_alpha_DD, weights)
    return _velocities(x_DD, layers)


def draw_layers(widths: Sequence[int], *, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Draw Gaussian layers of Frobenius norm 1.

    Args:
        widths: n_0 (inputs) to n_L.
        generator: source of randomness.

    Raises:
        ValueError: fewer than two widths, or one below 1.

    >>> layers = draw_layers([3, 4, 2], generator=torch.Generator().manual_seed(0))
    >>> [tuple(layer.shape) for layer in layers], round(float(layers[0].norm()), 12)
    ([(4, 3), (2, 4)], 1.0)
    """
    if len(widths) < 2 or min(widths) < 1:
        raise UsageError(f"widths must be at least two numbers >= 1, from inputs to outputs, got {list(widths)}")
    shapes = zip(widths[1:], widths[:-1], strict=True)
    layers = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return _constrained(layers, per_filter=False)


def ascend(x_alpha_DD: Tensor, weights: Sequence[Tensor], *, num_steps: int = 500, per_filter: bool = False) -> Ascent:
    r"""Raise the energy of a deep linear network under its constraint, all layers at once.

    Each step adds 0.05 times the velocities over the largest layer's norm, then scales every layer back to
    :math:`\|W_l\|_F = 1`; with ``per_filter`` every row of the layers below the last to :math:`1/\sqrt{n_l}`, which
    makes their Frobenius norms 1 too. Dividing by the norm matters: at a random start the velocities are smaller by
    orders of magnitude than near the optimum, and a plain small step stalls there.

    Source: alphacl2022, Eq. 11, Theorem 3, Corollary 3 and Fig. 2, whose code is not public: the step is our choice.

    Args:
        x_alpha_DD: contrastive covariance of the input, symmetric, with a positive eigenvalue; (..., D, D) for
            several starts at once.
        weights: where to start, first layer first; they are scaled to the constraint.
        num_steps: how many steps, >= 1.
        per_filter: what BatchNorm conserves instead of what l2 and LayerNorm do.

    Returns:
        The trajectory. Almost every start ends at ``largest_eigenvalue``.

    Raises:
        ValueError: no positive eigenvalue (the supremum is then 0 and nothing is learned), a layer or row of zeros, or
            as in ``layer_velocities``.

    >>> start = draw_layers([2, 3, 3], generator=torch.Generator().manual_seed(0))
    >>> made = ascend(torch.diag(torch.tensor([2.0, -1.0])), start)
    >>> round(float(made.objective_T[-1]), 6)
    2.0
    """
    if num_steps < 1:
        raise UsageError(f"num_steps must be >= 1, got {num_steps}; 500 is enough for 5 layers")
    x_alpha_DD, weights = _checked(x_alpha_DD, weights)
    # Theorem 3: the global maximum of 2 E; eigvalsh is ascending.
    largest = torch.linalg.eigvalsh(x_alpha_DD)[..., -1]
    if bool((largest <= 0).any()):
        worst = float(largest.min())
        raise UsageError(f"X_alpha must have a positive eigenvalue, got {worst:g} as the largest; nothing is learned")
    # NumPy: its calls cost less on matrices of ten rows; two ascents of four starts take 3 s, by torch in turn 27 s.
    x_DD = x_alpha_DD.numpy()
    layers = _constrained([layer.numpy() for layer in weights], per_filter=per_filter)
    path = [layers]
    for _ in range(num_steps):
        # All layers move from the same point: a layer must not see its neighbour's new value.
        velocities = _velocities(x_DD, layers)
        # One scale for all keeps the direction of the flow; at a point where all velocities are 0 nothing moves.
        norms = np.sqrt([(v * v).sum((-2, -1)) for v in velocities])
        scale = STEP / np.maximum(norms.max(axis=0), np.finfo(x_DD.dtype).tiny)[..., None, None]
        layers = _constrained([w + scale * v for w, v in zip(layers, velocities, strict=True)], per_filter=per_filter)
        path.append(layers)
    layers_T = [np.stack(layer) for layer in zip(*path, strict=True)]
    full_T = _products(layers_T)[-1]
    objective_T = ((full_T @ x_DD) * full_T).sum((-2, -1))  # Eq. 11; tr(A B^T) as a sum of products
    return Ascent(torch.from_numpy(objective_T), largest, tuple(map(torch.from_numpy, layers_T)))


def alignment(weights: Sequence[Tensor]) -> Alignment:
    """Measure how far layers are from one direction handed on from layer to layer.

    Source: alphacl2022, Definitions 4 and 5, Lemma 9.

    Args:
        weights: the layers, first one first.

    Raises:
        ValueError: layers that do not fit.

    >>> made = alignment([torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [1.0, 0.0]])])
    >>> made.residual, round(made.unevenness, 4)  # v_1 = (1, 0) is aligned, and as uneven as can be
    (0.0, 0.7071)
    """
    layers = [layer.double() for layer in weights]
    _check_chain(layers)
    vectors = [torch.linalg.svd(layers[0]).Vh[0]]
    for layer in layers:
        # The vectors follow from v_0: of all unit v, W u / |W u| makes v u^T nearest to W.
        image = layer @ vectors[-1]
        # A layer that maps the direction to 0 keeps its whole norm as residual.
        vectors.append(image / image.norm() if bool(image.norm() > 0) else image)
    pairs = zip(layers, vectors[1:], vectors[:-1], strict=True)
    # Definition 4, and Definition 5 for the inner vectors.
    residual = max(float((w - torch.outer(out, into)).norm()) for w, out, into in pairs)
    inner = vectors[1:-1]
    unevenness = max((float((v.abs() - 1 / math.sqrt(len(v))).abs().max()) for v in inner), default=0.0)
    return Alignment(tuple(vectors), residual, unevenness)


def _velocities(x_DD: Matrix, layers: Sequence[Matrix]) -> tuple[Matrix, ...]:
    """Gradients of E by each layer (Lemma 1), from the products of the layers below and above it."""
    # The last product is W_{>l} W_l W_{<l} for every l.
    products = _products(layers)
    velocities: list[Matrix] = []
    back = products[-1] @ x_DD  # W_{>l}^T W X, from the last layer on
    above = layers[-1]
    for index in reversed(range(1, len(layers))):
        velocities.append(back @ products[index - 1].mT)  # Lemma 1
        back = above.mT @ products[-1] @ x_DD
        above = above @ layers[index - 1]  # W_{>l}, for the layer below
    return (back, *reversed(velocities))


def _products(layers: Sequence[Matrix]) -> list[Matrix]:
    """The products W_1, W_2 W_1 and so on, up to the product of all layers."""
    products = [layers[0]]
    for layer in layers[1:]:
        products.append(layer @ products[-1])
    return products


def _constrained(layers: Sequence[Matrix], *, per_filter: bool) -> tuple[Matrix, ...]:
    """Scale layers to the constraint set."""
    scaled: list[Matrix] = []
    for index, layer in enumerate(layers):
        squares, rows = layer * layer, per_filter and index < len(layers) - 1
        # Rows of norm 1 / sqrt(n_l), not 1 as in the remark before Definition 5: they keep |W_l|_F = 1.
        square = squares.sum(-1)[..., None] * layer.shape[-2] if rows else squares.sum((-2, -1))[..., None, None]
        if not bool((square > 0).all()):
            raise UsageError(
                f"layer {index + 1} has {'a row of zeros' if rows else 'nothing but zeros'}, which no scaling corrects"
            )
        scaled.append(layer / square**0.5)  # pyright: ignore[reportArgumentType]
    return tuple(scaled)


def _checked(x_alpha_DD: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Check that X_alpha and the layers fit each other, and return them in float64."""
    x_DD, layers = check_symmetric(x_alpha_DD), [layer.double() for layer in weights]
    _check_chain(layers)
    if layers[0].shape[-1] != x_DD.shape[-1]:
        raise UsageError(f"the first layer takes {layers[0].shape[-1]} inputs, X_alpha has {x_DD.shape[-1]}")
    return x_DD, layers


def check_symmetric(x_alpha_DD: Tensor) -> Tensor:
    """Require a finite symmetric matrix, and return it in float64, symmetric to the last bit.

    Raises:
        ValueError: not square, not finite, or not symmetric.
    """
    if x_alpha_DD.ndim < 2 or x_alpha_DD.shape[-2] != x_alpha_DD.shape[-1]:
        raise UsageError(f"X_alpha must be a square matrix, got shape {tuple(x_alpha_DD.shape)}")
    x_DD = x_alpha_DD.double()
    if not bool(torch.isfinite(x_DD).all()):
        raise UsageError("X_alpha must be finite, but holds NaN or infinity")
    asymmetry = float((x_DD - x_DD.mT).abs().max())
    if asymmetry > SYMMETRIC * float(x_DD.abs().max()):
        raise UsageError(f"X_alpha must be symmetric, but differs from its transpose by {asymmetry:.3g}")
    # eigvalsh reads one triangle, products read both: they must hold the same bits.
    return 0.5 * (x_DD + x_DD.mT)


def _check_chain(layers: Sequence[Tensor]) -> None:
    """Require matrices that can be multiplied one after the other."""
    if not layers or any(layer.ndim < 2 for layer in layers):
        raise UsageError(f"weights must be at least one matrix, got shapes {[tuple(layer.shape) for layer in layers]}")
    for index, (lower, upper) in enumerate(pairwise(layers), start=1):
        if upper.shape[-1] != lower.shape[-2]:
            raise UsageError(
                f"layer {index + 1} takes {upper.shape[-1]} inputs, but layer {index} gives {lower.shape[-2]}"
            )
