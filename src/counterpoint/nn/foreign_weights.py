"""Weights of other programs: read without unpickling, found under whatever prefix they have, loaded whole or not.

No list of frameworks: the prefix is the one under which a file has every weight of the module with its shape, by the
module's own names or by the numbers of its children. Where several have (student and teacher, an encoder and its
momentum copy), the order is ``PREFERENCE``.
"""

import os
import pickle
import re
import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from counterpoint.core.errors import RunError, UsageError, first_line, some
from counterpoint.core.user_files import open_regular
from counterpoint.nn.encoders import Pooled, has_stem
from counterpoint.nn.tensor_file import read_tensors

MAX_PICKLE_BYTES = 1 << 28  # without the numbers
MAX_DEPTH = 16  # of dictionaries in dictionaries
MAX_SHOWN = 200  # characters of what torch says
ZIP_START = b"PK\x03\x04"
MAGIC = 0x1950A86A20F9469CFC6C  # what torch wrote before 1.6 begins with it, as a pickle of its own
# Errors in which a damaged file may end, in a zip reader or in torch.
NOT_READABLE = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError),
    *(RuntimeError, AssertionError, struct.error, pickle.UnpicklingError, zipfile.BadZipFile),
)


class ForeignCallError(ValueError):
    """A file asks to call what it names."""


def read_torch_file(path: Path) -> dict[str, Tensor]:
    """Tensors by name out of a file of ``torch.save``; keys of dictionaries in dictionaries are joined by dots.

    torch's own reader of weights makes tensors and plain values, and calls nothing but what rebuilds them. Objects of
    classes that it does not know (the arguments that many programs save beside the weights) become empty dictionaries
    here, by name; their classes are never looked up. A call of anything else is refused. Lists, and keys that are no
    texts (the state of an optimiser), are left aside. A file of torch before 1.6 must hold nothing but tensors and
    plain values.

    Raises:
        ForeignCallError: the file asks to call what it names.
        one of ``NOT_READABLE``: the file is damaged, or there is none.
    """
    with open_regular(path) as file:
        is_archive = file.read(len(ZIP_START)) == ZIP_START
        if is_archive:
            _check_archive(file)
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path) if is_archive else []
    try:
        stand_ins: list[Any] = [(_Never("LeftAside", (LeftAside,), {"name": name}), name) for name in names]
        with torch.serialization.safe_globals(stand_ins):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except pickle.UnpicklingError as error:
        words = str(error).replace("\n", " ").partition("Please ")[0]
        name = re.search(r"(?:unsupported|global:) GLOBAL (\S+)", words)
        raise ForeignCallError(name[1]) if name else ValueError(words[:MAX_SHOWN]) from None
    return dict(_named_tensors(content))


def _check_archive(file: IO[bytes]) -> None:
    """Refuse members that are packed or damaged, which torch would take for numbers."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > os.fstat(file.fileno()).st_size:
            raise ValueError("its members are packed, or more than the file")
        if any(m.filename.endswith("/data.pkl") and m.file_size > MAX_PICKLE_BYTES for m in members):
            raise ValueError(f"a description of more than {MAX_PICKLE_BYTES:,} bytes")
        damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"its member {damaged!r} is damaged (CRC)")


def _named_tensors(content: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in dictionaries by dotted name, each dictionary once: one may hold itself."""
    if isinstance(content, LeftAside) and not content:
        raise ValueError(f"it holds an object of {content.name} and no weights; save its state_dict() instead")
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__}, and no dictionary of weights")
    waiting, visited = [("", content, 0)], {id(content)}
    while waiting:
        prefix, holder, depth = waiting.pop()
        for key, value in holder.items():
            is_tensor = isinstance(value, Tensor) and value.layout == torch.strided and not value.is_quantized
            if not isinstance(key, str):
                continue
            if is_tensor and value.numel() * value.itemsize > value.untyped_storage().nbytes():
                raise ValueError(f"a tensor of shape {tuple(value.shape)} that repeats its numbers")
            if is_tensor:
                yield prefix + key, value.detach()
            elif isinstance(value, dict) and id(value) not in visited and depth < MAX_DEPTH:
                visited.add(id(value))
                waiting.append((f"{prefix}{key}.", value, depth + 1))


class _Never(type):
    """Classes whose objects are made by ``__new__`` alone; called, they say so, unless plain values are made so."""

    def __call__(cls, *_: Any) -> "LeftAside":
        if cls.name not in HARMLESS:  # pyright: ignore[reportAttributeAccessIssue]
            raise ForeignCallError(cls.name)  # pyright: ignore[reportAttributeAccessIssue]
        return dict.__new__(cls)  # pyright: ignore[reportReturnType, reportArgumentType]


class LeftAside(dict, metaclass=_Never):
    """An object of a class that is named and never made; nothing of it is kept."""

    name = ""

    def __setstate__(self, state: object) -> None:
        """Drop the state."""


