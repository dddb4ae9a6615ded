"""What lies near what: two views of one sample, and samples that are copies."""

from collections.abc import Mapping

from counterpoint.diagnostics.checks.collapse_checks import is_full_collapse
from counterpoint.diagnostics.evidence import EMBEDDING, UNTRAINED, Evidence
from counterpoint.diagnostics.finding import Check, Finding, plain
from counterpoint.diagnostics.remedies import COLOUR_CHANGES, MORE_EPOCHS, WEAKER_VIEWS, advice

CLOSE_COSINES = 0.3
HIDDEN_OVERLAP = 0.6  # of an untrained encoder, which finds two views of one sample closer in 70 % of the cases or more
CHANCE_OVERLAP = 0.5
ERRORS = 3.0  # standard errors of the overlap of unrelated views
MOVED = 0.9  # of the samples
MOST_VIEWS = 2048  # samples of which two views are compared, at most
COLOURS_TELL = 0.85  # of the cases, which views belong together
COLOURS_FOLLOWED = 0.3  # of the pictures have their closest in the embedding among the closest 5 % by colours
SOME_COPIES, MANY_COPIES = 0.01, 0.2  # of the samples


def check_related_views(evidence: Evidence) -> Finding | None:
    """Do two views of one sample belong together at all?"""
    embedding = evidence.places[EMBEDDING]
    if embedding.overlap is None or is_full_collapse(embedding):
        return None
    # Of the mean of so many uniform ranks, which unrelated views have.
    error = (12 * min(embedding.num_samples, MOST_VIEWS)) ** -0.5
    is_moved = (embedding.moved_views or 0.0) > MOVED
    if not is_moved and embedding.overlap > CHANCE_OVERLAP + ERRORS * error:
        return None
    what = "lie in other rows: the rows of the two views are in different orders" if is_moved else "are unrelated"
    return Finding(
        name="unrelated-views",
        level="severe",
        title=f"The two views {what}",
        measured=embedding.overlap,
        low=max(embedding.overlap - 2 * error, 0.0),
        high=min(embedding.overlap + 2 * error, 1.0),
        better="higher",
        reference=CHANCE_OVERLAP,
        reference_name="unrelated views",
        text=f"Two views of one sample are closer than two samples in {embedding.overlap:.0%} of the cases; unrelated "
        f"ones are in 50 %. For {embedding.moved_views or 0:.0%} of the samples the closest view is in another row and "
        "closer than any other sample.",
        confirm="look at pairs of views: counterpoint preview --data DATA; of features, compare the names of both "
        "tables",
        **advice(
            evidence,
            WEAKER_VIEWS,
            MORE_EPOCHS,
            otherwise="put the rows of both views into one order, or compare views of the same samples",
        ),
        expect="two views of one sample are closer than two samples in more of the cases",
        cannot_tell="whether the views or the encoder are to blame, where the rows are in one order",
    )


def check_hiding_views(evidence: Evidence) -> Finding | None:
    """Do the views themselves have anything in common, before any training?"""
    embedding, untrained = evidence.places[EMBEDDING], evidence.places.get(UNTRAINED)
    before = untrained.figures.get("overlap") if untrained else None
    if before is None or embedding.overlap is None or max(before, embedding.overlap) >= HIDDEN_OVERLAP:
        return None
    return Finding(
        name="hiding-views",
        level="severe",
        title=f"The views hide nearly everything: untrained, two of one sample are closer in {before:.0%} of the cases",
        measured=before,
        better="higher",
        reference=CHANCE_OVERLAP,
        reference_name="unrelated views",
        text="An encoder with random weights keeps much of a picture, and finds two usual views of one sample closer "
        "than two samples in most cases. Where it does not, the views have lost what they had in common, and no "
        "training brings it back.",
        confirm="look at pairs of views: counterpoint preview --data DATA",
        **advice(evidence, WEAKER_VIEWS, otherwise="draw views that keep more of a sample"),
        expect="two views of one sample are closer than two samples in more of the cases",
        cannot_tell="which of the changes hides most",
    )


