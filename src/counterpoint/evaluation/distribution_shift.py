"""Measurements beside those of clean queries: under corruptions, on other sources, and with a part of the features.

A part of the features is the first ones of an order; any metric is measured against the number of them.
"""

# N bank samples, Q queries, D features, C classes

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.checks import check_choice
from counterpoint.core.errors import DataError, UsageError, some, unknown_name
from counterpoint.core.metric import KEEPING, ON, UNDER, Metric
from counterpoint.core.run import display_names
from counterpoint.core.schemas import BASELINES, EvaluationRow
from counterpoint.core.thread_parts import one_thread, side_by_side
from counterpoint.data.corrupted import CorruptedStore, check_pictures, chosen_corruptions, chosen_severities
from counterpoint.data.order import random_order
from counterpoint.data.source import Source
from counterpoint.data.stores import ChosenStore, Store
from counterpoint.diagnostics.concepts import expected_activation
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.class_accuracy import CLASSIFIER, corruption_error
from counterpoint.evaluation.evaluation_result import CATALOGUE, KNN, PROBE
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.feature_sets import INITIAL, FeatureSet, represented
from counterpoint.evaluation.knn import Vote, knn_predict
from counterpoint.evaluation.linear_probe import probe_of, probe_settings
from counterpoint.evaluation.metric_types import Labelled, Score, accuracy, row_of
from counterpoint.evaluation.subject import Subject, open_samples

SEED = 0  # of corruptions, and of features in random order
MOST_NAMED = 10  # classes that a sentence lists
CURVES = [CATALOGUE[name] for name in (PROBE, "mAP@10", "precision@10")]  # if no metric is named


@dataclass(frozen=True)
class Frozen:
    """A classifier of some features, fitted to clean labelled samples.

    Attributes:
        classify: function that maps features (n, d) to class numbers (n,).
        settings: settings of the classifier that its figures depend on, by name.
    """

    classify: Callable[[Tensor], Tensor]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class LabelledSamples:
    """Labelled queries for frozen classifiers.

    Attributes:
        store: the store that holds them.
        positions_Q: positions of the queries in the store.
        labels_Q: classes of the queries, as the classifiers number them.
        left_out: text on the samples that were left out, as their classes are not known; empty if there are none.
    """

    store: Store
    positions_Q: Tensor
    labels_Q: Tensor
    left_out: str = ""


def frozen_scores(
    classifiers: Mapping[str, Frozen], sets: Sequence[FeatureSet], source: Source, queries: LabelledSamples
) -> dict[str, Score]:
    """Accuracy of each classifier on some samples, which have the form of the source, by the name of its features."""
    store = ChosenStore(queries.store, tuple(queries.positions_Q.tolist()))
    features = represented(sets, replace(source, store=store))
    return {
        name: accuracy(classifier.classify(features[name]), queries.labels_Q, classifier.settings)
        for name, classifier in classifiers.items()
    }


def matched(other: Source, class_names: Sequence[str]) -> LabelledSamples:
    """Find the samples of another source whose classes have one of these names, whatever the case of the letters.

    Args:
        other: a source with labels.
        class_names: names of the classes, in the order in which the classifiers number them.

    Raises:
        DataError: the source has no labels, or no class of these names.
    """
    if other.labels is None:
        raise DataError(f"{other.name} has no labels, and a classifier is judged by them")
    number_of = {name.casefold(): number for number, name in enumerate(class_names)}
    # The last place is that of -1, a sample without a label.
    numbers = torch.tensor([*(number_of.get(name.casefold(), -1) for name in other.class_names), -1])[other.labels]
    positions = (numbers >= 0).nonzero()[:, 0]
    if not len(positions):
        raise DataError(
            f"no class of {other.name} is known: it has {', '.join(other.class_names[:MOST_NAMED])}; the classifier "
            f"knows {', '.join(class_names[:MOST_NAMED])}"
        )
    foreign = [name for name in other.class_names if name.casefold() not in number_of]
    num_foreign = int(((numbers < 0) & (other.labels >= 0)).sum())
    left_out = f"{num_foreign:,} samples of {len(foreign)} classes left out: {some(foreign, MOST_NAMED)}"
    return LabelledSamples(other.store, positions, numbers[positions], left_out if num_foreign else "")


