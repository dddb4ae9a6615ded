"""The page of an audit: what is there, what was found with its pictures, and what was measured; no script."""

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


def render_audit(found: Audit) -> Markup:
    """Render the page."""
    cards = [_observation(each, found, is_first=at == 0) for at, each in enumerate(found.observations)]
    findings = element("div", cards, class_="cards") if cards else element("p", "Nothing to remark.", class_="reading")
    contents, cue = _contents(found), max(found.cues, key=lambda each: each.skill, default=None)
    parts = [
        PageSection("found", "Findings", "What should be known before training?", findings),
        PageSection("there", "Contents", "What is there?", contents, f"{found.facts[0]}.", is_open=False),
    ]
    if cue is not None:
        told = f"By {cue.name} alone {percent(cue.accuracy)} are right, by chance {percent(cue.majority)}."
        parts.append(PageSection("cues", "Shortcuts", "Are there shortcuts?", _cue_table(found), told, is_open=False))
    verdict = PageSection("verdict", "Verdict", "Can it be trained on?", _verdict(found))
    facts = f"{found.passport.num_good:,} of {found.passport.num_found:,} samples can be used"
    facts += f"; compared with {hide_folders(found.against)}" if found.against else ""
    header = plain_header("Counterpoint looks at data", printable(found.name), facts)
    return document(AUDIT_PAGE, f"Counterpoint: {printable(found.name)}", header, [verdict, *parts])


def _verdict(found: Audit) -> Markup:
    worst = found.observations[0] if found.observations else None
    told = element("p", badge(found.level), " ", prose(worst.title if worst else "Nothing to remark."), class_="lede")
    remedy = element("p", element("strong", "Try: "), prose(worst.remedy)) if worst and worst.remedy else None
    charts = list(filter(None, (_class_sizes(found), _widths(found), _cue_chart(found))))
    return join(element("p", ANSWERS[found.level], class_="word"), told, remedy, panels(charts) if charts else None)


def _class_sizes(found: Audit) -> Markup | None:
    counts = sorted(found.passport.classes.values(), reverse=True)
    if len(set(counts)) < 2:
        return None
    title = f"{len(counts):,} classes, from {counts[0]:,} to {counts[-1]:,} samples"
    edges = [float(at) for at in range(len(counts) + 1)]
    return _histogram(title, ("class, the largest first", "samples"), edges, counts)


def _widths(found: Audit) -> Markup | None:
    """The widths of pictures, a quarter of them in each bin."""
    edges = [float(end) for end in found.passport.widths if end is not None]
    if len(edges) < 5 or len(set(edges)) < len(edges):  # a quarter of one width has no height to draw
        return None
    heights = [25 / (high - low) for low, high in pairwise(edges)]
    title = f"Width of pictures, from {edges[0]:g} to {edges[-1]:g} pixels"
    return _histogram(title, ("pixels", "percent of the pictures per pixel"), edges, heights)


def _cue_chart(found: Audit) -> Markup | None:
    known = [cue for cue in found.cues if cue.accuracy is not None]
    if not known:
        return None
    ends = [end for cue in known for end in (cue.low, cue.high, cue.majority)]
    rows = [
        IntervalRow(cue.name, [(cue.low or 0.0, cue.accuracy or 0.0, cue.high or 0.0, Style("c1"))]) for cue in known
    ]
    title = "What predicts the class without its content"
    axis = percent_axis("right, in held-out folds", [0.0, *ends])
    group, words = IntervalGroup("", rows), ChartText(title, "")
    chance = max(cue.majority or 0.0 for cue in known)
    draw = interval_drawing(axis, [group], words, zero=chance)
    return figure(title, f"The line is chance, {percent(chance)}; far right of it is a shortcut.", draw, HALF, None)


def _histogram(title: str, axes: tuple[str, str], edges: Sequence[float], heights: Sequence[float]) -> Markup:
    x_axis = linear_axis(axes[0], [edges[0], edges[-1]], is_whole=True)
    y_axis = linear_axis(axes[1], [0.0, *heights])
    draw = histogram_drawing(ChartText(title, ""), 240, (x_axis, y_axis), edges, [(heights, "area c1")])
    return figure(title, "", draw, HALF, None)


