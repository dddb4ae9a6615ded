"""One training with a fault: trained, diagnosed, and trained again as its first finding advises."""

# N samples, D features

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from pydantic import TypeAdapter

from calibration.faults import CATALOGUE, HEALTHY, Form
from calibration.spoiled_samples import Sample
from counterpoint.core.data_settings import LookSettings
from counterpoint.core.run_records import Record
from counterpoint.core.validation import nest
from counterpoint.diagnostics.concepts import SPARSITY_THRESHOLD
from counterpoint.diagnostics.evidence import Evidence
from counterpoint.diagnostics.finding import LEVELS, Finding
from counterpoint.diagnostics.findings import find
from counterpoint.engine.progress import Reporter
from counterpoint.evaluation.load_subject import Samples, open_subject
from counterpoint.nn.trained import load
from counterpoint.runs.feature_evidence import evidence_of_features, given_features
from counterpoint.runs.run_evidence import gather_evidence
from counterpoint.runs.training import train

Set = Literal["choosing", "publishing"]
EVIDENCE = TypeAdapter(Evidence)
# Trainings that nothing is wrong with, in turn: the first set has one method, the second five.
HEALTHY_METHODS: Mapping[Set, tuple[str, ...]] = {
    "choosing": ("simclr",),
    "publishing": ("simclr", "ncl", "barlow-twins", "vicreg", "mio"),
}

WITH_TEMPERATURE = ("simclr", "ncl")


@dataclass(frozen=True)
class Plan:
    """What all trainings of a set have in common.

    Attributes:
        kind: which form of the faults.
        sample: the pictures, from which each seed draws its own.
        num_samples: that a training has.
        settings: of all trainings, by path.
    """

    kind: Set
    sample: Sample
    num_samples: int
    settings: Mapping[str, Any]


class Case(Record):
    """A training and what was found.

    Attributes:
        fault: what was wrong with it.
        seed: of samples, order and weights.
        evidence: what findings are drawn from, so that other limits can be tried without training again.
        error: of a training that stopped.
        remedied: the evidence after the first remedy, where a finding of the fault has one.
        remedy: code of the finding whose remedy was tried.
    """

    fault: str
    seed: int
    evidence: Any = None
    error: str = ""
    remedied: Any = None
    remedy: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """By the limits of today."""
        return find(_read(self.evidence)) if self.evidence else ()

    @property
    def is_improved(self) -> bool | None:
        """Whether the remedy improved the figure that its finding names; None where none was tried."""
        if not self.remedied:
            return None
        before = next((each for each in self.findings if each.name == self.remedy), None)
        if before is None:
            return None
        after = next((each for each in find(_read(self.remedied)) if each.name == self.remedy), None)
        if after is None or LEVELS.index(after.level) < LEVELS.index(before.level):
            return True
        if after.measured is None or before.measured is None:
            return False
        return after.measured > before.measured if before.better == "higher" else after.measured < before.measured


def _read(evidence: Any) -> Evidence:
    """From plain values, as a line of JSON has them."""
    return EVIDENCE.validate_json(json.dumps(evidence))


def run_case(plan: Plan, fault: str, seed: int, *, with_remedy: bool) -> Case:
    """Train once with a fault and gather the evidence; with the first remedy, train a second time.

    Args:
        plan: what all trainings have in common.
        fault: a name of ``faults.CATALOGUE``.
        seed: of this training.
        with_remedy: whether the settings that the fault's finding advises are tried, too.
    """
    form: Form = getattr(CATALOGUE[fault], plan.kind)
    draws = np.random.default_rng(seed)
    sample = plan.sample.at(draws.permutation(len(plan.sample.classes))[: plan.num_samples])
    sample = form.samples(sample, draws) if form.samples else sample
    settings = {**plan.settings, **form.settings, "seed": seed}
    if fault == HEALTHY:
        methods = HEALTHY_METHODS[plan.kind]
        settings["method"] = methods[seed % len(methods)]
        if settings["method"] not in WITH_TEMPERATURE:
            settings["temperature"] = None
    try:
        evidence = _evidence(sample, settings, form, draws)
    except Exception as error:  # a training that diverges is a result
        return Case(fault=fault, seed=seed, error=f"{type(error).__name__}: {error}")
    case = Case(fault=fault, seed=seed, evidence=EVIDENCE.dump_python(evidence, mode="json"))
    named = next((each for each in case.findings[:2] if each.name in CATALOGUE[fault].found_as and each.changes), None)
    if not with_remedy or named is None:
        return case
    try:
        again = _evidence(sample, {**settings, **named.changes}, form, draws)
    except Exception as error:
        return case.model_copy(update={"error": f"remedy: {type(error).__name__}: {error}"})
    return case.model_copy(update={"remedied": EVIDENCE.dump_python(again, mode="json"), "remedy": named.name})


def _evidence(sample: Sample, settings: Mapping[str, Any], form: Form, draws: np.random.Generator) -> Evidence:
    """Train, and gather what a diagnosis would draw on; the run is removed."""
    with tempfile.TemporaryDirectory(prefix="counterpoint-case-") as folder:
        module = form.encoder() if form.encoder else None
        # A setting of all trainings that this one's method does not have is None.
        known = {path: value for path, value in settings.items() if value is not None}
        asked = nest({path: value for path, value in known.items() if not (module and path == "encoder")})
        given = {"labels": sample.classes, "encoder": module} if module else {"labels": sample.classes}
        run = train(sample.pictures, **given, out=f"{folder}/run", quiet=True, **asked)
        if form.features is not None:
            encoder = load(run)
            mirrored = np.ascontiguousarray(sample.pictures[:, :, ::-1])
            z_ND, other_ND = (torch.as_tensor(encoder.embed(each)) for each in (sample.pictures, mirrored))
            z_ND, other_ND = form.features(z_ND, other_ND, draws)
            return evidence_of_features(given_features(z_ND, sample.classes, other_ND))
        judged = open_subject(run, Samples(), LookSettings(), Reporter(quiet=True))
        return gather_evidence(judged, SPARSITY_THRESHOLD, cache=False).evidence
