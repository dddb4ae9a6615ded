"""Records of a reproduced figure: its options, its claims beside our numbers, and its panels to draw.

Plain numbers and texts only. A figure function fills a ``Reproduction``; text and JSON are here, the page is
``reproduction_page``: three views of one record.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import zip_longest
from typing import Any

from reproductions.panels import DotPanel, LinePanel, MatrixPanel, Panel, PointPanel, Series, TablePanel

TEXT_WIDTH = 100
COLUMN_LIMITS = (46, 22, 22, 7)  # largest widths of the table's columns; longer texts are wrapped
TITLES = ("claim", "paper", "ours", "verdict")
VERDICTS = {True: "agrees", False: "differs", None: "-"}
KINDS: Mapping[type, str] = {
    LinePanel: "lines",
    PointPanel: "points",
    MatrixPanel: "matrix",
    DotPanel: "dots",
    TablePanel: "table",
}


def ignore(line: str) -> None:
    """Take a line of progress and do nothing."""


@dataclass(frozen=True)
class FigureRun:
    """Options of one run of a figure function.

    Attributes:
        seed: of everything random.
        quick: a reduced size that takes seconds.
        progress: takes a line from time to time.
        data: images to use, where the figure is about images; None is the bundled digits.
        encoder: name of the image encoder to train, where the figure leaves it open; None is that of the figure.
        epochs: passes over the samples, >= 1, where the figure leaves them open; None is a number for a laptop.
    """

    seed: int = 0
    quick: bool = False
    progress: Callable[[str], None] = ignore
    data: str | None = None
    encoder: str | None = None
    epochs: int | None = None

    def seed_of(self, figure: str, start: int) -> int:
        """Seed of one start, hashed: the starts of different seeds share no draws.

        >>> len({FigureRun(seed).seed_of("toy-fig1", start) for seed in range(3) for start in range(4)})
        12
        """
        return int.from_bytes(sha256(f"{figure} {self.seed} {start}".encode()).digest()[:7], "big")


@dataclass(frozen=True)
class Claim:
    """One statement of a paper beside what we found.

    Attributes:
        what: the quantity or statement, with its setting.
        paper: the printed value, or what the text says.
        ours: our value.
        agrees: whether both agree; None if the paper prints nothing that could be compared.
        note: explains a difference, or how the agreement was judged.
        judged: the verdict of a claim that is put to a test, in its own words.
    """

    what: str
    paper: str | float
    ours: float | str
    agrees: bool | None
    note: str = ""
    judged: str = ""

    @property
    def verdict(self) -> str:
        """The words of ``judged``, or ``agrees``, ``differs``, or ``-`` if nothing can be compared."""
        return self.judged or VERDICTS[self.agrees]


@dataclass(frozen=True)
class PictureRow:
    """Pictures side by side.

    Attributes:
        name: what they have in common, such as a dimension.
        addresses: of each picture, with its content (``data:``).
        classes: name of the class of each, or an empty text.
    """

    name: str
    addresses: Sequence[str]
    classes: Sequence[str]


@dataclass(frozen=True)
class PictureGrid:
    """Rows of pictures under a title; without rows, ``missing`` says how to get them."""

    title: str
    rows: Sequence[PictureRow]
    missing: str = ""


@dataclass(frozen=True)
class Reproduction:
    """A figure of a paper, made again.

    Attributes:
        name: as in ``python -m reproductions NAME``.
        title: what the figure shows.
        source: bib key and figure, such as ``imbalanced2026, Fig. 1``.
        claims: the paper's statements beside ours.
        panels: what to draw.
        remarks: what a reader must know to compare: scale, differences of set-up, what the paper leaves open.
        settings: sizes, seeds and rates that the numbers depend on.
        pictures: grids to set side by side; on the page alone, as pictures are data of others.

    >>> claim = Claim("largest eigenvalue", 2.0, 2.0004, True)
    >>> made = Reproduction("toy-fig1", "A toy", "mio2021, Fig. 1", [claim], [], settings={"seed": "0"})
    >>> made.agrees, made.to_dict()["claims"][0]["ours"]
    (True, 2.0004)
    """

    name: str
    title: str
    source: str
    claims: Sequence[Claim]
    panels: Sequence[Panel]
    remarks: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    pictures: Sequence[PictureGrid] = ()

    @property
    def agrees(self) -> bool:
        """True if no claim differs from the paper."""
        return all(claim.agrees is not False for claim in self.claims)  # None, nothing to compare with, does not differ

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but pictures as plain data for JSON; each panel names its kind."""
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "agrees": self.agrees,
            "claims": [asdict(claim) for claim in self.claims],
            "panels": [{"kind": KINDS[type(panel)], **asdict(panel)} for panel in self.panels],
            "remarks": list(self.remarks),
            "settings": {name: str(value) for name, value in self.settings.items()},
        }

    def __str__(self) -> str:
        """Write a table of the claims, then remarks and settings."""
        parts = [f"{self.title} ({self.source})", "", *_claim_lines(self.claims)]
        for remark in self.remarks:
            parts += ["", *textwrap.wrap(remark, TEXT_WIDTH)]
        if self.settings:
            settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
            parts += ["", *textwrap.wrap(f"Settings: {settings}", TEXT_WIDTH)]
        return "\n".join(parts)


def panels_of(plain: Mapping[str, Any]) -> list[Panel]:
    """Build the panels of a figure from its ``to_dict``, read from a file."""
    types, panels = {kind: of for of, kind in KINDS.items()}, list[Panel]()
    for panel in plain["panels"]:
        fields = {name: value for name, value in panel.items() if name != "kind"}
        if "series" in fields:
            fields["series"] = [Series(**series) for series in fields["series"]]
        panels.append(types[panel["kind"]](**fields))
    return panels


def written(value: str | float) -> str:
    """Write a value of a claim: texts as they are, numbers with five digits.

    >>> written(-0.626519), written("falls"), written(512)
    ('-0.62652', 'falls', '512')
    """
    return value if isinstance(value, str) else f"{value:.5g}"


def _claim_lines(claims: Sequence[Claim]) -> list[str]:
    """Set the claims as a table of four columns, a note under its claim."""
    cells = [(claim.what, written(claim.paper), written(claim.ours), claim.verdict) for claim in claims]
    # As wide as the longest text, up to a limit beyond which texts are wrapped.
    widths = [min(limit, max(len(row[place]) for row in (TITLES, *cells))) for place, limit in enumerate(COLUMN_LIMITS)]
    lines = _wrapped_row(TITLES, widths)
    # Two spaces stand between columns.
    lines.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
    for row, claim in zip(cells, claims, strict=True):
        lines += _wrapped_row(row, widths)
        lines += textwrap.wrap(claim.note, TEXT_WIDTH - 4, initial_indent="    ", subsequent_indent="    ")
    return lines


def _wrapped_row(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Set one row; a cell wider than its column goes on in the next line."""
    # wrap makes no line of an empty text
    wrapped = [textwrap.wrap(cell, width) or [""] for cell, width in zip(cells, widths, strict=True)]
    lines = zip_longest(*wrapped, fillvalue="")
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
