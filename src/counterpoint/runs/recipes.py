"""Recipes: the settings of a published table as data, one file per data set and encoder. Loads without torch.

A recipe is a part of a config. Settings beside it in a config or on the command line win, and what it leaves open
is chosen for the data as ever. Files lie in a folder for each paper, ``runs/recipes/BIBKEY/NAME.yaml``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from counterpoint.core.catalogues import PACKAGE
from counterpoint.core.errors import UsageError, nearest
from counterpoint.core.settings import Settings, TrainSettings
from counterpoint.core.terminal_text import shown
from counterpoint.core.validation import flat, merge, nest, read_yaml_mapping


class Arm(Settings):
    """One line of a table: its differences from the recipe that it belongs to.

    Attributes:
        summary: what is different, after the file's data and encoder; if empty, that of the extended file's arm.
        reproduces: tables and figures; if empty, those of the file.
        departures: departures from the paper and its code, beyond those of the file.
        settings: a part of a config; each value replaces the file's.
    """

    summary: str = ""
    reproduces: list[str] = Field(default=[])
    departures: list[str] = Field(default=[])
    settings: dict[str, Any] = Field(default={})


class RecipeFile(Settings):
    """The content of a recipe file; its name is that of the recipe, and ``NAME-ARM`` that of each arm.

    Attributes:
        paper: key of the bibliography.
        summary: one line, ``DATA, ENCODER: what``.
        extends: name of a file whose settings, departures and arms this one continues from.
        reproduces: tables and figures of the paper.
        follows: source of the configuration, with file and line or section; if empty, that of the extended file.
        departures: departures from the paper and its code, one sentence each.
        settings: a part of a config.
        arms: other lines of the same tables; one that the extended file has is taken only if it is named here.
    """

    paper: str
    summary: str
    extends: str | None = None
    reproduces: list[str]
    follows: str = ""
    departures: list[str] = Field(default=[])
    settings: dict[str, Any] = Field(default={})
    arms: dict[str, Arm] = Field(default={})


@dataclass(frozen=True)
class Recipe:
    """One recipe, complete.

    Attributes:
        name: name of the file, or of file and arm.
        file: name of its file, without the suffix.
        paper: key of the bibliography.
        summary: one line.
        reproduces: tables and figures of the paper.
        follows: source of the configuration.
        departures: departures from the paper and its code.
        settings: values by dotted path, as in ``TrainSettings``.
    """

    name: str
    file: str
    paper: str
    summary: str
    reproduces: tuple[str, ...]
    follows: str
    departures: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    def line(self) -> str:
        """The recipe's line in ``counterpoint list recipes``."""
        return f"{self.paper}, {', '.join(self.reproduces)}: {self.summary}"

    @property
    def comment(self) -> str:
        """The source of the recipe and its departures from the paper, as comments of YAML."""
        lines = [f"recipe {self.name}: {self.line}", f"follows {self.follows}"]
        lines += [f"departs: {departure}" for departure in self.departures]
        return "".join(f"# {shown(line)}\n" for line in lines)

    @property
    def nested(self) -> dict[str, Any]:
        """The settings as a nested mapping."""
        return nest(self.settings)


def recipe_named(name: str) -> Recipe:
    """Return the recipe of a name.

    Args:
        name: name of the recipe, as ``counterpoint list recipes`` has it.

    Raises:
        UsageError: no recipe has the name; the message has the nearest one.

    >>> recipe_named("mio-cifar10-resnet18").settings["optim.learning_rate"]
    0.06
    """
    for path in _files():
        # mio-cifar10-resnet18-simclr is in mio-cifar10-resnet18.yaml.
        if f"{name}-".startswith(f"{path.stem}-") and name in (recipes := _recipes_of(path)):
            return recipes[name]
    # The error does not list all names, of which there are many.
    raise UsageError(
        f"unknown recipe {name!r}{nearest(name, all_recipes())} (`counterpoint list recipes` has them all)"
    )


