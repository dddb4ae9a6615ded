"""Checks of labels: wrong, written into the features, unevenly many, out of step with clusters, in two modes."""

from collections.abc import Sequence

from counterpoint.diagnostics.evidence import EMBEDDING, Evidence
from counterpoint.diagnostics.finding import Finding

NOISE = 0.03  # of the labels are wrong, lower end of the interval; clean sets have 0.01 at most
MOSTLY = 0.85  # of the samples are of one class: a vote hardly names another
UNEVEN = 10.0  # mean count of frequent classes over that of rare ones
MOST_NAMED = 5


def check_label_noise(evidence: Evidence) -> Finding | None:
    """Do labels contradict neighbours that agree with each other?"""
    embedding = evidence.places[EMBEDDING]
    share, ends = embedding.figures.get("label_noise"), embedding.interval("label_noise")
    if share is None or (ends["low"] or 0.0) < NOISE:
        return None
    return Finding(
        level="warning",
        title=f"At least {ends['low']:.0%} of the labels look wrong: their neighbours are of another class",
        measured=share,
        **ends,
        reference=NOISE,
        reference_name="disagreement of right labels where neighbours agree most",
        text="Right labels disagree with their neighbours near class borders, and hardly ever where the neighbours "
        "agree with each other. Here they disagree everywhere alike, as mixed-up labels do.",
        confirm="look at the named samples and their labels",
        remedy="correct the labels of the named samples first; leave out unclear ones",
        cannot_tell="classes that differ in what these features do not hold",
        samples=evidence.suspects.get("label-noise", ()),
    )


def check_label_leak(evidence: Evidence) -> Finding | None:
    """Was the label written into the features?"""
    count = evidence.places[EMBEDDING].figures.get("leaked_dims")
    if not count:
        return None
    return Finding(
        level="warning",
        title=f"{count:.0f} coordinate{'s give' if count > 1 else ' gives'} the label away: a label leak",
        measured=count,
        reference_name="none",
        text="These coordinates hardly vary within a class, while the others do, like a label copied into the "
        "features. Every accuracy then measures the copied label.",
        confirm="leave these coordinates out and diagnose again: the accuracy falls to that of the others",
        remedy="remove the label, and everything derived from it, from the input and the features",
        cannot_tell="whether a real measurement separates the classes this well",
    )


def check_imbalance(evidence: Evidence) -> Finding | None:
    """Are most samples of one class, or some classes rare?"""
    classes = evidence.classes
    counts = {row.name: row.count or 0.0 for row in classes.rows} if classes else {}
    if len(counts) < 2 or classes is None:
        return None
    name, most = max(counts.items(), key=lambda item: item[1])
    share = most / sum(counts.values())
    if share < MOSTLY and classes.imbalance < UNEVEN:
        return None
    return Finding(
        level="warning" if share >= MOSTLY else "note",
        title=f"Imbalance: {share:.0%} of the samples are of class {name}, the rarest class has "
        f"{min(counts.values()):.0f}",
        measured=share,
        reference=1 / len(counts),
        reference_name="classes of one size",
        text="A kNN vote nearly always predicts the largest class, so accuracy says little; use the mean over classes. "
        "With few samples of a class, theory predicts that the means of rare classes merge (minority collapse: "
        "fang2021; imbalanced2026), more so the more uneven the counts.",
        confirm="counterpoint evaluate RUN --metrics 'balanced knn'",
        cannot_tell="whether more samples would separate the rare classes",
    )


def check_shared_cluster(evidence: Evidence) -> Finding | None:
    """Do two labels lie in one cluster?"""
    return _class_note(
        [" and ".join(pair) for pair in evidence.classes.shared] if evidence.classes else [],
        title="Labels share a cluster",
        text="Their samples are neighbours of each other as often as of their own label, and of hardly any other: one "
        "thing with two names, or two things that these features do not separate.",
        confirm="look at samples of both labels side by side",
        remedy="merge the labels, if they mean the same",
        cannot_tell="whether the labels or the features are the cause",
    )


def check_parted_label(evidence: Evidence) -> Finding | None:
    """Does one label lie in distant clusters?"""
    return _class_note(
        evidence.classes.parted if evidence.classes else (),
        title="One label for distant clusters",
        text="The samples of such a label lie in two clusters, and another label is nearer to one of them than its "
        "other half. The class mean then represents neither.",
        confirm="look at samples of both clusters: counterpoint report RUN, section Map",
        remedy="give each cluster its own label, if they are different things",
        cannot_tell="whether the clusters are subclasses, sources or chance",
    )


def _class_note(names: Sequence[str], *, title: str, **words: str) -> Finding | None:
    """Return a note that names the classes that it is about; None if there are none."""
    full_title = f"{title}: {', '.join(names[:MOST_NAMED])}"
    return Finding(title=full_title, measured=float(len(names)), reference_name="none", **words) if names else None  # pyright: ignore[reportArgumentType]


def check_hidden_modes(evidence: Evidence) -> Finding | None:
    """Does nearly every class fall into two distant modes, as sources or batches would give?"""
    modes = evidence.places[EMBEDDING].figures.get("hidden_modes")
    if not modes:
        return None
    return Finding(
        title=f"Nearly every class falls into two distant modes; the smaller has {modes:.0%} of the samples",
        measured=modes,
        reference_name="one mode",
        text="Within nearly every class the features have two modes along one direction, as two sensors, sites or "
        "batches would give.",
        confirm="the source of each sample as its label: counterpoint diagnose FILE --labels SOURCES.npy",
        remedy="find out in what the two modes differ, and subtract the mean of each",
        cannot_tell="whether the modes are sources or another property of the samples",
    )
