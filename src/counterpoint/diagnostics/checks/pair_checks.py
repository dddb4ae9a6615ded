"""Checks of close samples (two views of one, copies), and of the negatives that weigh in the loss: few, all, copies.

Limits were chosen on runs on digits and on the first set of faults (docs/diagnosis-reference.md).
"""

import math

from counterpoint.diagnostics import remedies
from counterpoint.diagnostics.checks.collapse_checks import COLD, UNEVEN, is_full_collapse
from counterpoint.diagnostics.evidence import EMBEDDING, UNTRAINED, Evidence
from counterpoint.diagnostics.finding import Finding, plain
from counterpoint.diagnostics.pair_record import PairRecord

CLOSE_COSINES = 0.3  # of the way from different samples to the same one, that two views go
HIDDEN_OVERLAP = 0.6  # of an untrained encoder, which finds two views of one sample closer in 70 % of the cases or more
CHANCE_OVERLAP = 0.5
ERRORS = 3.0  # standard errors of the overlap of unrelated views
MOVED = 0.9  # of the samples
SAME, CROWDED = 0.5, 0.99  # of the samples have equal views; cosine of different samples
STRAY = 0.06  # of the samples
MOST_VIEWS = 2048  # samples of which two views are compared, at most
COLOURS_TELL = 0.85  # of the cases, which views belong together
COLOURS_FOLLOWED = 0.3  # of the pictures have their closest in the embedding among the closest 5 % by colours
SOME_COPIES, MANY_COPIES = 0.01, 0.2  # of the samples
HANDFUL = 0.03  # of the negatives, that an anchor weighs at least
UNIFORM, NEARLY_UNIFORM = 0.98, 0.9  # of the negatives: all weigh alike, and nearly so above WARM
WARM = 1.0  # temperatures from here on cannot tell cosines apart: weights differ by e^2 at most
FEW_NEGATIVES = 32
FEWEST_WEIGHED = 16  # negatives of which it means something that few of them count
COPIED = 0.3  # of the samples, that have a near-copy
SOME_PUSH, MUCH_PUSH = 0.01, 0.02  # of the weight of negatives
SHOW = "counterpoint diagnose RUN --pairs"


def check_related_views(evidence: Evidence) -> Finding | None:
    """Do two views of one sample belong together at all?"""
    embedding = evidence.places[EMBEDDING]
    if embedding.overlap is None or is_full_collapse(evidence):
        return None
    # Standard deviation of the mean of this many uniform ranks, which unrelated views have.
    error = (12 * min(embedding.num_samples, MOST_VIEWS)) ** -0.5
    is_moved = (embedding.moved_views or 0.0) > MOVED
    if not is_moved and embedding.overlap > CHANCE_OVERLAP + ERRORS * error:
        return None
    fault = "lie in other rows: the rows of the two views are in different orders" if is_moved else "are unrelated"
    return Finding(
        level="severe",
        title=f"The two views {fault}",
        measured=embedding.overlap,
        low=max(embedding.overlap - 2 * error, 0.0),
        high=min(embedding.overlap + 2 * error, 1.0),
        better="higher",
        reference=CHANCE_OVERLAP,
        reference_name="unrelated views",
        text=f"Two views of one sample are closer than two samples in {embedding.overlap:.0%} of the cases; unrelated "
        f"ones are in 50 %. For {embedding.moved_views or 0:.0%} of the samples the closest view is in another row and "
        "closer than any other sample.",
        confirm="look at pairs of views: counterpoint preview --data DATA; for features, compare the row names of "
        "both tables",
        cannot_tell="whether the views or the encoder are the cause, if the rows match",
    )


