"""The page of one or several runs, drawn from their records: it needs no network, no server, and no JavaScript."""

from collections.abc import Sequence

from counterpoint.report.charts.figures import run_tag
from counterpoint.report.document import PageKind, PageSection, document
from counterpoint.report.markup import Markup, element, join
from counterpoint.report.run_reading import RunRecord
from counterpoint.report.sections import all_sections
from counterpoint.report.wording import count, duration, number

MAX_BYTES = 8_000_000
RUN_PAGE = PageKind(
    "report",
    "report.html",
    Markup('<meta name="generator" content="counterpoint report">'),
    styles=("style.css", "collection.css"),
    scripts=("page.js", "collection.js", "map.js"),
)
NUMBER_WORDS = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six"}


def render(runs: Sequence[RunRecord], max_bytes: int = MAX_BYTES) -> Markup:
    """Render the page; its sections shrink step by step until it fits into ``max_bytes`` bytes."""
    page = Markup()
    # At the last step every section is at its smallest; its page is kept even if it is still too large.
    for step in range(1 + max(len(section.smaller) for section in all_sections())):
        page = _page(runs, step)
        if len(page.encode()) <= max_bytes:
            break
    return page


def _page(runs: Sequence[RunRecord], step: int) -> Markup:
    """Render the page with every section shrunk by a number of steps, as far as possible.

    All sections but the first fold under their question and its answer.
    """
    parts = []
    for section in all_sections():
        content = (section.fill, *section.smaller)[min(step, len(section.smaller))](runs)
        if not content:  # a section without content has nothing to say of these runs
            continue
        answer, is_open = "", None
        if section.answer is not None:
            answers = [f"{section.answer(run) or 'Not measured yet'}." for run in runs]
            tagged = [element("span", run_tag(run), " ", words) for run, words in zip(runs, answers, strict=True)]
            answer = answers[0] if len(set(answers)) == 1 else join(tagged)  # a text that all share is written once
            # With several runs a section is as high as all of them together, so it stays folded.
            is_open = len(runs) == 1 and section.opens is not None and section.opens(runs[0])
        parts.append(PageSection(section.name, section.title, section.question, content, answer, is_open))
    title = f"Counterpoint report: {', '.join(run.name for run in runs)}"
    return document(RUN_PAGE, title, _masthead(runs, parts), parts)


def _masthead(runs: Sequence[RunRecord], parts: Sequence[PageSection]) -> Markup:
    skip = element("a", "Skip to the verdict", href="#content", class_="skip")
    links = [element("li", element("a", part.title, href=f"#{part.name}")) for part in parts]
    toggle = element(
        "button", "Dark", type="button", id="theme", class_="needs-script", aria_label="Switch to dark theme"
    )
    # If there is no room for all links, a single one leads to the folded questions, which are a table of contents.
    questions = [element("a", "All questions", href=f"#{part.name}", class_="questions") for part in parts[1:2]]
    navigation = element("nav", element("ol", links), questions, toggle, aria_label="Sections")
    brand = element("p", "Counterpoint report", class_="brand")
    if len(runs) == 1:
        title, facts = element("bdi", runs[0].name), element("p", _facts(runs[0]), class_="facts")
    else:
        title = f"{NUMBER_WORDS[len(runs)]} runs, side by side"
        lines = [element("li", run_tag(run), element("span", _facts(run), class_="facts")) for run in runs]
        facts = element("ul", lines, class_="runs")
    return join(skip, navigation, element("header", brand, element("h1", title), facts, class_="masthead"))


def _facts(run: RunRecord) -> str:
    card = run.card
    parts = [
        card.method or "",
        f"on {card.data}" if card.data else "",
        f"{number(card.num_train)} training samples" if card.num_train is not None else "",
        f"{number(card.num_parameters)} parameters" if card.num_parameters is not None else "",
        count(len(run.epochs), "epoch") if run.epochs else "",
        f"{duration(card.seconds)} on {card.device or 'an unnamed device'}" if card.seconds is not None else "",
        "" if card.seed is None else f"seed {card.seed}",
    ]
    return " · ".join(part for part in parts if part)
