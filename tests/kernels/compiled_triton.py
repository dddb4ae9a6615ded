"""Fused programs compiled without a GPU, for compute capability 9.0 and for cards with less shared memory.

``test_triton_pairs`` runs this in its own process. The interpreter accepts what the compiler refuses, and knows neither
registers nor shared memory.
"""

# N anchors, M keys, D features

from typing import Any

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import driver

from counterpoint.kernels.contract import (
    EXPONENTIAL,
    HINGE,
    SIGMOID,
    SOFTPLUS,
    SQUARE,
    PairMask,
    PairScores,
    PerAnchor,
    ScoreTerms,
)
from counterpoint.kernels.triton import triton_launch, triton_pairs
from counterpoint.kernels.triton.triton_pairs import TritonPairs

# What a block may have, in bytes, by compute capability: H100 and H200, then RTX 30, RTX 40 and L4, RTX 50
SHARED_BYTES = {90: 232_448, 86: 101_376, 89: 101_376, 120: 101_376}


class NoDevice:
    """Stands in for the driver; nothing is launched."""

    capability = 90

    def get_current_device(self) -> int:
        return self.capability  # what is compiled is kept by device

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[Any]:
    """Programs that are compiled instead of run."""
    programs: list[Any] = []

    def compile_only(self: triton_launch.Program, function: Any, grid: tuple[int, int], pairs: Any, out: Any) -> None:
        options = {"num_warps": self.shape.num_warps, "num_stages": self.shape.num_stages, "enable_fp_fusion": True}
        programs.append(function.warmup(pairs, out, tiling=self.tiling(pairs), grid=grid, **options))

    monkeypatch.setattr(triton_launch.Program, "run", compile_only)
    monkeypatch.setattr(triton_pairs, "_device_problem", lambda _: None)
    device: Any = NoDevice()  # a driver in all that compiling asks for
    device.capability = getattr(request, "param", 90)
    monkeypatch.setattr(triton_pairs, "shared_memory", lambda _: SHARED_BYTES[device.capability])
    driver.set_active(device)
    return programs


def draw(num_features: int, dtype: torch.dtype, kind: str, *, has_all: bool) -> PairScores:
    """Scores of any values, with or without biases and labels."""
    anchors, keys = torch.zeros(300, num_features, dtype=dtype), torch.zeros(400, num_features, dtype=dtype)
    is_self, is_two_way = kind == "self", kind == "two-way"
    num_keys = 300 if is_self else 400
    biases = [torch.zeros(size, dtype=dtype) for size in (300, num_keys, 400, 300)[: 4 if is_two_way else 2]]
    labels = (torch.zeros(300).long(), torch.zeros(num_keys).long()) if has_all else (None, None)
    terms = ScoreTerms(anchors, None if is_self else keys, torch.ones(()), *(biases if has_all else []))
    return PairScores(terms, PairMask(torch.zeros(300, 2).long(), *labels), is_two_way)


CASES = [
    (EXPONENTIAL, "tf32x3", torch.bfloat16, 512, "two-way", True),
    (EXPONENTIAL, "tf32x3", torch.float32, 128, "self", False),
    (SOFTPLUS, "tf32x3", torch.float32, 100, "one-way", True),
    (SIGMOID, "tf32", torch.float32, 300, "two-way", True),
    (HINGE, "tf32x3", torch.float64, 20, "self", True),
    (SQUARE, "bf16", torch.float32, 3, "self", False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].name}-{case[1]}-{case[2]}-{case[3]}-{case[4]}")
def test_programs_compile_and_fit(case: tuple[Any, ...], compiled: list[Any]) -> None:
    psi, precision, dtype, num_features, kind, has_all = case
    scores, kernel = draw(num_features, dtype, kind, has_all=has_all), TritonPairs(precision)
    statistic = kernel.reduce(scores, psi)
    weight = PerAnchor(torch.ones(300), torch.ones(400) if kind == "two-way" else None)
    kernel.gradient(scores, psi, statistic, weight)
    assert len(compiled) >= 2
    has_matrix_units = dtype != torch.float64
    for program in compiled:
        assert program.metadata.shared <= SHARED_BYTES[90]
        assert ("wgmma.mma_async" in program.asm["ptx"]) == has_matrix_units


@pytest.mark.parametrize(
    ("compiled", "dtype", "num_features"),
    [(86, torch.bfloat16, 200), (120, torch.bfloat16, 200), (86, torch.float32, 64)],
    indirect=["compiled"],
    ids=str,
)
def test_programs_fit_cards_with_less_shared_memory(
    dtype: torch.dtype, num_features: int, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sizes that ask for most; the assembler has no say in it and is left out."""
    monkeypatch.setattr(CUDABackend, "make_cubin", lambda *_: b"")
    scores, kernel = draw(num_features, dtype, "self", has_all=False), TritonPairs()
    kernel.gradient(scores, EXPONENTIAL, kernel.reduce(scores, EXPONENTIAL), PerAnchor(torch.ones(300)))
    assert len(compiled) == 2
    assert all(program.metadata.shared <= SHARED_BYTES[86] for program in compiled)
