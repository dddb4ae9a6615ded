"""Products of matrices and exponentials, without derivatives, by the routine that is fast on this processor.

MKL, by which torch multiplies float32, takes an AMD processor with AVX-512 for one without. On Zen 5 oneDNN, by which
torch computes layers, takes half of its time (one thread, 512 x 512 x 128: 0.27 ms beside 0.60), on Zen 4 0.8 of it for
very large products alone (kNN). torch's ``exp2`` takes half of the time of MKL's ``exp`` (0.25 ns a number beside 0.59,
0.45 beside 0.84). On other processors, and where the user leaves this one as it is, bits are of ``addmm`` and ``exp``.
"""

# H, W: sides of a product

import math
from functools import cache, reduce

import torch
from torch import Tensor

from counterpoint.core.operating_system import amd_family
from counterpoint.core.process_setup import is_left_alone

FOR_ONEDNN = {25: 1 << 28, 26: 1 << 20}  # by family, Zen 4 and Zen 5: multiplications below which it takes longer
DEPTH = 384  # of a sum: oneDNN adds from first to last, whose rounding grows with their number
FEW_ROWS = 8  # with fewer, memory decides and not the multiplications
LOG2_E = 1 / math.log(2.0)


@cache
def has_slow_mkl() -> bool:
    """Tell whether MKL leaves half of this processor unused: AMD, with AVX-512."""
    has_both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return has_both and torch.backends.cpu.get_cpu_capability() == "AVX512" and amd_family() > 0 and not is_left_alone()


@cache
def least_for_onednn() -> float:
    """Multiplications from which oneDNN is faster than MKL; infinite where it never is."""
    return FOR_ONEDNN.get(amd_family(), FOR_ONEDNN[26]) if has_slow_mkl() else math.inf


def product_library() -> str:
    """The library that multiplies here: whatever other one would, some last bits would be others."""
    return "oneDNN" if has_slow_mkl() else "torch"


def multiply(left_HD: Tensor, right_DW: Tensor, *, scale: float = 1.0, room_HW: Tensor | None = None) -> Tensor:
    """A product of two matrices, times a number.

    Args:
        left_HD: first factor.
        right_DW: second factor.
        scale: number.
        room_HW: memory of the result's size and dtype that the result may take; what it holds is not read.

    Returns:
        The product, (h, w), in the given memory or in its own.

    >>> multiply(torch.ones(1, 3), torch.ones(3, 2), scale=2.0)
    tensor([[6., 6.]])
    """
    if _is_for_onednn(left_HD, right_DW):
        return _by_onednn(left_HD if scale == 1 else left_HD * scale, right_DW)
    if scale == 1:
        return torch.mm(left_HD, right_DW, out=room_HW)
    if room_HW is None:
        room_HW = left_HD.new_empty(len(left_HD), right_DW.shape[1])
    # With beta = 0 what the memory held is not read, NaN included.
    return torch.addmm(room_HW, left_HD, right_DW, beta=0, alpha=scale, out=room_HW)


def add_product_(sum_HW: Tensor, left_HD: Tensor, right_DW: Tensor, *, scale: float = 1.0) -> Tensor:
    """Add a product of two matrices, times a number, in place.

    >>> add_product_(torch.ones(1, 2), torch.ones(1, 3), torch.ones(3, 2))
    tensor([[4., 4.]])
    """
    if _is_for_onednn(left_HD, right_DW):
        return sum_HW.add_(_by_onednn(left_HD, right_DW), alpha=scale)
    return sum_HW.addmm_(left_HD, right_DW, alpha=scale)


def exp_(x: Tensor) -> Tensor:
    """Exponential in place.

    >>> exp_(torch.zeros(2))
    tensor([1., 1.])
    """
    return x.exp_() if exponent_unit(x) == 1 else x.mul_(LOG2_E).exp2_()


def exponent_unit(like: Tensor) -> float:
    """The factor of exponents of fast powers: log2 e where those of two are, else 1."""
    return LOG2_E if like.dtype == torch.float32 and like.is_cpu and has_slow_mkl() else 1.0


def _by_onednn(left_HD: Tensor, right_DW: Tensor) -> Tensor:
    if len(right_DW) > DEPTH and right_DW.stride(1) == 1:  # columns of a transposed factor would have to be copied
        parts = zip(left_HD.split(DEPTH, 1), right_DW.split(DEPTH), strict=True)
        return reduce(torch.Tensor.add_, (_by_onednn(*part) for part in parts))
    return torch.ops.mkldnn._linear_pointwise(_dense(left_HD), _dense(right_DW).mT, None, "none", [], "")


def _dense(matrix: Tensor) -> Tensor:
    """The matrix in memory without gaps: a second factor with gaps takes oneDNN a hundred times as long."""
    if matrix.is_contiguous() or matrix.mT.is_contiguous():
        return matrix
    return matrix.mT.contiguous().mT if matrix.stride(0) == 1 else matrix.contiguous()


def _is_for_onednn(left_HD: Tensor, right_DW: Tensor) -> bool:
    is_large = left_HD.numel() * right_DW.shape[1] >= least_for_onednn() and left_HD.shape[0] >= FEW_ROWS
    return is_large and left_HD.dtype == torch.float32 and left_HD.is_cpu
