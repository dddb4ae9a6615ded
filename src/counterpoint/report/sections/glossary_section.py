"""How to read this page. The terms, each in a sentence or two."""

from collections.abc import Sequence

from counterpoint.report.markup import Markup, element
from counterpoint.report.run_reading import PLACES, RunRecord
from counterpoint.report.sections import Section
from counterpoint.report.sections.headline import DIAGNOSTICS, EVALUATION, metric_of
from counterpoint.report.wording import listing, number

TERMS = {
    "anchor, positive, negative": (
        "Each sample is seen in two random views. The loss pulls an anchor towards its other view (the positive) "
        "and away from other samples (the negatives)."
    ),
    "representation, embedding": (
        "The encoder’s output is the representation: what you use afterwards. A projector maps it to the "
        "embedding, which the loss compares and whose dimensions the light table shows."
    ),
    "untrained encoder": (
        "The same encoder with its random initial weights. What it reaches costs no training, so it is the least "
        "a trained one must beat."
    ),
    "pixels (PCA)": "The raw input, reduced by principal components: what one gets without any encoder.",
    "chance, floor": (
        "Chance is the loss of an encoder that maps all samples to one point. The floor is the value that no "
        "embedding of any kind can go below; real data rarely allow it."
    ),
    "active": "A dimension is active on a sample when its value exceeds the sparsity threshold in size.",
    "95 % interval": (
        "Wilson’s interval of a share. It covers the chance of drawing these queries, not the chance of another seed."
    ),
    "negatives per anchor": (
        "How many other views repel each anchor in one step. More make chance harder and the loss larger, so "
        "losses of different batch sizes do not compare."
    ),
}


def _fill(runs: Sequence[RunRecord]) -> Markup:
    thresholds = {run.diagnosis.settings.get("sparsity_threshold") for run in runs if run.diagnosis}
    limits = [number(threshold) for threshold in thresholds if threshold is not None]
    used = {metric_of(row.protocol).name for run in runs for row in run.rows}
    used |= {name for name in DIAGNOSTICS if any(run.measured(at, name) is not None for run in runs for at in PLACES)}
    metrics = [each for each in (*EVALUATION.values(), *DIAGNOSTICS.values()) if each.is_shown and each.name in used]
    measures = [(metric.title, f"{metric.definition} ({metric.source})") for metric in metrics]
    entries = [element("div", element("dt", term), element("dd", words)) for term, words in (*TERMS.items(), *measures)]
    if limits:
        words = f"In size below {listing(sorted(limits))}, an entry counts as zero."
        entries.append(element("div", element("dt", "sparsity threshold"), element("dd", words)))
    return element("dl", entries, class_="glossary")


SECTION = Section(
    90, "glossary", "Glossary", "What do the words mean?", _fill,
    lambda _: "kNN, probe, floor, effective rank, and the others",
)  # fmt: skip
