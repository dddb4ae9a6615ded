r"""Fused CUDA programs for the known psi: no tile of scores ever leaves the chip.

Gradients of up to 256 features (128 in float32) are summed in registers, those of the anchors by one program and those
of the keys by another, which computes the products again: nothing is added atomically, and two runs give the same bits.
Where the anchors are the keys, :math:`\alpha_{ij} + \alpha_{ji}` follows from one product and two vectors, and nothing
is computed again. Above that, the weights of a slab of pairs are written out (64 MiB) and the matrix library multiplies
them, in the same order in every run.

The statistic is float32 for half-precision vectors too, as its rounding would be an error of every weight. Scale and
biases join the float32 products, never the vectors. Hessian-vector products are those of ``tiled``, on the same device.

Precision of products of float32 vectors, ``TritonPairs(precision)``:

- ``tf32x3`` (default): three passes of the matrix units, accurate to float32.
- ``tf32``: one pass, 10 bits of each factor.
- ``bf16``, ``fp16``: vectors and weights are rounded to bfloat16 or float16.

The matrix library multiplies float32 slabs as ``torch.set_float32_matmul_precision`` says. Vectors in bfloat16, float16
and float64 are multiplied as they are.
"""

# N anchors, M keys, D features, E excluded keys per anchor

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from os import environ
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice
from counterpoint.kernels import contract
from counterpoint.kernels.contract import PairFunction, PairScores, PerAnchor, ScoreTerms
from counterpoint.kernels.cpu import tiled
from counterpoint.kernels.triton.triton_records import (
    AMPLE_SHARED,
    LEAST_SHARED,
    Pairs,
    accumulator,
    as_pairs,
    from_the_keys,
    gradient_shape,
    holds_gradient,
    product_shape,
)

PRECISIONS = ("tf32x3", "tf32", "bf16", "fp16")
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
MOST_EXCLUDED = 16  # programs unroll a comparison for each
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
KNOWN = (
    contract.EXPONENTIAL,
    contract.SOFTPLUS,
    contract.SIGMOID,
    contract.HINGE,
    contract.SQUARE,
    contract.IDENTITY,
)


def why_not(scores: PairScores, psi: PairFunction) -> str | None:
    """Say what keeps these scores from the fused programs; None if nothing does.

    >>> from counterpoint.kernels.contract import HINGE
    >>> terms = ScoreTerms(torch.zeros(2, 3, dtype=torch.complex64), None, torch.ones(()))
    >>> why_not(PairScores(terms), HINGE)
    'dtype must be one of float32, bfloat16, float16, float64, got complex64'
    """
    vectors_ND, excluded_NE = scores.terms.anchors_ND, scores.mask.excluded_NE
    if vectors_ND.dtype not in DTYPES:
        return f"dtype must be one of {', '.join(map(_short, DTYPES))}, got {_short(vectors_ND.dtype)}"
    if psi not in KNOWN:
        return f"psi must be one of {', '.join(function.name for function in KNOWN)}, got {psi.name}"
    if excluded_NE is not None and excluded_NE.shape[1] > MOST_EXCLUDED:
        return f"excluded keys per anchor must be at most {MOST_EXCLUDED}, got {excluded_NE.shape[1]}"
    return _device_problem(vectors_ND.device)


