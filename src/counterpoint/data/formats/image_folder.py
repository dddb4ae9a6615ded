"""A folder of images as a source: bad files are skipped, counted and named."""

from collections.abc import Sequence
from pathlib import Path

from counterpoint.core.errors import DataError
from counterpoint.core.settings import SourceSettings
from counterpoint.data.formats.image_files import SUFFIXES, Skipped, list_files
from counterpoint.data.formats.indexed_images import Listing, open_listing
from counterpoint.data.formats.label_files import Labels, labels_from_folders
from counterpoint.data.formats.located import Located
from counterpoint.data.source import Progress, Source


def open_folder(path: Path, settings: SourceSettings, progress: Progress) -> Source:
    """Open a folder of images at any depth; see ``indexed_images.open_located`` for what is done with them.

    Raises:
        DataError: no images, too many bad ones, or content that changed since it was indexed.
    """
    files, others = list_files(path)
    if not files:
        raise DataError(f"no images in {path} (looked at any depth for {', '.join(sorted(SUFFIXES))})")
    images = [Located(file.relative_to(path).as_posix(), file) for file in files]
    labels_file = Path(settings.labels).resolve()
    ignored = [
        Skipped(other.relative_to(path).as_posix(), "no image suffix")
        for other in others
        if other.resolve() != labels_file
    ]
    return open_listing(str(path), Listing(images, ignored, label=_folder_labels), settings, progress)


def _folder_labels(images: Sequence[Located]) -> Labels | None:
    """Sub-folder names."""
    return labels_from_folders([image.name for image in images])
