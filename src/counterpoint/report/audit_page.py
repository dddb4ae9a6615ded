"""The page of an audit: contents, findings with their pictures, and measurements, without a script."""

from collections.abc import Sequence
from itertools import pairwise

from counterpoint.audit.audit_record import Audit, DuplicateGroup, Observation
from counterpoint.core.terminal_text import hide_folders, printable
from counterpoint.report.charts.chart_frame import ChartText, linear_axis, percent_axis
from counterpoint.report.charts.drawings import IntervalGroup, IntervalRow, histogram_drawing, interval_drawing
from counterpoint.report.charts.figures import HALF, Style, badge, data_table, figure, panels
from counterpoint.report.document import PageKind, PageSection, document, plain_header
from counterpoint.report.markup import Child, Markup, element, join, prose
from counterpoint.report.wording import percent

AUDIT_PAGE = PageKind("page of an audit", "audit.html", Markup('<meta name="generator" content="counterpoint audit">'))
MOST_GROUPS, PER_GROUP, PER_ROW = 24, 4, 12
MOST_CLASSES = 60
ANSWERS = {
    "good": "Yes",
    "note": "Yes, with notes",
    "warning": "Yes, but look at the warnings first",
    "severe": "Not as it is",
}


def render_audit(audit: Audit) -> Markup:
    """Render the page of an audit."""
    cards = [_card(observation, audit, is_first=at == 0) for at, observation in enumerate(audit.observations)]
    findings = element("div", cards, class_="cards") if cards else element("p", "Nothing to remark.", class_="reading")
    contents, best = _contents(audit), max(audit.cues, key=lambda cue: cue.skill, default=None)
    parts = [
        PageSection("found", "Findings", "What should be known before training?", findings),
        PageSection("there", "Contents", "What is there?", contents, f"{audit.facts[0]}.", is_open=False),
    ]
    if best is not None:
        answer = f"By {best.name} alone {percent(best.accuracy)} are right, by chance {percent(best.majority)}."
        parts.append(PageSection("cues", "Shortcuts", "Are there shortcuts?", _cue_table(audit), answer, is_open=False))
    verdict = PageSection("verdict", "Verdict", "Can it be trained on?", _verdict(audit))
    facts = f"{audit.passport.num_good:,} of {audit.passport.num_found:,} samples can be used"
    facts += f"; compared with {hide_folders(audit.against)}" if audit.against else ""
    header = plain_header("Counterpoint looks at data", printable(audit.name), facts)
    return document(AUDIT_PAGE, f"Counterpoint: {printable(audit.name)}", header, [verdict, *parts])


def _verdict(audit: Audit) -> Markup:
    worst = audit.observations[0] if audit.observations else None
    title = element("p", badge(audit.level), " ", prose(worst.title if worst else "Nothing to remark."), class_="lede")
    remedy = element("p", element("strong", "Try: "), prose(worst.remedy)) if worst and worst.remedy else None
    charts: list[Markup] = []
    counts = sorted(audit.passport.classes.values(), reverse=True)
    if len(set(counts)) > 1:
        sizes = f"{len(counts):,} classes, from {counts[0]:,} to {counts[-1]:,} samples"
        bins = [float(at) for at in range(len(counts) + 1)]
        charts.append(_histogram(sizes, ("class, the largest first", "samples"), bins, counts))
    # A quarter of the pictures in each bin; a quarter of one width has no height to draw.
    edges = [float(end) for end in audit.passport.widths if end is not None]
    if len(edges) >= 5 and len(set(edges)) == len(edges):
        heights = [25 / (high - low) for low, high in pairwise(edges)]
        widths = f"Width of pictures, from {edges[0]:g} to {edges[-1]:g} pixels"
        charts.append(_histogram(widths, ("pixels", "percent of the pictures per pixel"), edges, heights))
    charts += filter(None, [_cue_chart(audit)])
    return join(element("p", ANSWERS[audit.level], class_="word"), title, remedy, panels(charts) if charts else None)


def _cue_chart(audit: Audit) -> Markup | None:
    cues = [cue for cue in audit.cues if cue.accuracy is not None]
    if not cues:
        return None
    ends = [end for cue in cues for end in (cue.low, cue.high, cue.majority)]
    rows = [
        IntervalRow(cue.name, [(cue.low or 0.0, cue.accuracy or 0.0, cue.high or 0.0, Style("c1"))]) for cue in cues
    ]
    title = "What predicts the class without its content"
    axis = percent_axis("right, in held-out folds", [0.0, *ends])
    group, words = IntervalGroup("", rows), ChartText(title, "")
    chance = max(cue.majority or 0.0 for cue in cues)
    draw = interval_drawing(axis, [group], words, zero=chance)
    return figure(title, f"The line is chance, {percent(chance)}; far right of it is a shortcut.", draw, HALF, None)


