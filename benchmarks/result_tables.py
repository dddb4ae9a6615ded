"""Markdown: one table for each problem, every figure beside its target."""

import datetime
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from exact_losses import Errors
from measuring import Quartiles
from peer_losses import DENSE, OURS
from problems import Kind, Precision, Problem

PRODUCTS = "three bare products"
HEADER = (
    "| implementation | time, ms | time / ours | target | extra peak, MiB | target | error of loss, gradient | remark |"
)
RULE = "|---|---:|---:|---|---:|---|---|---|"


@dataclass(frozen=True)
class Row:
    """Figures of one implementation; None if they were not measured."""

    provider: str
    seconds: Quartiles | None = None
    ratio: Quartiles | None = None
    extra_mib: float | None = None
    errors: Errors | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    """All rows of one problem."""

    problem: Problem
    rounds: int
    rows: tuple[Row, ...] = field(default=())


@dataclass(frozen=True)
class Target:
    """A limit that a figure should meet.

    Attributes:
        device, kind, sizes, precisions: where it holds.
        provider: whose row shows it.
        figure: ``ratio`` (others over ours; ours over the products), ``memory`` (MiB) or ``share`` (of the bf16 peak).
        limit: the figure asked for.
    """

    device: str
    kind: Kind
    sizes: tuple[int, ...]
    precisions: tuple[Precision, ...]
    provider: str
    figure: str
    limit: float

    def holds_for(self, problem: Problem, provider: str, figure: str) -> bool:
        """Tell whether this target belongs beside a figure."""
        place = (problem.device, problem.kind, provider, figure)
        is_here = place == (self.device, self.kind, self.provider, self.figure)
        return is_here and problem.num_pairs in self.sizes and problem.precision in self.precisions

    def judged(self, value: float) -> str:
        """The target and whether the figure meets it."""
        is_most = self.figure == "memory" or self.provider == PRODUCTS
        met = value <= self.limit if is_most else value >= self.limit
        return f"{'at most' if is_most else 'at least'} {self.limit:g}: {'met' if met else 'missed'}"


FP32: tuple[Precision, ...] = ("float32",)
BF16: tuple[Precision, ...] = ("bfloat16",)
ANY: tuple[Precision, ...] = ("float32", "tf32", "bfloat16")
TARGETS = (
    Target("cpu", "nt-xent", (4096,), FP32, "lightly", "ratio", 6),
    Target("cpu", "nt-xent", (4096,), FP32, DENSE, "ratio", 2),
    Target("cpu", "nt-xent", (4096,), FP32, PRODUCTS, "ratio", 1.4),
    Target("cpu", "nt-xent", (4096,), FP32, OURS, "memory", 64),
    Target("cpu", "nt-xent", (16, 64, 128), FP32, DENSE, "ratio", 1),
    Target("cuda", "nt-xent", (16384,), ANY, OURS, "memory", 50),
    Target("cuda", "nt-xent", (16384,), FP32, "lightly", "ratio", 10),
    Target("cuda", "nt-xent", (16384,), BF16, "lightly", "ratio", 20),
    Target("cuda", "nt-xent", (16384, 32768), BF16, OURS, "share", 0.35),
    Target("cuda", "cross-modal", (32768,), BF16, "open_clip", "ratio", 1.7),
    Target("cuda", "cross-modal", (65536,), BF16, OURS, "memory", 0.4 * 1024),
    Target("cuda", "cross-modal", (32768, 65536), BF16, OURS, "share", 0.55),
)
BF16_PEAKS = {"B200": 2250e12, "H200": 989e12, "H100": 989e12, "A100": 312e12}  # dense, SXM form; FLOP per second


