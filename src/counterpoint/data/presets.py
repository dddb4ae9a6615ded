"""View presets, one per kind of source: complete recipes whose every number can be overridden."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from counterpoint.core.array_layout import Kind
from counterpoint.core.errors import UsageError, unknown_name
from counterpoint.core.settings import ViewSettings

SMALL_IMAGE_SIDE = 48


@dataclass(frozen=True)
class ViewPlan:
    """Every number that views need; the fields are those of ``ViewSettings``. The default changes nothing."""

    crop_scale: tuple[float, float] = (1.0, 1.0)
    flip: float = 0.0
    jitter: float = 0.0
    jitter_strength: float = 0.0
    grayscale: float = 0.0
    blur: float = 0.0
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    affine: float = 0.0
    rotate: float = 0.0
    translate: float = 0.0
    zoom: tuple[float, float] = (1.0, 1.0)
    shear: float = 0.0
    noise: float = 0.0
    dropout: float = 0.0


def choose_preset(kind: Kind, shape: tuple[int, ...]) -> tuple[str, str]:
    """Pick a preset by the data, with the reason."""
    if kind == "vectors":
        return "vectors", "the data are vectors"
    if shape[0] == 1:
        return "digits", "grey-level images: no colour to change, and mirror images may mean something else"
    if max(shape[1:]) <= SMALL_IMAGE_SIDE:
        return "small-images", f"colour images of at most {SMALL_IMAGE_SIDE} px: a blur would leave little"
    return "photos", "colour photographs"


def plan_views(settings: ViewSettings) -> ViewPlan:
    """Lay the user's numbers over the preset's.

    Raises:
        UsageError: unknown preset, or a pair that is not (low, high) in range.
    """
    if settings.preset not in PRESETS:
        raise unknown_name("views.preset", settings.preset, PRESETS)
    asked: dict[str, Any] = {
        name: value for name, value in settings.model_dump(exclude={"preset"}).items() if value != "auto"
    }
    plan = replace(PRESETS[settings.preset], **asked)
    for name, (low, high), smallest, largest in (
        ("crop_scale", plan.crop_scale, 0.0, 1.0),
        ("blur_sigma", plan.blur_sigma, 0.0, math.inf),
        ("zoom", plan.zoom, 0.0, math.inf),
    ):
        if not smallest < low <= high <= largest:
            allowed = f"0 < lowest <= highest{' <= 1' if largest == 1 else ''}"
            raise UsageError(f"views.{name} must be a pair with {allowed}, got [{low:g}, {high:g}]")
    return plan


def filled(settings: ViewSettings) -> ViewSettings:
    """The same settings with every ``auto`` replaced by the preset's number."""
    return ViewSettings(preset=settings.preset, **asdict(plan_views(settings)))


PRESETS: Mapping[str, ViewPlan] = {
    "none": ViewPlan(),
    "digits": ViewPlan(crop_scale=(0.6, 1.0), affine=1.0, rotate=15.0, translate=0.08, zoom=(0.85, 1.15), shear=10.0),
    # lightly's CIFAR-10 benchmark, which is also alphacl2022's: no blur at 32 px
    "small-images": ViewPlan(crop_scale=(0.08, 1.0), flip=0.5, jitter=0.8, jitter_strength=0.4, grayscale=0.2),
    # simclr2020, appendix A, at half colour strength
    "photos": ViewPlan(crop_scale=(0.08, 1.0), flip=0.5, jitter=0.8, jitter_strength=0.4, grayscale=0.2, blur=0.5),
    "vectors": ViewPlan(noise=0.3, dropout=0.2),
}
