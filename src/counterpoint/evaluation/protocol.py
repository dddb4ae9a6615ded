"""Evaluate a run: every metric on representation and embedding, beside raw input and untrained encoder."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import CounterpointError, DataError, UsageError, gone, unknown_name
from counterpoint.core.metric import Metric
from counterpoint.core.run import Run
from counterpoint.core.schemas import EvaluationRow
from counterpoint.core.stored_rows import load
from counterpoint.core.thread_parts import side_by_side
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.validation import build
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.class_accuracy import CLASSIFIER
from counterpoint.evaluation.distribution_shift import Clean, in_conditions, open_ood
from counterpoint.evaluation.evaluation_result import CATALOGUE, KNN, Evaluation, described_split, write_evaluation
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.feature_sets import FeatureSet, FeatureSets, gather_features
from counterpoint.evaluation.features import altered_pictures
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.evaluation.metric_types import MIN_QUERIES, Labelled, row_of
from counterpoint.evaluation.subject import Subject
from counterpoint.nn.layer_outputs import EMBEDDING

ALL = "all"  # metrics


def _chosen_metrics(names: Sequence[str]) -> tuple[Metric, ...]:
    """The named metrics in the catalogue's order; without names those not for request, for ``all`` every one."""
    # Names may have hyphens for blanks.
    metric_names = {name.replace("-", " ") if name not in CATALOGUE else name for name in names}
    for name in sorted(metric_names - CATALOGUE.keys() - {ALL}):
        raise UsageError(gone(f"metric {name}")) if gone(f"metric {name}") else unknown_name("metric", name, CATALOGUE)
    if not metric_names:
        return tuple(metric for metric in CATALOGUE.values() if not metric.on_request)
    return tuple(metric for metric in CATALOGUE.values() if metric_names & {metric.name, ALL})


@usual_modes()
def evaluate(
    run: Run | str | Path | nn.Module | Any,
    *,
    data: Any = None,
    labels: Any = None,
    test_data: Any = None,
    test_labels: Any = None,
    quiet: bool = False,
    **settings: Any,
) -> Evaluation:
    """Measure how well an encoder separates known classes, beside two baselines on the same split.

    Args:
        run: the run or its folder (``Run(path, encoder=module)`` if it was trained with your own module); an encoder
            from elsewhere, by a name such as ``timm:resnet18`` (with ``weights=FILE``, else with random ones) or as a
            module that takes images in [0, 1] (``mean=`` and ``std=`` are applied before it) or vectors; or features
            (n, d), in memory or in a file, perhaps with labels.
        data: labelled data (anything ``train`` takes); None takes the run's own. The array that the run was trained on
            is recognised by its content.
        labels: class labels, one per sample for arrays; a file for named data.
        test_data: separate queries (a folder, an array, or the test part of a named set); all samples of ``data`` are
            then the bank. None holds a share of ``data`` out.
        test_labels: labels of the queries.
        quiet: show no progress.
        settings: ``metrics`` (names of ``counterpoint list metrics``, or ``all``;
            none takes those that are not for request); ``layers`` (``representation``, ``embedding``, ``projected``,
            ``subvector``, or modules of the backbone by name); ``checkpoint`` (a step, or ``all``); of the kNN vote
            ``k`` (20) and ``temperature`` (0.1); of the linear probe ``inverse_penalty`` (0.1); what of the data is
            taken: ``split``, ``classes``, ``root`` and ``image_size``, as those of ``source``; ``device``; ``cache``,
            whether features are kept; and ``out``, a JSON file to write. Beside clean queries: ``corruptions`` (names
            of ``data.corrupted``, or ``all``) and their ``severities`` ("1-5"); ``ood`` (names or paths of
            sources of the same classes); ``selection`` (orders of features, or ``all``) and ``selection_step``.

    Returns:
        The evaluation. That of a run is also written to its folder: to ``evaluation.json`` if it is about the run's own
        samples and labels (or labels given later to a run without), else to ``evaluations/<data>.json``. That of
        features or of an encoder from elsewhere is written where ``out`` says, and nowhere else.

    Raises:
        DataError: no labels, too few of them, or queries of other shapes or classes than the bank's.
        UsageError: k or temperature out of range, or a setting or metric that is not known.
    """
    evaluation_settings = build(EvaluationSettings, settings, "evaluate")
    _chosen_metrics(evaluation_settings.metrics)  # before any data are read
    try:
        check_positive(evaluation_settings.temperature, "temperature", hint="0.07 to 0.1 is usual")
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    reporter = Reporter(quiet=quiet)
    subject = open_subject(run, Samples(data, labels, test_data, test_labels), evaluation_settings, reporter)
    return evaluate_opened(subject, evaluation_settings, reporter)


