"""Preparation of the inputs of a loss: checks, working precision, unit length.

Reading a value is free on a CPU; elsewhere it waits for all that was started before. There the conditions of a call are
gathered and read once, at its end. While a CUDA graph is recorded nothing can be read: the device asserts them.
"""

# N samples, D features

import math
from collections.abc import Callable
from contextvars import ContextVar

import torch
from torch import Tensor

from counterpoint.core.checks import check_dense, check_features, check_held, check_labels, check_positive
from counterpoint.core.dist import world_size
from counterpoint.core.numerics import ORDINARY_LENGTHS, holding, is_transformed, rowwise, take_radial, unit_rows

READS_ARE_FREE = ("cpu",)

# A condition of a call: a boolean scalar, and what raises if it does not hold, which may read what it likes.
Condition = tuple[Tensor, Callable[[], None]]
# A context variable: calls of other threads gather conditions of their own.
_gathered: ContextVar[list[Condition] | None] = ContextVar("counterpoint_conditions", default=None)
_is_careful: ContextVar[bool] = ContextVar("counterpoint_careful", default=False)


def can_read(like: Tensor) -> bool:
    """Tell whether values may be looked at to choose a way: on a CPU."""
    return like.device.type in READS_ARE_FREE


def seen(value: Tensor, unseen: float) -> float:
    """Return the value of a scalar; ``unseen`` under torch.func.vmap, where no value can be looked at."""
    try:
        return value.item()
    except RuntimeError as error:
        if "vmap" not in str(error) and not value.is_meta:
            raise
        return unseen


def require(is_met: Tensor, complain: Callable[[], None], words: str) -> None:
    """Raise unless a condition holds: at once, at the end of the call, or, in a CUDA graph, by the device.

    Args:
        is_met: condition that must hold, a boolean scalar.
        complain: function that raises the error that names the fault.
        words: message of the RuntimeError that the device raises instead.
    """
    gathered = _gathered.get()
    if gathered is None and is_captured(is_met):
        # Nothing may be read: a CUDA graph that is recorded outside of a call.
        torch._assert_async(is_met, words)  # pyright: ignore[reportPrivateImportUsage]
    elif gathered is not None and is_met.device.type not in READS_ARE_FREE:
        gathered.append((is_met, complain))
    elif not seen(is_met, True):  # under torch.func.vmap the loss itself carries the NaN
        complain()


def gathering(function: Callable[[], Tensor]) -> Tensor:
    """Call a function and settle all its conditions, and those of losses inside it, in one read.

    Where one is not met the call begins again by ways that take any rows; what then does not hold is named.
    """
    # A loss inside a loss: the outer call settles.
    if _gathered.get() is not None:
        return function()
    value, unmet = _value_and_conditions(function)
    if unmet and world_size() == 1:
        del value, unmet  # what the first try holds would take as much memory again
        with holding(_is_careful, True):
            value, unmet = _value_and_conditions(function)
    for is_met, complain in unmet:
        if not seen(is_met, True):
            complain()
    return value


def _value_and_conditions(function: Callable[[], Tensor]) -> tuple[Tensor, list[Condition]]:
    """Return the value of a function, and its conditions unless all are met."""
    gathered: list[Condition] = []
    with holding(_gathered, gathered):
        value = function()
    if not gathered:
        return value, []
    all_met = gathered[0][0] if len(gathered) == 1 else torch.stack([is_met for is_met, _ in gathered]).all()
    if is_captured(all_met):
        words = "a loss or its inputs are not finite, or its labels are out of range"
        torch._assert_async(all_met, words)  # pyright: ignore[reportPrivateImportUsage]
        return value, []
    return value, [] if seen(all_met, True) else gathered


def may_begin_anew(like: Tensor) -> bool:
    """Tell whether a way for ordinary rows only may be tried: ``gathering`` takes another if a condition fails."""
    is_open = _gathered.get() is not None and not _is_careful.get() and not is_captured(like)
    # Under a transform no condition is read; of several processes one alone would begin its collectives again.
    return is_open and not is_transformed() and world_size() == 1


def is_captured(like: Tensor) -> bool:
    """Tell whether work is being recorded as a CUDA graph, in which nothing can be read."""
    return like.device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def check_temperature(temperature: float) -> None:
    """Require a finite temperature > 0."""
    check_positive(temperature, "temperature", hint="common values are 0.1 to 0.5")


def check_views(z0: Tensor, z1: Tensor, labels: Tensor | None, *, name1: str = "z1") -> None:
    """Check shapes, dtypes and devices; see ``prepare_views``."""
    for z_ND, name in ((z0, "z0"), (z1, name1)):
        if isinstance(z_ND, Tensor):
            check_dense(z_ND, name)
        is_good = isinstance(z_ND, Tensor) and z_ND.ndim == 2 and z_ND.is_floating_point()
        if not is_good or z_ND.shape[0] < 2 or z_ND.shape[1] < 1:
            if z_ND is z1 and isinstance(z1, Tensor) and z1.ndim == 1 and not z1.is_floating_point():
                raise TypeError(
                    "z1 must be the second view, got labels; pass them by name: loss(z0, z1, labels=labels), or "
                    "loss(z0, labels=labels) where a supervised loss takes one view"
                )
            check_features(z_ND, name)
    if z0.shape != z1.shape:
        shapes = f"{tuple(z0.shape)} and {tuple(z1.shape)}"
        raise ValueError(f"z0 and {name1} must have the same shape, got {shapes}")
    if z0.dtype != z1.dtype:
        raise TypeError(f"z0 and {name1} must have the same dtype, got {z0.dtype} and {z1.dtype}")
    if z0.device != z1.device:
        raise ValueError(f"z0 and {name1} must be on one device, got {z0.device} and {z1.device}")
    check_held(z0, "z0")
    if labels is not None:
        check_labels(labels, len(z0))
        if labels.device != z0.device:
            raise ValueError(f"labels must be on the device of z0, {z0.device}, got {labels.device}")


