"""List what can be chosen by name.

examples:
  counterpoint list encoders
  counterpoint list recipes mio-cifar10-resnet18
  counterpoint list recipes --json"""

import ast
import json
import shutil
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from counterpoint.cli.arguments import JsonFlags, option, words_of
from counterpoint.core.catalogues import PACKAGE, held
from counterpoint.core.errors import UsageError, gone, unknown_name
from counterpoint.core.metric import described_metrics
from counterpoint.core.settings import TrainSettings, ViewSettings
from counterpoint.core.validation import dump_yaml, leaf_fields
from counterpoint.data.views.presets import PRESETS
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.runs.recipes import all_recipes, recipe_named

LONG = ("recipes", "settings")  # over a hundred of each would drown the rest
USED_MOST = (
    "infonce", "supcon", "cross-modal", "sigmoid", "barlow-twins", "vicreg", "cross-entropy", "dcl", "mio-v3",
    "alpha-cl", "spectral", "triplet",
)  # fmt: skip
PLACE, SUMMARY = 110, "names of data, methods, encoders, losses, metrics and the rest"


class ListFlags(JsonFlags):
    """Settings of ``list``: the list that is printed."""

    what: str | None = option(
        "data, methods, encoders, losses, views, metrics, corruptions, checks, recipes or settings (default: all)",
        place="WHAT",
    )
    name: str | None = option("of a recipe: all its settings", place="NAME")


def run(flags: ListFlags) -> None:
    """Print one list, or all."""
    if flags.what is not None and flags.what not in LISTS:
        replaced = gone(f"list {flags.what}")
        raise UsageError(replaced) if replaced else unknown_name("list", flags.what, LISTS)
    if flags.name is not None:
        if flags.what != "recipes":
            raise UsageError(f"NAME is for `counterpoint list recipes NAME`, got {flags.name!r}")
        recipe = recipe_named(flags.name)
        as_config = recipe.comment + dump_yaml(recipe.nested)  # `train --config` takes this text
        print(json.dumps(asdict(recipe), indent=2) if flags.as_json else as_config.rstrip())
        return
    titles = [flags.what] if flags.what else list(LISTS)
    if flags.as_json:
        recipes = [asdict(recipe) for recipe in all_recipes().values()]
        print(
            json.dumps({title: recipes if title == "recipes" else dict(LISTS[title]()) for title in titles}, indent=2)
        )
        return
    for title in titles:
        print(f"{title}:")
        if flags.what is None and title in LONG:
            print(f"  counterpoint list {title}")
            continue
        # Names on the left and their sentences beside them, as wide as the terminal; other programs read whole lines.
        rows, width = LISTS[title](), shutil.get_terminal_size((10_000, 0)).columns
        first = min(max(map(len, rows)) + 4, width // 2)
        fill = textwrap.TextWrapper(width, subsequent_indent=" " * first, break_on_hyphens=False).fill
        print("\n".join(fill(f"  {name:<{first - 2}}{sentence}") for name, sentence in rows.items()))


def catalogue_sentences(place: str, name: str = "CATALOGUE", parts: str = "") -> Mapping[str, str]:
    """Read a sentence for each name of a catalogue: its text, or a line of a docstring; no module is loaded.

    Args:
        place: the path of the module inside the package, or of a folder of such modules.
        name: the name of the catalogue there.
        parts: folder of further modules whose functions the catalogue names.

    >>> catalogue_sentences("nn/encoders.py")["mlp"]
    'two hidden layers for vectors, width 256'
    """
    sentences: dict[str, str] = {}
    others = [ast.parse(path.read_text(encoding="utf-8")) for path in (PACKAGE / parts).glob("*.py") if parts]
    for catalogue in held(place, name):
        nodes = [node for tree in (catalogue.tree, *others) for node in tree.body]
        defined = {node.name: node for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        entries: Any = catalogue.value
        for key, value in zip(entries.keys, entries.values, strict=True):
            documented = defined.get(ast.unparse(value).rpartition(".")[2])  # a name alone, or behind its module's
            constants = (node.value for node in ast.walk(value) if isinstance(node, ast.Constant))
            first = next((each for each in constants if isinstance(each, str)), "")
            text = first if documented is None else ast.get_docstring(documented)
            sentences[ast.literal_eval(key)] = str(text).splitlines()[0]
    return sentences


LISTS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "data": lambda: {**catalogue_sentences("data/sets"), **catalogue_sentences("data/formats")},
    "methods": lambda: {name: f"{method.sentence} ({method.source})" for name, method in METHODS.items()},
    "encoders": lambda: {
        **catalogue_sentences("nn/encoders.py"),
        **{f"{prefix}NAME": text for prefix, text in catalogue_sentences("nn/foreign.py", "LIBRARIES").items()},
        "package.module:name": "what makes a module of your own; in Python, the module itself: encoder=module",
        "(train)": "takes the names down to timm:NAME; evaluate, diagnose and embed take all as --encoder",
        "(weights)": "evaluate --weights FILE, train --init FILE: of any framework, docs/foreign-encoders.md",
    },
    "losses": lambda: {
        name: text.replace("``", "")
        for name, text in {**dict.fromkeys(USED_MOST, ""), **catalogue_sentences("losses")}.items()
    },
    "views": lambda: {
        name: ", ".join(
            f"{key.replace('_', '-')} {numbers[key]}" for key in ViewSettings.model_fields if key in numbers
        )
        or "views equal the sample"
        for name, numbers in PRESETS.items()
    },
    "metrics": lambda: {
        metric.name: f"{metric.definition.partition('. ')[0].rstrip('.')} ({metric.source})"
        for package in ("evaluation", "diagnostics")
        for metric in described_metrics(package).values()
    },
    "corruptions": lambda: catalogue_sentences("data/corruptions"),
    "checks": lambda: catalogue_sentences("diagnostics/findings.py", parts="diagnostics/checks"),
    "recipes": lambda: {name: recipe.line for name, recipe in all_recipes().items()},
    "settings": lambda: {path: words_of(field) for path, field in leaf_fields(TrainSettings)},
}
