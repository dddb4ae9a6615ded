"""What a notebook shows of a record: small tables in the notebook's own colours, without scripts and style sheets.

Colours are those of the page around it (``currentColor`` at most), so that it reads on light and on dark ones.
"""

from collections.abc import Sequence

from counterpoint.core.markup import Child, Markup, element

CELL = "padding:0.15em 0.6em;vertical-align:top;text-align:"
# Inherited: where a page declares no document type, tables take black and a size of their own by default.
FRAME = "border-collapse:collapse;color:inherit;font-size:inherit"
LINE = "border-bottom:1px solid currentColor"
NUMBER, TEXT = "right", "left"


def view(title: str, *children: Child) -> str:
    """A record under its title.

    Args:
        title: one line.
        *children: text, markup, or iterables of these; text is escaped.

    >>> view("a < b", paragraph("and no more"))
    '<div><p><strong>a &lt; b</strong></p><p>and no more</p></div>'
    """
    return str(element("div", element("p", element("strong", title)), *children))


def table(head: Sequence[str], rows: Sequence[Sequence[Child]], *, figures: str = TEXT) -> Markup:
    """A table whose first column names its rows.

    Args:
        head: names of the columns; empty for none.
        rows: cells; text is escaped.
        figures: how the cells behind the first are aligned: ``NUMBER`` or ``TEXT``.
    """
    aligned = [TEXT, *[figures] * max(len(row) for row in [head, *rows])]
    top = [element("th", name, scope="col", style=f"{CELL}{aligned[at]};{LINE}") for at, name in enumerate(head)]
    body = [element("tr", [_cell(at, cell, aligned[at]) for at, cell in enumerate(row)]) for row in rows]
    parts = [element("thead", element("tr", top)) if head else None, element("tbody", body)]
    return element("table", parts, style=FRAME)


def paragraph(text: str) -> Markup:
    """A line of text below or above a table."""
    return element("p", text)


def _cell(at: int, content: Child, align: str) -> Markup:
    """A cell; the first of a row is its head."""
    if at == 0:
        return element("th", content, scope="row", style=f"{CELL}{align};font-weight:normal")
    return element("td", content, style=f"{CELL}{align}")
