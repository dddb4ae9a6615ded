"""Evaluate a run: every metric on representation and embedding, beside raw input and untrained encoder."""

import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import CounterpointError, DataError, UsageError, unknown_name
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.core.metric import Metric, loaded_metrics
from counterpoint.core.run_records import EvaluationRecord, EvaluationRow, Split, read_record
from counterpoint.core.rundir import Run
from counterpoint.core.settings import EvaluationSettings
from counterpoint.core.shown import shown
from counterpoint.core.thread_parts import side_by_side
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.validation import build
from counterpoint.data.source import Source
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.classifier_accuracy import CLASSIFIER, own_classes
from counterpoint.evaluation.features import (
    Contents,
    extract,
    extract_beside,
    input_components,
    num_pieces,
    untrained_encoder,
)
from counterpoint.evaluation.scoring import Estimate, Labelled, Proportion
from counterpoint.evaluation.trained_run import (
    DEFAULT_HOLDOUT,
    TrainedRun,
    open_trained,
    untrained_backbone,
    with_queries,
)
from counterpoint.methods.catalogue import CATALOGUE as METHODS

CATALOGUE = loaded_metrics("evaluation")
KNN, PROBE = "knn", "linear probe"
INITIAL = "initial encoder"
ALL = "all"  # metrics
VOTES_AND_PROBES = ("k", "temperature", "similarity", "weighting", "inverse_penalty")  # what ``Labelled`` takes
MIN_QUERIES = 10


@dataclass(frozen=True)
class Row:
    """One figure: which features, which metric with which settings, and the outcome."""

    features: str
    protocol: str
    settings: dict[str, Any]
    outcome: Proportion | Estimate

    @property
    def accuracy(self) -> Proportion:
        """The outcome of a metric that counts queries.

        Raises:
            TypeError: the metric counts none.
        """
        if isinstance(self.outcome, Estimate):
            raise TypeError(f"{self.protocol} is no share of the queries; its figure is outcome.value")
        return self.outcome

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``evaluation.json``."""
        name = "value" if isinstance(self.outcome, Estimate) else "accuracy"
        known = {key: value for key, value in asdict(self.outcome).items() if key != "hits" or value is not None}
        outcome = {name if key == "value" else key: value for key, value in known.items()}
        found = {"features": self.features, "protocol": self.protocol, "settings": self.settings, **outcome}
        return EvaluationRow.model_validate(found).written()

    def __str__(self) -> str:
        written, outcome = CATALOGUE[self.protocol].written, self.outcome
        ends = [written(end) for end in (outcome.low, outcome.high) if end is not None]
        return f"{self.features:<22}{self.protocol:<15}{written(outcome.value):>9}   {' to '.join(ends)}".rstrip()


@dataclass(frozen=True)
class Evaluation:
    """All rows of one run, and on which samples."""

    rows: tuple[Row, ...]
    split: dict[str, Any]

    def accuracy(self, features: str, protocol: str = KNN) -> float:
        """The figure of one row.

        Raises:
            KeyError: no such row.
        """
        for row in self.rows:
            if (row.features, row.protocol) == (features, protocol):
                return row.outcome.value
        raise KeyError(f"no row for {features!r} with {protocol!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``evaluation.json``."""
        return {"split": Split.model_validate(self.split).written(), "rows": [row.to_dict() for row in self.rows]}

    def __str__(self) -> str:
        split = self.split
        counts = f"{split['num_queries']} queries, {split['num_bank']} labelled samples, {split['num_classes']} classes"
        head = f"{shown(split['source'])}: {counts} ({split['how']})"
        if split["num_unlabelled"]:
            head += f"; {split['num_unlabelled']:,} samples without a label take no part"
        names = "accuracy" if all(isinstance(row.outcome, Proportion) for row in self.rows) else "value"
        return "\n".join([head, f"{'features':<22}{'protocol':<15}{names:>9}   95 % interval", *map(str, self.rows)])


def chosen_metrics(names: Sequence[str]) -> tuple[Metric, ...]:
    """The records of metrics by their names, in the order of the catalogue.

    Args:
        names: as ``list metrics`` shows them, also with a hyphen for a blank; ``all`` for all of them; empty for those
            that are not for request.

    Raises:
        UsageError: a name that is not known.
    """
    asked = {name.replace("-", " ") if name not in CATALOGUE else name for name in names}
    for name in sorted(asked - CATALOGUE.keys() - {ALL}):
        raise unknown_name("metric", name, CATALOGUE)
    if not asked:
        return tuple(metric for metric in CATALOGUE.values() if not metric.on_request)
    return tuple(metric for metric in CATALOGUE.values() if asked & {metric.name, ALL})


