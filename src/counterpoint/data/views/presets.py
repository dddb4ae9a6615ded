"""View presets: every change of a view, for each kind of data and of each paper, whose every number can be overridden.

This module loads without torch, so that presets are listed at once.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Never

from counterpoint.core.errors import UsageError, unknown_name
from counterpoint.core.settings import ViewNumbers, ViewSettings
from counterpoint.core.user_objects import CUSTOM

if TYPE_CHECKING:
    from counterpoint.core.array_layout import Kind
    from counterpoint.data.views.image_statistics import Looks

SMALL_IMAGE_SIDE = 48
GREY_SHARE = 0.9  # of the pictures: then the few in colour are no reason for changes of colour
# Half of the pictures have one grey level in more than this share of their pixels: they are drawn. Between the values
# of grey CIFAR-10 (0.20) and of line drawings (0.81), the geometric mean.
DRAWN_BACKGROUND = 0.4
LIGHT = 128
NO_COLOUR = "no colour to change, and mirror images may mean something else"


ViewPlan = ViewNumbers[Never]  # every number of the views; none is ``auto``


def choose_preset(kind: "Kind", shape: tuple[int, ...], looks: "Looks | None" = None) -> tuple[str, str]:
    """Pick a preset by the data, with the reason.

    Args:
        kind: images or vectors.
        shape: shape of one sample.
        looks: statistics of a sample of the pictures, if they are known and not all blank.
    """
    if kind == "vectors":
        return "vectors", "the data are vectors"
    if looks is not None and looks.grey_share >= GREY_SHARE and looks.background > DRAWN_BACKGROUND:
        if looks.paper >= LIGHT:
            return "drawings", f"grey drawings on light paper ({looks}): {NO_COLOUR}, and small crops show paper only"
        if shape[0] != 1:
            return "digits", f"grey drawings on a dark ground ({looks}): {NO_COLOUR}, and small crops show ground only"
    if shape[0] == 1:
        return "digits", f"grey-level images: {NO_COLOUR}"
    if max(shape[1:]) <= SMALL_IMAGE_SIDE:
        return "small-images", f"colour images of at most {SMALL_IMAGE_SIDE} px: a blur would leave little"
    return "photos", "colour photographs"


def plan_views(settings: ViewSettings) -> ViewPlan:
    """Lay the user's numbers over the preset's; both views have the same chance of a blur unless one of them says more.

    Raises:
        UsageError: views of the user's own, which are not at hand here; an unknown preset; or a pair that is not
            (low, high) in range.
    """
    if settings.preset == CUSTOM:
        raise UsageError("this run was trained with views of your own; pass them as views=")
    if settings.preset not in PRESETS:
        raise unknown_name("views.preset", settings.preset, PRESETS)
    user_numbers = {name: value for name, value in settings if value != "auto"}
    numbers = {**UNCHANGED, **PRESETS[settings.preset], **user_numbers}
    seconds = {"blur_second": numbers["blur"], "solarize_second": numbers["solarize"]}
    plan = ViewPlan(**{**seconds, **numbers})
    for name, largest in (("crop_scale", 1), ("local_scale", 1), ("blur_sigma", math.inf), ("zoom", math.inf)):
        low, high = getattr(plan, name)
        # low > 0: there is no view of area 0 or zoom 0, and a blur divides by its sigma.
        if not 0 < low <= high <= largest:
            allowed = f"0 < lowest <= highest{' <= 1' if largest == 1 else ''}"
            raise UsageError(f"views.{name} must be a pair with {allowed}, got [{low:g}, {high:g}]")
    return plan


def local_size(plan: ViewPlan, size: tuple[int, int]) -> tuple[int, int]:
    """Height and width of a local view of pictures of a size."""
    height, width = (max(1, round(plan.local_side * side)) for side in size)
    return height, width


UNCHANGED = {
    **dict.fromkeys(("flip", "jitter", "jitter_strength", "grayscale", "blur", "solarize", "affine", "rotate"), 0.0),
    **dict.fromkeys(("translate", "shear", "noise", "dropout"), 0.0),
    **dict.fromkeys(("crop_scale", "zoom"), (1.0, 1.0)),
    "jitter_saturation": 1.0,
    "blur_sigma": (0.1, 2.0),
    "interpolation": "bilinear",
    "fill": "black",
    "local_side": 0.5,
    "local_scale": (0.05, 0.3),  # balestriero2025's
}

# lightly's CIFAR-10 benchmark and alphacl2022's CIFAR code agree: no blur at 32 px
SMALL_IMAGES = {"crop_scale": (0.08, 1.0), "flip": 0.5, "jitter": 0.8, "jitter_strength": 0.4, "grayscale": 0.2}

DIGITS = {
    **{"crop_scale": (0.6, 1.0), "affine": 1.0, "rotate": 15.0, "translate": 0.08},
    **{"zoom": (0.85, 1.15), "shear": 10.0},
}

# The numbers of each preset that differ from ``UNCHANGED``.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "digits": DIGITS,
    "drawings": {**DIGITS, "fill": "edge"},  # black corners would be the strongest lines on light paper
    "small-images": SMALL_IMAGES,
    # simclr2020, appendix A, at half colour strength
    "photos": {**SMALL_IMAGES, "blur": 0.5},
    "vectors": {"noise": 0.3, "dropout": 0.2},
    "lightly-cifar": SMALL_IMAGES,
    "alpha-cl": SMALL_IMAGES,
    # alphacl2022's STL-10 code: full colour strength, always blurred
    "alpha-cl-stl10": {**SMALL_IMAGES, "jitter_strength": 0.8, "blur": 1.0},
    # ncl2024's CIFAR code (solo-learn): bicubic crops, full colour strength, blurred even at 32 px
    "ncl": {**SMALL_IMAGES, "jitter_strength": 0.8, "blur": 0.5, "interpolation": "bicubic"},
    # directclr2022's code (grill2020's pair): half the strength for saturation, another blur and solarising per view
    "directclr": {
        **SMALL_IMAGES,
        "jitter_saturation": 0.5,
        "blur": 1.0,
        "blur_second": 0.1,
        "solarize_second": 0.2,
        "interpolation": "bicubic",
    },
    # mio2021's code: gentle crops, half colour strength
    "mio": {**SMALL_IMAGES, "crop_scale": (0.8, 1.0)},
    # haochen2021's code
    "spectral": {**SMALL_IMAGES, "crop_scale": (0.2, 1.0)},
    # simclr2020, appendix A, at full strength
    "imagenet": {**SMALL_IMAGES, "jitter_strength": 0.8, "blur": 0.5, "interpolation": "bicubic"},
}
