"""What happens to a file of a run folder: its bytes or its values are altered, or something else takes its place."""

import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from campaign.data_files import mutated
from counterpoint.core.files import SEAL, Seal, is_unchanged, sealed_text, sha256_of, write_sealed
from counterpoint.engine.checkpoint_format import read_manifest, step_of, write_manifest

HEADER_LENGTH = 8  # bytes, of a safetensors file
VALUES = (
    None,
    True,
    0,
    1,
    -1,
    0.5,
    1e308,
    -1e308,
    1 << 40,
    10**30,
    "",
    "x",
    "\x00",
    "\x1b[31m",
    [],
    [[]],
    {},
    {"a": 1},
)
LITERALS = ("NaN", "Infinity", "1e999", "9" * 5000, "[" * 3000)  # as a file may hold them, and no dump writes them
YAML_LINES = (
    "a: &a [*a]",
    "x: !!python/name:os.system",
    "- 1",
    "\x00",
    "? [a]: b",
    "seed: 1",
    "method: ncl",
    "\ttab: 1",
)


def seal_anew(path: Path, run: Path) -> None:
    """Vouch for a file as it is now, as someone does who knows the format: its own hash, and those of it elsewhere."""
    if path.suffix == ".json":
        values = _parsed(path)
        if isinstance(values, dict) and SEAL in values:
            _seal_values(path, values)
    elif path.suffix == ".yaml" and not is_unchanged(text := path.read_text(), must_be_sealed=True):
        path.write_text(sealed_text(text.rpartition(f"# {SEAL} ")[0] or text))
    if (seals := read_manifest(path.parent)) and path.name in seals:
        seals = {name: Seal((path.parent / name).stat().st_size, sha256_of(path.parent / name)) for name in seals}
        write_manifest(path.parent, step_of(path.parent), seals)
    if path.name == "encoder.safetensors":
        _seal_values(run / "encoder.json", {**_parsed(run / "encoder.json"), "weights_sha256": sha256_of(path)})


def _seal_values(path: Path, values: dict[str, Any]) -> None:
    write_sealed(path, {name: value for name, value in values.items() if name != SEAL})


