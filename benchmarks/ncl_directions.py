"""NCL against SimCLR: do the directions that ncl2024 reports show here, with several seeds?

    python benchmarks/ncl_directions.py                                       # the digits, three seeds
    python benchmarks/ncl_directions.py --data PACK.npz --test-data TEST.npz \
        --encoder resnet9-narrow --epochs 12 --batch-size 256

Both methods are trained with the same settings and seeds, and measured on the same queries: a share of the digits that
is held out, or samples of their own. Differences are taken between runs of one seed; their interval is Student's over
the seeds. Runs that are finished are not trained again. Exit code: 0; 1 if a direction does not hold.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import counterpoint as cp
from counterpoint.evaluation.evaluation_result import Evaluation
from counterpoint.evaluation.metric_types import t_interval

METHODS = ("simclr", "ncl")
RETRIEVAL, ORDER = ("mAP@10", "precision@10"), "non-negative expected activation"
MOST_LOST = 0.005  # "almost lossless" in ncl2024, section 5.1: below 0.5 points


@dataclass(frozen=True)
class Measured:
    """The evaluation of one run, and the diagnosis of its embedding."""

    evaluation: Evaluation
    embedding: Any

    def figure(self, protocol: str) -> float:
        """A figure of the embedding; of the representation if that is named."""
        name, _, features = protocol.partition(" of ")
        return self.evaluation.accuracy(features or "embedding", name)

    def lost_by_half(self) -> float:
        """Accuracy of a linear probe on all dimensions, minus that on the half with the highest activation."""
        protocol = f"linear probe keeping {self.embedding.num_dims // 2} by {ORDER}"
        return self.figure("linear probe") - self.figure(protocol)


@dataclass(frozen=True)
class Direction:
    """A direction that ncl2024 reports, and the figure that shows it.

    Attributes:
        name: in the table.
        source: place in the paper.
        figure: of one run.
        is_higher: NCL's is the higher one.
    """

    name: str
    source: str
    figure: Callable[[Measured], float]
    is_higher: bool = True


def of_diagnosis(name: str) -> Callable[[Measured], float]:
    """A function that reads a figure of the embedding's diagnosis."""
    return lambda run: float(getattr(run.embedding, name))


def of_evaluation(protocol: str) -> Callable[[Measured], float]:
    """A function that reads a figure of the evaluation."""
    return lambda run: run.figure(protocol)


DIRECTIONS = (
    Direction("class consistency", "Figure 2a", of_diagnosis("class_consistency")),
    Direction("sparsity", "Figure 2b", of_diagnosis("sparsity")),
    Direction("feature correlation", "Figure 2c", of_diagnosis("feature_correlation"), is_higher=False),
    *(Direction(name, "Table 1", of_evaluation(name)) for name in RETRIEVAL),
    Direction("lost by keeping half (EA)", "Table 1", Measured.lost_by_half, is_higher=False),
    Direction("linear probe", "Table 3a", of_evaluation("linear probe of representation")),
)


def measure(method: str, seed: int, flags: argparse.Namespace) -> Measured:
    """Train a run unless it exists, and measure it."""
    settings: dict[str, Any] = {"method": method, "seed": seed, "resume": True, "quiet": flags.quiet}
    settings |= {name: value for name in ("epochs", "batch_size") if (value := getattr(flags, name)) is not None}
    if flags.test_data is not None:
        settings["source"] = {"holdout": 0.0}
    out = flags.out / Path(flags.data).stem / method / f"seed-{seed}"
    run = cp.train(flags.data, encoder=flags.encoder, out=str(out), **settings)
    evaluation = cp.evaluate(
        run,
        test_data=flags.test_data,
        metrics=("linear-probe", *RETRIEVAL),
        selection=(ORDER.replace(" ", "-"),),
        quiet=flags.quiet,
    )
    return Measured(evaluation, cp.diagnose(run, quiet=flags.quiet).places["embedding"])


def line(direction: Direction, by_method: Sequence[Sequence[Measured]]) -> tuple[str, bool]:
    """A line of the table, and whether the direction holds."""
    first, second = ([direction.figure(run) for run in runs] for runs in by_method)
    difference = t_interval([ours - base for base, ours in zip(first, second, strict=True)])
    sign = 1 if direction.is_higher else -1
    holds = sign * difference.value > 0
    ends = [] if difference.low is None or difference.high is None else [difference.low, difference.high]
    is_told = bool(ends) and min(sign * end for end in ends) > 0
    verdict = "holds" if is_told else "holds, not told apart" if holds else "does not hold"
    means = "".join(f"{sum(values) / len(values):>11.4g}" for values in (first, second))
    interval = " to ".join(f"{end:.3g}" for end in ends)
    row = f"{direction.name:<27}{direction.source:<11}{means}{difference.value:>+12.3g}  {interval:<22}{verdict}"
    return row, holds


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits", help="what is trained on (default: digits)")
    parser.add_argument("--test-data", help="queries of their own")
    parser.add_argument("--encoder", default="auto")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/ncl-directions"))
    parser.add_argument("-q", "--quiet", action="store_true")
    flags = parser.parse_args()
    by_method = [[measure(method, seed, flags) for seed in range(flags.seeds)] for method in METHODS]
    queries = by_method[0][0].evaluation.split.num_queries
    print(f"{flags.data}: {flags.seeds} seeds of each method, {queries:,} queries")
    print(f"{'figure':<27}{'ncl2024':<11}{'SimCLR':>11}{'NCL':>11}{'difference':>12}  95 % over seeds")
    are_held = True
    for direction in DIRECTIONS:
        row, holds = line(direction, by_method)
        are_held &= holds
        print(row)
    lost = t_interval([run.lost_by_half() for run in by_method[1]])
    print(f"NCL loses {100 * lost.value:.2f} points by keeping half; almost lossless below {100 * MOST_LOST:.1f}")
    return 0 if are_held else 1


if __name__ == "__main__":
    sys.exit(main())
