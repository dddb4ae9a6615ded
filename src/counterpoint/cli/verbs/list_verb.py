"""`counterpoint list`: names and sentences of catalogues, read from their source, since importing them loads torch.

A catalogue is the literal mapping ``CATALOGUE`` of a module; each entry has a text, or names what has a docstring.
"""

import argparse
import ast
from collections.abc import Callable, Iterator, Mapping

from counterpoint.cli.parsers import Parser, terminal_width, two_columns
from counterpoint.core.catalogues import Held, held
from counterpoint.core.errors import unknown_name
from counterpoint.core.metric import described_metrics
from counterpoint.data.views.presets import PRESETS, ViewPlan
from counterpoint.evaluation.named_protocols import CATALOGUE as PROTOCOLS
from counterpoint.methods.catalogue import CATALOGUE as METHODS
from counterpoint.papers.reproductions import listed

PLACE, SUMMARY = 110, "names of data, methods, encoders, losses, metrics and the rest"
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
    "methods": lambda: {name: f"{method.summary} ({method.source})" for name, method in METHODS.items()},
    "encoders": _encoders,
    "losses": lambda: catalogue_sentences("losses"),
    "views": lambda: {name: _changes(plan) for name, plan in PRESETS.items()},
    "metrics": lambda: {
        metric.name: f"{metric.definition.partition('. ')[0].rstrip('.')} ({metric.source})"
        for package in ("evaluation", "diagnostics")
        for metric in described_metrics(package).values()
    },
    "corruptions": lambda: catalogue_sentences("data/corruptions"),
    "protocols": lambda: {name: protocol.table for name, protocol in PROTOCOLS.items()},
    "checks": lambda: catalogue_sentences("diagnostics/checks"),
    "figures": lambda: {item.name: item.summary for item in listed()},
}
