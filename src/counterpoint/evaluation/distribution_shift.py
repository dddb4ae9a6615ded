"""What is measured beside clean queries: under corruptions, on other sources, with a part of the features."""

# Q queries, C classes

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.metric import ON, UNDER, Metric
from counterpoint.core.run_records import BASELINES, EvaluationRow
from counterpoint.data.corrupted import CorruptedStore, check_pictures, chosen_corruptions, chosen_severities
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from counterpoint.data.stores import ChosenStore, Store
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.class_accuracy import CLASSIFIER, corruption_error
from counterpoint.evaluation.evaluation_result import CATALOGUE, KNN, PROBE
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.feature_sets import INITIAL, FeatureSet, Represent, represent_as
from counterpoint.evaluation.knn import Vote, knn_predict
from counterpoint.evaluation.linear_probe import probe_of, probe_settings
from counterpoint.evaluation.metric_types import Labelled, Score, accuracy, row_of
from counterpoint.evaluation.selection import chosen_orders, selection_figures
from counterpoint.evaluation.subject import Subject, name_skipped

SEED = 0  # of corruptions
MOST_NAMED = 10  # classes that a sentence lists
CURVES = [CATALOGUE[name] for name in (PROBE, "mAP@10", "precision@10")]  # where no metric is named


@dataclass(frozen=True)
class Frozen:
    """A classifier of some features, fitted to clean labelled samples.

    Attributes:
        classify: maps features to classes.
        settings: what its figures depend on.
    """

    classify: Callable[[Tensor], Tensor]
    settings: Mapping[str, Any]


def frozen(known: Labelled, protocol: str) -> Frozen:
    """The classifier of a protocol, as ``linear probe`` and ``knn`` measure it on clean queries."""
    if protocol == PROBE:
        probe = probe_of(known)
        return Frozen(probe.predict, probe_settings(probe, known.inverse_penalty))
    vote = Vote(known.k, known.temperature)
    return Frozen(lambda x_QD: knn_predict(known.bank_ND, known.labels_N, x_QD, vote), vote.settings())


@dataclass(frozen=True)
class LabelledSamples:
    """Samples that frozen classifiers are asked about.

    Attributes:
        store: holds them.
        positions_Q: where.
        labels_Q: their classes, as the classifiers number them.
        left_out: in words, samples of classes that are not known; empty where there are none.
    """

    store: Store
    positions_Q: Tensor
    labels_Q: Tensor
    left_out: str = ""


def frozen_scores(classifiers: Mapping[str, Frozen], represent: Represent, asked: LabelledSamples) -> dict[str, Score]:
    """Accuracy of each classifier on some samples, by the name of its features."""
    features = represent(ChosenStore(asked.store, tuple(asked.positions_Q.tolist())))
    return {
        name: accuracy(each.classify(features[name]), asked.labels_Q, each.settings)
        for name, each in classifiers.items()
    }


