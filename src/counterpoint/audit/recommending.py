"""Derive a config from an audit of data, with a reason for each line: ``counterpoint.recommend``."""

import math
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

from counterpoint.audit.audit_record import Audit, needed_max_bad
from counterpoint.audit.auditing import audit
from counterpoint.audit.step_timing import Timing, timings
from counterpoint.core.errors import UsageError
from counterpoint.core.files import read_json, write_text
from counterpoint.core.schemas import Figure, Listed, Record, Text, read_record
from counterpoint.core.table_columns import UNUSABLE
from counterpoint.core.terminal_text import WIDTH, shown
from counterpoint.core.torch_state import only_training, usual_modes
from counterpoint.core.validation import dump_yaml, nest
from counterpoint.engine.placement import place
from counterpoint.engine.progress import Reporter
from counterpoint.methods.catalogue import method_named

WANTS = {"features": "simclr", "readable": "ncl"}
SUPERVISED = {"features": "supcon", "readable": "nonnegative-supervised"}
METHOD_REASONS = {
    "simclr": "needs no labels, and is the best understood",
    "ncl": "non-negative features: each dimension has a meaning",
    "supcon": "labels may be used: samples of one class attract each other",
    "nonnegative-supervised": "labels may be used, and features are non-negative",
}
EXCLUDE = "source.exclude"  # the one setting whose value is a file that is written with the config
EXCLUDE_FILE = "exclude.txt"  # until the config has a name
# The most capable first; the first that has its updates within the time is taken.
ON_CPU = (("resnet9", 64), ("resnet9", 32), ("resnet9-narrow", 64), ("resnet9-narrow", 32), ("convnet", 32))
ON_GPU = (("resnet18", 128), ("resnet18", 64), ("resnet18", 32), ("resnet9", 32))
MOST_EPOCHS = 200
REST = (
    ("batch_size", "medium", "rule of thumb"),
    ("temperature", "medium", "paper"),
    ("projector.features", "low", "rule of thumb"),
)
MILD_JITTER, COLOUR_MATTERS = 0.1, 0.15  # strength, and skill of the cue from which colour is kept


class ConfigLine(Record):
    """One setting that is recommended.

    Attributes:
        path: dotted name of the setting.
        value: recommended value.
        reason: reason for the value.
        confidence: high, medium or low.
        basis: basis of the reason: measured here, a paper, a rule of thumb, or given.
    """

    path: str = ""
    value: Any = None
    reason: str = ""
    confidence: str = ""
    basis: str = ""


class Recommendation(Record):
    """Settings for a training, which ``train --config`` takes as they are.

    Attributes:
        lines: lines of the config.
        minutes: time that the training may take.
        seconds: time that the training is expected to take on this machine.
        low: lower end of the interval of ``seconds``.
        high: upper end.
        step_seconds: time of one update.
        exclude: names of samples to leave out.
    """

    lines: Annotated[tuple[ConfigLine, ...], Listed] = ()
    minutes: Figure = None
    seconds: Figure = None
    low: Figure = None
    high: Figure = None
    step_seconds: Figure = None
    exclude: Annotated[tuple[Text, ...], Listed] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The config, nested."""
        return nest({line.path: line.value for line in self.lines})

    @property
    def yaml(self) -> str:
        """The config as text, with the reason of each line as a comment above it."""
        text_lines = [f"# recommended: {self.promise}"]
        for section, values in self.settings.items():
            for line in self.lines:
                first, _, rest = line.path.partition(".")
                if first == section:
                    name = f"{line.path}: " if rest else ""
                    text_lines.append(f"# {name}{shown(line.reason)} ({line.confidence}; {line.basis})")
            text_lines.append(dump_yaml({section: values}).rstrip("\n"))
        return "\n".join(text_lines) + "\n"

    @property
    def promise(self) -> str:
        """The predicted time of the training."""
        low, middle, high = ((value or 0.0) / 60 for value in (self.low, self.seconds, self.high))
        return f"about {middle:.1f} minutes on this machine [{low:.1f}, {high:.1f}], of {self.minutes:g} given"

    def beside(self, path: Path) -> "Recommendation":
        """The recommendation for a config of that name, beside which the list of samples to leave out lies."""
        lists = {"value": str(path.with_name(f"{path.stem}-exclude.txt"))}
        lines = tuple(line.model_copy(update=lists) if line.path == EXCLUDE else line for line in self.lines)
        return self.model_copy(update={"lines": lines})

    def save(self, path: str | Path) -> Path:
        """Write the config, and the list of samples to leave out if there is one."""
        recommendation = self.beside(Path(path))
        for line in recommendation.lines:
            if line.path == EXCLUDE:
                names = "".join(f"{name}\n" for name in self.exclude)
                write_text(Path(line.value), f"# copies\n{names}")
        write_text(Path(path), recommendation.yaml)
        return Path(path)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain values."""
        return self.model_dump(mode="json")

    def __str__(self) -> str:
        width = max(len(line.path) for line in self.lines)
        rows = [self.promise]
        for line in self.lines:
            words = f"{line.path:<{width}}  {line.value}: {line.reason} ({line.confidence}; {line.basis})"
            rows.append(fill(words, WIDTH, initial_indent="  ", subsequent_indent=" " * (width + 4)))
        return "\n".join(rows)


