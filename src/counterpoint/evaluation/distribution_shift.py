"""What is measured beside clean queries: under corruptions, on other sources, with a part of the features."""

# Q queries, C classes

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.errors import DataError, UsageError, unknown_name
from counterpoint.core.metric import ON, UNDER, Metric
from counterpoint.core.run_records import BASELINE, BASELINES, EvaluationRow
from counterpoint.data.corruptions import CorruptedStore, check_pictures, chosen_corruptions, chosen_severities
from counterpoint.data.parts import ChosenStore, with_names
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from counterpoint.data.stores import Store
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.classifier_accuracy import CLASSIFIER
from counterpoint.evaluation.evaluation_result import CATALOGUE, KNN, PROBE
from counterpoint.evaluation.evaluation_settings import EvaluationSettings
from counterpoint.evaluation.feature_sets import INITIAL, PIXELS, UNTRAINED, FeatureSet, Represent, represent_as
from counterpoint.evaluation.knn import Vote, knn_predict
from counterpoint.evaluation.linear_probe import probe_of, probe_settings
from counterpoint.evaluation.metric_types import Labelled, Score, accuracy, row_of
from counterpoint.evaluation.robustness import ERROR, MCE, RELATIVE, Robustness, mean_corruption_errors
from counterpoint.evaluation.selection import Selection, chosen_orders, selection_figures
from counterpoint.evaluation.subject import Subject, name_skipped

REFERENCES = {"pixels": PIXELS, "untrained": UNTRAINED, "none": ""}
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
    """The classifier of a protocol, as ``linear probe`` and ``knn`` measure it on clean queries.

    Raises:
        ValueError: another protocol.
    """
    if protocol == PROBE:
        probe = probe_of(known)
        return Frozen(probe.predict, probe_settings(probe, known.inverse_penalty))
    if protocol != KNN:
        raise ValueError(f"a frozen classifier must be {PROBE!r} or {KNN!r}, got {protocol!r}")
    vote = Vote(known.k, known.temperature, known.similarity, known.weighting)
    return Frozen(lambda x_QD: knn_predict(known.bank_ND, known.labels_N, x_QD, vote), vote.settings())


@dataclass(frozen=True)
class LabelledSamples:
    """Samples that frozen classifiers are asked about.

    Attributes:
        store: holds them.
        positions_Q: where.
        labels_Q: their classes, as the classifiers number them.
    """

    store: Store
    positions_Q: Tensor
    labels_Q: Tensor

    def under(self, corruption: str, severity: int, seed: int = SEED) -> "LabelledSamples":
        """The same samples under a corruption, made when they are fetched."""
        return LabelledSamples(CorruptedStore(self.store, corruption, severity, seed), self.positions_Q, self.labels_Q)


def frozen_scores(classifiers: Mapping[str, Frozen], represent: Represent, asked: LabelledSamples) -> dict[str, Score]:
    """Accuracy of each classifier on some samples, by the name of its features."""
    features = represent(ChosenStore(asked.store, tuple(asked.positions_Q.tolist())))
    return {
        name: accuracy(each.classify(features[name]), asked.labels_Q, each.settings)
        for name, each in classifiers.items()
    }


@dataclass(frozen=True)
class Matched:
    """The samples of another source whose classes are known.

    Attributes:
        asked: these samples.
        left_out: how many samples each class has that is not known, by its name.
    """

    asked: LabelledSamples
    left_out: Mapping[str, int]

    def told(self) -> str:
        """In words, what was left out; empty where nothing was."""
        if not self.left_out:
            return ""
        names = ", ".join(list(self.left_out)[:MOST_NAMED]) + (", ..." if len(self.left_out) > MOST_NAMED else "")
        return f"{sum(self.left_out.values()):,} samples of {len(self.left_out)} classes left out: {names}"


def matched(other: Source, class_names: Sequence[str]) -> Matched:
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
    counts_C = torch.bincount(other.labels[other.labels >= 0], minlength=len(other.class_names)).tolist()
    left_out = {
        name: count
        for name, count in zip(other.class_names, counts_C, strict=True)
        if count and name.casefold() not in number_of
    }
    return Matched(LabelledSamples(other.store, positions, numbers[positions]), left_out)


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
        return [each for each in self.sets if each.name not in (*BASELINES, INITIAL) and BASELINE not in each.about]

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


@dataclass(frozen=True)
class Others:
    """Other data that were asked for.

    Attributes:
        ood: sources that frozen classifiers are asked about, each with its samples of known classes.
        ranked: what orders of features are made from; None for the bank.
    """

    ood: tuple[tuple[Source, Matched], ...] = ()
    ranked: Source | None = None


