"""Products with the Hessian of InfoNCE beside the gradient and three peers; memory; spectra, also of known matrices.

    python benchmarks/curvature.py            # some ten minutes on two cores
    python benchmarks/curvature.py --quick    # seconds; shows that everything runs, not how fast

Two encoders of about 100,000 weights, 256 pairs, float32. All steps take turns in random order; times are those of the
processor with one thread, and each ratio is taken within a round; the spectrum has all threads. Products are first
checked against each other. Peers (PyHessian, curvlinops, hessian-eigenthings) are measured where they can be imported,
such as from a folder on PYTHONPATH made with `pip install --no-deps --target FOLDER pyhessian curvlinops-for-pytorch
hessian-eigenthings` and what these need.
The exit code is 1 where products differ.
"""

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from curvature_peers import peer_extremes, peer_products
from measuring import Plan, Quartiles, Step, extra_of_call, paired_ratio, quartiles, take_turns
from result_tables import heading
from torch import Tensor, nn
from torch.func import functional_call

from counterpoint.diagnostics.curvature.hessian_products import CoupledLoss, hessian_operator
from counterpoint.diagnostics.curvature.operator_spectrum import operator_spectrum
from counterpoint.losses import InfoNCE

GRADIENT, SCRATCH, KEPT = "gradient", "product from scratch", "product, graph kept"
CLOSE = 1e-3  # relative, of float32
TARGETS = {SCRATCH: 3.2, KEPT: 2.2}  # times the gradient
SPECTRUM_TARGET = 180.0
FULL_PLAN, QUICK_PLAN = Plan(1, 9, 7, 0.05), Plan(1, 2, 2, 0.0)


@dataclass(frozen=True)
class Size:
    """Numbers of pairs and of steps, and the plan of the measurement."""

    num_pairs: int
    memory_pairs: int
    steps: int
    plan: Plan


FULL = Size(256, 2048, 100, FULL_PLAN)
QUICK = Size(16, 32, 4, QUICK_PLAN)


def encoder(kind: str) -> tuple[nn.Module, tuple[int, ...]]:
    """An encoder of about 100,000 weights, and the shape of its samples."""
    torch.manual_seed(0)
    if kind == "mlp":
        layers = (nn.Linear(256, 192), nn.Tanh(), nn.Linear(192, 192), nn.Tanh(), nn.Linear(192, 64, bias=False))
        return nn.Sequential(*layers), (256,)
    widths, layers = (3, 32, 64, 128), []
    for before, width in itertools.pairwise(widths):
        layers += [nn.Conv2d(before, width, 3, stride=2, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 64, bias=False)]
    return nn.Sequential(*layers), (3, 32, 32)


