"""The page of an audit: what is there, what was found with its pictures, and what was measured; no script."""

from collections.abc import Sequence

from counterpoint.audit.audit_record import Audit, DuplicateGroup, Observation
from counterpoint.core.markup import Child, Markup, element, hide_folders, join, printable
from counterpoint.report.charts.figures import data_table
from counterpoint.report.charts.series_style import badge
from counterpoint.report.document import PageKind, PageSection, document, plain_header
from counterpoint.report.wording import percent

AUDIT_PAGE = PageKind("page of an audit", "audit.html", Markup('<meta name="generator" content="counterpoint audit">'))
MOST_GROUPS, PER_GROUP, PER_ROW = 24, 4, 12
MOST_CLASSES = 60


def render_audit(found: Audit) -> Markup:
    """Render the page."""
    said = [_observation(each, found) for each in found.observations]
    findings = join(said) if said else element("p", "Nothing to remark.", class_="reading")
    parts = [
        PageSection("found", "Findings", "What should be known before training?", findings),
        PageSection("there", "Contents", "What is there?", _contents(found)),
    ]
    if found.cues:
        parts.append(PageSection("cues", "Shortcuts", "What gives the answer away?", _cues(found)))
    facts = f"{found.passport.num_good:,} of {found.passport.num_found:,} samples can be used"
    facts += f"; compared with {hide_folders(found.against)}" if found.against else ""
    header = plain_header("Counterpoint looks at data", printable(found.name), facts)
    return document(AUDIT_PAGE, f"Counterpoint: {printable(found.name)}", header, parts)


def _observation(each: Observation, found: Audit) -> Markup:
    title = element("h3", badge(each.level), " ", each.title)
    # Groups are named below their pictures.
    named = ("group: ", "and ") if found.pictures and each.groups else ()
    told = [line for line in each.details if not line.startswith(named)] if named else each.details
    more = len(each.groups) - MOST_GROUPS if named else 0
    told = [*([f"and {more} more"] if more > 0 else []), *told]
    lines = [element("p", printable(line), class_="note") for line in told]
    return join(title, _pictures(each, found), lines)


def _pictures(each: Observation, found: Audit) -> Markup | None:
    """Thumbnails: a block for each group of copies, or one row."""
    if each.groups:
        blocks = [_group(group, found) for group in each.groups[:MOST_GROUPS]]
        kept = [block for block in blocks if block is not None]
        return element("div", kept, class_="concepts") if kept else None
    row = [_picture(name, found, words) for name, words in each.said[:PER_ROW]]
    shown = [picture for picture in row if picture is not None]
    return element("div", shown, class_="thumbs") if shown else None


def _group(group: DuplicateGroup, found: Audit) -> Markup | None:
    """Copies side by side, with the name, part and label of each."""
    members = list(range(min(len(group.names), PER_GROUP)))
    pictures = [_picture(group.names[at], found) for at in members]
    if all(picture is None for picture in pictures):
        return None
    told = [element("li", printable(group.names[at]), _beside(group, at)) for at in members]
    relation = f"correlation {group.similarity or 0:.2f}" + (f", {group.turn}" if group.turn else "")
    title = element("header", element("h4", "equal pixels" if group.is_equal else relation))
    return element(
        "article",
        title,
        element("div", pictures, class_=f"thumbs per-row-{PER_GROUP}"),
        element("ul", told, class_="facts"),
        class_="concept",
    )


def _beside(group: DuplicateGroup, at: int) -> str:
    """Part and label of a copy, where they are known."""
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


def _cues(found: Audit) -> Markup:
    """What tells classes or crops without the content."""
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
        "Share of held-out pictures whose class is told by this alone, in three folds, beside the share of the largest "
        "class; of crops, the share whose other crop has the nearest colours, beside chance."
    )
    table = data_table("Shortcuts", ["by", "right", "95 % interval", "by chance", "pictures"], rows)
    return join(element("p", note, class_="note"), table)
