"""The verbs by name, the parser of each, and what their modules share. Loads only the verb asked for, and no torch."""

import argparse
import ast
import os
import shutil
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from counterpoint.core.catalogues import held
from counterpoint.core.errors import gone, nearest
from counterpoint.core.ranks import read_ranks
from counterpoint.core.terminal_text import shown

UNLIMITED = 10_000  # columns of what is read by other programs: one line for each name
NARROWEST = 30  # columns that a sentence always has
FIRST_COMMANDS = """What do you have?

a folder of photographs:
  counterpoint audit photos --out audit.html        what is there, and wrong
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
"""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with the nearest flag, and exit with code 2.

    Attributes:
        settable: settings that ``--set`` takes; ``--optim.momentum 0.9`` is short for ``--set optim.momentum=0.9``.
    """

    settable: Sequence[str] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", _Filled)
        # No abbreviations: --epoch would change its meaning with the next flag that begins so.
        super().__init__(*args, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        self.exit(2, f"{self.prog}: error: {shown(message)}\n")

    def parse_strictly(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse all words; ``--batch_size`` is taken for ``--batch-size``."""
        for word in words:
            flag, sign, value = word.partition("=")
            if sign and value == "--" and flag.startswith("--"):  # argparse would take it for no value at all
                self.error(f"argument {flag}: expected one argument, got '--'")
        flags = [flag for action in self._actions for flag in action.option_strings]
        namespace, unknown = self.parse_known_args(self._with_set([_dashed(word) for word in words], flags))
        flags += [f"--{path.replace('_', '-')}" for path in self.settable]
        for word in unknown:
            if word.startswith("-"):
                flag = word.split("=", 1)[0]
                if told := gone(flag[2:]) or gone(f"{self.prog.rpartition(' ')[2]} {flag}"):
                    self.error(told)
                self.error(f"unknown flag {flag}{nearest(flag, flags) or _by_last_word(flag, flags)}")
        if unknown:
            lacks_data = "--data" in flags and not any(word.startswith("--data") for word in words)
            example = f"--data {unknown[0]}" if lacks_data else "--epochs 30"
            self.error(f"unexpected word {unknown[0]!r}; values follow their flag, as in {example}")
        return namespace

    def _with_set(self, words: Sequence[str], flags: Collection[str]) -> list[str]:
        """Write settings that have no flag of their own with ``--set``."""
        written, rest = [], iter(words)
        for word in rest:
            flag, sign, value = word.partition("=")
            path = flag.removeprefix("--").replace("-", "_")
            if word.startswith("--") and flag not in flags and path in self.settable:
                value = value if sign else next(rest, "--")
                if value.startswith("--"):
                    self.error(f"argument {flag}: expected one argument")
                written += ["--set", f"{path}={value}"]
            else:
                written.append(word)
        return written


class _Filled(argparse.RawDescriptionHelpFormatter):
    """Help whose paragraphs fit the terminal; blocks with indented lines (examples, lists) stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = text.split("\n\n")
        return "\n\n".join(block if "\n " in block else textwrap.fill(block, width) for block in blocks)


class VerbModule(Protocol):
    """What the module of a verb holds."""

    PLACE: int
    SUMMARY: str
    TEACH: str

    def add_flags(self, parser: Parser) -> None:
        """Add the verb's arguments."""
        ...

    def run(self, flags: argparse.Namespace) -> int:
        """Do the work and return the exit code."""
        ...


@dataclass(frozen=True)
class Verb:
    """One command: a line for the overview, and the module that has the rest."""

    summary: str
    module: str

    def load(self) -> VerbModule:
        """Import the module."""
        return cast(VerbModule, import_module(self.module))


def build_parser(name: str) -> Parser:
    """Parser of one verb."""
    verb = VERBS[name].load()
    parser = Parser(prog=f"counterpoint {name}", description=verb.TEACH)
    verb.add_flags(parser)
    places = [str(action.metavar) for action in parser._actions if not action.option_strings]  # pyright: ignore[reportPrivateUsage]
    parser.usage = " ".join([f"counterpoint {name}", *places, "[flags]"])  # all of them would fill the screen
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    return parser


