"""Checks of the effect of training: weights and loss, accuracies beside baselines, and enough samples to judge."""

import math

from counterpoint.core.errors import some
from counterpoint.core.paired_shares import written_p
from counterpoint.diagnostics import remedies
from counterpoint.diagnostics.checks.collapse_checks import is_full_collapse
from counterpoint.diagnostics.evidence import EMBEDDING, REPRESENTATION, Evidence
from counterpoint.diagnostics.finding import Finding, Level
from counterpoint.diagnostics.gain import answer, balanced, commonest, gains, name_of

CHANCE_SHARE = 0.05
THROWN = 10.0  # the same, of a training that has thrown away what its weights were
FAR_ABOVE = 10.0  # times a rate that is very high already
HARDLY_MOVED = 1e-3  # length of the change of the weights, over their length
NARROW = 0.1  # of the representation's effective rank, that the embedding has dimensions
HIDDEN = 0.5  # of what the representation's accuracy has over the commonest class, that the embedding lacks
FEW_SAMPLES = 200
FEWEST_SAMPLES = 20  # below, nothing is judged


def check_moved(evidence: Evidence) -> Finding | None:
    """Has training changed the encoder?"""
    moved = evidence.weight_change
    if moved is None or moved > HARDLY_MOVED:
        return None
    return Finding(
        level="severe" if evidence.levers else "warning",  # the training of a foreign encoder is not our subject
        title=f"Training has hardly changed the encoder: its weights changed by {moved:.1g} of their norm"
        if moved
        else "The encoder is untrained: its weights are random",
        measured=moved,
        better="higher",
        reference=HARDLY_MOVED,
        reference_name="a thousandth of their norm",
        text="All other findings describe the encoder that training started from. Usual trainings change weights by a "
        "hundredth of their norm and more.",
        confirm="see how far the loss fell: counterpoint report RUN, section Training",
        cannot_tell="whether a longer training at this rate would learn",
    )


def check_thrown(evidence: Evidence) -> Finding | None:
    """Is the learning rate too high, or did the weights grow far beyond their start?"""
    moved, rate = evidence.weight_change, evidence.values.get("optim.learning_rate")
    most = FAR_ABOVE * remedies.VERY_HIGH_RATE.get(evidence.values.get("optim.name", ""), math.inf)
    is_thrown, is_beyond = moved is not None and moved >= THROWN, isinstance(rate, float) and rate >= most
    if not is_thrown and not is_beyond:
        return None
    loss = check_loss(evidence)
    has_failed = is_full_collapse(evidence) or (loss is not None and loss.level == "severe")
    return Finding(
        level="severe" if is_thrown or has_failed else "warning",
        title=f"The weights grew far beyond their start: they changed by {moved:.3g} times their norm"
        if is_thrown
        else f"The learning rate {rate:g} is far above the usual ones of {evidence.values['optim.name']}",
        measured=moved if is_thrown else rate,
        reference=THROWN if is_thrown else most,
        reference_name="ten times their norm" if is_thrown else "ten times a very high rate",
        text="Usual trainings end within a few times the initial norm of the weights. Steps that are too large "
        "increase the norm further, and later steps are then too small in comparison to learn anything.",
        confirm="look at the loss of the first epochs: counterpoint report RUN, section Training",
        cannot_tell="whether a lower rate is enough, or a warm-up is needed as well",
    )


def check_loss(evidence: Evidence) -> Finding | None:
    """Has the loss left its chance level?"""
    if evidence.loss is None or evidence.chance is None or evidence.floor is None:
        return None
    if evidence.chance <= evidence.floor:  # full collapse is the lowest loss: BYOL, SimSiam
        return None
    share = (evidence.chance - evidence.loss) / (evidence.chance - evidence.floor)  # 0 at chance, 1 at the floor
    is_at_chance = share < CHANCE_SHARE
    is_untrained = check_moved(evidence) is not None
    return Finding(
        level="severe" if is_at_chance else "good",
        title=f"The loss fell {share:.0%} of the way from chance ({evidence.chance:.2f}) to its floor "
        f"({evidence.floor:.2f})"
        if not is_at_chance
        else f"The loss, {evidence.loss:.2f}, is at chance ({evidence.chance:.2f})",
        measured=evidence.loss,
        reference=evidence.chance,
        reference_name="chance",
        text="At chance the encoder cannot tell the other view of a sample from other samples. The floor is "
        "the lowest loss of any embedding of a batch; views that hide much make it unreachable, so part of the way is "
        "normal.",
        confirm="train for a few epochs on views that hide nothing; the loss must fall: counterpoint train --config "
        "config.yaml --views.preset none --epochs 5",
        **remedies.advice(
            evidence,
            remedies.HIGHER_RATE if is_untrained else remedies.OTHER_RATE,
            remedies.WEAKER_VIEWS,
            remedies.MORE_EPOCHS,
        ),
        cannot_tell="whether the features are useful: a falling loss says nothing about accuracy",
    )