def check_identical_views(evidence: Evidence) -> Finding | None:
    """Do the two views of a sample differ at all?"""
    embedding = evidence.places[EMBEDDING]
    share = embedding.figures.get("same_views")
    # Samples that all point the same way have such views, too.
    if share is None or share < SAME or embedding.negative_cosine > CROWDED or is_full_collapse(evidence):
        return None
    return Finding(
        level="warning",
        title=f"The two views of {share:.0%} of the samples are identical or hardly differ",
        measured=share,
        reference=SAME,
        reference_name="of the samples, whose views have a cosine above 0.9999",
        text="Views that change nothing teach nothing: the loss only separates samples, and the features keep what "
        "views should make them ignore.",
        confirm="look at pairs of views: counterpoint preview --data DATA",
        cannot_tell="whether the views are equal, or the encoder ignores all that they change",
    )


def check_stray_views(evidence: Evidence) -> Finding | None:
    """Do some views belong to other samples?"""
    embedding = evidence.places[EMBEDDING]
    share = embedding.figures.get("stray_views")
    if share is None or share < STRAY or is_full_collapse(evidence) or check_related_views(evidence) is not None:
        return None
    return Finding(
        level="warning",
        title=f"About {share:.0%} of the view rows belong to other samples: unrelated views",
        measured=share,
        reference=STRAY,
        reference_name="of the samples",
        text="For most samples their own view is among the closest, for the others it ranks like any other: two modes, "
        "as if some rows had been moved.",
        confirm="compare the names of both tables, row by row",
        remedy="put the rows of both views into one order",
        cannot_tell="whether the views of these samples hide everything instead",
    )


def check_hiding_views(evidence: Evidence) -> Finding | None:
    """Do the views themselves have anything in common, before any training?"""
    embedding, untrained = evidence.places[EMBEDDING], evidence.places.get(UNTRAINED)
    before = untrained.figures.get("overlap") if untrained else None
    if before is None or embedding.overlap is None or max(before, embedding.overlap) >= HIDDEN_OVERLAP:
        return None
    return Finding(
        level="severe",
        title=f"The views hide nearly everything: untrained, two of one sample are closer in {before:.0%} of the cases",
        measured=before,
        better="higher",
        reference=CHANCE_OVERLAP,
        reference_name="unrelated views",
        text="An encoder with random weights keeps much of a picture, and finds two usual views of one sample closer "
        "than two samples in most cases. Here it does not: the views have nothing left in common, and "
        "training cannot restore it.",
        confirm="look at pairs of views: counterpoint preview --data DATA",
        cannot_tell="which of the changes hides most",
    )


def check_alignment(evidence: Evidence) -> Finding | None:
    """Are two views of a sample hardly closer than two samples?"""
    embedding = evidence.places[EMBEDDING]
    if embedding.positive_cosine is None or is_full_collapse(evidence) or check_related_views(evidence) is not None:
        return None
    # After a ReLU, or with an offset, no two samples are far apart: the gap is a share of what there can be.
    room = 1 - embedding.negative_cosine
    is_weak = embedding.positive_cosine - embedding.negative_cosine < CLOSE_COSINES * room
    words = " From a sample, its other view is closer than another sample in {:.1%} of the cases."
    share = "" if embedding.overlap is None else words.format(embedding.overlap)
    # Two views of a sample share few of the few active units of a sparse code, which is trained to reconstruct.
    is_code = evidence.reconstruction is not None
    return Finding(
        level="good" if not is_weak else "note" if is_code else "warning",
        title=f"Views of one sample have cosine {plain(embedding.positive_cosine)}, different samples "
        f"{plain(embedding.negative_cosine)}",
        measured=embedding.positive_cosine,
        **embedding.interval("positive_cosine"),
        better="higher",
        reference=embedding.negative_cosine,
        reference_name="different samples",
        text="The loss pulls views of one sample together and pushes samples apart; the wider this gap, the more "
        f"of this was learned.{share}",
        confirm="train with weaker views and diagnose again: counterpoint train --config config.yaml "
        "--views.crop-scale 0.5,1 --epochs 5",
        cannot_tell="whether views hide too much or training was too short",
    )


