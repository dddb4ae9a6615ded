"""Evaluate a run: every metric on representation and embedding, beside raw input and untrained encoder."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from counterpoint.core.checks import check_positive
from counterpoint.core.errors import DataError, UsageError, unknown_name
from counterpoint.core.files import read_sealed, write_sealed
from counterpoint.core.metric import Metric, loaded_metrics
from counterpoint.core.run_records import EvaluationRecord, EvaluationRow, Split, read_record
from counterpoint.core.rundir import Run
from counterpoint.core.shown import shown
from counterpoint.core.thread_parts import side_by_side
from counterpoint.core.torch_state import usual_modes
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import extract, extract_beside, input_components, num_pieces, untrained_encoder
from counterpoint.evaluation.scoring import Estimate, Labelled, Proportion
from counterpoint.evaluation.trained_run import DEFAULT_HOLDOUT, TrainedRun, open_trained, untrained_backbone
from counterpoint.methods.catalogue import CATALOGUE as METHODS

CATALOGUE = loaded_metrics("evaluation")
KNN, PROBE = "knn", "linear probe"
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
        outcome = {name if key == "value" else key: value for key, value in asdict(self.outcome).items()}
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
    for name in sorted(asked - CATALOGUE.keys() - {"all"}):
        raise unknown_name("metric", name, CATALOGUE)
    if not asked:
        return tuple(metric for metric in CATALOGUE.values() if not metric.on_request)
    return tuple(metric for metric in CATALOGUE.values() if asked & {metric.name, "all"})


@usual_modes()
def evaluate(  # noqa: PLR0913 (each is a part of the protocol, recorded with the figure)
    run: Run | str | Path,
    *,
    data: Any = None,
    labels: Any = None,
    metrics: Sequence[str] = (),
    k: int = 20,
    temperature: float = 0.1,
    quiet: bool = False,
) -> Evaluation:
    """Say how well a run's features separate known classes, beside two baselines on the same split.

    Args:
        run: the run or its folder; ``Run(path, encoder=module)`` if it was trained with your own module.
        data: other labelled data (anything ``train`` takes); None takes the run's own. The array that the run was
            trained on is recognised by its content.
        labels: one per sample for arrays; a file for named data.
        metrics: names of ``counterpoint list metrics``, or ``all``; empty takes those that are not for request.
        k: neighbours of the kNN vote; at most the number of labelled samples.
        temperature: of the kNN vote.
        quiet: show no progress.

    Returns:
        The evaluation, also written: to ``evaluation.json`` in the run folder if it is about the run's own samples and
        labels (or labels given later to a run without), else to ``evaluations/<data>.json`` there.

    Raises:
        DataError: no labels, or too few of them.
        UsageError: k or temperature out of range, or a metric that is not known.
    """
    chosen = chosen_metrics(metrics)
    try:
        check_positive(temperature, "temperature", hint="0.07 to 0.1 is usual")
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None
    reporter = Reporter(quiet=quiet)
    trained = open_trained(run, data=data, labels=labels, reporter=reporter)
    bank, queries = _labelled_positions(trained)
    if not 1 <= k <= len(bank):
        raise UsageError(f"k must be between 1 and the number of labelled samples, {len(bank)}, got {k}")
    protocol = _Protocol(bank, queries, k, temperature, chosen)
    split = _describe_split(trained, bank, queries)
    if split["num_unlabelled"]:
        reporter.say(f"{split['num_unlabelled']:,} samples without a label take no part")
    evaluation = Evaluation(_figures(trained, protocol, reporter), split)
    path = trained.folder.evaluation if trained.is_own_record else _place_apart(trained)
    write_sealed(path, {**evaluation.to_dict(), "rows": _with_earlier(evaluation, path)})
    if not trained.is_own_record:
        reporter.say(f"wrote {path}; {trained.folder.evaluation.name} is about the run's own samples and labels only")
    return evaluation


def _with_earlier(evaluation: Evaluation, path: Path) -> list[dict[str, Any]]:
    """The rows to write: those of an earlier evaluation of the same split stay where their metric was not asked for."""
    told = evaluation.to_dict()
    earlier = read_record(EvaluationRecord, read_sealed(path), str(path)) if path.exists() else EvaluationRecord()
    measured = {row.protocol for row in evaluation.rows}
    is_same = earlier.split == Split.model_validate(evaluation.split)
    kept = [row.written() for row in earlier.rows if is_same and row.protocol not in measured]
    return [*told["rows"], *kept]


def _place_apart(trained: TrainedRun) -> Path:
    """Where an evaluation on other samples, or by other labels, goes: one file for each content."""
    source, folder = trained.source, trained.folder.other_evaluations
    folder.mkdir(exist_ok=True)
    # Names of data come from the user and may be paths; the fingerprint keeps apart what is called alike.
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(source.name).stem)[:60] or "data"
    return folder / f"{stem}-{source.fingerprint[:8]}.json"


@dataclass(frozen=True)
class _FeatureSet:
    """Features of all samples, and what the protocol should record about them."""

    name: str
    values: Tensor
    about: dict[str, Any]


@dataclass(frozen=True)
class _Protocol:
    """Positions of labelled samples and of queries, the settings of the kNN vote, and what is measured."""

    bank: Tensor
    queries: Tensor
    k: int
    temperature: float
    metrics: tuple[Metric, ...]


def _figures(trained: TrainedRun, protocol: _Protocol, reporter: Reporter) -> tuple[Row, ...]:
    """Every metric on every set of features, side by side; each figure is shown as soon as it is known."""
    tasks = [(features, metric) for features in _all_features(trained, reporter) for metric in protocol.metrics]
    with reporter.bar("evaluating", len(tasks)) as advance:

        def figure(place: int) -> Row:
            features, metric = tasks[place]
            row = _row(features, metric, trained, protocol)
            advance(f"{row.features}, {row.protocol}: {metric.written(row.outcome.value)}")
            return row

        # Probes take longer than votes: begun last, one of them would run alone while the other threads wait.
        longest_first = sorted(range(len(tasks)), key=lambda place: tasks[place][1].name == KNN)
        rows = dict(zip(longest_first, side_by_side(figure, longest_first), strict=True))
    return tuple(rows[place] for place in range(len(tasks)))


def _all_features(trained: TrainedRun, reporter: Reporter) -> list[_FeatureSet]:
    """Features of the run and of its baselines."""
    source, train = trained.source, trained.split.train
    with reporter.bar(f"representations of {len(source):,} samples", num_pieces(source)) as advance:
        # The components need no encoder; one thread fits them while the others pass samples.
        own, raw = extract_beside(trained.encoder, source, lambda: input_components(source, train), advance)
    found = [_FeatureSet("representation", own.representation, {}), _FeatureSet("embedding", own.embedding, {})]
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
    score = metric.measure(Labelled(*known, k=protocol.k, temperature=protocol.temperature))
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
    if not trained.is_own_data:
        how = f"other data than trained on; {share} are queries"
    elif held_out == 0:
        learned = "with" if METHODS[trained.settings.method].needs_labels else "without"
        how = f"{share} are queries; the encoder has seen them in training, {learned} labels"
    elif is_other:
        how = f"{share} are queries; data or labels are not those of training: the encoder may have seen some of them"
    else:
        how = f"{share}, held out of training"
    names, labels = list(trained.source.class_names), trained.source.labels
    return {
        "source": Path(trained.source.name).name,
        "num_unlabelled": 0 if labels is None else int((labels < 0).sum()),
        "num_bank": len(bank),
        "num_queries": len(queries),
        "num_classes": len(names),
        "class_names": names,
        "how": how,
    }
