"""The faults that are put into trainings, each in two forms: one to choose limits by, another to publish figures of.

The second form differs from the first in severity, in the way it is made, or in both; beside it come other samples and
another encoder. No limit of a check is chosen by it. Faults whose severity is given by their name are the same in both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calibration.spoiled_samples import (
    Pictures,
    Spoil,
    channels_turned,
    copied,
    half_noise,
    held_out_darker,
    held_out_inverted,
    inverted,
    labelled_by_tint,
    labels_shuffled,
    nearly_copied,
    of_faint_noise,
    of_noise,
    one_class_of,
    shaded,
    tinted,
    with_classes,
    wrongly_labelled,
)

HEALTHY = "healthy"
SMALL_PROJECTOR = {"projector.features": 128, "projector.hidden": 128}
ATTRACTS = {
    "method": "vicreg",
    "temperature": None,
    "loss.options": {"variance": 0.0, "covariance": 0.0},
    **SMALL_PROJECTOR,
}
LEARNED_BY_HEART = {"epochs": 20, "views.preset": "none", "source.holdout": 0.0}
BY_LABELS_ALONE = {"method": "supcon", "views.preset": "none", "source.holdout": 0.0}
NO_COLOUR_CHANGES = {"views.jitter": 0.0, "views.grayscale": 0.0}


@dataclass(frozen=True)
class Form:
    """One way to make a fault.

    Attributes:
        settings: of the training, by path, beside those of all.
        samples: what is done to the samples first.
        is_for_features: whether the trained embedding is diagnosed as features from anywhere.
        judged: what is done to the pictures that are diagnosed, after a training on others.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: Spoil | None = None
    is_for_features: bool = False
    judged: Callable[[Pictures], Pictures] | None = None


def _both(settings: Mapping[str, Any], samples: Spoil | None = None) -> tuple[Form, Form]:
    """One form twice: severity is given by the name of the fault."""
    return Form(settings, samples), Form(settings, samples)


@dataclass(frozen=True)
class TrainedFault:
    """A fault, and the findings that name it.

    Attributes:
        summary: what is wrong, in words.
        found_as: codes of findings of which one must be among the first two; empty if nothing is wrong.
        choosing: the form by which limits are chosen.
        publishing: the form of which figures are published.
    """

    summary: str
    found_as: tuple[str, ...]
    choosing: Form
    publishing: Form


