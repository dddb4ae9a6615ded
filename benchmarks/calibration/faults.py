"""The faults that are put into trainings, each in two forms: one to choose limits by, another to publish figures of.

The second form differs from the first in severity, in the way it is made, or in both; beside it come other samples and
another encoder. No limit of a check is chosen by it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from calibration.spoiled_encoders import Narrowed, Repeated, Silenced, Spoiled
from calibration.spoiled_features import (
    SpoilFeatures,
    as_they_are,
    with_offset,
    with_rows_moved,
    with_rows_shuffled,
)
from calibration.spoiled_samples import (
    Spoil,
    copied,
    labelled_by_tint,
    nearly_copied,
    of_faint_noise,
    of_noise,
    shaded,
    tinted,
    with_classes,
)

HEALTHY = "healthy"
NO_PROJECTOR = {"projector.kind": "none"}
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
        encoder: makes an encoder with the fault, in place of the usual one.
        features: what is done to the trained embedding, which is then diagnosed as features from anywhere.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: Spoil | None = None
    encoder: Callable[[], nn.Module] | None = None
    features: SpoilFeatures | None = None


@dataclass(frozen=True)
class Fault:
    """A fault, and the findings that name it.

    Attributes:
        summary: what is wrong, in words.
        found_as: codes of findings of which one must be among the first two; none where all is well.
        choosing: the form by which limits are chosen.
        publishing: the form of which figures are published.
    """

    summary: str
    found_as: tuple[str, ...]
    choosing: Form
    publishing: Form


CATALOGUE: Mapping[str, Fault] = {
    HEALTHY: Fault("nothing", (), Form(), Form()),
    "full collapse": Fault(
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
    "dimensional collapse": Fault(
        "a narrow layer in the projector",
        ("dimensional-collapse",),
        Form({"projector.hidden": 12}),
        Form(NO_PROJECTOR, encoder=lambda: Spoiled(Narrowed(24), width=96)),
    ),
    "cluster collapse": Fault(
        "samples of a class driven into one point",
        ("cluster-collapse",),
        Form({"method": "supcon", **LEARNED_BY_HEART}, with_classes((200, 200)), features=as_they_are),
        Form(
            {"method": "supcon", **LEARNED_BY_HEART, "epochs": 30, "temperature": 0.5},
            with_classes((130, 130, 130)),
            features=as_they_are,
        ),
    ),
    "weak alignment": Fault(
        "views that hide nearly everything",
        ("alignment", "unrelated-views", "hiding-views"),
        Form({"views.crop_scale": (0.01, 0.04), "views.jitter": 1.0, "views.jitter_strength": 1.0}),
        Form({"views.crop_scale": (0.02, 0.06), "views.solarize": 0.5, "views.grayscale": 1.0}),
    ),
    "nothing to learn": Fault(
        "noise in place of pictures",
        ("loss-at-chance", "hiding-views", "unrelated-views"),
        Form(samples=of_noise),
        Form(samples=of_faint_noise),
    ),
    "learned by heart": Fault(
        "sixty samples, for long",
        ("held-out",),
        Form({"source.holdout": 0.9, "views.crop_scale": (0.5, 1.0), "epochs": 150}),
        Form({"source.holdout": 0.9, "views.crop_scale": (0.3, 1.0), "epochs": 300, "batch_size": 60}),
    ),
    "crowded samples": Fault(
        "a loss that hardly repels",
        ("non-uniformity",),
        Form(ATTRACTS),
        Form({**ATTRACTS, "loss.options": {"variance": 0.5, "covariance": 1.0}}),
    ),
    "temperature too low": Fault(
        "temperature 0.005 or 0.01",
        ("temperature-low",),
        Form({"temperature": 0.005}),
        Form({"temperature": 0.01}),
    ),
    "temperature too high": Fault(
        "temperature 10 or 4",
        ("temperature-high",),
        Form({"temperature": 10.0}),
        Form({"temperature": 4.0}),
    ),
    "too few negatives": Fault(
        "batches of 4 or 6",
        ("few-negatives",),
        Form({"batch_size": 4, "epochs": 2}),
        Form({"batch_size": 6, "epochs": 2}),
    ),
    "untrained": Fault(
        "a learning rate of nothing",
        ("untrained",),
        Form({"optim.learning_rate": 1e-9}),
        Form({"optim.learning_rate": 1e-7, "optim.name": "sgd"}),
    ),
    "rate too high": Fault(
        "a learning rate at which nothing is learned",
        ("rate-too-high",),
        Form({"optim.learning_rate": 10.0}),
        Form({"optim.learning_rate": 30.0, "optim.name": "sgd"}),
    ),
    "copies": Fault(
        "exact copies among the samples",
        ("duplicates",),
        Form(samples=copied(0.4)),
        Form(samples=copied(0.3)),
    ),
    "false negatives": Fault(
        "near copies, which the loss pushes apart",
        ("false-negatives", "leakage"),
        Form(samples=nearly_copied(8, noise=2)),
        Form(samples=nearly_copied(6, noise=6)),
    ),
    "leakage": Fault(
        "held-out samples that occur in training, too",
        ("leakage", "duplicates"),
        Form(samples=nearly_copied(2, noise=0)),
        Form(samples=nearly_copied(3, noise=0)),
    ),
    "projector hides": Fault(
        "an embedding of two or three dimensions",
        ("projector-hides", "narrow-embedding"),
        Form({"projector.features": 2}),
        Form({"projector.features": 3}),
    ),
    "silent dimensions": Fault(
        "more than half of the dimensions are 0",
        ("dead-dimensions",),
        Form(NO_PROJECTOR, encoder=lambda: Spoiled(Silenced(0.6))),
        Form(NO_PROJECTOR, encoder=lambda: Spoiled(Silenced(0.75), width=96)),
    ),
    "repeated dimensions": Fault(
        "dimensions that say the same",
        ("duplicate-dimensions",),
        Form(NO_PROJECTOR, encoder=lambda: Spoiled(Repeated((1.0, 1.0)))),
        Form(NO_PROJECTOR, encoder=lambda: Spoiled(Repeated((1.0, -0.7, 1.3)), width=48)),
    ),
    "minority collapse": Fault(
        "labels of classes that are far from balanced, at a high temperature",
        ("minority-collapse",),
        Form({**BY_LABELS_ALONE, "epochs": 100, "temperature": 4.0}, with_classes((480, 40, 40, 40))),
        Form({**BY_LABELS_ALONE, "epochs": 80, "temperature": 4.0}, with_classes((460, 45, 45))),
    ),
    "shortcut": Fault(
        "a tint or a light of its own in each picture, which both views keep",
        ("shortcut",),
        Form(NO_COLOUR_CHANGES, tinted(0.5)),
        Form(NO_COLOUR_CHANGES, shaded(0.2)),
    ),
    "no gain": Fault(
        "classes that differ in what views change",
        ("gain",),
        Form(samples=labelled_by_tint(3, 0.2)),
        Form(samples=labelled_by_tint(6, 0.3)),
    ),
    "offset": Fault(
        "a constant added to all features",
        ("offset",),
        Form(features=with_offset(6.0)),
        Form(features=with_offset(3.0)),
    ),
    "other rows": Fault(
        "views whose rows are in another order",
        ("unrelated-views",),
        Form(features=with_rows_shuffled),
        Form(features=with_rows_moved),
    ),
}