Arrange = Callable[[Tensor], Tensor]
ALL = "all"  # orders of features


def selection_curve(
    labelled: Labelled,
    order: str,
    measure: Callable[[Labelled], Score],
    *,
    sizes: Sequence[int] | None = None,
) -> dict[int, Score]:
    """Measure a metric with the first k features of an order, by k.

    With ``knn_score``, ``probe_score`` or a metric of ``retrieval`` as ``measure`` these are the curves of ncl2024:
    accuracy, and retrieval of dynamic length. Rows that are shorter after the selection are not scaled back here;
    metrics of cosines do so themselves, as ncl2024 says (its code does not: it searches by Euclidean distance).

    Source: ncl2024, section 5.1, appendices F.3 and G.4.

    Args:
        labelled: features with their classes; the order is made from the features of the bank.
        order: "first" (as they come), "random", "expected activation" (mean absolute value in the unit-length rows),
            "non-negative expected activation" (the same of the positive parts; only these parts are then kept),
            "variance", or "pca" (principal components of the centred features).
        measure: function that measures a metric, as in the record of the metric.
        sizes: numbers of features to keep; None takes 1, 2, 4, ... and all.

    Raises:
        ValueError: an order that is not known, or sizes out of range.

    >>> from counterpoint.evaluation.knn import knn_score
    >>> bank, queries = torch.tensor([[1.0, 2.0, 9.0], [2.0, 1.0, -9.0]]), torch.tensor([[2.0, 1.0, 9.0]])
    >>> labelled = Labelled(bank, torch.tensor([0, 1]), queries, torch.tensor([0]), k=1, temperature=0.1)
    >>> curve = selection_curve(labelled, "first", knn_score, sizes=[2, 3])
    >>> {size: score.outcome.value for size, score in curve.items()}
    {2: 0.0, 3: 1.0}
    """
    check_choice(order, "order", ORDERS)
    num_features = labelled.bank_ND.shape[1]
    sizes = kept_sizes(num_features) if sizes is None else sizes
    for size in sizes:
        if not 1 <= size <= num_features:
            raise ValueError(f"sizes must be between 1 and the number of features, {num_features}, got {size}")
    with one_thread():
        arrange = ORDERS[order](labelled.bank_ND)
        bank_ND, queries_QD = arrange(labelled.bank_ND), arrange(labelled.queries_QD)

    def score(size: int) -> Score:
        return measure(replace(labelled, bank_ND=bank_ND[:, :size], queries_QD=queries_QD[:, :size]))

    return dict(zip(sizes, side_by_side(score, sizes), strict=True))


def kept_sizes(num_features: int, step: int | None = None) -> list[int]:
    """Numbers of features to keep: 1, 2, 4, ... or the multiples of a step; and all of them.

    >>> kept_sizes(6), kept_sizes(70, 32)
    ([1, 2, 4, 6], [32, 64, 70])
    """
    if step is not None:
        return [*range(step, num_features, step), num_features]
    return [*(2**power for power in range((num_features - 1).bit_length())), num_features]


def chosen_orders(names: Sequence[str]) -> tuple[str, ...]:
    """Names of the chosen orders; hyphens may stand for blanks, and ``all`` for all of them.

    Raises:
        UsageError: a name that is not known.

    >>> chosen_orders(["pca", "expected-activation"])
    ('expected activation', 'pca')
    """
    order_of = {name.replace("-", " "): name for name in ORDERS}
    order_names = {name.replace("-", " ") for name in names}
    for name in sorted(order_names - order_of.keys() - {ALL}):
        raise unknown_name("order of features", name, (ALL, *ORDERS))
    return tuple(name for spelled, name in order_of.items() if order_names & {spelled, ALL})


def _by_positive_activation(fit_ND: Tensor) -> Arrange:
    arrange = _by_falling_weight(expected_activation(fit_ND.relu()))
    return lambda z_ND: arrange(z_ND.relu())