def check_duplicates(evidence: Evidence) -> Finding | None:
    """Are samples exact copies of others?"""
    embedding = evidence.places[EMBEDDING]
    # Features that coincide as a whole are collapse, not copies.
    if embedding.duplicates < SOME_COPIES or is_full_collapse(evidence):
        return None
    count = round(embedding.duplicates * embedding.num_samples)
    return Finding(
        level="warning" if embedding.duplicates >= MANY_COPIES else "note",
        title=f"{count:,} of {embedding.num_samples:,} samples are exact copies of others",
        measured=embedding.duplicates,
        **embedding.interval("duplicates"),
        reference_name="no copies",
        text="Their features are equal bit for bit. In training, a copy counts as a negative of its twin; in an "
        "evaluation, a copy in the bank answers for its twin and raises every accuracy.",
        confirm="compare the raw samples: two pictures with the same features are the same file, or the encoder "
        "does not separate them (counterpoint embed RUN --out z.csv, then sort)",
        remedy="remove copies before training and before the split is drawn",
        cannot_tell="whether the samples are copies or the encoder maps two samples to the same features",
    )


def check_shortcut(evidence: Evidence) -> Finding | None:
    """Does the encoder match views by colour alone?"""
    shortcut = evidence.shortcut
    if shortcut is None or shortcut.overlap is None or shortcut.followed is None or evidence.is_supervised:
        return None
    if shortcut.overlap < COLOURS_TELL or shortcut.followed < COLOURS_FOLLOWED:
        return None
    return Finding(
        level="warning",
        title="The views share their colours, and the embedding follows them: for "
        f"{shortcut.followed:.0%} of the pictures the nearest one also has similar colours",
        measured=shortcut.followed,
        reference=0.05,
        reference_name="an embedding unrelated to colours",
        text=f"By the means and deviations of their colours alone, two views of one picture are closer than two "
        f"pictures in {shortcut.overlap:.0%} of {shortcut.num_samples:,} cases. If colours are enough to lower the "
        "loss, the encoder learns colours first.",
        confirm="look at both views of some pictures: counterpoint preview --data DATA",
        cannot_tell="whether your classes differ in colour, and whether other shortcuts exist",
    )


def check_low_temperature(evidence: Evidence) -> Finding | None:
    """Does the gradient come from a handful of negatives?"""
    look = _weighed_pairs(evidence)
    if look is None or look.temperature is None or not look.effective_negatives or not look.num_negatives:
        return None
    if look.num_negatives < FEWEST_WEIGHED:
        return None
    if look.effective_negatives >= HANDFUL * look.num_negatives:
        return _crowded_by_temperature(evidence, look.temperature)
    weighed, temperature = look.effective_negatives, look.temperature
    return Finding(
        level="warning",
        title=f"At temperature {temperature:g} an anchor looks at {weighed:.1f} of {look.num_negatives:.0f} negatives",
        measured=weighed,
        low=look.effective_low,
        high=look.effective_high,
        reference=HANDFUL * look.num_negatives,
        reference_name="3 % of the negatives",
        text=f"The weight of a negative falls by a factor of e for each {temperature:g} of cosine, so the gradient "
        f"comes from the closest ones: one in a hundred has {look.hardest_share or 0:.0%} of it. These often belong to "
        "the anchor's own class, and the others are not pushed away.",
        confirm="train a short run at a higher temperature, and see in its diagnosis how many negatives count",
        better="higher",
        cannot_tell="whether such sharp weights suit data whose classes are single samples",
    )


def _crowded_by_temperature(evidence: Evidence, temperature: float) -> Finding | None:
    """Find the other effect of a low temperature: samples crowd until their cosines differ by no more than it."""
    embedding = evidence.places[EMBEDDING]
    if temperature > COLD or embedding.uniformity <= UNEVEN:
        return None
    return Finding(
        level="warning",
        title=f"At temperature {temperature:g} the samples have crowded: uniformity {embedding.uniformity:.2f}",
        measured=embedding.uniformity,
        reference=-4 + 8 / embedding.num_dims,
        reference_name="directions spread evenly",
        text=f"The loss only needs cosines that differ by a few times {temperature:g}, so samples stay close: two have "
        f"cosine {plain(embedding.negative_cosine)} on average. Their differences are then small compared with "
        "rounding and with what views change.",
        confirm="train a short run at a higher temperature, and see in its diagnosis how many negatives count",
        cannot_tell="whether neighbours are wrong: crowded samples may still be in the right order",
    )


