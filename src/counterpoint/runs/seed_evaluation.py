"""Evaluate the runs of several seeds, and say of each figure its mean, deviation and interval over the seeds."""

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.core.metric import Metric, is_apart, metric_under
from counterpoint.core.run import SeedRuns
from counterpoint.core.rundir import RunFolder
from counterpoint.core.schemas import EvaluationRecord, EvaluationRow, EvaluationSplit, read_record
from counterpoint.core.terminal_text import Printed, TextTable, shown
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.evaluation_result import CATALOGUE, corruption_lines
from counterpoint.evaluation.metric_types import t_interval
from counterpoint.evaluation.protocol import evaluate
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.runs.comparison import rows_of_all
from counterpoint.runs.resuming import HARMLESS, differing_settings


@dataclass(frozen=True)
class SeedRow:
    """One figure over the seeds.

    Attributes:
        features: name of the features from which the figure was computed.
        protocol: name of the metric.
        settings: settings of the metric that all runs share.
        values: value of each run, in the order of the seeds.
        mean: mean of the values.
        deviation: standard deviation of the values (n - 1 in the denominator); None for one value.
        low: lower end of Student's 95 % interval; None if the values do not scatter, as without training.
        high: upper end of that interval.
    """

    features: str
    protocol: str
    settings: Mapping[str, Any]
    values: tuple[float, ...]
    mean: float
    deviation: float | None
    low: float | None
    high: float | None

    @property
    def metric(self) -> Metric:
        """The metric that the protocol names."""
        return metric_under(CATALOGUE, self.protocol)

    @property
    def mean_row(self) -> EvaluationRow:
        """The mean as a row of one evaluation, with the interval over the seeds."""
        name = "accuracy" if self.metric.unit == "share" else "value"
        fields = {"features": self.features, "protocol": self.protocol, "settings": self.settings, name: self.mean}
        return EvaluationRow(**fields, low=self.low, high=self.high)

    @property
    def written(self) -> tuple[str, str, str]:
        """Mean, deviation and interval, as text."""
        ends = [self.metric.written(end) for end in (self.low, self.high) if end is not None]
        deviation = "" if self.deviation is None else self.metric.written(self.deviation)
        return self.metric.written(self.mean), deviation, " to ".join(ends)