def _observation(each: Observation, found: Audit, *, is_first: bool) -> Markup:
    title = element("summary", element("h3", badge(each.level), " ", prose(each.title)))
    # Groups are named below their pictures.
    named = ("group: ", "and ") if found.pictures and each.groups else ()
    told = [line for line in each.details if not line.startswith(named)] if named else each.details
    more = len(each.groups) - MOST_GROUPS if named else 0
    told = [*([f"and {more} more"] if more > 0 else []), *told]
    lines = [element("p", prose(printable(line)), class_="note") for line in told]
    return element("details", title, _pictures(each, found), lines, class_=f"card level-{each.level}", open=is_first)


def _pictures(each: Observation, found: Audit) -> Markup | None:
    """Thumbnails: a block for each group of copies, or one row."""
    if each.groups:
        kept = list(filter(None, (_copies_side_by_side(group, found) for group in each.groups[:MOST_GROUPS])))
        return element("div", kept, class_="concepts") if kept else None
    shown = list(filter(None, (_picture(name, found, words) for name, words in each.said[:PER_ROW])))
    return element("div", shown, class_="thumbs") if shown else None


def _copies_side_by_side(group: DuplicateGroup, found: Audit) -> Markup | None:
    members = list(range(min(len(group.names), PER_GROUP)))
    pictures = [_picture(group.names[at], found) for at in members]
    if all(picture is None for picture in pictures):
        return None
    told = [element("li", printable(group.names[at]), _part_and_label(group, at)) for at in members]
    relation = f"correlation {group.similarity or 0:.2f}" + (f", {group.turn}" if group.turn else "")
    title = element("header", element("h4", "equal pixels" if group.is_equal else relation))
    return element(
        "article",
        title,
        element("div", pictures, class_=f"thumbs per-row-{len(members)}"),
        element("ul", told, class_="facts"),
        class_="concept",
    )


def _part_and_label(group: DuplicateGroup, at: int) -> str:
    known = [words[at] for words in (group.splits, group.labels) if at < len(words) and words[at]]
    return f" ({', '.join(known)})" if known else ""


def _picture(name: str, found: Audit, words: str = "") -> Markup | None:
    address, title = found.pictures.get(name), printable(f"{name}: {words}" if words else name)
    return None if address is None else element("img", src=address, alt=title, title=title)


def _contents(found: Audit) -> Markup:
    # Shortcuts have a table of their own.
    told = found.model_copy(update={"cues": ()}).facts
    facts = element("ul", [element("li", hide_folders(line)) for line in told], class_="reading")
    counts = sorted(found.passport.classes.items(), key=lambda item: -item[1])
    if not counts:
        return facts
    total = sum(count for _, count in counts)
    rows: Sequence[Sequence[Child]] = [
        [printable(name), f"{count:,}", percent(count / total, 1)] for name, count in counts[:MOST_CLASSES]
    ]
    more = len(counts) - MOST_CLASSES
    note = element("p", f"and {more} smaller classes", class_="note") if more > 0 else None
    return join(facts, element("h3", "Classes"), data_table("Classes", ["class", "samples", "share"], rows), note)


def _cue_table(found: Audit) -> Markup:
    rows: Sequence[Sequence[Child]] = [
        [
            cue.name,
            percent(cue.accuracy or 0.0, 1),
            f"{percent(cue.low or 0.0, 1)} to {percent(cue.high or 0.0, 1)}",
            percent(cue.majority or 0.0, 1),
            f"{cue.num_samples:,}",
        ]
        for cue in found.cues
    ]
    note = (
        "Share of held-out pictures whose class this alone predicts, in three folds, beside the share of the largest "
        "class; of crops, the share whose other crop has the nearest colours, beside chance."
    )
    table = data_table("Shortcuts", ["by", "right", "95 % interval", "by chance", "pictures"], rows)
    return join(element("p", note, class_="note"), table)
