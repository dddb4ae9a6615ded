"""Figures and tables: a chart in a wide and a narrow drawing, its caption, and its numbers behind a disclosure."""

from collections.abc import Callable, Sequence

from counterpoint.report.charts.series_style import run_tag
from counterpoint.report.markup import Attribute, Child, Markup, element, join, prose
from counterpoint.report.run_record import RunRecord
from counterpoint.report.wording import sentence

WIDE, HALF, THIRD, NARROW = 620.0, 470.0, 310.0, 330.0
Draw = Callable[[float], Markup]


def max_rows(num_runs: int) -> int:
    """How many rows the number table of each run may have, so that many runs do not make a page of tables."""
    return max(40, 120 // num_runs)


def panel_width(num_panels: int) -> float:
    """Width at which each of several panels is drawn on a wide screen."""
    return {1: WIDE, 2: HALF}.get(num_panels, THIRD)


def figure(title: Child, note: Child, draw: Draw, width: float, table: Markup | None) -> Markup:
    """Build a figure.

    Args:
        title: what the chart shows.
        note: how to read it.
        draw: makes the chart at a width; called for the wide screen and for the phone, so text keeps its size on both.
        width: width on a wide screen.
        table: the numbers.

    Returns:
        The figure element.
    """
    charts = [element("div", draw(width), class_="drawing wide"), element("div", draw(NARROW), class_="drawing narrow")]
    # As narrow as on a phone already: one drawing serves both.
    if width <= NARROW:
        charts = [element("div", draw(width), class_="drawing")]
    note_markup = element("span", note, class_="note") if note else None
    caption = element("figcaption", element("strong", title), " ", note_markup)
    numbers = element("details", element("summary", "Numbers"), table, class_="numbers") if table else None
    return element("figure", caption, charts, numbers)


def panels(figures: Sequence[Markup], title: str = "", note: str = "") -> Markup:
    """Set figures side by side where there is room, under a common title and note."""
    heading = element("p", element("strong", title), " ", note, class_="panels-title") if title else None
    return join(heading, element("div", figures, class_=f"panels panels-{min(len(figures), 3)}"))


def data_table(
    label: str, head: Sequence[Child], rows: Sequence[Sequence[Child]], keys: Sequence[float] | None = None
) -> Markup:
    """Build a table in a scroll box.

    Args:
        label: names the table.
        head: column titles.
        rows: cells; the first of each row is its header.
        keys: position of each row on the chart's horizontal axis, so that the page can show values under the pointer.

    Returns:
        The table in its box.
    """
    titles = element("tr", [element("th", title, scope="col") for title in head])
    positions = keys if keys is not None else [None] * len(rows)
    # page.js finds a row by its position, in the units of the axis.
    body = [_table_row(row, key) for row, key in zip(rows, positions, strict=True)]
    table = element("table", element("thead", titles), element("tbody", body))
    # Focusable, so that the arrow keys scroll it.
    return element("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def choice(name: str, words: str, options: Sequence[tuple[str, str]], **attributes: Attribute) -> Markup:
    """A labelled list to choose from: values with their words."""
    listed = [element("option", told, value=value) for value, told in options]
    return element("p", element("label", words, for_=name), element("select", listed, id=name, **attributes))


def readings(runs: Sequence[RunRecord], words: Callable[[RunRecord], Child]) -> Markup | None:
    """Set the plain reading of a section: a paragraph about one run, or a column for each of several.

    Nothing is set when ``words`` has nothing to say about any run.
    """
    told = [words(run) for run in runs]
    if not any(told):
        return None
    if len(runs) == 1:
        return element("p", told[0], class_="reading")
    paragraphs = [element("p", reading or "Nothing to read yet.", class_="reading") for reading in told]
    tags = [run_tag(run.name, run.order) for run in runs]
    return columns([join(tag, paragraph) for tag, paragraph in zip(tags, paragraphs, strict=True)])


def missing(run: RunRecord, what: str, verb: str) -> Markup:
    """Say what a run does not have yet, why if that is known, and which command or call makes it."""
    # The command line cannot name an array in memory.
    needs_array = run.is_on_array and verb in ("evaluate", "diagnose")
    command = f"cp.{verb}(run, data=X)" if needs_array else f"counterpoint {verb} {run.path}"
    why = sentence(run.gaps.get(verb, ""))
    opening = " ".join(filter(None, (what, why, "Once that is solved, run " if why else "Run ")))
    return element(
        "p", prose(opening, run.path), element("code", command), " and write the report again.", class_="missing"
    )


def absences(runs: Sequence[RunRecord], what: str, verb: str) -> list[Markup]:
    """Say for each of some runs what it lacks and which command makes it."""
    return [missing(run, f"{run.name} has no {what} yet.", verb) for run in runs]


def columns(items: Sequence[Child]) -> Markup:
    """Set one column per run."""
    return element(
        "div", [element("div", item, class_="column") for item in items], class_=f"columns columns-{min(len(items), 3)}"
    )


def _table_row(cells: Sequence[Child], key: float | None) -> Markup:
    first, *rest = cells
    header = element("th", first, scope="row")
    position = None if key is None else f"{key:g}"
    return element("tr", header, [element("td", cell) for cell in rest], data_at=position)