@dataclass(frozen=True)
class TritonPairs:
    """The kernel in one precision; see the module's description.

    Args:
        precision: precision of the products of float32 vectors, one of ``PRECISIONS``.

    Raises:
        ValueError: unknown precision.
    """

    precision: str = "tf32x3"

    def __post_init__(self) -> None:
        check_choice(self.precision, "precision", PRECISIONS)

    @torch.no_grad()
    def reduce(self, scores: PairScores, psi: PairFunction) -> PerAnchor:
        """See ``contract.PairKernel.reduce``; float32 at least.

        Raises:
            TypeError: vectors of a dtype that has no fused program.
            ValueError: a device, psi or mask without a program.
        """
        launch = _launch(scores, psi)
        pairs = as_pairs(scores, psi, self._dtype(scores))
        shape = product_shape(*_kind(pairs), shared_memory(pairs.factor.device))
        program = launch.Program(psi.name, self.precision, scores.mask.keeps_same_label, True, shape)
        # Row by row, the columns as rows of their own: sums across a tile would cost more than its products.
        rows_N = launch.statistics(pairs._replace(second=None), program)
        if not scores.is_two_way or pairs.second is None:
            return PerAnchor(rows_N)
        columns = from_the_keys(pairs._replace(first=pairs.second, second=None))
        return PerAnchor(rows_N, launch.statistics(columns, replace(program, is_excluded_by_owner=False)))

    @torch.no_grad()
    def gradient(self, scores: PairScores, psi: PairFunction, statistic: PerAnchor, weight: PerAnchor) -> ScoreTerms:
        """See ``contract.PairKernel.gradient``; raises what ``reduce`` does."""
        launch = _launch(scores, psi)
        largest, weight = _normalised(weight, psi, self._dtype(scores))
        pairs = as_pairs(scores, psi, self._dtype(scores), weighing=(statistic, weight))
        is_small = holds_gradient(*_kind(pairs))
        shared = shared_memory(pairs.factor.device)
        shape = gradient_shape(*_kind(pairs), shared) if is_small else product_shape(*_kind(pairs), shared)
        program = launch.Program(psi.name, self.precision, scores.mask.keeps_same_label, True, shape)
        sums = (_in_registers if is_small else _in_slabs)(launch, pairs, program, scores)
        # The scale once per vector, after the sums, instead of once per pair; weights as large as they were.
        scale = scores.terms.scale.to(scores.terms.anchors_ND.device)
        scale = scale if largest is None else scale * largest
        for name, value in sums.items():
            factor = scale if name in ("anchors_ND", "keys_MD") else largest
            if value is not None and factor is not None:
                value.mul_(factor)
        return _in_dtypes_of(scores.terms, sums)

    @torch.no_grad()
    def reduce_tangent(
        self, scores: PairScores, psi: PairFunction, statistic: PerAnchor, tangent: ScoreTerms
    ) -> PerAnchor:
        """See ``contract.PairKernel.reduce_tangent``; computed by ``tiled``."""
        # Tiles compute in the dtype that they are given: float32 at least.
        scores, statistic, tangent = _widened(scores), _widened(statistic), _widened(tangent)
        return tiled.reduce_tangent(scores, psi, statistic, tangent)

    @torch.no_grad()
    def gradient_tangent(
        self, scores: PairScores, psi: PairFunction, statistic: PerAnchor, weight: PerAnchor, tangent: ScoreTerms
    ) -> ScoreTerms:
        """See ``contract.PairKernel.gradient_tangent``; computed by ``tiled``."""
        widened = _widened(statistic), _widened(weight), _widened(tangent)
        change = tiled.gradient_tangent(_widened(scores), psi, *widened)
        return _in_dtypes_of(scores.terms, vars(change))

    def _dtype(self, scores: PairScores) -> torch.dtype:
        dtype = torch.promote_types(scores.terms.anchors_ND.dtype, scores.keys_MD.dtype)
        return HALF.get(self.precision, dtype) if dtype == torch.float32 else dtype


def _in_registers(launch: ModuleType, pairs: Pairs, program: Any, scores: PairScores) -> dict[str, Tensor | None]:
    """Unscaled gradient by name: one program per side."""
    terms = scores.terms
    # Where anchors are keys the second direction is the first one flipped: its own sums belong to row_other_M.
    second = terms.row_other_M if scores.is_self else terms.column_other_N
    rows = launch.gradients(pairs, program, wants_first=terms.row_own_N is not None, wants_second=second is not None)
    sums = {"anchors_ND": rows.total_OD, "scale": rows.products_O.sum(), "row_own_N": rows.first_O}
    if scores.is_self:
        return sums | {"row_other_M": rows.second_O, "scale": 0.5 * sums["scale"]}  # each pair is there twice
    columns = launch.gradients(
        from_the_keys(pairs),
        # The rows of excluded indices are still the anchors', which are the others now.
        replace(program, is_excluded_by_owner=False),
        wants_first=terms.row_other_M is not None,
        wants_second=terms.column_own_M is not None,
    )
    sums |= {"keys_MD": columns.total_OD, "row_other_M": columns.first_O}
    return sums | {"column_own_M": columns.second_O, "column_other_N": rows.second_O}