def check_alignment(evidence: Evidence) -> Finding | None:
    """Are two views of one sample closer than two samples?"""
    embedding = evidence.places[EMBEDDING]
    if embedding.positive_cosine is None or is_full_collapse(embedding) or check_related_views(evidence) is not None:
        return None
    gap = embedding.positive_cosine - embedding.negative_cosine  # after a ReLU no cosine is below 0
    is_weak = gap < CLOSE_COSINES
    share = "" if embedding.overlap is None else f" They are in {embedding.overlap:.1%} of the cases."
    return Finding(
        name="alignment",
        level="warning" if is_weak else "good",
        title=f"Views of one sample have cosine {plain(embedding.positive_cosine)}, different samples "
        f"{plain(embedding.negative_cosine)}",
        measured=embedding.positive_cosine,
        **embedding.interval("positive_cosine"),
        better="higher",
        reference=embedding.negative_cosine,
        reference_name="different samples",
        text="The loss pulls views of one sample together and pushes samples apart; the wider this gap, the more "
        f"of that was learned.{share}",
        confirm="draw weaker views and diagnose again: counterpoint train --config config.yaml --views.crop-scale "
        "0.5,1 --epochs 5",
        **advice(
            evidence,
            WEAKER_VIEWS,
            MORE_EPOCHS,
            otherwise="compare views that keep what tells samples apart",
        ),
        expect="the gap between both cosines widens",
        cannot_tell="whether views hide too much or training was too short",
    )


def check_duplicates(evidence: Evidence) -> Finding | None:
    """Are samples exact copies of others?"""
    embedding = evidence.places[EMBEDDING]
    # Features that coincide as a whole are collapse, not copies.
    if embedding.duplicates < SOME_COPIES or is_full_collapse(embedding):
        return None
    count = round(embedding.duplicates * embedding.num_samples)
    return Finding(
        name="duplicates",
        level="warning" if embedding.duplicates >= MANY_COPIES else "note",
        title=f"{count:,} of {embedding.num_samples:,} samples are exact copies of others",
        measured=embedding.duplicates,
        **embedding.interval("duplicates"),
        better="lower",
        reference=0.0,
        reference_name="no copies",
        text="Their features are the same to the last bit. In training, a copy counts as a negative of its twin; in an "
        "evaluation, a copy in the bank answers for its twin and favours every figure.",
        confirm="compare the raw samples: two pictures with the same features are the same file, or the encoder "
        "cannot tell them apart (counterpoint embed RUN --out z.csv, then sort)",
        remedy="leave copies out before training and before a split is drawn",
        expect="no copies are counted",
        cannot_tell="whether the samples are copies or the encoder gives two samples the same features",
    )


def check_shortcut(evidence: Evidence) -> Finding | None:
    """Can the task be solved by colours alone, and is it?"""
    shortcut = evidence.shortcut
    if shortcut is None or shortcut.overlap is None or shortcut.followed is None or evidence.is_supervised:
        return None
    if shortcut.overlap < COLOURS_TELL or shortcut.followed < COLOURS_FOLLOWED:
        return None
    return Finding(
        name="shortcut",
        level="warning",
        title="The views share their colours, and the embedding follows them: for "
        f"{shortcut.followed:.0%} of the pictures the closest other one is close in colours, too",
        measured=shortcut.followed,
        better="lower",
        reference=0.05,
        reference_name="an embedding that has nothing to do with colours",
        text=f"By the means and deviations of their colours alone, two views of one picture are closer than two "
        f"pictures in {shortcut.overlap:.0%} of {shortcut.num_samples:,} cases. A loss that can be lowered so teaches "
        "colours before anything else.",
        confirm="look at both views of some pictures: counterpoint preview --data DATA",
        **advice(
            evidence,
            COLOUR_CHANGES,
            otherwise="train on views whose brightness and colours change",
        ),
        expect="fewer pictures have a closest one that is close in colours",
        cannot_tell="whether colours are what your classes differ in, and which other shortcuts there are",
    )


CATALOGUE: Mapping[str, Check] = {
    "unrelated-views": check_related_views,
    "hiding-views": check_hiding_views,
    "duplicates": check_duplicates,
    "alignment": check_alignment,
    "shortcut": check_shortcut,
}
