"""A checkpoint's folder and the manifest that seals it: no byte, file or name in it can change unnoticed."""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from counterpoint.core.files import Seal, sha256_of, write_file

FORMAT = 2
MANIFEST = "MANIFEST.json"
PREFIX = "step-"
MAX_MANIFEST_BYTES = 1 << 16


def folder_name(step: int) -> str:
    """Name of the checkpoint taken after a number of updates.

    >>> folder_name(120)
    'step-00000120'
    """
    return f"{PREFIX}{step:08d}"


def step_of(path: Path) -> int:
    """Step that a folder's name speaks of; -1 where it speaks of none.

    >>> step_of(Path("step-00000120")), step_of(Path("step-00000120 (copy)"))
    (120, -1)
    """
    digits = path.name.removeprefix(PREFIX)
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def write_manifest(folder: Path, step: int, seals: Mapping[str, Seal]) -> None:
    """Write the manifest, last of all files; not flushed to disk yet.

    Args:
        folder: holds the other files.
        step: updates done.
        seals: size and hash of every other file by name.

    Raises:
        OSError: the disk refuses.
    """
    body = {"format": FORMAT, "step": step, "files": {name: asdict(seal) for name, seal in sorted(seals.items())}}
    write_file(folder / MANIFEST, [_manifest_bytes(body)])


def read_manifest(folder: Path) -> dict[str, Seal] | None:
    """Size and hash of every other file by name; None where the manifest is damaged."""
    try:
        body = _body(folder)
        return {str(name): Seal(**seal) for name, seal in body["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def find_damage(folder: Path) -> str | None:
    """Say what is wrong with a sealed folder, or None when every byte is as it was written."""
    try:
        body = _body(folder)
        if folder.name != folder_name(body["step"]):
            return f"its name is not that of the step it holds ({body['step']})"
        seals = {name: Seal(**seal) for name, seal in body["files"].items()}
        return _wrong_names(folder, set(seals)) or _wrong_content(folder, seals)
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except OSError as error:
        return f"{Path(str(error.filename)).name} is unreadable ({error.strerror or type(error).__name__})"
    except ValueError as error:
        return str(error)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{MANIFEST} is unreadable ({type(error).__name__})"


def _wrong_names(folder: Path, known: set[str]) -> str | None:
    """Say which file is missing, does not belong there, or is no file."""
    with os.scandir(folder) as entries:
        found = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
    if missing := sorted(known - set(found)):
        return f"{missing[0]} is missing"
    if foreign := sorted(set(found) - known - {MANIFEST}):
        return f"{foreign[0]} does not belong there"
    odd = sorted(name for name, is_file in found.items() if not is_file)
    return f"{odd[0]} is not a file" if odd else None


def _wrong_content(folder: Path, seals: Mapping[str, Seal]) -> str | None:
    """Say which file differs from its seal."""
    for name, seal in seals.items():
        size = (folder / name).stat().st_size
        if size != seal.size:
            return f"{name} has {size} bytes instead of {seal.size}"
        if sha256_of(folder / name) != seal.sha256:
            return f"{name} does not match its hash"
    return None


def _body(folder: Path) -> dict[str, Any]:
    """What the manifest says, once it is known to be whole.

    Raises:
        ValueError: it is damaged, or of another version.
    """
    path = folder / MANIFEST
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= MAX_MANIFEST_BYTES:
        raise ValueError(f"{MANIFEST} is not a manifest ({status.st_size} bytes)")
    content = path.read_bytes()
    try:
        told = json.loads(content)
        body = told.get("body")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{MANIFEST} is unreadable ({type(error).__name__})") from None
    if isinstance(body, dict) and body.get("format") == FORMAT and content == _manifest_bytes(body):
        return body
    version = told.get("format", body.get("format", FORMAT) if isinstance(body, dict) else FORMAT)
    if version != FORMAT:
        raise ValueError(f"{MANIFEST} says format {version!r}; this version reads {FORMAT}")
    raise ValueError(f"{MANIFEST} does not match its own hash")


def _manifest_bytes(body: Mapping[str, Any]) -> bytes:
    """The one text that a manifest of this content has, its own hash included."""
    text = json.dumps(body, indent=1, sort_keys=True)
    return (json.dumps({"body": body, "sha256": _sha256(text)}, indent=1, sort_keys=True) + "\n").encode()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