@dataclass(frozen=True)
class SeedEvaluation(Printed):
    """The figures of several seeds, all on the same queries.

    Attributes:
        name: name of their folder.
        seeds: seeds of the runs.
        rows: the figures that all runs have.
        split: bank and queries that the figures are about.
    """

    name: str
    seeds: tuple[int, ...]
    rows: tuple[SeedRow, ...]
    split: EvaluationSplit

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``evaluation.json`` beside ``seeds.json``."""
        return {"seeds": list(self.seeds), "split": self.split.written(), "rows": [asdict(row) for row in self.rows]}

    @property
    def samples(self) -> str:
        """The seeds and the samples that the figures are about, in words."""
        split, seeds = self.split, ", ".join(map(str, self.seeds))
        counts = f"{split.num_queries} queries, {split.num_bank} labelled samples, {split.num_classes} classes"
        return f"{shown(self.name)}, seeds {seeds}, on {shown(split.source)}: {counts} ({split.how})"

    @property
    def table(self) -> TextTable:
        """Each figure over the seeds; corruptions and curves have tables of their own."""
        plain = [(row.features, row.protocol, *row.written) for row in self.rows if not is_apart(row.protocol)]
        titles = ("features", "protocol", "mean", "deviation", "95 % interval over seeds")
        return TextTable(titles, plain, "llrrl")

    def __str__(self) -> str:
        apart = [row.mean_row for row in self.rows if is_apart(row.protocol)]
        return "\n".join([self.samples, *self.table.lines, *corruption_lines(apart)])


def evaluate_seeds(
    runs: SeedRuns | str | Path, *, out: str | Path | None = None, quiet: bool = False, **options: Any
) -> SeedEvaluation:
    """Evaluate the run of each seed, and average over them.

    Args:
        runs: runs of several seeds, as ``cp.train(..., seeds=5)`` returns them, or their folder.
        out: a JSON file to write instead of the usual one.
        quiet: show no progress.
        options: arguments of ``evaluate``: data, labels, test_data, test_labels, metrics, k, ...

    Returns:
        Mean, deviation and interval of each figure; also written beside ``seeds.json``, to a file with the same name
        as that of each run. Figures of earlier evaluations on the same queries stay in that file.

    Raises:
        RunError: no such folder, a run that is not finished, or runs that differ in more than the seed.
        DataError: a reason that ``evaluate`` has, or runs that were evaluated on different queries.
        UsageError: a reason that ``evaluate`` has.
    """
    folder = RunFolder(runs.path if isinstance(runs, SeedRuns) else Path(runs))
    if not folder.holds_seeds:
        raise RunError(f"{folder.path} does not hold runs of several seeds; `counterpoint train --seeds 5` makes them")
    if out is not None and Path(out).suffix != ".json":
        raise UsageError(f"out must end in .json, got {out}")
    seeds = folder.read_seeds().seeds
    folders = {seed: folder.of_seed(seed) for seed in seeds}
    _check_comparable(folder, folders)
    runs_by_path = {run.path: run for run in runs.runs} if isinstance(runs, SeedRuns) else {}
    reporter, evaluations = Reporter(quiet=quiet), []
    for number, run in enumerate(folders.values(), start=1):
        reporter.say(f"{run.path}, {number} of {len(seeds)}")
        evaluations.append(evaluate(runs_by_path.get(run.path, run.path), quiet=quiet, **options))
    if len({evaluation.split.query_fingerprint for evaluation in evaluations}) > 1:
        raise UsageError(
            f"the runs in {folder.path} were evaluated on different queries; evaluate again on data that do not change"
        )
    paths = [evaluation.path for evaluation in evaluations if evaluation.path is not None]
    target = folder.path / paths[0].relative_to(folders[seeds[0]].path) if out is None else Path(out)
    target.parent.mkdir(exist_ok=True)
    written = [read_record(EvaluationRecord, read_sealed(path), str(path)) for path in paths]
    write_sealed(target, _average_over_seeds(folder, seeds, written).to_dict())
    return _average_over_seeds(folder, seeds, evaluations)


def _check_comparable(folder: RunFolder, runs: Mapping[int, RunFolder]) -> None:
    """Require that every seed is finished, and that of the settings that weights depend on only the seed differs."""
    states = {seed: run.read_status().status if run.path.exists() else "not begun" for seed, run in runs.items()}
    unfinished = [f"seed {seed} {state}" for seed, state in states.items() if state != "finished"]
    if unfinished:
        raise RunError(
            f"{folder.path} is not finished ({', '.join(unfinished[:5])}); continue with: counterpoint resume "
            f"{shlex.quote(str(folder.path))}"
        )
    first, *others = runs.values()
    own = read_resolved(first).model_dump(mode="json")
    for other in others:
        differing = differing_settings(own, read_resolved(other).model_dump(mode="json")).keys() - HARMLESS - {"seed"}
        if differing:
            raise RunError(
                f"{first.path} and {other.path} differ in {', '.join(sorted(differing))}, so that no mean means "
                "anything; compare them one by one (counterpoint compare)"
            )


def _average_over_seeds(folder: RunFolder, seeds: Sequence[int], records: Sequence[EvaluationRecord]) -> SeedEvaluation:
    rows = []
    for first in records[0].rows:
        if rows_of_runs := rows_of_all(records, first.protocol, first.features):
            rows.append(_seed_row(rows_of_runs))
    return SeedEvaluation(folder.path.resolve().name, tuple(seeds), tuple(rows), records[0].split)


def _seed_row(rows: Sequence[EvaluationRow]) -> SeedRow:
    values, first = tuple(float(row.figure or 0.0) for row in rows), rows[0]
    interval, has_scatter = t_interval(values), len(set(values)) > 1
    common = [name for name in first.settings if all(row.settings.get(name) == first.settings[name] for row in rows)]
    return SeedRow(
        features=first.features,
        protocol=first.protocol,
        settings={name: first.settings[name] for name in common},
        values=values,
        mean=interval.value,
        deviation=statistics.stdev(values) if len(values) > 1 else None,
        low=interval.low if has_scatter else None,
        high=interval.high if has_scatter else None,
    )