def evaluate_opened(subject: Subject, settings: EvaluationSettings, reporter: Reporter) -> Evaluation:
    """Evaluate a subject that is open with its samples; see ``evaluate``."""
    chosen, takes_all, layers = _chosen_metrics(settings.metrics), ALL in settings.metrics, settings.layers
    if subject.encoder.classifier is None and CLASSIFIER in settings.metrics and not takes_all:
        raise UsageError(f"{subject.name} has no classifier; only learning from labels leaves one")
    if settings.metrics == (CLASSIFIER,) and layers and EMBEDDING not in layers:
        raise UsageError(f"{CLASSIFIER} is a row of the embedding; layers must name it, got {', '.join(layers)}")
    bank, queries = _labelled_positions(subject)
    if not 1 <= settings.k <= len(bank):
        raise UsageError(f"k must be between 1 and the number of labelled samples, {len(bank)}, got {settings.k}")
    if altered := altered_pictures(subject):
        reporter.say(f"{altered.sentence}: every figure is of input that the encoder was never trained on")
    ood = open_ood(subject, settings, reporter)
    for metric in chosen:
        if metric.needs and not settings.corruptions:
            if not takes_all:
                raise UsageError(f"{metric.name} needs --corruptions")
            reporter.say(f"{metric.name} is left out: it needs --corruptions")
    # The metric of corruptions is measured with them, whether it is named or not.
    measurable = tuple(metric for metric in chosen if not metric.needs)
    split = described_split(subject, bank, queries)
    if split.num_unlabelled:
        reporter.say(f"{split.num_unlabelled:,} samples without a label take no part")
    if missing := split.absent_classes:
        are = "classes of the bank have" if len(missing) > 1 else "class of the bank has"
        reporter.say(f"{len(missing)} {are} no query: {', '.join(missing[:10])}")
    gathered = gather_features(subject, settings, reporter)
    labelled = {features.name: _labelled(features, subject, bank, queries, settings) for features in gathered.sets}
    rows = _figures(gathered, labelled, measurable, reporter, takes_all=takes_all)
    clean = Clean(subject, gathered.sets, labelled, queries, measurable)
    rows += tuple(in_conditions(clean, ood, settings, reporter))
    split = split.model_copy(update={"num_shared": gathered.num_shared(bank, queries)})
    if split.num_shared:
        shared = f"{split.num_shared:,} of {len(queries):,} queries are in the bank, too"
        reporter.say(f"{shared}: they favour every figure")
    facts: dict[str, Any] = {} if subject.facts is None else {"encoder": dict(subject.facts)}
    evaluation = Evaluation(**facts, split=split, rows=rows, name=subject.name)
    return evaluation.model_copy(update={"path": write_evaluation(evaluation, subject, settings, reporter)})


def _figures(
    gathered: FeatureSets,
    labelled: Mapping[str, Labelled],
    metrics: Sequence[Metric],
    reporter: Reporter,
    *,
    takes_all: bool,
) -> tuple[EvaluationRow, ...]:
    """Measure every metric on every set of features, side by side; each figure is shown as soon as it is known."""
    tasks = [
        (features, metric)
        for features, metric in itertools.product(gathered.sets, metrics)
        # Few sets of features have a classifier that was trained with them.
        if metric.name != CLASSIFIER or features.predicted is not None
    ]
    lacking: dict[str, str] = {}
    with reporter.bar("evaluating", len(tasks)) as advance:

        def figure(place: int) -> EvaluationRow | None:
            features, metric = tasks[place]
            try:
                own = labelled[features.name]
                score = metric.measure(own if metric.in_parts else own.in_memory())
                score = replace(score, settings={**score.settings, **features.about})
                row = row_of(features.name, metric.name, score, own.class_names)
            except CounterpointError as error:
                if not takes_all:
                    raise
                lacking[metric.name] = str(error)
                return None
            assert row.figure is not None
            if math.isnan(row.figure):
                lacking[metric.name] = "there is nothing among these samples that it measures"
                return None
            advance(f"{row.features}, {row.protocol}: {metric.written(row.figure)}")
            return row

        # Probes take longer than votes: begun last, one of them would run alone while the other threads wait.
        longest_first = sorted(range(len(tasks)), key=lambda place: tasks[place][1].name == KNN)
        rows = dict(zip(longest_first, side_by_side(figure, longest_first), strict=True))
    for name, why in sorted(lacking.items()):
        reporter.say(f"{name} is left out: {why}")
    return tuple(row for place in range(len(tasks)) if (row := rows[place]) is not None)


def _labelled(
    features: FeatureSet, subject: Subject, bank: Tensor, queries: Tensor, settings: EvaluationSettings
) -> Labelled:
    source, labels = subject.source, subject.source.labels
    assert labels is not None
    # Bank and queries are the same for all features, so that their figures can be compared. A bank on disk is read part
    # by part by the metrics that can; `Labelled` has it as a tensor for all others.
    bank_ND, queries_QD = cast(Tensor, features.at(bank)), load(features.at(queries))
    return Labelled(
        bank_ND,
        labels[bank],
        queries_QD,
        labels[queries],
        **settings.model_dump(include={"k", "temperature", "inverse_penalty"}),
        predicted_Q=None if features.predicted is None else features.predicted[queries],
        class_names=source.class_names,
    )


def _labelled_positions(subject: Subject) -> tuple[Tensor, Tensor]:
    labels = subject.source.labels
    if labels is None:
        raise DataError(
            f"{subject.source.name} has no labels, and accuracy needs them; give --labels FILE (Python: labels=), "
            "or use `counterpoint diagnose`, which needs none"
        )
    # An unknown label (-1) can neither vote nor be right.
    bank, queries = (part[labels[part] >= 0] for part in (subject.split.train, subject.split.held_out))
    if len(queries) < MIN_QUERIES or len(labels[bank].unique()) < 2:
        raise DataError(
            f"{len(bank)} labelled samples of {len(labels[bank].unique())} classes and {len(queries)} queries are "
            f"too few to evaluate; "
            f"at least 2 classes and {MIN_QUERIES} queries are needed"
        )
    return bank, queries
