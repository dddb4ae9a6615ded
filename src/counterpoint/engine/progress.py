"""What long work shows: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

NARROW = 110  # columns below which the live line is shortened
LINES_PER_RUN = 20  # epochs that get a plain line when there is no terminal


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch was.

    Attributes:
        epoch: counted from 1.
        step: updates so far.
        loss: mean over the epoch's steps.
        chance: loss of an encoder that has learned nothing, or None.
        floor: loss that no embedding can go below, or None.
        learning_rate: of the last step.
        gradient_norm: mean over the steps, before clipping.
        skipped_updates: steps that float16's loss scale left out.
        measured: what measurements found, by name.
        images_per_second: of this process or processes, since the epoch began or was resumed.
        seconds: of its steps.
    """

    epoch: int
    step: int
    loss: float
    chance: float | None
    floor: float | None
    learning_rate: float
    gradient_norm: float
    skipped_updates: int
    measured: Mapping[str, float]
    images_per_second: float
    seconds: float

    def metrics(self) -> dict[str, float | int | None]:
        """One line of ``metrics.jsonl``: nothing that depends on the clock."""
        names = ("epoch", "step", "loss", "chance", "floor", "learning_rate", "gradient_norm", "skipped_updates")
        return {**{name: getattr(self, name) for name in names}, **self.measured}

    def timings(self) -> dict[str, float | int | None]:
        """One line of ``timings.jsonl``."""
        names = ("epoch", "step", "images_per_second", "seconds")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.3f}{self._levels()}{self._measured()}  lr {self.learning_rate:.1e}  "
            f"{self.images_per_second:,.0f} images/s"
        )

    def short(self) -> str:
        """The same figures for a narrow terminal."""
        figures = f"loss {self.loss:.2f}{self._levels()}{self._measured()}"
        return f"{figures} lr {self.learning_rate:.0e} {self.images_per_second:,.0f}/s"

    def _measured(self) -> str:
        """What measurements found, as shares."""
        return "".join(f" {name} {value:.1%}" for name, value in self.measured.items())

    def _levels(self) -> str:
        """What the loss is read against, as far as it has such levels."""
        levels = {"chance": self.chance, "floor": self.floor}
        words = ", ".join(f"{name} {value:.2f}" for name, value in levels.items() if value is not None)
        return f" ({words})" if words else ""


class _LastingConsole(Console):
    """Falls silent where nobody reads any more, instead of ending the run as rich does."""

    def on_broken_pipe(self) -> None:
        """The reader of standard error is gone (`| head`, a closed terminal): training goes on."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class Reporter:
    """Shows progress on stderr.

    Args:
        quiet: show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._console = _LastingConsole(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Show one line of plain text. What cannot be shown (a full disk behind standard error) ends no run."""
        try:
            self._console.print(Text(text))
        except OSError:
            self._console.quiet = True

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Callable[..., None]]:
        """Show a bar while the block runs; call what it yields once per finished item, perhaps with a word on it."""
        if not self._console.is_terminal:
            self.say(title)
            yield lambda item="": self.say(f"  {item}") if item else None
            return
        with self._progress("{task.description}") as progress:
            task = progress.add_task(title, total=total)
            yield lambda item="": progress.update(task, advance=1, description=f"{title}: {item}" if item else title)

    @contextmanager
    def training(self, num_epochs: int, batches_per_epoch: int, first_step: int) -> Iterator["TrainingDisplay"]:
        """Show training while the block runs."""
        if not self._console.is_terminal:
            yield TrainingDisplay(self, None, num_epochs)
            return
        with self._progress("epoch {task.fields[epoch]}/" + str(num_epochs), "{task.fields[record]}") as progress:
            progress.add_task("", total=num_epochs * batches_per_epoch, completed=first_step, epoch=1, record="")
            yield TrainingDisplay(self, progress, num_epochs)

    def _progress(self, *texts: str) -> Progress:
        """A bar that gives way to the texts on a narrow terminal."""
        columns = [TextColumn(text, markup=False, table_column=Column(no_wrap=True)) for text in texts]
        bar = BarColumn(bar_width=None, table_column=Column(ratio=1))
        left = TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True))
        return Progress(columns[0], bar, *columns[1:], left, TextColumn("left"), console=self._console, expand=True)


class TrainingDisplay:
    """The live line of a training run."""

    def __init__(self, reporter: Reporter, progress: Progress | None, num_epochs: int) -> None:
        self._reporter = reporter
        self._progress = progress
        self._num_epochs = num_epochs
        self._line_every = -(-num_epochs // LINES_PER_RUN)
        self._started = time.perf_counter()
        self._first_epoch: int | None = None

    def say(self, text: str) -> None:
        """Show one line without disturbing the live one."""
        self._reporter.say(text)

    def step_done(self, epoch: int) -> None:
        """Advance the bar by one batch of an epoch counted from 0."""
        self._first_epoch = epoch if self._first_epoch is None else self._first_epoch
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], advance=1, epoch=epoch + 1)

    def epoch_done(self, record: EpochRecord) -> None:
        """Show a finished epoch's figures."""
        if self._progress is not None:
            is_narrow = self._progress.console.width < NARROW
            self._progress.update(self._progress.task_ids[0], record=record.short() if is_narrow else str(record))
        elif record.epoch in (1, self._num_epochs) or record.epoch % self._line_every == 0:
            done = record.epoch - (self._first_epoch or 0)
            left = (time.perf_counter() - self._started) / max(done, 1) * (self._num_epochs - record.epoch)
            self._reporter.say(f"epoch {record.epoch}/{self._num_epochs}  {record}  {left:.0f} s left")
