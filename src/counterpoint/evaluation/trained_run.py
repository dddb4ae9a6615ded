"""Open a finished run with its data, as every evaluation and diagnosis needs it; its encoder at a checkpoint."""

import copy
import errno
import shlex
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from counterpoint.core.derived_files import check_run
from counterpoint.core.errors import RunError, UsageError
from counterpoint.core.files import is_unchanged, run_named_in
from counterpoint.core.run import Run, as_run
from counterpoint.core.rundir import RunFolder
from counterpoint.core.settings import SourceSettings, TrainSettings
from counterpoint.core.validation import build, read_yaml_mapping
from counterpoint.data.order import Split, split_source, thin
from counterpoint.data.source import Source, source_side
from counterpoint.data.sources import ALL, ARRAY, NO_FILE, open_source
from counterpoint.data.views.own_views import as_views
from counterpoint.engine.checkpoint import checkpoints_by_step, load_checkpoint
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.subject import DEFAULT_HOLDOUT, Subject, open_samples
from counterpoint.losses.loss import as_loss
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.methods.catalogue import ENCODES_BOTH
from counterpoint.nn.encoders import has_stem
from counterpoint.nn.trained import Encoder, load_encoder, part_of

AUTO = "auto"


def read_resolved(folder: RunFolder) -> TrainSettings:
    """Read the settings of a run, with every ``auto`` filled in.

    Raises:
        UsageError: the file is missing, unreadable, or holds something that is not a setting.
        RunError: it was changed after it was written, or is of another run.
    """
    values = read_yaml_mapping(folder.resolved)
    text = folder.resolved.read_text(encoding="utf-8")
    check_run(folder, folder.resolved, run_named_in(text))
    if not is_unchanged(text, must_be_sealed=folder.marker.is_file()):
        raise RunError(
            f"{folder.resolved} was changed after it was written; to see what differs: counterpoint resume "
            f"{shlex.quote(str(folder.path))}"
        )
    return settings_of(values, str(folder.resolved))


def recorded_values(folder: RunFolder) -> dict[str, Any]:
    """Plain values of ``resolved.yaml``; none if it is missing or damaged.

    Raises:
        RunError: the disk refuses to read it, so that its content is unknown.
    """
    try:
        return read_yaml_mapping(folder.resolved)
    except UsageError as error:
        cause = error.__context__
        # None: it is not a regular file. ELOOP: it is a link to itself.
        if isinstance(cause, OSError) and cause.errno not in (None, errno.ENOENT, errno.ELOOP):
            raise RunError(f"{folder.resolved} cannot be read: {cause.strerror}") from None
        return {}


def settings_of(values: dict[str, Any], origin: str) -> TrainSettings:
    """Build settings from the values that a run recorded.

    Args:
        values: values of the settings, as they were recorded.
        origin: name of the file that has them, for errors.

    Raises:
        UsageError: a value is not a setting, or one is missing that every run has.
    """
    values = copy.deepcopy(values)
    values.pop("reasons", None)  # resolved.yaml also holds the reason for each setting
    settings = build(TrainSettings, _with_later_settings(values), origin)
    for name in ("epochs", "batch_size", "source.holdout", "optim.learning_rate"):  # these never stay auto
        if attrgetter(name)(settings) == "auto":
            raise UsageError(f"{origin} is damaged: it does not say what {name} is")
    return settings


