"""Format of a checkpoint on disk: plain data as JSON beside named tensors, sealed by a manifest of sizes and hashes.

No byte, file or name in a sealed folder can change unnoticed.
"""

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from counterpoint.core.files import Seal, sha256_of, write_file

FORMAT = 2
MANIFEST = "MANIFEST.json"
PREFIX = "step-"
MAX_MANIFEST_BYTES = 1 << 16  # what is larger is not a manifest, and is not read into memory

# A value that JSON lacks is an object with one key that begins with $; dictionaries with such keys become pairs.


def pack(value: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """Turn nested data into JSON values; ``unpack`` gives exactly the same data back.

    Args:
        value: nested data: dictionaries with keys of plain types, lists, tuples, tensors, texts, numbers, None.
        tensors: dictionary that receives the tensors found, each under the dotted path that leads to it.
        name: dotted path of ``value`` itself; empty for the whole.

    Raises:
        TypeError: the data hold a value or key of another type; its path is named.

    >>> saved = {}
    >>> pack({"state": {0: {"sum": Tensor([1.0])}}, "betas": (0.9, math.inf)}, saved)
    {'state': {'$pairs': [[0, {'sum': {'$tensor': 'state.0.sum'}}]]}, 'betas': {'$tuple': [0.9, {'$number': 'inf'}]}}
    >>> list(saved)
    ['state.0.sum']
    """
    if isinstance(value, Tensor):
        free = name if name not in tensors else f"{name}#{len(tensors)}"  # "a.b" may be a key beside "a"
        tensors[free] = value
        return {"$tensor": free}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": repr(value)}
    # Exact types: a subclass (an enum, NumPy's float64) would come back as another type.
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, Mapping):
        children = [(key, pack(child, tensors, _join(name, key))) for key, child in value.items()]
        # JSON would turn the optimiser's parameter numbers, 0, 1, ..., into text.
        is_plain = all(isinstance(key, str) and not key.startswith("$") for key in value)
        if odd := [key for key in value if type(key) not in (bool, int, str)]:
            kind = type(odd[0]).__name__
            raise TypeError(f"{name or 'the state'} has a key of type {kind}, which a checkpoint cannot hold")
        return dict(children) if is_plain else {"$pairs": [list(child) for child in children]}
    if isinstance(value, list | tuple):
        packed = [pack(child, tensors, _join(name, index)) for index, child in enumerate(value)]
        return packed if isinstance(value, list) else {"$tuple": packed}
    raise TypeError(f"{name or 'the state'} is of type {type(value).__name__}, which a checkpoint cannot hold")


def unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Inverse of ``pack``.

    Raises:
        KeyError: ``tensors`` lacks a tensor that the value refers to.

    >>> unpack({"$pairs": [[0, {"$tuple": [1, {"$number": "inf"}]}]]}, {})
    {0: (1, inf)}
    """
    match value:
        case list():
            return [unpack(child, tensors) for child in value]
        # The marked cases come first: a plain dict() would match them as well.
        case {"$tensor": name}:
            return tensors[name]
        case {"$number": text}:
            return float(text)
        case {"$tuple": members}:
            return tuple(unpack(child, tensors) for child in members)
        case {"$pairs": pairs}:
            return {key: unpack(child, tensors) for key, child in pairs}
        case dict():
            return {key: unpack(child, tensors) for key, child in value.items()}
    return value


def _join(name: str, key: Any) -> str:
    return f"{name}.{key}" if name else str(key)


def folder_name(step: int) -> str:
    """Name of the checkpoint taken after a number of updates.

    >>> folder_name(120)
    'step-00000120'
    """
    return f"{PREFIX}{step:08d}"


def step_of(path: Path) -> int:
    """Step in the name of a folder; -1 if it has none.

    >>> step_of(Path("step-00000120")), step_of(Path("step-00000120 (copy)"))
    (120, -1)
    """
    digits = path.name.removeprefix(PREFIX)
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def write_manifest(folder: Path, step: int, seals: Mapping[str, Seal]) -> None:
    """Write the manifest, last of all files; not flushed to disk yet.

    Args:
        folder: folder of the checkpoint, with the other files in it.
        step: number of updates done.
        seals: size and hash of every other file by name.

    Raises:
        OSError: the disk refuses.
    """
    body = {"format": FORMAT, "step": step, "files": {name: asdict(seal) for name, seal in sorted(seals.items())}}
    write_file(folder / MANIFEST, [_manifest_bytes(body)])


def read_manifest(folder: Path) -> dict[str, Seal] | None:
    """Size and hash of every other file by name; None if the manifest is damaged."""
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
        with os.scandir(folder) as entries:
            # A link may lead anywhere.
            is_file = {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        if missing := sorted(set(seals) - set(is_file)):
            return f"{missing[0]} is missing"
        if foreign := sorted(set(is_file) - set(seals) - {MANIFEST}):
            return f"{foreign[0]} does not belong there"
        if odd := sorted(name for name in is_file if not is_file[name]):
            return f"{odd[0]} is not a file"
        for name, seal in seals.items():
            size = (folder / name).stat().st_size
            if size != seal.size:
                return f"{name} has {size} bytes instead of {seal.size}"
            if sha256_of(folder / name) != seal.sha256:
                return f"{name} does not match its hash"
        return None
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except OSError as error:
        return f"{Path(str(error.filename)).name} is unreadable ({error.strerror or type(error).__name__})"
    except ValueError as error:
        return str(error)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{MANIFEST} is unreadable ({type(error).__name__})"


def _body(folder: Path) -> dict[str, Any]:
    """Return the body of the manifest, once it is known to be whole."""
    path = folder / MANIFEST
    status = os.lstat(path)  # of the link itself, if it is one
    if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= MAX_MANIFEST_BYTES:
        raise ValueError(f"{MANIFEST} is not a manifest ({status.st_size} bytes)")
    content = path.read_bytes()
    try:
        manifest = json.loads(content)
        body = manifest.get("body")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{MANIFEST} is unreadable ({type(error).__name__})") from None
    # Compared as bytes: a blank more is a change, though the JSON is the same.
    if isinstance(body, dict) and body.get("format") == FORMAT and content == _manifest_bytes(body):
        return body
    # Format 1 had it outside of the body.
    version = manifest.get("format", body.get("format", FORMAT) if isinstance(body, dict) else FORMAT)
    if version != FORMAT:
        raise ValueError(f"{MANIFEST} says format {version!r}; this version reads {FORMAT}")
    raise ValueError(f"{MANIFEST} does not match its own hash")


def _manifest_bytes(body: Mapping[str, Any]) -> bytes:
    """The one text that a manifest of this content has, its own hash included."""
    text = json.dumps(body, indent=1, sort_keys=True)
    sealed = {"body": body, "sha256": hashlib.sha256(text.encode()).hexdigest()}
    return (json.dumps(sealed, indent=1, sort_keys=True) + "\n").encode()
