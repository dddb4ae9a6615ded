"""All trainings of a calibration, side by side and resumable, and the table of what was found for which fault."""

import contextlib
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from calibration.cases import Case, Plan, run_case
from calibration.faults import CATALOGUE, HEALTHY
from calibration.spoiled_samples import Sample
from counterpoint.core.array_layout import fit_images, to_unit_float
from counterpoint.core.data_settings import Settings, SourceSettings
from counterpoint.core.errors import DataError, RunError, unknown_name
from counterpoint.core.written_tables import in_markdown, markdown_table
from counterpoint.data.sources import open_source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.metric_types import wilson

Set = Literal["choosing", "publishing"]
NUM_SAMPLES = 600
SIDE = 12
FIRST = 2  # findings among which a fault must be
# The second set has another encoder, other batches and another temperature.
TRAININGS: Mapping[Set, Mapping[str, Any]] = {
    "choosing": {"method": "simclr", "encoder": "convnet", "epochs": 8, "batch_size": 32, "temperature": 0.2},
    "publishing": {"method": "simclr", "encoder": "resnet9-narrow", "epochs": 8, "batch_size": 40, "temperature": 0.3},
}
HELD_OUT = 0.4  # enough queries to tell accuracies apart


class CalibrationSettings(Settings):
    """What is tried.

    Attributes:
        kind: form of the faults: ``choosing`` limits, or ``publishing`` figures.
        seeds: trainings of each fault.
        first_seed: of the first of them.
        faults: names of ``faults.CATALOGUE``; empty for all.
        remedies: whether the first remedy is tried where the fault was found.
        jobs: trainings side by side, each on one thread.
    """

    kind: Set = "choosing"
    seeds: int = 5
    first_seed: int = 0
    faults: tuple[str, ...] = ()
    remedies: bool = True
    jobs: int = 0


@dataclass(frozen=True)
class Calibration:
    """What was found in all trainings.

    Attributes:
        cases: of all faults and seeds.
        kind: form of the faults.
    """

    cases: tuple[Case, ...]
    kind: Set

    def of(self, fault: str) -> list[Case]:
        """The trainings with a fault that came to an end."""
        return [case for case in self.cases if case.fault == fault and case.evidence]

    def num_named(self, fault: str) -> int:
        """How many of them have a finding of the fault among the first two; of healthy ones, no severe finding."""
        return sum(is_named(case) for case in self.of(fault))

    @property
    def remedies(self) -> tuple[int, int]:
        """How many remedies improved the figure that they name, and how many were tried."""
        tried = [case.is_improved for case in self.cases if case.is_improved is not None]
        return sum(tried), len(tried)

    def to_markdown(self) -> str:
        """One line for each fault: how often it was named, what came first, and whether the remedy helped."""
        head = ["fault", "what is wrong", "named", "95 % interval", "first finding", "remedy improves"]
        rows = [self._row(fault) for fault in CATALOGUE if self.of(fault)]
        improved, tried = self.remedies
        stopped = [case for case in self.cases if not case.evidence]
        lines = [
            markdown_table(head, rows, "llrlll"),
            "",
            f"First remedies: {improved} of {tried} improve their figure.",
        ]
        if stopped:
            lines.append(
                f"{len(stopped)} trainings stopped: {stopped[0].fault}, seed {stopped[0].seed}: "
                + in_markdown(str(stopped[0].error))
            )
        return "\n".join(lines)

    def _row(self, fault: str) -> list[str]:
        cases = self.of(fault)
        share = wilson(self.num_named(fault), len(cases))
        first = Counter(_first(case) for case in cases)
        tried = [case.is_improved for case in cases if case.is_improved is not None]
        return [
            fault,
            CATALOGUE[fault].summary,
            f"{self.num_named(fault)} of {len(cases)}",
            f"{share.low:.0%} to {share.high:.0%}",
            ", ".join(f"{name} {count}" for name, count in first.most_common(3)),
            f"{sum(tried)} of {len(tried)}" if tried else "–",
        ]


def is_named(case: Case) -> bool:
    """Whether a finding of the fault is among the first two; of a healthy training, whether no finding is severe."""
    found = [each for each in case.findings if each.level != "good"]
    if case.fault == HEALTHY:
        return all(each.level != "severe" for each in found)
    return any(each.name in CATALOGUE[case.fault].found_as for each in found[:FIRST])