def overview() -> str:
    """Help of the command itself."""
    lines = [f"  {name:<11}{verb.summary}" for name, verb in VERBS.items()]
    return "\n".join(
        [
            "usage: counterpoint VERB ...",
            "",
            "Learns representations by contrast and shows what it learned.",
            "",
            *lines,
            "",
            "Start with:",
            "  counterpoint train --data digits --method ncl --out runs/ncl",
            "  counterpoint evaluate runs/ncl",
            "  counterpoint diagnose runs/ncl",
            "  counterpoint report runs/ncl",
            "",
            "counterpoint VERB --help explains each.",
            "",
        ]
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add the run folder."""
    parser.add_argument("run", metavar="RUN", help="run folder")


def add_subject(parser: argparse.ArgumentParser, *, files: str) -> None:
    """Add the run folder, a file of features, or an encoder from elsewhere.

    Args:
        parser: of the verb.
        files: what files it takes, in words.
    """
    parser.add_argument("subject", metavar="RUN|FILE", nargs="?", help=f"run folder; or {files}")
    parser.add_argument(
        "--encoder",
        metavar="NAME",
        help="instead of a run: timm:NAME, torchvision:NAME, solo-learn:NAME, one of ours, FILE.onnx, or "
        "package.module:name",
    )


def print_folder(path: Path) -> None:
    """Name a run's folder on standard output, once for all ranks."""
    if read_ranks(os.environ).rank == 0:
        print(shown(path))


def terminal_width() -> int:
    """Columns of the terminal, or of ``COLUMNS``; without either, lines are not broken."""
    return shutil.get_terminal_size((UNLIMITED, 0)).columns


def two_columns(rows: Mapping[str, str], width: int) -> Sequence[str]:
    r"""Lines with the names on the left and their sentences beside them.

    >>> print(*two_columns({"one": "first", "three": "the third of all of them here"}, 38), sep="\n")
      one    first
      three  the third of all of them
             here
    """
    first = min(max(map(len, rows)) + 4, max(width - NARROWEST, NARROWEST))
    lines = []
    for name, sentence in rows.items():
        broken = textwrap.wrap(sentence, max(NARROWEST, width - first), break_long_words=False, break_on_hyphens=False)
        # A name that is too long for the column has a line of its own.
        is_beside = len(name) + 4 <= first
        lines.append(f"  {name:<{first - 2}}{broken[0]}" if is_beside else f"  {name}")
        lines += [" " * first + line for line in broken[is_beside:]]
    return lines


def _dashed(word: str) -> str:
    """Write the name of a long flag with dashes."""
    if not word.startswith("--"):
        return word
    name, sign, value = word.partition("=")
    return name.replace("_", "-") + sign + value


def _by_last_word(flag: str, flags: Sequence[str]) -> str:
    """Suggest ``--optim.learning-rate`` for ``--learning-rate``."""
    last_words = {known.rsplit(".", 1)[-1]: known for known in flags if "." in known}
    guess = nearest(flag.removeprefix("--"), last_words)
    name = guess.partition("'")[2].partition("'")[0]
    return guess.replace(f"'{name}'", f"'{last_words[name]}'") if name else ""


def _verbs() -> Mapping[str, Verb]:
    """The modules of ``cli.verbs`` in the order of their ``PLACE``, read as text: importing them takes longer."""
    found = [(*ast.literal_eval(each.value), each.module) for each in held("cli/verbs", "PLACE, SUMMARY")]
    return {_name_of(module): Verb(summary, module) for _, summary, module in sorted(found)}


def _name_of(module: str) -> str:
    """The verb of a module, with hyphens.

    >>> _name_of("counterpoint.cli.verbs.fine_tune_verb")
    'fine-tune'
    """
    return module.rpartition(".")[2].removesuffix("_verb").replace("_", "-")


VERBS = _verbs()
