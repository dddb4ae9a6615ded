"""View presets: one for each kind of data, every number of which can be overridden."""

from typing import Any

import pytest

from counterpoint.core.errors import UsageError
from counterpoint.core.settings import ViewSettings
from counterpoint.data.views.colour import HUE_SHARE
from counterpoint.data.views.presets import PRESETS, UNCHANGED, choose_preset, plan_views


@pytest.mark.parametrize(
    ("kind", "shape", "name"),
    [
        ("vectors", (30,), "vectors"),
        ("images", (1, 8, 8), "digits"),
        ("images", (1, 200, 200), "digits"),
        ("images", (3, 32, 32), "small-images"),
        ("images", (3, 48, 48), "small-images"),
        ("images", (3, 40, 64), "photos"),
        ("images", (3, 224, 224), "photos"),
    ],
)
def test_the_preset_follows_the_data(kind: str, shape: tuple[int, ...], name: str) -> None:
    assert choose_preset(kind, shape)[0] == name  # pyright: ignore[reportArgumentType]
    assert choose_preset(kind, shape)[1]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", PRESETS)
def test_nothing_is_auto_in_a_plan(name: str) -> None:
    assert "auto" not in plan_views(ViewSettings(preset=name)).model_dump().values()
    assert PRESETS[name].keys() <= ViewSettings.model_fields.keys()
    assert PRESETS[name].items().isdisjoint(UNCHANGED.items())


def test_the_second_view_is_as_the_first_unless_the_preset_or_the_user_says_otherwise() -> None:
    def chances(preset: str, **asked: float) -> tuple[float | None, ...]:
        plan = plan_views(ViewSettings(preset=preset, **asked))  # pyright: ignore[reportArgumentType]
        return plan.blur, plan.blur_second, plan.solarize, plan.solarize_second

    assert chances("photos") == (0.5, 0.5, 0.0, 0.0)
    assert chances("photos", blur=0.2, solarize=0.1) == (0.2, 0.2, 0.1, 0.1)
    assert chances("photos", blur_second=0.0) == (0.5, 0.0, 0.0, 0.0)
    assert chances("directclr") == (1.0, 0.1, 0.0, 0.2)
    assert chances("directclr", blur=0.5) == (0.5, 0.1, 0.0, 0.2)
    differing = {name for name in PRESETS if chances(name)[::2] != chances(name)[1::2]}
    assert differing == {"directclr"}


# The papers' code: crop scale; brightness, contrast, saturation, hue; blur and solarise per view; bicubic.
RECIPES = {
    "lightly-cifar": ((0.08, 1), (0.4, 0.4, 0.4, 0.1), (0, 0), (0, 0), False),
    "alpha-cl": ((0.08, 1), (0.4, 0.4, 0.4, 0.1), (0, 0), (0, 0), False),
    "alpha-cl-stl10": ((0.08, 1), (0.8, 0.8, 0.8, 0.2), (1, 1), (0, 0), False),
    "ncl": ((0.08, 1), (0.8, 0.8, 0.8, 0.2), (0.5, 0.5), (0, 0), True),
    "directclr": ((0.08, 1), (0.4, 0.4, 0.2, 0.1), (1, 0.1), (0, 0.2), True),
    "mio": ((0.8, 1), (0.4, 0.4, 0.4, 0.1), (0, 0), (0, 0), False),
    "spectral": ((0.2, 1), (0.4, 0.4, 0.4, 0.1), (0, 0), (0, 0), False),
    "imagenet": ((0.08, 1), (0.8, 0.8, 0.8, 0.2), (0.5, 0.5), (0, 0), True),
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_presets_of_papers_are_those_of_their_code(name: str) -> None:
    plan = plan_views(ViewSettings(preset=name))
    strength = plan.jitter_strength
    strengths = (strength, strength, strength * plan.jitter_saturation, strength * HUE_SHARE)
    is_bicubic = plan.interpolation == "bicubic"
    seconds = (plan.blur, plan.blur_second), (plan.solarize, plan.solarize_second)
    assert (plan.crop_scale, pytest.approx(strengths), *seconds, is_bicubic) == RECIPES[name]
    assert (plan.flip, plan.jitter, plan.grayscale, plan.blur_sigma) == (0.5, 0.8, 0.2, (0.1, 2.0))


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("crop_scale", (0.0, 1.0)),
        ("crop_scale", (0.5, 1.2)),
        ("crop_scale", (0.9, 0.5)),
        ("blur_sigma", (0.0, 1.0)),
        ("blur_sigma", (2.0, 1.0)),
        ("zoom", (-1.0, 1.0)),
    ],
)
def test_a_pair_out_of_range_is_refused_with_the_range(name: str, pair: Any) -> None:
    with pytest.raises(UsageError, match=rf"views\.{name} must be a pair with 0 < lowest <= highest"):
        plan_views(ViewSettings(preset="photos", **{name: pair}))
