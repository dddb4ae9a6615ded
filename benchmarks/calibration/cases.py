"""One case of a calibration: features or a training with a known fault, and what a diagnosis draws on."""

import json
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from pydantic import TypeAdapter

from calibration.feature_faults import FAULTS, faulty_features
from calibration.feature_sets import FeatureSet, World
from calibration.healthy_features import FAMILIES
from calibration.spoiled_samples import HELD_OUT, Sample
from calibration.trained_faults import HEALTHY, TRAINED_FAULTS, Form
from counterpoint.core.schemas import Record
from counterpoint.core.settings import LookSettings
from counterpoint.core.validation import nest
from counterpoint.diagnostics.concepts import SPARSITY_THRESHOLD
from counterpoint.diagnostics.evidence import REPRESENTATION, Evidence
from counterpoint.diagnostics.finding import LEVELS, Finding
from counterpoint.diagnostics.findings import find
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.evaluation_result import KNN, PROBE
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.evaluation.protocol import evaluate
from counterpoint.nn.trained import load
from counterpoint.runs.feature_evidence import evidence_of_features, given_features
from counterpoint.runs.run_evidence import gather_evidence
from counterpoint.runs.training import train

Set = Literal["choosing", "publishing"]
SETS: tuple[Set, Set] = ("choosing", "publishing")
EVIDENCE = TypeAdapter(Evidence)
FIRST = 2  # findings among which a fault must be
NUM_SAMPLES = 600  # of a training
MOST_SCORED = 1500  # pictures that no training saw, by which it is scored
# The second set has another encoder, other batches and another temperature.
TRAININGS: Mapping[Set, Mapping[str, Any]] = {
    "choosing": {"method": "simclr", "encoder": "convnet", "epochs": 8, "batch_size": 32, "temperature": 0.2},
    "publishing": {"method": "simclr", "encoder": "resnet9-narrow", "epochs": 8, "batch_size": 40, "temperature": 0.3},
}
# Trainings that nothing is wrong with, in turn: the first set has one method, the second five.
HEALTHY_METHODS: Mapping[Set, tuple[str, ...]] = {
    "choosing": ("simclr",),
    "publishing": ("simclr", "ncl", "barlow-twins", "vicreg", "mio"),
}
WITH_TEMPERATURE = ("simclr", "ncl")


