"""Is it good for anything: accuracies beside chance and beside baselines, and whether there is enough to judge by."""

from collections.abc import Mapping

from counterpoint.core.paired_shares import written_p
from counterpoint.diagnostics.evidence import EMBEDDING, Evidence
from counterpoint.diagnostics.finding import Check, Finding, Level

FEW_SAMPLES = 200
FEWEST_SAMPLES = 20  # below, nothing is judged


def check_gain(evidence: Evidence) -> Finding | None:
    """Did learning help, compared with not learning?"""
    learned, baseline = evidence.learned, evidence.baseline  # both None without an evaluation
    gain = learned.minus(baseline) if learned and baseline else None
    if learned is None or baseline is None or gain is None:
        return None
    level: Level = "note" if not gain.is_told_apart else "good" if gain.value > 0 else "warning"
    words = {"good": "better than", "note": "not measurably better than", "warning": "worse than"}[level]
    return Finding(
        name="gain",
        level=level,
        title=f"kNN on the representation, {learned.accuracy:.1%}, is {words} {baseline.features}, "
        f"{baseline.accuracy:.1%}",
        measured=learned.accuracy,
        reference=baseline.accuracy,
        reference_name=baseline.features,
        text=f"On the same {learned.total:,} queries the difference is {100 * gain.value:+.1f} points, 95 % interval "
        f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}, p {written_p(gain.p)} ({gain.test}). Where raw input "
        "already separates the classes, learning has little to add, and more labelled samples are needed to see it.",
        remedy="if a gain is needed: more data, more epochs, views that keep what the classes differ in",
    )


def check_classes(evidence: Evidence) -> Finding | None:
    """Do the features tell the classes apart?"""
    learned = evidence.learned
    if learned is None or learned.accuracy is None or learned.low is None or not learned.classes:
        return None
    totals = [share.total or 0 for share in learned.classes.values()]
    commonest = max(totals) / max(sum(totals), 1)
    is_above = learned.low > commonest
    return Finding(
        name="classes",
        level="good" if is_above else "warning",
        title=f"kNN tells the classes apart: {learned.accuracy:.1%}, where the commonest class has {commonest:.1%}"
        if is_above
        else f"Nothing says that the features are good: kNN is at chance ({learned.accuracy:.1%}, where the commonest "
        f"class has {commonest:.1%})",
        measured=learned.accuracy,
        reference=commonest,
        reference_name="naming the commonest class",
        text=f"{learned.correct:,.0f} of {learned.total:,.0f} queries get their class from the "
        f"{learned.settings.get('k', '')} nearest of the other samples; 95 % interval {learned.low:.1%} to "
        f"{learned.high or 0:.1%}.",
        remedy="check that labels and samples are in one order; if they are, these features do not hold what the "
        "classes differ in",
    )


def check_evidence(evidence: Evidence) -> Finding | None:
    """Are there enough samples to say anything?"""
    embedding = evidence.places[EMBEDDING]
    if embedding.num_samples >= max(FEW_SAMPLES, embedding.num_dims):
        return None
    is_refused = embedding.num_samples < FEWEST_SAMPLES
    return Finding(
        name="little-evidence",
        level="note",
        title=f"No verdict: {embedding.num_samples} samples are too few"
        if is_refused
        else f"{embedding.num_samples} samples in {embedding.num_dims} dimensions are little to judge by",
        measured=embedding.num_samples,
        reference=FEWEST_SAMPLES if is_refused else max(FEW_SAMPLES, embedding.num_dims),
        reference_name="at least 20" if is_refused else "as many as dimensions, and at least 200",
        text="Ranks and spectra of few samples are bounded by their number; the reference values account for it, "
        "single figures scatter all the same.",
        remedy="diagnose on more samples",
    )


def is_refusal(finding: Finding) -> bool:
    """Whether a finding says that nothing can be judged."""
    return finding.name == "little-evidence" and (finding.measured or 0) < FEWEST_SAMPLES


CATALOGUE: Mapping[str, Check] = {"gain": check_gain, "classes": check_classes, "little-evidence": check_evidence}
