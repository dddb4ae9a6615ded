"""Compare evaluations of runs, methods of several seeds and other encoders: over queries and over seeds. No torch."""

# Q queries

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.core.derived_files import read_derived
from counterpoint.core.errors import RunError, UsageError, unknown_name
from counterpoint.core.files import read_sealed
from counterpoint.core.metric import described_metrics, is_apart, metric_under
from counterpoint.core.paired_shares import Difference, corrected
from counterpoint.core.run import Run, SeedRuns, as_run, display_names, listed
from counterpoint.core.rundir import RunFolder, seed_folders
from counterpoint.core.schemas import (
    BASELINES,
    FEATURES,
    EvaluationRecord,
    EvaluationRow,
    read_record,
    unpacked_hits,
)
from counterpoint.core.validation import read_yaml_mapping
from counterpoint.evaluation.significance import over_seeds, paired_bootstrap, seeds_needed
from counterpoint.runs.comparison_record import Compared, Comparison, Side

_SEED_ENDING = re.compile(r"(?:^|[-_. ])(?:seed|s)?[-_. ]*\d*$")  # of the names of a method's runs
NOT_THE_METHODS = ("seed", "out", "reasons")  # settings in which runs of one method may differ


def compare(
    *runs: Run | SeedRuns | str | Path | Sequence[Run | SeedRuns | str | Path],
    metrics: Sequence[str] = (),
    features: Sequence[str] = (),
) -> Comparison:
    """Say which differences between encoders are real, from their evaluations of the same queries.

    Over samples two runs are compared by the exact McNemar test and Tango's score interval, methods of several seeds
    by a paired bootstrap over queries; over seeds by a paired t test if both have the same seeds, else by Welch's.
    p of all comparisons over samples, and of all over seeds, is corrected by Holm.

    Args:
        runs: two or more, one after the other or in one list, each a run or its folder, those of several seeds or the
            folder that has them in ``seed-*``, or a file that ``evaluate`` wrote, of a run
            (``RUN/evaluations/NAME.json``) or of an encoder or features from elsewhere. Runs whose settings differ in
            nothing but the seed are taken together as one method, unless all are.
        metrics: names of figures of the evaluations; empty for all.
        features: names of features; empty for all.

    Raises:
        UsageError: fewer than two runs, one twice, other queries, or a name that is not known.
        RunError: not a run, without an evaluation, or one that does not keep which queries were right.
    """
    members = [_evaluations_of(run) for run in listed(runs)]
    evaluations = [run for group in members for run in group]
    _check_comparable(evaluations)
    groups = _group_by_method(members)
    names = display_names([_naming_path(group) for group in groups])
    sides = tuple(
        Side(name, tuple(str(run.path) for run in group), tuple(run.seed for run in group))
        for name, group in zip(names, groups, strict=True)
    )
    keys = _chosen_figures([run.record for run in evaluations], metrics, features)
    figures = {key: [rows_of_all([run.record for run in group], *key) for group in groups] for key in keys}
    # Features that no training made have the very same figures in all runs, query by query.
    alike = tuple(
        key
        for key, by_side in figures.items()
        if all(by_side) and len({frozenset((row.figure, row.hits) for row in rows) for rows in by_side}) == 1
    )
    rows = [
        _compare_sides((sides[one], sides[other]), (by_side[one], by_side[other]))
        for one, other in itertools.combinations(range(len(sides)), 2)
        for key, by_side in figures.items()
        # What no training made differs by seed alone, and would make the corrected p of all others larger.
        if key not in alike and (features or key[1] not in BASELINES) and by_side[one] and by_side[other]
    ]
    samples, seeds = (corrected([getattr(row, name) for row in rows]) for name in ("over_samples", "over_seeds"))
    tested = tuple(
        replace(row, over_samples=by_samples, over_seeds=by_seeds)
        for row, by_samples, by_seeds in zip(rows, samples, seeds, strict=True)
    )
    return Comparison(sides, tested, evaluations[0].record.split, alike)


@dataclass(frozen=True)
class _Evaluated:
    """An evaluation with the path of its subject; ``method`` is what runs of other seeds have in common."""

    path: Path
    seed: int | None
    method: dict[str, Any]
    record: EvaluationRecord


def _evaluations_of(run: Run | SeedRuns | str | Path) -> list[_Evaluated]:
    """Return the evaluations that an argument stands for: of a file, of one run, or of the runs of its seeds."""
    if isinstance(run, SeedRuns):
        return [_run_evaluation(seed_run) for seed_run in run.runs]
    if not isinstance(run, str | Path):
        return [_run_evaluation(as_run(run))]
    path = Path(run)
    if not path.is_file():
        return [_run_evaluation(as_run(folder)) for folder in seed_folders(path) or [path]]
    # A file in a run's folder stands for the run, whose seed and method count.
    for folder in (RunFolder(path.parent), RunFolder(path.parent.parent)):
        if folder.is_ours and path in (folder.evaluation, folder.other_evaluations / path.name):
            return [_run_evaluation(as_run(folder.path), path)]
    record = _record(path, read_sealed(path), "counterpoint evaluate --encoder NAME --data DATA")
    return [_Evaluated(path, None, {"path": str(path)}, record)]


def _run_evaluation(run: Run, file: Path | None = None) -> _Evaluated:
    folder, command = run.folder, f"counterpoint evaluate {shlex.quote(str(run.path))}"
    file = folder.evaluation if file is None else file
    if not file.exists():
        raise RunError(f"{run.path} has no evaluation; make it with: {command}")
    settings = read_yaml_mapping(folder.resolved) if folder.resolved.exists() else {"path": str(run.path)}
    method = {setting: value for setting, value in settings.items() if setting not in NOT_THE_METHODS}
    return _Evaluated(run.path, folder.read_status().seed, method, _record(file, read_derived(folder, file), command))


