"""Compare evaluations of runs, methods of several seeds and other encoders: over queries and over seeds. No torch."""

# Q queries

import itertools
import re
import shlex
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoint.core.derived_files import read_derived
from counterpoint.core.errors import RunError, UsageError, unknown_name
from counterpoint.core.files import read_sealed
from counterpoint.core.metric import described_metrics, is_apart, metric_under
from counterpoint.core.paired_shares import Difference, corrected
from counterpoint.core.run import Run, SeedRuns, as_run, display_names
from counterpoint.core.run_records import FEATURES, EvaluationRecord, EvaluationRow, read_record
from counterpoint.core.rundir import RunFolder, seed_folders
from counterpoint.core.validation import read_yaml_mapping
from counterpoint.evaluation.significance import over_seeds, paired_bootstrap, seeds_needed
from counterpoint.runs.comparison_record import Compared, Comparison, Side

_SEED_ENDING = re.compile(r"(?:^|[-_. ])(?:seed|s)?[-_. ]*\d*$")  # of the names of a method's runs
NOT_THE_METHODS = ("seed", "out", "reasons")  # of resolved.yaml: what runs of one method may differ in


def compare(
    runs: Sequence[Run | SeedRuns | str | Path],
    *,
    metrics: Sequence[str] = (),
    features: Sequence[str] = (),
    evaluation: str = "",
) -> Comparison:
    """Say which differences between encoders are real, from their evaluations of the same queries.

    Over samples two runs are compared by the exact McNemar test and Tango's score interval, methods of several seeds
    by a paired bootstrap over queries; over seeds by a paired t test where both have the same seeds, else by Welch's.
    p of all comparisons over samples, and of all over seeds, is corrected by Holm.

    Args:
        runs: two or more, each a run or its folder, those of several seeds or the folder that has them in ``seed-*``,
            or a file that ``evaluate`` wrote, of a run or of an encoder or features from elsewhere. Runs whose settings
            differ in nothing but the seed are taken together as one method, unless all are.
        metrics: names of figures of the evaluations; empty for all.
        features: names of features; empty for all.
        evaluation: name of a file in the runs' ``evaluations/``; empty for the evaluation of their own samples.

    Raises:
        UsageError: fewer than two runs, one twice, other queries, or a name that is not known.
        RunError: not a run, without an evaluation, or one that does not keep which queries were right.
    """
    members = [_members(run, evaluation) for run in runs]
    known = [each for group in members for each in group]
    _check(known)
    groups = _by_method(members)
    names = display_names([_folder_of(group) for group in groups])
    sides = tuple(
        Side(name, tuple(str(run.path) for run in group), tuple(run.seed for run in group))
        for name, group in zip(names, groups, strict=True)
    )
    keys = _chosen([run.record for run in known], metrics, features)
    alike = tuple(key for key in keys if _are_alike([_rows(group, *key) for group in groups]))
    rows = [
        compared
        for (one, first), (other, second) in itertools.combinations(list(zip(sides, groups, strict=True)), 2)
        for key in keys
        if key not in alike
        for compared in _compared((one, other), (_rows(first, *key), _rows(second, *key)))
    ]
    samples, seeds = (corrected([getattr(row, name) for row in rows]) for name in ("over_samples", "over_seeds"))
    tested = tuple(
        replace(row, over_samples=by_samples, over_seeds=by_seeds)
        for row, by_samples, by_seeds in zip(rows, samples, seeds, strict=True)
    )
    return Comparison(sides, tested, known[0].record.split, alike)


@dataclass(frozen=True)
class _Evaluated:
    """An evaluation with what it is of: a run's folder, or the file.

    ``method`` is what runs of other seeds have in common.
    """

    path: Path
    seed: int | None
    method: dict[str, Any]
    record: EvaluationRecord


def _members(run: Run | SeedRuns | str | Path, evaluation: str) -> list[_Evaluated]:
    """What is meant: a file, one run, or those of its seeds."""
    if isinstance(run, SeedRuns):
        return [_of_run(each, _file_of(each, evaluation)) for each in run.runs]
    path = Path(run) if isinstance(run, str | Path) else None
    if path is not None and path.is_file():
        # A run's own is known by the run, whose seed and method count.
        folders = (RunFolder(path.parent), RunFolder(path.parent.parent))
        own = [
            each for each in folders if each.is_ours and path in (each.evaluation, each.other_evaluations / path.name)
        ]
        return [_of_run(as_run(own[0].path), path) if own else _of_file(path)]
    known = [as_run(folder) for folder in (seed_folders(path) if path is not None else [])] or [as_run(run)]
    return [_of_run(each, _file_of(each, evaluation)) for each in known]