def matched(other: Source, class_names: Sequence[str]) -> LabelledSamples:
    """Find the samples of another source whose classes have one of these names, whatever the case of the letters.

    Args:
        other: labelled.
        class_names: as the classifiers number them.

    Raises:
        DataError: no labels, or no class that is known.
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
    names = ", ".join(foreign[:MOST_NAMED]) + (", ..." if len(foreign) > MOST_NAMED else "")
    left_out = f"{num_foreign:,} samples of {len(foreign)} classes left out: {names}" if num_foreign else ""
    return LabelledSamples(other.store, positions, numbers[positions], left_out)


@dataclass(frozen=True)
class Clean:
    """What has been measured on clean queries, and with what.

    Attributes:
        subject: what is judged.
        sets: its features.
        known: their labelled samples and queries, by name.
        queries: positions of the queries.
        metrics: those that were asked for.
    """

    subject: Subject
    sets: Sequence[FeatureSet]
    known: Mapping[str, Labelled]
    queries: Tensor
    metrics: Sequence[Metric]

    @property
    def own(self) -> list[FeatureSet]:
        """The features that were learned."""
        return [each for each in self.sets if each.name not in (*BASELINES, INITIAL)]

    def labelled(self, name: str) -> Labelled:
        """Some features, with their bank in memory: probes and curves take all of it."""
        return self.known[name].in_memory()

    @property
    def protocol(self) -> str:
        """Of the frozen classifier: the linear probe, unless the vote alone was asked for."""
        names = {metric.name for metric in self.metrics}
        return KNN if KNN in names and PROBE not in names else PROBE

    def asked(self) -> LabelledSamples:
        """The queries in the store that they come from, where their numbers do not depend on the bank."""
        labels, sources = self.subject.source.labels, self.subject.sources
        assert labels is not None
        start = len(sources[0]) if len(sources) > 1 else 0
        return LabelledSamples(sources[len(sources) - 1].store, self.queries - start, labels[self.queries])


# Sources that frozen classifiers are asked about, with what is known of them.
Ood = Sequence[tuple[Source, LabelledSamples]]


def open_ood(subject: Subject, asked: EvaluationSettings, reporter: Reporter) -> Ood:
    """Refuse what cannot be measured, and open what else is needed, before anything is measured.

    Raises:
        UsageError: names that are not known, or features that come without their encoder.
        DataError: corruptions of what is no picture, or other data without a class that is known.
    """
    chosen_corruptions(asked.corruptions)
    chosen_severities(asked.severities)
    chosen_orders(asked.selection)
    needs_encoder = [f"--{name}" for name in ("corruptions", "ood") if getattr(asked, name)]
    if needs_encoder and subject.is_features:
        raise UsageError(f"{needs_encoder[0]} needs the encoder; features are all that is known")
    if asked.corruptions:
        if subject.source.kind != "images":
            raise DataError(f"corruptions are of pictures; {subject.source.name} holds vectors")
        check_pictures(subject.source.store.fetch([0]))
    if asked.max_bad is not None:
        subject = replace(subject, opens=subject.opens.model_copy(update={"max_bad": asked.max_bad}))
    sources = [_opened(subject, data, reporter) for data in asked.ood]
    return [(source, matched(source, subject.source.class_names)) for source in sources]


def in_conditions(clean: Clean, ood: Ood, asked: EvaluationSettings, reporter: Reporter) -> list[EvaluationRow]:
    """Every figure that was asked for beside those on clean queries."""
    figures = _under_corruptions(clean, asked, reporter) if asked.corruptions else []
    for source, found in ood:
        figures += _elsewhere(clean, source, found, reporter)
    return figures + (_curves(clean, asked, reporter) if asked.selection else [])


def _under_corruptions(clean: Clean, asked: EvaluationSettings, reporter: Reporter) -> list[EvaluationRow]:
    """Accuracies of the learned features under corruptions."""
    names, severities = chosen_corruptions(asked.corruptions), chosen_severities(asked.severities)
    classifiers = {each.name: frozen(clean.labelled(each.name), clean.protocol) for each in clean.own}
    represent, queries = represent_as(clean.own, clean.subject.source), clean.asked()
    found = {name: dict[str, Score]() for name in classifiers}
    with reporter.bar(f"under {len(names)} corruptions", len(names) * len(severities)) as advance:
        for corruption, severity in itertools.product(names, severities):
            settings = {"corruption": corruption, "severity": severity, "seed": SEED}
            corrupted = replace(queries, store=CorruptedStore(queries.store, corruption, severity, SEED))
            for name, score in frozen_scores(classifiers, represent, corrupted).items():
                known = replace(score, settings={**score.settings, **settings})
                found[name][f"{clean.protocol} {UNDER} {corruption} {severity}"] = known
            advance()
    figures = [row_of(name, protocol, score) for name, own in found.items() for protocol, score in own.items()]
    settings = {"classifier": clean.protocol, "corruptions": len(names)}
    settings |= {"severities": ", ".join(map(str, severities)), "seed": SEED}
    for name, own in found.items():
        figures.append(row_of(name, "corruption error", Score(corruption_error(list(own.values())), settings)))
    return figures


def _elsewhere(clean: Clean, other: Source, found: LabelledSamples, reporter: Reporter) -> list[EvaluationRow]:
    """Accuracies of the learned features on another source."""
    name = Path(other.name).name
    if found.left_out:
        reporter.say(f"{name}: {found.left_out}")
    classifiers = {each.name: frozen(clean.labelled(each.name), clean.protocol) for each in clean.own}
    with reporter.bar(f"on {name}", 1) as advance:
        scores = frozen_scores(classifiers, represent_as(clean.own, other), found)
        advance()
    num_classes = int(found.labels_Q.unique().numel())
    settings = {"source": name, "classes": num_classes, "left out": found.left_out or "nothing"}
    return [
        row_of(features, f"{clean.protocol} {ON} {name}", replace(score, settings={**score.settings, **settings}))
        for features, score in scores.items()
    ]


def _curves(clean: Clean, asked: EvaluationSettings, reporter: Reporter) -> list[EvaluationRow]:
    """Curves over the number of features kept, of the learned features."""
    own = [each for each in clean.metrics if not each.needs and each.name != CLASSIFIER]
    metrics = own if asked.metrics and not asked.protocol else CURVES
    orders = chosen_orders(asked.selection)
    figures: list[EvaluationRow] = []
    with reporter.bar("selections of features", len(clean.own) * len(metrics) * len(orders)) as advance:
        for each, metric, order in itertools.product(clean.own, metrics, orders):
            figures += selection_figures(each.name, clean.labelled(each.name), metric, order, asked.selection_step)
            advance()
    return figures


def _opened(subject: Subject, data: str, reporter: Reporter) -> Source:
    """Other data, as the encoder takes it.

    Raises:
        DataError: samples of another form.
    """
    source = open_source(data, subject.opens, progress=reporter.bar)
    name_skipped(source, reporter)
    if source.shape != subject.source.shape:
        raise DataError(
            f"samples of {source.name} have the shape {source.shape}, those of {subject.source.name} "
            f"{subject.source.shape}; both must be of one"
        )
    return source
