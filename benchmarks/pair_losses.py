"""Time and memory of contrastive losses beside their peers: same work, checked equal first, ratios pair by pair.

    python benchmarks/pair_losses.py                  # CPU, some minutes
    python benchmarks/pair_losses.py --device cuda    # GPU: float32, TF32 and bfloat16
    python benchmarks/pair_losses.py --device cuda --alone 524288     # ours with so many pairs, time and memory
    python benchmarks/pair_losses.py --full           # also 65536 pairs, ours only on a CPU
    python benchmarks/pair_losses.py --beside-load    # idle, beside a busy process, beside a two-thread torch program
    python benchmarks/pair_losses.py --kinds sigmoid  # one loss
    python benchmarks/pair_losses.py --grid           # CSV of NT-Xent on the CPU: n, D, tau, 1 and 2 threads; an hour
    python benchmarks/pair_losses.py --grid --sizes 32 256 --features 128 --temperatures 0.1 --threads 1  # a part of it
    python benchmarks/pair_losses.py --grid --loads "two-thread torch" --features 128     # the same beside other work
    python benchmarks/pair_losses.py --quick          # seconds; shows that everything runs, not how fast

Peers come from `pip install lightly pytorch-metric-learning open_clip_torch`; a missing one is named in its row. The
table goes to standard output, progress to standard error. Exit code: 0; 1 if Counterpoint differed or failed; 2 for bad
arguments.
"""

import argparse
import csv
import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from pathlib import Path

import torch
from beside_load import IDLE, LOADS, beside, calls_of, compare
from exact_losses import Truth, errors_of, exact
from loaded_losses import CASES
from measuring import (
    Clock,
    EventClock,
    Plan,
    Step,
    call_in_fresh_process,
    extra_on_gpu,
    free_bytes,
    paired_ratio,
    quartiles,
    take_turns,
    wall_seconds,
)
from peer_losses import CATALOGUE, COMPILED, DENSE, OURS, Provider, bare_products
from problems import Precision, Problem, make_inputs, set_precision
from result_tables import PRODUCTS, Row, Section, heading, summary, table
from torch import Tensor

NT_XENT_SIZES = {"cpu": (16, 64, 128, 256, 512, 1024, 4096), "cuda": (256, 1024, 4096, 16384)}
CROSS_MODAL_SIZES = {"cpu": (4096,), "cuda": (4096, 32768)}
SHARP_SIZES, SHARP_TEMPERATURES = (64, 256, 512), (0.01, 0.02)
SUPERVISED_SIZES, SIGMOID_SIZES = (64, 256, 1024), (16, 64, 512)
GRID_SIZES, GRID_FEATURES, GRID_TEMPERATURES = [2**k for k in range(5, 14)], [64, 128, 512], [0.01, 0.02, 0.1, 0.5]
GRID_PLAN = Plan(warm_ups=2, short_rounds=15, long_rounds=5, sample_seconds=0.003)
QUARTILES = ("low", "high")
GRID_HEADER = ("load", "loss", "n", "D", "tau", "threads", "who", "ms", *QUARTILES, "time / ours", *QUARTILES, "remark")
COMPILED_SIZES = {"cpu": (64, 4096), "cuda": (16384,)}  # compiling takes longer than measuring
FULL_SIZE = 65536
PRECISIONS: dict[str, tuple[Precision, ...]] = {"cpu": ("float32",), "cuda": ("float32", "tf32", "bfloat16")}
PLANS = {
    "cpu": Plan(warm_ups=2, short_rounds=25, long_rounds=9, sample_seconds=0.005),
    "cuda": Plan(warm_ups=3, short_rounds=25, long_rounds=11, sample_seconds=0.0),
}
QUICK_PLAN = Plan(warm_ups=1, short_rounds=3, long_rounds=3, sample_seconds=0.0)
CPU_MEMORY_FROM = 256  # pairs; below, a process's own noise is larger than a loss
SHARE_OF_FREE = 0.9
FULLY_CHECKED = 16384  # rows; beyond, the gradient of some rows only
SAMPLED_ROWS = 64
NOTES = """Time is forward and backward to both inputs, normalisation included: median [lower, upper quartile].
`time / ours` is the median of ratios taken within rounds in which all took turns. Extra peak memory counts the inputs'
gradients. On a CPU it is the peak resident set of a fresh process above that after inputs were made and code was loaded
(from {memory_from} pairs on); on a GPU it is allocated memory. Loss and gradient were compared with a float64 oracle
before timing, relative to the largest entry (beyond {rows} rows the gradient of {sampled} rows, on a CPU in float32);
what differs is not timed. Figures of different precisions stand in different tables."""


