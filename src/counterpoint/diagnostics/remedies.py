"""Remedies that can be tried against a fault: steps in words, and the settings that each changes in a run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from counterpoint.diagnostics.evidence import Evidence, Lever

Values = Mapping[str, Any]
USUAL_TEMPERATURE, USUAL_BATCH, USUAL_FEATURES = 0.2, 256, 128
FACTOR = 3.0
VERY_LOW_RATE, VERY_HIGH_RATE = 1e-4, {"adam": 0.01, "adamw": 0.01, "sgd": 0.5, "lars": 5.0}
# By finding: in how many trainings with a fault its remedy was tried, in how many the mean accuracy of kNN and linear
# probe on other pictures rose, and by how many points it changed on average. `calibrate_diagnosis.py --trained`, whose
# table is in docs/diagnosis-reference.md.
TRIED: Mapping[str, tuple[int, int, float]] = {
    "dimensional-collapse": (18, 14, 1.0),
    "temperature-high": (9, 9, 3.0),
    "few-negatives": (9, 9, 4.1),
    "gain": (8, 7, 0.7),
    "untrained": (6, 6, 2.3),
    "rate-too-high": (5, 5, 5.2),
    "uneven-spectrum": (5, 4, 0.8),
    "hiding-views": (4, 3, 0.9),
    "full-collapse": (3, 0, -1.4),
    "held-out": (3, 0, -1.1),
    "loss-at-chance": (3, 3, 1.0),
    "temperature-low": (3, 2, 0.3),
    "minority-collapse": (3, 2, 0.8),
    "shortcut": (3, 3, 1.3),
    "identical-views": (3, 0, -1.4),
    "imbalance": (3, 1, 0.4),
    "unrelated-views": (2, 1, -0.9),
    "projector-hides": (2, 1, 1.9),
    "narrow-embedding": (1, 1, 0.8),
}


@dataclass(frozen=True)
class Step:
    """One step to try against a fault.

    Attributes:
        lever: setting or step that a run must have for it.
        words: text of the advice, with the flag.
        change: function of a run's settings that gives the settings to change; none if nothing is trained again.
    """

    lever: Lever
    words: str
    change: Callable[[Values], Mapping[str, Any]] = lambda _: {}


def advice(evidence: Evidence, *steps: Step, otherwise: str = "") -> dict[str, Any]:
    """The fields ``remedy`` and ``changes`` of a finding: the steps that the run can take, the first with its settings.

    Args:
        evidence: evidence with the levers of the run, and the values of its settings.
        steps: steps to choose from, best first.
        otherwise: advice if the run can take none of the steps, as for features without a run.
    """
    usable = [step for step in steps if step.lever in evidence.levers]
    words = [step.words for step in usable]
    changes = next(filter(None, (step.change(evidence.values) for step in usable)), {}) if evidence.values else {}
    return {"remedy": " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:]))) or otherwise, "changes": changes}


def _lower_rate(values: Values) -> Mapping[str, Any]:
    rate, most = values["optim.learning_rate"], VERY_HIGH_RATE[values["optim.name"]]
    return {"optim.learning_rate": "auto" if rate > most else rate / FACTOR}


def _higher_rate(values: Values) -> Mapping[str, Any]:
    rate = values["optim.learning_rate"]
    return {"optim.learning_rate": "auto" if rate < VERY_LOW_RATE else rate * FACTOR}


def _weaker_views(values: Values) -> Mapping[str, Any]:
    """Halve the strength of every augmentation that takes content away."""
    views = {path.removeprefix("views."): value for path, value in values.items() if path.startswith("views.")}
    changes: dict[str, Any] = {}
    if isinstance(crop := views.get("crop_scale"), tuple | list) and crop[0] < 1:
        changes["views.crop_scale"] = (round((1 + float(crop[0])) / 2, 3), 1.0)
    for name in ("jitter_strength", "grayscale", "blur", "noise", "dropout", "solarize"):
        value = views.get(name)
        if isinstance(value, int | float) and value > 0:
            changes[f"views.{name}"] = round(value / 2, 4)
    return changes


def _wider_projector(values: Values) -> Mapping[str, Any]:
    """Widen a narrow projector to the usual hidden and output widths."""
    changes: dict[str, Any] = {}
    hidden, features = values.get("projector.hidden"), values.get("projector.features")
    if isinstance(features, int) and features < USUAL_FEATURES:
        changes["projector.features"] = USUAL_FEATURES
    if isinstance(hidden, int) and hidden < USUAL_FEATURES:
        changes["projector.hidden"] = "auto"
    return changes


def _larger_batch(values: Values) -> Mapping[str, Any]:
    """Raise the batch to the usual size, and the epochs so that the number of updates stays."""
    now, epochs = values.get("batch_size"), values.get("epochs")
    if not isinstance(now, int) or not isinstance(epochs, int) or now >= USUAL_BATCH:
        return {"batch_size": USUAL_BATCH}
    return {"batch_size": USUAL_BATCH, "epochs": round(epochs * USUAL_BATCH / now)}


def _times(path: str, factor: float, least: int = 1) -> Callable[[Values], Mapping[str, Any]]:
    return lambda values: {path: max(round(values[path] * factor), least)} if isinstance(values[path], int) else {}


LOWER_RATE = Step("learning rate", "a lower learning rate (--optim.learning-rate)", _lower_rate)
HIGHER_RATE = Step("learning rate", "a higher learning rate (--optim.learning-rate)", _higher_rate)
OTHER_RATE = Step(
    "learning rate",
    "a higher or lower learning rate (--optim.learning-rate)",
    lambda values: (_lower_rate if values["optim.learning_rate"] > VERY_LOW_RATE else _higher_rate)(values),
)
LOWER_TEMPERATURE = Step(
    "temperature",
    "a lower temperature (--temperature)",
    lambda values: {"temperature": min(values["temperature"] / 2, USUAL_TEMPERATURE)},
)
HIGHER_TEMPERATURE = Step(
    "temperature",
    "a higher temperature (--temperature)",
    lambda values: {"temperature": max(2 * values["temperature"], USUAL_TEMPERATURE)},
)
WEAKER_VIEWS = Step("views", "weaker views", _weaker_views)
LOOK_AT_VIEWS = Step("preview", "a look at the views, which may be blank (counterpoint preview)")
MORE_EPOCHS = Step("epochs", "more epochs (--epochs)", _times("epochs", FACTOR))
FEWER_EPOCHS = Step("epochs", "fewer epochs (--epochs)", _times("epochs", 1 / FACTOR))
LARGER_BATCH = Step(
    "batch",
    "a larger batch (--batch-size), with more epochs so that the number of updates stays the same",
    _larger_batch,
)
USUAL_WEIGHTS = Step(
    "loss options", "the usual weights within the loss (--loss.options)", lambda _: {"loss.options": {}}
)
REPRESENTATION_INSTEAD = Step("representation", "the representation instead of the embedding")
DIRECTCLR = Step("directclr", "DirectCLR (--method directclr)", lambda _: {"method": "directclr"})
PROJECTOR = Step("projector", "a projector (--projector.kind mlp)", lambda _: {"projector.kind": "mlp"})
WIDER_PROJECTOR = Step("narrow", "a projector without a narrow layer (--projector.features)", _wider_projector)
FEWER_FEATURES = Step("features", "fewer dimensions (--projector.features)", _times("projector.features", 0.5, least=2))
RELU_GELU = Step(
    "relu-gelu",
    "--output.nonnegative relu-gelu (silent dimensions recover)",
    lambda _: {"output.nonnegative": "relu-gelu"},
)
COLOUR_CHANGES = Step(
    "colour",
    "views that change colours (--views.jitter)",
    lambda _: {"views.jitter": 0.8, "views.jitter_strength": 0.4, "views.grayscale": 0.2},
)
KEPT_COLOURS = Step(
    "kept colour",
    "views that keep colours (--views.jitter 0 --views.grayscale 0)",
    lambda _: {"views.jitter": 0.0, "views.grayscale": 0.0},
)
BALANCED_SAMPLING = Step(
    "sampling",
    "drawing every class equally often (--source.sampling balanced)",
    lambda _: {"source.sampling": "balanced"},
)
STRONGER_VIEWS = Step("views", "stronger views")
SOME_VIEWS = Step("no views", "views that change something (--views.preset auto)", lambda _: {"views.preset": "auto"})


OTHER_SCALE = "train with another scale of similarities"
# By finding: steps, best first, and what to do where a run can take none of them, as for features from anywhere. Of a
# check that is not here the steps depend on what it measured, or nothing is trained again.
REMEDIES: Mapping[str, tuple[tuple[Step, ...], str]] = {
    "imbalance": ((BALANCED_SAMPLING,), "judge by balanced accuracy, and collect more samples of the rare classes"),
    "untrained": ((HIGHER_RATE, MORE_EPOCHS), "load its weights, or train it"),
    "rate-too-high": ((LOWER_RATE,), "train with a lower learning rate"),
    "full-collapse": (
        (USUAL_WEIGHTS, LOWER_RATE, HIGHER_TEMPERATURE, LOOK_AT_VIEWS),
        "check that the inputs differ and that the encoder was trained; if the features have a large constant "
        "offset, subtract the mean",
    ),
    "few-negatives": ((LARGER_BATCH,), "train with larger batches"),
    "temperature-low": ((HIGHER_TEMPERATURE,), OTHER_SCALE),
    "temperature-high": ((LOWER_TEMPERATURE,), OTHER_SCALE),
    "projector-hides": ((WIDER_PROJECTOR, REPRESENTATION_INSTEAD), "use the features before the projector"),
    "narrow-embedding": ((WIDER_PROJECTOR, REPRESENTATION_INSTEAD), "use the features before the projector"),
    "shortcut": ((COLOUR_CHANGES,), "train on views whose brightness and colours change"),
    "minority-collapse": (
        (BALANCED_SAMPLING, LOWER_TEMPERATURE, MORE_EPOCHS),
        "features trained with balanced sampling",
    ),
    "cluster-collapse": (
        (REPRESENTATION_INSTEAD, HIGHER_TEMPERATURE, FEWER_EPOCHS),
        "use features of an earlier layer",
    ),
    "identical-views": ((SOME_VIEWS, STRONGER_VIEWS), "compare two different views of each sample"),
    "unrelated-views": (
        (WEAKER_VIEWS, MORE_EPOCHS),
        "put the rows of both views into one order, or compare views of the same samples",
    ),
    "hiding-views": ((WEAKER_VIEWS,), "draw views that keep more of a sample"),
    "non-uniformity": ((USUAL_WEIGHTS, LOWER_TEMPERATURE, MORE_EPOCHS, OTHER_RATE), ""),
    "representation-rank": ((PROJECTOR, WEAKER_VIEWS, FEWER_EPOCHS), ""),
    "dead-dimensions": ((RELU_GELU, FEWER_FEATURES), "leave them out: no distance changes"),
    "uneven-spectrum": (
        (LOWER_TEMPERATURE, WEAKER_VIEWS),
        "whiten the features, if all directions should count in distances",
    ),
    "alignment": ((WEAKER_VIEWS, MORE_EPOCHS), "compare views that keep the differences between samples"),
}


def against_memory(evidence: Evidence) -> dict[str, Any]:
    """The fields ``confirm``, ``remedy`` and ``changes`` of a finding that the encoder knows its training samples."""
    steps = SOME_VIEWS, FEWER_EPOCHS, STRONGER_VIEWS
    return {
        "confirm": "counterpoint evaluate RUN --checkpoint all (held-out accuracy stops rising before the loss stops "
        "falling)",
        **advice(evidence, *steps, otherwise="more training samples"),
    }
