"""`counterpoint list`: names and sentences of catalogues, read from their source, since importing them loads torch.

A catalogue is the literal mapping ``CATALOGUE`` of a module; each entry has a text, or names what has a docstring.
"""

import argparse
import ast
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

from counterpoint.cli.parsers import Parser, terminal_width, two_columns
from counterpoint.core.errors import unknown_name
from counterpoint.core.metric import described_metrics
from counterpoint.data.views.presets import PRESETS, ViewPlan
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.papers.reproductions import CATALOGUE as FIGURES

PLACE, SUMMARY = 110, "names of data, methods, encoders, losses, views, metrics, figures"
TEACH = """List what can be chosen by name.

example:
  counterpoint list encoders"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    parser.add_argument("what", nargs="?", metavar="WHAT", help=f"one of {', '.join(LISTS)} (default: all)")


def run(flags: argparse.Namespace) -> int:
    """Print one list, or all."""
    if flags.what is not None and flags.what not in LISTS:
        raise unknown_name("list", flags.what, LISTS)
    for title in [flags.what] if flags.what else LISTS:
        print(f"{title}:", *two_columns(LISTS[title](), terminal_width()), sep="\n")
    return 0


def _encoders() -> Mapping[str, str]:
    """Those of the catalogue, and the form of a name of timm's."""
    return {**catalogue_sentences("nn/encoders.py"), "timm:NAME": "any timm model by its name (extra `vision`)"}


def _changes(plan: ViewPlan) -> str:
    """Say which changes a preset makes."""
    neutral = PRESETS["none"]
    changed = [f"{name} {value}" for name, value in vars(plan).items() if value != getattr(neutral, name)]
    return ", ".join(changed).replace("_", "-") or "views equal the sample"


def catalogue_sentences(path: str) -> Mapping[str, str]:
    """A sentence for each name of a catalogue.

    Args:
        path: of the module inside the package, such as ``nn/encoders.py``, or of a folder, whose modules are read in
            the order of their names, those without a catalogue left out.

    >>> catalogue_sentences("nn/encoders.py")["mlp"]
    'two hidden layers for vectors, width 256'
    """
    *folders, name = path.split("/")
    folder = resources.files("counterpoint").joinpath(*folders)
    if name.endswith(".py"):
        return dict(_entries(folder, name))
    folder = folder.joinpath(name)
    texts = {each.name: each.read_text(encoding="utf-8") for each in folder.iterdir() if each.name.endswith(".py")}
    names = [name for name in sorted(texts) if "\nCATALOGUE: " in texts[name]]
    return {key: text for name in names for key, text in _entries(folder, name)}


def _entries(folder: Traversable, name: str) -> Iterator[tuple[str, str]]:
    """Entries of the catalogue in a file, those taken over from other catalogues among them."""
    tree = ast.parse(folder.joinpath(name).read_text(encoding="utf-8"))
    defined = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    literal = _catalogue(tree)
    for key, value in zip(literal.keys, literal.values, strict=True):
        if key is None:  # ** of another catalogue
            other = _other_module(value)
            yield from _entries(_folder_of(other, tree), f"{other}.py")
            continue
        names = defined.get(value.id) if isinstance(value, ast.Name) else None
        text = _first_text(value) if names is None else ast.get_docstring(names)
        yield ast.literal_eval(key), str(text).splitlines()[0]


def _catalogue(tree: ast.Module) -> ast.Dict:
    """The mapping that a module calls ``CATALOGUE``."""
    found = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "CATALOGUE"
    )
    literal = next(found)
    assert isinstance(literal, ast.Dict)
    return literal


def _other_module(value: ast.AST) -> str:
    """The module whose ``CATALOGUE`` an expression mentions."""
    return next(
        node.value.id
        for node in ast.walk(value)
        if isinstance(node, ast.Attribute) and node.attr == "CATALOGUE" and isinstance(node.value, ast.Name)
    )


def _folder_of(module: str, tree: ast.Module) -> Traversable:
    """Where the module lies that a file imports by this name; looked up by its path, since importing would load it."""
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    package = next(str(node.module) for node in imports if any(alias.name == module for alias in node.names))
    return resources.files("counterpoint").joinpath(*package.split(".")[1:])


def _first_text(value: ast.AST) -> str:
    """The first text in an expression."""
    constants = (node.value for node in ast.walk(value) if isinstance(node, ast.Constant))
    return next(constant for constant in constants if isinstance(constant, str))


LISTS: Mapping[str, Callable[[], Mapping[str, str]]] = {
    "data": lambda: {**catalogue_sentences("data/sets"), **catalogue_sentences("data/formats")},
    "methods": lambda: {name: f"{method.summary} ({method.source})" for name, method in METHODS.items()},
    "encoders": _encoders,
    "losses": lambda: catalogue_sentences("losses/__init__.py"),
    "views": lambda: {name: _changes(plan) for name, plan in PRESETS.items()},
    "metrics": lambda: {
        metric.name: f"{metric.definition.partition('. ')[0].rstrip('.')} ({metric.source})"
        for package in ("evaluation", "diagnostics")
        for metric in described_metrics(package).values()
    },
    "checks": lambda: catalogue_sentences("diagnostics/findings.py"),
    "figures": lambda: {name: figure.summary for name, figure in FIGURES.items()},
}
