"""From what the data hold to a config, with a reason for each line: ``counterpoint.recommend``."""

import itertools
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from counterpoint.audit.audit_record import Audit, needed_max_bad, read_audit
from counterpoint.audit.auditing import audit
from counterpoint.audit.recommendation import EXCLUDE, ConfigLine, Recommendation
from counterpoint.core.errors import UsageError
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import TrainSettings
from counterpoint.core.torch_state import only_training, own_draws, usual_modes
from counterpoint.core.validation import build, nest
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from counterpoint.engine.checkpoint import Position
from counterpoint.engine.job import TrainingJob
from counterpoint.engine.placement import place
from counterpoint.engine.progress import Reporter
from counterpoint.engine.step import take_step
from counterpoint.methods.catalogue import method_named
from counterpoint.runs.assembly import assemble
from counterpoint.runs.resolve import Resolution, resolve_holdout
from counterpoint.runs.run_job import training_job
from counterpoint.runs.user_inputs import Given

WANTS = {"features": "simclr", "readable": "ncl"}
SUPERVISED = {"features": "supcon", "readable": "nonnegative-supervised"}
MINUTES = 10.0
EXCLUDE_FILE = "exclude.txt"  # until the config has a name
# The most capable first; the first that has its updates within the time is taken.
ON_CPU = (("resnet9", 64), ("resnet9", 32), ("resnet9-narrow", 64), ("resnet9-narrow", 32), ("convnet", 32))
ON_GPU = (("resnet18", 128), ("resnet18", 64), ("resnet18", 32), ("resnet9", 32))
FEWEST_UPDATES, FEWEST_EPOCHS, MOST_EPOCHS = 400, 10, 200
HOPELESS = 2.0  # times the step that there is time for
SHARE_FOR_STEPS = 0.85  # of the time; the rest is for reading, checkpoints and the end
WARM_UP, FEWEST_STEPS, MOST_STEPS, MOST_SECONDS = 2, 4, 20, 4.0
LEAST_SPREAD = 0.15  # half width of an interval, as a share: other programs come and go within a run
MILD_JITTER, COLOUR_MATTERS = 0.1, 0.2  # strength, and skill of the cue from which colour is kept


@dataclass
class Draft:
    """Lines that are known so far, in their order."""

    lines: list[ConfigLine] = field(default_factory=list)

    def put(self, path: str, value: Any, reason: str, confidence: str, basis: str) -> None:
        """Add a line."""
        self.lines.append(ConfigLine(path=path, value=value, reason=reason, confidence=confidence, basis=basis))


@dataclass(frozen=True)
class Timing:
    """What one choice of encoder and size takes.

    Attributes:
        resolution: settings with every ``auto`` filled in, and the reasons.
        batches_per_epoch: steps of an epoch.
        step_seconds: mean over the steps that were timed.
        low: what 39 of 40 steps exceed, at least 15 % below the mean.
        high: what 39 of 40 steps stay below, at least 15 % above it.
        num_steps: how many were timed.
        setup_seconds: to open the data and build the run's parts.
    """

    resolution: Resolution
    batches_per_epoch: int
    step_seconds: float
    low: float
    high: float
    num_steps: int
    setup_seconds: float

    @property
    def epoch_seconds(self) -> float:
        """Of one pass over the training samples."""
        return self.batches_per_epoch * self.step_seconds