# Plain values that programs save beside the weights; their calls make nothing here.
HARMLESS = frozenset(
    [
        "torch.serialization._get_layout",
        *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
        *(f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")),
        "numpy.dtype",
        "_codecs.encode",
        "collections.defaultdict",
        "datetime.datetime",
        "datetime.timedelta",
        *(f"{module}.{name}" for module in ("builtins", "__builtin__") for name in ("set", "frozenset", "complex")),
        *(f"{module}.{kind}Path" for module in ("pathlib", "pathlib._local") for kind in ("Posix", "Windows")),
    ]
)


MAX_NAMED = 3  # names in a remark
# Names of what a norm counts for its own use, and of tables that a transformer computes when it is built.
BOOKKEEPING = ("num_batches_tracked", "relative_position_index", "relative_coords_table", "attn_mask")
# Order in which one of several whole encoders is taken, by the words of its prefix. The published figures
# of DINO are its teacher's; those of MoCo and BYOL the online encoder's, not its momentum copy's.
PREFERENCE = (
    {"teacher"},
    {"ema", "swa", "average", "averaged"},
    set[str](),
    {"student"},
    {"momentum", "k", "key", "target"},
)
REMEDY = (
    "if you trust it, write its weights once as safetensors: safetensors.torch.save_file(torch.load(file, "
    "weights_only=False)['state_dict'], 'weights.safetensors')"
)


@dataclass(frozen=True)
class Match:
    """Tensors of a file that belong to weights of a module, under one prefix and in one spelling.

    ``is_numbered``: the file has the numbers of the module's children in place of their names.
    """

    prefix: str
    keys: Mapping[str, str]  # the file's names by the module's; with the same shape
    others: Mapping[str, str]  # the same, of another shape
    is_numbered: bool

    @property
    def rank(self) -> int:
        """Place of the prefix in ``PREFERENCE``."""
        words = set(re.split(r"[._]", self.prefix.lower()))
        places = [place for place, preferred in enumerate(PREFERENCE) if words & preferred]
        return places[0] if places else PREFERENCE.index(set())


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file or a checkpoint of ``torch.save``, by flat dotted names; nothing is unpickled.

    Raises:
        RunError: the file cannot be read, is damaged or missing, or asks to call what it names.
    """
    path = Path(path)
    try:
        with open_regular(path) as file:
            start = file.read(64)
        is_old = start.startswith(b"\x80") and MAGIC.to_bytes(10, "little") in start
        if start.startswith(ZIP_START) or is_old:
            tensors = read_torch_file(path)
        elif start[8:9] == b"{":
            tensors = read_tensors(path)
        else:
            raise ValueError("neither safetensors nor a file of torch.save" if start else "the file is empty")
        if not tensors:
            raise ValueError("no dictionary in it holds tensors by name")
        return tensors
    except ForeignCallError as error:
        raise RunError(f"{path} asks to call {error}, and nothing in a file is ever run; {REMEDY}") from None
    except NOT_READABLE as error:
        raise RunError(f"no weights can be read from {path}: {first_line(error)}") from None


def fit_weights(module: nn.Module, tensors: Mapping[str, Tensor], origin: str, encoder: str = "") -> tuple[str, ...]:
    """Load a file's weights into a module, all of the module's or none.

    Args:
        module: module that gets the weights, in place; its own numbers decide on dtype and device.
        tensors: tensors by name, as ``read_weights`` returns them.
        origin: name of the file in errors.
        encoder: name of the module in errors.

    Returns:
        Remarks of one line each, the number of tensors and their prefix among them.

    Raises:
        UsageError: the file lacks weights of the module, or has others, or more blocks; or a weight is not finite.
    """
    bare = module.body if isinstance(module, Pooled) else module
    expected = _expected_tensors(bare)
    if not expected:
        raise UsageError(f"{origin}: the encoder has no weights to load")
    matches = _matches(bare, expected, tensors)
    full_matches = [match for match in matches if len(match.keys) == len(expected)]
    if not full_matches:
        hint = "; weights of other programs fit timm:NAME or torchvision:NAME" if has_stem(encoder) else ""
        raise UsageError(
            f"{origin} does not fit the encoder{encoder and f' {encoder}'}: {_misfit(matches, expected, tensors)}{hint}"
        )
    chosen = full_matches[0]
    used = {key for match in full_matches for key in match.keys.values()}
    unused = [key for key in tensors if key not in used and not key.endswith(BOOKKEEPING)]
    foreign_key = _part_of_another(chosen, unused)
    if foreign_key is not None:
        raise UsageError(
            f"{origin} is of another network: it has all {len(expected)} tensors of the encoder, and {foreign_key} in "
            "or beside its blocks"
        )
    for key in chosen.keys.values():
        if not bool(torch.isfinite(tensors[key]).all()):
            raise UsageError(f"{origin}: {key} holds NaN or infinity; take an earlier checkpoint")
    # And what the module keeps beside its weights, where the file has that, too.
    state, keys = bare.state_dict(), dict(chosen.keys)
    for weight in (name for name in state if name.endswith(BOOKKEEPING)):
        key = chosen.prefix + weight
        if key in tensors and _is_alike(tensors[key], state[weight]):
            keys[weight] = key
    # Loaded without strict, as counts of batches may be missing; everything else was checked.
    bare.load_state_dict({weight: tensors[key] for weight, key in keys.items()}, strict=False)
    return _remarks(full_matches, unused, len(expected))


def share_of(module: nn.Module, tensors: Mapping[str, Tensor]) -> float:
    """Share of a module's weights that a file has under one prefix; the module may be without numbers (``meta``)."""
    expected = _expected_tensors(module)
    matches = _matches(module, expected, tensors)
    return len(matches[0].keys) / len(expected) if matches and expected else 0.0


def _matches(module: nn.Module, expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> list[Match]:
    """All prefixes and spellings under which a file has something of a module, the fullest first."""
    matches: list[Match] = []
    # The module's own names by those that files may have: the same, or as nn.Sequential(*module.children()) has them.
    spellings = [{name: name for name in expected}]
    places = {name: str(place) for place, (name, _) in enumerate(module.named_children())}
    firsts = {name: name.split(".")[0] for name in expected}
    if any(name != place for name, place in places.items()) and all(first in places for first in firsts.values()):
        spellings.append({places[first] + name.removeprefix(first): name for name, first in firsts.items()})
    for number, spelled in enumerate(spellings):
        alike: dict[str, dict[str, str]] = defaultdict(dict)
        others: dict[str, dict[str, str]] = defaultdict(dict)
        ends = ((key, cut) for key in tensors for cut in [0, *(dot.end() for dot in re.finditer(r"\.", key))])
        for key, cut in ends:
            weight = spelled.get(key[cut:])
            if weight is not None:
                (alike if _is_alike(tensors[key], expected[weight]) else others)[key[:cut]][weight] = key
        prefixes = dict.fromkeys([*alike, *others])
        matches += [Match(prefix, alike[prefix], others[prefix], number > 0) for prefix in prefixes]
    return sorted(matches, key=lambda match: (-len(match.keys), match.rank))


def _expected_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Tensors that a file must have: parameters and buffers, but no counts of batches."""
    return {name: value for name, value in module.state_dict().items() if not name.endswith(BOOKKEEPING)}


def _is_alike(value: Tensor, own: Tensor) -> bool:
    return value.shape == own.shape and value.is_floating_point() == own.is_floating_point()


def _part_of_another(match: Match, unused: list[str]) -> str | None:
    """The first left-over weight of a block that the encoder has, or of one more block of the kind."""
    blocks, kinds = set(), set()
    for key in match.keys.values():
        for block, inner_name in _blocks_around(key.removeprefix(match.prefix)):
            blocks.add(block)
            kinds.add((block.rpartition(".")[0], inner_name))
    for key in unused:
        for block, inner_name in _blocks_around(key.removeprefix(match.prefix)) if key.startswith(match.prefix) else []:
            if block in blocks or (block.rpartition(".")[0], inner_name) in kinds:
                return key
    return None


def _blocks_around(name: str) -> list[tuple[str, str]]:
    """The numbered blocks that hold a weight, and its name in each: of at least two words; a layer is not a block."""
    return [(name[: dot.end(1)], name[dot.end() :]) for dot in re.finditer(r"\.(\d+)\.(?=[^.]+\.)", name)]


def _remarks(full_matches: list[Match], unused: list[str], num_wanted: int) -> tuple[str, ...]:
    chosen, *further = full_matches
    place = f"under {chosen.prefix.removesuffix('.')}" if chosen.prefix else "without a prefix"
    spelled = ", by the numbers of its children" if chosen.is_numbered else ""
    remarks = [f"took {num_wanted} tensors {place}{spelled}"]
    if further:
        names = ", ".join(match.prefix.removesuffix(".") or "no prefix" for match in further[:MAX_NAMED])
        remarks.append(
            f"the file also has the whole encoder under {names}; a teacher goes first, then a moving average"
        )
    if unused:
        remarks.append(f"left aside: {some(unused, MAX_NAMED)}")
    return tuple(remarks)


def _misfit(matches: list[Match], expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> str:
    """Say what the prefix with most weights lacks: weights of another shape, missing ones and unknown ones."""
    if not matches:
        return f"it has {_names(list(tensors))}, the encoder {_names(list(expected))}"
    best = matches[0]
    place = f" under {best.prefix[:-1]}" if best.prefix else ""
    parts = [f"it has {len(best.keys)} of the encoder's {len(expected)} tensors{place}"]
    missing = [weight for weight in expected if weight not in best.keys and weight not in best.others]
    for weight, key in list(best.others.items())[:1]:
        parts.append(f"{weight} is {_sizes(tensors[key])} and not {_sizes(expected[weight])}")
    matched = {*best.keys.values(), *best.others.values()}
    unknown = [
        key for key in tensors if key.startswith(best.prefix) and key not in matched and not key.endswith(BOOKKEEPING)
    ]
    parts += [f"missing: {_names(missing)}"] if missing else []
    parts += [f"unknown: {_names(unknown)}"] if unknown else []
    return "; ".join(parts)


def _names(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")


def _sizes(value: Tensor) -> str:
    return " x ".join(map(str, value.shape)) or "one number"