def check_high_temperature(evidence: Evidence) -> Finding | None:
    """Do all negatives get nearly the same weight?"""
    look = _weighed_pairs(evidence)
    if look is None or look.temperature is None or not look.effective_negatives or not look.num_negatives:
        return None
    share, temperature = look.effective_negatives / look.num_negatives, look.temperature
    least = NEARLY_UNIFORM if temperature > WARM else UNIFORM
    if temperature < WARM or share < least:
        return None
    return Finding(
        level="warning",
        title=f"At temperature {temperature:g} all negatives weigh nearly alike: {look.effective_negatives:.0f} of "
        f"{look.num_negatives:.0f} count",
        measured=look.effective_negatives,
        low=look.effective_low,
        high=look.effective_high,
        reference=least * look.num_negatives,
        reference_name=f"{least:.0%} of the negatives",
        text=f"A cosine of 1 instead of -1 makes a negative weigh {math.exp(2 / temperature):.2g} times as much, so "
        "the loss pushes close and distant samples equally and never separates the close ones. Its value hardly "
        "leaves chance.",
        confirm="train a short run at a lower temperature, and see whether its loss leaves chance",
        cannot_tell="whether uniform weights are wanted, as in an ablation",
    )


def check_few_negatives(evidence: Evidence) -> Finding | None:
    """Are there too few negatives per anchor?"""
    look = _weighed_pairs(evidence)
    if look is None or not look.num_negatives or look.num_negatives >= FEW_NEGATIVES:
        return None
    batch = f"{look.run_batch or look.batch_size or 0:.0f}"
    weighed = "" if look.effective_negatives is None else f", of which {look.effective_negatives:.1f} count"
    return Finding(
        level="warning",
        title=f"An anchor has {look.num_negatives:.0f} negatives only (batches of {batch})",
        measured=look.num_negatives,
        reference=FEW_NEGATIVES,
        reference_name="fewest without this warning",
        text=f"An anchor meets {look.num_negatives:.0f} negatives in a step{weighed}, and most samples that it could "
        "be confused with are not among them. The loss is then low although close samples are not separated.",
        confirm=f"train with --batch-size {remedies.USUAL_BATCH}, and compare: counterpoint compare RUN OTHER",
        better="higher",
        cannot_tell="whether a queue of keys (moco), which needs no larger batch, would help",
    )


def check_false_negatives(evidence: Evidence) -> Finding | None:
    """Does the loss push near-copies of the anchor away?"""
    look = _weighed_pairs(evidence)
    if look is None or look.copy_mass is None or look.copy_share is None:
        return None
    if look.copy_mass < SOME_PUSH or look.copy_share < COPIED or evidence.has_equal_codes:
        return None
    by_chance = f"{look.copy_chance:.2%} if all weighed alike" if look.copy_chance is not None else "unknown"
    return Finding(
        level="warning" if look.copy_mass >= MUCH_PUSH else "note",
        title=f"{look.copy_mass:.0%} of the push goes against near-copies of the anchor's own sample",
        measured=look.copy_mass,
        low=look.copy_low,
        high=look.copy_high,
        reference=SOME_PUSH,
        reference_name="of the weight of negatives",
        text=f"{look.copy_share:.0%} of the samples have a near-copy: a sample at less than 3 % of the distance of two "
        f"views. The loss pushes these apart with {look.copy_mass:.1%} of its weight ({by_chance}), against what it "
        "learns from views.",
        confirm=f"look at the closest pairs: {SHOW}",
        remedy="keep one sample of each group of near-copies",
        cannot_tell="whether samples this close should be separated after all, such as frames of a film",
    )


def _weighed_pairs(evidence: Evidence) -> PairRecord | None:
    """Return the record of pairs; None if the loss weighs none, or all samples coincide."""
    pairs = evidence.pairs
    return None if pairs is None or pairs.why or is_full_collapse(evidence) else pairs
