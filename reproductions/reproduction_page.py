"""From a reproduced figure to one HTML file: what the paper says beside what we found, and the figure drawn again."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from counterpoint.core.files import write_text
from counterpoint.core.markup import Markup, element, join
from counterpoint.report.charts.chart_frame import text_width
from counterpoint.report.charts.figures import HALF, WIDE, data_table
from counterpoint.report.charts.series_style import GLYPHS
from counterpoint.report.document import PageKind, PageSection, check_target, document, plain_header
from counterpoint.report.wording import number
from reproductions.panel_figures import MAX_AT_ENDS, panel_figure
from reproductions.panels import LinePanel, Panel, TablePanel
from reproductions.picture_grids import picture_columns
from reproductions.reproduction import Claim, PictureGrid, Reproduction, written

REPRODUCTION_PAGE = PageKind(
    "page of a reproduction",
    "figure.html",
    Markup('<meta name="generator" content="counterpoint theory">'),
    styles=("style.css", "theory_style.css"),
)
LEVEL_OF_VERDICT = {True: "good", False: "warning", None: "note"}
# Verdicts of claims that were put to a test: of one, and of several.
PLURALS = {"holds": "hold", "does not hold": "do not hold", "cannot be told": "cannot be told"}
MAX_LEGEND_ROWS = 3  # in a drawing of half the width
SWATCH = 42.0  # room of a legend's entry beside its words


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
    sections = [
        PageSection("claims", "Claims", "Does it agree with the paper?", _claims(reproduction)),
        PageSection("figure", "Figure", "What does it look like?", _drawings(reproduction.panels)),
        *_pictures(reproduction.pictures),
        PageSection(
            "settings", "Settings", "How was it made?", _settings(reproduction, numbers or f"{reproduction.name}.json")
        ),
    ]
    size = [reproduction.settings["size"]] if "size" in reproduction.settings else []
    facts = " · ".join([reproduction.source, f"python -m reproductions {reproduction.name}", *size])
    top = plain_header("Counterpoint reproduces a figure", reproduction.title, facts)
    return document(REPRODUCTION_PAGE, f"Counterpoint: {reproduction.title}", top, sections)


def _pictures(grids: Sequence[PictureGrid]) -> list[PageSection]:
    """The section of pictures, where there are any."""
    if not grids:
        return []
    return [PageSection("pictures", "Pictures", "What does each dimension mean?", picture_columns(grids))]


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
    """Set the sentence, and the table of claims."""
    rows = [[_what(claim), _value(claim.paper), _value(claim.ours), _verdict(claim)] for claim in reproduction.claims]
    table = data_table("Claims", ["claim", "paper", "ours", "verdict"], rows)
    remarks = [element("p", remark) for remark in reproduction.remarks]
    return join(
        element("p", verdict_words(reproduction.claims), class_="lede reading"),
        element("div", table, class_="claims") if rows else None,
        element("div", remarks, class_="remarks") if remarks else None,
    )


def _what(claim: Claim) -> Markup:
    return join(claim.what, element("span", claim.note, class_="why") if claim.note else None)


def _value(value: str | float) -> str:
    # nan and inf have no digits to choose.
    return number(value, 5) if isinstance(value, float | int) and math.isfinite(value) else written(value)


def _verdict(claim: Claim) -> Markup:
    """Sign, word and colour of a verdict."""
    level = LEVEL_OF_VERDICT[claim.agrees]
    words = "open" if claim.agrees is None and not claim.judged else claim.verdict
    sign = element("span", GLYPHS[level], class_="glyph", aria_hidden="true")
    return element("span", sign, words, class_=f"verdict level-{level}")


def _drawings(drawn: Sequence[Panel]) -> Markup:
    """Draw the panels in their order, two in a row unless one needs the whole width."""
    rows = []
    # groupby joins neighbours only: the order of the panels stays.
    for is_wide, group in groupby(drawn, _is_wide):
        figures = [panel_figure(panel, WIDE if is_wide else HALF) for panel in group]
        rows.append(element("div", figures, class_="panels" if is_wide else "panels panels-2"))
    return join(rows)


def _is_wide(panel: Panel) -> bool:
    """Whether a panel is a table, or its lines have names that want the whole width."""
    if isinstance(panel, TablePanel):
        return True
    if not isinstance(panel, LinePanel) or len(panel.series) <= MAX_AT_ENDS:
        return False
    return sum(text_width(series.name) + SWATCH for series in panel.series) > MAX_LEGEND_ROWS * HALF


def _settings(reproduction: Reproduction, numbers: str) -> Markup:
    """List sizes, seeds and rates."""
    entries = [
        element("div", element("dt", name), element("dd", str(value))) for name, value in reproduction.settings.items()
    ]
    note = element("p", f"The numbers of every panel are in {numbers} beside this page.", class_="note")
    return join(element("dl", entries, class_="run-card") if entries else None, note)
