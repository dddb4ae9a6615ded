"""Tables and verdicts of the training benchmark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from measuring import Quartiles, quartiles
from training_runs import PARTS

CIFAR_SIZE = 50_000


@dataclass(frozen=True)
class Verdict:
    """A figure beside what it should be.

    Attributes:
        claim: what was asked for, with its limit.
        found: the figure in words.
        is_met: whether it holds.
    """

    claim: str
    found: str
    is_met: bool

    def __str__(self) -> str:
        return f"| {self.claim} | {self.found} | {'met' if self.is_met else 'missed'} |"


@dataclass(frozen=True)
class Entry:
    """One implementation's rounds.

    Attributes:
        name: in words.
        precision: ``fp32`` or ``bf16``.
        rounds: median seconds of a step in each round; empty if it could not be measured.
        remark: why not, or what is special.
    """

    name: str
    precision: str
    rounds: Sequence[float]
    remark: str = ""


def rate_table(entries: Sequence[Entry], reference: Sequence[float], batch_size: int) -> str:
    """Speed of everyone; ratios of seconds are taken round by round."""
    lines = ["| implementation | precision | images/s | s per 50,000 | time / ours fp32 | remark |"]
    lines += ["|---|---|---:|---:|---:|---|"]
    for entry in entries:
        if not entry.rounds:
            lines.append(f"| {entry.name} | {entry.precision} | - | - | - | {entry.remark} |")
            continue
        middle = quartiles(entry.rounds).median
        ratio = quartiles([own / ours for own, ours in zip(entry.rounds, reference, strict=True)])
        cells = [f"{batch_size / middle:.0f}", f"{CIFAR_SIZE * middle / batch_size:.1f}", spread(ratio)]
        lines.append(f"| {entry.name} | {entry.precision} | {' | '.join(cells)} | {entry.remark or '-'} |")
    return "\n".join(lines)


def part_table(parts: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """A table of the parts of our step's time; medians, so that the parts need not add up to the last digit."""
    lines = ["| our step, ms | " + " | ".join(PARTS) + " | rest | whole | next bottleneck |"]
    lines += ["|---|" + "---:|" * (len(PARTS) + 2) + "---|"]
    for name, seconds in parts.items():
        own = {part: quartiles(seconds[part]).median for part in PARTS}
        rest, whole = rest_of(seconds), quartiles(seconds["step"]).median
        slowest = max((part for part in PARTS if part not in ("forward", "backward")), key=lambda part: own[part])
        cells = [f"{1000 * value:.1f} ({value / whole:.1%})" for value in (*own.values(), rest)]
        lines.append(f"| {name} | {' | '.join(cells)} | {1000 * whole:.1f} | {slowest} |")
    return "\n".join(lines)


def rest_of(seconds: Mapping[str, Sequence[float]]) -> float:
    """Median of the time that no part accounts for: fetching, bookkeeping, display."""
    steps = range(len(seconds["step"]))
    return quartiles([seconds["step"][n] - sum(seconds[part][n] for part in PARTS) for n in steps]).median


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """Every target with its figure."""
    return "\n".join(["| target | found | verdict |", "|---|---|---|", *map(str, verdicts)])


def at_least(claim: str, ratio: Quartiles, limit: float, *, unit: str = "x") -> Verdict:
    """A figure that should not be lower."""
    return Verdict(f"{claim}: at least {limit:g} {unit}", f"{spread(ratio)} {unit}", ratio.median >= limit)


def at_most(claim: str, ratio: Quartiles, limit: float, *, unit: str = "x") -> Verdict:
    """A figure that should not be higher."""
    return Verdict(f"{claim}: at most {limit:g} {unit}", f"{spread(ratio)} {unit}", ratio.median <= limit)


def spread(values: Quartiles) -> str:
    """Median and quartiles with three digits."""
    low, middle, high = (f"{value:.3g}" for value in (values.low, values.median, values.high))
    return f"{middle} [{low}, {high}]"
