"""A run folder held by this process: locked first, and everything in it read and written under the lock."""

import contextlib

from counterpoint.core.errors import RunError
from counterpoint.core.files import remove_leftovers
from counterpoint.core.run_files import create_run, create_seeds, foreign_names
from counterpoint.core.run_lock import lock_run
from counterpoint.core.run_records import SeedsRecord
from counterpoint.core.rundir import RunFolder
from counterpoint.engine.checkpoint import remove_unfinished
from counterpoint.engine.progress import Reporter


class Hold(contextlib.ExitStack):
    """The lock of a run folder, taken at most once and given back at the end of the block; on the first rank alone.

    Args:
        folder: the run.
        reporter: hears what was out of the ordinary.
    """

    def __init__(self, folder: RunFolder, reporter: Reporter) -> None:
        super().__init__()
        self._folder, self._reporter = folder, reporter
        self._is_taken = False

    def take(self) -> None:
        """Lock the folder, which must exist, and clear away what killed processes left unfinished.

        Raises:
            RunError: another process holds it, or the lock cannot be written.
        """
        if self._is_taken:
            return
        folder = self._folder
        if note := self.enter_context(lock_run(folder.path)):
            self._reporter.say(note)
        self._is_taken = True
        if folder.is_ours:
            remove_leftovers(folder.path, [path.name for path in (*folder.files, folder.marker, folder.seeds)])
            remove_unfinished(folder.checkpoints)

    def create(self, *, overwrite: bool) -> None:
        """Make the folder; see ``create_run``. What stays of it that is not ours is named."""
        folder = self._folder
        self._take_new()
        create_run(folder.path, overwrite=overwrite)
        if names := foreign_names(folder):
            self._reporter.say(f"{folder.path} keeps what Counterpoint did not write: {', '.join(names)}")

    def create_seeds(self, record: SeedsRecord, *, overwrite: bool) -> None:
        """Make a folder for the runs of several seeds; see ``run_files.create_seeds``."""
        self._take_new()
        create_seeds(self._folder.path, record, overwrite=overwrite)

    def _take_new(self) -> None:
        """Lock the folder, which may not exist yet."""
        path = self._folder.path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise RunError(f"{path} is a file; choose another --out") from None
        except OSError as error:
            raise RunError(f"cannot create the run folder {path}: {error.strerror or error}") from None
        self.take()
