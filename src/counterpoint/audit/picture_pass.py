"""One pass over all pictures: each is decoded once, as small as its format allows, and only figures of it are kept.

Of a picture some 3.6 kB stay, so that 100,000 take 360 MB; the picture itself is forgotten.
"""

# N pictures, S = SIDE pixels, T = 2 S pixels, K colours, B pictures of a block

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from counterpoint.audit.audited_data import BLOCK, AuditedData, Block
from counterpoint.audit.picture_copies import GREY_3, SIDE, borders, per_pixel
from counterpoint.core.array_layout import to_unit_float
from counterpoint.core.arrow_files import TableFile, write_columns
from counterpoint.core.errors import first_line
from counterpoint.core.thread_parts import side_by_side
from counterpoint.data.formats.image_files import ENCODED, MAX_ENCODED_BYTES, decode, orientation
from counterpoint.data.stores import FileStore, Located, Read

NUM_CELLS = 8  # along each side, in which edges are counted
NUM_LEVELS = 4  # of each colour in the histogram
NUM_TURNS, WEAK_EDGES = 9, 100.0  # directions of edges; levels that all edges of a cell have to pass to count in full
FILLED = 6  # levels around the grey with which a decoder fills
DRAFT = 4 * SIDE  # pixels: a JPEG is decoded at the smallest scale that leaves this many
MEMORY = "in memory"
SUM_AT_QUALITY_50 = 3688  # of the table of luminance that libjpeg scales


@dataclass(frozen=True)
class PictureHeader:
    """Facts from a picture's file, or the reason why it is not a picture.

    Attributes:
        reason: error that prevents reading it; empty if it can be read.
        format: format of its content; of a picture in memory, ``MEMORY``.
        mode: colour mode.
        width: width in pixels, upright.
        height: height in pixels, upright.
        num_bytes: size of the file.
        digest: hash of its bytes or pixels.
        quality: quality of a JPEG, estimated from its tables; 0 for other formats.
    """

    reason: str = ""
    format: str = MEMORY
    mode: str = ""
    width: int = 0
    height: int = 0
    num_bytes: int = 0
    digest: bytes = b""
    quality: int = 0


@dataclass(frozen=True)
class PictureStatistics:
    """Statistics of the look of pictures; zeros if a picture cannot be read.

    Attributes:
        small_NSS3: the picture at ``SIDE`` pixels, uint8.
        frame_N4: its borders of one colour, in sides: top, left, bottom, right.
        colour_N6: mean and deviation of red, green and blue, in [0, 1].
        histogram_NK: share of the pixels in each of 4 x 4 x 4 colours.
        border_N6: mean and deviation of the outermost ring, by colour.
        place_N4: centre of what differs from the border, and its spread, along both axes, in sides.
        range_N: levels between the darkest and the lightest hundredth of the pixels.
        cut_N: share of the height that is one grey of a half at the bottom, as decoders fill what is missing of a JPEG.
        grain_N: correlation of pixels with the next to the right and below; about 0 for noise.
        sharpness_N: logarithm of the energy of neighbouring differences over that of the grey levels.
        colourfulness_N: mean distance of a pixel's colours from each other, in levels.
    """

    small_NSS3: np.ndarray
    frame_N4: np.ndarray
    colour_N6: np.ndarray
    histogram_NK: np.ndarray
    border_N6: np.ndarray
    place_N4: np.ndarray
    range_N: np.ndarray
    cut_N: np.ndarray
    grain_N: np.ndarray
    sharpness_N: np.ndarray
    colourfulness_N: np.ndarray


NUM_COLUMNS = len(fields(PictureHeader)) + len(fields(PictureStatistics))  # of a table of what was seen


@dataclass(frozen=True)
class Seen:
    """All pictures of a collection after the pass."""

    headers: tuple[PictureHeader, ...]
    looks: PictureStatistics

    @property
    def sides(self) -> np.ndarray:
        """Shorter side of each picture, in pixels."""
        return np.array([min(header.width, header.height) for header in self.headers])