def _file_of(run: Run, evaluation: str) -> Path:
    """The evaluation of a run, or that of a name."""
    name = evaluation.removesuffix(".json")
    file = run.folder.other_evaluations / f"{name}.json" if name else run.folder.evaluation
    if not file.exists():
        what, more = (f"no evaluation called {name}", " --data DATA") if name else ("no evaluation", "")
        raise RunError(f"{run.path} has {what}; make it with: {_command(run)}{more}")
    return file


def _of_run(run: Run, file: Path) -> _Evaluated:
    """A run with an evaluation of it."""
    folder = run.folder
    settings = read_yaml_mapping(folder.resolved) if folder.resolved.exists() else {"path": str(run.path)}
    method = {setting: value for setting, value in settings.items() if setting not in NOT_THE_METHODS}
    record = _record(file, read_derived(folder, file), _command(run))
    return _Evaluated(run.path, folder.read_status().seed, method, record)


def _of_file(file: Path) -> _Evaluated:
    """An evaluation of an encoder that no run of ours has trained."""
    record = _record(file, read_sealed(file), "counterpoint evaluate --encoder NAME --data DATA")
    return _Evaluated(file, None, {"path": str(file)}, record)


def _record(file: Path, values: Mapping[str, Any], command: str) -> EvaluationRecord:
    """What an evaluation found; ``command`` makes it again."""
    record = read_record(EvaluationRecord, values, str(file))
    if not record.rows:
        raise RunError(f"{file} is no evaluation; make one with: {command}")
    if record.split.query_fingerprint is None:
        raise RunError(
            f"{file} does not keep which queries were right, so it cannot be compared in pairs; evaluate again with: "
            f"{command}"
        )
    return record


def _command(run: Run) -> str:
    """What evaluates a run."""
    return f"counterpoint evaluate {shlex.quote(str(run.path))}"


def _check(runs: Sequence[_Evaluated]) -> None:
    """Refuse what cannot be compared."""
    if len(runs) < 2:
        raise UsageError(f"compare needs at least two runs, got {len(runs)}")
    if len({run.path.resolve() for run in runs}) < len(runs):
        raise UsageError("compare got the same run or file twice; name each once")
    first = runs[0]
    for run in runs[1:]:
        if run.record.split.query_fingerprint != first.record.split.query_fingerprint:
            raise UsageError(
                f"{first.path} ({_queries(first)}) and {run.path} ({_queries(run)}) were evaluated on different "
                "queries; evaluate both on the same data (counterpoint evaluate RUN --data DATA), and compare these "
                "evaluations (--evaluation NAME)"
            )


def _queries(run: _Evaluated) -> str:
    """What a run was asked about."""
    return f"{run.record.split.num_queries or 0:,} of {run.record.split.source}"


def _by_method(members: Sequence[list[_Evaluated]]) -> list[list[_Evaluated]]:
    """Runs that were named one by one are taken together where only their seeds differ."""
    groups: list[list[_Evaluated]] = []
    for group in members:
        same = [
            other
            for other in groups
            if len(group) == 1
            and other[0].method == group[0].method
            and group[0].seed not in [run.seed for run in other]
        ]
        if same:
            same[0].extend(group)
        else:
            groups.append(list(group))
    # Seeds of one method are compared with each other where there is nothing else.
    return groups if len(groups) > 1 else [[run] for group in groups for run in group]


def _folder_of(group: Sequence[_Evaluated]) -> Path:
    """A path to name a side by: of seeds, the one above, or what the names of theirs have in common."""
    paths = [run.path.resolve() for run in group]
    if len(paths) == 1:
        return _named(group[0]) if paths[0].is_file() else paths[0]
    letters = zip(*(path.name for path in paths), strict=False)
    alike = itertools.takewhile(lambda column: len(set(column)) == 1, letters)
    stem = _SEED_ENDING.sub("", "".join(column[0] for column in alike))
    return paths[0].with_name(stem) if stem else paths[0].parent


