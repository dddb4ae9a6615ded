"""Origin of a file in a run folder, its run and the run's weights: written into the file, checked by every reader.

The id of a run is in ``run.json``, the hash of its weights in ``encoder.json``. Runs of earlier versions have no
id, and their files are read without one. This module loads without torch.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from counterpoint.core.errors import StaleFileError
from counterpoint.core.files import read_sealed, run_named_in, write_sealed
from counterpoint.core.rundir import RUN, RunFolder
from counterpoint.core.user_files import read_text

OF = "of"  # key of the run and the weights in a sealed JSON file
WEIGHTS = "weights"
WEIGHTS_SHA256 = "weights_sha256"  # key of ``encoder.json``


def origin_of(folder: RunFolder) -> dict[str, str | None] | None:
    """The run and the weights that a folder has now, which may have none yet; None for a run without an id.

    Raises:
        StaleFileError: ``encoder.json`` is of another run.
        RunError: ``run.json`` or ``encoder.json`` is damaged.
    """
    run_id = folder.run_id
    if run_id is None:
        return None
    card = read_card(folder, folder.encoder_card) if folder.encoder_card.exists() else {}
    return {RUN: run_id, WEIGHTS: card.get(WEIGHTS_SHA256)}


def write_card(folder: RunFolder, path: Path, values: Mapping[str, Any]) -> None:
    """Write the sealed card of some weights of a run, which it names."""
    run_id = folder.run_id
    write_sealed(path, {**values, **({} if run_id is None else {RUN: run_id})})


def read_card(folder: RunFolder, path: Path, *, must_be_sealed: bool = False) -> dict[str, Any]:
    """Read a card that ``write_card`` wrote; raises as ``read_derived``."""
    values = read_sealed(path, must_be_sealed=must_be_sealed)
    check_run(folder, path, values.pop(RUN, None))
    return values


def write_derived(folder: RunFolder | None, path: Path, values: Mapping[str, Any]) -> None:
    """Write a sealed JSON file about the present weights of a run, which it names; without a folder, of no run."""
    origin = None if folder is None else origin_of(folder)
    write_sealed(path, {**values, **({} if origin is None else {OF: origin})})


def read_derived(folder: RunFolder | None, path: Path, *, must_be_sealed: bool = False) -> dict[str, Any]:
    """Read a file that ``write_derived`` wrote.

    Args:
        folder: the run; None if the file is about an encoder that no run has trained.
        path: the file.
        must_be_sealed: true if the file is not of version 0.1.0, which wrote no hash.

    Raises:
        StaleFileError: it is of another run, or of other weights than the run has now.
        RunError: it is missing or damaged.
    """
    values = read_sealed(path, must_be_sealed=must_be_sealed)
    origin = values.pop(OF, None)
    if folder is not None:
        check_origin(folder, path, origin)
    return values


def check_origin(folder: RunFolder, path: Path, origin: Any) -> None:
    """Require that the origin that a file states is the run in whose folder it lies, with its present weights.

    Raises:
        StaleFileError: it is not.
    """
    origin = origin if isinstance(origin, Mapping) else {}
    check_run(folder, path, origin.get(RUN))
    now = origin_of(folder)
    if now is not None and origin.get(WEIGHTS) != now[WEIGHTS]:
        raise StaleFileError(
            f"{path} is of other weights than those that {folder.path} has now ({folder.encoder_card.name}); "
            f"{_remedy(folder, path)}"
        )


def check_run(folder: RunFolder, path: Path, file_run_id: Any) -> None:
    """Require that a file is of the run in whose folder it lies; a folder without ``run.json`` is not checked.

    Raises:
        StaleFileError: it is not.
    """
    run_id, status = folder.run_id, folder.home.status
    if status.exists() and file_run_id != run_id:
        raise StaleFileError(
            f"{path} is of another run ({file_run_id or 'without an id'}) than {status} ({run_id or 'without an id'}); "
            f"{_remedy(folder, path)}"
        )


def check_settings(folder: RunFolder, path: Path) -> None:
    """Require that a file of settings, which can be read, is of the run in whose folder it lies; see ``check_run``."""
    check_run(folder, path, run_named_in(read_text(path)))


def _remedy(folder: RunFolder, path: Path) -> str:
    place = shlex.quote(str(folder.path))
    words = {
        folder.evaluation: f"evaluate again with: counterpoint evaluate {place}",
        folder.findings: f"diagnose again with: counterpoint diagnose {place}",
        folder.spectrum: f"measure again with: counterpoint spectrum {place}",
        folder.map_layout: "remove it: counterpoint report lays the map out again",
        folder.encoder_card: f"write it again with: counterpoint resume {place}",
        folder.classifier_card: f"write it again with: counterpoint resume {place}",
        folder.config: "put the run's own back, or remove it: no result depends on it",
    }
    return words.get(path, "put the run's own back, or remove it")
