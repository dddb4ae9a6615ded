"""Fine-tune an encoder as a whole on labelled samples, and set its classifier beside a probe of what it began with."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from torch import nn

from counterpoint.core.errors import UsageError
from counterpoint.core.paired_shares import Difference
from counterpoint.core.ranks import read_ranks
from counterpoint.core.run import Run, as_run
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, merge, nest
from counterpoint.data.sources import joined
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.class_accuracy import CLASSIFIER
from counterpoint.evaluation.evaluation_result import PROBE, Evaluation
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.feature_sets import INITIAL
from counterpoint.evaluation.protocol import evaluate_opened
from counterpoint.evaluation.subject import beside, open_queries
from counterpoint.evaluation.trained_run import open_trained, read_resolved, source_settings
from counterpoint.nn.trained import load_encoder
from counterpoint.runs.resolve import crop_and_flip, resolve_holdout, training_part, usual_batch
from counterpoint.runs.training import train_from
from counterpoint.runs.user_inputs import UserInputs, open_user_data
from counterpoint.runs.warm_start import initial_encoder_of, initial_weights, names_weights

EPOCHS = 30  # ncl2024, G.5
# The optimiser of ncl2024's code for CIFAR, which is that of its probe.
RATE, BATCH_OF_RATE = 0.4, 256
WARMUP_SHARE = 1 / 3  # 10 epochs
LARS: Mapping[str, Any] = {"name": "lars", "weight_decay": 1e-4, "trust": 0.02, "trust_clip": True}


@dataclass(frozen=True)
class FineTuned:
    """A fine-tuned encoder and its accuracies.

    Attributes:
        run: run of the fine-tuned encoder, with the classifier.
        evaluation: classifier and probes on the same queries.
    """

    run: Run
    evaluation: Evaluation

    @property
    def gain(self) -> Difference:
        """The classifier's accuracy minus that of a linear probe on what training began with, in pairs."""
        difference = self.evaluation.row("embedding", CLASSIFIER).minus(self.evaluation.row(INITIAL, PROBE))
        assert difference is not None
        return difference

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the evaluation, and the gain."""
        return {**self.evaluation.to_dict(), "run": str(self.run.path), "gain": asdict(self.gain)}

    def __str__(self) -> str:
        row, gain = self.evaluation.row, self.gain
        fine_tuned, frozen = row("embedding", CLASSIFIER), row(INITIAL, PROBE)
        share = f"{fine_tuned.figure:.1%}, a linear probe on the frozen initial encoder {frozen.figure:.1%}"
        ends = f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
        verdict = "" if gain.is_told_apart else ": not told apart"
        return (
            f"{self.evaluation}\n\nfine-tuned {share}; in pairs on the same queries {100 * gain.value:+.1f} points "
            f"({ends}), p {gain.p:.2g}{verdict}"
        )


def fine_tune(
    subject: Run | str | Path | nn.Module,
    *,
    data: Any = None,
    labels: Any = None,
    test_data: Any = None,
    test_labels: Any = None,
    quiet: bool = False,
    **settings: Any,
) -> FineTuned:
    """Train an encoder further as a whole, with a classifier on top, and evaluate that beside a frozen linear probe.

    Recipe (ncl2024, G.5 and its code for CIFAR): 30 epochs, LARS with rate 0.4 x batch / 256, cosine after a third of
    warm-up, weight decay 1e-4, crops and flips. Differs from it in two views of each sample per step instead of one.

    Args:
        subject: the run whose encoder is fine-tuned, or its folder; weights as ``init`` of ``train`` takes them; or a
            module of your own, of which a copy is trained.
        data: labelled samples, as ``train`` takes them; None takes those of the run.
        labels: class labels, one per sample, for arrays.
        test_data: samples to evaluate on, as ``evaluate`` takes them; None holds a share of ``data`` out.
        test_labels: labels of ``test_data``.
        quiet: show no progress.
        settings: any field of ``TrainSettings``, which goes before the recipe; ``out`` is RUN-fine-tuned unless given;
            ``overwrite=True`` replaces a run that is there.

    Returns:
        The new run and its evaluation, which is also written to its folder.

    Raises:
        UsageError: a setting is wrong, or several ranks were started.
        DataError: no labels, or queries of classes that the data do not have; before any step.
        RunError: ``subject`` is not a finished run, or the new folder cannot be written.
        TrainingError: a step cannot be taken.
    """
    if read_ranks(os.environ).world_size > 1:
        raise UsageError(
            "fine-tune is one process; of several ranks train --init RUN --method supervised, then evaluate"
        )
    reporter = Reporter(quiet=quiet)
    overwrite = settings.pop("overwrite", False)
    initial, inputs = _initial_settings(subject, data, labels)
    # If other samples are the queries, all of these are for training.
    held_out = {} if test_data is None else {"source": {"holdout": 0.0}}
    values = merge(merge(initial, held_out), nest(settings))
    checked = build(TrainSettings, values, "settings")
    views, num_train = _plan_run(checked, inputs, test_data, test_labels)
    epochs = EPOCHS if checked.epochs == "auto" else checked.epochs
    batch = usual_batch(num_train)[0] if checked.batch_size == "auto" else checked.batch_size
    recipe: dict[str, Any] = {"epochs": epochs, "batch_size": batch, **views}
    if "name" not in checked.optim.model_fields_set:  # else the section is the user's
        rate = {"learning_rate": RATE * batch / BATCH_OF_RATE, "warmup_epochs": round(WARMUP_SHARE * epochs, 2)}
        recipe["optim"] = {**LARS, **rate}
    values = merge(recipe, values)
    run = cast(Run, train_from(values, inputs, overwrite=overwrite, reporter=reporter))
    trained = open_trained(run, part=_query_part(checked), reporter=reporter)
    if test_data is not None:
        queries = open_queries(trained.opens, test_data, test_labels, part=_query_part(checked), reporter=reporter)
        trained = beside(trained, queries)
    trained = replace(trained, initial=initial_encoder_of(run))
    # k: no vote is asked for, and few labels have few neighbours.
    evaluation = evaluate_opened(trained, EvaluationSettings(metrics=(CLASSIFIER, PROBE), k=1), reporter)
    return FineTuned(run, evaluation)


def _initial_settings(
    subject: Run | str | Path | nn.Module, data: Any, labels: Any
) -> tuple[dict[str, Any], UserInputs]:
    """Return the settings that follow from the subject and its data, and the user's objects in memory."""
    settings: dict[str, Any] = {"method": "supervised"}
    if isinstance(subject, nn.Module):
        settings["encoder"] = subject
    elif isinstance(subject, str | Path) and names_weights(str(subject)):
        settings["init"] = str(subject)
    else:
        run = as_run(subject)
        settings["init"] = str(run.path)
        if run.encoder is not None:
            settings["encoder"] = run.encoder
        # "." has no name of its own.
        settings["out"] = f"{run.path if run.path.name else run.path.resolve()}-fine-tuned"
        if data is None:
            before = read_resolved(run.folder)
            data, labels = before.data if run.data is None else run.data, run.labels if labels is None else labels
            # A holdout of 0 that was resolved without labels does not hold for training with labels.
            settings["source"] = {**before.source.model_dump(), "holdout": before.source.holdout or "auto"}
        if load_encoder(run.folder, run.encoder).card.table is not None:
            settings["source"] = {**settings.get("source", {}), "columns": str(run.path)}
    if isinstance(labels, str | Path):
        settings["source"] = {**settings.get("source", {}), "labels": str(labels)}
        labels = None
    return UserInputs.of_call(data, settings, labels)


def _plan_run(
    settings: TrainSettings, inputs: UserInputs, test_data: Any, test_labels: Any
) -> tuple[dict[str, Any], int]:
    """Return views and number of the training samples; refuse queries of other classes before training."""
    reporter = Reporter(quiet=True)
    source = open_user_data(settings, inputs, reporter, initial_weights(settings))
    if test_data is not None:
        opens = source_settings(settings, source.shape, columns=settings.source.columns)
        joined(source, open_queries(opens, test_data, test_labels, part=_query_part(settings), reporter=reporter))
    views = {} if "preset" in settings.views.model_fields_set else {"views": crop_and_flip(source)}
    return views, len(training_part(resolve_holdout(settings, source).settings, source).positions)


def _query_part(settings: TrainSettings) -> dict[str, Any]:
    """The part of the queries that is used: the classes that are trained on, if some were chosen."""
    return {} if settings.source.classes == "all" else {"classes": settings.source.classes}