@usual_modes()
def evaluate(
    run: Run | str | Path,
    *,
    data: Any = None,
    labels: Any = None,
    test_data: Any = None,
    test_labels: Any = None,
    quiet: bool = False,
    **settings: Any,
) -> Evaluation:
    """Say how well a run's features separate known classes, beside two baselines on the same split.

    Args:
        run: the run or its folder; ``Run(path, encoder=module)`` if it was trained with your own module.
        data: other labelled data (anything ``train`` takes); None takes the run's own. The array that the run was
            trained on is recognised by its content.
        labels: one per sample for arrays; a file for named data.
        test_data: the queries, where they are samples of their own (a folder, an array, or a named set, of which the
            part for tests is taken): then all samples of ``data`` are the bank. None holds a share of ``data`` out.
        test_labels: theirs.
        quiet: show no progress.
        settings: ``metrics`` (names of ``counterpoint list metrics``, or ``all``; none takes those that are not for
            request); of the kNN vote ``k`` (20), ``temperature`` (0.1), ``similarity`` (cosine or euclidean) and
            ``weighting`` (exp, uniform or inverse: ``evaluation.knn.Vote``); of the linear probe ``inverse_penalty``
            (0.1); and what of the data is taken: ``split``, ``classes`` and ``root``, as those of ``source``.

    Returns:
        The evaluation, also written: to ``evaluation.json`` in the run folder if it is about the run's own samples and
        labels (or labels given later to a run without), else to ``evaluations/<data>.json`` there.

    Raises:
        DataError: no labels, too few of them, or queries of other shapes or classes than the bank's.
        UsageError: k or temperature out of range, or a setting or metric that is not known.
    """
    asked = build(EvaluationSettings, settings, "evaluate")
    chosen_metrics(asked.metrics)  # before any data are read
    try:
        check_positive(asked.temperature, "temperature", hint="0.07 to 0.1 is usual")
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    reporter = Reporter(quiet=quiet)
    trained = open_trained(run, data=data, labels=labels, part=asked.part, reporter=reporter)
    if test_data is not None:
        trained = with_queries(trained, test_data, test_labels, part=asked.part, reporter=reporter)
    elif test_labels is not None:
        raise UsageError("test_labels= goes with test_data=")
    return evaluate_opened(trained, asked, reporter)


def evaluate_opened(trained: TrainedRun, asked: EvaluationSettings, reporter: Reporter) -> Evaluation:
    """Evaluate a run that is open with its samples; see ``evaluate``."""
    chosen = chosen_metrics(asked.metrics)
    if trained.encoder.classifier is None and CLASSIFIER in asked.metrics:
        raise UsageError(f"{trained.folder.path} has no classifier; only learning from labels leaves one")
    bank, queries = _labelled_positions(trained)
    if not 1 <= asked.k <= len(bank):
        raise UsageError(f"k must be between 1 and the number of labelled samples, {len(bank)}, got {asked.k}")
    protocol = _Protocol(bank, queries, asked, chosen, takes_all=ALL in asked.metrics)
    split = _describe_split(trained, bank, queries)
    if split["num_unlabelled"]:
        reporter.say(f"{split['num_unlabelled']:,} samples without a label take no part")
    if missing := split["absent_classes"]:
        are = "classes of the bank have" if len(missing) > 1 else "class of the bank has"
        reporter.say(f"{len(missing)} {are} no query: {', '.join(missing[:10])}")
    rows, num_shared = _figures(trained, protocol, reporter)
    split["num_shared"] = num_shared
    if num_shared:
        reporter.say(f"{num_shared:,} of {len(queries):,} queries are in the bank, too: they favour every figure")
    evaluation = Evaluation(rows, split)
    path = trained.folder.evaluation if trained.is_own_record else _place_apart(trained)
    write_sealed(path, {**evaluation.to_dict(), "rows": _with_earlier(evaluation, path)})
    if not trained.is_own_record:
        reporter.say(f"wrote {path}; {trained.folder.evaluation.name} is about the run's own samples and labels only")
    return evaluation


