"""Train a run, and go on with one: from settings to a run folder with an encoder in it."""

import datetime
import os
import platform
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from counterpoint.core.errors import InterruptedRunError, RunError, TrainingError, UsageError
from counterpoint.core.files import write_text
from counterpoint.core.rundir import Run, RunFolder, create_run, open_run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import as_yaml, build, leaf_fields, merge, nest
from counterpoint.core.version import __version__
from counterpoint.core.yaml_text import dump_yaml
from counterpoint.data.source import Source
from counterpoint.data.sources import ARRAY, open_source
from counterpoint.engine.loop import run_training
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.trained_run import read_resolved
from counterpoint.nn.trained import is_saved, save_encoder
from counterpoint.recipes.assembly import Assembled, assemble
from counterpoint.recipes.resolve import resolve_holdout


@dataclass(frozen=True)
class Given:
    """What the caller holds in memory and a settings file cannot: arrays and modules."""

    data: Any = None
    labels: Any = None
    encoder: nn.Module | None = None


def train(
    data: Any = None,
    *,
    labels: Any = None,
    encoder: str | nn.Module | None = None,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Train an encoder by contrast and write a run folder.

    Args:
        data: ``"digits"``, a folder of images, a ``.npy``/``.npz`` file, an array or a tensor.
        labels: one per sample, for arrays; only evaluation uses them.
        encoder: a name of the encoder catalogue, ``timm:NAME``, or your own module.
        resume: go on if the run folder holds a run already.
        overwrite: replace the run folder if it holds a run already.
        quiet: show no progress.
        settings: any field of ``TrainSettings``: ``method="ncl"``, ``out="runs/ncl"``, ``epochs=30``,
            ``optim={"name": "sgd"}`` or ``**{"optim.name": "sgd"}``.

    Returns:
        The run.

    Raises:
        UsageError: a setting is wrong.
        DataError: the data cannot be used.
        RunError: the run folder exists, or cannot be written.
        InterruptedRunError: stopped by a signal, after saving.
    """
    is_named = data is None or isinstance(data, str | Path)
    asked = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    if data is not None:
        asked["data"] = str(data) if is_named else ARRAY
    if encoder is not None:
        asked["encoder"] = encoder if isinstance(encoder, str) else "custom"
    given = Given(None if is_named else data, labels, encoder if isinstance(encoder, nn.Module) else None)
    return train_from(nest(asked), given, resume=resume, overwrite=overwrite, reporter=Reporter(quiet=quiet))


def train_from(asked: Mapping[str, Any], given: Given, *, resume: bool, overwrite: bool, reporter: Reporter) -> Run:
    """Train from a nested mapping of settings; see ``train``."""
    settings = build(TrainSettings, asked, "settings")
    folder = RunFolder(Path(settings.out or default_out(settings)))
    if resume and overwrite:
        raise UsageError("--resume and --overwrite exclude each other")
    if resume and folder.status.exists():
        _refuse_other_settings(folder, settings)
        return resume_from(folder, given, reporter)
    if not overwrite and folder.path.exists() and any(folder.path.iterdir() if folder.path.is_dir() else [1]):
        create_run(folder.path, overwrite=False)  # raises, before the data are read
    source, assembled = _assemble(settings, given, reporter)
    create_run(folder.path, overwrite=overwrite)
    write_text(folder.config, as_yaml(settings, only_set=True))
    resolved = assembled.resolution.settings.model_dump(mode="json")
    write_text(folder.resolved, dump_yaml({**resolved, "reasons": assembled.resolution.reasons}))
    folder.update_status(**_status(source, assembled))
    return _run(folder, given, source, assembled, reporter)


def resume(run: Run | str | Path, *, quiet: bool = False) -> Run:
    """Go on with an interrupted run from its newest valid checkpoint.

    Args:
        run: the run or its folder; ``Run(path, data=array, encoder=module)`` if it was trained on an array or with
            your own module.
        quiet: show no progress.

    Raises:
        RunError: not a run, or no usable checkpoint.
        DataError: the data changed since the run began.
    """
    known = run if isinstance(run, Run) else Run(Path(run))
    given = Given(known.data, known.labels, known.encoder)
    return resume_from(open_run(known.path), given, Reporter(quiet=quiet))


def resume_from(folder: RunFolder, given: Given, reporter: Reporter) -> Run:
    """Resume with the settings that the run has recorded."""
    status = folder.read_status()
    if status["status"] == "finished" and is_saved(folder):
        reporter.say(f"{folder.path} is finished; nothing to resume")
        return Run(folder.path, given.data, given.labels, given.encoder)
    settings = read_resolved(folder)
    source, assembled = _assemble(settings, given, reporter)
    if source.fingerprint != status.get("data_fingerprint"):
        raise RunError(
            f"the data changed since {folder.path} began (fingerprint {source.fingerprint}, then "
            f"{status.get('data_fingerprint')})"
        )
    return _run(folder, given, source, assembled, reporter, is_resumed=True)


def default_out(settings: TrainSettings) -> str:
    """Where a run goes when nobody says."""
    if settings.data is None:
        return "runs/unnamed"  # never created: opening the data fails first, with advice
    return f"runs/{Path(os.path.expanduser(settings.data)).resolve().stem}-{settings.method}"


def _assemble(settings: TrainSettings, given: Given, reporter: Reporter) -> tuple[Source, Assembled]:
    """Open the data and build every part, before anything is written."""
    if settings.data == ARRAY and given.data is None:
        raise UsageError("this run was trained on an array in memory; pass it as data=")
    data = settings.data if given.data is None else given.data
    source = open_source(data, settings.source, labels=given.labels, progress=reporter.bar)
    for item in source.skipped:
        reporter.say(f"skipped {item.name}: {item.reason}")
    if source.skipped:
        reporter.say(f"skipped {len(source.skipped)} of {len(source.skipped) + len(source)} files")
    return source, assemble(resolve_holdout(settings, source), source, given.encoder)


def _run(
    folder: RunFolder,
    given: Given,
    source: Source,
    assembled: Assembled,
    reporter: Reporter,
    *,
    is_resumed: bool = False,
) -> Run:
    """Train, keep the status honest whatever happens, and save the encoder."""
    reporter.say(assembled.banner(source))
    started = time.perf_counter()
    seconds_before = folder.read_status().get("seconds", 0.0) if is_resumed else 0.0
    status = folder.read_status()["status"] if is_resumed else "failed"  # kept if resuming cannot begin
    folder.update_status(status="running")
    try:
        run_training(assembled.job(folder), reporter, resume=is_resumed)
        save_encoder(folder, assembled.encoder)
        status = "finished"
    except (InterruptedRunError, KeyboardInterrupt):
        status = "interrupted"
        raise
    except TrainingError:
        status = "failed"
        raise
    finally:
        seconds = round(seconds_before + time.perf_counter() - started, 2)
        folder.update_status(status=status, seconds=seconds, peak_memory_mb=_peak_memory_mb())
    reporter.say(f"trained in {seconds:.1f} s; run folder {folder.path}")
    return Run(folder.path, given.data, given.labels, given.encoder)


def _refuse_other_settings(folder: RunFolder, settings: TrainSettings) -> None:
    """A resumed run keeps its settings: name the ones that differ."""
    recorded, asked = read_resolved(folder).model_dump(), settings.model_dump(exclude_unset=True)
    complete = merge(recorded, asked)
    for path, _ in leaf_fields(TrainSettings):
        old, new = _at(recorded, path), _at(complete, path)
        if path != "out" and new not in ("auto", old):
            raise UsageError(f"cannot resume {folder.path} with {path} {new!r}: the run has {old!r}")


def _at(values: Mapping[str, Any], path: str) -> Any:
    """Value at a dotted path."""
    for step in path.split("."):
        values = values[step]
    return values


def _status(source: Source, assembled: Assembled) -> dict[str, Any]:
    """First content of ``run.json``."""
    settings = assembled.resolution.settings
    return {
        "status": "running",
        "method": settings.method,
        "data": Path(source.name).name,
        "seed": settings.seed,
        "version": __version__,
        "torch": torch.__version__.split("+")[0],
        "python": platform.python_version(),
        "command": " ".join(
            ["counterpoint", *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])]
        ),
        "data_fingerprint": source.fingerprint,
        "num_samples": len(source),
        "num_train": len(assembled.split.train),
        "split_fingerprint": assembled.split.fingerprint,
        "skipped": [{"name": item.name, "reason": item.reason} for item in source.skipped],
        "device": settings.engine.device,
        "precision": settings.engine.precision,
        "num_threads": torch.get_num_threads(),
        "num_parameters": assembled.num_parameters,
        "negatives_per_anchor": assembled.num_negatives,
        "pair_kernels": [{"name": choice.name, "reason": choice.reason} for choice in assembled.kernels],
        "width": assembled.encoder.card.width,
        "embedding_dims": assembled.encoder.embedding_dims,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _peak_memory_mb() -> float:
    """Largest resident size of this process, or of the GPU's allocations, in MB."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return round(torch.cuda.max_memory_allocated() / 1e6, 1)
    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)