def calibrate(
    data: Any, out: Path, asked: CalibrationSettings, *, labels: Any = None, reporter: Reporter
) -> Calibration:
    """Train with each fault, and diagnose.

    Args:
        data: labelled pictures: anything ``train`` takes.
        out: folder of the record, ``cases-KIND.jsonl``; trainings that it has are not done again.
        asked: what is tried.
        labels: of an array.
        reporter: shows progress.

    Raises:
        UsageError: no such fault.
        DataError: no labelled pictures, or fewer than twice as many as a training takes.
        RunError: the folder cannot be written.
    """
    names = asked.faults or tuple(CATALOGUE)
    for name in names:
        if name not in CATALOGUE:
            raise unknown_name("fault", name, CATALOGUE)
    sample = _read_sample(data, labels, reporter)
    record = _record(out, asked.kind)
    known = {(case.fault, case.seed): case for case in read_cases(record)}
    # Seeds outermost: what is there after a while is of all faults.
    wanted = [(name, seed) for seed in range(asked.first_seed, asked.first_seed + asked.seeds) for name in names]
    missing = [key for key in wanted if key not in known]
    plan = Plan(asked.kind, sample, NUM_SAMPLES, {**TRAININGS[asked.kind], "source.holdout": HELD_OUT})
    with reporter.bar(f"{asked.kind} set", len(missing)) as advance, record.open("a", encoding="utf-8") as stream:
        if record.stat().st_size and not record.read_bytes().endswith(b"\n"):
            stream.write("\n")  # behind a line that was cut off
        for case in _cases(plan, missing, asked):
            stream.write(json.dumps(case.model_dump(mode="json")) + "\n")
            stream.flush()
            known[case.fault, case.seed] = case
            advance()
    return Calibration(tuple(known[key] for key in wanted), asked.kind)


def read_cases(record: Path) -> Iterator[Case]:
    """Trainings of a record; a line that was not finished is left out."""
    for line in record.read_text(encoding="utf-8").splitlines() if record.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            yield Case.model_validate(json.loads(line))


def _cases(plan: Plan, keys: Sequence[tuple[str, int]], asked: CalibrationSettings) -> Iterable[Case]:
    """Trainings side by side, each in a process with one thread."""
    jobs = min(asked.jobs or os.cpu_count() or 1, max(len(keys), 1))
    # A fork would copy the locks of threads that torch has started.
    with multiprocessing.get_context("spawn").Pool(jobs, _begin, (plan, asked.remedies)) as pool:
        yield from pool.imap_unordered(_work, keys)


_SHARED: list[tuple[Plan, bool]] = []


def _begin(plan: Plan, with_remedy: bool) -> None:
    """In each process, once."""
    torch.set_num_threads(1)
    _SHARED[:] = [(plan, with_remedy)]


def _work(key: tuple[str, int]) -> Case:
    (plan, with_remedy), (fault, seed) = _SHARED[0], key
    return run_case(plan, fault, seed, with_remedy=with_remedy)


def _first(case: Case) -> str:
    """Code of the first finding."""
    found = [each.name for each in case.findings if each.level != "good"]
    return found[0] if found else "none"


def _read_sample(data: Any, labels: Any, reporter: Reporter) -> Sample:
    """Labelled pictures in colour, small ones."""
    source = open_source(data, SourceSettings(), labels=labels, progress=reporter.bar)
    if source.kind != "images" or source.labels is None:
        raise DataError("calibrate needs pictures with classes: a folder with a sub-folder for each, or a named set")
    if len(source) < 2 * NUM_SAMPLES:
        raise DataError(f"calibrate needs at least {2 * NUM_SAMPLES:,} pictures, got {len(source):,}")
    parts = torch.arange(len(source)).split(NUM_SAMPLES)
    small = [_small(source.store.fetch(part.tolist())) for part in parts]
    is_known = source.labels.numpy() >= 0
    return Sample(np.concatenate(small)[is_known], source.labels.numpy()[is_known])


def _small(pictures: torch.Tensor) -> np.ndarray:
    """uint8 (n, 12, 12, 3)."""
    fitted = fit_images(to_unit_float(pictures), (3, SIDE, SIDE))
    return (fitted * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def _record(out: Path, kind: Set) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out} cannot be made: {error.strerror}") from error
    return out / f"cases-{kind}.jsonl"
