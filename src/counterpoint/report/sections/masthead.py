"""The top of the page: what it is about, and the way to each section."""

from collections.abc import Sequence

from counterpoint.report.charts.series_style import run_tag
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.run_record import RunRecord
from counterpoint.report.wording import count, duration, number

NUMBER_WORDS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six"}


def masthead(runs: Sequence[RunRecord], sections: Sequence[tuple[str, str]]) -> Markup:
    """Write the skip link, the navigation and the title.

    Args:
        runs: the runs of the page.
        sections: (anchor, short title) of each section.

    Returns:
        The top of the page.
    """
    skip = element("a", "Skip to the verdict", href="#content", class_="skip")
    links = [element("li", element("a", title, href=f"#{name}")) for name, title in sections]
    toggle = element(
        "button", "Dark", type="button", id="theme", class_="needs-script", aria_label="Switch to dark theme"
    )
    navigation = element("nav", element("ol", links), toggle, aria_label="Sections")
    brand = element("p", "Counterpoint report", class_="brand")
    return join(skip, navigation, element("header", brand, _title(runs), class_="masthead"))


def _title(runs: Sequence[RunRecord]) -> Markup:
    """Name the runs, each with one line of facts."""
    if len(runs) == 1:
        return join(element("h1", element("bdi", runs[0].name)), element("p", facts(runs[0]), class_="facts"))
    lines = [element("li", run_tag(run.name, run.order), element("span", facts(run), class_="facts")) for run in runs]
    return join(element("h1", f"{NUMBER_WORDS[len(runs)]} runs, side by side"), element("ul", lines, class_="runs"))


def facts(run: RunRecord) -> str:
    """Describe a run in one line."""
    card = run.card
    parts = [
        card.method,
        f"on {card.data}" if card.data else "",
        f"{number(card.num_train)} training samples" if card.num_train is not None else "",
        f"{number(card.num_parameters)} parameters" if card.num_parameters is not None else "",
        count(len(run.epochs), "epoch") if run.epochs else "",
        f"{duration(card.seconds)} on {card.device or 'an unnamed device'}" if card.seconds is not None else "",
        f"seed {card.seed}" if card.seed else "",
    ]
    return " · ".join(part for part in parts if part)
