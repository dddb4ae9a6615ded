"""Whom does the loss look at: a few negatives, all alike, too few, or copies of the anchor's own sample?

Limits were chosen on runs on digits and on the first set of faults (docs/diagnosis.md).
"""

import math
from collections.abc import Mapping

from counterpoint.diagnostics.checks.collapse_checks import COLD, UNEVEN, is_full_collapse
from counterpoint.diagnostics.evidence import EMBEDDING, Evidence
from counterpoint.diagnostics.finding import Check, Finding, plain
from counterpoint.diagnostics.pair_record import PairRecord
from counterpoint.diagnostics.remedies import HIGHER_TEMPERATURE, LARGER_BATCH, LOWER_TEMPERATURE, USUAL_BATCH, advice

HANDFUL = 0.03  # of the negatives, that an anchor weighs at least
UNIFORM = 0.98  # of the negatives: all weigh alike
WARM = 1.0  # temperatures from here on cannot tell cosines apart: weights differ by e^2 at most
FEW_NEGATIVES = 16
COPIED = 0.3  # of the samples, that have a near-copy
SOME_COPIES, MANY_COPIES = 0.01, 0.02  # of the weight of negatives
OTHER = "train with another scale of similarities"
SHOW = "counterpoint diagnose RUN --pairs"


def check_low_temperature(evidence: Evidence) -> Finding | None:
    """Does the gradient come from a handful of negatives?"""
    look = _weighing(evidence)
    if look is None or look.temperature is None or not look.effective_negatives or not look.num_negatives:
        return None
    if look.num_negatives < FEW_NEGATIVES:
        return None
    if look.effective_negatives >= HANDFUL * look.num_negatives:
        return _shrunk(evidence, look.temperature)
    weighed, temperature = look.effective_negatives, look.temperature
    return Finding(
        name="temperature-low",
        level="warning",
        title=f"At temperature {temperature:g} an anchor looks at {weighed:.1f} of {look.num_negatives:.0f} negatives",
        measured=weighed,
        low=look.effective_low,
        high=look.effective_high,
        reference=HANDFUL * look.num_negatives,
        reference_name="3 % of the negatives",
        text=f"The weight of a negative falls by e for each {temperature:g} of cosine, so that the gradient comes "
        f"from the closest ones: one in a hundred has {look.hardest_share or 0:.0%} of it. These are often of the "
        "anchor's own class, and the others are not pushed away.",
        confirm=f"the table of {SHOW} says how many negatives count at a higher temperature",
        better="higher",
        **advice(evidence, HIGHER_TEMPERATURE, otherwise=OTHER),
        expect=f"effective negatives rise above {HANDFUL:.0%} of the negatives",
        cannot_tell="whether so sharp a weighting suits data whose classes are single samples",
    )


def _shrunk(evidence: Evidence, temperature: float) -> Finding | None:
    """The other effect of a low temperature: samples crowd until their cosines differ by no more than it."""
    embedding = evidence.places[EMBEDDING]
    if temperature > COLD or embedding.uniformity <= UNEVEN:
        return None
    return Finding(
        name="temperature-low",
        level="warning",
        title=f"At temperature {temperature:g} the samples have crowded: uniformity {embedding.uniformity:.2f}",
        measured=embedding.uniformity,
        better="lower",
        reference=-4 + 8 / embedding.num_dims,
        reference_name="directions spread evenly",
        text=f"Cosines that differ by a few times {temperature:g} are all that the loss asks for, so that samples stay "
        f"together: two have cosine {plain(embedding.negative_cosine)} in the mean. What tells them apart is then "
        "small beside rounding and beside what views change.",
        confirm=f"the table of {SHOW} says how many negatives count at a higher temperature",
        **advice(evidence, HIGHER_TEMPERATURE, otherwise=OTHER),
        expect="uniformity falls",
        cannot_tell="whether neighbours are wrong: crowded samples may still be in the right order",
    )


