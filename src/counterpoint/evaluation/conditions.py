"""What is measured beside clean queries: under corruptions, on other sources, with a part of the features."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from counterpoint.core.errors import DataError, UsageError, unknown_name
from counterpoint.core.evaluation_settings import EvaluationSettings
from counterpoint.core.metric import Metric
from counterpoint.core.run_records import BASELINE, BASELINES, EvaluationRow
from counterpoint.core.stored_rows import whole
from counterpoint.data.corrupted import check_pictures, chosen_corruptions, chosen_severities
from counterpoint.data.parts import with_names
from counterpoint.data.source import Source
from counterpoint.data.sources import open_source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.classifier_accuracy import CLASSIFIER
from counterpoint.evaluation.feature_sets import INITIAL, PIXELS, UNTRAINED, FeatureSet, represent_as
from counterpoint.evaluation.other_sources import Matched, matched, other_figures
from counterpoint.evaluation.outcome import CATALOGUE
from counterpoint.evaluation.robustness import KNN, MCE, PROBE, RELATIVE, Asked, Conditions, corruption_figures, frozen
from counterpoint.evaluation.scoring import Labelled
from counterpoint.evaluation.selection import Selection, chosen_orders, selection_figures
from counterpoint.evaluation.subject import Subject, name_skipped

REFERENCES = {"pixels": PIXELS, "untrained": UNTRAINED, "none": ""}
CURVES = [CATALOGUE[name] for name in (PROBE, "mAP@10", "precision@10")]  # where no metric is named


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
        known = self.known[name]
        is_in_memory = isinstance(known.bank_ND, Tensor)  # its type is only promised
        return known if is_in_memory else replace(known, bank_ND=whole(known.bank_ND))

    @property
    def protocol(self) -> str:
        """Of the frozen classifier: the linear probe, unless the vote alone was asked for."""
        names = {metric.name for metric in self.metrics}
        return KNN if KNN in names and PROBE not in names else PROBE

    def asked(self) -> Asked:
        """The queries in the store that they come from, where their numbers do not depend on the bank."""
        labels, sources = self.subject.source.labels, self.subject.sources
        assert labels is not None
        start = len(sources[0]) if len(sources) > 1 else 0
        return Asked(sources[len(sources) - 1].store, self.queries - start, labels[self.queries])


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
    """Accuracies under corruptions, of the learned features and of the reference."""
    names = chosen_corruptions(asked.corruptions)
    reference = REFERENCES[asked.reference]
    sets = [*clean.own, *(each for each in clean.sets if each.name == reference)]
    if reference and reference not in clean.known:
        raise UsageError(f"reference {reference} is not there for {clean.subject.name}; choose pixels or none")
    classifiers = {each.name: frozen(clean.labelled(each.name), clean.protocol) for each in sets}
    conditions = Conditions(clean.protocol, names, chosen_severities(asked.severities), reference)
    represent = represent_as(sets, clean.subject.source)
    with reporter.bar(f"under {len(names)} corruptions", len(conditions)) as advance:
        figures = corruption_figures(classifiers, represent, clean.asked(), conditions, advance)
    measured = {each.protocol for each in figures}
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
    represent = represent_as(clean.own, other)
    with reporter.bar(f"on {name}", 1) as advance:
        figures = other_figures(classifiers, represent, found, protocol=clean.protocol, name=name)
        advance()
    return figures


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