def look_through(
    collection: AuditedData, blocks: Sequence[Block], advance: Callable[[], object] = lambda: None
) -> Seen:
    """Decode some pictures once; threads take blocks of them.

    Args:
        collection: the pictures.
        blocks: blocks of the collection to decode.
        advance: function that is called once for each block.
    """

    def work(block: Block) -> Seen:
        content, rows = collection.shares[block[0]].content, slice(block[1], block[1] + BLOCK)
        if isinstance(content, FileStore):
            images = content.images[rows]
            pixels_BTT3 = np.zeros((len(images), 2 * SIDE, 2 * SIDE, 3), np.uint8)
            headers = [_look_at_file(image, content.read, pixels_BTT3[place]) for place, image in enumerate(images)]
        else:
            samples_BCHW = content[rows]
            channels, height, width = samples_BCHW.shape[1:]
            facts: dict[str, Any] = {"mode": "L" if channels == 1 else "RGB", "width": width, "height": height}
            digests = [hashlib.sha256(each.contiguous().numpy().tobytes()).digest()[:16] for each in samples_BCHW]
            headers = [PictureHeader(**facts, digest=digest) for digest in digests]
            pixels_BTT3 = array_pixels(samples_BCHW)
        seen = Seen(tuple(headers), looks_of(pixels_BTT3))
        advance()
        return seen

    return end_to_end(side_by_side(work, blocks))


def end_to_end(parts: Sequence[Seen]) -> Seen:
    """Join the results of several looks, in their order."""
    headers = tuple(header for part in parts for header in part.headers)
    looks = (np.concatenate([getattr(part.looks, name) for part in parts]) for name in _names(PictureStatistics))
    return Seen(headers, PictureStatistics(*looks))


def save_seen(seen: Seen, path: Path) -> None:
    """Write the result of a look to a Parquet table, a row per picture.

    Raises:
        OSError: it cannot be written.
    """
    headers = {name: [getattr(header, name) for header in seen.headers] for name in _names(PictureHeader)}
    looks = {name: getattr(seen.looks, name) for name in _names(PictureStatistics)}
    flat = {_bare_name(name): each.reshape(len(each), -1) if each.ndim > 1 else each for name, each in looks.items()}
    write_columns(path, headers | flat)


def load_seen(path: Path) -> Seen:
    """Read a table that ``save_seen`` wrote.

    Raises:
        DataError: it is damaged.
    """
    table = TableFile(path)
    headers = zip(*(table.column(name) for name in _names(PictureHeader)), strict=True)
    looks = {name: table.values(_bare_name(name), 0) for name in _names(PictureStatistics)}
    looks["small_NSS3"] = looks["small_NSS3"].reshape(-1, SIDE, SIDE, 3)
    return Seen(tuple(PictureHeader(*header) for header in headers), PictureStatistics(**looks))


def _names(record: type[PictureHeader | PictureStatistics]) -> list[str]:
    return [field.name for field in fields(record)]


def _bare_name(name: str) -> str:
    return name.rpartition("_")[0]


def thumbnail(content: FileStore | Tensor, place: int, side: int) -> Image.Image | None:
    """Decode one picture again, small, for a page; None if it cannot be read."""
    if isinstance(content, Tensor):
        pixels_CHW = (to_unit_float(content[place]) * 255).byte().numpy()
        image = Image.fromarray(pixels_CHW[0] if len(pixels_CHW) == 1 else pixels_CHW.transpose(1, 2, 0)).convert("RGB")
    else:
        try:
            image = decode(
                content.read(content.images[place]), lambda picture: picture.copy(), partial(_ask_for, 2 * side)
            )
        except (OSError, ValueError):
            return None
    image.thumbnail((side, side))
    return image


def pixel_digest(content: FileStore, place: int) -> bytes:
    """Hash of a picture's upright pixels in full, as training would see them; of its own kind, unlike that of bytes."""
    read = content.read(content.images[place])
    return decode(read, lambda picture: hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).digest()[:16])


