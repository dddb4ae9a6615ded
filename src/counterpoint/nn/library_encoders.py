"""Encoders of other libraries by name, untrained and without a head: torchvision's and solo-learn's.

timm's are built by ``encoders.build_timm``; what all libraries say of the input that a model was made for is here.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from counterpoint.core.errors import UsageError, nearest, unknown_name
from counterpoint.nn.encoders import build_timm, check_timm_name

SOLO_NAMES = ("resnet18", "resnet50")


@dataclass(frozen=True)
class Habit:
    """The input that a model was made for.

    Attributes:
        mean: that its library subtracts, per channel of values in [0, 1]; None where nothing is known.
        std: by which it then divides.
        side: of the images in pixels; None for any.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    side: int | None = None


@dataclass(frozen=True)
class Library:
    """A library whose models are known by ``prefix:NAME``.

    Attributes:
        summary: what it has, and which extra or package it needs.
        build: a model without its head, from its name, the shape of an image and a stem (``small`` or ``large``).
        habit: what its models take, from a name that ``build`` has taken.
        has_stem: whether ``build`` heeds the stem.
    """

    summary: str
    build: Callable[[str, tuple[int, ...], str], nn.Module]
    habit: Callable[[str], Habit]
    has_stem: bool = False


def _torchvision(name: str) -> nn.Module:
    """A model of ``torchvision.models`` with its last linear layer taken out."""
    models = _torchvision_models(name)
    with warnings.catch_warnings(action="ignore"):  # on what its older models draw
        model = models.get_model(name, weights=None)
    # The last layer of the last part: a classifier's hidden layers and norms belong to the representation.
    last = [path for path, part in model.named_modules() if isinstance(part, nn.Linear)][-1:]
    if not last:
        raise UsageError(f"torchvision:{name} does not end with a linear layer, and has no features before it")
    model.set_submodule(last[0], nn.Identity())
    return model


def _solo(name: str, stem: str) -> nn.Module:
    """A ResNet as solo-learn changes torchvision's for CIFAR."""
    if name not in SOLO_NAMES:
        raise unknown_name("model of solo-learn", name, SOLO_NAMES)
    model: Any = _torchvision(name)
    if stem == "small":
        # The padding of 2 is solo-learn's: maps of 34 x 34 for images of 32 x 32.
        model.conv1 = nn.Conv2d(3, model.conv1.out_channels, 3, 1, 2, bias=False)
        model.maxpool = nn.Identity()
    return model


def _timm_habit(name: str) -> Habit:
    """From timm's record of the weights that the name stands for."""
    found = check_timm_name(name).get_pretrained_cfg(name)
    return Habit(tuple(found.mean), tuple(found.std), found.input_size[-1]) if found else Habit()


def _torchvision_habit(name: str) -> Habit:
    """From torchvision's record of its best weights for the name."""
    taken = _torchvision_models(name).get_model_weights(name).DEFAULT.transforms()
    return Habit(tuple(taken.mean), tuple(taken.std), taken.crop_size[0])


def _torchvision_models(name: str) -> Any:
    try:
        from torchvision import models  # deferred: the extra `vision` may be absent, and it takes a second to import
    except ImportError:
        raise UsageError(
            f"encoder torchvision:{name} needs torchvision; install it with: pip install 'counterpoint[vision]'"
        ) from None
    known = models.list_models(module=models)
    if name not in known:
        raise UsageError(f"torchvision has no model {name!r}{nearest(name, known)}")
    return models


LIBRARIES: Mapping[str, Library] = {
    "timm:": Library(
        "any model of timm; NAME.TAG for the input of published weights (extra `vision`)",
        lambda name, shape, _: build_timm(name, shape),
        _timm_habit,
    ),
    "torchvision:": Library(
        "any classifier of torchvision, without its last layer (extra `vision`)",
        lambda name, shape, _: _torchvision(name),
        _torchvision_habit,
    ),
    "solo-learn:": Library(
        "resnet18 and resnet50 with solo-learn's stem for small images (extra `vision`)",
        lambda name, shape, stem: _solo(name, stem),
        lambda _: Habit(),
        has_stem=True,
    ),
}
