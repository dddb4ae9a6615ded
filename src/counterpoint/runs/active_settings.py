"""Find the settings that have an effect in a run, and refuse given settings that have none.

A setting without effect keeps its default, is not filled in, and is absent from ``resolved.yaml``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from counterpoint.core.array_layout import Kind
from counterpoint.core.dist import world_size
from counterpoint.core.errors import UsageError, unknown_name
from counterpoint.core.settings import TrainSettings, ViewSettings
from counterpoint.core.user_files import as_path
from counterpoint.core.user_objects import CUSTOM
from counterpoint.core.validation import leaf_fields
from counterpoint.data.formats.tar_shards import find_shards
from counterpoint.data.sources import form_of, forms_that_read
from counterpoint.data.views.presets import PRESETS, ViewPlan, plan_views
from counterpoint.diagnostics.evidence import Lever
from counterpoint.diagnostics.remedies import USUAL_BATCH, USUAL_FEATURES
from counterpoint.losses.build import parameters_of, shared_settings
from counterpoint.losses.distribution import CATALOGUE as OF_DISTRIBUTIONS
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.methods.catalogue import ENCODES_BOTH, MethodEntry, chosen, method_named
from counterpoint.methods.wiring import check_loss
from counterpoint.nn.encoders import check_encoder_name, has_stem

AUTO = "auto"
DEFAULTS: Mapping[str, Any] = {
    path: field.get_default(call_default_factory=True) for path, field in leaf_fields(TrainSettings)
}


@dataclass(frozen=True)
class Facts:
    """The settings and the shape of a sample, which decide what settings have an effect.

    Attributes:
        settings: settings of the run, as far as they are known; ``auto`` stands for the method's default.
        shape: shape of one sample; None before the data are open.
    """

    settings: TrainSettings
    shape: tuple[int, ...] | None

    @cached_property
    def method(self) -> MethodEntry:
        """The chosen method."""
        return method_named(self.settings.method)

    @cached_property
    def loss(self) -> str:
        """Name of the loss."""
        return chosen(self.settings.loss.name, self.method.loss)

    @cached_property
    def loss_takes(self) -> frozenset[str]:
        """The settings of ``loss`` and ``temperature`` that the loss, as it is wired, reads."""
        if self.method.wiring == "queue":  # all keys of the queue are negatives, and DCL is epsilon 0
            return frozenset({"temperature"} if self.loss == "dcl" else {"temperature", "epsilon"})
        if self.loss == CUSTOM:  # it is made before the settings are read
            return frozenset()
        # A method's options are those of its own loss; another loss may not know them.
        own = dict(self.method.options) if self.loss == self.method.loss else {}
        return shared_settings(self.loss, own | self.settings.loss.options)

    @cached_property
    def projector(self) -> str:
        """Kind of projector."""
        return chosen(self.settings.projector.kind, self.method.projector)

    @cached_property
    def plan(self) -> ViewPlan:
        """Every number of the views."""
        return plan_views(self.settings.views)

    def lacks_loss_setting(self, name: str) -> str | None:
        """Return why a setting that many losses share has no effect here; None if it has one."""
        if name in self.loss_takes:
            return None
        if self.loss == CUSTOM:
            return "a loss of your own takes its arguments from --loss.options, or where you make it"
        if "rule" in parameters_of(self.loss):
            return f"loss {self.loss} takes negatives; its rule may take more, as in --loss.options '{{{name}: 0.1}}'"
        names = ", ".join(sorted(self.loss_takes)) or "none of temperature, epsilon and negatives"
        return f"loss {self.loss} takes {names}"

    def lacks_part(self, attribute: str, part: str) -> str | None:
        """Return why a setting of a part that only some methods have has no effect here; None if it has one."""
        if getattr(self.method, attribute) is not None:
            return None
        owners = [name for name, method in METHODS.items() if getattr(method, attribute) is not None]
        return f"it has no {part}; {' and '.join(owners)} {'have' if len(owners) > 1 else 'has'} one"


def check_choices(settings: TrainSettings) -> None:
    """Refuse unknown names, and settings without effect, before any data are read.

    Raises:
        UsageError: a name is unknown (the message has the nearest), or a setting would change nothing.
    """
    method = method_named(settings.method)
    if settings.encoder not in (AUTO, CUSTOM):
        check_encoder_name(settings.encoder)
    if settings.loss.name != AUTO:
        if settings.loss.name != CUSTOM:
            parameters_of(settings.loss.name)
        check_loss(settings.method, method, settings.loss.name)
    if settings.views.preset not in (AUTO, CUSTOM, *PRESETS):
        raise unknown_name("views.preset", settings.views.preset, PRESETS)
    refuse_idle(settings, idle_settings(settings))


def idle_settings(settings: TrainSettings, shape: tuple[int, ...] | None = None) -> Mapping[str, str]:
    """Return the settings that have no effect, each with the reason and with what has an effect.

    Args:
        settings: settings of the run, as far as they are known.
        shape: shape of one sample, if the views are filled in, too; None before.
    """
    facts = Facts(settings, shape)
    # Before the data are open, it is unknown whether they are pictures.
    rules = RULES if shape is None else {**RULES, **(VECTOR_RULES if len(shape) == 1 else IMAGE_RULES)}
    rules = {**RULES, **OWN_VIEW_RULES} if settings.views.preset == CUSTOM else rules
    return {path: why for path, rule in rules.items() if (why := rule(facts)) is not None}


def refuse_idle(settings: TrainSettings, idle: Mapping[str, str]) -> None:
    """Refuse a setting that differs from its default and has no effect.

    Raises:
        UsageError: names the setting, the method, and what has an effect.
    """
    for path, why in idle.items():
        if attrgetter(path)(settings) != DEFAULTS[path]:  # a default asks for nothing
            raise UsageError(f"{path} has no effect with method {settings.method}: {why}; leave it out")


def without_idle(settings: TrainSettings, idle: Mapping[str, str]) -> dict[str, Any]:
    """Return settings as plain data without those that have no effect; what an older version recorded stays."""
    values = settings.model_dump(mode="json")
    for path in idle:
        if attrgetter(path)(settings) == DEFAULTS[path]:
            section, _, leaf = path.rpartition(".")  # two levels at most: temperature, loss.epsilon
            (values[section] if section else values).pop(leaf)
    return values


def _needs_resnet(facts: Facts) -> str | None:
    """Stem and initial kernels need a ResNet; which encoder ``auto`` stands for is known only with the data."""
    encoder = facts.settings.encoder
    if facts.shape is not None and len(facts.shape) == 1:
        return "the data are vectors; built-in ResNets, which have several stems, take images"
    may_have_stems = encoder == AUTO or has_stem(encoder)
    return None if may_have_stems else f"encoder {encoder} has one stem, drawn in one way; ResNets of ours have several"


def _needs_value(path: str, *values: str) -> Callable[[Facts], str | None]:
    """Make the rule of a setting that is read only if the setting at ``path`` has one of ``values``."""

    def rule(facts: Facts) -> str | None:
        value = facts.projector if path == "projector.kind" else attrgetter(path)(facts.settings)
        return None if value in values else f"{path} is {value}; it is for {' and '.join(values)}"

    return rule


_NEEDS_MLP = _needs_value("projector.kind", "mlp")


def _needs_change(name: str, *, unless: float | tuple[float, float] = 0.0) -> Callable[[Facts], str | None]:
    """Make the rule of a setting of a change of pictures; it has no effect if the change is never made."""

    def rule(facts: Facts) -> str | None:
        # A change that only the second view makes is one, too, as `blur_second` may.
        values = {getattr(facts.plan, name), getattr(facts.plan, f"{name}_second", unless)} - {None, unless}
        return None if values else f"views.{name} is {getattr(facts.plan, name)}, which changes nothing"

    return rule


def _needs_colour(facts: Facts) -> str | None:
    assert facts.shape is not None
    return None if facts.shape[0] == 3 else "the data are grey"


def _needs_form(name: str) -> Callable[[Facts], str | None]:
    """Make the rule of a setting of ``source`` that only some forms of data read."""

    def rule(facts: Facts) -> str | None:
        form, forms = form_of(facts.settings.data), forms_that_read(name)
        # A folder counts as tar shards if it has some; of a million files that takes long to see.
        if name == "label_column" and facts.settings.source.label_column != AUTO:
            forms += ("an image folder",) if find_shards(as_path(str(facts.settings.data))) else ()
        return None if form is None or form in forms else f"the data are {form}; it is for {', '.join(forms)}"

    return rule


# Each rule returns why its setting has no effect, or None if it has one. Rules of changes wait for the data.
RULES: Mapping[str, Callable[[Facts], str | None]] = {
    "stem": _needs_resnet,
    "initial": _needs_resnet,
    "temperature": lambda facts: facts.lacks_loss_setting("temperature"),
    "loss.epsilon": lambda facts: facts.lacks_loss_setting("epsilon"),
    "loss.negatives": lambda facts: facts.lacks_loss_setting("negatives"),
    "target.momentum": lambda facts: facts.lacks_part("momentum", "momentum encoder"),
    "target.queue_size": lambda facts: facts.lacks_part("queue_size", "queue"),
    "target.predictor_hidden": lambda facts: facts.lacks_part("predictor_share", "predictor"),
    **{f"projector.{name}": _NEEDS_MLP for name in ("layers", "hidden", "norm")},
    "projector.output_norm": lambda facts: (
        _NEEDS_MLP(facts)
        or (
            "projector.norm is none; a norm after the last layer goes with those before it"
            if chosen(facts.settings.projector.norm, facts.method.projector_norm) == "none"
            else None
        )
    ),
    "projector.features": _needs_value("projector.kind", "linear", "mlp", "sparse"),
    "projector.active": _needs_value("projector.kind", "sparse"),
    "projector.rank": _needs_value("projector.kind", "low-rank"),
    "optim.momentum": _needs_value("optim.name", "sgd", "lars"),
    "optim.trust": _needs_value("optim.name", "lars"),
    "optim.trust_clip": _needs_value("optim.name", "lars"),
    "optim.decay_all": lambda facts: "optim.weight_decay is 0" if facts.settings.optim.weight_decay == 0 else None,
    **{
        f"optim.{name}": _needs_value("optim.schedule", "cosine", "epoch-cosine")
        for name in ("final_share", "peak_epochs", "cosine_epochs")
    },
    "views.local_crops": lambda facts: (
        None
        if facts.method.wiring == "joint" and facts.loss in OF_DISTRIBUTIONS
        else f"loss {facts.loss} compares two views; {', '.join(OF_DISTRIBUTIONS)} (--loss.name) take more"
    ),
    "engine.chunk_norm": lambda facts: (
        "engine.chunk_size is none; chunks need it" if facts.settings.engine.chunk_size == "none" else None
    ),
    "engine.encode_views": lambda facts: (
        None if facts.method.wiring in ENCODES_BOTH else "it encodes each view separately"
    ),
    "engine.strategy": lambda facts: (
        None if world_size() > 1 else "one process trains; it is for several ranks, as torchrun starts them"
    ),
    "source.imbalance_ratio": _needs_value("source.imbalance", "exponential", "step"),
    **{
        f"source.{name}": _needs_form(name)
        for name in ("root", "image_column", "label_column", "drop_columns", "columns", "max_bad", "altered")
    },
}
VECTOR_RULES: Mapping[str, Callable[[Facts], str | None]] = {
    f"views.{name}": lambda facts: "the data are vectors, which views.noise and views.dropout change"
    for name in ViewSettings.model_fields
    if name not in ("preset", "noise", "dropout")
}
OWN_VIEW_RULES: Mapping[str, Callable[[Facts], str | None]] = {
    f"views.{name}": lambda facts: "views of your own take their numbers where you make them"
    for name in ViewSettings.model_fields
    if name != "preset"
}
IMAGE_RULES: Mapping[str, Callable[[Facts], str | None]] = {
    **{f"views.{name}": lambda facts: "the data are images, and this changes vectors" for name in ("noise", "dropout")},
    "views.grayscale": _needs_colour,
    "views.jitter_strength": _needs_change("jitter"),
    "views.jitter_saturation": lambda facts: _needs_colour(facts) or _needs_change("jitter")(facts),
    "views.blur_sigma": _needs_change("blur"),
    "views.interpolation": _needs_change("crop_scale", unless=(1.0, 1.0)),
    **{f"views.{name}": _needs_change("local_crops") for name in ("local_side", "local_scale")},
    **{f"views.{name}": _needs_change("affine") for name in ("rotate", "translate", "zoom", "shear", "fill")},
}


def levers_of(settings: TrainSettings, kind: Kind) -> frozenset[Lever]:
    """Return what can be changed in a run, so that remedies of a diagnosis name only settings that its method has.

    Args:
        settings: settings of the run, with every ``auto`` filled in.
        kind: kind of the run's samples; only pictures can be previewed.
    """
    method, projector = METHODS[settings.method], settings.projector.kind
    has_views, is_joint = settings.views.preset != "none", method.wiring == "joint" and not method.needs_labels
    widths = [width for width in (settings.projector.features, settings.projector.hidden) if isinstance(width, int)]
    is_narrow = min(widths, default=USUAL_FEATURES) < USUAL_FEATURES
    is_large = isinstance(settings.batch_size, int) and settings.batch_size >= USUAL_BATCH
    availability: dict[Lever, bool] = {
        "learning rate": True,
        "temperature": settings.loss.name != CUSTOM and "temperature" in parameters_of(settings.loss.name),
        "views": has_views,
        "no views": not has_views,
        "colour": has_views and kind == "images" and settings.views.jitter in (0, AUTO),
        "kept colour": has_views and kind == "images" and settings.views.jitter not in (0, AUTO),
        "preview": has_views and kind == "images",
        "epochs": True,
        "batch": not is_large,
        "representation": projector != "none" or settings.output.d0 != "all",
        "projector": projector != "mlp" and method.d0_share is None,  # DirectCLR has no projector by design
        "narrow": projector == "mlp" and is_narrow,
        "features": projector in ("linear", "mlp"),
        "loss options": bool(settings.loss.options),
        "relu-gelu": settings.output.nonnegative == "relu",
        "directclr": is_joint and method.d0_share is None and projector != "none",
        "raw rows": kind == "vectors",
        "sampling": settings.source.sampling == "natural" and settings.source.labels != "none",
    }
    return frozenset(lever for lever, is_available in availability.items() if is_available)
