"""Speed of training beside lightly in Lightning: same model, batch, precision and machine, ratios round by round.

    python benchmarks/training.py                            # CPU, about four minutes on 2 cores
    python benchmarks/training.py --device cuda              # GPU: ResNet-18, batch 512
    python benchmarks/training.py --device cuda --full       # also 200 epochs on CIFAR-10 and kNN-200 (--data FOLDER)
    python benchmarks/training.py --beside-load              # a step idle, beside a busy process, beside torch
    python benchmarks/training.py --quick                    # a minute; shows that everything runs, not how fast

The peers come from `pip install lightly pytorch-lightning kornia`; a missing one is named in its row. Tables go to
standard output, progress to standard error. Exit code: 0; 1 if the models compared are not the same; 2 for bad
arguments.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch, as the command does: loader processes need cores

import torch
from beside_load import compare
from full_training import train_to_the_end
from loaded_training import OURS as OUR_STEP
from measuring import Plan, Quartiles, paired_ratio, quartiles, take_turns, wall_seconds
from result_tables import heading
from training_report import (
    CIFAR_SIZE,
    Entry,
    Verdict,
    at_least,
    at_most,
    part_table,
    rate_table,
    verdict_table,
)
from training_runs import WARM_UPS, Setup, forget_peak, make_job, part_seconds, peak_mib, random_pictures, step_seconds
from view_peers import OURS, PIL_WORKERS, Work
from views import TARGET, make_images, prepare, table

PRECISIONS = ("fp32", "bf16")
DEFAULTS = {"cpu": ("resnet9", 128), "cuda": ("resnet18", 512)}
STEPS, ROUNDS = 6, 3
APART = "ours, views apart"
LIGHTLY, READY = "lightly + Lightning", "the same, its views ready beforehand"
LOADED = Path(__file__).with_name("loaded_training.py")
Series = dict[tuple[str, str], list[list[float]]]  # (name, precision) -> seconds of the steps of each round
NOTES = """One round is one run of {steps} steps of each implementation, in turn; the first {warm} steps do not
count. A step of ours is a step of `counterpoint train`: from asking for a batch to asking for the next. `bare` is the
same model, views, loss and optimiser in a loop of ten lines, whose steps alternate with ours. Ours encodes both views
together; `views apart` encodes each by itself (`--engine.encode-views apart`), as lightly does. Lightly's example runs
as it comes (float32, contiguous, views on PIL in {workers} loader processes); bf16 is mixed precision everywhere.
images/s counts samples; each is seen in two views."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Arguments, or an error that says what to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(DEFAULTS), default="cpu")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads, >= 1 (default: what torch takes)")
    parser.add_argument("--encoder", choices=("resnet9", "resnet18"), default=None)
    parser.add_argument("--batch-size", type=int, default=None, help="samples per step (128 on a CPU, 512 on a GPU)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often everyone takes a turn")
    parser.add_argument("--data", type=Path, default=None, help="--full: folder that holds CIFAR-10")
    parser.add_argument(
        "--beside-load", action="store_true", help="first and median step beside other work, on the CPU"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a tiny batch and few steps, as a smoke test")
    size.add_argument("--full", action="store_true", help="also 200 epochs and their accuracy (for a GPU)")
    arguments = parser.parse_args(words)
    for name, lowest in (("threads", 1), ("batch_size", 2), ("rounds", 1)):
        value = getattr(arguments, name)
        if value is not None and value < lowest:
            parser.error(f"--{name.replace('_', '-')} must be >= {lowest}, got {value}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda needs a GPU that torch can use, and there is none; leave --device out for the CPU")
    if arguments.full and arguments.data is None:
        parser.error("--full needs --data, a folder with CIFAR-10")
    if arguments.beside_load and (arguments.device != "cpu" or arguments.full):
        parser.error("--beside-load is for the CPU and goes without --full")
    return arguments


def make_setup(arguments: argparse.Namespace) -> Setup:
    """The training problem that everyone solves."""
    encoder, batch_size = DEFAULTS[arguments.device]
    batch_size = arguments.batch_size or (4 if arguments.quick else batch_size)
    steps = 4 if arguments.quick else STEPS
    steps *= 4 if arguments.device == "cuda" and not arguments.quick else 1
    return Setup(
        random_pictures(steps * batch_size), arguments.encoder or encoder, batch_size, "fp32", arguments.device
    )


def say(text: str) -> None:
    """Show progress."""
    print(text, file=sys.stderr, flush=True)


def run_rounds(setup: Setup, folder: Path, num_rounds: int) -> tuple[Series, dict[str, str]]:
    """Seconds of everyone's steps in each round, and why someone is missing."""
    series: Series = {}
    missing: dict[str, str] = {}
    for number in range(num_rounds):
        for precision in PRECISIONS:
            say(f"round {number + 1} of {num_rounds}, {precision}")
            here = replace(setup, precision=precision)
            takers = [
                lambda here=here: step_seconds(here, folder, with_bare=True),
                lambda here=here: apart_seconds(here, folder),
                lambda here=here: peers(here),
            ]
            for take in takers if number % 2 == 0 else takers[::-1]:
                for name, seconds in take().items():
                    if isinstance(seconds, str):
                        missing[name] = seconds
                    else:
                        series.setdefault((name, precision), []).append(seconds)
    return series, missing


def apart_seconds(setup: Setup, folder: Path) -> dict[str, list[float]]:
    """Seconds of our steps where each view passes the encoder by itself, as lightly has it."""
    return {APART: step_seconds(replace(setup, encode_views="apart"), folder, with_bare=False)["ours"]}


def peers(setup: Setup) -> dict[str, list[float] | str]:
    """Seconds of lightly's steps, or why there are none."""
    try:
        from lightly_simclr import lightly_seconds  # deferred: a peer that may not be installed
    except ImportError as error:
        return dict.fromkeys((LIGHTLY, READY), f"skipped: cannot be imported ({error})")
    pool = peer_process(torch.get_num_threads())
    ways = ((LIGHTLY, True), (READY, False))
    return {name: pool.submit(lightly_seconds, setup, loads=loads).result() for name, loads in ways}


@cache
def peer_process(num_threads: int) -> ProcessPoolExecutor:
    """A process of its own for the peer: what a run of ours asks of the system's memory is not its affair."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, context, initializer=torch.set_num_threads, initargs=(num_threads,))


def differences_from_peer(setup: Setup, folder: Path) -> list[str]:
    """Sentences about what keeps lightly's example from being the same work; empty if nothing does or it is absent."""
    try:
        from lightly_simclr import differences  # deferred: a peer that may not be installed
    except ImportError:
        return []
    return differences(make_job(setup, folder).method, setup.encoder)


def medians(series: Series, name: str, precision: str) -> list[float]:
    """Median step of each round."""
    return [statistics.median(seconds) for seconds in series.get((name, precision), [])]


def entries_of(series: Series, missing: Mapping[str, str]) -> list[Entry]:
    """A row for everyone in each precision."""
    return [
        Entry(name, precision, medians(series, name, precision), missing.get(name, ""))
        for precision in PRECISIONS
        for name in ("ours", APART, "bare", LIGHTLY, READY)
    ]


def speed_verdicts(series: Series, device: str) -> list[Verdict]:
    """Verdicts on the promised speed beside lightly and beside a bare loop."""
    verdicts: list[Verdict] = []
    peer = medians(series, LIGHTLY, "fp32")
    if peer and device == "cpu":
        fastest = min(PRECISIONS, key=lambda precision: statistics.median(medians(series, "ours", precision)))
        ratio = paired_ratio(peer, medians(series, "ours", fastest))
        verdicts.append(at_least(f"images/s of ours ({fastest}) over lightly as it comes (fp32)", ratio, 2))
    for precision in PRECISIONS:
        for name in (LIGHTLY, READY):
            theirs = medians(series, name, precision)
            if theirs:
                ratio = paired_ratio(theirs, medians(series, "ours", precision))
                verdicts.append(at_least(f"images/s of ours over {name}, both {precision}", ratio, 1))
            apart = medians(series, APART, precision)
            if theirs and apart:
                claim = f"images/s of {APART} over {name}, both {precision}"
                verdicts.append(at_least(claim, paired_ratio(theirs, apart), 1))
    for precision in PRECISIONS:
        pairs = [[*chain.from_iterable(series[name, precision])] for name in ("ours", "bare")]
        verdicts.append(at_most(f"time of our step over a bare loop's, {precision}", paired_ratio(*pairs), 1.03))
    return verdicts


def gpu_verdicts(series: Series, parts: Mapping[str, Mapping[str, Sequence[float]]], batch_size: int) -> list[Verdict]:
    """Verdicts on what was promised on a GPU."""
    epoch = [CIFAR_SIZE // batch_size * seconds for seconds in medians(series, "ours", "bf16")]
    views, step = (quartiles(parts["bf16"][name]).median for name in ("views", "step"))
    share = Quartiles(views / step, views / step, views / step)
    return [
        at_most("an epoch of CIFAR-10", quartiles(epoch), 6, unit="s"),
        at_most("views' share of a step, bf16", share, 0.2, unit=""),
    ]


def compare_views(*, is_quick: bool) -> tuple[str, list[Verdict]]:
    """Drawing views alone on the CPU beside torchvision v2 and kornia, as `views.py` does at length."""
    num_images, batch_size, rounds = (8, 4, 1) if is_quick else (1024, 256, 5)
    steps, remarks = prepare(Work(make_images(num_images), batch_size, torch.get_num_threads()))
    seconds = take_turns(steps, wall_seconds, Plan(1, rounds, rounds, 0.0))
    verdicts = []
    if PIL_WORKERS in seconds:
        ratio = paired_ratio(seconds[PIL_WORKERS], seconds[OURS])
        verdicts.append(at_least("views/s of ours over torchvision v2 on PIL", ratio, TARGET))
    return table(seconds, remarks, 2 * num_images), verdicts


def measure_beside_load(setup: Setup, folder: Path) -> str:
    """A table of steps under each load, each implementation in processes of its own."""
    if problems := differences_from_peer(setup, folder):
        raise ValueError("; ".join(problems))
    words = (setup.encoder, setup.precision, setup.batch_size, setup.num_steps)
    commands = {name: (LOADED, (name, *words)) for name in (OUR_STEP, LIGHTLY)}
    title = f"A step of SimCLR, {setup.encoder}, 32 x 32, batch {setup.batch_size}, {setup.precision}"
    return compare(title, commands)


def main(words: Sequence[str]) -> int:
    """Measure, print tables, return the exit code."""
    arguments = parse(words)
    if arguments.beside_load:
        print(heading("cpu", "training.py"), flush=True)
        with tempfile.TemporaryDirectory() as place:
            print("", measure_beside_load(make_setup(arguments), Path(place) / "run"), sep="\n")
        return 0
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    setup = make_setup(arguments)
    notes = NOTES.format(steps=setup.num_steps, warm=WARM_UPS, workers=min(8, os.cpu_count() or 1))
    print(heading(arguments.device, "training.py"), notes, sep="\n\n", flush=True)
    with tempfile.TemporaryDirectory() as place:
        problems = differences_from_peer(setup, Path(place) / "run")
        if problems:
            say("; ".join(problems))
            return 1
        measure(setup, arguments, Path(place))
    return 0


def measure(setup: Setup, arguments: argparse.Namespace, place: Path) -> None:
    """Take turns, and print tables and verdicts."""
    device = arguments.device
    series, missing = run_rounds(setup, place / "run", 1 if arguments.quick else arguments.rounds)
    rates = rate_table(entries_of(series, missing), medians(series, "ours", "fp32"), setup.batch_size)
    print("", f"### SimCLR, {setup.encoder}, 32 x 32, batch {setup.batch_size}, {device}", "", rates, sep="\n")
    say("parts of our step")
    forget_peak(device)
    parts = {p: part_seconds(replace(setup, precision=p), place / "run") for p in PRECISIONS}
    whose = " of the process" if device == "cpu" else " of ours, allocated"
    print("", part_table(parts), "", f"Peak memory{whose}: {peak_mib(device):.0f} MiB.", sep="\n", flush=True)
    verdicts = speed_verdicts(series, device)
    if device == "cpu":
        say("views")
        views, judged = compare_views(is_quick=arguments.quick)
        print("", "### Views alone, 32 x 32, lightly's CIFAR-10 recipe", "", views, sep="\n", flush=True)
        verdicts += judged
    else:
        verdicts += gpu_verdicts(series, parts, setup.batch_size)
    if arguments.full:
        verdicts += train_to_the_end(setup, arguments.data, place / "full")
    print("", "### Targets", "", verdict_table(verdicts), sep="\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