def _with_later_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Adapt the settings of a run of an earlier version; those that 0.1.0 did not record get its behaviour."""
    values.pop("pretrained_weights", None)  # which 0.2.0 had
    source = values.get("source")
    if isinstance(source, dict) and source.get("altered") == "skip":  # which 0.2.0 had
        source["altered"] = "reindex"
    engine, method = values.get("engine"), METHODS.get(str(values.get("method")))
    if has_stem(str(values.get("encoder"))):
        values.setdefault("stem", "small")
    if isinstance(engine, dict):
        for name in ("backend", "average", "sync_norm"):  # removed: no weight of a run that is there depends on them
            engine.pop(name, None)
        num_parts, size = engine.pop("accumulate", 1), values.get("batch_size")
        if isinstance(num_parts, int) and isinstance(size, int):  # the loss saw one of so many parts of a batch
            values["batch_size"] = size // max(num_parts, 1)
    if isinstance(values.get("optim"), dict):
        values["optim"].pop("layer_decay", None)
    if isinstance(engine, dict) and method is not None and method.wiring in ENCODES_BOTH:
        engine.setdefault("encode_views", "together")
    return values


def open_trained(
    run: Run | str | Path,
    *,
    data: Any = None,
    labels: Any = None,
    part: Mapping[str, Any] = MappingProxyType({}),
    reporter: Reporter,
) -> Subject:
    """Open a run with its own data, or with other data; files that had to be left out are named.

    Args:
        run: the run or its folder.
        data: other samples to look at (anything ``train`` takes); None takes the run's own. Samples are known by their
            content: the array that the run was trained on is its own data, wherever it comes from.
        labels: class labels, one per sample for arrays; for named data a path, ``auto`` or ``none``.
        part: the part of the data that is taken: the settings ``split``, ``classes`` and ``root`` of ``source``.
        reporter: shows progress while a folder is read.

    Raises:
        RunError: the folder is no run, or nothing was trained yet.
        UsageError: the data were an array that is not at hand.
    """
    run = as_run(run)
    settings, status = read_resolved(run.folder), run.folder.read_status()
    encoder = load_encoder(run.folder, run.encoder)
    if "image_size" in part:
        raise UsageError(f"source.image_size goes with an encoder from elsewhere; that of {run.path} has its size")
    is_array, is_specified = settings.data == ARRAY, data is not None or labels is not None or bool(part)
    is_own_data = data is None or (isinstance(data, str | Path) and str(data) == settings.data)
    if data is None:
        # An array is not in the run folder; the record of a training in this process may still have it.
        data = run.data if is_array else settings.data
        labels = run.labels if is_array and labels is None else labels
    if data is None:
        raise UsageError(f"{run.path} was trained on an array in memory; pass it as data=")
    columns = AUTO if encoder.card.table is None else str(run.path)
    opens = source_settings(settings, encoder.card.in_shape, part=part, is_own_data=is_own_data, columns=columns)
    is_own_data &= not part  # unless the content turns out to be that of the run
    source = open_samples(data, opens.model_dump(), labels, reporter)
    run_fingerprint = status.data_fingerprint or source.fingerprint
    if source.fingerprint != run_fingerprint and not is_own_data and not part and not isinstance(data, str | Path):
        own = _own_array(data, run.labels, run_fingerprint)
        # Labels that were given count, even if the samples turn out to be the run's own.
        is_own_data, source = own is not None, own if own is not None and labels is None else source
    is_own_data |= source.fingerprint == run_fingerprint
    # The same function as before training: the same samples and labels give the same split.
    split = split_source(len(source), source.labels, float(settings.source.holdout) or DEFAULT_HOLDOUT)
    if is_own_data:  # samples that long-tailed training left out are left out of the bank, too
        split = Split(thin(split.train, source.labels, settings.source, source.class_names), split.held_out)
    # Then labels that are given later contradict nothing, and results with them belong into the record.
    had_no_labels = status.class_counts == ()
    is_as_it_was = source.fingerprint == run_fingerprint or had_no_labels or not (is_array or is_specified)
    own_views = None if run.views is None else as_views(run.views)
    return Subject(
        name=run.path.name,
        encoder=encoder,
        source=source,
        split=split,
        sources=(source,),
        folder=run.folder,
        settings=settings,
        is_own_data=is_own_data,
        is_own_record=is_own_data and is_as_it_was,
        own_views=own_views,
        own_loss=None if run.loss is None else as_loss(run.loss),
        opens=source_settings(settings, encoder.card.in_shape, columns=columns),
    )


def _own_array(data: Any, own_labels: Any, run_fingerprint: str) -> Source | None:
    """The run's own samples with the labels that it had, if an array has their content; None if not."""
    # The fingerprint covers the labels, and these may have been given or not.
    for labels in [None] if own_labels is None or len(own_labels) != len(data) else [None, own_labels]:
        source = open_source(data, SourceSettings(), labels=labels, progress=Reporter(quiet=True).bar)
        if source.fingerprint == run_fingerprint:
            return source
    return None


def source_settings(
    settings: TrainSettings,
    in_shape: tuple[int, ...],
    *,
    part: Mapping[str, Any] = MappingProxyType({}),
    is_own_data: bool = False,
    columns: str = AUTO,
) -> SourceSettings:
    """Settings by which a run's encoder takes samples: its size, their labels, and for a table the run's columns."""
    values = settings.source.model_dump()
    values["image_size"] = source_side(in_shape)
    if not is_own_data and settings.source.labels != "none":
        values["labels"] = "auto"  # a file of labels belongs to the run's own samples
    if not is_own_data:  # as do its part of a data set and its columns
        values |= {"split": "auto", "image_column": "auto", "classes": ALL}
    if not is_own_data and columns == AUTO:
        values["label_column"] = "auto"
    if columns != AUTO:  # the run's own columns say what is left out
        values |= {"columns": columns, "drop_columns": NO_FILE}
    if not is_own_data or "split" in part:  # its list names samples of the part that was trained on
        values["exclude"] = NO_FILE
    return build(SourceSettings, {**values, **part}, "source")


def steps_asked(folder: RunFolder, checkpoint: str) -> Sequence[int]:
    """Steps of the requested checkpoints, ascending.

    Args:
        folder: folder of the run.
        checkpoint: a step, or ``all``.

    Raises:
        UsageError: no checkpoint of that step is kept; the steps that are kept are named.
    """
    steps = list(checkpoints_by_step(folder.checkpoints))
    if checkpoint == ALL and steps:
        return steps
    if checkpoint.isascii() and checkpoint.isdigit() and int(checkpoint) in steps:
        return [int(checkpoint)]
    raise UsageError(
        f"checkpoint {checkpoint} is not kept in {folder.path}; steps that are: "
        f"{', '.join(map(str, steps)) or 'none'} (train with --engine.keep to keep more)"
    )


def encoder_at(folder: RunFolder, encoder: Encoder, step: int) -> Encoder:
    """A copy of a run's encoder with the weights of a checkpoint: their moving average, if the run keeps one.

    Raises:
        RunError: the checkpoint is damaged.
    """
    snapshot = load_checkpoint(checkpoints_by_step(folder.checkpoints)[step])
    weights = {**snapshot.state.model, **snapshot.average}
    changed = copy.deepcopy(encoder)
    changed.backbone.load_state_dict(part_of(weights, "backbone"))
    changed.projector.load_state_dict(part_of(weights, "projector"))
    if changed.classifier is not None:
        changed.classifier.load_state_dict(part_of(weights, "loss"))
    return changed.eval()