LOADED = Path(__file__).with_name("loaded_losses.py")
LOAD_NOTES = """Each implementation has a process of its own, without any variable for threads, one after the other.
Time is forward and backward, normalisation included: the first call and the median of five more."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Arguments, or an error that says what to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads, >= 1 (default: what torch takes)")
    parser.add_argument(
        "--beside-load", action="store_true", help="first call and median beside other work, on the CPU"
    )
    parser.add_argument("--kinds", nargs="+", choices=CATALOGUE, default=list(CATALOGUE), help="which losses")
    for name, values in (("sizes", GRID_SIZES), ("features", GRID_FEATURES), ("temperatures", GRID_TEMPERATURES)):
        kind, words_of = type(values[0]), " ".join(map(str, values))
        parser.add_argument(
            f"--{name}", type=kind, nargs="+", default=values, help=f"of the grid (default: {words_of})"
        )
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=[IDLE], help="of the grid: what runs beside it")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--grid", action="store_true", help="CSV of NT-Xent at every size, width and temperature, CPU")
    size.add_argument("--quick", action="store_true", help="tiny sizes and few rounds, as a smoke test")
    size.add_argument("--full", action="store_true", help=f"also {FULL_SIZE} pairs")
    size.add_argument("--alone", type=int, default=None, help="NT-Xent of so many pairs, >= 2, ours alone")
    arguments = parser.parse_args(words)
    if arguments.alone is not None and arguments.alone < 2:
        parser.error(f"--alone must be >= 2, got {arguments.alone}")
    if arguments.threads is not None and arguments.threads < 1:
        parser.error(f"--threads must be >= 1, got {arguments.threads}; leave it out to use what torch takes")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs a GPU that torch can use, and there is none; leave --device out for the CPU")
    return arguments


def problems(arguments: argparse.Namespace) -> Iterator[Problem]:
    """All problems to measure, in the order of the tables."""
    device = arguments.device
    for precision in PRECISIONS[device]:
        made = {"precision": precision, "device": device}
        if arguments.quick:
            yield from (Problem("nt-xent", n, 16, 0.1, **made) for n in (8, 32))
            yield from (Problem(kind, 32, 16, 0.07, **made) for kind in ("cross-modal", "supervised", "sigmoid"))
            continue
        if arguments.alone:
            yield Problem("nt-xent", arguments.alone, 128, 0.1, **made)
            continue
        full = (FULL_SIZE,) if arguments.full else ()
        yield from (Problem("nt-xent", n, 128, 0.1, **made) for n in NT_XENT_SIZES[device] + full)
        yield from (Problem("nt-xent", n, 128, tau, **made) for n in SHARP_SIZES for tau in SHARP_TEMPERATURES)
        yield from (Problem("supervised", n, 128, 0.1, **made) for n in SUPERVISED_SIZES)
        yield from (Problem("supervised", 64, 128, tau, **made) for tau in SHARP_TEMPERATURES)
        yield from (Problem("sigmoid", n, 512, tau, **made) for n in SIGMOID_SIZES for tau in (0.01, 0.1))
        yield from (Problem("cross-modal", n, 512, 0.07, **made) for n in CROSS_MODAL_SIZES[device])


def truth_of(problem: Problem, x0: Tensor, x1: Tensor) -> Truth:
    """The oracle in float64; of large problems for some rows and, on a CPU, in float32."""
    is_large = 2 * problem.num_pairs > FULLY_CHECKED
    rows = torch.linspace(0, 2 * problem.num_pairs - 1, SAMPLED_ROWS).long().to(problem.device) if is_large else None
    dtype = torch.float32 if is_large and problem.device == "cpu" else torch.float64
    return exact(x0, x1, problem.kind, problem.temperature, rows=rows, dtype=dtype)


def why_not(problem: Problem, provider: Provider) -> str:
    """Reason to skip an implementation unseen, or nothing."""
    if provider.cuda_only and problem.device != "cuda":
        return "skipped: needs a GPU"
    if problem.num_pairs > provider.max_pairs:
        return f"skipped: cubic memory, not tried above {provider.max_pairs:g} pairs"
    return too_large(problem, provider.peak_bytes(problem))


def too_large(problem: Problem, needed: float) -> str:
    """Reason to skip what would not fit, or nothing."""
    free = free_bytes(problem.device)
    if needed <= SHARE_OF_FREE * free:
        return ""
    return f"skipped: needs about {needed / 2**30:.3g} GiB, {free / 2**30:.3g} GiB are free"


def prepare(problem: Problem, name: str, inputs: tuple[Tensor, Tensor], truth: Truth) -> tuple[Row, Step | None]:
    """Build and check one implementation; no step if it cannot or must not be timed."""
    x0, x1 = inputs
    provider = {**CATALOGUE[problem.kind], **COMPILED[problem.kind]}[name]
    reason = why_not(problem, provider)
    if reason:
        return Row(name, remarks=(reason,)), None
    try:
        built = provider.build(problem)
        errors = errors_of(built.function, x0, x1, truth)
    except ImportError as error:
        return Row(name, remarks=(f"{'failed' if name == OURS else 'skipped'}: cannot be imported ({error})",)), None
    except Exception as error:  # whatever a library raises belongs in its row; the others are still measured
        is_of_compiler = type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))
        failure = "does not compile" if is_of_compiler else f"failed: {type(error).__name__}"
        return Row(name, remarks=(f"{failure}: {str(error).strip().partition(chr(10))[0]}",)), None
    notes = (built.note,) if built.note else ()
    verdict = errors.verdict(problem.precision)
    if verdict:
        return Row(name, errors=errors, remarks=(*notes, f"not timed: {verdict}")), None

    def step() -> None:
        x0.grad = x1.grad = None
        built.function(x0, x1).backward()

    return Row(name, errors=errors, remarks=notes), step


def with_memory(problem: Problem, row: Row, step: Step | None, inputs: tuple[Tensor, Tensor]) -> Row:
    """Add the extra peak memory of one call; nothing without a step."""
    if step is None:
        return row
    for view in inputs:
        view.grad = None  # or the last call's gradients would be taken off this one's
    try:
        if problem.device == "cuda":
            return replace(row, extra_mib=extra_on_gpu(step))
        call = call_in_fresh_process(problem, row.provider)
    except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
        return replace(row, remarks=(*row.remarks, f"memory not measured: {error}"))
    odd = () if call.method == "VmHWM set back" else (f"memory by {call.method}",)
    return replace(row, extra_mib=call.extra_mib, remarks=(*row.remarks, *odd))


def measure(
    problem: Problem, clock: Clock, plan: Plan, *, memory_of: Sequence[str], names: Sequence[str] = ()
) -> Section:
    """Check, time in turns and weigh everyone who solves one problem."""
    set_precision(problem.precision)
    inputs = make_inputs(problem)
    truth = truth_of(problem, *inputs)
    reason = too_large(problem, problem.matrix_bytes)
    # First, so that the others are checked in as little memory as they are timed in.
    products = {} if reason or names else {PRODUCTS: bare_products(problem, *inputs)}
    has_size = problem.num_pairs in COMPILED_SIZES[problem.device]
    is_compiled = plan is GRID_PLAN or (has_size and plan is not QUICK_PLAN)
    names = names or [*CATALOGUE[problem.kind], *(COMPILED[problem.kind] if is_compiled else ())]
    prepared = {name: prepare(problem, name, inputs, truth) for name in names}
    steps = {name: step for name, (_, step) in prepared.items() if step is not None}
    seconds = take_turns({**steps, **products}, clock, plan) if steps or products else {}
    products.clear()
    rows = [*(row for row, _ in prepared.values()), Row(PRODUCTS, remarks=(reason or "results preallocated",))]
    rows = [with_times(row, seconds) for row in rows]
    weighed = {name: step for name, step in steps.items() if name in memory_of}
    rows = [with_memory(problem, row, weighed.get(row.provider), inputs) for row in rows]
    return Section(problem, max(map(len, seconds.values()), default=0), tuple(rows))


def with_times(row: Row, seconds: dict[str, list[float]]) -> Row:
    """Add time and ratio: theirs over ours, but ours over the bare products."""
    own, ours = seconds.get(row.provider), seconds.get(OURS)
    if own is None:
        return row
    if ours is None or row.provider == OURS:
        return replace(row, seconds=quartiles(own))
    if len(own) < max(map(len, seconds.values())):
        row = replace(row, remarks=(*row.remarks, f"slow: first {len(own)} rounds only"))
    ratio = paired_ratio(ours, own) if row.provider == PRODUCTS else paired_ratio(own, ours)
    return replace(row, seconds=quartiles(own), ratio=ratio)


def measure_alone(problem: Problem) -> Section:
    """One call of ours in a fresh process, then one here whose result is checked."""
    try:
        call = call_in_fresh_process(problem, OURS)
    except RuntimeError as error:
        return Section(problem, 0, (Row(OURS, remarks=(f"failed: {error}",)),))
    inputs = make_inputs(problem)
    row, step = prepare(problem, OURS, inputs, truth_of(problem, *inputs))
    if step is None:
        return Section(problem, 0, (row,))
    remarks = (*row.remarks, "one call in a fresh process")
    timed = replace(row, seconds=quartiles([call.seconds]), extra_mib=call.extra_mib, remarks=remarks)
    others = (Row(name, remarks=("not tried at this size",)) for name in CATALOGUE[problem.kind] if name != OURS)
    return Section(problem, 1, (timed, *others))


def names_to_weigh(problem: Problem, *, is_quick: bool) -> Sequence[str]:
    """Implementations whose memory is measured: each takes a fresh process on a CPU, so not at every size."""
    if is_quick:
        return (OURS, DENSE) if problem.num_pairs == 32 and problem.kind == "nt-xent" else ()
    is_worth_it = problem.device == "cuda" or problem.num_pairs >= CPU_MEMORY_FROM
    return tuple(CATALOGUE[problem.kind]) if is_worth_it else ()


def measure_beside_load(*, is_quick: bool) -> int:
    """Print tables of the cases under each load, and whether bits depend on the threads; return the exit code."""
    print(heading("cpu"), LOAD_NOTES, sep="\n\n", flush=True)
    failures = 0
    for title, case in CASES.items():
        print(title, file=sys.stderr, flush=True)
        num_pairs, num_calls = (64, 2) if is_quick else (case.problem.num_pairs, 6)
        commands = {name: (LOADED, (title, name, num_pairs, num_calls, 0)) for name in case.losses}
        print("", compare(f"{title}, n = {num_pairs}, D = {case.problem.num_features}", commands), sep="\n", flush=True)
        try:
            bits = {calls_of(LOADED, title, OURS, num_pairs, 1, threads).extra["bits"] for threads in (1, 2, 3)}
        except RuntimeError as error:
            print(f"Counterpoint failed: {error}")
            failures += 1
            continue
        print(f"Bits for 1, 2 and 3 threads: {'the same' if len(bits) == 1 else 'NOT the same'}.", flush=True)
        failures += len(bits) > 1
    return 1 if failures else 0


def measure_grid(arguments: argparse.Namespace) -> int:
    """Print lines of the grid as they come; return the exit code."""
    lines, failures = csv.writer(sys.stdout), 0
    lines.writerow(GRID_HEADER)
    threads = (1, 2) if arguments.threads is None else (arguments.threads,)
    sides = arguments.loads, threads, arguments.sizes, arguments.features, arguments.temperatures
    for load, num_threads, n, num_features, tau in itertools.product(*sides):
        torch.set_num_threads(num_threads)
        torch.compiler.reset()  # or the limit of recompilations is reached
        problem = Problem("nt-xent", n, num_features, tau)
        with beside(load):
            rows = measure(problem, wall_seconds, GRID_PLAN, memory_of=()).rows
        for row in rows:
            times = [1000 * x for x in astuple(row.seconds)] if row.seconds else [math.nan] * 3
            ratios = astuple(row.ratio) if row.ratio else [math.nan] * 3
            # Quartiles are low, median, high.
            figures = [f"{x:.4g}" for three in (times, ratios) for x in (three[1], three[0], three[2])]
            who = load, problem.kind, n, num_features, tau, num_threads, row.provider
            lines.writerow([*who, *figures, "; ".join(row.remarks)])
            failures += row.provider == OURS and row.seconds is None
        sys.stdout.flush()
    return 1 if failures else 0


def main(words: Sequence[str]) -> int:
    """Measure, print tables as they come, return the exit code."""
    arguments = parse(words)
    if arguments.grid:
        return measure_grid(arguments)
    if arguments.beside_load:
        return measure_beside_load(is_quick=arguments.quick)
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    clock = EventClock() if arguments.device == "cuda" else wall_seconds
    plan = QUICK_PLAN if arguments.quick else PLANS[arguments.device]
    notes = NOTES.format(memory_from=CPU_MEMORY_FROM, rows=FULLY_CHECKED, sampled=SAMPLED_ROWS)
    print(heading(arguments.device), notes, sep="\n\n", flush=True)
    todo, sections = [problem for problem in problems(arguments) if problem.kind in arguments.kinds], []
    for number, problem in enumerate(todo, start=1):
        print(f"[{number}/{len(todo)}] {problem.title}", file=sys.stderr, flush=True)
        if problem.device == "cpu" and problem.num_pairs == FULL_SIZE:
            section = measure_alone(problem)
        else:
            memory_of = names_to_weigh(problem, is_quick=arguments.quick)
            section = measure(problem, clock, plan, memory_of=memory_of, names=(OURS,) if arguments.alone else ())
        print("", table(section), sep="\n", flush=True)
        sections.append(section)
    print("\n### All of them, peers as their time over ours\n", summary(sections), sep="\n")
    failures = sum(row.provider == OURS and row.seconds is None for section in sections for row in section.rows)
    if failures:
        print(f"Counterpoint was not timed in {failures} of {len(todo)} tables; its rows say why", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