def _look_at_file(image: Located, read: Read, pixels_TT3: np.ndarray) -> PictureHeader:
    """Read the header of one file and write its pixels into ``pixels_TT3``."""
    facts: dict[str, Any] = {}

    def before(opened: Image.Image) -> None:
        # A JPEG that more pictures follow, as phones write it, is a JPEG to those who look at it.
        kind, tables = "JPEG" if opened.format == "MPO" else opened.format, getattr(opened, "quantization", None)
        has_alpha = "transparency" in opened.info and "A" not in opened.mode
        facts["format"], facts["mode"] = kind or "", opened.mode + (" with alpha" if has_alpha else "")
        facts["width"], facts["height"] = opened.size[::-1] if orientation(opened) > 4 else opened.size
        facts["quality"] = jpeg_quality(tables) if kind == "JPEG" and tables else 0
        _ask_for(DRAFT, opened)

    def use(picture: Image.Image) -> None:
        small = picture.resize(pixels_TT3.shape[:2], Image.Resampling.BOX, reducing_gap=2.0)
        pixels_TT3[:] = np.asarray(small)

    num_bytes = 0
    try:
        num_bytes = image.size if image.size is not None else os.stat(image.path).st_size
        with ENCODED.reserved(min(num_bytes, MAX_ENCODED_BYTES)):
            content = read(image)
            facts["digest"] = hashlib.sha256(content).digest()[:16]
            decode(content, use, before)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or first_line(error)
        digest = facts.get("digest", b"")
        return PictureHeader(reason, facts.get("format", "none"), num_bytes=num_bytes, digest=digest)
    return PictureHeader(num_bytes=num_bytes, **facts)


def jpeg_quality(tables: dict[int, Any]) -> int:
    """Quality from 1 to 100 that libjpeg's tables of such a coarseness have.

    >>> import io; stream = io.BytesIO(); Image.new("L", (8, 8)).save(stream, "JPEG", quality=80)
    >>> jpeg_quality(Image.open(stream).quantization)
    80
    """
    # libjpeg scales its tables by S / 100, where S = 200 - 2 q above a quality of 50, and 5000 / q below.
    scale = 100 * sum(tables[min(tables)]) / SUM_AT_QUALITY_50
    return int(np.clip(round((200 - scale) / 2 if scale <= 100 else 5000 / scale), 1, 100))


def _ask_for(side: int, image: Image.Image) -> None:
    """Ask a JPEG's decoder for the smallest scale with at least this many pixels."""
    image.draft(None, (side, side))  # type: ignore[arg-type]


def array_pixels(samples_BCHW: Tensor) -> np.ndarray:
    """Pictures in memory at twice ``SIDE`` pixels, as ``looks_of`` takes them."""
    small = F.adaptive_avg_pool2d(to_unit_float(samples_BCHW), 2 * SIDE)
    return (small.expand(-1, 3, -1, -1) * 255).round().byte().permute(0, 2, 3, 1).numpy()


