"""Encoders that were trained elsewhere: the architecture, a file of weights, and the input they expect."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from counterpoint.core.errors import UsageError, gone, nearest, unknown_name
from counterpoint.core.files import sha256_of
from counterpoint.core.torch_state import own_draws, require_float32, usual_modes
from counterpoint.core.user_objects import is_origin, load_part
from counterpoint.nn.encoders import (
    CATALOGUE,
    STEMS,
    TIMM_PREFIX,
    Shape,
    build_timm,
    check_kind,
    check_timm_name,
    has_stem,
    own_copy,
    stem_for,
    with_pooling,
)
from counterpoint.nn.foreign_weights import fit_weights, read_weights, share_of


@dataclass(frozen=True)
class Habit:
    """The input that a model was made for.

    Attributes:
        mean: mean that its library subtracts, per channel of values in [0, 1]; None if nothing is known.
        std: deviation by which it then divides, per channel; None if nothing is known.
        side: side of the images in pixels; None for any.
    """

    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    side: int | None = None


@dataclass(frozen=True)
class Library:
    """A library whose models are known by ``prefix:NAME``.

    Attributes:
        summary: models that it has, and the extra or package that it needs.
        build: function from a model's name and the shape of an image to the model without its head.
        habit: function from a name that ``build`` has taken to the input that the model was made for.
    """

    summary: str
    build: Callable[[str, Shape], nn.Module]
    habit: Callable[[str], Habit]


def _build_torchvision(name: str, _: Shape) -> nn.Module:
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


def _timm_habit(name: str) -> Habit:
    """Read the weights that the name selects from timm's record."""
    config = check_timm_name(name).get_pretrained_cfg(name)
    return Habit(tuple(config.mean), tuple(config.std), config.input_size[-1]) if config else Habit()


def _torchvision_habit(name: str) -> Habit:
    transforms = _torchvision_models(name).get_model_weights(name).DEFAULT.transforms()
    return Habit(tuple(transforms.mean), tuple(transforms.std), transforms.crop_size[0])


def _torchvision_models(name: str) -> Any:
    try:
        from torchvision import models  # deferred: the extra `vision` may be absent, and it takes a second to import
    except ImportError:
        raise UsageError(
            f"encoder torchvision:{name} needs torchvision; install it with: pip install torchvision"
        ) from None
    names = models.list_models(module=models)
    if name not in names:
        raise UsageError(f"torchvision has no model {name!r}{nearest(name, names)}")
    return models


LIBRARIES: Mapping[str, Library] = {
    "timm:": Library(
        "any model of timm; NAME.TAG for the input of published weights (extra `vision`)",
        build_timm,
        _timm_habit,
    ),
    "torchvision:": Library(
        "any classifier of torchvision, without its last layer (extra `vision`)",
        _build_torchvision,
        _torchvision_habit,
    ),
}


WEIGHT_SUFFIXES = (".safetensors", ".pth", ".pt", ".ckpt", ".bin", ".tar")
COLOURS = 3


@dataclass(frozen=True)
class ForeignEncoder:
    """An encoder that no run of ours has trained, ready to be evaluated.

    Attributes:
        name: name that was asked for; the class of a module that the caller passed.
        backbone: maps images (n, c, h, w) or vectors (n, d) to (n, width); in evaluation mode, a copy where it was the
            caller's.
        mean: usual mean to subtract from its input, per channel of values in [0, 1]; None if nothing is known.
        std: usual deviation by which to divide it then, per channel; None if nothing is known.
        weights_sha256: hash of the file of weights; None if there was none.
        remarks: one line each, such as the prefix that was taken and what was left aside.
    """

    name: str
    backbone: nn.Module
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    weights_sha256: str | None
    remarks: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """One way to build an encoder: weights say which of several it is.

    Attributes:
        shape: shape of the samples it is built for: grey images may go to an encoder of colour images.
        stem: stem of a ResNet; empty where there is no choice.
    """

    shape: Shape
    stem: str = ""