class Draft(list[ConfigLine]):
    """The lines of a config that are decided so far, in their order."""

    def put(self, path: str, value: Any, reason: str, confidence: str, basis: str) -> None:
        """Add a line."""
        self.append(ConfigLine(path=path, value=value, reason=reason, confidence=confidence, basis=basis))


@usual_modes()
@only_training()
def recommend(  # noqa: PLR0913 (its signature is published)
    data: Any,
    *,
    want: str = "features",
    use_labels: bool = False,
    drop_near_copies: bool = False,
    minutes: float = 10.0,
    known: Audit | str | Path | None = None,
    quiet: bool = False,
    **source: Any,
) -> Recommendation:
    """Recommend settings for training on data, each with a reason; steps are timed on this machine.

    Args:
        data: the name or path of what is to be trained on.
        want: ``features``, or ``readable`` dimensions, which have a meaning each.
        use_labels: whether labels may be used in training.
        drop_near_copies: leave out one of each pair of near copies, too; some may be different things.
        minutes: time that training may take here.
        known: an audit of the same data, or its JSON file; made again if it is not given.
        quiet: show no progress.
        source: the reading of the data, as settings of ``source`` that ``audit`` takes, such as ``label_column``.

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
    earlier = audit(data, quiet=quiet, **source) if known is None else known
    record = earlier if isinstance(earlier, Audit) else read_record(Audit, read_json(Path(earlier)), str(earlier))
    if (record.passport.num_good or 0) < 4:
        raise UsageError(f"{record.name} has {record.passport.num_good or 0} usable samples; training needs at least 4")
    draft = Draft()
    draft.put("data", str(data), "as given", "high", "given")
    for name, value in source.items():
        draft.put(f"source.{name}", value, "as given", "high", "given")
    if "drop_columns" not in source and (table := record.found("columns")) and "left out" in table.text:
        draft.put("source.drop_columns", UNUSABLE, "the audit names what cannot be used", "high", "measured here")
    gone = record.left_out(near_copies=drop_near_copies)
    _add_source_lines(draft, record, gone, drop_near_copies)
    if use_labels and len(record.passport.classes) < 2:
        raise UsageError(f"{record.name} has no labels of two classes or more; leave --labels out")
    method = (SUPERVISED if use_labels else WANTS)[want]
    sure = "medium" if want == "features" else "high"
    draft.put("method", method, METHOD_REASONS[method], sure, method_named(method).source)
    timing = _choose_encoder(draft, record, minutes, reporter)
    _add_view_lines(draft, record, timing)
    # Batch, temperature and dimensions, as training would choose them, unless they have no effect.
    for path, confidence, basis in REST:
        value = attrgetter(path)(timing.resolution.settings)
        if path not in timing.resolution.idle and value != "auto":
            draft.put(path, value, timing.resolution.reasons.get(path, "the method's default"), confidence, basis)
    return _recommend_epochs(draft, timing, minutes).model_copy(update={"exclude": gone})


def _add_source_lines(draft: Draft, record: Audit, gone: Sequence[str], drop_near_copies: bool) -> None:
    near = record.found("near-copies")
    if gone:
        reason = f"{len(gone)} samples: copies with equal {'pixels' if record.kind == 'images' else 'numbers'}"
        if near is not None:
            pairs = f"{len(near.groups):,} pairs of near copies"
            reason += f", and one of each of {pairs}" if drop_near_copies else f"; {pairs} stay, look at them"
        is_sure = near is None or not drop_near_copies
        draft.put(EXCLUDE, EXCLUDE_FILE, reason, "high" if is_sure else "low", "measured here")
    # Training opens the first part alone.
    part = next(iter(record.passport.splits), None)
    num_bad = record.passport.bad.get(part, 0) if part is not None else sum(record.passport.bad.values())
    number = (record.passport.num_found if part is None else record.passport.splits[part]) or 1
    needed = needed_max_bad(num_bad, number)
    if needed is not None:
        reason = f"{num_bad / number:.1%} of the files cannot be read; they are left out"
        draft.put("source.max_bad", needed, reason, "high", "measured here")
    if record.found("one-class") is not None:
        draft.put("source.labels", "none", "all samples have one label", "high", "measured here")
    uneven = record.found("uneven-classes")
    if uneven is not None and uneven.level == "warning":
        reason = "classes are uneven; training uses the pictures as they are, look at the accuracy of each class"
        draft.put("source.sampling", "natural", reason, "medium", "rule of thumb")


def _choose_encoder(draft: Draft, record: Audit, minutes: float, reporter: Reporter) -> Timing:
    """Time candidates from the fastest up, while there is time; choose the most capable one that has its updates."""
    # The list of samples to leave out is not written yet; a few samples more change no step's time.
    shared = {line.path: line.value for line in draft if line.path != EXCLUDE}
    candidates = [
        {**shared, "encoder": encoder, **({} if side is None else {"source.image_size": side})}
        for encoder, side in reversed(_candidates(record))
    ]
    tried = list[Timing]()
    with reporter.bar("timing steps", len(candidates)) as advance:
        for candidate in timings(candidates, minutes):
            tried.append(candidate)
            advance()
    for candidate in tried:
        reporter.say(f"{_name(candidate)}: {candidate.step_seconds * 1e3:,.0f} ms per step")
    timing = next((candidate for candidate in reversed(tried) if candidate.fits(minutes)), tried[0])
    settings = timing.resolution.settings
    reason = f"{timing.step_seconds * 1e3:,.0f} ms per step of {settings.batch_size} samples ({timing.num_steps} timed)"
    if slow := [candidate for candidate in tried if not candidate.fits(minutes)]:
        reason += f"; too slow for {minutes:g} minutes: {', '.join(map(_name, slow))}"
    draft.put("encoder", settings.encoder, reason, "high", "measured here")
    if _is_resized(record):
        reason = f"the median short side is {_short_side(record):g} px; smaller is faster"
        draft.put("source.image_size", int(settings.source.image_size), reason, "medium", "measured here")
    return timing


def _name(timing: Timing) -> str:
    settings = timing.resolution.settings
    return settings.encoder + (f" at {side} px" if isinstance(side := settings.source.image_size, int) else "")


def _candidates(record: Audit) -> list[tuple[str, int | None]]:
    """Encoders and sizes to try; None leaves the size as the data have it."""
    if record.kind == "vectors":
        return [("mlp", None)]
    device = place("auto", "auto").device
    pairs = ON_CPU if device == "cpu" else ON_GPU
    if not _is_resized(record):
        return [(encoder, None) for encoder in dict.fromkeys(encoder for encoder, _ in pairs)]
    largest = max(8, int(_short_side(record)) // 8 * 8)
    return list(dict.fromkeys((encoder, min(side, largest)) for encoder, side in pairs))


def _short_side(record: Audit) -> float:
    """Median short side, nearly: the shorter of both medians, in pixels."""
    return min(record.passport.widths[2] or 0.0, record.passport.heights[2] or 0.0)


def _is_resized(record: Audit) -> bool:
    """Tell whether the pictures lie in files, which are resized to one size."""
    return record.passport.num_bytes is not None


def _add_view_lines(draft: Draft, record: Audit, timing: Timing) -> None:
    settings, reasons = timing.resolution.settings, timing.resolution.reasons
    preset = settings.views.preset
    draft.put("views.preset", preset, reasons.get("views.preset", "by the kind of data"), "medium", "measured here")
    strength = settings.views.jitter_strength
    if record.kind != "images" or not isinstance(strength, float) or "views.jitter_strength" in timing.resolution.idle:
        return
    colours = next((cue for cue in record.cues if cue.name == "colours"), None)
    if colours is not None and colours.skill >= COLOUR_MATTERS and strength > MILD_JITTER:
        reason = f"colours alone predict the class of {colours.accuracy:.0%} (largest class {colours.majority:.0%}): "
        draft.put("views.jitter_strength", MILD_JITTER, f"{reason}kept mild", "medium", "measured here")
        if isinstance(settings.views.grayscale, float) and settings.views.grayscale > 0:
            draft.put("views.grayscale", 0.0, "as above: grey views would hide the colours", "medium", "measured here")


def _recommend_epochs(draft: Draft, timing: Timing, minutes: float) -> Recommendation:
    within, fewest = timing.epochs_within(minutes), timing.fewest_epochs
    is_short = within < fewest
    epochs = max(fewest if is_short else within, 1)
    epochs = min(max(MOST_EPOCHS, fewest), epochs)
    steps = epochs * timing.batches_per_epoch
    seconds, low, high = (
        timing.setup_seconds + steps * each for each in (timing.step_seconds, timing.low, timing.high)
    )
    duration = f"{seconds / 60:.1f} minutes [{low / 60:.1f}, {high / 60:.1f}]"
    reason = f"{steps:,} updates in {duration} here, of {minutes:g} given"
    if is_short:
        reason = f"{reason}: fewer than {fewest} epochs would leave features hardly trained"
    elif epochs < within:
        reason = f"{reason}: more than {epochs} epochs seldom pay"
    draft.put("epochs", epochs, reason, "high" if not is_short else "medium", "measured here")
    return Recommendation(
        lines=tuple(draft),
        minutes=minutes,
        seconds=round(seconds, 1),
        low=round(low, 1),
        high=round(high, 1),
        step_seconds=timing.step_seconds,
    )