def _in_slabs(launch: ModuleType, pairs: Pairs, program: Any, scores: PairScores) -> dict[str, Tensor | None]:
    """Unscaled gradient by name: weights written out, a slab at a time."""
    slabs = launch.SlabSums(pairs, program, is_self=scores.is_self).run()
    row_own_N, row_other_M, column_other_N, column_own_M = slabs.sums
    sums = {"anchors_ND": slabs.to_owners_OD, "scale": slabs.products(), "row_own_N": row_own_N}
    if scores.is_self:
        return sums | {"row_other_M": row_other_M, "scale": 0.5 * sums["scale"]}
    sums |= {"keys_MD": slabs.to_others_KD, "row_other_M": row_other_M}
    return sums | {"column_own_M": column_own_M, "column_other_N": column_other_N}


def _in_dtypes_of(terms: ScoreTerms, sums: Mapping[str, Tensor | None]) -> ScoreTerms:
    """Return sums by name in the dtypes of the terms; None if there is no term."""
    by_name = {field.name: (getattr(terms, field.name), sums.get(field.name)) for field in fields(terms)}
    return ScoreTerms(**{name: None if t is None or s is None else s.to(t) for name, (t, s) in by_name.items()})  # pyright: ignore[reportArgumentType]


def _normalised(weight: PerAnchor, psi: PairFunction, dtype: torch.dtype) -> tuple[Tensor | None, PerAnchor]:
    """Return the divisor that brings weights to at most 1, None if there is none, and the weights.

    The numbers of float16 end at 6e-8; what turns a bounded exponential into a weight may be near the largest number.
    """
    if dtype != torch.float16 and not psi.in_log_domain:
        return None, weight
    sides = [value.to(accumulator(dtype)) for value in weight.both()]
    # An empty side has no largest number.
    largest = [torch.linalg.vector_norm(value, torch.inf) for value in sides if len(value)] or [sides[0].new_ones(())]
    most = (largest[0] if len(largest) == 1 else torch.maximum(*largest)).clamp_min(torch.finfo(sides[0].dtype).tiny)
    return most, PerAnchor(*(value / most for value in sides))


def _widened(record: Any) -> Any:
    """Return a record of scores, terms or numbers per anchor in float32 at least; float64 stays."""
    if isinstance(record, PairScores):
        return replace(record, terms=_widened(record.terms))
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return replace(
        record, **{name: value.to(accumulator(value.dtype)) for name, value in values.items() if value is not None}
    )


def _launch(scores: PairScores, psi: PairFunction) -> ModuleType:
    """The module that runs programs, if there are any for these scores."""
    problem = why_not(scores, psi)
    if problem is not None:
        error = TypeError if problem.startswith("dtype") else ValueError
        raise error(f"fused pair programs: {problem}; use kernels.select.use('tiled')")
    from counterpoint.kernels.triton import triton_launch  # deferred: needs triton, which is optional

    return triton_launch


def _device_problem(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "triton must be installed, found none"
    is_interpreted = device.type == "cpu" and environ.get("TRITON_INTERPRET") == "1"
    if device.type != "cuda" and not is_interpreted:
        return f"device must be cuda, got {device.type}"
    if find_spec("triton.knobs") is None:
        return "triton must be 3.4 or newer, which comes with torch 2.8"
    if is_interpreted:
        return None
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 0):  # bfloat16 and TF32 came with 8.0
        return f"compute capability must be at least 8.0, got {capability}"
    shared = shared_memory(device)
    if shared < LEAST_SHARED:
        return f"shared memory of a block must be at least {LEAST_SHARED:,} bytes, got {shared:,}"
    return None


def shared_memory(device: torch.device) -> int:
    """Bytes that a block of threads may share; interpreted programs have enough."""
    if device.type != "cuda":
        return AMPLE_SHARED
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def _kind(pairs: Pairs) -> tuple[int, torch.dtype]:
    return pairs.owner.vectors_CD.shape[1], pairs.owner.vectors_CD.dtype


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