@usual_modes()
@only_training()
def recommend(
    data: Any,
    *,
    want: str = "features",
    use_labels: bool = False,
    minutes: float = MINUTES,
    known: Audit | str | Path | None = None,
    quiet: bool = False,
) -> Recommendation:
    """Recommend settings for training on data, each with a reason; steps are timed on this machine.

    Args:
        data: the name or path of what is to be trained on.
        want: ``features``, or ``readable`` dimensions, which have a meaning each.
        use_labels: labels may be used in training.
        minutes: how long training may take here.
        known: an audit of the same data, or its JSON file; made anew if it is not given.
        quiet: show no progress.

    Raises:
        UsageError: nothing can be trained on, or an argument is out of range.
    """
    if want not in WANTS:
        raise UsageError(f"want must be {' or '.join(WANTS)}, got {want!r}")
    if not (math.isfinite(minutes) and minutes > 0):
        raise UsageError(f"minutes must be > 0, got {minutes}; 10 is common on a laptop")
    if not isinstance(data, str | Path):
        raise UsageError("recommend writes a config, which names its data; save the array as .npy and give its path")
    reporter = Reporter(quiet=quiet)
    if known is None:
        known = audit(data, quiet=quiet)
    found = known if isinstance(known, Audit) else read_audit(Path(known))
    if (found.passport.num_good or 0) < 4:
        raise UsageError(f"{found.name} has {found.passport.num_good or 0} usable samples; training needs at least 4")
    draft = Draft()
    draft.put("data", str(data), "as given", "high", "given")
    _about_source(draft, found)
    _about_method(draft, found, want, use_labels)
    timing = _measured(draft, found, minutes, reporter)
    _about_views(draft, found, timing)
    _about_rest(draft, timing)
    return _timed(draft, timing, minutes).model_copy(update={"exclude": found.left_out})


def _about_source(draft: Draft, found: Audit) -> None:
    gone = found.left_out
    if gone:
        what = "copies, and pictures that show nothing" if found.kind == "images" else "copies"
        draft.put(EXCLUDE, EXCLUDE_FILE, f"{len(gone)} samples: {what}", "high", "measured here")
    unreadable = found.found("unreadable")
    num_bad, number = (unreadable.count if unreadable else 0) or 0, found.passport.num_found or 1
    needed = needed_max_bad(num_bad, number)
    if needed is not None:
        reason = f"{num_bad / number:.1%} of the files cannot be read; they are left out"
        draft.put("source.max_bad", needed, reason, "high", "measured here")
    if found.found("one-class") is not None:
        draft.put("source.labels", "none", "all samples have one label", "high", "measured here")
    uneven = found.found("uneven-classes")
    if uneven is not None and uneven.level == "warning":
        reason = "classes are uneven; training goes by the pictures as they are, look at the accuracy of each class"
        draft.put("source.sampling", "natural", reason, "medium", "rule of thumb")


def _about_method(draft: Draft, found: Audit, want: str, use_labels: bool) -> None:
    if use_labels and len(found.passport.classes) < 2:
        raise UsageError(f"{found.name} has no labels of two classes or more; leave --labels out")
    method = (SUPERVISED if use_labels else WANTS)[want]
    reason = {
        "simclr": "needs no labels, and is the best understood",
        "ncl": "non-negative features: each dimension stands for something",
        "supcon": "labels may be used: samples of one class attract each other",
        "nonnegative-supervised": "labels may be used, and features are non-negative",
    }[method]
    draft.put("method", method, reason, "medium" if want == "features" else "high", method_named(method).source)


def _measured(draft: Draft, found: Audit, minutes: float, reporter: Reporter) -> Timing:
    """Time candidates, the most capable first, until one has its updates within the time; else the fastest."""
    tried: list[Timing] = []
    candidates = _candidates(found)
    # The list of samples to leave out is not written yet; a few samples more change no step's time.
    known = {line.path: line.value for line in draft.lines if line.path != EXCLUDE}
    opened: dict[int | None, tuple[Source, float]] = {}
    with reporter.bar("timing steps", len(candidates)) as advance:
        for encoder, side in candidates:
            asked = {**known, "encoder": encoder, **({} if side is None else {"source.image_size": side})}
            if side not in opened:
                started = time.perf_counter()
                settings = build(TrainSettings, nest(asked), "recommendation")
                source = open_source(settings.data, settings.source, progress=reporter.bar)
                opened = {side: (source, time.perf_counter() - started)}  # the last alone is kept
            source, seconds = opened[side]
            hopeless = HOPELESS * 60 * minutes / FEWEST_UPDATES
            tried.append(time_steps(asked, source, opening=seconds, hopeless=hopeless))
            place_of = "" if side is None else f" at {side} px"
            reporter.say(f"{encoder}{place_of}: {tried[-1].step_seconds * 1e3:,.0f} ms per step")
            advance()
            if _fits(tried[-1], minutes):
                break
    timing = tried[-1] if _fits(tried[-1], minutes) else min(tried, key=lambda each: each.epoch_seconds)
    _about_encoder(draft, found, timing, [each for each in tried if each is not timing], minutes)
    return timing