def check_gain(evidence: Evidence) -> Finding | None:
    """Are the learned features better than raw input and an untrained encoder, by kNN and a linear probe?"""
    compared = [gain for gain in gains(evidence.votes) if gain.difference is not None]
    if not compared:
        return None
    better, worse = [gain for gain in compared if gain.is_better], [gain for gain in compared if gain.is_worse]
    level: Level = "warning" if worse and not better else "good" if better and not worse else "note"
    headline = (better or worse or compared)[0]  # whose figures are shown beside the finding
    baseline = headline.baseline
    assert baseline is not None
    words = answer(evidence.votes)
    differences = [
        f"By {gain.classifier}, on the same {gain.learned.total:,} queries, the difference is "
        f"{100 * difference.value:+.1f} points, 95 % interval {100 * difference.low:+.1f} to "
        f"{100 * difference.high:+.1f}, p {written_p(difference.p)} ({difference.test})."
        for gain in compared
        if (difference := gain.difference) is not None
    ]
    in_colour = evidence.is_in_colour
    return Finding(
        level=level,
        title=words[:1].upper() + words[1:],
        measured=headline.learned.accuracy,
        low=headline.learned.low,
        high=headline.learned.high,
        better="higher",
        reference=baseline.accuracy,
        reference_name=f"{headline.classifier} on {name_of(baseline)}",
        text=" ".join(differences)
        + " Both p are corrected for there being two." * (len(compared) > 1)
        + " Where raw input already separates the classes, learning has little to add."
        + " Colours separate these classes: fewer queries are right by the grey pictures." * in_colour,
        confirm="compare on more queries, and by class: counterpoint evaluate RUN",
        **remedies.advice(
            evidence,
            *[remedies.KEPT_COLOURS] * in_colour,
            remedies.WEAKER_VIEWS,
            remedies.MORE_EPOCHS,
            otherwise="more data, or an encoder whose training keeps what the classes differ in",
        ),
        cannot_tell="whether another task would gain",
    )


def check_classes(evidence: Evidence) -> Finding | None:
    """Do the features separate the classes, by kNN or by a linear probe?"""
    by_classifier = [gain for gain in gains(evidence.votes) if gain.learned.classes and gain.learned.low is not None]
    if not by_classifier:
        return None
    above = [gain for gain in by_classifier if gain.is_above_chance]
    headline = (above or by_classifier)[0]
    learned, chance = headline.learned, commonest(headline.learned)
    mean, _ = balanced(learned)
    shares = " and ".join(f"{gain.learned.accuracy:.1%} by {gain.classifier}" for gain in by_classifier)
    is_by_class = (
        learned.low or 0.0
    ) <= chance  # told in the mean over classes alone, as rare classes weigh more there
    return Finding(
        level="good" if above else "warning",
        title=f"No evidence that the features are good: at chance, {shares}; the largest class has {chance:.1%}"
        if not above
        else f"The features tell the classes apart: {mean:.1%} by {headline.classifier} in the mean over "
        f"{len(learned.classes)} classes"
        if is_by_class
        else f"The features tell the classes apart: {shares}, where the commonest class has {chance:.1%}",
        measured=mean if is_by_class else learned.accuracy,
        low=None if is_by_class else learned.low,
        high=None if is_by_class else learned.high,
        better="higher",
        reference=1 / len(learned.classes) if is_by_class else chance,
        reference_name="a class at random" if is_by_class else "always predicting the largest class",
        text=f"{learned.correct:,.0f} of {learned.total:,.0f} queries are classified correctly by {headline.classifier}"
        f"; 95 % interval {learned.low:.1%} to {learned.high or 0:.1%}. Balanced accuracy: {mean:.1%}.",
        confirm="shuffle the labels and diagnose again: the accuracy is at the same level (counterpoint diagnose "
        "FILE --labels SHUFFLED.npy)",
        remedy="check that labels and samples are in the same order; if they are, these features do not encode what "
        "the classes differ in",
        cannot_tell="whether the labels or the features are wrong",
    )


