"""Encode the samples of an evaluation in several processes; an evaluation without a part then measures."""

from pathlib import Path
from typing import Any

from torch import nn

from counterpoint.core.errors import UsageError
from counterpoint.core.ranks import WorkPart
from counterpoint.core.run import Run
from counterpoint.core.torch_state import usual_modes
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.feature_sets import gather
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.evaluation.protocol import checked_settings
from counterpoint.evaluation.shared_tables import shared_by

SAMPLES = ("data", "labels", "test_data", "test_labels")


@usual_modes()
def encode_part(
    run: Run | str | Path | nn.Module | Any, part: WorkPart, *, quiet: bool = False, **settings: Any
) -> None:
    """Encode one part of the samples of an evaluation, but for what is there already.

    What was encoded lies in the cache of features, which all parts must share (``COUNTERPOINT_CACHE``). ``evaluate``
    with the same settings takes it from there, and encodes what is missing.

    Args:
        run: as for ``evaluate``; no features, and no encoder of your own, which the cache does not keep.
        part: this process's.
        quiet: show no progress.
        settings: as for ``evaluate``, the same for all parts.

    Raises:
        UsageError: nothing is to be encoded, or the parts cannot meet; and what ``evaluate`` raises.
    """
    given = {name: settings.pop(name) for name in SAMPLES if name in settings}
    asked = checked_settings(settings)
    if not asked.cache:
        raise UsageError("the parts of an evaluation meet in the cache of features; leave --no-cache out")
    reporter = Reporter(quiet=quiet)
    excludes = asked.absent_classes == "exclude"
    samples = Samples(**given, excludes_foreign=excludes, same_classes=asked.same_classes)
    subject = open_subject(run, samples, asked, reporter)
    if subject.is_features:
        raise UsageError("part goes with an encoder; of features there is nothing to encode")
    with shared_by(part):
        gather(subject, asked, reporter)
    reporter.say(f"part {part}: its samples are encoded; once all parts are, the same without --part measures")