def _histogram(title: str, axes: tuple[str, str], edges: Sequence[float], heights: Sequence[float]) -> Markup:
    x_axis = linear_axis(axes[0], [edges[0], edges[-1]], is_whole=True)
    y_axis = linear_axis(axes[1], [0.0, *heights])
    draw = histogram_drawing(ChartText(title, ""), 240, (x_axis, y_axis), edges, [(heights, "area c1")])
    return figure(title, "", draw, HALF, None)


def _card(observation: Observation, audit: Audit, *, is_first: bool) -> Markup:
    title = element("summary", element("h3", badge(observation.level), " ", prose(observation.title)))
    # Groups are named below their pictures.
    prefixes = ("group: ", "and ") if audit.pictures and observation.groups else ()
    details = [line for line in observation.details if not (prefixes and line.startswith(prefixes))]
    more = len(observation.groups) - MOST_GROUPS if prefixes else 0
    details = [*([f"and {more} more"] if more > 0 else []), *details]
    lines = [element("p", prose(printable(line)), class_="note") for line in details]
    look = f"card level-{observation.level}"
    return element("details", title, _pictures(observation, audit), lines, class_=look, open=is_first)


def _pictures(observation: Observation, audit: Audit) -> Markup | None:
    """Draw the thumbnails of an observation: a block for each group of copies, or one row."""
    if observation.groups:
        blocks = list(filter(None, (_copies_side_by_side(group, audit) for group in observation.groups[:MOST_GROUPS])))
        return element("div", blocks, class_="concepts") if blocks else None
    pictures = list(filter(None, (_picture(name, audit, words) for name, words in observation.said[:PER_ROW])))
    return element("div", pictures, class_="thumbs") if pictures else None


def _copies_side_by_side(group: DuplicateGroup, audit: Audit) -> Markup | None:
    names = group.names[:PER_GROUP]
    pictures = [_picture(name, audit) for name in names]
    if all(picture is None for picture in pictures):
        return None
    items = []
    for at, name in enumerate(names):
        part_and_label = [words[at] for words in (group.splits, group.labels) if at < len(words) and words[at]]
        items.append(element("li", printable(name), f" ({', '.join(part_and_label)})" if part_and_label else ""))
    relation = f"correlation {group.similarity or 0:.2f}" + (f", {group.turn}" if group.turn else "")
    title = element("header", element("h4", "equal pixels" if group.is_equal else relation))
    return element(
        "article",
        title,
        element("div", pictures, class_=f"thumbs per-row-{len(names)}"),
        element("ul", items, class_="facts"),
        class_="concept",
    )


def _picture(name: str, audit: Audit, words: str = "") -> Markup | None:
    address, title = audit.pictures.get(name), printable(f"{name}: {words}" if words else name)
    return None if address is None else element("img", src=address, alt=title, title=title)


def _contents(audit: Audit) -> Markup:
    # Shortcuts have a table of their own.
    sentences = audit.model_copy(update={"cues": ()}).facts
    facts = element("ul", [element("li", hide_folders(line)) for line in sentences], class_="reading")
    counts = sorted(audit.passport.classes.items(), key=lambda item: -item[1])
    if not counts:
        return facts
    total = sum(count for _, count in counts)
    rows: Sequence[Sequence[Child]] = [
        [printable(name), f"{count:,}", percent(count / total, 1)] for name, count in counts[:MOST_CLASSES]
    ]
    more = len(counts) - MOST_CLASSES
    note = element("p", f"and {more} smaller classes", class_="note") if more > 0 else None
    return join(facts, element("h3", "Classes"), data_table("Classes", ["class", "samples", "share"], rows), note)


def _cue_table(audit: Audit) -> Markup:
    rows: Sequence[Sequence[Child]] = [
        [
            cue.name,
            percent(cue.accuracy or 0.0, 1),
            f"{percent(cue.low or 0.0, 1)} to {percent(cue.high or 0.0, 1)}",
            percent(cue.majority or 0.0, 1),
            f"{cue.num_samples:,}",
        ]
        for cue in audit.cues
    ]
    note = (
        "Share of held-out pictures whose class this alone predicts, in three folds, beside the share of the largest "
        "class; of crops, the share whose other crop has the nearest colours, beside chance."
    )
    table = data_table("Shortcuts", ["by", "right", "95 % interval", "by chance", "pictures"], rows)
    return join(element("p", note, class_="note"), table)
