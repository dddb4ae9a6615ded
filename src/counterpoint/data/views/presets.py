"""View presets: every change of a view, for each kind of data and of each paper, whose every number can be overridden.

This module loads without torch, so that presets are listed at once.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from counterpoint.core.errors import UsageError, unknown_name
from counterpoint.core.settings import ViewSettings
from counterpoint.core.user_objects import CUSTOM

if TYPE_CHECKING:
    from counterpoint.core.array_layout import Kind
    from counterpoint.data.views.image_statistics import Looks
    from counterpoint.data.views.spatial import Fill, Interpolation

SMALL_IMAGE_SIDE = 48
GREY_SHARE = 0.9  # of the pictures: then the few in colour are no reason for changes of colour
# Half of the pictures have one grey level in more than this share of their pixels: they are drawn. Between the values
# of grey CIFAR-10 (0.20) and of line drawings (0.81), the geometric mean.
DRAWN_BACKGROUND = 0.4
LIGHT = 128
NO_COLOUR = "no colour to change, and mirror images may mean something else"


@dataclass(frozen=True)
class ViewPlan:
    """Every number that views need; the fields are those of ``ViewSettings``. The default changes nothing.

    If ``blur_second`` or ``solarize_second`` is None, both views have the same chance.
    """

    crop_scale: tuple[float, float] = (1.0, 1.0)
    flip: float = 0.0
    jitter: float = 0.0
    jitter_strength: float = 0.0
    jitter_saturation: float = 1.0
    grayscale: float = 0.0
    blur: float = 0.0
    blur_second: float | None = None
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    solarize: float = 0.0
    solarize_second: float | None = None
    interpolation: "Interpolation" = "bilinear"
    affine: float = 0.0
    rotate: float = 0.0
    translate: float = 0.0
    zoom: tuple[float, float] = (1.0, 1.0)
    shear: float = 0.0
    fill: "Fill" = "black"
    noise: float = 0.0
    dropout: float = 0.0
    local_crops: int = 0
    local_side: float = 0.5
    local_scale: tuple[float, float] = (0.05, 0.3)  # balestriero2025's

    def local_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of a local view of pictures of a size."""
        height, width = (max(1, round(self.local_side * side)) for side in size)
        return height, width


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
    """Lay the user's numbers over the preset's.

    Raises:
        UsageError: views of the user's own, which are not at hand here; an unknown preset; or a pair that is not
            (low, high) in range.
    """
    if settings.preset == CUSTOM:
        raise UsageError("this run was trained with views of your own; pass them as views=")
    if settings.preset not in PRESETS:
        raise unknown_name("views.preset", settings.preset, PRESETS)
    overrides: dict[str, Any] = {
        name: value for name, value in settings.model_dump(exclude={"preset"}).items() if value != "auto"
    }
    plan = replace(PRESETS[settings.preset], **overrides)
    plan = replace(
        plan,
        blur_second=plan.blur if plan.blur_second is None else plan.blur_second,
        solarize_second=plan.solarize if plan.solarize_second is None else plan.solarize_second,
    )
    for name, largest in (("crop_scale", 1), ("local_scale", 1), ("blur_sigma", math.inf), ("zoom", math.inf)):
        low, high = getattr(plan, name)
        # low > 0: there is no view of area 0 or zoom 0, and a blur divides by its sigma.
        if not 0 < low <= high <= largest:
            allowed = f"0 < lowest <= highest{' <= 1' if largest == 1 else ''}"
            raise UsageError(f"views.{name} must be a pair with {allowed}, got [{low:g}, {high:g}]")
    return plan


def filled(settings: ViewSettings) -> ViewSettings:
    """The same settings with every ``auto`` replaced by the preset's number; the user's own views have no preset."""
    if settings.preset == CUSTOM:
        return settings
    return ViewSettings(preset=settings.preset, **asdict(plan_views(settings)))


# lightly's CIFAR-10 benchmark and alphacl2022's CIFAR code agree: no blur at 32 px
SMALL_IMAGES = ViewPlan(crop_scale=(0.08, 1.0), flip=0.5, jitter=0.8, jitter_strength=0.4, grayscale=0.2)

DIGITS = ViewPlan(crop_scale=(0.6, 1.0), affine=1.0, rotate=15.0, translate=0.08, zoom=(0.85, 1.15), shear=10.0)

PRESETS: Mapping[str, ViewPlan] = {
    "none": ViewPlan(),
    "digits": DIGITS,
    "drawings": replace(DIGITS, fill="edge"),  # black corners would be the strongest lines on light paper
    "small-images": SMALL_IMAGES,
    # simclr2020, appendix A, at half colour strength
    "photos": replace(SMALL_IMAGES, blur=0.5),
    "vectors": ViewPlan(noise=0.3, dropout=0.2),
    "lightly-cifar": SMALL_IMAGES,
    "alpha-cl": SMALL_IMAGES,
    # alphacl2022's STL-10 code: full colour strength, always blurred
    "alpha-cl-stl10": replace(SMALL_IMAGES, jitter_strength=0.8, blur=1.0),
    # ncl2024's CIFAR code (solo-learn): bicubic crops, full colour strength, blurred even at 32 px
    "ncl": replace(SMALL_IMAGES, jitter_strength=0.8, blur=0.5, interpolation="bicubic"),
    # directclr2022's code (grill2020's pair): half the strength for saturation, another blur and solarising per view
    "directclr": replace(
        SMALL_IMAGES,
        jitter_saturation=0.5,
        blur=1.0,
        blur_second=0.1,
        solarize_second=0.2,
        interpolation="bicubic",
    ),
    # mio2021's code: gentle crops, half colour strength
    "mio": replace(SMALL_IMAGES, crop_scale=(0.8, 1.0)),
    # haochen2021's code
    "spectral": replace(SMALL_IMAGES, crop_scale=(0.2, 1.0)),
    # simclr2020, appendix A, at full strength
    "imagenet": replace(SMALL_IMAGES, jitter_strength=0.8, blur=0.5, interpolation="bicubic"),
}
