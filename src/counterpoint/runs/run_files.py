"""Our files in a run folder: making a folder, making it again, and clearing away what an earlier run wrote."""

import contextlib
import itertools
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from counterpoint.core.errors import RunError
from counterpoint.core.files import TEMPORARY, remove_leftovers, write_text
from counterpoint.core.rundir import RunFolder

if TYPE_CHECKING:
    from counterpoint.core.schemas import SeedsRecord

CREATED = "created"  # status of a run whose folder is being made
MARK = "A run folder of Counterpoint. Files in it that Counterpoint did not write are never deleted.\n"
# Of search indexes, which earlier versions kept in the run folder.
INDEX_FILES = ("index.json", "vectors.npy", "names.json", "graph.usearch", "rows.npy", "centres.npy")
# What runs write beside `RunFolder.files`; folders of checkpoints hold nothing else.
FILES = (
    "*.jsonl.damaged-*",  # by earlier versions, as the next one
    "wandb.json",
    "checkpoints/after-*.json",
    f"checkpoints/.after-*{TEMPORARY}*",
    "checkpoints/step-[0-9]*/*.safetensors",
    "checkpoints/step-[0-9]*/state.json",
    "checkpoints/step-[0-9]*/MANIFEST.json",
    "second/encoder.*",
    f"second/.encoder.*{TEMPORARY}*",
    "evaluations/*.json",
    "epochs-[0-9]*/*.*",  # by earlier versions, as the next two
    "epochs-[0-9]*/second/encoder.*",
    "epochs-[0-9]*/evaluations/*.json",
    *(f"indexes/*/{name}" for name in INDEX_FILES),
    f"indexes/*/.index.json.*{TEMPORARY}*",
    "tensorboard/events.out.tfevents.*",
)
FOLDERS = ("checkpoints/.step-*", f"indexes/.*{TEMPORARY}", "wandb")  # ours as a whole
# Folders of these files, which go once they are empty: those within before those around them.
EMPTIED = sorted({str(place) for name in FILES for place in Path(name).parents[:-1]}, key=len, reverse=True)


def create_run(path: Path, *, overwrite: bool) -> RunFolder:
    """Make a run folder; what a run that had not begun left there is cleared away.

    Args:
        path: the folder; the caller holds its lock.
        overwrite: replace a run that is there. Files that are not ours stay.

    Raises:
        RunError: something is there already (``overwrite`` replaces only a run), or it cannot be created.
    """
    from counterpoint.core.schemas import RunStatus  # deferred: pydantic takes 0.1 s to import

    folder = RunFolder(path)
    check_free(folder, overwrite=overwrite)
    try:
        path.mkdir(parents=True, exist_ok=True)
        # From here on it is known as ours and as a run that has not begun, whatever happens.
        write_text(folder.marker, MARK)
        folder.write_status(RunStatus(status=CREATED))
        clear(folder)
        if folder.checkpoints.is_symlink():  # what it leads to may hold checkpoints of another run
            raise RunError(f"{folder.checkpoints} is a link; remove it, or choose another --out")
        folder.checkpoints.mkdir(exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot create the run folder {path}: {error.strerror or error}") from None
    return folder


def check_free(folder: RunFolder, *, overwrite: bool) -> None:
    """Require that a run may be made in a folder.

    Raises:
        RunError: something else is there; see ``create_run``.
    """
    path = folder.path
    if not path.exists() or is_beginning(folder):
        return
    if folder.holds_seeds:
        raise RunError(f"{path} holds the runs of several seeds; continue with --seeds, or choose another --out")
    if not folder.is_ours:
        raise RunError(f"{path} exists and is not a run folder, so it will not be touched; choose another --out")
    if not overwrite:
        raise RunError(
            f"{path} exists; continue it with `counterpoint resume`, replace it with --overwrite, or choose another "
            "--out"
        )


def is_beginning(folder: RunFolder) -> bool:
    """Tell whether a folder is empty, or holds only files of a start that was killed before the run began."""
    if not folder.path.is_dir():
        return False
    names = {folder.lock.name}
    if folder.marker.is_file():
        with contextlib.suppress(RunError):  # its run.json is missing or damaged
            if folder.read_status().status == CREATED:
                return True
        names |= {folder.marker.name, folder.config.name, folder.resolved.name}
    starts = tuple(f".{file.name}." for file in (*folder.files, folder.marker, folder.seeds))  # of unfinished ones
    others = (path for path in folder.path.iterdir() if path.name not in names)
    rest = [path for path in others if not (path.name.startswith(starts) and TEMPORARY in path.name)]
    # 0.1.0 made this folder first.
    return all(path == folder.checkpoints and path.is_dir() and not any(path.iterdir()) for path in rest)


def create_seeds(path: Path, record: "SeedsRecord") -> RunFolder:
    """Make a folder for the runs of several seeds.

    Args:
        path: the folder; the caller holds its lock.
        record: the seeds and their settings.

    Raises:
        RunError: something is there already, or the folder cannot be written.
    """
    folder = RunFolder(path)
    check_free_for_seeds(folder, record.seeds)
    write_text(folder.marker, MARK)
    clear(folder)
    folder.write_seeds(record)
    return folder


def check_free_for_seeds(folder: RunFolder, seeds: Sequence[int]) -> None:
    """Require that the runs of these seeds may be made in a folder.

    Raises:
        RunError: something else is there; see ``create_seeds``.
    """
    path = folder.path
    if folder.holds_seeds and not is_beginning_of_seeds(folder):
        raise RunError(f"{path} exists; continue it with --resume, remove it, or choose another --out")
    is_free = not path.exists() or (is_beginning(folder) and not folder.status.exists())
    if not folder.holds_seeds and not is_free:
        raise RunError(
            f"{path} exists and does not hold runs of several seeds, so it will not be touched; choose another --out"
        )
    for seed in seeds:
        check_free(folder.of_seed(seed), overwrite=False)


def is_beginning_of_seeds(folder: RunFolder) -> bool:
    """Tell whether no run of a folder for several seeds has begun yet."""
    runs = [run for run in map(folder.of_seed, folder.read_seeds().seeds) if run.path.exists()]
    return all(map(is_beginning, runs))


def foreign_names(folder: RunFolder) -> list[str]:
    """Entries of a run folder that are not ours, sorted."""
    ours = {folder.marker.name, folder.lock.name, folder.checkpoints.name, folder.status.name}
    inside = folder.checkpoints.iterdir() if folder.checkpoints.is_dir() else ()
    names = {path.name for path in folder.path.iterdir()} - ours
    return sorted(names | {f"checkpoints/{path.name}" for path in inside})


def clear(folder: RunFolder) -> None:
    """Remove the files that runs write, except marker, status and lock; links are not followed."""
    for path in folder.files:
        if path != folder.status and (path.is_file() or path.is_symlink()):
            path.unlink()
    remove_leftovers(folder.path, [path.name for path in (*folder.files, folder.marker, folder.seeds)])
    for path in _inside(folder.path, FILES):
        path.unlink()
    for path in _inside(folder.path, FOLDERS):
        shutil.rmtree(path)
    for path in _inside(folder.path, EMPTIED):
        with contextlib.suppress(OSError):  # it is not empty, or no folder
            path.rmdir()


def _inside(place: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Files and folders inside a place, not behind a link; a pattern is searched for when it is reached."""
    for path in itertools.chain.from_iterable(sorted(place.glob(pattern)) for pattern in patterns):
        above = list(path.relative_to(place).parents)[:-1]  # without the place itself
        if not path.is_symlink() and not any((place / part).is_symlink() for part in above):
            yield path
