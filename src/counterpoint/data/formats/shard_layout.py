"""Which samples a tar shard holds, and where: members gathered by key, labels read, oddities named."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from counterpoint.data.formats.image_files import SUFFIXES
from counterpoint.data.formats.located import Located, read_bytes
from counterpoint.data.formats.tar_headers import Member, Unreadable, members_of
from counterpoint.data.manifest import FileStamp, Manifest, Remark

LABEL_KINDS = ("cls", "json", "txt")  # in the order in which they are preferred
TEXT_KIND = LABEL_KINDS.index("txt")
LABEL_FIELDS = ("label", "cls", "class")
MAX_LABEL_BYTES = 1 << 16


@dataclass(frozen=True)
class ShardLayout:
    """What one shard holds, its stamp when that was found, and whether damage or altered samples were found, too."""

    images: tuple[Located, ...]
    remarks: tuple[Remark, ...]
    stamp: FileStamp
    is_damaged: bool = False


def split_key(name: str) -> tuple[str, str]:
    """Key and extension of a member, parted at the first dot of its base name.

    >>> split_key("train.v2/cat.left.jpg")
    ('train.v2/cat', 'left.jpg')
    """
    folder, slash, base = name.rpartition("/")
    stem, _, suffix = base.partition(".")
    return folder + slash + stem, suffix


def scan_shard(path: Path, prefix: str, label_field: str, stamp: FileStamp) -> ShardLayout:
    """Walk a shard's headers and gather its members into samples.

    Args:
        path: the shard, absolute.
        prefix: put before every name.
        label_field: field of .json members that is the label; auto takes the first of ``LABEL_FIELDS``.
        stamp: the shard's, taken before it is read.
    """
    samples: dict[str, dict[str, Member]] = defaultdict(dict)
    unreadable: list[Unreadable] = []
    try:
        for found in members_of(path):
            problem = found if isinstance(found, Unreadable) else _put(found, samples)
            unreadable += [] if problem is None else [problem]
    except OSError as error:
        unreadable.append(Unreadable(path.name, error.strerror or str(error), is_damage=True, is_lost=True))
    images: list[Located] = []
    for members in samples.values():
        suffixes = [suffix for suffix in members if _is_image(suffix)]
        spare = members if not suffixes else suffixes[1:]
        reason = "no image has this key" if not suffixes else f"its key's image is {members[suffixes[0]].name}"
        unreadable += [Unreadable(members[suffix].name, reason) for suffix in spare]
        if suffixes:
            images.append(_located(path, prefix, members[suffixes[0]], members, label_field))
    remarks = tuple(Remark(str(path), prefix + item.name, item.reason, item.is_lost) for item in unreadable)
    return ShardLayout(tuple(images), remarks, stamp, any(item.is_damage for item in unreadable))


def earlier_layouts(manifest: Manifest | None) -> dict[str, ShardLayout]:
    """What an earlier manifest says of each shard."""
    if manifest is None:
        return {}
    images: dict[str, list[Located]] = defaultdict(list)
    remarks: dict[str, list[Remark]] = defaultdict(list)
    altered = {row.file for row in manifest.rows if row.status == "altered"}
    for row in manifest.rows:
        images[row.file].append(Located(row.name, Path(row.file), row.offset, row.size, row.label, row.label_at))
    for remark in manifest.remarks:
        remarks[remark.file].append(remark)
    return {
        file: ShardLayout(tuple(images[file]), tuple(remarks[file]), stamp, file in altered)
        for file, stamp in manifest.stamps.items()
    }


def with_missing(layout: ShardLayout, earlier: ShardLayout) -> ShardLayout:
    """Add the samples that an earlier layout had and damage hides now, at their former places."""
    found = {image.name for image in layout.images}
    missing = [image for image in earlier.images if image.name not in found]
    return replace(layout, images=tuple(sorted((*layout.images, *missing), key=lambda image: image.offset)))


def reread_label(image: Located, label_field: str) -> Located:
    """The same image with the label that stands now where its label stood."""
    if image.label_at is None:
        return image
    offset, size, kind = image.label_at
    return replace(image, label=_read_label(Located(image.name, image.path, offset, size), kind, label_field))


def _put(member: Member, samples: Mapping[str, dict[str, Member]]) -> Unreadable | None:
    """Add a member to the sample of its key; a hidden one is passed over."""
    key, suffix = split_key(member.name)
    if key.endswith("/") or not key:
        return None
    if suffix in samples[key]:
        return Unreadable(member.name, "a second member of this name; the first is taken")
    samples[key][suffix] = member
    return None


def _is_image(suffix: str) -> bool:
    """Whether an extension, which may have several dots, is that of an image."""
    return f".{suffix.rsplit('.', 1)[-1]}".lower() in SUFFIXES


def _located(path: Path, prefix: str, image: Member, members: Mapping[str, Member], label_field: str) -> Located:
    """One sample."""
    located = Located(prefix + image.name, path, image.offset, image.size)
    for kind, suffix in enumerate(LABEL_KINDS):
        member = members.get(suffix)
        label = None if member is None else _read_label(_place(path, member), kind, label_field)
        if member is not None and label is not None:
            return replace(located, label=label, label_at=(member.offset, member.size, kind))
    return located


def _place(path: Path, member: Member) -> Located:
    """Where a member's bytes lie."""
    return Located(member.name, path, member.offset, member.size)


def _read_label(place: Located, kind: int, label_field: str) -> str | None:
    """Label at a place; None when there is none, or what is there cannot be one."""
    if place.size is None or place.size > MAX_LABEL_BYTES:
        return None
    try:
        text = read_bytes(place).decode("utf-8").strip()
        if LABEL_KINDS[kind] == "json":
            text = _field(json.loads(text), label_field)
    except (OSError, ValueError, RecursionError):
        return None
    return text if text and text.isprintable() else None


def _field(value: object, label_field: str) -> str:
    """Label in a JSON document: the document itself, or a field of it."""
    if isinstance(value, dict):
        names = LABEL_FIELDS if label_field == "auto" else (label_field,)
        value = next((value[name] for name in names if name in value), "")
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