def edit_values(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Let ``edit`` change the named values of a JSON or YAML file."""
    if path.suffix == ".yaml":
        values = yaml.safe_load(path.read_text())
        edit(values)
        path.write_text(yaml.safe_dump(values))
    else:
        values = _parsed(path)
        edit(values)
        path.write_text(json.dumps(values, indent=1))


def ways_for(name: str) -> list[str]:
    """What can be done to a file of that name; the ways that know its structure come more often."""
    structured = {
        ".json": ["json value", "json key", "json literal", "digit"],
        ".jsonl": ["lines", "json line", "digit"],
        ".yaml": ["yaml line", "digit"],
        ".safetensors": ["header", "header"],
        ".npz": ["bytes"],
    }
    return [*structured.get(Path(name).suffix, []) * 3, "bytes", "bytes", "cut", "replaced"]


def _bytes(path: Path, draw: np.random.Generator) -> None:
    path.write_bytes(mutated(path.read_bytes(), draw))


def _cut(path: Path, draw: np.random.Generator) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(draw.integers(len(content) + 1))] if content else b"x")


def _replaced(path: Path, draw: np.random.Generator) -> None:
    """Gone, or of another kind."""
    path.unlink()
    match draw.integers(6):
        case 0:
            path.mkdir()
        case 1:
            os.mkfifo(path)
        case 2:
            path.symlink_to(path.name)
        case 3:
            path.symlink_to(os.devnull)
        case 4:
            path.symlink_to(Path(os.devnull).with_name("zero"))


def _digit(path: Path, draw: np.random.Generator) -> None:
    """One digit is another one: what no parser notices."""
    content = bytearray(path.read_bytes())
    places = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    if places:
        place = int(draw.choice(places))
        content[place] = ord("0") + (content[place] - ord("0") + int(draw.integers(1, 10))) % 10
    path.write_bytes(bytes(content))


def _json_value(path: Path, draw: np.random.Generator) -> None:
    path.write_text(json.dumps(_altered(_parsed(path), draw), indent=1))


def _json_key(path: Path, draw: np.random.Generator) -> None:
    """A name is missing, doubled, or another one."""
    value = _parsed(path)
    inner = [each for each in all_within(value) if isinstance(each, dict) and each]
    if inner:
        chosen = inner[int(draw.integers(len(inner)))]
        key = str(draw.choice(list(chosen)))
        content = chosen.pop(key)
        if draw.random() < 0.4:
            chosen[str(draw.choice(["x", "", "__class__", key.upper(), "$tensor"]))] = content
    path.write_text(json.dumps(value, indent=1))


def _json_literal(path: Path, draw: np.random.Generator) -> None:
    """Something takes a value's place that no dump would write."""
    text = path.read_text()
    found = list(re.finditer(r'(?<=: )[^\s,{\[]+|"[^"]*"', text))
    if found:
        hit = found[int(draw.integers(len(found)))]
        text = text[: hit.start()] + str(draw.choice(LITERALS)) + text[hit.end() :]
    path.write_text(text)


def _lines(path: Path, draw: np.random.Generator) -> None:
    """A line is missing, doubled, moved or torn."""
    lines = path.read_bytes().splitlines(keepends=True) or [b"\n"]
    place = int(draw.integers(len(lines)))
    line = lines.pop(place)
    match draw.integers(5):
        case 0:
            lines.insert(place, line + line)
        case 1:
            lines.insert(int(draw.integers(len(lines) + 1)), line)
        case 2:
            lines.insert(place, line[: int(draw.integers(len(line)))] + b"\n")
        case 3:
            lines.insert(place, draw.choice([b"[]\n", b"1\n", b"null\n", b"{}\n", b"\n", b"\xff\n", b'"x"\n']).item())
    path.write_bytes(b"".join(lines))


def _json_line(path: Path, draw: np.random.Generator) -> None:
    lines = path.read_text().splitlines()
    if lines:
        place = int(draw.integers(len(lines)))
        lines[place] = json.dumps(_altered(json.loads(lines[place]), draw))
    path.write_text("".join(f"{line}\n" for line in lines))


def _yaml_line(path: Path, draw: np.random.Generator) -> None:
    """A line is missing, doubled, foreign, or has another value."""
    lines = path.read_text().splitlines()
    place = int(draw.integers(len(lines)))
    line = lines.pop(place)
    new = [
        [],
        [line, line],
        [line, str(draw.choice(YAML_LINES))],
        [re.sub(r": .*", f": {draw.choice(['nan', '-1', '1e30', 'x', '[]', 'null', '1', '*a', '.inf'])}", line)],
        [" " + line],
    ]
    lines[place:place] = new[int(draw.integers(len(new)))]
    path.write_text("".join(f"{each}\n" for each in lines))


def _header(path: Path, draw: np.random.Generator) -> None:
    """A safetensors header with other sizes, names, types or offsets, which fits its stated length again."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = _altered(json.loads(content[HEADER_LENGTH : HEADER_LENGTH + length]), draw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[HEADER_LENGTH + length :])


def _altered(value: Any, draw: np.random.Generator) -> Any:
    """One value in nested data is another one."""
    holders = [each for each in all_within(value) if isinstance(each, dict | list) and each]
    if not holders or draw.random() < 0.05:
        return _another(value, draw)
    holder = holders[int(draw.integers(len(holders)))]
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    key = keys[int(draw.integers(len(keys)))]
    holder[key] = _another(holder[key], draw)
    return value


def _another(value: Any, draw: np.random.Generator) -> Any:
    """A near value of the same type, or one of another type."""
    if draw.random() < 0.5:
        match value:
            case bool():
                return not value
            case int():
                return value + int(draw.choice([-1, 1, 7]))
            case float():
                return value * float(draw.choice([0.5, 1.0001, -1]))
            case str():
                return value[::-1] if value != value[::-1] else value + "x"
    return VALUES[int(draw.integers(len(VALUES)))]


def _parsed(path: Path) -> Any:
    return json.loads(path.read_text())


def all_within(value: Any) -> Iterator[Any]:
    """A value, and all that it holds at any depth."""
    yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from all_within(child)


WAYS: dict[str, Callable[[Path, np.random.Generator], None]] = {
    "bytes": _bytes,
    "cut": _cut,
    "replaced": _replaced,
    "digit": _digit,
    "json value": _json_value,
    "json key": _json_key,
    "json literal": _json_literal,
    "lines": _lines,
    "json line": _json_line,
    "yaml line": _yaml_line,
    "header": _header,
}
