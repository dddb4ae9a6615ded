"""What findings advise exists in the run: every setting that a remedy names is taken by the method and acts on it."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

import counterpoint as cp
from counterpoint.core.errors import UsageError
from counterpoint.core.schemas import ClassShare
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, leaf_fields, nest
from counterpoint.data.formats.labels import number_labels
from counterpoint.data.source import memory_source
from counterpoint.data.stores import MemoryStore
from counterpoint.diagnostics.evidence import (
    EMBEDDING,
    RAW_INPUT,
    REPRESENTATION,
    UNTRAINED,
    ClassRecord,
    ClassRow,
    ColourShortcut,
    Evidence,
    HeldOutRecord,
    Measurements,
    ToldApart,
)
from counterpoint.diagnostics.finding import Finding
from counterpoint.diagnostics.findings import CATALOGUE as CHECKS
from counterpoint.diagnostics.findings import find
from counterpoint.diagnostics.pair_record import PairRecord
from counterpoint.engine.placement import Placement
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.runs.active_settings import levers_of
from counterpoint.runs.assembly import Assembled, assemble
from counterpoint.runs.resolve import resolve_holdout
from counterpoint.runs.run_evidence import gaussian_by
from counterpoint.runs.user_inputs import UserInputs
from hit_rows import hit_row

CPU = Placement("cpu", "fp32", {"engine.device": "test", "engine.precision": "test"})
NUM_SAMPLES = 48
# A value other than the default for each setting that a remedy names without one.
VALUES = {"temperature": 0.03, "projector.features": 12, "optim.learning_rate": 0.0123, "epochs": 7, "batch_size": 16}
LAST_EPOCH = {
    "optim.learning_rate",
    "epochs",
    "batch_size",
    "source.sampling",
}  # of the training as a whole
# Checks of samples, values and labels, whose remedies change no setting.
OF_THE_SAMPLES = {
    "outliers", "near-copies", "scales", "heavy-tails", "saturated", "quantised", "hubs", "row-order", "label-noise",
    "label-leak", "shared-cluster", "parted-label", "batch-effect", "neural-collapse", "identical-views", "stray-views",
    "altered-input", "gaussian-slices", "sparse-code",
}  # fmt: skip
FIGURES = {
    "effective_rank": 1.0,
    "rank_ceiling": 30.0,
    "dead_dims": 60,
    "positive_cosine": 0.99,
    "negative_cosine": 0.99,
    "overlap": 0.5,
    "moved_views": 0.5,
    "spread": 0.2,
    "uniformity": -0.1,
    "duplicates": 0.3,
    "clumps": 1.0,
    "vanished": 20,
    "resolved": 30,
    "duplicate_dims": 30,
}
RARE = tuple(ClassRow(name=name, count=count, is_rare=count < 50) for name, count in (("a", 90), ("b", 5), ("c", 5)))
CLASSES = ClassRecord(rows=RARE, rare_cosine=0.99, low=0.95, high=1.0)
TOLD = {place: ToldApart(auc=auc, chance=0.5, error=0.02) for place, auc in ((EMBEDDING, 0.9), (RAW_INPUT, 0.5))}
HELD_OUT = HeldOutRecord(gap=0.4, low=0.3, high=0.5, num_held_out=100, num_copies=20, num_either=20, told=TOLD)
ILL = Measurements.model_validate({"num_samples": 40, "num_dims": 64, **FIGURES})
LOOKS = (
    PairRecord(temperature=0.01, num_negatives=100, effective_negatives=2.0, copy_share=1.0, copy_mass=0.5),
    PairRecord(temperature=9.0, num_negatives=100, effective_negatives=100.0),
    PairRecord(num_negatives=4, effective_negatives=2.0),
)
COINCIDENT = ILL.model_copy(update={"spread": 0.001})


def everything_wrong(settings: TrainSettings) -> list[Finding]:
    """What is found where every check speaks up: of samples that coincide, and of others."""
    untrained = ILL.model_copy(update={"effective_rank": 20.0})
    worse, better = hit_row(REPRESENTATION, range(20), 100), hit_row("pixels (PCA)", range(60), 100)
    levers = levers_of(settings, "vectors")
    worse = worse.model_copy(update={"classes": {"a": ClassShare(correct=20, total=100)}})
    hidden = hit_row(EMBEDDING, range(3), 100)
    known: dict[str, Any] = {
        "loss": 6.0,
        "chance": 6.0,
        "floor": 1.0,
        "weight_change": 1e-9,
        "not_finite": ("1",),
        "classes": CLASSES,
        "held_out": HELD_OUT,
        "shortcut": ColourShortcut(overlap=1.0, followed=1.0),
    }
    findings: list[Finding] = []
    for place, views, look in zip((ILL, ILL, ILL, COINCIDENT), (0.5, 1.0, 0.5, 0.5), (*LOOKS, None), strict=True):
        own = place.model_copy(update={"overlap": views, "effective_rank": 1.5})
        # Either training has narrowed the representation, or the projector has the embedding.
        inner = own.model_copy(update={"effective_rank": 400.0}) if views == 1.0 else own
        places = {EMBEDDING: own, REPRESENTATION: inner, UNTRAINED: untrained}
        findings += find(Evidence(places, votes=(worse, better, hidden), levers=levers, pairs=look, **known))
    return findings


def assembled(**asked: Any) -> Assembled:
    """A run on labelled vectors, paired where the method needs pairs, as it stands before the first step."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(NUM_SAMPLES, 6, generator=generator)
    is_paired = METHODS[asked["method"]].wiring == "cross-modal"
    pairs = {"second": MemoryStore(vectors[:, :4]), "second_shape": (4,)} if is_paired else {}
    source = memory_source("test", vectors, number_labels(torch.arange(NUM_SAMPLES) % 3, NUM_SAMPLES), **pairs)
    settings = build(TrainSettings, nest({"batch_size": 8, "projector.hidden": 16} | asked), "test")
    return assemble(resolve_holdout(settings, source), source, CPU, UserInputs())


