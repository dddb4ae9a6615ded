"""The page of a search: each query beside its hits, with what they share; or groups of near-duplicates. No script."""

from collections.abc import Mapping

from counterpoint.core.terminal_text import hide_folders, printable
from counterpoint.evaluation.search_records import Copies, QueryHits, SearchAnswer, SharedConcept
from counterpoint.report.document import PageKind, PageSection, document, plain_header
from counterpoint.report.markup import Markup, element, join, prose
from counterpoint.report.picture_sheets import data_address
from counterpoint.report.wording import count, number, percent

SEARCH_PAGE = PageKind(
    "page of a search",
    "search.html",
    Markup('<meta name="generator" content="counterpoint search">'),
    styles=("style.css", "search_style.css"),
)
SIDES = (96, 48, 24)  # pixels of a thumbnail; smaller ones if the page would be too large
MAX_BYTES = 8_000_000
MAX_GROUPS = 300


def render_search(result: SearchAnswer | Copies, max_bytes: int = MAX_BYTES) -> Markup:
    """Render the page with pictures so small that it fits into ``max_bytes`` bytes, if necessary without any."""
    page = Markup()
    for side in (*SIDES, 0):
        addresses = {} if side == 0 else {name: data_address(image, side) for name, image in result.pictures.items()}
        page = _page(result, addresses)
        if len(page.encode()) <= max_bytes:
            break
    return page


def _page(result: SearchAnswer | Copies, addresses: Mapping[str, str]) -> Markup:
    facts = " · ".join(hide_folders(fact) for fact in result.facts.values())
    reading = element("p", prose(" ".join(hide_folders(words) for words in result.reading)), class_="note")
    if isinstance(result, Copies):
        header = plain_header("Counterpoint looks for near-duplicates", printable(result.run), facts)
        groups = []
        for place, group in enumerate(result.groups[:MAX_GROUPS], start=1):
            split = ", trained on and held out" if group.crosses_split else ""
            similarity = f"least cosine {group.least_similarity:.3f}"
            title = f"Group {place}: {count(len(group.rows), 'sample')}, {similarity}{split}"
            items = [
                _item(addresses.get(f"row-{row}"), name, "", f"row {number(row)}{f', {label}' if label else ''}")
                for row, name, label in zip(group.rows, group.names, group.labels, strict=True)
            ]
            copies = element("ol", items, class_="hits")
            groups.append(element("article", element("h3", title), copies, class_="group"))
        total = sum(len(group.rows) for group in result.groups)
        words = f"{count(len(result.groups), 'group')} of near-duplicates with {count(total, 'sample')}."
        if len(result.groups) > MAX_GROUPS:
            words += f" The first {MAX_GROUPS} are shown; --json has all."
        content = join(element("p", words, class_="reading"), element("div", groups, class_="groups"))
        parts = [PageSection("copies", "Near-duplicates", "Which samples occur twice or more?", join(content, reading))]
        return document(SEARCH_PAGE, f"Near-duplicates: {printable(result.run)}", header, parts)
    header = plain_header("Counterpoint searches", printable(result.run), facts)
    queries = [_query(place, query, addresses) for place, query in enumerate(result.queries)]
    parts = [PageSection("hits", "Hits", "What is most similar, and why?", join(queries, reading))]
    return document(SEARCH_PAGE, f"Search: {printable(result.run)}", header, parts)


def _query(place: int, query: QueryHits, addresses: Mapping[str, str]) -> Markup:
    where = "from elsewhere" if query.row is None else f"row {number(query.row)}"
    facts = f"query, {where}{f', class {query.label}' if query.label else ''}"
    own = element(
        "div",
        _picture(addresses.get(f"query-{place}"), query.name),
        element("h3", element("bdi", printable(query.name))),
        element("p", facts, class_="facts"),
        class_="query",
    )
    hits = []
    for rank, hit in enumerate(query.hits, start=1):
        similar = f"cosine {hit.similarity:.3f}, above {percent(hit.random_below)} of random pairs"
        facts = f"class {hit.label}, {similar}" if hit.label else similar
        bars = [_share_bar(concept) for concept in hit.concepts]
        shared = element("ul", bars, class_="shared") if bars else None
        hits.append(_item(addresses.get(f"row-{hit.row}"), hit.name, f"{rank}. ", facts, shared))
    return element("article", own, element("ol", hits, class_="hits"), class_="asked")


def _item(address: str | None, name: str, rank: str, facts: str, shared: Markup | None = None) -> Markup:
    place = element("p", rank, element("bdi", printable(name)), class_="place")
    return element("li", _picture(address, name), place, element("p", facts, class_="facts"), shared, class_="hit")


def _share_bar(concept: SharedConcept) -> Markup:
    track = Markup('<rect class="track" width="100" height="6"/>')
    bar = element("rect", class_="bar", width=100 * min(concept.share, 1.0), height=6)
    drawn = element("svg", track, bar, viewBox="0 0 100 6", preserveAspectRatio="none", aria_hidden="true")
    return element("li", f"d{concept.dim}: {percent(concept.share, 0)}", drawn, class_="level-note")


def _picture(address: str | None, name: str) -> Markup | None:
    return None if address is None else element("img", src=address, alt=printable(name))
