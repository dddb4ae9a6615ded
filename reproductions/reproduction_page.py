"""Write a reproduced figure as one HTML file: the paper's claims beside our numbers, and the figure drawn again."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from counterpoint.core.errors import UsageError
from counterpoint.core.files import write_text
from counterpoint.report.charts.figures import GLYPHS, columns, data_table
from counterpoint.report.document import PageKind, PageSection, check_target, document, plain_header
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.wording import number, percent
from reproductions.panels import Panel, TablePanel
from reproductions.reproduction import Claim, PictureGrid, PictureRow, Reproduction, written

REPRODUCTION_PAGE = PageKind(
    "page of a reproduction",
    "figure.html",
    Markup('<meta name="generator" content="counterpoint theory">'),
    styles=("style.css", Path(__file__).with_name("reproduction_style.css")),
)
LEVEL_OF_VERDICT = {True: "good", False: "warning", None: "note"}
# Verdicts of claims that were put to a test: of one, and of several.
PLURALS = {"holds": "hold", "does not hold": "do not hold", "cannot be told": "cannot be told"}
ASKED = "What does each dimension mean?"
HOW_TO_READ = (
    "Each row shows the queries of the first seed that activate a dimension most, the strongest first. Dimensions come "
    "by expected activation, those that are never active are left out."
)


def write_reproduction(reproduction: Reproduction, out: str | Path) -> Path:
    """Write the page; an earlier one is replaced.

    Raises:
        RunError: ``out`` cannot be written, or is something else than such a page.
    """
    target = Path(out)
    check_target(REPRODUCTION_PAGE, target)
    # The numbers are named after the page: a reduced size has a file of its own.
    write_text(target, render_reproduction(reproduction, numbers=f"{target.stem}.json"))
    return target


def render_reproduction(reproduction: Reproduction, *, numbers: str = "") -> Markup:
    """Render the page; ``numbers`` names the file with the numbers, NAME.json unless given."""
    pictures = reproduction.pictures
    sections = [
        PageSection("claims", "Claims", "Does it agree with the paper?", _claims(reproduction)),
        PageSection("figure", "Figure", "What does it look like?", _drawings(reproduction.panels, reproduction.name)),
        *([PageSection("pictures", "Pictures", ASKED, _pictures(pictures))] if pictures else []),
        PageSection(
            "settings", "Settings", "How was it made?", _settings(reproduction, numbers or f"{reproduction.name}.json")
        ),
    ]
    size = [reproduction.settings["size"]] if "size" in reproduction.settings else []
    facts = " · ".join([reproduction.source, f"python -m reproductions {reproduction.name}", *size])
    top = plain_header("Counterpoint reproduces a figure", reproduction.title, facts)
    return document(REPRODUCTION_PAGE, f"Counterpoint: {reproduction.title}", top, sections)


def verdict_words(claims: Sequence[Claim]) -> str:
    """Say in one sentence how many claims agree.

    >>> verdict_words([Claim("a", 1.0, 1.0, True), Claim("b", "", 2.0, None), Claim("c", 1.0, 3.0, False, "why")])
    '1 of 2 claims agrees, 1 differs; 1 has nothing printed to compare with.'
    >>> verdict_words([Claim("a", 1.0, 1.0, True), Claim("b", 2.0, 2.0, True)])
    'All 2 claims agree.'
    >>> untold = Claim("b", "", "", None, judged="cannot be told")
    >>> verdict_words([Claim("a", "", "", True, judged="holds"), untold])
    'Of 2 claims 1 holds, 1 cannot be told.'
    >>> verdict_words([Claim("a", 1.0, 1.0, True), untold])
    'The one claim agrees; 1 cannot be told.'
    """
    if claims and all(claim.judged for claim in claims):
        counts = Counter(claim.judged for claim in claims)
        words = [f"{counts[one]} {one if counts[one] == 1 else many}" for one, many in PLURALS.items() if counts[one]]
        return f"Of {len(claims)} claims {', '.join(words)}."
    untold = sum(claim.agrees is None and bool(claim.judged) for claim in claims)
    agree, differ, open_ = (sum(claim.agrees is verdict for claim in claims) for verdict in (True, False, None))
    parts = [_compared_words(agree, differ)] if agree + differ else []
    parts += [f"{untold} cannot be told"] if untold else []
    if open_ := open_ - untold:
        parts.append(f"{open_} {'has' if open_ == 1 else 'have'} nothing printed to compare with")
    return f"{'; '.join(parts) or 'Nothing was compared'}."


def _compared_words(agree: int, differ: int) -> str:
    """Say how many of the claims that can be compared agree and differ."""
    compared = agree + differ
    if agree and differ:
        return f"{agree} of {compared} claims {_verb('agree', agree)}, {differ} {_verb('differ', differ)}"
    verb = _verb("agree" if agree else "differ", compared)
    return f"The one claim {verb}" if compared == 1 else f"All {compared} claims {verb}"


def _verb(stem: str, number: int) -> str:
    return f"{stem}s" if number == 1 else stem


def _claims(reproduction: Reproduction) -> Markup:
    """Set the sentence on all claims, the table of claims, and the remarks."""
    rows = [[_cell(claim), _value(claim.paper), _value(claim.ours), _verdict(claim)] for claim in reproduction.claims]
    table = data_table("Claims", ["claim", "paper", "ours", "verdict"], rows)
    remarks = [element("p", remark) for remark in reproduction.remarks]
    return join(
        element("p", verdict_words(reproduction.claims), class_="lede reading"),
        element("div", table, class_="claims") if rows else None,
        element("div", remarks, class_="remarks") if remarks else None,
    )


def _cell(claim: Claim) -> Markup:
    return join(claim.what, element("span", claim.note, class_="why") if claim.note else None)


def _value(value: str | float) -> str:
    # nan and inf have no digits to choose.
    return number(value, 5) if isinstance(value, float | int) and math.isfinite(value) else written(value)


def _verdict(claim: Claim) -> Markup:
    """Set the sign, word and colour of a verdict."""
    level = LEVEL_OF_VERDICT[claim.agrees]
    words = "open" if claim.agrees is None and not claim.judged else claim.verdict
    sign = element("span", GLYPHS[level], class_="glyph", aria_hidden="true")
    return element("span", sign, words, class_=f"verdict level-{level}")


def _drawings(panels: Sequence[Panel], name: str) -> Markup:
    """Set the tables, then all other panels in one drawing."""
    tables = [panel for panel in panels if isinstance(panel, TablePanel)]
    told = ", ".join(panel.title for panel in panels if panel not in tables)
    try:
        from reproductions.drawings import as_address, draw_panels  # deferred: matplotlib may be absent

        drawing = draw_panels(panels, name)
        image = element("img", src=as_address(drawing), alt=told, class_="drawing") if drawing else None
    except UsageError as error:  # claims and numbers stand without it
        image = element("p", f"Not drawn: {error}.", class_="missing")
    set_ = [
        element("div", element("h3", panel.title), data_table(panel.title, panel.head, panel.rows)) for panel in tables
    ]
    return join(element("div", set_, class_="panels") if set_ else None, image)


def _settings(reproduction: Reproduction, numbers: str) -> Markup:
    """List sizes, seeds and rates."""
    entries = [
        element("div", element("dt", name), element("dd", str(value))) for name, value in reproduction.settings.items()
    ]
    note = element("p", f"The numbers of every panel are in {numbers} beside this page.", class_="note")
    return join(element("dl", entries, class_="run-card") if entries else None, note)


def _pictures(grids: Sequence[PictureGrid]) -> Markup:
    """Set the grids side by side, with the classes under each row."""
    # All rows have the places of the longest: pictures of one size, also where few queries activate a dimension.
    num_places = max((len(row.addresses) for grid in grids for row in grid.rows), default=1)
    return join(element("p", HOW_TO_READ, class_="note"), columns([_grid(grid, num_places) for grid in grids]))


def _grid(grid: PictureGrid, num_places: int) -> Markup:
    """Set the rows of one arm, or a sentence on how to get them."""
    title = element("h3", grid.title)
    if not grid.rows:
        return join(title, element("p", grid.missing, class_="missing"))
    shares = [share for row in grid.rows if (share := modal_share(row)) is not None]
    words = f"{percent(sum(shares) / len(shares), 0)} of a row are of one class on average" if shares else None
    rows = [_row(row, num_places) for row in grid.rows]
    return join(title, element("p", words, class_="note") if words else None, element("div", rows, class_="rows"))


def _row(row: PictureRow, num_places: int) -> Markup:
    """Set the pictures of one dimension, then their classes."""
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
    """Share of the commonest class among the pictures of a row whose class is known; None if no class is.

    >>> modal_share(PictureRow("dimension 3", ("a", "b", "c"), ("cat", "dog", "cat")))
    0.6666666666666666
    """
    classes = [name for name in row.classes if name]
    return Counter(classes).most_common(1)[0][1] / len(classes) if classes else None