def heading(device: str, script: str = "pair_losses.py") -> str:
    """Date, commit, command, hardware and versions."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    hardware = f"CPU {_processor()}, {torch.get_num_threads()} threads"
    if device == "cuda":
        hardware = f"GPU {torch.cuda.get_device_name()}, {hardware}, CUDA {torch.version.cuda}"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    command = " ".join(["python", f"benchmarks/{script}", *sys.argv[1:]])
    words = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout
    measured = f"Measured {now} at commit `{commit.strip() or 'unknown'}` with `{command}`"
    return f"{measured}\non {hardware}; {versions}, {platform.system()}."


def _processor() -> str:
    """Name of the processor, as Linux says it."""
    model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return model[1] if model else platform.machine()


def table(section: Section) -> str:
    """Heading, table and number of rounds of one problem."""
    lines = [f"### {section.problem.title}", "", HEADER, RULE]
    lines += [_line(section.problem, row) for row in section.rows]
    return "\n".join([*lines, "", f"Rounds: {section.rounds}."])


SUMMARY_HEADER = (
    "| case | ours, ms | dense torch | dense, compiled | dense, chunked | library | ours / three bare "
    "products | extra peak, MiB: ours / dense / library |"
)


def summary(sections: Sequence[Section]) -> str:
    """One line for each problem; peers as their time over ours."""
    lines = [SUMMARY_HEADER, "|---|" + "---:|" * 7]
    return "\n".join([*lines, *map(_summary_line, sections)])


def _summary_line(section: Section) -> str:
    rows = {row.provider: row for row in section.rows}
    with_columns = (OURS, DENSE, f"{DENSE}, compiled", f"{DENSE}, chunked", PRODUCTS)
    libraries = [name for name, row in rows.items() if name not in with_columns and row.seconds]
    cells = [
        section.problem.title,
        _median(rows, OURS, "seconds", 1000),
        *(_median(rows, name, "ratio") for name in (DENSE, f"{DENSE}, compiled", f"{DENSE}, chunked")),
        ", ".join(f"{_median(rows, name, 'ratio')} ({name})" for name in libraries) or "-",
        _median(rows, PRODUCTS, "ratio"),
        " / ".join(_weight(rows.get(name)) for name in (OURS, DENSE, *libraries[:1])),
    ]
    return f"| {' | '.join(cells)} |"


def _median(rows: Mapping[str, Row], name: str, figure: str, scale: float = 1.0) -> str:
    """Median of a figure of a row; a dash if it was not measured."""
    quartiles: Quartiles | None = getattr(rows[name], figure) if name in rows else None
    return "-" if quartiles is None else _short(quartiles.median * scale)


def _weight(row: Row | None) -> str:
    return "-" if row is None or row.extra_mib is None else f"{row.extra_mib:.1f}"


def _line(problem: Problem, row: Row) -> str:
    time = _quartiles(row.seconds, 1000)
    ratio = _quartiles(row.ratio)
    if row.provider == PRODUCTS and row.ratio:
        ratio = f"ours / products {ratio}"
    errors = f"{row.errors.loss:.1e}, {row.errors.gradient:.1e}" if row.errors else "-"
    memory = "-" if row.extra_mib is None else f"{row.extra_mib:.1f}"
    remarks = [*row.remarks, *_share(problem, row)]
    cells = [
        row.provider,
        time,
        ratio,
        _target(problem, row.provider, "ratio", row.ratio.median if row.ratio else None),
        memory,
        _target(problem, row.provider, "memory", row.extra_mib),
        errors,
        "; ".join(remarks).replace("|", "/").replace("\n", " ") or "-",
    ]
    return f"| {' | '.join(cells)} |"


def _target(problem: Problem, provider: str, figure: str, value: float | None) -> str:
    for target in TARGETS:
        if target.holds_for(problem, provider, figure):
            return f"{target.limit:g}: not measured" if value is None else target.judged(value)
    return "-"


def _share(problem: Problem, row: Row) -> list[str]:
    """A remark on ours in bfloat16: share of the GPU's peak, recomputed scores credited."""
    if row.provider != OURS or problem.precision != "bfloat16" or problem.device != "cuda" or not row.seconds:
        return []
    name = torch.cuda.get_device_name()
    peak = next((value for key, value in BF16_PEAKS.items() if key in name), None)
    rate = problem.credited_flops / row.seconds.median
    if peak is None:
        return [f"{rate / 1e12:.0f} TFLOP/s credited; the bf16 peak of {name} is not listed"]
    target = _target(problem, row.provider, "share", rate / peak)
    return [f"{rate / peak:.0%} of the bf16 peak" + ("" if target == "-" else f" ({target})")]


def _quartiles(values: Quartiles | None, scale: float = 1.0) -> str:
    if values is None:
        return "-"
    low, median, high = (_short(value * scale) for value in (values.low, values.median, values.high))
    return f"{median} [{low}, {high}]"


def _short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
