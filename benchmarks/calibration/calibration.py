"""All cases of a calibration, side by side and resumable."""

import contextlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from calibration.calibration_tables import feature_tables, trained_tables
from calibration.cases import NUM_SAMPLES, Case, FeatureWork, Set, TrainedWork, Work
from calibration.feature_faults import FAULTS
from calibration.healthy_features import FAMILIES
from calibration.spoiled_samples import Sample
from calibration.trained_faults import TRAINED_FAULTS
from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.errors import DataError, RunError, unknown_name
from counterpoint.core.numerics import evenly_spaced
from counterpoint.core.settings import Settings, SourceSettings
from counterpoint.data.sources import open_source
from counterpoint.engine.progress import Reporter
from counterpoint.nn.resizing import fit_images

SIDES = {True: 12, False: 32}  # of pictures that are trained on, and that features are made of
MOST_PHOTOS = 4000


class CalibrationSettings(Settings):
    """Settings of a calibration: which faults, and how many cases of each.

    Attributes:
        kind: form of the faults: ``choosing`` limits, or ``publishing`` figures.
        trained: trainings with faults, in place of features with faults.
        seeds: cases of each fault; 0 for 60 of features and 3 trainings.
        first_seed: seed of the first case of each fault.
        healthy: healthy feature sets of all families together.
        faults: names of faults or of healthy families; empty for all.
        remedies: whether the first remedy of a training is tried.
        jobs: cases side by side, each on one thread.
    """

    kind: Set = "choosing"
    trained: bool = False
    seeds: int = 0
    first_seed: int = 0
    healthy: int = 1000
    faults: tuple[str, ...] = ()
    remedies: bool = True
    jobs: int = 0


def calibrate(data: Any, out: Path, settings: CalibrationSettings, *, labels: Any = None, reporter: Reporter) -> str:
    """Draw or train with each fault, diagnose, and count.

    Args:
        data: labelled pictures: anything ``train`` takes; None for features of digits and tables alone.
        out: folder of the record, ``features-KIND.jsonl`` or ``trained-KIND.jsonl``; cases that it has are not done
            again.
        settings: which faults, and how many cases.
        labels: classes of the pictures of an array.
        reporter: shows progress.

    Returns:
        The tables.

    Raises:
        UsageError: no such fault.
        DataError: no labelled pictures, or fewer than twice as many as a training takes.
        RunError: the folder cannot be written.
    """
    catalogue = TRAINED_FAULTS if settings.trained else {**FAULTS, **FAMILIES}
    for name in settings.faults:
        if name not in catalogue:
            raise unknown_name("fault", name, catalogue)
    if data is None and settings.trained:
        raise DataError("trainings need pictures with classes; name them")
    sample = None if data is None else _read_sample(data, labels, SIDES[settings.trained], reporter)
    num_each = settings.seeds or (3 if settings.trained else 60)
    num_seeds = {name: -(-settings.healthy // len(FAMILIES)) if name in FAMILIES else num_each for name in catalogue}
    # Seeds are outermost, so that an unfinished record has cases of all faults.
    keys = [
        (name, settings.first_seed + number)
        for number in range(max(num_seeds.values()))
        for name in settings.faults or catalogue
        if number < num_seeds[name]
    ]
    if settings.trained:
        assert sample is not None
        work: Work = TrainedWork(settings.kind, sample, settings.remedies)
    else:
        work = FeatureWork(settings.kind, sample)
    record = _record_path(out, f"{'trained' if settings.trained else 'features'}-{settings.kind}.jsonl")
    cases = list(all_cases(work, keys, record, settings.jobs, reporter))
    return (trained_tables if settings.trained else feature_tables)(cases)


def all_cases(
    work: Work, keys: Sequence[tuple[str, int]], record: Path, jobs: int, reporter: Reporter
) -> Iterator[Case]:
    """Read the cases of a record; make and write those that it lacks."""
    cases = {(case.fault, case.seed): case for case in read_cases(record)}
    missing = [key for key in keys if key not in cases]
    with reporter.bar(record.stem, len(missing)) as advance, record.open("a", encoding="utf-8") as stream:
        if record.stat().st_size and not record.read_bytes().endswith(b"\n"):
            stream.write("\n")  # behind a line that was cut off
        for case in _make_cases(work, missing, jobs):
            stream.write(json.dumps(case.model_dump(mode="json")) + "\n")
            stream.flush()
            cases[case.fault, case.seed] = case
            advance()
    return (cases[key] for key in keys)


def read_cases(record: Path) -> Iterator[Case]:
    """Cases of a record; a line that was not finished is left out."""
    for line in record.read_text(encoding="utf-8").splitlines() if record.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            yield Case.model_validate(json.loads(line))


def _make_cases(work: Work, keys: Sequence[tuple[str, int]], jobs: int) -> Iterator[Case]:
    """Make cases side by side, each in a process with one thread."""
    jobs = min(jobs or os.cpu_count() or 1, max(len(keys), 1))
    # A fork would copy the locks of threads that torch has started.
    with multiprocessing.get_context("spawn").Pool(jobs, _start_worker, (work,)) as pool:
        yield from pool.imap_unordered(_make_case, keys)


_SHARED: list[Callable[[str, int], Case]] = []


def _start_worker(work: Work) -> None:
    torch.set_num_threads(1)
    _SHARED[:] = [work]


def _make_case(key: tuple[str, int]) -> Case:
    return _SHARED[0](*key)


def _read_sample(data: Any, labels: Any, side: int, reporter: Reporter) -> Sample:
    """Read labelled pictures in colour, made small; evenly spaced ones if there are many."""
    source = open_source(data, SourceSettings(), labels=labels, progress=reporter.bar)
    if source.kind != "images" or source.labels is None:
        raise DataError("calibrate needs pictures with classes: a folder with a sub-folder for each, or a named set")
    places = evenly_spaced((source.labels >= 0).nonzero()[:, 0], MOST_PHOTOS)
    if len(places) < 2 * NUM_SAMPLES:
        raise DataError(f"calibrate needs at least {2 * NUM_SAMPLES:,} pictures, got {len(places):,}")
    small = [_fit_square(source.store.fetch(part.tolist()), side) for part in places.split(500)]
    return Sample(np.concatenate(small), source.labels[places].numpy())


def _fit_square(pictures: torch.Tensor, side: int) -> np.ndarray:
    """Pictures in another size, uint8 (n, side, side, 3)."""
    fitted = fit_images(to_unit_float(pictures), (3, side, side))
    return (fitted * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def _record_path(out: Path, name: str) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out} cannot be made: {error.strerror}") from error
    return out / name
