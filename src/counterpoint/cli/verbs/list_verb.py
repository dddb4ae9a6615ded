"""`counterpoint list`: names and sentences of catalogues, read from their source, since importing them loads torch.

A catalogue is the literal mapping ``CATALOGUE`` of a module; each entry has a text, or names what has a docstring.
"""

import argparse
import ast
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from counterpoint.cli.arguments import described_settings
from counterpoint.cli.parsers import Parser, terminal_width, two_columns
from counterpoint.core.catalogues import Held, held
from counterpoint.core.errors import UsageError, unknown_name
from counterpoint.core.metric import described_metrics
from counterpoint.core.validation import dump_yaml
from counterpoint.data.views.presets import PRESETS, ViewPlan
from counterpoint.evaluation.named_protocols import CATALOGUE as PROTOCOLS
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.runs.recipes import Recipe, all_recipes, recipe_named

PLACE, SUMMARY = 110, "names of data, methods, encoders, losses, metrics and the rest"
TEACH = """List what can be chosen by name.

examples:
  counterpoint list encoders
  counterpoint list recipes mio-cifar10-resnet18
  counterpoint list recipes --json"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("what", nargs="?", metavar="WHAT", help=f"one of {', '.join(LISTS)} (default: all)")
    parser.add_argument("name", nargs="?", metavar="NAME", help="of a recipe: all that it says")
    parser.add_argument("--json", action="store_true", help="print JSON; of recipes with all that they say")


def run(flags: argparse.Namespace) -> int:
    """Print one list, or all."""
    if flags.what is not None and flags.what not in LISTS:
        raise unknown_name("list", flags.what, LISTS)
    if flags.name is not None and flags.what != "recipes":
        raise UsageError(f"NAME is for `counterpoint list recipes NAME`, got {flags.name!r}")
    if flags.name is not None:
        return _print_recipe(recipe_named(flags.name), is_json=flags.json)
    titles = [flags.what] if flags.what else list(LISTS)
    if flags.json:
        print(json.dumps({title: _records(title) for title in titles}, indent=2))
        return 0
    for title in titles:
        # Over a hundred recipes, or settings, would drown the rest.
        lines = SHORT.get(title, LISTS[title])() if flags.what is None else LISTS[title]()
        print(f"{title}:", *two_columns(lines, terminal_width()), sep="\n")
    return 0


def _records(title: str) -> Any:
    """A list for other programs: sentences by name, of recipes everything."""
    return [asdict(recipe) for recipe in all_recipes().values()] if title == "recipes" else dict(LISTS[title]())


def _recipe_files() -> Mapping[str, str]:
    """The first recipe of each file, and how many more it has."""
    recipes = all_recipes()
    arms = Counter(recipe.file for recipe in recipes.values())
    lines = {file: f"{recipes[file].line}{f', and {more - 1} more' * (more > 1)}" for file, more in arms.items()}
    return {**lines, "(all)": "counterpoint list recipes"}


def _print_recipe(recipe: Recipe, *, is_json: bool) -> int:
    """All that one recipe says; what its settings are as a config that `train --config` takes."""
    if is_json:
        print(json.dumps(asdict(recipe), indent=2))
        return 0
    comments = [f"{recipe.name}: {recipe.line}", f"follows {recipe.follows}"]
    comments += [f"departs: {departure}" for departure in recipe.departures]
    print(*(f"# {line}" for line in comments), dump_yaml(recipe.asked), sep="\n", end="")
    return 0


def _encoders() -> Mapping[str, str]:
    """Those of the catalogue, those of libraries, and the forms of others."""
    libraries = catalogue_sentences("nn/library_encoders.py", "LIBRARIES")
    return {
        **catalogue_sentences("nn/encoders.py"),
        **{f"{prefix}NAME": sentence for prefix, sentence in libraries.items()},
        "FILE.onnx": "a network with its weights, to be evaluated (extra `onnx`)",
        "package.module:name": "what makes a module of your own; in Python, the module itself: encoder=module",
        "(train)": "takes the names down to timm:NAME; evaluate, diagnose and embed take all as --encoder",
        "(weights)": "evaluate --weights FILE, train --init FILE: of any framework, docs/foreign-encoders.md",
    }


def _changes(plan: ViewPlan) -> str:
    """Say which changes a preset makes."""
    neutral = PRESETS["none"]
    changed = [f"{name} {value}" for name, value in vars(plan).items() if value != getattr(neutral, name)]
    return ", ".join(changed).replace("_", "-") or "views equal the sample"


def catalogue_sentences(place: str, name: str = "CATALOGUE") -> Mapping[str, str]:
    """A sentence for each name of a catalogue.

    Args:
        place: of the module inside the package, or of a folder of such modules.
        name: of the catalogue there.

    >>> catalogue_sentences("nn/encoders.py")["mlp"]
    'two hidden layers for vectors, width 256'
    """
    return {entry: sentence for each in held(place, name) for entry, sentence in _entries(each)}


def _entries(catalogue: Held) -> Iterator[tuple[str, str]]:
    """The entries of one catalogue."""
    defined = {node.name: node for node in catalogue.tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert isinstance(catalogue.value, ast.Dict)
    for key, value in zip(catalogue.value.keys, catalogue.value.values, strict=True):
        assert key is not None
        documented = defined.get(value.id) if isinstance(value, ast.Name) else None
        text = _first_text(value) if documented is None else ast.get_docstring(documented)
        yield ast.literal_eval(key), str(text).splitlines()[0]


def _first_text(value: ast.AST) -> str:
    """The first text in an expression."""
    constants = (node.value for node in ast.walk(value) if isinstance(node, ast.Constant))
    return next(constant for constant in constants if isinstance(constant, str))


LISTS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "data": lambda: {**catalogue_sentences("data/sets"), **catalogue_sentences("data/formats")},
    "methods": lambda: {name: f"{method.sentence} ({method.source})" for name, method in METHODS.items()},
    "encoders": _encoders,
    "losses": lambda: catalogue_sentences("losses"),
    "views": lambda: {name: _changes(plan) for name, plan in PRESETS.items()},
    "metrics": lambda: {
        metric.name: f"{metric.definition.partition('. ')[0].rstrip('.')} ({metric.source})"
        for package in ("evaluation", "diagnostics")
        for metric in described_metrics(package).values()
    },
    "corruptions": lambda: catalogue_sentences("data/corruptions.py"),
    "protocols": lambda: {name: protocol.table for name, protocol in PROTOCOLS.items()},
    "checks": lambda: catalogue_sentences("diagnostics/checks"),
    "recipes": lambda: {name: recipe.line for name, recipe in all_recipes().items()},
    "settings": described_settings,
}
SHORT: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "recipes": _recipe_files,
    "settings": lambda: {"(all)": "counterpoint list settings"},
}