def _about_encoder(draft: Draft, found: Audit, timing: Timing, others: Sequence[Timing], minutes: float) -> None:
    known = timing.resolution.settings
    taken = f"{timing.step_seconds * 1e3:,.0f} ms per step of {known.batch_size} samples"
    reason = f"{taken} here ({timing.num_steps} timed)"
    larger = [f"{each.resolution.settings.encoder} at {_side(each)} px" for each in others]
    if larger:
        reason += f"; too slow for {minutes:g} minutes: {', '.join(larger)}"
    draft.put("encoder", known.encoder, reason, "high", "measured here")
    if _is_resized(found):
        reason = f"the median short side is {_short_side(found):g} px"
        draft.put("source.image_size", _side(timing), f"{reason}; smaller is faster", "medium", "measured here")


def _candidates(found: Audit) -> list[tuple[str, int | None]]:
    """Encoders and sizes to try; None leaves the size as the data have it."""
    if found.kind == "vectors":
        return [("mlp", None)]
    device = place("auto", "auto").device
    pairs = ON_CPU if device == "cpu" else ON_GPU
    if not _is_resized(found):
        return [(encoder, None) for encoder in dict.fromkeys(encoder for encoder, _ in pairs)]
    largest = max(8, int(_short_side(found)) // 8 * 8)
    return list(dict.fromkeys((encoder, min(side, largest)) for encoder, side in pairs))


def _short_side(found: Audit) -> float:
    """Median short side, nearly: the shorter of both medians, in pixels."""
    return min(found.passport.widths[2] or 0.0, found.passport.heights[2] or 0.0)


def _is_resized(found: Audit) -> bool:
    """Whether the pictures lie in files, which are brought to a size."""
    return found.passport.num_bytes is not None


def _side(timing: Timing) -> int:
    return int(timing.resolution.settings.source.image_size)


def _fits(timing: Timing, minutes: float) -> bool:
    return _epochs_within(timing, minutes) >= _fewest_epochs(timing)


def _fewest_epochs(timing: Timing) -> int:
    return max(FEWEST_EPOCHS, math.ceil(FEWEST_UPDATES / timing.batches_per_epoch))


def _epochs_within(timing: Timing, minutes: float) -> int:
    seconds = max(0.0, SHARE_FOR_STEPS * 60 * minutes - timing.setup_seconds)
    return int(seconds / timing.epoch_seconds)


def _about_views(draft: Draft, found: Audit, timing: Timing) -> None:
    known, reasons = timing.resolution.settings, timing.resolution.reasons
    preset = known.views.preset
    draft.put("views.preset", preset, reasons.get("views.preset", "by the kind of data"), "medium", "measured here")
    strength = known.views.jitter_strength
    if found.kind != "images" or not isinstance(strength, float) or "views.jitter_strength" in timing.resolution.idle:
        return
    colours = next((cue for cue in found.cues if cue.name == "colours"), None)
    if colours is not None and colours.skill >= COLOUR_MATTERS and strength > MILD_JITTER:
        reason = f"colours alone tell the class of {colours.accuracy:.0%} (largest class {colours.majority:.0%}): "
        draft.put("views.jitter_strength", MILD_JITTER, f"{reason}kept mild", "medium", "measured here")
        if isinstance(known.views.grayscale, float) and known.views.grayscale > 0:
            draft.put("views.grayscale", 0.0, "as above: grey views would hide the colours", "medium", "measured here")


def _about_rest(draft: Draft, timing: Timing) -> None:
    """Batch, temperature and dimensions, as training would choose them, unless they have no effect."""
    for path, confidence, basis in (
        ("batch_size", "medium", "rule of thumb"),
        ("temperature", "medium", "paper"),
        ("projector.features", "low", "rule of thumb"),
    ):
        value = attrgetter(path)(timing.resolution.settings)
        if path in timing.resolution.idle or value == "auto":
            continue
        draft.put(path, value, timing.resolution.reasons.get(path, "as the method has it"), confidence, basis)


def _timed(draft: Draft, timing: Timing, minutes: float) -> Recommendation:
    within, fewest = _epochs_within(timing, minutes), _fewest_epochs(timing)
    is_short = within < fewest
    epochs = max(fewest if is_short else within, 1)
    epochs = min(MOST_EPOCHS if fewest <= MOST_EPOCHS else fewest, epochs)
    steps = epochs * timing.batches_per_epoch
    seconds, low, high = (
        timing.setup_seconds + steps * each for each in (timing.step_seconds, timing.low, timing.high)
    )
    told = f"{seconds / 60:.1f} minutes [{low / 60:.1f}, {high / 60:.1f}]"
    reason = f"{steps:,} updates in {told} here, of {minutes:g} given"
    if is_short:
        reason = f"{reason}: fewer than {fewest} epochs would leave features hardly trained"
    elif epochs < within:
        reason = f"{reason}: more than {epochs} epochs seldom pay"
    draft.put("epochs", epochs, reason, "high" if not is_short else "medium", "measured here")
    return Recommendation(
        lines=tuple(draft.lines),
        minutes=minutes,
        seconds=round(seconds, 1),
        low=round(low, 1),
        high=round(high, 1),
        step_seconds=timing.step_seconds,
    )


def time_steps(asked: dict[str, Any], source: Source, *, opening: float, hopeless: float) -> Timing:
    """Take some steps of a run as ``train`` takes them; nothing is written.

    Args:
        asked: settings by dotted path.
        source: the data, at the size that is asked for.
        opening: seconds that opening the data took.
        hopeless: seconds of a step beyond which one is enough to know.

    Raises:
        UsageError: the settings do not go together.
        DataError: too few samples.
    """
    started = time.perf_counter()
    settings = build(TrainSettings, nest(asked), "recommendation")
    placement = place(settings.engine.device, settings.engine.precision)
    assembled = assemble(resolve_holdout(settings, source), source, placement, Given())
    job = training_job(assembled, RunFolder(Path(os.devnull)))
    setup_seconds = opening + time.perf_counter() - started
    steps = _step_times(job, hopeless)
    mean, (low, high) = fmean(steps), np.quantile(steps, (0.025, 0.975))
    return Timing(
        resolution=assembled.resolution,
        batches_per_epoch=job.loader.order.batches_per_epoch,
        step_seconds=mean,
        low=min(low, (1 - LEAST_SPREAD) * mean),
        high=max(high, (1 + LEAST_SPREAD) * mean),
        num_steps=len(steps),
        setup_seconds=setup_seconds,
    )


def _step_times(job: TrainingJob, hopeless: float) -> Sequence[float]:
    job.engine.setup(job.method, job.optimizer)
    job.method.train()
    device = job.engine.device
    batches = (batch for epoch in itertools.count() for batch in job.loader.epoch(epoch))
    position = Position(epoch=0, batch=0, step=0)

    def step() -> float:
        started = time.perf_counter()
        take_step(job, next(batches), position)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    with own_draws(devices=[device] if device.type == "cuda" else []):
        warm = [step() for _ in range(WARM_UP)]
        if warm[-1] > hopeless:
            return warm[-1:]
        steps = [step()]
        while len(steps) < MOST_STEPS and (len(steps) < FEWEST_STEPS or sum(steps) < MOST_SECONDS):
            steps.append(step())
    return steps