def _by_components(fit_ND: Tensor) -> Arrange:
    mean_D = fit_ND.double().mean(dim=0)
    centred_ND = fit_ND.double() - mean_D
    axes_DD = torch.linalg.eigh(centred_ND.T @ centred_ND).eigenvectors.flip(1)
    return lambda z_ND: ((z_ND.double() - mean_D) @ axes_DD).to(z_ND.dtype)


def _by_falling_weight(weight_D: Tensor) -> Arrange:
    """Order features by falling weight; equal ones keep their order."""
    return _columns(weight_D.argsort(descending=True, stable=True))


def _columns(places_D: Tensor) -> Arrange:
    return lambda z_ND: z_ND[:, places_D]


# Each function derives an order from features.
ORDERS: Mapping[str, Callable[[Tensor], Arrange]] = {
    "first": lambda fit_ND: lambda z_ND: z_ND,
    "random": lambda fit_ND: _columns(random_order(SEED, 0, fit_ND.shape[1])),
    "expected activation": lambda fit_ND: _by_falling_weight(expected_activation(fit_ND)),
    "non-negative expected activation": _by_positive_activation,
    "variance": lambda fit_ND: _by_falling_weight(fit_ND.double().var(dim=0)),
    "pca": _by_components,
}


def selection_figures(
    name: str, labelled: Labelled, metric: Metric, order: str, step: int | None = None
) -> list[EvaluationRow]:
    """The curve of the features called ``name`` in an order, at the sizes of ``kept_sizes``."""
    figures, num_features = [], labelled.bank_ND.shape[1]
    for size, score in selection_curve(labelled, order, metric.measure, sizes=kept_sizes(num_features, step)).items():
        settings = {**score.settings, "kept": size, "features": num_features, "order": order}
        figures.append(row_of(name, f"{metric.name} {KEEPING} {size} by {order}", replace(score, settings=settings)))
    return figures


@dataclass(frozen=True)
class Clean:
    """A subject with the features, the clean queries and the metrics of its evaluation.

    Attributes:
        subject: the encoder that is judged.
        sets: features of the subject and of its baselines.
        labelled: labelled samples and queries, by the name of the features.
        queries: positions of the queries in the subject's source.
        metrics: metrics that the evaluation measures.
    """

    subject: Subject
    sets: Sequence[FeatureSet]
    labelled: Mapping[str, Labelled]
    queries: Tensor
    metrics: Sequence[Metric]

    @property
    def own(self) -> list[FeatureSet]:
        """The features that were learned."""
        return [features for features in self.sets if features.name not in (*BASELINES, INITIAL)]

    @property
    def protocol(self) -> str:
        """The frozen classifier: the linear probe, unless only the vote was requested."""
        names = {metric.name for metric in self.metrics}
        return KNN if KNN in names and PROBE not in names else PROBE

    @cached_property
    def classifiers(self) -> dict[str, Frozen]:
        """The frozen classifier of each of the features that were learned, as it is measured on clean queries."""
        classifiers = {}
        for name, labelled in ((features.name, self.labelled[features.name].in_memory()) for features in self.own):
            if self.protocol == PROBE:
                probe = probe_of(labelled)
                classifiers[name] = Frozen(probe.predict, probe_settings(probe, labelled.inverse_penalty))
            else:
                vote = Vote(labelled.k, labelled.temperature)
                predict = partial(knn_predict, labelled.bank_ND, labelled.labels_N, vote=vote)
                classifiers[name] = Frozen(predict, vote.settings())
        return classifiers


# Sources of queries for frozen classifiers, with their facts.
Ood = Sequence[tuple[Source, LabelledSamples]]