def first_step(made: Assembled) -> list[Tensor]:
    """The loss of one batch and its gradients, which tell any two settings apart that act on a step."""
    generator = torch.Generator().manual_seed(1)
    view0, view1 = torch.randn(2, 16, 6, generator=generator)
    view1 = view1[:, : made.source.second_shape[0]] if made.source.second_shape else view1
    loss = made.method(view0, view1, torch.arange(16) % 3)
    loss.backward()
    return [loss.detach(), *(p.grad for p in made.method.parameters() if p.grad is not None)]


def advised(settings: TrainSettings) -> dict[str, Any]:
    """Every setting that some remedy names, with the value it names or another one than the default."""
    found = everything_wrong(settings)
    # Of a run, an offset is said as crowded samples; weights cannot have moved too little and too far.
    assert {finding.name for finding in found} == set(CHECKS) - {"offset", "rate-too-high"} - OF_THE_SAMPLES
    flags = [pair for finding in found for pair in re.findall(r"--([\w.-]+)(?: ([a-z][\w-]*))?", finding.remedy)]
    named = {flag.replace("-", "_"): value for flag, value in flags}
    return {path: value or VALUES[path] for path, value in named.items()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.sampled(3)
def test_every_setting_that_a_remedy_names_acts_on_the_runs_method(method: str) -> None:
    run = assembled(method=method)
    before = first_step(run)
    for path, value in advised(run.settings).items():
        assert path in dict(leaf_fields(TrainSettings))
        changed = assembled(**{"method": method, path: value})
        if path in LAST_EPOCH:
            continue
        after = first_step(changed)
        is_same = [a.shape for a in before] == [b.shape for b in after] and all(map(torch.allclose, before, after))
        assert not is_same, f"{path} {value} changes nothing in {method}"


@pytest.mark.parametrize("method", METHODS)
def test_a_temperature_is_named_where_the_loss_has_one(method: str) -> None:
    """The other way round: advice that would act is not lost."""
    try:
        cold, warm = (first_step(assembled(method=method, temperature=tau))[0] for tau in (0.05, 0.5))
        acts = not torch.allclose(cold, warm)
    except UsageError:  # refused where it would have no effect
        acts = False
    assert ("temperature" in advised(assembled(method=method).settings)) == acts


def test_a_gaussian_is_expected_of_infonce_and_of_losses_of_slices_alone() -> None:
    expected = {method: by for method in METHODS if (by := gaussian_by(assembled(method=method).settings))}
    assert expected == {"simclr": "theory", "moco": "theory", "lejepa": "loss", "visreg": "loss"}
    rectified = assembled(**{"method": "simclr", "output.nonnegative": "relu"}).settings
    assert (
        gaussian_by(rectified) == gaussian_by(assembled(**{"method": "simclr", "loss.name": "spectral"}).settings) == ""
    )


def test_relu_gelu_is_named_for_the_relu_only() -> None:
    named = {name: "output.nonnegative" in advised(assembled(method=name).settings) for name in ("simclr", "ncl")}
    assert named == {"simclr": False, "ncl": True}
    assert "output.nonnegative" not in advised(
        assembled(**{"method": "ncl", "output.nonnegative": "relu-gelu"}).settings
    )


def test_a_run_without_views_is_not_told_to_weaken_them() -> None:
    settings = assembled(**{"method": "simclr", "views.preset": "none"}).settings
    assert all("weaker views" not in finding.remedy for finding in everything_wrong(settings))


def test_features_with_random_labels_name_no_class_and_a_real_concept_does() -> None:
    """What ``diagnose`` writes of a dimension that always fires, and of one that fires on a class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(240) % 12  # a tie, 8 % each
    dense = torch.randn(240, 8, generator=generator)
    assert {concept["top_class"] for concept in cp.diagnose(dense, labels=labels).concepts} == {None}
    concepts = cp.diagnose(torch.eye(12)[labels] + 0.0, labels=labels).concepts
    assert {concept["top_class"] for concept in concepts} == {str(number) for number in range(12)}
    assert {concept["purity"] for concept in concepts} == {1.0}