def open_others(subject: Subject, asked: EvaluationSettings, reporter: Reporter) -> Others:
    """Refuse what cannot be measured, and open what else is needed, before anything is measured.

    Raises:
        UsageError: names that are not known, or features that come without their encoder.
        DataError: corruptions of what is no picture, or other data without a class that is known.
    """
    chosen_corruptions(asked.corruptions)
    chosen_severities(asked.severities)
    chosen_orders(asked.selection)
    needs_encoder = [f"--{name}" for name in ("corruptions", "ood", "rank_on") if getattr(asked, name)]
    if needs_encoder and subject.is_features:
        raise UsageError(f"{needs_encoder[0].replace('_', '-')} needs the encoder; features are all that is known")
    if asked.same_classes and not (asked.ood or subject.queries):
        raise UsageError("--same-classes goes with --test-data or --ood, whose classes may be called otherwise")
    for name in asked.same_classes.values():
        if name not in subject.source.class_names:
            raise unknown_name("class of the labelled samples", name, subject.source.class_names)
    if asked.rank_on is not None and not asked.selection:
        raise UsageError("--rank-on goes with --selection")
    if asked.corruptions:
        if subject.source.kind != "images":
            raise DataError(f"corruptions are of pictures; {subject.source.name} holds vectors")
        check_pictures(subject.source.store.fetch([0]))
    if asked.max_bad is not None:
        subject = replace(subject, opens=subject.opens.model_copy(update={"max_bad": asked.max_bad}))
    sources = [with_names(_opened(subject, data, reporter), asked.same_classes) for data in asked.ood]
    found = tuple((source, matched(source, subject.source.class_names)) for source in sources)
    return Others(found, None if asked.rank_on is None else _opened(subject, asked.rank_on, reporter))


def in_conditions(clean: Clean, others: Others, asked: EvaluationSettings, reporter: Reporter) -> list[EvaluationRow]:
    """Every figure that was asked for beside those on clean queries."""
    figures = _under_corruptions(clean, asked, reporter) if asked.corruptions else []
    for source, found in others.ood:
        figures += _elsewhere(clean, source, found, reporter)
    return figures + (_curves(clean, others.ranked, asked, reporter) if asked.selection else [])


def _under_corruptions(clean: Clean, asked: EvaluationSettings, reporter: Reporter) -> list[EvaluationRow]:
    """Accuracies under corruptions, of the learned features and of the reference, and what they sum up to."""
    names, severities = chosen_corruptions(asked.corruptions), chosen_severities(asked.severities)
    reference = REFERENCES[asked.reference]
    if reference and reference not in clean.known:
        raise UsageError(f"reference {reference} is not there for {clean.subject.name}; choose pixels or none")
    sets = [*clean.own, *(each for each in clean.sets if each.name == reference)]
    classifiers = {each.name: frozen(clean.labelled(each.name), clean.protocol) for each in sets}
    represent, queries = represent_as(sets, clean.subject.source), clean.asked()
    found: dict[str, dict[tuple[str, int], Score]] = {name: {} for name in classifiers}
    with reporter.bar(f"under {len(names)} corruptions", len(names) * len(severities)) as advance:
        on_clean = frozen_scores(classifiers, represent, queries)
        for corruption, severity in itertools.product(names, severities):
            settings = {"corruption": corruption, "severity": severity, "seed": SEED}
            for name, score in frozen_scores(classifiers, represent, queries.under(corruption, severity)).items():
                found[name][corruption, severity] = replace(score, settings={**score.settings, **settings})
            advance()
    figures = [
        row_of(name, f"{clean.protocol} {UNDER} {corruption} {severity}", score)
        for name, corrupted in found.items()
        for (corruption, severity), score in corrupted.items()
    ]
    each = {name: Robustness(on_clean[name], found[name], len(severities)) for name in classifiers}
    settings = {"classifier": clean.protocol, "corruptions": len(names)}
    settings |= {"severities": ", ".join(map(str, severities)), "seed": SEED}
    for name, own in each.items():
        for metric, estimate in mean_corruption_errors(own, each.get(reference)).items():
            beside = {} if metric == ERROR else {"reference": reference}
            figures.append(row_of(name, metric, Score(estimate, {**settings, **beside})))
    measured = {row.protocol for row in figures}
    for metric, why in ((MCE, "makes no error"), (RELATIVE, "loses nothing")):
        if reference and metric not in measured:
            reporter.say(f"{metric} is left out: {reference} {why} under one of the corruptions")
    return figures


def _elsewhere(clean: Clean, other: Source, found: Matched, reporter: Reporter) -> list[EvaluationRow]:
    """Accuracies of the learned features on another source."""
    name = Path(other.name).name
    if found.told():
        reporter.say(f"{name}: {found.told()}")
    classifiers = {each.name: frozen(clean.labelled(each.name), clean.protocol) for each in clean.own}
    with reporter.bar(f"on {name}", 1) as advance:
        scores = frozen_scores(classifiers, represent_as(clean.own, other), found.asked)
        advance()
    num_classes = int(found.asked.labels_Q.unique().numel())
    settings = {"source": name, "classes": num_classes, "left out": found.told() or "nothing"}
    return [
        row_of(features, f"{clean.protocol} {ON} {name}", replace(score, settings={**score.settings, **settings}))
        for features, score in scores.items()
    ]


def _curves(
    clean: Clean, ranked_on: Source | None, asked: EvaluationSettings, reporter: Reporter
) -> list[EvaluationRow]:
    """Curves over the number of features kept, of the learned features."""
    own = [each for each in clean.metrics if not each.needs and each.name != CLASSIFIER]
    metrics = own if asked.metrics and not asked.protocol else CURVES
    selection = Selection(chosen_orders(asked.selection), metrics, asked.selection_step, asked.rank_on or "")
    ranked = {} if ranked_on is None else represent_as(clean.own, ranked_on)(ranked_on.store)
    figures: list[EvaluationRow] = []
    with reporter.bar("selections of features", len(clean.own) * len(metrics) * len(selection.orders)) as advance:
        for each in clean.own:
            figures += selection_figures(
                each.name, clean.labelled(each.name), selection, ranked.get(each.name), advance
            )
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