def _with_earlier(evaluation: Evaluation, path: Path) -> list[dict[str, Any]]:
    """The rows to write: those of an earlier evaluation of the same split stay where their metric was not asked for."""
    told = evaluation.to_dict()
    earlier = read_record(EvaluationRecord, read_sealed(path), str(path)) if path.exists() else EvaluationRecord()
    measured = {(row.features, row.protocol) for row in evaluation.rows}
    split = Split.model_validate(evaluation.split)
    # A record of an earlier version has no fingerprint of its queries.
    is_same = earlier.split in (split, split.model_copy(update={"query_fingerprint": None}))
    kept = [row.written() for row in earlier.rows if is_same and (row.features, row.protocol) not in measured]
    return [*told["rows"], *kept]


def _place_apart(trained: TrainedRun) -> Path:
    """Where an evaluation on other samples, or by other labels, goes: one file for each content."""
    source, folder = trained.source, trained.folder.other_evaluations
    folder.mkdir(exist_ok=True)
    # Names of data come from the user and may be paths; the fingerprint keeps apart what is called alike.
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path((trained.queries or source).name).stem)[:60] or "data"
    return folder / f"{stem}-{source.fingerprint[:8]}.json"


@dataclass(frozen=True)
class _FeatureSet:
    """Features of all samples, what the protocol should record about them, and classes that a classifier gives them."""

    name: str
    values: Tensor
    about: dict[str, Any]
    predicted: Tensor | None = None


@dataclass(frozen=True)
class _Protocol:
    """Positions of labelled samples and of queries, the settings of votes and probes, and what is measured.

    ``takes_all``: what cannot be measured on these samples is left out; else it was asked for by its name.
    """

    bank: Tensor
    queries: Tensor
    asked: EvaluationSettings
    metrics: tuple[Metric, ...]
    takes_all: bool


def _figures(trained: TrainedRun, protocol: _Protocol, reporter: Reporter) -> tuple[tuple[Row, ...], int]:
    """Every metric on every set of features, side by side; each figure is shown as soon as it is known.

    Returns:
        The rows, and the number of queries whose content is in the bank, too.
    """
    contents = Contents(len(trained.source))
    found = _all_features(trained, contents, reporter)
    allowed = itertools.product(found, protocol.metrics)
    tasks = [
        (features, each) for features, each in allowed if each.name != CLASSIFIER or features.predicted is not None
    ]
    lacking: dict[str, str] = {}
    with reporter.bar("evaluating", len(tasks)) as advance:

        def figure(place: int) -> Row | None:
            features, metric = tasks[place]
            try:
                row = _row(features, metric, trained, protocol)
            except CounterpointError as error:
                if not protocol.takes_all:
                    raise
                lacking[metric.name] = str(error)
                return None
            if math.isnan(row.outcome.value):
                lacking[metric.name] = "there is nothing among these samples that it measures"
                return None
            advance(f"{row.features}, {row.protocol}: {metric.written(row.outcome.value)}")
            return row

        # Probes take longer than votes: begun last, one of them would run alone while the other threads wait.
        longest_first = sorted(range(len(tasks)), key=lambda place: tasks[place][1].name == KNN)
        rows = dict(zip(longest_first, side_by_side(figure, longest_first), strict=True))
    for name, why in sorted(lacking.items()):
        reporter.say(f"{name} is left out: {why}")
    num_shared = contents.num_shared(protocol.bank, protocol.queries)
    return tuple(row for place in range(len(tasks)) if (row := rows[place]) is not None), num_shared


def _all_features(trained: TrainedRun, contents: Contents, reporter: Reporter) -> list[_FeatureSet]:
    """Features of the run and of its baselines; the contents of all samples are noted as they pass."""
    source, train = trained.source, trained.split.train
    with reporter.bar(f"representations of {len(source):,} samples", num_pieces(source)) as advance:
        # The components need no encoder; one thread fits them while the others pass samples.
        fit = partial(input_components, source, train)
        own, raw = extract_beside(trained.encoder, source, fit, advance, contents.note)
    predicted = own_classes(trained.encoder, own.representation, source.class_names, reporter)
    found = [_FeatureSet("representation", own.representation, {})]
    found.append(_FeatureSet("embedding", own.embedding, {}, predicted))
    if trained.initial is not None:
        with reporter.bar("the same of the initial encoder", num_pieces(source)) as advance:
            initial = extract(trained.initial, source, advance).representation
        found.append(_FeatureSet(INITIAL, initial, {}))
    backbone = untrained_backbone(trained.settings, trained.encoder)
    # None for a user's own module, which the run cannot build anew.
    if backbone is not None:
        with reporter.bar("the same of the untrained encoder", num_pieces(source)) as advance:
            untrained = extract(untrained_encoder(backbone, trained.encoder, source, train), source, advance)
        about = {"norms": "set on the training samples"}
        found.append(_FeatureSet("untrained encoder", untrained.representation, about))
    name = "pixels (PCA)" if source.kind == "images" else "input (PCA)"
    return [*found, _FeatureSet(name, raw[0], {"components": raw[1]})]


