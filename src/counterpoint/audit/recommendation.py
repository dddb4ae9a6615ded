"""A recommended config as records: each line with its value, reason and confidence. Loads without torch."""

from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

from counterpoint.core.files import write_text
from counterpoint.core.run_records import Figure, Listed, Record, Text
from counterpoint.core.terminal_text import shown
from counterpoint.core.validation import dump_yaml, nest

WIDTH = 100
EXCLUDE = "source.exclude"  # the one setting whose value is a file that is written with the config


class ConfigLine(Record):
    """One setting that is recommended.

    Attributes:
        path: of the setting.
        value: of it.
        reason: why.
        confidence: high, medium or low.
        basis: what the reason rests on: measured here, a paper, a rule of thumb, or given.
    """

    path: str = ""
    value: Any = None
    reason: str = ""
    confidence: str = ""
    basis: str = ""


class Recommendation(Record):
    """Settings for a training, which ``train --config`` takes as they are.

    Attributes:
        lines: of the config.
        minutes: that were given.
        seconds: that the training is expected to take on this machine.
        low: lower end of the interval of that.
        high: upper end.
        step_seconds: of one update.
        exclude: names of samples to leave out.
    """

    lines: Annotated[tuple[ConfigLine, ...], Listed] = ()
    minutes: Figure = None
    seconds: Figure = None
    low: Figure = None
    high: Figure = None
    step_seconds: Figure = None
    exclude: Annotated[tuple[Text, ...], Listed] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The config, nested."""
        return nest({line.path: line.value for line in self.lines})

    @property
    def yaml(self) -> str:
        """The config as text, with the reason of each line as a comment above it."""
        found = [f"# recommended: {self.promise}"]
        for section, values in self.settings.items():
            for line in self.lines:
                first, _, rest = line.path.partition(".")
                if first == section:
                    name = f"{line.path}: " if rest else ""
                    found.append(f"# {name}{shown(line.reason)} ({line.confidence}; {line.basis})")
            found.append(dump_yaml({section: values}).rstrip("\n"))
        return "\n".join(found) + "\n"

    @property
    def promise(self) -> str:
        """How long it takes."""
        if self.seconds is None:
            return f"no step was timed, of {self.minutes:g} minutes given"
        low, middle, high = ((value or 0.0) / 60 for value in (self.low, self.seconds, self.high))
        return f"about {middle:.1f} minutes on this machine [{low:.1f}, {high:.1f}], of {self.minutes:g} given"

    def beside(self, path: Path) -> "Recommendation":
        """The same for a config of that name, beside which the list of samples to leave out lies."""
        lists = {"value": str(path.with_name(f"{path.stem}-exclude.txt"))}
        lines = tuple(line.model_copy(update=lists) if line.path == EXCLUDE else line for line in self.lines)
        return self.model_copy(update={"lines": lines})

    def save(self, path: str | Path) -> Path:
        """Write the config, and the list of samples to leave out where there is one."""
        found = self.beside(Path(path))
        for line in found.lines:
            if line.path == EXCLUDE:
                names = "".join(f"{name}\n" for name in self.exclude)
                write_text(Path(line.value), f"# copies\n{names}")
        write_text(Path(path), found.yaml)
        return Path(path)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return self.model_dump(mode="json")

    def __str__(self) -> str:
        width = max(len(line.path) for line in self.lines)
        rows = [self.promise]
        for line in self.lines:
            words = f"{line.path:<{width}}  {line.value}: {line.reason} ({line.confidence}; {line.basis})"
            rows.append(fill(words, WIDTH, initial_indent="  ", subsequent_indent=" " * (width + 4)))
        return "\n".join(rows)
