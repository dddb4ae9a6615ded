"""Small pictures on the page: each kept once, in one large picture, of which any place shows a part."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from counterpoint.evaluation.map_samples import Sheet
from counterpoint.report.markup import Markup, element
from counterpoint.report.run_reading import RunRecord

# Share of the side of a picture at each step while the page is too large; the last step shows no picture.
SHARES = (1.0, 1.0, 0.75, 0.5, 0.5, 0.0)
SMOOTH_FROM = 24  # pixels; smaller pictures are enlarged with hard edges: nothing is there to smooth
WEBP_QUALITY = 60  # quality of pictures that are shrunk again
ONE_QUALITY = 82  # quality of a single picture
LOSSLESS_SIDE = 16  # below this a PNG is as small as anything
EDGE = 0.01  # share of a picture cut off at each side: enlarged, it would take on the colours of its neighbours


@dataclass(frozen=True)
class PicturePlaces:
    """The large picture on the page that holds the pictures of a run.

    Attributes:
        name: the name of the large picture.
        sheet: its content.
    """

    name: str
    sheet: Sheet

    def shown(self, place: int, title: str, words: str) -> Markup:
        """Show one picture.

        Args:
            place: place of the picture on the sheet.
            title: text above the picture.
            words: a description of it.
        """
        row, column = divmod(place, self.sheet.columns)
        # Title and description say what a screen reader says; the first shows under the pointer, too.
        return element(
            "svg",
            element("title", title),
            element("desc", words),
            element("use", href=f"#{self.name}"),
            class_=f"shot{' pixelated' if self.is_pixelated else ''}",
            role="img",
            viewBox=f"{column + EDGE:g} {row + EDGE:g} {1 - 2 * EDGE:g} {1 - 2 * EDGE:g}",
        )

    @property
    def is_pixelated(self) -> bool:
        """Tell whether its pictures are enlarged with hard edges."""
        return self.sheet.side < SMOOTH_FROM


def pictures_of(runs: Sequence[RunRecord], step: int) -> dict[int, PicturePlaces]:
    """Find where the pictures of each run are, by the order of the run; runs of the same samples share them.

    Args:
        runs: the runs of the page.
        step: number of times that the page was shrunk.
    """
    if SHARES[step] == 0:
        return {}
    sheets = {run.order: run.collection.sheet for run in runs if run.collection and run.collection.sheet}
    contents = list(dict.fromkeys(sheet.content for sheet in sheets.values()))
    return {order: PicturePlaces(f"sheet-{contents.index(sheet.content)}", sheet) for order, sheet in sheets.items()}


def drawn_sheet(name: str, sheet: Sheet, share: float) -> Markup:
    """Draw a large picture, hidden, at a share of its size: elements that show a part of it refer to its name."""
    picture = Image.open(io.BytesIO(sheet.content))
    num_rows = picture.height // sheet.side
    content, kind = sheet.content, "png" if picture.format == "PNG" else "webp"
    if share < 1 and kind == "webp":
        side = max(1, round(share * sheet.side))
        stream = io.BytesIO()
        smaller = picture.convert("RGB").resize((sheet.columns * side, num_rows * side), Image.Resampling.BOX)
        smaller.save(stream, "WEBP", quality=WEBP_QUALITY, method=4)
        content = stream.getvalue()
    image = element(
        "image", id=name, href=_address(kind, content), width=sheet.columns, height=num_rows, preserveAspectRatio="none"
    )
    return element(
        "svg",
        element("title", "Small pictures of the samples"),
        element("desc", "Shown in parts, wherever the page shows a sample."),
        element("defs", image),
        class_="sheet",
        role="img",
        aria_hidden="true",
    )


def data_address(image: NDArray[np.uint8], max_side: int) -> str:
    """Encode one thumbnail, grey (h, w) or colour (h, w, 3), as a ``data:`` address.

    Args:
        image: the pixels.
        max_side: largest length of a side in pixels, to which a longer image is shrunk.

    Returns:
        The address.
    """
    picture = Image.fromarray(np.ascontiguousarray(image))
    if max(picture.size) > max_side:
        picture.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    if max(picture.size) <= LOSSLESS_SIDE:
        picture.save(stream, "PNG", optimize=True)
        kind = "png"
    else:
        # WebP has no grey.
        picture.convert("RGB").save(stream, "WEBP", quality=ONE_QUALITY, method=4)
        kind = "webp"
    return _address(kind, stream.getvalue())


def _address(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"
