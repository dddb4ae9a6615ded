"""Time and error of the products and exponentials of pair losses on a CPU, in one thread.

    python benchmarks/products.py            # a minute

Products of float32 are torch's, and those of ``processor_routines``, which takes oneDNN where MKL is slow. A pair loss
needs float32 sums: an error e of a cosine changes exp(cosine / tau) by the factor exp(e / tau). Torch is asked for
products of bfloat16 in three ways. Exit code: 0.
"""

import math
import sys
from collections.abc import Callable

import torch
from measuring import Plan, Step, paired_ratio, quartiles, take_turns, wall_seconds
from torch import Tensor

from counterpoint.core.processor_routines import exp_, multiply, product_library

SIZES = ((512, 128), (1024, 128), (4096, 128), (4096, 512))
TEMPERATURE = 0.1


def scores_of(z_ND: Tensor, way: str) -> Callable[[], Tensor]:
    """A function that computes all cosines in one of the ways."""
    half_ND = z_ND.bfloat16()

    def product() -> Tensor:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16" if way == "float32, bf16 allowed" else "ieee"
        if way == "float32, ours":
            return multiply(z_ND, z_ND.T)
        if way == "bf16, sums kept in float32":
            return torch.mm(half_ND, half_ND.T, out_dtype=torch.float32)
        return half_ND @ half_ND.T if way == "bf16" else z_ND @ z_ND.T

    return product


def main() -> int:
    """Print the table."""
    torch.set_num_threads(1)
    ways = ("float32", "float32, ours", "float32, bf16 allowed", "bf16", "bf16, sums kept in float32")
    print(f"losses multiply by {product_library()}\n")
    print("| n, D | product | ms | over float32 | largest error of a cosine | of exp(cosine / 0.1) |")
    print("|---|---|---:|---:|---:|---:|")
    for n, num_dims in SIZES:
        z_ND = torch.nn.functional.normalize(
            torch.randn(n, num_dims, generator=torch.Generator().manual_seed(0)), dim=1
        )
        exact_NN, errors = z_ND.double() @ z_ND.double().T, {}
        for way in ways:
            try:
                error = float((scores_of(z_ND, way)().double() - exact_NN).abs().max())
            except NotImplementedError:
                print(f"| {n}, {num_dims} | {way} | torch has none on a CPU | | | |")
                continue
            errors[way] = error
        steps: dict[str, Step] = {way: scores_of(z_ND, way) for way in errors}  # type: ignore[dict-item]
        seconds = take_turns(steps, wall_seconds, Plan(2, 15, 9, 0.02))
        for way, error in errors.items():
            took, ratio = quartiles(seconds[way]).median, paired_ratio(seconds[way], seconds["float32"]).median
            print(f"| {n}, {num_dims} | {way} | {1e3 * took:.1f} | {ratio:.2f} | {error:.1e} | "
                  f"{math.expm1(error / TEMPERATURE):.1%} |", flush=True)  # fmt: skip
    u_NN = torch.linspace(-20.0, 0.0, 512 * 512).view(512, 512)
    exact_NN, exponentials = u_NN.double().exp(), {"torch.exp": u_NN.exp, "ours": lambda: exp_(u_NN.clone())}
    print("\n| exponentials of 512 x 512 numbers | ns a number | largest relative error |\n|---|---:|---:|")
    steps: dict[str, Step] = dict(exponentials)  # type: ignore[arg-type]
    seconds = take_turns(steps, wall_seconds, Plan(2, 15, 9, 0.02))
    for way, exponential in exponentials.items():
        error = float((exponential().double() / exact_NN - 1).abs().max())
        print(f"| {way} | {1e9 * quartiles(seconds[way]).median / u_NN.numel():.2f} | {error:.1e} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
