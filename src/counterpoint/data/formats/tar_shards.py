"""Tar shards (WebDataset's layout) as a source, read by byte offset: one index pass, then seek and read.

A sample is all members of one key, which is the name up to the first dot of its base name: `a/0001.jpg`, `a/0001.cls`.
Members of a key need not be neighbours. The label is in `.cls`, or in a field of `.json`.
"""

import json
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from counterpoint.core.errors import DataError
from counterpoint.core.settings import SourceSettings
from counterpoint.core.user_files import MOST_FILES, Address, absolute, as_path, length, open_regular
from counterpoint.data.formats.image_files import SUFFIXES, has_images, list_files
from counterpoint.data.formats.indexed_images import Listing, open_listing
from counterpoint.data.formats.listed_pictures import open_listed
from counterpoint.data.manifest import Manifest, Remark, manifest_path, read_manifest, stamp_of
from counterpoint.data.source import FOLDER, FileForm, Progress, Source, refuse_split
from counterpoint.data.stores import Located, read_bytes

SHARD_SUFFIX = ".tar"
LABEL_FIELDS = ("label", "cls", "class")
MOST_BYTES = MOST_FILES * 20_000  # of shards at an address; those of more are listed
MAX_LABEL_BYTES = 1 << 16
BLOCK = tarfile.BLOCKSIZE
MAX_EXTENSION = 1 << 20  # of a long name or a pax header
MAX_BEHIND = 1 << 20  # bytes behind the end mark that are looked at
EXTENSIONS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE)


@dataclass(frozen=True)
class ShardLayout:
    """The images and remarks of one shard."""

    images: tuple[Located, ...]
    remarks: tuple[Remark, ...]


def find_shards(path: Path) -> list[Path]:
    """The shards at a path: itself, or the .tar files of a folder at any depth, sorted; hidden ones are passed over."""
    files = [path] if path.is_file() else list_files(path)[1]
    return [file for file in files if file.suffix == SHARD_SUFFIX]


def open_shards(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a .tar, or a folder of them; names are those of the members, behind the shard's if it is a folder.

    A shard that did not change keeps the layout that the manifest has.

    Raises:
        DataError: no shards or no images in them, too many bad ones, or content that changed since it was indexed.
    """
    refuse_split(str(path), settings.split)
    files = find_shards(path)
    if not files:
        raise DataError(f"no {SHARD_SUFFIX} shards in {path}; compressed ones must be unpacked to {SHARD_SUFFIX} first")
    variant = f"tar {settings.label_column}"
    prefixes = {file: "" if file == path else f"{file.relative_to(path).as_posix()}/" for file in files}
    if isinstance(path, Address) and sum(stamp_of(file)[0] for file in files) > MOST_BYTES:
        scanned = (scan_shard(file, prefixes[file], settings.label_column) for file in files)
        images = (image for layout in scanned for image in layout.images)
        return open_listed(path, images, Listing((), variant=variant), settings, progress)
    cached = read_manifest(manifest_path(str(path), files, variant))
    earlier = _unchanged_layouts(cached)
    layouts: list[ShardLayout] = []
    with progress(f"indexing {len(files)} shards", len(files)) as advance:
        for file in files:
            # Absolute, as the manifest has them: the same shard is known from another working directory.
            name = absolute(file)
            layouts.append(earlier.get(name) or scan_shard(as_path(name), prefixes[file], settings.label_column))
            advance()
    images = [image for layout in layouts for image in layout.images]
    remarks = [remark for layout in layouts for remark in layout.remarks]
    if not images:
        first = f" ({remarks[0].name}: {remarks[0].reason})" if remarks else ""
        raise DataError(f"no images in the shards of {path}{first}")
    # The label's field decides which labels are read, so each field has an index of its own.
    listing = Listing(images, remarks=remarks, cached=cached, variant=variant)
    return open_listing(str(path), listing, settings, progress)


def _unchanged_layouts(manifest: Manifest) -> dict[str, ShardLayout]:
    images: dict[str, list[Located]] = defaultdict(list)
    remarks: dict[str, list[Remark]] = defaultdict(list)
    paths = {file: as_path(file) for file in manifest.stamps}
    for row in manifest.rows:
        images[row.file].append(Located(row.name, paths[row.file], row.offset, row.size, row.label))
    for remark in manifest.remarks:
        remarks[remark.file].append(remark)
    return {
        file: ShardLayout(tuple(images[file]), tuple(remarks[file]))
        for file, stamp in manifest.stamps.items()
        if stamp_of(file) == stamp
    }


class CheckedHeader(tarfile.TarInfo):
    """A header that tarfile may follow: sizes below 0 lead backward, and extensions are read whole."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> tarfile.TarInfo:
        """See ``tarfile.TarInfo``."""
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (header.type in EXTENSIONS and header.size > MAX_EXTENSION):
            raise tarfile.HeaderError(f"a size of {header.size}")
        return header


def members_of(path: Path) -> Iterator[Located | Remark]:
    """Walk the headers of an archive in order, up to the first that is damaged; nothing is extracted.

    Yields:
        Regular files, and entries that are not usable: the name if it is known, or the place, and the reason.

    Raises:
        OSError: the archive cannot be read.
    """
    with open_regular(path) as stream:
        place, end = 0, length(stream)
        # tarfile's parsers raise whatever they come across in a damaged header; its own walk ends there silently.
        with (
            suppress(tarfile.TarError, ValueError, LookupError, ArithmeticError),
            tarfile.open(fileobj=stream, mode="r:", tarinfo=CheckedHeader, errors="backslashreplace") as archive,
        ):
            # A size in a pax header has no checksum: it may lead backward, too.
            while (header := archive.next()) is not None and archive.offset > place:
                place = archive.offset
                archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]; a kilobyte each
                yield from () if header.isdir() else (_member(path, header),)
        # Behind the last header: the end mark, two blocks of zeros, is not reported, and neither is its padding.
        stream.seek(place)
        block, reach = stream.read(2 * BLOCK), f"bytes {place} to {end}"
        if any(block):
            name = block[:100].split(b"\0", 1)[0].decode("utf-8", errors="backslashreplace")
            printable = name if name and name.isprintable() else reach
            yield Remark(str(path), printable, f"damaged header; {reach} cannot be read", is_lost=True)
        elif len(block) < 2 * BLOCK:
            yield Remark(str(path), "end", "the archive ends without an end mark: it may be cut off", is_lost=False)
        elif any(stream.read(MAX_BEHIND)):
            reason = "after the end mark; pack archives that were joined, or were damaged, again"
            yield Remark(str(path), reach, reason, is_lost=True)


