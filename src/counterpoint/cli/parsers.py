"""The verbs by name, and a parser whose errors are one line. Loads no verb, and no torch."""

import argparse
import ast
import difflib
import textwrap
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

from counterpoint.core.catalogues import held
from counterpoint.core.errors import gone, nearest
from counterpoint.core.terminal_text import shown

FIRST_COMMANDS = """What do you have?

a folder of photographs:
  counterpoint audit photos --out audit.html        contents and problems
  counterpoint recommend photos --out photos.yaml   a configuration, reasons
  counterpoint train --config photos.yaml --out runs/mine
  counterpoint report runs/mine                     is it good, what it learned
  counterpoint search runs/mine query.jpg           samples most like a picture

a table or an array (.npy, .npz, .csv, .parquet):
  counterpoint train --data table.npy --out runs/mine
  counterpoint embed runs/mine --out features.npz

an encoder from elsewhere, or its features:
  counterpoint evaluate --encoder timm:resnet50 --data photos
  counterpoint diagnose features.npy --labels labels.npy

nothing yet:
  counterpoint demo

counterpoint VERB --help explains each.
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with the nearest flag, and exit with code 2.

    Attributes:
        settable: settings that ``--set`` takes; ``--optim.momentum 0.9`` is short for ``--set optim.momentum=0.9``.
    """

    settable: Collection[str] = ()

    def __init__(self, **options: Any) -> None:
        # No abbreviations: --epoch would change its meaning with the next flag that begins so.
        super().__init__(formatter_class=_Filled, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        self.exit(2, f"{self.prog}: error: {shown(message)}\n")

    def parse_strictly(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse all words; a setting that has no flag of its own may be given as one."""
        for word in words:
            flag, sign, value = word.partition("=")
            if sign and value == "--" and flag.startswith("--"):  # argparse would take it for no value at all
                self.error(f"argument {flag}: expected one argument, got '--'")
        flags = list(self._option_string_actions)
        short = {path: f"--{path.replace('_', '-')}" for path in self.settable}
        settings = Parser(prog=self.prog, add_help=False)
        for path, flag in short.items():
            if flag not in flags:
                settings.add_argument(flag, dest=path)
        # The settings are parsed first: their values are then not taken for positional words.
        namespace, rest = settings.parse_known_args(words)
        namespace, unknown = self.parse_known_args(rest, namespace)
        for flag in (word.split("=", 1)[0] for word in unknown if word.startswith("-")):
            why = gone(flag[2:]) or gone(flag[2:].replace("-", "_")) or gone(f"{self.prog.rpartition(' ')[2]} {flag}")
            names = [*flags, *short.values()]
            # The nearest flag, or one whose last word is near: --optim.learning-rate for --learning-rate.
            last_words = {path.rsplit(".", 1)[-1]: path for path in names if "." in path}
            near = difflib.get_close_matches(flag.removeprefix("--"), last_words, n=1)
            hint = nearest(flag, names) or (f"; did you mean '{last_words[near[0]]}'?" if near else "")
            self.error(why or f"unknown flag {flag}{hint}")
        if unknown:
            self.error(
                f"unexpected word {unknown[0]!r}; values follow their flag, as in --data {unknown[0]} or --epochs 30"
            )
        return namespace


class _Filled(argparse.RawDescriptionHelpFormatter):
    """Formatter of help whose paragraphs fit the terminal; blocks with indented lines stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = text.split("\n\n")
        return "\n\n".join(block if "\n " in block else textwrap.fill(block, width) for block in blocks)


def overview() -> str:
    """Write the help of the command itself."""
    verbs = "\n".join(f"  {name:<11}{summary}" for name, summary in VERBS.items())
    purpose = "Learns representations by contrast and shows what it learned."
    return f"usage: counterpoint VERB ...\n\n{purpose}\n\n{verbs}\n\n{FIRST_COMMANDS}"


def load_verb(name: str) -> ModuleType:
    """Import the module of a verb: its docstring is its help, and ``run`` takes its settings."""
    return import_module(f"counterpoint.cli.verbs.{name.replace('-', '_')}_verb")


# Verbs with their lines in the order of their ``PLACE``, read as text: importing the modules takes longer.
VERBS: Mapping[str, str] = {
    module.rpartition(".")[2].removesuffix("_verb").replace("_", "-"): summary
    for _, summary, module in sorted(
        (*ast.literal_eval(line.value), line.module) for line in held("cli/verbs", "PLACE, SUMMARY")
    )
}