class GreyAsColour(nn.Module):
    """A module for colour images that also takes grey ones, as three equal channels."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, images: Tensor) -> Tensor:
        """Output of the module for images (n, 1, h, w) or (n, 3, h, w)."""
        return self.body(images.expand(-1, COLOURS, -1, -1))


def build_foreign(
    encoder: str | nn.Module, in_shape: Shape, *, weights: str | Path | None = None, seed: int = 0
) -> ForeignEncoder:
    """Build an encoder by name, or copy the caller's, and fill it with a file's weights.

    Args:
        encoder: a name of our catalogue; ``timm:NAME`` or ``torchvision:NAME``;
            ``package.module:name`` of the user's own; or a module.
        in_shape: (channels, height, width) of the images, or (features,).
        weights: a safetensors file or a checkpoint of ``torch.save``, of any framework; None for random weights.
        seed: seed of the random weights.

    Raises:
        UsageError: unknown name, a library that is not installed, samples that the encoder cannot take, or weights
            that are not its own.
        RunError: the file of weights cannot be read.
    """
    if isinstance(encoder, str) and encoder.endswith(".onnx"):
        raise UsageError(gone("--encoder FILE.onnx"))
    if isinstance(encoder, str) and encoder.startswith("solo-learn:"):
        raise UsageError(gone("--encoder solo-learn:NAME"))
    require_float32()
    with usual_modes():
        if isinstance(encoder, nn.Module):
            foreign_encoder = _filled(own_copy(encoder), type(encoder).__name__, in_shape, weights)
        elif is_origin(encoder) and _library_of(encoder) is None:
            with own_draws(seed):
                module = _load_module(encoder)
            foreign_encoder = _filled(module, encoder, in_shape, weights)
        else:
            foreign_encoder = _by_name(encoder, in_shape, weights, seed)
    foreign_encoder.backbone.eval()
    return foreign_encoder


def habit_of(encoder: str | nn.Module) -> Habit:
    """Input that a library states for one of its models; an empty record for any other encoder.

    Raises:
        UsageError: a library that is not installed, or a model that it does not know.
    """
    library = _library_of(encoder) if isinstance(encoder, str) else None
    return LIBRARIES[library].habit(str(encoder).removeprefix(library)) if library else Habit()


def fill_known(
    module: nn.Module, name: str, tensors: Mapping[str, Tensor], origin: str, stem: str = ""
) -> tuple[str, ...]:
    """Load a file's weights into an encoder that was built by its name; see ``foreign_weights.fit_weights``.

    Args:
        module: the encoder.
        name: name by which it was built.
        tensors: tensors of the file, by name.
        origin: name of the file in errors.
        stem: stem that the encoder was built with; empty where there is no choice.

    Returns:
        Remarks: what was taken and left aside, and what a file does not say and was decided here.

    Raises:
        UsageError: the tensors are not weights of the encoder.
    """
    remarks = [*fit_weights(module, tensors, origin, name), *([f"{stem} stem"] if stem else [])]
    mean = habit_of(name).mean
    if name.startswith(TIMM_PREFIX) and "." not in name and mean:
        remarks.append(
            f"input as timm's own weights of this name take it (mean {', '.join(f'{level:g}' for level in mean)}); "
            "for others give their tag, as in timm:vit_small_patch16_224.dino"
        )
    return tuple(remarks)


def _by_name(name: str, in_shape: Shape, weights: str | Path | None, seed: int) -> ForeignEncoder:
    if _library_of(name) is None and name not in CATALOGUE:
        if name.endswith(WEIGHT_SUFFIXES):
            raise UsageError(
                f"encoder {name!r} is a file of weights; give it as weights, and its architecture as the encoder"
            )
        forms = [*CATALOGUE, *LIBRARIES, "package.module:name"]
        raise unknown_name("encoder", name, forms)
    check_kind(name, in_shape)
    tensors = read_weights(weights) if weights else None
    plan = best_plan(name, in_shape, tensors)
    module = _built(name, seed, plan)
    remarks = [f"random weights (seed {seed})"]
    if tensors is not None:
        remarks = list(fill_known(module, name, tensors, str(weights), plan.stem))
    is_colour = plan.shape != in_shape
    backbone = with_pooling(GreyAsColour(module) if is_colour else module, in_shape)
    habit, digest = habit_of(name), sha256_of(Path(weights)) if weights else None
    # A mean of three colours says nothing of an encoder that was built for grey images.
    if habit.mean is not None and len(habit.mean) != plan.shape[0]:
        habit = Habit()
    remarks += ["grey images as three equal channels"] if is_colour else []
    return ForeignEncoder(name, backbone, habit.mean, habit.std, digest, tuple(remarks))


def best_plan(name: str, in_shape: Shape, tensors: Mapping[str, Tensor] | None) -> Plan:
    """The way to build an encoder with most of its weights in a file; that for the samples where none has more."""
    if len(in_shape) == 1:
        return Plan(in_shape)
    library, in_colour, has_weights = _library_of(name), (COLOURS, *in_shape[1:]), tensors is not None
    shapes = [in_shape, in_colour] if in_shape[0] == 1 and has_weights else [in_shape]
    if library and library != TIMM_PREFIX:
        shapes = [in_colour]  # these libraries' models are for colour images
    stems = [""]
    if has_stem(name):
        usual = stem_for(*in_shape[1:])
        stems = [usual, *(stem for stem in STEMS if stem != usual and has_weights)]
    plans = [Plan(shape, stem) for shape in shapes for stem in stems]
    if tensors is None or len(plans) == 1:
        return plans[0]
    with torch.device("meta"):  # only names and shapes are needed
        return max(plans, key=lambda plan: share_of(_built(name, 0, plan), tensors))


def _built(name: str, seed: int, plan: Plan) -> nn.Module:
    library = _library_of(name)
    with own_draws(seed):
        if library:
            return LIBRARIES[library].build(name.removeprefix(library), plan.shape)
        return CATALOGUE[name].build(plan.shape, plan.stem)


def _filled(module: nn.Module, name: str, in_shape: Shape, weights: str | Path | None) -> ForeignEncoder:
    """A module of the user's, with its own weights or a file's."""
    fitted = fit_weights(module, read_weights(weights), str(weights)) if weights else None
    digest = sha256_of(Path(weights)) if weights else None
    remarks = fitted or ("weights as the module has them",)
    return ForeignEncoder(name, with_pooling(module, in_shape), None, None, digest, remarks)


def _load_module(name: str) -> nn.Module:
    """Call the user's function and return its module."""

    def as_module(part: Any) -> nn.Module:
        if not isinstance(part, nn.Module):
            raise UsageError(f"the encoder must be a torch module, got {type(part).__name__}")
        return part

    try:
        return load_part("encoder", name, as_module).part
    except UsageError:
        hint = nearest(name.partition(":")[0] + ":", LIBRARIES)
        if hint:
            raise UsageError(f"unknown encoder {name!r}{hint}") from None
        raise


def _library_of(name: str) -> str | None:
    return next((prefix for prefix in LIBRARIES if name.startswith(prefix)), None)
