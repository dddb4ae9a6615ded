"""Fused programs: interpreted on the CPU, compiled without a GPU, and run on one where there is one.

The first two need a process of their own each, as triton decides when it is imported. Without a GPU, this file still
checks every sum (``interpreted_triton.py``) and that every program compiles and fits the chip (``compiled_triton.py``).
"""

# N anchors, M keys, D features

import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import dense_derivatives
import pytest
import torch
from pair_cases import FUNCTIONS, by_name, draw_weight, in_float64, make_scores

from counterpoint.kernels import dense
from counterpoint.kernels.contract import EXPONENTIAL, PairFunction, PairMask, PairScores, PerAnchor, ScoreTerms
from counterpoint.kernels.cpu import tiled
from counterpoint.kernels.triton import triton_pairs
from counterpoint.kernels.triton.triton_pairs import PRECISIONS, TritonPairs
from tolerances import RELATIVE, assert_close, assert_low_precision, relative_error

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ALL_PASSED = re.compile(r"^(\d+) passed(?:, \d+ warnings?)? in", re.MULTILINE)

HAS_TRITON = find_spec("triton") is not None and find_spec("triton.knobs") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="triton 3.4 or newer is not installed")
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: fused programs are not run on one"
)


# --- in processes of their own


@needs_triton
@pytest.mark.thorough
def test_programs_compute_the_definition_and_compile(tmp_path: Path) -> None:
    """Both files at once; nothing in them may be skipped."""
    common = {**os.environ, "OMP_NUM_THREADS": "1", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    common["COUNTERPOINT_TRITON_CHILD"] = "1"  # see conftest.py
    common.pop("TRITON_INTERPRET", None)
    runs = {
        "interpreted_triton.py": start("interpreted_triton.py", {**common, "TRITON_INTERPRET": "1"}),
        "compiled_triton.py": start("compiled_triton.py", common),
    }
    for name, process in runs.items():
        output, _ = process.communicate()
        assert process.returncode == 0, f"{name}:\n{output}"
        assert ALL_PASSED.search(output), f"{name}: not all passed\n{output}"


def start(name: str, environment: dict[str, str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / name)]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.thorough
def test_the_package_needs_no_triton() -> None:
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch\n"
        "from counterpoint.kernels import contract\n"
        "from counterpoint.kernels.triton import triton_pairs\n"
        "from counterpoint.kernels.contract import PairScores, ScoreTerms\n"
        "scores = PairScores(ScoreTerms(torch.zeros(2, 2), None, torch.ones(())))\n"
        "print(triton_pairs.why_not(scores, contract.HINGE))\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.stdout.strip() == "triton must be installed, found none", finished.stderr


# --- what has no program


def test_what_has_no_fused_program_is_said_with_a_remedy() -> None:
    scores = make_scores("self", "none", has_biases=False, dtype=torch.float32)
    own_psi = PairFunction("exp", torch.sinh, torch.cosh, torch.sinh)
    crowded = replace(scores, mask=PairMask(torch.zeros(7, 17, dtype=torch.int64)))
    integers = replace(scores, terms=replace(scores.terms, anchors_ND=torch.zeros(7, 2, dtype=torch.int64)))
    for bad, psi, error, words in [
        (scores, own_psi, ValueError, "psi must be one of exp, .*, got exp"),
        (crowded, EXPONENTIAL, ValueError, "excluded keys per anchor must be at most 16, got 17"),
        (integers, EXPONENTIAL, TypeError, "dtype must be one of .*, got int64"),
    ]:
        with pytest.raises(error, match=words + r".*; use kernels\.select\.use\('tiled'\)"):
            TritonPairs().reduce(bad, psi)
        with pytest.raises(error, match=words):
            TritonPairs().gradient(bad, psi, PerAnchor(torch.zeros(7)), PerAnchor(torch.ones(7)))


@needs_triton
@pytest.mark.parametrize(("shared", "is_refused"), [(65_536, True), (101_376, False)])
def test_a_card_with_too_little_shared_memory_is_refused(
    shared: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(shared_memory_per_block_optin=shared)
    )
    words = "shared memory of a block must be at least 101,376 bytes, got 65,536"
    assert triton_pairs._device_problem(torch.device("cuda", 0)) == (words if is_refused else None)


# --- on a GPU

SIZES = [(2048, 1500, 128), (5000, 7003, 64), (1025, 4100, 100), (700, 900, 600)]


def draw(
    n: int, m: int, d: int, *, kind: str, dtype: torch.dtype = torch.float32, has_labels: bool = False
) -> PairScores:
    """Vectors of unit length, temperature 0.05, biases; self and one other are left out."""
    generator = torch.Generator("cuda").manual_seed(0)
    m = n if kind == "self" else m
    anchors, keys = (
        torch.nn.functional.normalize(torch.randn(rows, d, generator=generator, device="cuda")) for rows in (n, m)
    )
    sizes = (n, m, m, n)[: 4 if kind == "two-way" else 2]
    biases = [0.1 * torch.randn(size, generator=generator, device="cuda") for size in sizes]
    own = torch.arange(n, device="cuda")
    excluded = torch.stack([own, own ^ 1], 1)
    excluded = torch.where(excluded < m, excluded, -1)
    labels = [torch.randint(0, 9, (rows,), generator=generator, device="cuda") for rows in (n, m)]
    if kind == "self":
        labels[1] = labels[0]
    anchor_labels, key_labels = labels if has_labels else (None, None)
    mask = PairMask(excluded, anchor_labels, key_labels, is_ragged=True)
    terms = ScoreTerms(
        anchors.to(dtype), None if kind == "self" else keys.to(dtype), torch.tensor(20.0, device="cuda"), *biases
    )
    return PairScores(terms, mask, kind == "two-way")


def weight_of(scores: PairScores) -> PerAnchor:
    """Weights of one sign, about 1 / n."""
    drawn = draw_weight(replace(scores, terms=replace(scores.terms, anchors_ND=scores.terms.anchors_ND.float())))
    parts = (None if part is None else (0.5 + part.abs().float()) / len(part) for part in vars(drawn).values())
    return PerAnchor(*(None if part is None else part.cuda() for part in parts))  # pyright: ignore[reportArgumentType]


@needs_triton
@needs_gpu
@pytest.mark.parametrize("psi", FUNCTIONS.values(), ids=lambda psi: psi.name)
@pytest.mark.parametrize("kind", ["self", "one-way", "two-way"])
def test_on_a_gpu_float32_equals_tiles_in_float64(psi: PairFunction, kind: str) -> None:
    kernel = TritonPairs()
    for size in SIZES:
        scores = draw(*size, kind=kind, has_labels=size[2] == 100)
        exact, weight = in_float64(scores), weight_of(scores)
        statistic, truth = kernel.reduce(scores, psi), tiled.reduce(exact, psi)
        for ours, theirs in zip(vars(statistic).values(), vars(truth).values(), strict=True):
            assert ours is None or relative_error(ours, theirs) <= RELATIVE[torch.float32]
        ours = by_name(kernel.gradient(scores, psi, statistic, weight))
        theirs = by_name(tiled.gradient(exact, psi, truth, in_float64(weight)))
        largest = max(float(value.abs().max()) for value in theirs.values())
        for name, value in ours.items():  # the gradient is one vector: a scale that cancels has its size
            assert float((value.double() - theirs[name]).abs().max()) <= RELATIVE[torch.float32] * largest, name


@needs_triton
@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_features", [64, 128, 200, 512])
def test_on_a_gpu_half_precision_errs_no_more_than_the_dense_operation(dtype: torch.dtype, num_features: int) -> None:
    for kind in ("self", "two-way"):
        scores = draw(1500, 2100, num_features, kind=kind, dtype=dtype)
        weight = weight_of(scores)
        statistic, low = TritonPairs().reduce(scores, EXPONENTIAL), dense.reduce(scores, EXPONENTIAL)
        truth = tiled.reduce(in_float64(scores), EXPONENTIAL)
        assert_low_precision(statistic.rows_N, low.rows_N, truth.rows_N)
        ours = by_name(TritonPairs().gradient(scores, EXPONENTIAL, statistic, weight))
        theirs = by_name(dense_derivatives.gradient(scores, EXPONENTIAL, low, weight))
        exact = by_name(tiled.gradient(in_float64(scores), EXPONENTIAL, truth, in_float64(weight)))
        for name in ("anchors", "keys"):
            if name in ours:
                assert_low_precision(ours[name], theirs[name], exact[name])


@needs_triton
@needs_gpu
@pytest.mark.parametrize("precision", PRECISIONS)
def test_on_a_gpu_two_runs_give_the_same_bits(precision: str) -> None:
    kernel = TritonPairs(precision)
    for kind in ("self", "two-way"):
        for size in SIZES:
            scores = draw(*size, kind=kind)
            weight = weight_of(scores)
            first, second = (kernel.reduce(scores, EXPONENTIAL) for _ in range(2))
            assert all(
                a is None or torch.equal(a, b) for a, b in zip(vars(first).values(), vars(second).values(), strict=True)
            )
            one, two = (by_name(kernel.gradient(scores, EXPONENTIAL, first, weight)) for _ in range(2))
            assert all(torch.equal(value, two[name]) for name, value in one.items())


@needs_triton
@needs_gpu
def test_on_a_gpu_offsets_pass_the_range_of_32_bits() -> None:
    """The last vector starts beyond 2^31 numbers."""
    keys = torch.zeros(2**23 + 3, 260, device="cuda", dtype=torch.bfloat16)
    keys[-1] = 1.0
    scores = PairScores(
        ScoreTerms(torch.ones(4, 260, device="cuda").bfloat16(), keys, torch.tensor(0.25, device="cuda"))
    )
    statistic = TritonPairs().reduce(scores, EXPONENTIAL)
    expected = torch.logaddexp(torch.tensor(65.0).double(), torch.tensor(float(2**23 + 2)).double().log())
    assert_close(statistic.rows_N.cpu(), expected.expand(4), dtype=torch.float32)