def _named(evaluated: _Evaluated) -> Path:
    """A path to name a file's side by: the encoder and its weights, or for features the file."""
    about, path = evaluated.record.encoder, evaluated.path.resolve()
    if about.get("encoder", FEATURES) == FEATURES:
        return path.with_suffix("")
    known = [Path(str(about[part])).name for part in ("encoder", "weights") if about.get(part)]
    return path.with_name(" ".join(known))


def _chosen(
    records: Sequence[EvaluationRecord], metrics: Sequence[str], features: Sequence[str]
) -> list[tuple[str, str]]:
    """Metric and features of each row of the table, metric by metric."""
    rows = [row for record in records for row in record.rows]
    asked = {
        "metric": (metrics, list(dict.fromkeys(row.protocol for row in rows))),
        "features": (features, list(dict.fromkeys(row.features for row in rows))),
    }
    chosen = []
    for kind, (names, known) in asked.items():
        written = [name if name in known else name.replace("-", " ") for name in names]
        for name in written:
            if name not in known:
                raise unknown_name(kind, name, known)
        # Hundreds of figures under corruptions would make the corrected p of all others large.
        chosen.append([name for name in known if name in written or not (written or is_apart(name))])
    return [(metric, feature) for metric in chosen[0] for feature in chosen[1]]


def _rows(group: Sequence[_Evaluated], metric: str, features: str) -> list[EvaluationRow]:
    """The rows of a side; none where a run lacks the figure."""
    found = [row for run in group if (row := run.record.row(features, metric)) and row.figure is not None]
    return found if len(found) == len(group) else []


def _are_alike(sides: Sequence[Sequence[EvaluationRow]]) -> bool:
    """Whether all sides have the very same figures, query by query: of what no training made."""
    return all(sides) and len({frozenset((row.figure, row.hits) for row in rows) for rows in sides}) == 1


def _compared(
    sides: tuple[Side, Side], rows: tuple[Sequence[EvaluationRow], Sequence[EvaluationRow]]
) -> Iterator[Compared]:
    """Compare one figure of two sides, if both have it."""
    first, second = rows
    if not first or not second:
        return
    is_paired, ordered = _matched(sides, rows)
    one, other = ([float(row.figure or 0.0) for row in side] for side in ordered)
    metric = metric_under(described_metrics("evaluation"), first[0].protocol)
    differing = sorted(
        name
        for name in {*first[0].settings, *second[0].settings}
        if first[0].settings.get(name) != second[0].settings.get(name)
    )
    yield Compared(
        metric=first[0].protocol,
        features=first[0].features,
        unit=metric.unit if metric else "number",
        first=sides[0].name,
        second=sides[1].name,
        first_figure=float(np.mean(one)),
        second_figure=float(np.mean(other)),
        over_samples=_over_samples(first, second),
        over_seeds=over_seeds(one, other, is_paired=is_paired),
        seeds_needed=seeds_needed(one, other, is_paired=is_paired),
        remark=f"other {', '.join(differing)}" if differing else "",
    )


def _matched(
    sides: tuple[Side, Side], rows: tuple[Sequence[EvaluationRow], Sequence[EvaluationRow]]
) -> tuple[bool, tuple[Sequence[EvaluationRow], Sequence[EvaluationRow]]]:
    """Whether both sides have the same seeds, and their rows in the order of these."""
    one, other = sides
    if not (one.has_distinct_seeds and other.has_distinct_seeds and set(one.seeds) == set(other.seeds)):
        return False, rows
    by_seed = dict(zip(other.seeds, rows[1], strict=True))
    return True, (rows[0], [by_seed[seed] for seed in one.seeds])


def _over_samples(first: Sequence[EvaluationRow], second: Sequence[EvaluationRow]) -> Difference | None:
    """Compare over queries; None where it is not known which queries were right."""
    if any(row.hits is None for row in (*first, *second)):
        return None
    if len(first) == len(second) == 1:
        return first[0].minus(second[0])
    return paired_bootstrap(_mean_hits(first), _mean_hits(second))


def _mean_hits(rows: Sequence[EvaluationRow]) -> NDArray[np.float64]:
    """The share of runs that got each query right."""
    packed = [np.frombuffer(urlsafe_b64decode(row.hits or ""), np.uint8) for row in rows]
    hits_RQ = np.stack([np.unpackbits(bits, count=int(rows[0].total or 0)) for bits in packed])
    return hits_RQ.mean(axis=0)