def check_high_temperature(evidence: Evidence) -> Finding | None:
    """Do all negatives weigh alike, because no cosine makes a difference?"""
    look = _weighing(evidence)
    if look is None or look.temperature is None or not look.effective_negatives or not look.num_negatives:
        return None
    share, temperature = look.effective_negatives / look.num_negatives, look.temperature
    if temperature < WARM or share < UNIFORM:
        return None
    return Finding(
        name="temperature-high",
        level="warning",
        title=f"At temperature {temperature:g} all negatives weigh alike: {look.effective_negatives:.0f} of "
        f"{look.num_negatives:.0f} count",
        measured=look.effective_negatives,
        low=look.effective_low,
        high=look.effective_high,
        reference=UNIFORM * look.num_negatives,
        reference_name=f"{UNIFORM:.0%} of the negatives",
        text=f"A cosine of 1 instead of -1 makes a negative weigh {_factor(temperature)} times as much, so the loss "
        "pushes close and far samples alike and never separates the close ones. Its value can hardly leave chance.",
        confirm=f"the table of {SHOW} has the way from chance to floor at lower temperatures",
        better="lower",
        **advice(evidence, LOWER_TEMPERATURE, otherwise=OTHER),
        expect="effective negatives fall, and kNN accuracy rises",
        cannot_tell="whether uniform weights are wanted, as in an ablation",
    )


def check_few_negatives(evidence: Evidence) -> Finding | None:
    """Has an anchor too few negatives?"""
    look = _weighing(evidence)
    if look is None or not look.num_negatives or look.num_negatives >= FEW_NEGATIVES:
        return None
    batch = f"{look.run_batch or look.batch_size or 0:.0f}"
    weighed = "" if look.effective_negatives is None else f", of which {look.effective_negatives:.1f} count"
    return Finding(
        name="few-negatives",
        level="warning",
        title=f"An anchor has {look.num_negatives:.0f} negatives only (batches of {batch})",
        measured=look.num_negatives,
        reference=FEW_NEGATIVES,
        reference_name="at least 16",
        text=f"An anchor meets {look.num_negatives:.0f} negatives in a step{weighed}, and most samples that it could "
        "be confused with are not among them. The loss is then low although close samples are not told apart.",
        confirm=f"train with --batch-size {USUAL_BATCH}, and compare: counterpoint compare RUN OTHER",
        better="higher",
        **advice(evidence, LARGER_BATCH, otherwise="train with larger batches"),
        expect="kNN accuracy rises, and with it the number of negatives that count",
        cannot_tell="what a queue of keys (moco), which needs no larger batch, would give",
    )


def check_false_negatives(evidence: Evidence) -> Finding | None:
    """Are near-copies of the anchor's own sample pushed away?"""
    look = _weighing(evidence)
    if look is None or look.copy_mass is None or look.copy_share is None:
        return None
    if look.copy_mass < SOME_COPIES or look.copy_share < COPIED:
        return None
    by_chance = f"{look.copy_chance:.2%} if all weighed alike" if look.copy_chance is not None else "unknown"
    return Finding(
        name="false-negatives",
        level="warning" if look.copy_mass >= MANY_COPIES else "note",
        title=f"{look.copy_mass:.0%} of the push goes against near-copies of the anchor's own sample",
        measured=look.copy_mass,
        low=look.copy_low,
        high=look.copy_high,
        reference=SOME_COPIES,
        reference_name="of the weight of negatives",
        text=f"{look.copy_share:.0%} of the samples have a near-copy: a sample at less than 3 % of the distance of two "
        f"views. The loss pushes these apart with {look.copy_mass:.1%} of its weight ({by_chance}), against what it "
        "learns from views.",
        confirm=f"look at the closest pairs: {SHOW}",
        better="lower",
        remedy="keep one sample of each group of near-copies",
        expect="the share of the push against near-copies falls below 1 %",
        cannot_tell="whether samples that lie so close should be told apart after all, as frames of a film may",
    )


def _weighing(evidence: Evidence) -> PairRecord | None:
    """What was seen of pairs; None where the loss weighs none, or all samples coincide."""
    look = evidence.pairs
    return None if look is None or look.why or is_full_collapse(evidence.places[EMBEDDING]) else look


def _factor(temperature: float) -> str:
    """How much more a negative at cosine 1 weighs than one at -1."""
    return f"{math.exp(2 / temperature):.2g}"


CATALOGUE: Mapping[str, Check] = {
    "few-negatives": check_few_negatives,
    "temperature-low": check_low_temperature,
    "temperature-high": check_high_temperature,
    "false-negatives": check_false_negatives,
}
