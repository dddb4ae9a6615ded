"""Tar shards (WebDataset's layout) as a source, read by byte offset: one index pass, then seek and read.

A sample is all members of one key, which is the name up to the first dot of its base name: `a/0001.jpg`, `a/0001.cls`.
Members of a key need not be neighbours. The label is in `.cls`, in a field of `.json`, or in `.txt`.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from counterpoint.core.errors import DataError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.indexed_images import Listing, open_listing
from counterpoint.data.formats.label_files import Labels
from counterpoint.data.formats.located import Located
from counterpoint.data.formats.located_labels import own_labels
from counterpoint.data.formats.shard_layout import (
    TEXT_KIND,
    ShardLayout,
    earlier_layouts,
    reread_label,
    scan_shard,
    with_missing,
)
from counterpoint.data.manifest import manifest_path, read_manifest, stamp_of
from counterpoint.data.source import Progress, Source

CAPTION_SHARE = 0.5  # texts of which more than this share are distinct are captions, not labels
SHARD_SUFFIX = ".tar"


def find_shards(path: Path) -> list[Path]:
    """The shards at a path: itself, or the .tar files of a folder at any depth, sorted; hidden ones are passed over."""
    if path.is_file():
        return [path] if path.suffix == SHARD_SUFFIX else []
    found: list[Path] = []
    for directory, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        shards = [name for name in files if name.endswith(SHARD_SUFFIX) and not name.startswith(".")]
        found += [Path(directory) / name for name in shards]
    return sorted(found)


def open_shards(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a .tar, or a folder of them; names are those of the members, behind the shard's where it is a folder.

    A shard that did not change keeps the layout that the manifest has. So does one whose bytes changed but not their
    number, since its headers cannot be trusted and are not needed: exactly the samples whose bytes (of the image or
    the label) were touched differ from their hashes.

    Raises:
        DataError: no shards or no images in them, too many bad ones, or content that changed since it was indexed.
    """
    files = find_shards(path)
    if not files:
        raise DataError(f"no {SHARD_SUFFIX} shards in {path}; compressed ones must be unpacked to {SHARD_SUFFIX} first")
    variant = f"tar {settings.label_column}"
    cached = read_manifest(manifest_path(str(path), files, variant))
    earlier = earlier_layouts(cached.manifest)
    layouts: list[ShardLayout] = []
    with progress(f"indexing {len(files)} shards", len(files)) as advance:
        for file in files:
            prefix = "" if file == path else f"{file.relative_to(path).as_posix()}/"
            layouts.append(_layout(Path(os.path.abspath(file)), prefix, settings, earlier))
            advance()
    images = [image for layout in layouts for image in layout.images]
    remarks = [remark for layout in layouts for remark in layout.remarks]
    if not images:
        first = f" ({remarks[0].name}: {remarks[0].reason})" if remarks else ""
        raise DataError(f"no images in the shards of {path}{first}")
    listing = Listing(images, remarks=remarks, label=_labels, cached=cached, variant=variant)
    source = open_listing(str(path), listing, settings, progress)
    if settings.labels == "auto" and source.labels is None and own_labels(images) is not None:
        return replace(
            source, notes={**source.notes, "source.labels": "none: the texts are captions, hardly any repeats"}
        )
    return source


def _layout(path: Path, prefix: str, settings: SourceSettings, earlier: dict[str, ShardLayout]) -> ShardLayout:
    """Layout of a shard: as it was, where that is known to hold, else from its headers."""
    stamp, known = stamp_of(str(path)), earlier.get(str(path))
    if known is None or settings.altered == "reindex":
        return scan_shard(path, prefix, settings.label_column, stamp)
    if stamp == known.stamp and not known.is_damaged:
        return known
    if stamp.size == known.stamp.size:
        images = tuple(reread_label(image, settings.label_column) for image in known.images)
        return ShardLayout(images, known.remarks, stamp)
    layout = scan_shard(path, prefix, settings.label_column, stamp)
    return with_missing(layout, known) if layout.is_damaged else layout


def _labels(images: Sequence[Located]) -> Labels | None:
    """Labels of the samples; texts that hardly ever repeat are captions."""
    labels = own_labels(images)
    is_text = any(image.label_at is not None and image.label_at[2] == TEXT_KIND for image in images)
    if labels is None or (is_text and len(labels.class_names) > CAPTION_SHARE * len(images)):
        return None
    return labels