def looks_of(pixels_BTT3: np.ndarray) -> PictureStatistics:
    """Compute the statistics of pictures of one size.

    Args:
        pixels_BTT3: pictures at twice ``SIDE`` pixels, uint8.
    """
    num, side = len(pixels_BTT3), pixels_BTT3.shape[1]
    values = pixels_BTT3.astype(np.float32)
    grey_BTT = values @ GREY_3
    rows = values[:, ::2] + values[:, 1::2]
    small = (rows[:, :, ::2] + rows[:, :, 1::2]) / 4  # of whole numbers: exact
    flat = values.reshape(num, -1, 3)
    ring = np.ones((side, side), bool)
    ring[1:-1, 1:-1] = False
    border = values[:, ring]
    codes = (pixels_BTT3 // (256 // NUM_LEVELS)).reshape(num, -1, 3).astype(np.int64) @ [1, NUM_LEVELS, NUM_LEVELS**2]
    num_colours = NUM_LEVELS**3
    counts = np.bincount((codes + np.arange(num)[:, None] * num_colours).ravel(), minlength=num * num_colours)
    low, high = np.percentile(grey_BTT.reshape(num, -1), (1, 99), axis=1)
    return PictureStatistics(
        small_NSS3=small.round().astype(np.uint8),
        frame_N4=borders(values),
        colour_N6=np.concatenate([flat.mean(1), flat.std(1)], axis=1).astype(np.float32) / 255,
        histogram_NK=(counts.reshape(num, num_colours) / side**2).astype(np.float32),
        border_N6=np.concatenate([border.mean(1), border.std(1)], axis=1).astype(np.float32) / 255,
        place_N4=_places(values, border.mean(1)),
        range_N=(high - low).astype(np.float32),
        cut_N=_cut_short(values),
        grain_N=_grain(small @ GREY_3),
        sharpness_N=np.log((np.diff(grey_BTT, axis=1).var((1, 2)) + 1) / (grey_BTT.var((1, 2)) + 1)),
        colourfulness_N=(per_pixel(np.maximum, flat) - per_pixel(np.minimum, flat)).mean(1),
    )


def outlines(small_NSS3: np.ndarray) -> np.ndarray:
    """Strength of the edges of each direction in cells of 4 x 4 pixels, float32 (n, 576).

    Histograms of oriented gradients (Dalal and Triggs, 2005), without blocks that overlap.
    """
    grey_NSS = small_NSS3 @ GREY_3
    along_NSS = np.gradient(grey_NSS, axis=1) + 1j * np.gradient(grey_NSS, axis=2)
    turn_NSS = (np.angle(along_NSS) % np.pi * NUM_TURNS / np.pi).astype(np.int64) % NUM_TURNS
    num, cell = len(small_NSS3), SIDE // NUM_CELLS
    strengths = []
    for turn in range(NUM_TURNS):
        edge_NSS = np.abs(along_NSS) * (turn_NSS == turn)
        strengths.append(edge_NSS.reshape(num, NUM_CELLS, cell, NUM_CELLS, cell).sum((2, 4)))
    edges_NCCT = np.stack(strengths, axis=-1)
    share_NCCT = edges_NCCT / (edges_NCCT.sum(-1, keepdims=True) + WEAK_EDGES)
    return np.sqrt(share_NCCT).reshape(num, NUM_CELLS**2 * NUM_TURNS).astype(np.float32)


def _cut_short(values_BTT3: np.ndarray) -> np.ndarray:
    """Share of the rows, from the bottom up, that are the grey of a half; 0 if the top row is, too."""

    def is_filled(rows_BRT3: np.ndarray) -> np.ndarray:
        return (per_pixel(np.maximum, np.abs(rows_BRT3 - 128)) <= FILLED).mean(2) >= 0.97

    share_B = np.zeros(len(values_BTT3))
    ids = np.flatnonzero(is_filled(values_BTT3[:, -1:])[:, 0] & ~is_filled(values_BTT3[:, :1])[:, 0])
    share_B[ids] = is_filled(values_BTT3[ids, ::-1]).cumprod(1).mean(1)
    return share_B


def _grain(grey_BSS: np.ndarray) -> np.ndarray:
    """Mean correlation of neighbours along both axes; 1 of pictures of one grey."""
    centred = grey_BSS - grey_BSS.mean((1, 2), keepdims=True)
    power_B = (centred**2).mean((1, 2))
    shared_B = (centred[:, 1:] * centred[:, :-1]).mean((1, 2)) + (centred[:, :, 1:] * centred[:, :, :-1]).mean((1, 2))
    return np.where(power_B > 1, shared_B / np.maximum(2 * power_B, 1), 1.0)


def _places(values_BTT3: np.ndarray, border_B3: np.ndarray) -> np.ndarray:
    """Centre and spread, along both axes, of what differs from the border, in sides."""
    mass = np.abs(values_BTT3 - border_B3[:, None, None]).sum(3) + 1e-3
    axis = (np.arange(mass.shape[1], dtype=np.float32) + 0.5) / mass.shape[1]
    total = mass.sum((1, 2))
    columns = []
    for other in (1, 2):
        along = mass.sum(other) / total[:, None]
        centre = along @ axis
        columns += [centre, np.sqrt(np.maximum(along @ axis**2 - centre**2, 0))]
    return np.stack(columns, axis=1).astype(np.float32)
