"""Views per second beside torchvision v2 and kornia: lightly's CIFAR-10 recipe, the same images, ratios pair by pair.

    python benchmarks/views.py                                     # CPU, two threads, about a minute
    python benchmarks/views.py --beside-load                       # also beside a busy process and beside torch
    python benchmarks/views.py --images 64 --batch-size 32         # seconds; shows that everything runs

First every operation is compared with torchvision's, given the same parameters; one that differs by more than 1/255
ends the run. Peers come from `pip install torchvision kornia`; a missing one is named in its row. The tables go to
standard output, progress to standard error. Exit code: 0; 1 if an operation differs; 2 for bad
arguments.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from beside_load import compare
from measuring import Plan, paired_ratio, quartiles, take_turns, wall_seconds
from result_tables import heading
from torch import Tensor
from view_checks import largest_differences
from view_peers import CATALOGUE, OURS, PIL_WORKERS, Step, Work

SIDE = 32
LARGEST = 1.0  # level of 255
TARGET = 4.0  # times torchvision on PIL with as many processes as we have threads
PLAN = Plan(warm_ups=2, short_rounds=9, long_rounds=9, sample_seconds=0.0)
CHECKED_IMAGES = 64
LOADED = Path(__file__).with_name("loaded_views.py")
LOADED_CALLS = 6
HEADER = "| who | views/s | time / ours | target | remark |"
RULE = "|---|---:|---:|---|---|"


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Arguments, or an error that says what to do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2048, help="images per round, two views of each (default 2048)")
    parser.add_argument("--batch-size", type=int, default=256, help="images per batch (default 256)")
    parser.add_argument("--threads", type=int, default=2, help="threads, or processes of a loader (default 2)")
    parser.add_argument("--beside-load", action="store_true", help="first and median pass beside other work")
    arguments = parser.parse_args(words)
    for name in ("images", "batch_size", "threads"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be >= 1, got {getattr(arguments, name)}")
    return arguments


def make_images(num_images: int) -> Tensor:
    """Coloured clouds with some grain, uint8."""
    generator = torch.Generator().manual_seed(0)
    clouds = F.interpolate(torch.rand(num_images, 3, 5, 5, generator=generator), size=SIDE, mode="bicubic")
    grain = 0.1 * torch.randn(num_images, 3, SIDE, SIDE, generator=generator)
    return ((clouds + grain).clamp(0, 1) * 255).round().to(torch.uint8)


def comparison(images: Tensor) -> tuple[str, bool]:
    """Table of the largest differences, and whether all are small enough."""
    try:
        differences = largest_differences(images.float() / 255)
    except ImportError as error:
        return f"Not compared with torchvision: it cannot be imported ({error}).", True
    lines = ["| operation | largest difference from torchvision v2, levels of 255 |", "|---|---:|"]
    lines += [f"| {name} | {difference:.1e} |" for name, difference in differences.items()]
    return "\n".join(lines), all(difference <= LARGEST for difference in differences.values())


def prepare(work: Work) -> tuple[dict[str, Step], dict[str, str]]:
    """Steps of all implementations that can run, and a remark on each."""
    steps, remarks = {}, {}
    for name, (build, remark) in CATALOGUE.items():
        try:
            steps[name], remarks[name] = build(work), remark
        except ImportError as error:
            remarks[name] = f"skipped: cannot be imported ({error})"
    return steps, remarks


def table(seconds: dict[str, list[float]], remarks: dict[str, str], num_views: int) -> str:
    """Rates and ratios, medians with quartiles."""
    lines = [HEADER, RULE]
    for name, remark in remarks.items():
        if name not in seconds:
            lines.append(f"| {name} | - | - | - | {remark} |")
            continue
        rates = quartiles([num_views / value for value in seconds[name]])
        ratio, target = "-", "-"
        if name != OURS and OURS in seconds:
            ratios = paired_ratio(seconds[name], seconds[OURS])
            ratio = f"{ratios.median:.3g} [{ratios.low:.3g}, {ratios.high:.3g}]"
            if name == PIL_WORKERS:
                target = f"at least {TARGET:g}: {'met' if ratios.median >= TARGET else 'missed'}"
        rate = f"{rates.median:.0f} [{rates.low:.0f}, {rates.high:.0f}]"
        lines.append(f"| {name} | {rate} | {ratio} | {target} | {remark} |")
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    """Compare, measure, print; return the exit code."""
    arguments = parse(words)
    torch.set_num_threads(arguments.threads)
    images = make_images(arguments.images)
    print(heading("cpu", "views.py"))
    print(f"\n{arguments.images} images of {SIDE} px, two views of each, batches of {arguments.batch_size}.\n")
    compared, is_same = comparison(images[:CHECKED_IMAGES])
    print(compared, flush=True)
    if not is_same:
        print(f"an operation differs from torchvision's by more than {LARGEST:g} level: not timed", file=sys.stderr)
        return 1
    if arguments.beside_load:
        commands = {name: (LOADED, (name, arguments.images, arguments.batch_size, LOADED_CALLS)) for name in CATALOGUE}
        print("", compare("Views beside other work", commands), sep="\n")
        return 0
    print("taking turns", file=sys.stderr, flush=True)
    steps, remarks = prepare(Work(images, arguments.batch_size, arguments.threads))
    seconds = take_turns(steps, wall_seconds, PLAN)
    print("", table(seconds, remarks, 2 * arguments.images), f"\nRounds: {len(seconds[OURS])}.", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
