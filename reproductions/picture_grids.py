"""Rows of pictures, a grid for each arm of a study: what activates each dimension most, and of which classes it is."""

from collections import Counter
from collections.abc import Sequence

from counterpoint.core.markup import Markup, element, join
from counterpoint.report.charts.figures import columns
from counterpoint.report.wording import percent
from reproductions.reproduction import PictureGrid, PictureRow

HOW_TO_READ = (
    "Each row shows the queries of the first seed that activate a dimension most, the strongest first. Dimensions come "
    "by expected activation, those that are never active are left out."
)


def picture_columns(grids: Sequence[PictureGrid]) -> Markup:
    """Set the grids side by side, with the classes under each row."""
    # All rows have the places of the longest: pictures of one size, also where few queries activate a dimension.
    num_places = max((len(row.addresses) for grid in grids for row in grid.rows), default=1)
    return join(element("p", HOW_TO_READ, class_="note"), columns([_grid(grid, num_places) for grid in grids]))


def _grid(grid: PictureGrid, num_places: int) -> Markup:
    """One arm: its rows, or why there are none."""
    title = element("h3", grid.title)
    if not grid.rows:
        return join(title, element("p", grid.missing, class_="missing"))
    shares = [share for row in grid.rows if (share := modal_share(row)) is not None]
    words = f"{percent(sum(shares) / len(shares), 0)} of a row are of one class on average" if shares else None
    rows = [_row(row, num_places) for row in grid.rows]
    return join(title, element("p", words, class_="note") if words else None, element("div", rows, class_="rows"))


def _row(row: PictureRow, num_places: int) -> Markup:
    """One dimension: its pictures, then its classes."""
    pictures = [
        element("img", src=address, alt=name or "no class", title=name or None, class_="pixelated")
        for address, name in zip(row.addresses, row.classes, strict=True)
    ]
    share = modal_share(row)
    counts = ", ".join(f"{name} {number}" for name, number in Counter(filter(None, row.classes)).most_common())
    told = None if share is None else [element("strong", percent(share, 0)), f" of one class: {counts}"]
    return element(
        "article",
        element("header", element("h4", row.name)),
        element("div", pictures, class_=f"thumbs per-row-{num_places}"),
        element("p", told, class_="facts") if told else None,
        class_="concept",
    )


def modal_share(row: PictureRow) -> float | None:
    """Share of the commonest class among the pictures of a row whose class is known; None where none is.

    >>> modal_share(PictureRow("dimension 3", ("a", "b", "c"), ("cat", "dog", "cat")))
    0.6666666666666666
    """
    known = [name for name in row.classes if name]
    return Counter(known).most_common(1)[0][1] / len(known) if known else None
