"""Progress of long work: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from counterpoint.core.schemas import EpochRecord
from counterpoint.core.terminal_text import shown

LINES_PER_RUN = 20  # epochs that get a plain line when there is no terminal


class _LastingConsole(Console):
    """Stops writing when the reader has closed the stream, instead of ending the run as rich does."""

    def on_broken_pipe(self) -> None:
        """The reader of standard error is gone (`| head`, a closed terminal): training continues."""
        self.quiet = True
        # What is written later, such as Python's own flush at its end, would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class Reporter:
    """Shows progress on stderr.

    Args:
        quiet: whether nothing is shown.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._console = _LastingConsole(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Show one line of plain text. What cannot be shown (a full disk behind standard error) ends no run."""
        try:
            self._console.print(Text(shown(text)))  # Text: brackets in a path are not markup
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
            name = shown(title)
            task = progress.add_task(name, total=total)
            yield lambda item="": progress.update(
                task, advance=1, description=f"{name}: {shown(item)}" if item else name
            )

    @contextmanager
    def training(
        self, num_epochs: int, batches_per_epoch: int, first_step: int, unit: str = "images"
    ) -> Iterator["TrainingDisplay"]:
        """Show training while the block runs; ``unit`` is what a rate counts."""
        if not self._console.is_terminal:
            yield TrainingDisplay(self, None, num_epochs, unit)
            return
        with self._progress("epoch {task.fields[epoch]}/" + str(num_epochs), "{task.fields[record]}") as progress:
            progress.add_task("", total=num_epochs * batches_per_epoch, completed=first_step, epoch=1, record="")
            yield TrainingDisplay(self, progress, num_epochs, unit)

    def _progress(self, *texts: str) -> Progress:
        """A bar that gives way to the texts on a narrow terminal."""
        columns = [TextColumn(text, markup=False, table_column=Column(no_wrap=True)) for text in texts]
        bar = BarColumn(bar_width=None, table_column=Column(ratio=1))
        eta = TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True))
        return Progress(columns[0], bar, *columns[1:], eta, TextColumn("left"), console=self._console, expand=True)


class TrainingDisplay:
    """The live line of a training run."""

    def __init__(self, reporter: Reporter, progress: Progress | None, num_epochs: int, unit: str) -> None:
        self.reporter = reporter  # whose lines do not disturb the live one
        self._progress = progress
        self._num_epochs = num_epochs
        self._unit = unit
        self._line_every = -(-num_epochs // LINES_PER_RUN)
        self._started = time.perf_counter()
        self._first_epoch: int | None = None

    def step_done(self, epoch: int) -> None:
        """Advance the bar by one batch of an epoch counted from 0."""
        # A resumed run begins later than at epoch 0.
        self._first_epoch = epoch if self._first_epoch is None else self._first_epoch
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], advance=1, epoch=epoch + 1)

    def epoch_done(self, record: EpochRecord) -> None:
        """Show a finished epoch's figures."""
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], record=f"{_words(record)} {self._unit}/s")
            return
        epoch = record.epoch or 0
        if epoch in (1, self._num_epochs) or epoch % self._line_every == 0:
            # Epochs of this process only: those before a resume took none of its time.
            num_done = epoch - (self._first_epoch or 0)
            eta = (time.perf_counter() - self._started) / max(num_done, 1) * (self._num_epochs - epoch)
            self.reporter.say(f"epoch {epoch}/{self._num_epochs}  {_words(record)} {self._unit}/s  {eta:.0f} s left")


def _words(record: EpochRecord) -> str:
    levels = {"chance": record.chance, "floor": record.floor}
    references = ", ".join(f"{name} {value:.2f}" for name, value in levels.items() if value is not None)
    measured = "".join(f" {name} {value:.1%}" for name, value in record.measured.items())
    beside = f"{f' ({references})' if references else ''}{measured}"
    # The loop knows all three.
    loss, rate, speed = record.loss or 0.0, record.learning_rate or 0.0, record.images_per_second or 0.0
    return f"loss {loss:.3f}{beside}  lr {rate:.1e}  {speed:,.0f}"
