"""What must hold of a Hessian whatever the parameters are: symmetry, and the identities of losses of cosines."""

# P parameters in one vector, D features

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from counterpoint.diagnostics.curvature.coupled_loss import CoupledLoss
from counterpoint.diagnostics.curvature.hessian_products import HessianOperator
from counterpoint.diagnostics.curvature.spectrum_records import ProductCheck

LIMITS = {torch.float64: 1e-10, torch.float32: 1e-4}
VALUE_ROUNDING = 1e3  # eps, relative: a loss that changes by less is called unchanged


def certificates(
    operator: HessianOperator, last_layer: Sequence[str] = (), *, generator: torch.Generator | None = None
) -> tuple[ProductCheck, ...]:
    r"""Symmetry, and the two identities of a last linear layer before a loss that sees directions only.

    For random u and v, :math:`u^\top H v = v^\top H u`. Where the loss does not change if the last layer's weight W
    (and bias, both with the same factor) is scaled, its gradient is homogeneous of degree -1; where it does not change
    if W is rotated, its gradient turns along. Differentiating both,

    .. math:: H\,(W) = -g_W, \qquad H\,(A W) = A\, g_W \quad\text{for antisymmetric } A,

    and zero in all other entries. Whether the loss is unchanged is tried on its value; the identities then test the
    second derivative.

    Args:
        operator: of the loss.
        last_layer: names of weight (D, width) and, if it has one, bias (D,) of the last linear layer; empty for none.
        generator: draws u, v, A and the rotation on the CPU; None uses torch's own.

    Returns:
        Symmetry, scale and rotation. The defects are relative to the sizes of both sides and to that of a typical
        product.
    """
    gradient_P = operator.gradient_P
    limit = LIMITS[gradient_P.dtype]
    u_P, v_P = (_drawn(gradient_P, generator) for _ in range(2))
    hu_P, hv_P = operator @ u_P, operator @ v_P
    size = max(float(u_P.norm() * hv_P.norm()), float(v_P.norm() * hu_P.norm()))
    defect = abs(float(u_P @ hv_P) - float(v_P @ hu_P)) / size if size else 0.0
    found = [ProductCheck("symmetry", defect, limit, "u'Hv = v'Hu for two Gaussian vectors")]
    known = {name: operator.loss.parameters[name] for name in last_layer}
    if not known:
        words = "the encoder does not end in a linear layer"
        return (*found, *(ProductCheck(name, None, limit, words) for name in ("scale", "rotation")))
    gradient = dict(zip(operator.loss.parameters, operator.loss.split(gradient_P), strict=True))
    typical = float(hu_P.norm() / u_P.norm())
    turning_DD = _antisymmetric(next(iter(known.values())), generator)
    rotation_DD = torch.linalg.matrix_exp(turning_DD)
    layer = ", ".join(known)
    for name, changed, direction, expected in (
        ("scale", _each(known, lambda w: 2 * w), known, {part: -gradient[part] for part in known}),
        (
            "rotation",
            _each(known, lambda w: rotation_DD @ w),
            _each(known, lambda w: turning_DD @ w),
            {part: turning_DD @ gradient[part] for part in known},
        ),
    ):
        if not _is_unchanged(operator, changed):
            words = f"the loss is not the same for another {name} of {layer}"
            found.append(ProductCheck(name, None, limit, words))
            continue
        direction_P = operator.loss.placed(direction)
        expected_P, product_P = operator.loss.placed(expected), operator @ direction_P
        size = max(float(expected_P.norm()), float(product_P.norm()), typical * float(direction_P.norm()))
        defect = float((product_P - expected_P).norm()) / size if size else 0.0
        equation = "H W = -g_W" if name == "scale" else "H(AW) = A g_W"
        found.append(ProductCheck(name, defect, limit, f"{equation} for {layer}"))
    return tuple(found)


def _each(known: Mapping[str, Tensor], change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Weight and bias, changed alike."""
    return {name: change(value) for name, value in known.items()}


def _is_unchanged(operator: HessianOperator, changed: Mapping[str, Tensor]) -> bool:
    """Whether the loss has the same value with other weights in its last layer."""
    loss: CoupledLoss = operator.loss
    chunk = operator.route.chunk_size
    value = float(loss.value({**loss.parameters, **changed}, chunk_size=chunk))
    eps = torch.finfo(operator.gradient_P.dtype).eps
    return abs(value - operator.value) <= VALUE_ROUNDING * eps * max(1.0, abs(operator.value))


def _drawn(like_P: Tensor, generator: torch.Generator | None) -> Tensor:
    """A Gaussian vector, drawn on the CPU so that devices see the same."""
    return torch.randn(len(like_P), generator=generator, dtype=torch.float64).to(like_P)


def _antisymmetric(weight: Tensor, generator: torch.Generator | None) -> Tensor:
    """A random generator of rotations, of norm about 1."""
    dims = len(weight)
    drawn_DD = torch.randn(dims, dims, generator=generator, dtype=torch.float64) / dims**0.5
    return ((drawn_DD - drawn_DD.T) / 2).to(weight)
