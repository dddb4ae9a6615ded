"""Records of a comparison of runs, which are also written as a text table or as plain values."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from counterpoint.core.metric import Unit
from counterpoint.core.paired_shares import LEVEL, POWER, Difference
from counterpoint.core.schemas import EvaluationSplit
from counterpoint.core.terminal_text import WIDTH, Printed, TextTable

NO_TEST = "-"


@dataclass(frozen=True)
class Side:
    """One run, several runs of one method with other seeds, or the file of an evaluation, which knows no seed."""

    name: str
    folders: tuple[str, ...]
    seeds: tuple[int | None, ...]

    @property
    def has_distinct_seeds(self) -> bool:
        """Tell whether each run has a seed of its own, so that the runs of two sides can be matched."""
        return None not in self.seeds and len(set(self.seeds)) == len(self.seeds)

    def __str__(self) -> str:
        if self.seeds == (None,):
            return self.name
        kind = "seed" if len(self.seeds) == 1 else "seeds"
        seeds = ", ".join("unknown" if seed is None else str(seed) for seed in self.seeds)
        return f"{self.name} ({kind} {seeds})"


@dataclass(frozen=True)
class Compared:
    """One figure of two sides, and the tests of its difference.

    Attributes:
        metric: name of the metric.
        features: name of the features from which the figure was computed.
        unit: unit of the figure.
        first: name of the first side.
        second: name of the second side.
        first_figure: mean of the figure over the runs of the first side.
        second_figure: mean of the figure over the runs of the second side.
        over_samples: difference of these encoders on other queries; None if it is not known which queries were right.
        over_seeds: difference of other seeds on these queries; None without two seeds a side that scatter.
        seeds_needed: number of seeds a side to tell this difference over seeds; None if it is not known, or too large.
        remark: settings of the metric in which the two sides differ.
    """

    metric: str
    features: str
    unit: Unit
    first: str
    second: str
    first_figure: float
    second_figure: float
    over_samples: Difference | None
    over_seeds: Difference | None
    seeds_needed: int | None
    remark: str = ""

    @property
    def difference(self) -> float:
        """The first figure minus the second."""
        return self.first_figure - self.second_figure

    @property
    def verdict(self) -> str:
        """Tell whether the difference is real: ``yes``, ``no``, only over ``samples`` or ``seeds``, or ``-`` untested.

        A difference of several seeds must hold over samples and over seeds.
        """
        tests = {"samples": self.over_samples, "seeds": self.over_seeds}
        tested = {name: result for name, result in tests.items() if result}
        significant = [name for name, result in tested.items() if result.is_told_apart]
        if not tested:
            return NO_TEST
        return "no" if not significant else "yes" if len(significant) == len(tested) else significant[0]

    @property
    def name(self) -> str:
        """Metric and features."""
        return f"{self.metric} of {self.features}"


@dataclass(frozen=True)
class Comparison(Printed):
    """All differences of some sides, pair by pair.

    Attributes:
        sides: sides that were compared.
        rows: compared figures, by pair of sides, then metric, then features.
        split: bank and queries of the evaluations.
        alike: pairs of metric and features that every run has alike, query by query; they are not part of the table.
    """

    sides: tuple[Side, ...]
    rows: tuple[Compared, ...]
    split: EvaluationSplit
    alike: tuple[tuple[str, str], ...]

    @property
    def has_seeds(self) -> bool:
        """Tell whether a difference was compared over seeds."""
        return any(row.over_seeds for row in self.rows)

    @property
    def queries(self) -> str:
        """Number and source of the queries, in words."""
        how = f" ({self.split.how})" if self.split.how else ""
        return f"{self.split.num_queries or 0:,} queries of {self.split.source}{how}"

    def pairs(self) -> Iterator[tuple[Side, Side, list[Compared]]]:
        """The rows of each pair of sides."""
        sides = {side.name: side for side in self.sides}
        for (first, second), rows in groupby(self.rows, key=lambda row: (row.first, row.second)):
            yield sides[first], sides[second], list(rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "sides": [asdict(side) for side in self.sides],
            "split": self.split.written(),
            "level": LEVEL,
            "correction": "Holm, over all comparisons over samples and over all over seeds",
            "power": POWER,
            "comparisons": [{**asdict(row), "difference": row.difference, "real": row.verdict} for row in self.rows],
            "alike": [{"metric": metric, "features": features} for metric, features in self.alike],
        }

    def __str__(self) -> str:
        blocks = [textwrap.fill(f"{self.queries}; 95 % intervals, shares in percent", WIDTH)]
        for first, second, rows in self.pairs():
            blocks.append("\n".join([f"A  {first}", f"B  {second}", *self._table(rows).lines]))
        return "\n\n".join([*blocks, "\n".join(textwrap.fill(words, WIDTH) for words in self.remarks())])

    @property
    def table(self) -> TextTable:
        """All rows, each with the names of its two sides."""
        inner = self._table(self.rows)
        cells = [[row.first, row.second, *rest] for row, rest in zip(self.rows, inner.rows, strict=True)]
        return TextTable(["A is", "B is", *inner.head], cells, f"ll{inner.sides}")

    def _table(self, rows: Sequence[Compared]) -> TextTable:
        tests = ["over samples", "p", *(["over seeds", "p"] if self.has_seeds else [])]
        head = ["metric", "features", "A", "B", "A - B", *tests, "real"]
        cells = [[row.metric, row.features, *_cells(row, has_seeds=self.has_seeds)] for row in rows]
        return TextTable(head, cells, f"ll{'r' * (len(head) - 3)}l")

    def remarks(self) -> list[str]:
        """Notes that a reader of the table needs, one paragraph each."""
        tests = sorted({result.test for row in self.rows for result in (row.over_samples, row.over_seeds) if result})
        named = f" ({', '.join(tests)})" if tests else ""
        words = [
            f"p is two-sided{named}, corrected by Holm for all comparisons of its column; an interval is of one "
            "difference alone, so that one which just leaves out 0 proves nothing. Real: p of at most "
            f"{LEVEL:g} over samples and, with several seeds, over seeds as well."
        ]
        if any(len(side.seeds) == 1 for side in self.sides):
            words.append(
                "With one run a side, differences are of these encoders: another seed may give others. The number "
                "of seeds needed is known once there are at least two a side (train again with another --seed)."
            )
        words += self._seed_words()
        untested = [row.name for row in self.rows if row.over_samples is None]
        if untested:
            listed = "; ".join(dict.fromkeys(untested))
            words.append(f"Not compared over samples, since which queries were right is not kept: {listed}.")
        words += [f"{row.name}, {row.first} and {row.second}: {row.remark}." for row in self.rows if row.remark]
        if self.alike:
            alike = "; ".join(f"{metric} of {features}" for metric, features in self.alike)
            words.append(f"Left out, since it is the same in all runs: {alike}.")
        return words

    def _seed_words(self) -> list[str]:
        open_ones = [row for row in self.rows if row.over_seeds and not row.over_seeds.is_told_apart]
        if not open_ones:
            return []
        several = len(self.sides) > 2
        needed = [
            f"{row.name}{f' ({row.first}, {row.second})' if several else ''} "
            f"{row.seeds_needed if row.seeds_needed is not None else 'too many to be practical'}"
            for row in open_ones
        ]
        return [
            f"Seeds a side that would tell a difference of the size found (power {POWER:g}, before correction; a rough "
            f"idea, as its scatter is known from few): {'; '.join(needed)}."
        ]


def _cells(row: Compared, *, has_seeds: bool) -> list[str]:
    form = ".2f" if row.unit == "share" else ".4g"
    figures = [f"{_in_unit(row.unit, value):{form}}" for value in (row.first_figure, row.second_figure)]
    difference = f"{_in_unit(row.unit, row.difference):+.2f}" if row.unit == "share" else f"{row.difference:+.3g}"
    tests = []
    for result in (row.over_samples, row.over_seeds) if has_seeds else (row.over_samples,):
        if result is None:
            tests += [NO_TEST, NO_TEST]
            continue
        form = "+.2f" if row.unit == "share" else "+.2g"
        ends = " to ".join(f"{_in_unit(row.unit, end):{form}}" for end in (result.low, result.high))
        tests += [ends, "<0.001" if result.p < 0.001 else f"{result.p:.3f}"]
    return [*figures, difference, *tests, row.verdict]


def _in_unit(unit: Unit, value: float) -> float:
    """Return a share in percent, without a minus before zero; other values stay."""
    return round(100 * value, 2) + 0.0 if unit == "share" else value