def _member(path: Path, header: tarfile.TarInfo) -> Located | Remark:
    name, reason = header.name, ""
    # Without characters that a terminal would act on.
    printable = "".join(letter for letter in name if letter.isprintable()) or f"byte {header.offset}"
    if header.issparse() or any(key.startswith("GNU.sparse") for key in header.pax_headers):
        reason = "a sparse file, not a plain file"
    elif not header.isreg():
        reason = "a link or a device, not a plain file"
    elif printable != name:
        reason = "its name is empty or has control characters"
    elif name.startswith("/") or "\\" in name or ".." in name.split("/"):
        reason = "its name points outside of the archive"
    if reason:
        return Remark(str(path), printable, reason, is_lost=False)
    return Located(name, path, header.offset_data, header.size)


def scan_shard(path: Path, prefix: str, label_field: str) -> ShardLayout:
    """Walk a shard's headers and gather its members into samples.

    Args:
        path: the shard, absolute.
        prefix: text that is put before every name.
        label_field: field of .json members that is the label; auto takes the first of ``LABEL_FIELDS``.
    """
    samples: dict[str, dict[str, Located]] = defaultdict(dict)
    remarks: list[Remark] = []
    try:
        for member in members_of(path):
            if isinstance(member, Remark):
                remarks.append(member)
                continue
            # Parted at the first dot of the base name: train.v2/cat.left.jpg is left.jpg of train.v2/cat.
            folder, slash, base = member.name.rpartition("/")
            stem, _, suffix = base.partition(".")
            key = folder + slash + stem
            if not stem:  # a hidden one: a/.DS_Store
                continue
            if suffix in samples[key]:
                reason = "a second member of this name; the first is taken"
                remarks.append(Remark(str(path), member.name, reason, is_lost=False))
            samples[key].setdefault(suffix, member)
    except OSError as error:
        remarks.append(Remark(str(path), path.name, error.strerror or str(error), is_lost=True))
    images: list[Located] = []
    for members in samples.values():
        suffixes = [suffix for suffix in members if f".{suffix.rsplit('.', 1)[-1]}".lower() in SUFFIXES]
        # A sample is its first image; further ones of the key, and keys without an image, are named as left out.
        spare = members if not suffixes else suffixes[1:]
        reason = "no image has this key" if not suffixes else f"its key's image is {members[suffixes[0]].name}"
        remarks += [Remark(str(path), members[suffix].name, reason, is_lost=False) for suffix in spare]
        if suffixes:
            labels = (_read_label(members[kind], label_field) for kind in ("cls", "json") if kind in members)
            image, label = members[suffixes[0]], next((label for label in labels if label is not None), None)
            images.append(replace(image, name=prefix + image.name, label=label))
    return ShardLayout(tuple(images), tuple(replace(remark, name=prefix + remark.name) for remark in remarks))


def _read_label(member: Located, label_field: str) -> str | None:
    if (member.size or 0) > MAX_LABEL_BYTES:
        return None
    try:
        text = read_bytes(member).decode("utf-8").strip()
        if member.name.endswith(".json"):
            value = json.loads(text)  # the label itself, or an object with a field of it
            if isinstance(value, dict):
                names = LABEL_FIELDS if label_field == "auto" else (label_field,)
                value = next((value[name] for name in names if name in value), "")
            # True is an int, and no class.
            text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    # RecursionError: JSON that is nested thousands deep.
    except (OSError, ValueError, RecursionError):
        return None
    return text if text and text.isprintable() else None


FORMS = (
    FileForm("tar shards", (".tar",), open_shards, reads=("label_column", "max_bad", "altered")),
    # And no image: an archive beside the images it held is not a shard.
    FileForm(
        "an image folder",
        (FOLDER,),
        open_shards,
        lambda folder: not has_images(folder) and bool(find_shards(folder)),
        ("max_bad", "altered"),
    ),
)