def all_recipes() -> Mapping[str, Recipe]:
    """Every recipe of the papers by name, in the order of the papers and of their files."""
    return {name: recipe for path in _files() for name, recipe in _recipes_of(path).items()}


def with_recipe(user_settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Lay the user's settings over the recipe that they name; each setting is replaced as a whole.

    If the user asks for fewer epochs than the recipe has, its warm-up is shorter in the same proportion.

    Args:
        user_settings: a nested mapping of settings, not yet validated.

    Raises:
        UsageError: see ``recipe_named``.
    """
    name = user_settings.get("recipe")
    if not isinstance(name, str):
        return user_settings
    recipe = recipe_named(name)
    settings = {**recipe.settings, **_shortened_warmup(recipe, user_settings.get("epochs"))}
    user_values = flat(TrainSettings, user_settings)
    return merge(nest({path: value for path, value in settings.items() if path not in user_values}), user_settings)


def reasons_of(settings: TrainSettings) -> dict[str, str]:
    """Name the recipe as the reason of each value that it has set, by path."""
    if settings.recipe is None:
        return {}
    recipe = recipe_named(settings.recipe)
    reason = f"recipe {recipe.name} ({recipe.paper}, {', '.join(recipe.reproduces)})"
    values, shortened = flat(TrainSettings, settings.model_dump()), _shortened_warmup(recipe, settings.epochs)
    reasons = {path: reason for path, value in values.items() if _is_recipe_value(recipe.settings.get(path), value)}
    of_epochs = f"{reason}, in proportion to the epochs"
    return reasons | {path: of_epochs for path, value in shortened.items() if _is_recipe_value(value, values[path])}


def _shortened_warmup(recipe: Recipe, epochs: Any) -> dict[str, Any]:
    """Shorten the warm-up in proportion to the epochs, if they are fewer than the recipe's; else return nothing.

    >>> _shortened_warmup(recipe_named("ncl-cifar10-resnet18"), 20)
    {'optim.warmup_epochs': 1.0}
    """
    planned, warmup = recipe.settings.get("epochs"), recipe.settings.get("optim.warmup_epochs")
    if not isinstance(epochs, int) or not planned or not warmup or epochs >= planned:
        return {}
    return {"optim.warmup_epochs": round(warmup * epochs / planned, 3)}


def _files() -> list[Path]:
    return sorted(PACKAGE.glob("runs/recipes/*/*.yaml"), key=lambda path: (path.parent, path.stem))


@cache
def _read(path: Path) -> RecipeFile:
    return RecipeFile.model_validate(read_yaml_mapping(path))


def _recipes_of(path: Path) -> dict[str, Recipe]:
    file = _read(path)
    extended = [_read(place) for place in _files() if place.stem == file.extends]
    files = [*extended, file]
    follows = next((each.follows for each in reversed(files) if each.follows), "")
    # Data and encoder, with which the summaries of the file and of its arms begin.
    setting = "".join(file.summary.partition(": ")[:2]) if ": " in file.summary else ""
    recipes = {}
    for arm in ("", *file.arms):
        lines = [each.arms.get(arm, Arm()) for each in files]
        parts, own = [*files, *lines], lines[-1]
        name = f"{path.stem}-{arm}" if arm else path.stem
        recipes[name] = Recipe(
            name=name,
            file=path.stem,
            paper=file.paper,
            summary=f"{setting}{own.summary or lines[0].summary}" if arm else file.summary,
            reproduces=tuple(own.reproduces or file.reproduces),
            follows=follows,
            departures=tuple(each for part in parts for each in part.departures),
            settings={key: value for part in parts for key, value in flat(TrainSettings, part.settings).items()},
        )
    return recipes


def _is_recipe_value(written: Any, value: Any) -> bool:
    """Tell whether a value is the recipe's; YAML has lists where settings have pairs."""
    return written is not None and (list(value) if isinstance(value, tuple) else value) == written