def check_projector(evidence: Evidence) -> Finding | None:
    """Does the projector discard what separates the classes?"""
    inner, outer = evidence.vote_of(REPRESENTATION), evidence.vote_of(EMBEDDING)
    lost = inner.minus(outer) if inner and outer else None
    if inner is None or outer is None or lost is None or not lost.is_told_apart or lost.value <= 0:
        return None
    above = (inner.accuracy or 0.0) - commonest(inner)
    share = lost.value / above if above > 0 else 0.0
    return Finding(
        level="warning" if share > HIDDEN else "note",
        title=f"The embedding separates classes worse than the representation: {outer.accuracy:.1%} against "
        f"{inner.accuracy:.1%}",
        measured=outer.accuracy,
        low=outer.low,
        high=outer.high,
        better="higher",
        reference=inner.accuracy,
        reference_name="kNN on the representation",
        text=f"On the same {inner.total:,} queries the difference is {100 * lost.value:.1f} points, 95 % interval "
        f"{100 * lost.low:.1f} to {100 * lost.high:.1f}, p {written_p(lost.p)} ({lost.test}). A projector discards "
        "what the loss does not need; some loss is usual, and the reason to use the representation.",
        confirm="compare both by other protocols: counterpoint evaluate RUN --metrics all",
        cannot_tell="whether information beyond these labels is lost",
    )


def check_narrow_embedding(evidence: Evidence) -> Finding | None:
    """Does the embedding have far fewer dimensions than the representation?"""
    embedding, representation = evidence.places.get(EMBEDDING), evidence.places.get(REPRESENTATION)
    if embedding is None or representation is None or is_full_collapse(evidence):
        return None
    alive = min(embedding.num_dims, embedding.resolved - embedding.vanished)
    if alive >= NARROW * representation.effective_rank or evidence.is_nonnegative:
        return None
    return Finding(
        level="warning",
        title=f"The embedding has {alive:.0f} dimensions of the representation's {representation.effective_rank:.0f}",
        measured=alive,
        better="higher",
        reference=representation.effective_rank,
        reference_name="effective rank of the representation",
        text="The loss trains only directions that pass the projector. The others stay as in the untrained encoder, or "
        "decay.",
        confirm="compare both with labels: counterpoint evaluate RUN --metrics all",
        cannot_tell="whether these dimensions are enough for your classes",
    )


def check_finite(evidence: Evidence) -> Finding | None:
    """Do rows hold NaN or infinity?"""
    odd = evidence.not_finite
    if not odd:
        return None
    total = len(odd) + evidence.places[EMBEDDING].num_samples
    return Finding(
        level="warning",
        title=f"{len(odd):,} of {total:,} rows hold NaN or infinity and were left out",
        measured=len(odd),
        reference_name="none",
        text=f"They are {some(odd)}. All figures describe the other rows.",
        confirm="encode these samples again, alone",
        remedy="find out what produced them: a damaged sample, or numbers too large for half precision",
        cannot_tell="whether the other rows are right",
    )


def check_evidence(evidence: Evidence) -> Finding | None:
    """Are there enough samples for these figures?"""
    embedding = evidence.places[EMBEDDING]
    if embedding.num_samples >= max(FEW_SAMPLES, embedding.num_dims):
        return None
    is_refused = embedding.num_samples < FEWEST_SAMPLES
    return Finding(
        title=f"No verdict: {embedding.num_samples} samples are too few"
        if is_refused
        else f"{embedding.num_samples} samples in {embedding.num_dims} dimensions are little to judge by",
        measured=embedding.num_samples,
        better="higher",
        reference=FEWEST_SAMPLES if is_refused else max(FEW_SAMPLES, embedding.num_dims),
        reference_name="at least 20" if is_refused else "as many as dimensions, and at least 200",
        text="The number of samples bounds ranks and spectra; reference values account for it, but single figures "
        "still vary.",
        confirm="diagnose half of them: figures that change much are uncertain (counterpoint diagnose HALF.npy)",
        remedy="diagnose on more samples",
        cannot_tell="everything about figures that so few samples bound",
    )