def open_ood(subject: Subject, settings: EvaluationSettings, reporter: Reporter) -> Ood:
    """Refuse what cannot be measured, and open what else is needed, before anything is measured.

    Raises:
        UsageError: names that are not known, or features that come without their encoder.
        DataError: corruptions of samples that are no pictures; or data of another shape, or without a known class.
    """
    chosen_corruptions(settings.corruptions)
    chosen_severities(settings.severities)
    chosen_orders(settings.selection)
    needs_encoder = [f"--{name}" for name in ("corruptions", "ood") if getattr(settings, name)]
    if needs_encoder and subject.is_features:
        raise UsageError(f"{needs_encoder[0]} needs the encoder; only features were given")
    if settings.corruptions:
        if subject.source.kind != "images":
            raise DataError(f"corruptions are of pictures; {subject.source.name} holds vectors")
        check_pictures(subject.source.store.fetch([0]))
    opens = subject.opens.model_dump() | ({} if settings.max_bad is None else {"max_bad": settings.max_bad})
    sources = [open_samples(data, opens, None, reporter) for data in settings.ood]
    for source in sources:
        if source.shape != subject.source.shape:
            raise DataError(
                f"samples of {source.name} have the shape {source.shape}, those of {subject.source.name} "
                f"{subject.source.shape}; both must be of one"
            )
    return [(source, matched(source, subject.source.class_names)) for source in sources]


def in_conditions(clean: Clean, ood: Ood, settings: EvaluationSettings, reporter: Reporter) -> list[EvaluationRow]:
    """Measure every requested figure beside those on clean queries."""
    figures = _under_corruptions(clean, settings, reporter) if settings.corruptions else []
    for name, samples in zip(display_names([Path(source.name) for source, _ in ood]), ood, strict=True):
        figures += _on_other_source(clean, name, *samples, reporter)
    if not settings.selection:
        return figures
    measurable = [metric for metric in clean.metrics if not metric.needs and metric.name != CLASSIFIER]
    metrics = measurable if settings.metrics else CURVES
    orders = chosen_orders(settings.selection)
    with reporter.bar("selections of features", len(clean.own) * len(metrics) * len(orders)) as advance:
        for features, metric, order in itertools.product(clean.own, metrics, orders):
            figures += selection_figures(
                features.name, clean.labelled[features.name].in_memory(), metric, order, settings.selection_step
            )
            advance()
    return figures


def _under_corruptions(clean: Clean, settings: EvaluationSettings, reporter: Reporter) -> list[EvaluationRow]:
    names, severities = chosen_corruptions(settings.corruptions), chosen_severities(settings.severities)
    subject, labels = clean.subject, clean.subject.source.labels
    assert labels is not None
    # Positions in the store that the queries come from do not depend on the bank.
    start = 0 if subject.queries is None else len(subject.sources[0])
    queries = LabelledSamples(subject.sources[-1].store, clean.queries - start, labels[clean.queries])
    scores_of = {name: dict[str, Score]() for name in clean.classifiers}
    with reporter.bar(f"under {len(names)} corruptions", len(names) * len(severities)) as advance:
        for corruption, severity in itertools.product(names, severities):
            condition = {"corruption": corruption, "severity": severity, "seed": SEED}
            protocol = f"{clean.protocol} {UNDER} {corruption} {severity}"
            corrupted = replace(queries, store=CorruptedStore(queries.store, corruption, severity, SEED))
            for name, score in frozen_scores(clean.classifiers, clean.own, subject.source, corrupted).items():
                scores_of[name][protocol] = replace(score, settings={**score.settings, **condition})
            advance()
    figures = [row_of(name, *row) for name, scores in scores_of.items() for row in scores.items()]
    error_settings = {"classifier": clean.protocol, "corruptions": len(names)}
    error_settings |= {"severities": ", ".join(map(str, severities)), "seed": SEED}
    for name, scores in scores_of.items():
        figures.append(row_of(name, "corruption error", Score(corruption_error(list(scores.values())), error_settings)))
    return figures


def _on_other_source(
    clean: Clean, name: str, other: Source, queries: LabelledSamples, reporter: Reporter
) -> list[EvaluationRow]:
    if queries.left_out:
        reporter.say(f"{name}: {queries.left_out}")
    with reporter.bar(f"on {name}", 1) as advance:
        scores = frozen_scores(clean.classifiers, clean.own, other, queries)
        advance()
    num_classes = int(queries.labels_Q.unique().numel())
    settings = {"source": name, "classes": num_classes, "left out": queries.left_out or "nothing"}
    return [
        row_of(features, f"{clean.protocol} {ON} {name}", replace(score, settings={**score.settings, **settings}))
        for features, score in scores.items()
    ]