def prepare_views(
    z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, normalize: bool, name1: str = "z1"
) -> tuple[Tensor, Tensor]:
    """Check both views, lift half precision to float32 and, if asked, scale rows to unit length.

    Args:
        z0: first view, (n, d), n >= 2.
        z1: second view, of the same shape, dtype and device.
        labels: class of each sample, whole numbers (n,), or None.
        normalize: scale each row to unit length; zero rows stay zero and get no gradient.
        name1: name of z1 in errors.

    Raises:
        TypeError: the views are not floating tensors, or are of two dtypes.
        ValueError: another shape or device, n < 2, a row that is not finite (the first is named), labels of another
            length.
    """
    z0, z1 = prepare_both(z0, z1, labels, normalize=normalize, name1=name1).chunk(2)
    return z0, z1


def prepare_both(z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, normalize: bool, name1: str = "z1") -> Tensor:
    """Prepare both views as ``prepare_views`` does, the second below the first in one tensor (2n, d)."""
    check_views(z0, z1, labels, name1=name1)
    # One tensor: lengths, checks and scaling take one operation each for both views.
    z_2ND = lift(torch.cat([z0, z1]))
    if not can_read(z_2ND):
        return _prepared_unseen(z_2ND, z0, z1, normalize=normalize, name1=name1)
    length_2N1 = rowwise(_lengths, z_2ND.detach())
    # NaN, where no value can be looked at, takes the careful way.
    shortest, longest = (seen(length, math.nan) for length in torch.aminmax(length_2N1))
    if not normalize:
        if not longest < ORDINARY_LENGTHS[1]:  # true of NaN, too
            _name_bad_row(z0, z1, name1)
            _name_long_row(length_2N1, len(z0), name1)
        return z_2ND
    if ORDINARY_LENGTHS[0] < shortest and longest < ORDINARY_LENGTHS[1]:
        # Squares neither overflow nor vanish: no need to divide by each row's largest entry first.
        return rowwise(_of_unit_length, z_2ND, pull=_pull_of_unit_length)
    _name_bad_row(z0, z1, name1)  # a NaN makes both comparisons false
    return unit_rows(z_2ND)


def _lengths(z_ND: Tensor) -> Tensor:
    return torch.linalg.vector_norm(z_ND, dim=1, keepdim=True)


def _of_unit_length(z_ND: Tensor) -> Tensor:
    return z_ND / _lengths(z_ND)


def _pull_of_unit_length(upstream_ND: Tensor, z_ND: Tensor) -> tuple[Tensor]:
    length_N1 = _lengths(z_ND)
    unit_ND = z_ND / length_N1
    # (I - u u^T) g / |z|; the upstream gradient is not ours to write to.
    gradient_ND = upstream_ND.clone()
    take_radial(gradient_ND, unit_ND)
    return (gradient_ND.div_(length_N1),)


def _prepared_unseen(z_2ND: Tensor, z0: Tensor, z1: Tensor, *, normalize: bool, name1: str) -> Tensor:
    """Prepare both views if no value can be looked at: the careful way for any length, and a condition for later."""
    detached_2ND = z_2ND.detach()
    length_2N1 = _lengths(detached_2ND)
    if normalize and may_begin_anew(z_2ND):
        # Nearly all rows are of ordinary length, which NaN never is.
        is_ordinary = (length_2N1 == length_2N1.clamp(*ORDINARY_LENGTHS)).all()
        require(is_ordinary, lambda: None, "rows have unusual lengths")
        return rowwise(_of_unit_length, z_2ND, pull=_pull_of_unit_length)
    # ``unit_rows`` takes any finite length; raw float32 vectors must have finite squares.
    is_limited = not normalize and z_2ND.dtype == torch.float32
    is_met = (length_2N1 < ORDINARY_LENGTHS[1]).all() if is_limited else is_finite(detached_2ND).all()

    def complain() -> None:
        _name_bad_row(z0, z1, name1)
        _name_long_row(length_2N1, len(z0), name1)

    require(is_met, complain, f"z0 and {name1} must be finite, and their squares too")
    return unit_rows(z_2ND) if normalize else z_2ND


def is_finite(value: Tensor) -> Tensor:
    """Mark the entries that are numbers; half as many operations as ``torch.isfinite`` where each is a launch."""
    return value - value == 0


def lift(z_ND: Tensor) -> Tensor:
    """Lift half precision to float32, as losses are computed in float32 at least."""
    return z_ND if z_ND.dtype in (torch.float32, torch.float64) else z_ND.float()


def _name_bad_row(z0: Tensor, z1: Tensor, name1: str) -> None:
    """Raise for the first row that is not finite; under torch.func.vmap the loss itself carries the NaN."""
    try:
        check_features(z0, "z0")
        check_features(z1, name1)
    except RuntimeError:
        return


def _name_long_row(length_2N1: Tensor, n: int, name1: str) -> None:
    """Raise for a row whose square leaves float32, if values can be looked at."""
    longest = seen(length_2N1.max(), math.nan)
    if length_2N1.dtype == torch.float64 or math.isnan(longest):
        return
    row = int(length_2N1.argmax())
    raise ValueError(
        f"{('z0', name1)[row // n]} row {row % n} has length {longest:.3g}, whose square leaves float32; "
        "divide the inputs, or use float64"
    )