def _record(file: Path, values: Mapping[str, Any], command: str) -> EvaluationRecord:
    record = read_record(EvaluationRecord, values, str(file))
    if not record.rows:
        raise RunError(f"{file} is not an evaluation; make one with: {command}")
    if record.split.query_fingerprint is None:
        raise RunError(
            f"{file} does not keep which queries were right, so it cannot be compared in pairs; evaluate again with: "
            f"{command}"
        )
    return record


def _check_comparable(runs: Sequence[_Evaluated]) -> None:
    if len(runs) < 2:
        raise UsageError(f"compare needs at least two runs, got {len(runs)}")
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise UsageError("compare got the same run or file twice; name each once")
    first = runs[0]
    for run in runs[1:]:
        if run.record.split.query_fingerprint != first.record.split.query_fingerprint:
            parts = [(side.path, side.record.split) for side in (first, run)]
            one, other = (f"{path} ({split.num_queries or 0:,} of {split.source})" for path, split in parts)
            raise UsageError(
                f"{one} and {other} were evaluated on different queries; evaluate both on the same "
                "data (counterpoint evaluate RUN --data DATA), and compare these files (RUN/evaluations/NAME.json)"
            )


def _group_by_method(members: Sequence[list[_Evaluated]]) -> list[list[_Evaluated]]:
    """Group runs that were named one by one if they differ in nothing but their seeds."""
    groups: list[list[_Evaluated]] = []
    for group in members:
        one, *more = group
        same = (side for side in groups if side[0].method == one.method and one.seed not in [run.seed for run in side])
        if not more and (earlier := next(same, None)):
            earlier.append(one)
        else:
            groups.append(list(group))
    # Seeds of one method are compared with each other if there is nothing else.
    return groups if len(groups) > 1 else [[run] for group in groups for run in group]


def _naming_path(group: Sequence[_Evaluated]) -> Path:
    """Return a path to name a side by; for several seeds the common start of their names, or the folder above."""
    paths = [run.path.resolve() for run in group]
    if len(paths) > 1:
        letters = zip(*(path.name for path in paths), strict=False)
        alike = itertools.takewhile(lambda column: len(set(column)) == 1, letters)
        stem = _SEED_ENDING.sub("", "".join(column[0] for column in alike))
        return paths[0].with_name(stem) if stem else paths[0].parent
    about, path = group[0].record.encoder, paths[0]
    if not path.is_file():
        return path
    if about.get("encoder", FEATURES) == FEATURES:
        return path.with_suffix("")
    return path.with_name(" ".join(Path(str(about[part])).name for part in ("encoder", "weights") if about.get(part)))


def _chosen_figures(
    records: Sequence[EvaluationRecord], metrics: Sequence[str], features: Sequence[str]
) -> list[tuple[str, str]]:
    rows = [row for record in records for row in record.rows]
    choices = {
        "metric": (metrics, list(dict.fromkeys(row.protocol for row in rows))),
        "features": (features, list(dict.fromkeys(row.features for row in rows))),
    }
    chosen = []
    for kind, (names, available) in choices.items():
        written = [name if name in available else name.replace("-", " ") for name in names]
        for name in written:
            if name not in available:
                raise unknown_name(kind, name, available)
        # Hundreds of figures under corruptions would make the corrected p of all others large.
        chosen.append([name for name in available if name in written or not (written or is_apart(name))])
    return [(metric, feature) for metric in chosen[0] for feature in chosen[1]]


def rows_of_all(records: Sequence[EvaluationRecord], metric: str, features: str) -> list[EvaluationRow]:
    """One figure of each evaluation; empty unless all have it."""
    rows = [row for record in records if (row := record.find_row(features, metric)) and row.figure is not None]
    return rows if len(rows) == len(records) else []


def _compare_sides(sides: Sequence[Side], rows: Sequence[Sequence[EvaluationRow]]) -> Compared:
    (one, other), (first, second) = sides, rows
    is_paired = one.has_distinct_seeds and other.has_distinct_seeds and set(one.seeds) == set(other.seeds)
    by_seed = dict(zip(other.seeds, second, strict=True))
    ordered = (first, [by_seed[seed] for seed in one.seeds] if is_paired else second)
    own, others = ([float(row.figure or 0.0) for row in side] for side in ordered)
    metric = metric_under(described_metrics("evaluation"), first[0].protocol)
    settings, theirs = first[0].settings, second[0].settings
    differing = sorted(name for name in {*settings, *theirs} if settings.get(name) != theirs.get(name))
    return Compared(
        metric=first[0].protocol,
        features=first[0].features,
        unit=metric.unit,
        first=one.name,
        second=other.name,
        first_figure=float(np.mean(own)),
        second_figure=float(np.mean(others)),
        over_samples=_over_samples(first, second),
        over_seeds=over_seeds(own, others, is_paired=is_paired),
        seeds_needed=seeds_needed(own, others, is_paired=is_paired),
        remark=f"other {', '.join(differing)}" if differing else "",
    )


def _over_samples(first: Sequence[EvaluationRow], second: Sequence[EvaluationRow]) -> Difference | None:
    """Compare over queries; None if it is not known which queries were right."""
    if any(row.hits is None for row in (*first, *second)):
        return None
    if len(first) == len(second) == 1:
        return first[0].minus(second[0])
    # The share of runs that got each query right.
    sides = [
        np.mean([unpacked_hits(row.hits or "", int(row.total or 0)) for row in rows], axis=0)
        for rows in (first, second)
    ]
    return paired_bootstrap(*sides)
