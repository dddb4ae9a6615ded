"""Evaluate a run: kNN and linear probe on representation and embedding, beside raw input and untrained encoder."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from counterpoint.core.errors import DataError, UsageError
from counterpoint.core.files import write_json
from counterpoint.core.rundir import Run
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.features import extract, input_components, untrained_encoder
from counterpoint.evaluation.intervals import Proportion, wilson
from counterpoint.evaluation.knn import knn_predict
from counterpoint.evaluation.linear_probe import probe_predict
from counterpoint.evaluation.trained_run import DEFAULT_HOLDOUT, TrainedRun, open_trained, untrained_backbone
from counterpoint.methods.catalogue import CATALOGUE as METHODS

KNN, PROBE = "knn", "linear probe"
MIN_QUERIES = 10


@dataclass(frozen=True)
class Row:
    """One figure: which features, which protocol with which settings, and the outcome."""

    features: str
    protocol: str
    settings: dict[str, Any]
    accuracy: Proportion

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``evaluation.json``."""
        share = self.accuracy
        outcome = {
            "accuracy": share.value,
            "correct": share.correct,
            "total": share.total,
            "low": share.low,
            "high": share.high,
        }
        return {"features": self.features, "protocol": self.protocol, "settings": self.settings, **outcome}


@dataclass(frozen=True)
class Evaluation:
    """All rows of one run, and on which samples."""

    rows: tuple[Row, ...]
    split: dict[str, Any]

    def accuracy(self, features: str, protocol: str = KNN) -> float:
        """Accuracy of one row.

        Raises:
            KeyError: no such row.
        """
        for row in self.rows:
            if (row.features, row.protocol) == (features, protocol):
                return row.accuracy.value
        raise KeyError(f"no row for {features!r} with {protocol!r}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``evaluation.json``."""
        return {"split": self.split, "rows": [row.to_dict() for row in self.rows]}

    def __str__(self) -> str:
        split = self.split
        counts = f"{split['num_queries']} queries, {split['num_bank']} labelled samples, {split['num_classes']} classes"
        head = f"{counts} ({split['how']})"
        lines = [f"{'features':<22}{'protocol':<15}{'accuracy':>9}   95 % interval"]
        for row in self.rows:
            share = row.accuracy
            lines.append(
                f"{row.features:<22}{row.protocol:<15}{share.value:>9.1%}   {share.low:.1%} to {share.high:.1%}"
            )
        return "\n".join([head, *lines])


def evaluate(
    run: Run | str | Path,
    *,
    data: Any = None,
    labels: Any = None,
    k: int = 20,
    temperature: float = 0.1,
    quiet: bool = False,
) -> Evaluation:
    """Say how well a run's features separate known classes, beside two baselines on the same split.

    Args:
        run: the run or its folder; ``Run(path, encoder=module)`` if it was trained with your own module.
        data: other labelled data (anything ``train`` takes); None takes the run's own.
        labels: one per sample for arrays; a file for named data.
        k: neighbours of the kNN vote; at most the number of labelled samples.
        temperature: of the kNN vote.
        quiet: show no progress.

    Returns:
        The evaluation; for the run's own data also written to its ``evaluation.json``.

    Raises:
        DataError: no labels, or too few of them.
        UsageError: k out of range.
    """
    reporter = Reporter(quiet=quiet)
    trained = open_trained(run, data=data, labels=labels, reporter=reporter)
    bank, queries = _labelled_positions(trained)
    if not 1 <= k <= len(bank):
        raise UsageError(f"k must be between 1 and the number of labelled samples, {len(bank)}, got {k}")
    if not temperature > 0:
        raise UsageError(f"temperature must be > 0, got {temperature}; 0.07 to 0.1 is usual")
    features = _all_features(trained)
    rows = []
    with reporter.bar("evaluating", len(features)) as advance:
        for name, (values, about) in features.items():
            rows += list(_rows(name, values, about, trained, (bank, queries, k, temperature)))
            advance()
    evaluation = Evaluation(tuple(rows), _describe_split(trained, bank, queries))
    if trained.is_own_data:
        write_json(trained.folder.evaluation, evaluation.to_dict())
    return evaluation


def _all_features(trained: TrainedRun) -> dict[str, tuple[Tensor, dict[str, Any]]]:
    """Features by name, each with what the protocol should record about them."""
    own = extract(trained.encoder, trained.source)
    components, num_components = input_components(trained.source, trained.split.train)
    raw = "pixels (PCA)" if trained.source.kind == "images" else "input (PCA)"
    features: dict[str, tuple[Tensor, dict[str, Any]]] = {
        "representation": (own.representation, {}),
        "embedding": (own.embedding, {}),
    }
    backbone = untrained_backbone(trained.settings, trained.encoder)
    if backbone is not None:
        untrained = untrained_encoder(backbone, trained.encoder, trained.source, trained.split.train)
        representation = extract(untrained, trained.source).representation
        features["untrained encoder"] = (representation, {"norms": "set on the training samples"})
    features[raw] = (components, {"components": num_components})
    return features


def _rows(
    name: str, features: Tensor, about: dict[str, Any], trained: TrainedRun, protocol: tuple[Tensor, Tensor, int, float]
) -> Iterator[Row]:
    """Both protocols on one set of features."""
    bank, queries, k, temperature = protocol
    labels = trained.source.labels
    assert labels is not None
    for kind in (KNN, PROBE):
        if kind == KNN:
            predicted = knn_predict(features[bank], labels[bank], features[queries], k=k, temperature=temperature)
            settings: dict[str, Any] = {"k": k, "temperature": temperature, "similarity": "cosine"}
        else:
            predicted = probe_predict(features[bank], labels[bank], features[queries])
            settings = {"model": "logistic regression", "C": 0.1, "features": "standardised"}
        correct = int((predicted == labels[queries]).sum())
        yield Row(name, kind, {**settings, **about}, wilson(correct, len(queries)))


def _labelled_positions(trained: TrainedRun) -> tuple[Tensor, Tensor]:
    """Positions of labelled bank samples and queries."""
    labels = trained.source.labels
    if labels is None:
        raise DataError(
            f"{trained.source.name} has no labels, and accuracy needs them; give --labels FILE (.csv or .npy), "
            "or use `counterpoint diagnose`, which needs none"
        )
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
    seen = (status.get("split_fingerprint"), status.get("data_fingerprint"))
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
    names = list(trained.source.class_names)
    return {
        "num_bank": len(bank),
        "num_queries": len(queries),
        "num_classes": len(names),
        "class_names": names,
        "how": how,
    }