def _row(features: _FeatureSet, metric: Metric, trained: TrainedRun, protocol: _Protocol) -> Row:
    """One metric on one set of features."""
    labels, bank, queries = trained.source.labels, protocol.bank, protocol.queries
    assert labels is not None
    # Bank and queries are the same for all features, so that their figures can be compared.
    known = features.values[bank], labels[bank], features.values[queries], labels[queries]
    settings = protocol.asked.model_dump(include=set(VOTES_AND_PROBES))
    predicted = None if features.predicted is None else features.predicted[queries]
    score = metric.measure(Labelled(*known, **settings, predicted_Q=predicted))
    return Row(features.name, metric.name, {**score.settings, **features.about}, score.outcome)


def _labelled_positions(trained: TrainedRun) -> tuple[Tensor, Tensor]:
    """Positions of labelled bank samples and queries."""
    labels = trained.source.labels
    if labels is None:
        raise DataError(
            f"{trained.source.name} has no labels, and accuracy needs them; give --labels FILE (.csv or .npy), "
            "or use `counterpoint diagnose`, which needs none"
        )
    # An unknown label (-1) can neither vote nor be right.
    bank, queries = (part[labels[part] >= 0] for part in (trained.split.train, trained.split.held_out))
    if len(queries) < MIN_QUERIES or len(labels[bank].unique()) < 2:
        raise DataError(
            f"{len(bank)} labelled samples of {len(labels[bank].unique())} classes and {len(queries)} queries are "
            f"too few to evaluate; "
            f"at least 2 classes and {MIN_QUERIES} queries are needed"
        )
    return bank, queries


def _describe_split(trained: TrainedRun, bank: Tensor, queries: Tensor) -> dict[str, Any]:
    """What a reader must know about the samples."""
    held_out, status = float(trained.settings.source.holdout), trained.folder.read_status()
    seen = (status.split_fingerprint, status.data_fingerprint)
    # Other labels give another split, whose held-out part may have been trained on; the record must not hide it.
    is_other = seen != (trained.split.fingerprint, trained.source.fingerprint)
    share = f"{held_out or DEFAULT_HOLDOUT:.0%} of each class"
    if trained.queries is not None:
        how = f"queries are {shown(Path(trained.queries.name).name)}, the bank all of {Path(trained.source.name).name}"
        if trained.is_own_data:
            how += ", on which the encoder was trained"
    elif not trained.is_own_data:
        how = f"other data than trained on; {share} are queries"
    elif held_out == 0:
        learned = "with" if METHODS[trained.settings.method].needs_labels else "without"
        how = f"{share} are queries; the encoder has seen them in training, {learned} labels"
    elif is_other:
        how = f"{share} are queries; data or labels are not those of training: the encoder may have seen some of them"
    else:
        how = f"{share}, held out of training"
    names, labels = list(trained.source.class_names), trained.source.labels
    assert labels is not None
    asked = set(labels[queries].tolist())
    return {
        "source": Path(trained.source.name).name,
        "num_unlabelled": int((labels < 0).sum()),
        "num_bank": len(bank),
        "num_queries": len(queries),
        "num_classes": len(names),
        "class_names": names,
        "absent_classes": [names[number] for number in labels[bank].unique().tolist() if number not in asked],
        "how": how,
        "query_fingerprint": query_fingerprint(trained.source, queries),
    }


def query_fingerprint(source: Source, queries: Tensor) -> str:
    """Short hash of the names and classes of the queries: where it is the same, figures can be compared in pairs."""
    assert source.labels is not None
    # Samples without names of their own are known by their places in this very content.
    has_names = source.sample_names != tuple(map(str, range(len(source))))
    digest = hashlib.sha256(b"" if has_names else source.fingerprint.encode())
    for place, label in zip(queries.tolist(), source.labels[queries].tolist(), strict=True):
        digest.update(f"{source.sample_names[place]}\0{source.class_names[label]}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]
