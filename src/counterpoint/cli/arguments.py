"""From settings models to flags and back: one validation for YAML, Python and the command line. Loads without torch."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic.fields import FieldInfo

from counterpoint.core.errors import nearest
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import build, expectation, leaf_fields, merge, nest, read_yaml_mapping
from counterpoint.core.yaml_text import parse_yaml

TEXT_ONLY = (str, str | None)
SECTION_TITLES = {
    "source": "source: what is read from the data",
    "views": "views: how two views of a sample are drawn",
    "projector": "projector: the head between representation and loss",
    "target": "target: momentum encoder, queue and predictor",
    "output": "output: from projector output to what the loss compares",
    "loss": "loss",
    "optim": "optim: optimiser and schedule",
    "engine": "engine: where and how it is computed",
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line with the nearest flag, and exit with code 2."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line."""
        self.exit(2, f"{self.prog}: error: {message}\n")

    def parse_strictly(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse all words; ``--batch_size`` is taken for ``--batch-size``."""
        namespace, unknown = self.parse_known_args([_dashed(word) for word in words])
        flags = [flag for action in self._actions for flag in action.option_strings]
        for word in unknown:
            if word.startswith("-"):
                flag = word.split("=", 1)[0]
                self.error(f"unknown flag {flag}{nearest(flag, flags) or _by_last_word(flag, flags)}")
        if unknown:
            self.error(f"unexpected word {unknown[0]!r}; values follow their flag, as in --epochs 30")
        return namespace


def add_settings(parser: argparse.ArgumentParser, sections: Sequence[str] | None = None) -> None:
    """Add a flag for every setting (of some top-level names only, if given)."""
    groups: dict[str, Any] = {}
    for path, field in leaf_fields(TrainSettings):
        top = path.split(".", 1)[0]
        if sections is not None and top not in sections:
            continue
        title = SECTION_TITLES[top] if "." in path else "main settings"
        group = groups.setdefault(title, parser.add_argument_group(title))
        group.add_argument(f"--{path.replace('_', '-')}", dest=path, metavar="X", default=None, help=_help(field))


def settings_from(namespace: argparse.Namespace, config: str | None) -> dict[str, Any]:
    """Lay the flags that were given over the YAML file, and check both.

    Raises:
        UsageError: a mistake in the file or in a flag.
    """
    from_file: dict[str, Any] = {}
    if config is not None:
        from_file = read_yaml_mapping(Path(config))
        build(TrainSettings, from_file, config)
    given = {
        path: _value(path, field, text)
        for path, field in leaf_fields(TrainSettings)
        if (text := getattr(namespace, path, None)) is not None
    }
    asked = merge(from_file, nest(given))
    build(TrainSettings, asked, "command line")
    return asked


def _value(path: str, field: FieldInfo, text: str) -> Any:
    """Read a flag's text as YAML would be read, unless the setting is text anyway."""
    if field.annotation in TEXT_ONLY:
        return text
    if "pair" in expectation(field) and "," in text and not text.startswith("["):
        text = f"[{text}]"
    return parse_yaml(text, f"command line: {path}")


def _help(field: FieldInfo) -> str:
    """Description, range and default."""
    default = "" if field.default in (None, "auto") else f"; default {field.default}"
    allowed = "" if field.annotation in TEXT_ONLY else f" ({expectation(field)}{default})"
    allowed = allowed or (f" ({default.removeprefix('; ')})" if default else "")
    return f"{field.description}{allowed}".replace("%", "%%")


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
