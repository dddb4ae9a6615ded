"""Tensors as a hostile user makes them: every layout, dtype, device and shape that a function of matrices may get."""

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn


class Subclass(torch.Tensor):
    """A subclass without anything of its own, as libraries make them."""


def _inference(rows: int, features: int) -> Tensor:
    with torch.inference_mode():
        return torch.randn(rows, features)


def _quantized(rows: int, features: int) -> Tensor:
    return torch.quantize_per_tensor(torch.randn(rows, features), 0.1, 0, torch.qint8)


def _subnormal(rows: int, features: int) -> Tensor:
    return torch.randn(rows, features) * 1e-40


def _with_row(value: float) -> Callable[[int, int], Tensor]:
    def make(rows: int, features: int) -> Tensor:
        matrix = torch.randn(rows, features)
        matrix[:1] = value
        return matrix

    return make


# From a number of rows and of features. FAIR ones hold ordinary numbers, and every function must take them.
FAIR: dict[str, Callable[[int, int], Tensor]] = {
    "plain": torch.randn,
    "float64": lambda n, d: torch.randn(n, d, dtype=torch.float64),
    "requires grad": lambda n, d: torch.randn(n, d, requires_grad=True),
    "parameter": lambda n, d: nn.Parameter(torch.randn(n, d)),
    "subclass": lambda n, d: torch.randn(n, d).as_subclass(Subclass),
    "transposed": lambda n, d: torch.randn(d, n).T,
    "strided": lambda n, d: torch.randn(2 * n, 3 * d)[::2, ::3],
    "offset": lambda n, d: torch.randn(n * d + 1)[1:].view(n, d),
    "inference": _inference,
    "zero row": _with_row(0.0),
    "negative zero": _with_row(-0.0),
}
ODD: dict[str, Callable[[int, int], Tensor]] = {
    "expanded": lambda n, d: torch.randn(1, d).expand(n, d),
    "zeros": torch.zeros,
    "ones": torch.ones,
    "subnormal": _subnormal,
    "subnormal float64": lambda n, d: _subnormal(n, d).double() * 1e-280,
    "huge": lambda n, d: torch.randn(n, d) * 1e38,
    "huge float64": lambda n, d: torch.randn(n, d, dtype=torch.float64) * 1e300,
    "float16": lambda n, d: torch.randn(n, d).half(),
    "bfloat16": lambda n, d: torch.randn(n, d).bfloat16(),
    "float8": lambda n, d: torch.randn(n, d).to(torch.float8_e4m3fn),
    "nan": _with_row(float("nan")),
    "inf": _with_row(float("inf")),
    "1e38": _with_row(1e38),
    "int64": lambda n, d: torch.randint(-3, 4, (n, d)),
    "uint8": lambda n, d: torch.randint(0, 256, (n, d), dtype=torch.uint8),
    "uint16": lambda n, d: torch.randint(0, 256, (n, d)).to(torch.uint16),
    "bool": lambda n, d: torch.randn(n, d) > 0,
    "complex64": lambda n, d: torch.randn(n, d, dtype=torch.complex64),
    "conjugate": lambda n, d: torch.randn(n, d, dtype=torch.complex64).conj(),
    "imaginary part": lambda n, d: torch.randn(n, d, dtype=torch.complex64).conj().imag,  # its sign bit is lazy
    "sparse coo": lambda n, d: torch.randn(n, d).to_sparse(),
    "sparse csr": lambda n, d: torch.randn(n, d).to_sparse_csr(),
    "mkldnn": lambda n, d: torch.randn(n, d).to_mkldnn(),
    "nested": lambda n, d: torch.nested.nested_tensor([torch.randn(d) for _ in range(n)]),
    "jagged": lambda n, d: torch.nested.nested_tensor([torch.randn(d) for _ in range(n)], layout=torch.jagged),
    "meta": lambda n, d: torch.randn(n, d, device="meta"),
    "quantized": _quantized,
    "no rows": lambda n, d: torch.randn(0, d),
    "no features": lambda n, d: torch.randn(n, 0),
    "one row": lambda n, d: torch.randn(1, d),
    "one feature": lambda n, d: torch.randn(n, 1),
    "other rows": lambda n, d: torch.randn(n + 1, d),
    "other features": lambda n, d: torch.randn(n, d + 1),
    "scalar": lambda n, d: torch.tensor(1.0),
    "vector": lambda n, d: torch.randn(n),
    "cube": lambda n, d: torch.randn(n, d, 2),
}
MAKERS = {**FAIR, **ODD}


def hostile(draw: random.Random, rows: int, features: int) -> tuple[str, Tensor]:
    """A tensor of some kind, and the name of its kind.

    Args:
        draw: the same state gives the same tensor.
        rows: of a matrix that fits.
        features: of it.

    >>> torch.equal(hostile(random.Random(3), 4, 2)[1], hostile(random.Random(3), 4, 2)[1])
    True
    """
    name = draw.choice(list(MAKERS))
    with torch.random.fork_rng():
        torch.manual_seed(draw.getrandbits(32))
        return name, MAKERS[name](rows, features)