class Case(Record):
    """Features or a training, and what a diagnosis found.

    Attributes:
        fault: what was wrong, or the family of healthy features.
        seed: of samples, order and weights.
        kind: of the data.
        evidence: what findings are drawn from, so that other limits can be tried without measuring again.
        error: of a case that stopped.
        scores: of a training: accuracy of kNN and linear probe on pictures that it did not see, with right labels.
        remedy: code of the finding whose changes were tried: the first that has some, as ``--fix`` takes it.
        changes: those settings, in words.
        remedied: the evidence after a training with them.
        remedied_scores: its accuracies.
    """

    fault: str
    seed: int
    kind: str = ""
    evidence: Any = None
    error: str = ""
    scores: Mapping[str, float] = {}
    remedy: str = ""
    changes: str = ""
    remedied: Any = None
    remedied_scores: Mapping[str, float] = {}

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings by the limits of today, without those of level good."""
        return tuple(each for each in find(_evidence(self.evidence)) if each.level != "good") if self.evidence else ()

    def is_named(self, found_as: tuple[str, ...], num_first: int = FIRST) -> bool:
        """Tell whether a finding of these codes is among the first."""
        return any(finding.name in found_as for finding in self.findings[:num_first])

    def has(self, level: str, but_for: tuple[str, ...] = ()) -> bool:
        """Tell whether there is a finding of a level, other than of these codes."""
        return any(finding.level == level and finding.name not in but_for for finding in self.findings)

    @property
    def is_improved(self) -> bool | None:
        """True if the remedy improved the figure that its finding names; None if none was tried."""
        before = next((each for each in self.findings if each.name == self.remedy), None)
        if not self.remedied or before is None:
            return None
        after = next((each for each in find(_evidence(self.remedied)) if each.name == self.remedy), None)
        if after is None or LEVELS.index(after.level) < LEVELS.index(before.level):
            return True
        if after.measured is None or before.measured is None:
            return False
        return after.measured > before.measured if before.better == "higher" else after.measured < before.measured

    @property
    def gain(self) -> float | None:
        """Rise of the mean of the accuracies by the remedy; None if none was tried."""
        if not self.scores or not self.remedied_scores:
            return None
        return float(np.mean([self.remedied_scores[name] - self.scores[name] for name in self.scores]))


def _evidence(evidence: Any) -> Evidence:
    """Evidence from plain values, as a line of JSON has them."""
    return EVIDENCE.validate_json(json.dumps(evidence))


def _plain_values(evidence: Evidence) -> Any:
    return EVIDENCE.dump_python(evidence, mode="json")


class Work(Protocol):
    """Makes the case of a name and a seed: the same bits for the same seed, whatever came before."""

    def __call__(self, name: str, seed: int) -> Case:
        """Make one case."""
        ...


# ---- features


class FeatureWork:
    """Draws features with a fault, or healthy ones, and measures them.

    Args:
        kind: form of the faults.
        photos: pictures with classes; None for digits and tables alone.
    """

    def __init__(self, kind: Set, photos: Sample | None) -> None:
        self.world = World(SETS.index(kind), photos)

    def drawn(self, name: str, seed: int) -> FeatureSet:
        """Features of a name of ``FAULTS`` or ``FAMILIES``; kinds of data take turns."""
        draws = np.random.default_rng([seed, self.world.number, zlib.crc32(name.encode())])
        if name in FAMILIES:
            return FAMILIES[name].make(self.world, draws)
        kind = self.world.kinds[seed % len(self.world.kinds)]
        return faulty_features(self.world, FAULTS[name], kind, draws)

    def __call__(self, name: str, seed: int) -> Case:
        """Draw and measure."""
        drawn = self.drawn(name, seed)
        try:
            evidence = evidence_of(drawn)
        except Exception as error:  # a diagnosis that stops is a result
            return Case(fault=name, seed=seed, kind=drawn.kind, error=f"{type(error).__name__}: {error}")
        return Case(fault=name, seed=seed, kind=drawn.kind, evidence=_plain_values(evidence))


def evidence_of(drawn: FeatureSet) -> Evidence:
    """Evidence that a diagnosis of features draws on."""
    z_ND, views = (
        None if part is None else torch.from_numpy(part.astype(np.float16 if part.dtype == np.float16 else np.float32))
        for part in (drawn.z_ND, drawn.views)
    )
    evidence = evidence_of_features(given_features(z_ND, drawn.labels, views), SPARSITY_THRESHOLD)
    return replace(evidence, gaussian_by=drawn.gaussian_by)


# ---- trainings


@dataclass(frozen=True)
class TrainedWork:
    """Trains with a fault, diagnoses, and trains again as the first finding advises.

    Attributes:
        kind: form of the faults.
        photos: the pictures, from which each seed draws its own.
        with_remedy: whether there is a second training.
    """

    kind: Set
    photos: Sample
    with_remedy: bool

    def __call__(self, name: str, seed: int) -> Case:
        """Train once or twice."""
        form: Form = getattr(TRAINED_FAULTS[name], self.kind)
        draws = np.random.default_rng(seed)
        order = draws.permutation(len(self.photos.classes))
        sample, unseen = self.photos.at(order[:NUM_SAMPLES]), self.photos.at(order[NUM_SAMPLES:][:MOST_SCORED])
        sample = form.samples(sample, draws) if form.samples else sample
        settings = {**TRAININGS[self.kind], "source.holdout": HELD_OUT, **form.settings, "seed": seed}
        if name == HEALTHY:
            methods = HEALTHY_METHODS[self.kind]
            settings["method"] = methods[seed % len(methods)]
            if settings["method"] not in WITH_TEMPERATURE:
                settings["temperature"] = None
        case = Case(fault=name, seed=seed, kind="photos")
        try:
            evidence, scores = _train_and_score(sample, unseen, settings, form)
        except Exception as error:  # a training that diverges is a result
            return case.model_copy(update={"error": f"{type(error).__name__}: {error}"})
        case = Case(**{**case.model_dump(), "evidence": _plain_values(evidence), "scores": scores})
        remedy = next((each for each in case.findings if each.changes), None)
        if not self.with_remedy or remedy is None or name == HEALTHY:
            return case
        changes = ", ".join(f"{path} {value}" for path, value in remedy.changes.items())
        update: dict[str, Any] = {"remedy": remedy.name, "changes": changes}
        try:
            again, scores = _train_and_score(sample, unseen, {**settings, **remedy.changes}, form)
        except Exception as error:
            return case.model_copy(update={**update, "error": f"remedy: {type(error).__name__}: {error}"})
        return case.model_copy(update={**update, "remedied": _plain_values(again), "remedied_scores": scores})


def _train_and_score(
    sample: Sample, unseen: Sample, settings: Mapping[str, Any], form: Form
) -> tuple[Evidence, Mapping[str, float]]:
    """Train, gather the evidence of a diagnosis, and score with right labels; the run is removed."""
    with tempfile.TemporaryDirectory(prefix="counterpoint-case-") as folder:
        # A setting of all trainings that this one's method does not have is None.
        options = nest({path: value for path, value in settings.items() if value is not None})
        run = train(sample.pictures, labels=sample.classes, out=f"{folder}/run", quiet=True, **options)
        bank, queries = unseen.at(np.arange(0, len(unseen.classes), 2)), unseen.at(np.arange(1, len(unseen.classes), 2))
        if form.is_for_features:
            z_ND = torch.as_tensor(load(run).embed(sample.pictures))
            evidence = evidence_of_features(given_features(z_ND, sample.classes, None), SPARSITY_THRESHOLD)
        else:
            other = Samples(form.judged(sample.pictures), sample.classes) if form.judged else Samples()
            judged = open_subject(run, other, LookSettings(cache=False), Reporter(quiet=True))
            evidence = gather_evidence(judged, SPARSITY_THRESHOLD, cache=False).evidence
        evaluation = evaluate(
            run, data=bank.pictures, labels=bank.classes, test_data=queries.pictures, test_labels=queries.classes,
            metrics=(KNN, PROBE), layers=(REPRESENTATION,), cache=False, quiet=True,
        )  # fmt: skip
        return evidence, {name: evaluation.accuracy(REPRESENTATION, name) for name in (KNN, PROBE)}