TRAINED_FAULTS: Mapping[str, TrainedFault] = {
    HEALTHY: TrainedFault("nothing", (), Form(), Form()),
    "full collapse": TrainedFault(
        "a loss that only attracts, for long",
        ("full-collapse",),
        Form({**ATTRACTS, "projector.norm": "none", "epochs": 12, "optim.learning_rate": 0.02}),
        Form(
            {
                **ATTRACTS,
                "projector.kind": "linear",
                "projector.hidden": None,
                "epochs": 24,
                "optim.learning_rate": 0.05,
            }
        ),
    ),
    "dimensional collapse": TrainedFault(
        "a narrow layer in the projector",
        ("dimensional-collapse",),
        Form({"projector.hidden": 12}),
        Form({"projector.hidden": 6}),
    ),
    "cluster collapse": TrainedFault(
        "samples of a class driven into one point",
        ("cluster-collapse", "neural-collapse"),  # what it is called where the classes are known
        Form({"method": "supcon", **LEARNED_BY_HEART}, with_classes((200, 200)), is_for_features=True),
        Form(
            {"method": "supcon", **LEARNED_BY_HEART, "epochs": 30, "temperature": 0.5},
            with_classes((130, 130, 130)),
            is_for_features=True,
        ),
    ),
    "weak alignment": TrainedFault(
        "views that hide nearly everything",
        ("alignment", "unrelated-views", "hiding-views"),
        Form({"views.crop_scale": (0.01, 0.04), "views.jitter": 1.0, "views.jitter_strength": 1.0}),
        Form({"views.crop_scale": (0.02, 0.06), "views.solarize": 0.5, "views.grayscale": 1.0}),
    ),
    "nothing to learn": TrainedFault(
        "noise in place of pictures",
        ("loss-at-chance", "hiding-views", "unrelated-views"),
        Form(samples=of_noise),
        Form(samples=of_faint_noise),
    ),
    "learned by heart": TrainedFault(
        "sixty samples, for long",
        ("held-out",),
        Form({"source.holdout": 0.9, "views.crop_scale": (0.5, 1.0), "epochs": 150}),
        Form({"source.holdout": 0.9, "views.crop_scale": (0.3, 1.0), "epochs": 300, "batch_size": 60}),
    ),
    "crowded samples": TrainedFault(
        "a loss that hardly repels",
        ("non-uniformity",),
        Form(ATTRACTS),
        Form({**ATTRACTS, "loss.options": {"variance": 0.5, "covariance": 1.0}}),
    ),
    "temperature too low": TrainedFault(
        "temperature 0.005 or 0.01",
        ("temperature-low",),
        Form({"temperature": 0.005}),
        Form({"temperature": 0.01}),
    ),
    "temperature too high": TrainedFault(
        "temperature 10 or 4",
        ("temperature-high",),
        Form({"temperature": 10.0}),
        Form({"temperature": 4.0}),
    ),
    "too few negatives": TrainedFault(
        "batches of 4 or 6",
        ("few-negatives",),
        Form({"batch_size": 4, "epochs": 2}),
        Form({"batch_size": 6, "epochs": 2}),
    ),
    "untrained": TrainedFault(
        "a learning rate of nothing",
        ("untrained",),
        Form({"optim.learning_rate": 1e-9}),
        Form({"optim.learning_rate": 1e-7, "optim.name": "sgd"}),
    ),
    "rate too high": TrainedFault(
        "a learning rate at which nothing is learned",
        ("rate-too-high",),
        Form({"optim.learning_rate": 10.0}),
        Form({"optim.learning_rate": 30.0, "optim.name": "sgd"}),
    ),
    "copies": TrainedFault(
        "exact copies among the samples",
        ("duplicates",),
        Form(samples=copied(0.4)),
        Form(samples=copied(0.3)),
    ),
    "false negatives": TrainedFault(
        "near copies, which the loss pushes apart",
        ("false-negatives", "leakage"),
        Form(samples=nearly_copied(8, noise=2)),
        Form(samples=nearly_copied(6, noise=6)),
    ),
    "leakage": TrainedFault(
        "held-out samples that occur in training, too",
        ("leakage", "duplicates"),
        Form(samples=nearly_copied(2, noise=0)),
        Form(samples=nearly_copied(3, noise=0)),
    ),
    "projector hides": TrainedFault(
        "an embedding of two or three dimensions",
        ("projector-hides", "narrow-embedding"),
        Form({"projector.features": 2}),
        Form({"projector.features": 3}),
    ),
    "minority collapse": TrainedFault(
        "labels of classes that are far from balanced, at a high temperature",
        ("minority-collapse",),
        Form({**BY_LABELS_ALONE, "epochs": 100, "temperature": 4.0}, with_classes((480, 40, 40, 40))),
        Form({**BY_LABELS_ALONE, "epochs": 80, "temperature": 4.0}, with_classes((460, 45, 45))),
    ),
    "shortcut": TrainedFault(
        "a tint or a light of its own in each picture, which both views keep",
        ("shortcut",),
        Form(NO_COLOUR_CHANGES, tinted(0.5)),
        Form(NO_COLOUR_CHANGES, shaded(0.2)),
    ),
    "no gain": TrainedFault(
        "classes that differ in what views change",
        ("gain",),
        Form(samples=labelled_by_tint(3, 0.2)),
        Form(samples=labelled_by_tint(6, 0.3)),
    ),
    "temperature 1.5": TrainedFault("temperature 1.5", ("temperature-high",), *_both({"temperature": 1.5})),
    "temperature 5": TrainedFault("temperature 5", ("temperature-high",), *_both({"temperature": 5.0})),
    "batches of 8": TrainedFault("batches of 8", ("few-negatives",), *_both({"batch_size": 8})),
    "batches of 16": TrainedFault("batches of 16", ("few-negatives",), *_both({"batch_size": 16})),
    "learning rate 1e-6": TrainedFault("rate 1e-6", ("untrained",), *_both({"optim.learning_rate": 1e-6})),
    "learning rate 1e-1": TrainedFault("rate 1e-1", ("rate-too-high",), *_both({"optim.learning_rate": 0.1})),
    "equal views": TrainedFault("views that change nothing", ("identical-views",), *_both({"views.preset": "none"})),
    "shuffled labels": TrainedFault(
        "labels of other samples, learned by SupCon",
        ("label-noise", "classes"),
        *_both({"method": "supcon"}, labels_shuffled),
    ),
    "40 % wrong labels": TrainedFault(
        "40 % of the labels are wrong, learned by SupCon",
        ("label-noise",),
        *_both({"method": "supcon"}, wrongly_labelled(0.4)),
    ),
    "half noise": TrainedFault(
        "noise in place of half of the pictures",
        ("batch-effect", "cluster-collapse", "outliers", "shortcut"),
        *_both({}, half_noise),
    ),
    "90 % one class": TrainedFault(
        "nine of ten pictures are of one class", ("imbalance", "minority-collapse"), *_both({}, one_class_of(0.9))
    ),
    "other held-out pictures": TrainedFault(
        "held-out pictures are darker, or inverted",
        ("shift",),
        Form(samples=held_out_darker),
        Form(samples=held_out_inverted),
    ),
    "altered input": TrainedFault(
        "pictures are diagnosed whose channels are in another order, or that are inverted",
        ("altered-input",),
        Form(judged=channels_turned),
        Form(judged=inverted),
    ),
}