def problem(kind: str, num_pairs: int, dtype: torch.dtype = torch.float32) -> tuple[CoupledLoss, nn.Module]:
    """InfoNCE of drawn pairs."""
    module, shape = encoder(kind)
    module = module.to(dtype)
    loss = InfoNCE(0.5)
    x0 = torch.randn(num_pairs, *shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    x1 = x0 + 0.3 * torch.randn(x0.shape, generator=torch.Generator().manual_seed(2)).to(dtype)

    def encode(parameters: dict[str, Tensor], inputs: tuple[Tensor, ...]) -> Tensor:
        z0, z1 = functional_call(module, parameters, (torch.cat(inputs),)).chunk(2)
        return torch.stack([z0, z1], dim=1)

    parameters = {name: value.detach() for name, value in module.named_parameters()}
    return CoupledLoss(encode, lambda _, z: loss(z[:, 0], z[:, 1]), parameters, (x0, x1)), module  # pyright: ignore[reportArgumentType]


def processor_time(step: Step, repeats: int) -> float:
    """Mean processor seconds of one call."""
    start = time.process_time()
    for _ in range(repeats):
        step()
    return (time.process_time() - start) / repeats


def products(coupled: CoupledLoss, module: nn.Module) -> dict[str, Callable[[Tensor], Tensor]]:
    """Every way to a product, by name."""
    ours: dict[str, Callable[[Tensor], Tensor]] = {
        SCRATCH: lambda v: hessian_operator(coupled).product(v),
        KEPT: hessian_operator(coupled).product,
    }
    return ours | peer_products(coupled, module)


def gradient_of(coupled: CoupledLoss) -> Step:
    """One gradient of the whole batch."""

    def step() -> None:
        leaves = coupled.leaves()
        torch.autograd.grad(coupled.loss(leaves, coupled.encode(leaves, coupled.inputs)), list(leaves.values()))

    return step


def differences(ways: dict[str, Callable[[Tensor], Tensor]], v_P: Tensor) -> list[str]:
    """Sentences about products that differ from those of the kept graph."""
    expected = ways[KEPT](v_P)
    far = {name: float((way(v_P) - expected).norm() / expected.norm()) for name, way in ways.items()}
    return [f"{name} is off by {error:.1e}" for name, error in far.items() if error > CLOSE]


def time_table(kind: str, size: Size) -> tuple[list[str], list[str]]:
    """Lines of the table of one encoder, and what differs."""
    coupled, module = problem(kind, size.num_pairs)
    v_P = torch.randn(coupled.num_parameters, generator=torch.Generator().manual_seed(3))
    ways = products(coupled, module)
    if wrong := differences(ways, v_P):
        return [], wrong
    steps: dict[str, Step] = {GRADIENT: gradient_of(coupled)}
    steps |= {name: (lambda way=way: void(way(v_P))) for name, way in ways.items()}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for others would count as work
    seconds = take_turns(steps, processor_time, size.plan)
    torch.set_num_threads(threads)
    lines = [
        f"### {kind}: {coupled.num_parameters:,} weights, {size.num_pairs} pairs",
        "",
        "| what | processor ms | / gradient | target | / from scratch |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, spent in seconds.items():
        first, second = paired_ratio(spent, seconds[GRADIENT]), paired_ratio(spent, seconds[SCRATCH])
        target = judged(first, TARGETS.get(name))
        cells = (name, written(quartiles(spent), 1000), written(first), target, written(second))
        lines.append(f"| {' | '.join(cells)} |")
    return lines, []


def memory_table(size: Size) -> list[str]:
    """Peaks of a product in processes of their own."""
    lines = ["### convnet: peak memory of a product", "", "| pairs | MiB |", "|---:|---:|"]
    for num_pairs in (size.memory_pairs // 8, size.memory_pairs):
        command = [sys.executable, __file__, "--child", str(num_pairs)]
        finished = subprocess.run(command, capture_output=True, text=True, check=True)
        lines.append(f"| {num_pairs} | {float(json.loads(finished.stdout.splitlines()[-1])['extra_mib']):.0f} |")
    return lines


def measure_child(num_pairs: int) -> None:
    """Print the extra peak of one product, its operator included; code is loaded by a small one before."""

    def step(pairs: int) -> Step:
        coupled, _ = problem("convnet", pairs)
        v_P = torch.ones(coupled.num_parameters)
        return lambda: void(hessian_operator(coupled).product(v_P))

    step(4)()
    print(json.dumps(asdict(extra_of_call(step(num_pairs)))))


def spectrum_table(size: Size) -> Iterator[str]:
    """Yield seconds of a whole spectrum, float64 and float32; each line as soon as it is measured."""
    title = f"### {size.steps} Lanczos steps, {size.num_pairs} pairs"
    yield from (title, "", "| encoder | dtype | seconds | processor s | target, s |")
    yield "|---|---|---:|---:|---:|"
    for kind, dtype in itertools.product(("mlp", "convnet"), (torch.float64, torch.float32)):
        coupled, _ = problem(kind, size.num_pairs, dtype)
        start, used = time.perf_counter(), time.process_time()
        operator = hessian_operator(coupled)
        probe = torch.randn(coupled.num_parameters, generator=torch.Generator().manual_seed(3))
        operator_spectrum(operator, [probe], steps=size.steps)
        spent, used = time.perf_counter() - start, time.process_time() - used
        verdict = judged(Quartiles(spent, spent, spent), SPECTRUM_TARGET)
        yield f"| {kind} | {dtype} | {spent:.1f} | {used:.1f} | {verdict} |"


def known_table(size: Size) -> list[str]:
    """Error of the largest eigenvalue of a matrix whose spectrum is known, each with as many products."""
    dims = 20 * size.steps
    generator = torch.Generator().manual_seed(0)
    rotation_PP, _ = torch.linalg.qr(torch.randn(dims, dims, generator=generator, dtype=torch.float64))
    bulk, outliers = torch.linspace(-1, 1, dims - 4, dtype=torch.float64), torch.tensor([10.0, 20.0, 30.0, 60.0])
    values_P = torch.cat([bulk, outliers.double()])
    matrix_PP = rotation_PP * values_P @ rotation_PP.T
    coupled = CoupledLoss(
        lambda parameters, _: (0.5 * parameters["theta"] @ matrix_PP @ parameters["theta"]).reshape(1, 1),
        lambda _, z: z.sum(),
        {"theta": torch.ones(dims, dtype=torch.float64)},
        (torch.zeros(1, 1),),
    )
    probe = torch.randn(dims, generator=generator, dtype=torch.float64)
    ours = operator_spectrum(hessian_operator(coupled), [probe], steps=size.steps, threshold=2.0)
    extremes = {"ours (Lanczos)": ours.largest[0].value, **peer_extremes(matrix_PP, size.steps)}
    lines = [f"### a known spectrum of {dims:,} eigenvalues, {size.steps} products (SciPy takes 20 at least)", ""]
    lines += ["| who | relative error of the largest |", "|---|---:|"]
    lines += [f"| {name} | {abs(value - 60.0) / 60.0:.1e} |" for name, value in extremes.items()]
    above = ours.masses.above
    words = f"{above.count[0]:,} to {above.count[1]:,} by the interval, at least {above.at_least} for certain"
    return [*lines, "", f"Eigenvalues above 2, of which there are 4: {words}."]


def void(_: object) -> None:
    """Let go of a result."""


def written(values: Quartiles, scale: float = 1.0) -> str:
    """Median and quartiles."""
    low, median, high = (f"{value * scale:.3g}" for value in (values.low, values.median, values.high))
    return f"{median} [{low}, {high}]"


def judged(values: Quartiles, target: float | None) -> str:
    """The target and whether the median meets it."""
    return "-" if target is None else f"{target:g}: {'met' if values.median <= target else 'missed'}"


def main(words: Sequence[str]) -> int:
    """Print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few pairs, rounds and steps, as a smoke test")
    parser.add_argument("--child", type=int, metavar="PAIRS", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.child:
        measure_child(arguments.child)
        return 0
    size = QUICK if arguments.quick else FULL
    print(heading("cpu", Path(__file__).name), flush=True)
    has_failed = False
    for kind in ("mlp", "convnet"):
        lines, wrong = time_table(kind, size)
        print("", *lines, sep="\n", flush=True)
        for sentence in wrong:
            print(f"{kind}: {sentence}, not timed", file=sys.stderr)
        has_failed |= bool(wrong)
    print("", *known_table(size), sep="\n", flush=True)
    print("", *memory_table(size), sep="\n", flush=True)
    print()
    for line in spectrum_table(size):
        print(line, flush=True)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
