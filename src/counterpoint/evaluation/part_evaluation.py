"""Evaluate in several processes: all of them encode, and the first one then measures, as one process would."""

from pathlib import Path
from typing import Any

from torch import nn

from counterpoint.core.errors import UsageError
from counterpoint.core.run import Run
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.work_parts import Part
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.evaluation_result import Evaluation
from counterpoint.evaluation.feature_sets import gather
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.evaluation.protocol import checked_settings, evaluate_opened
from counterpoint.evaluation.shared_tables import shared_by

SAMPLES = ("data", "labels", "test_data", "test_labels")


@usual_modes()
def evaluate_part(
    run: Run | str | Path | nn.Module | Any, part: Part, *, quiet: bool = False, **settings: Any
) -> Evaluation | None:
    """Do one part of an evaluation: encode samples that no other part has encoded; the first part also measures.

    What was encoded meets in the cache of features, which all parts must share (``COUNTERPOINT_CACHE``). Each part
    returns once all samples are encoded, also those of a part that was killed.

    Args:
        run: as for ``evaluate``; no features, and no encoder of your own, which the cache does not keep.
        part: this process's.
        quiet: show no progress.
        settings: as for ``evaluate``, the same for all parts.

    Returns:
        The evaluation that ``evaluate`` gives; None of all parts but the first.

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
    if part.number > 1:
        reporter.say(f"part {part}: all samples are encoded; part 1/{part.total} measures")
        return None
    return evaluate_opened(subject, asked, reporter)
