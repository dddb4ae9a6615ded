"""Section 9: how to read this page. The terms, each in a sentence or two."""

from collections.abc import Sequence

from counterpoint.report.markup import Markup, element
from counterpoint.report.run_record import RunRecord
from counterpoint.report.wording import listing, number

TERMS = (
    (
        "anchor, positive, negative",
        "Each sample is seen in two random views. The loss pulls an anchor towards its other view (the positive) "
        "and away from other samples (the negatives).",
    ),
    (
        "representation, embedding",
        "The encoder’s output is the representation: what you use afterwards. A projector maps it to the "
        "embedding, which the loss compares and whose dimensions the gallery shows.",
    ),
    (
        "untrained encoder",
        "The same encoder with its random initial weights. What it reaches costs no training, so it is the least "
        "a trained one must beat.",
    ),
    (
        "pixels (PCA)",
        "The raw input, reduced by principal components: what one gets without any encoder.",
    ),
    (
        "chance, floor",
        "Chance is the loss of an encoder that maps all samples to one point. The floor is the value that no "
        "embedding of any kind can go below; real data rarely allow it.",
    ),
    (
        "effective rank",
        "The number of equally strong dimensions that would have the same entropy of singular values. Its ceiling"
        " is what isotropic noise of the same shape reaches. Far below the ceiling means dimensional collapse.",
    ),
    (
        "singular values",
        "Of the covariance: the variances along the principal directions of the vectors, largest first.",
    ),
    (
        "alignment",
        "Mean squared distance between two views of one sample, on the unit sphere. 0 is best.",
    ),
    (
        "uniformity",
        "Logarithm of the mean Gaussian potential between samples on the unit sphere (Wang and Isola, 2020). "
        "Lower means more evenly spread.",
    ),
    (
        "active",
        "A dimension is active on a sample when its value exceeds the sparsity threshold in size.",
    ),
    (
        "purity, class consistency",
        "Purity is the share of the commonest class among the samples a dimension is active on. Class consistency is "
        "its mean over dimensions. A dimension that is always active has the share of the largest class. A class is "
        "named only where the lower end of the share’s exact 95 % interval, taken for all classes and dimensions "
        "together, is above the class’s share of all samples.",
    ),
    (
        "expected activation",
        "Mean value of a dimension over unit-length embeddings. It orders dimensions by how much they matter on "
        "average.",
    ),
    (
        "sparsity",
        "Share of entries so small that they count as zero.",
    ),
    (
        "kNN, linear probe",
        "Two ways to ask what frozen vectors know: let the nearest labelled samples vote, or fit a linear classifier.",
    ),
    (
        "95 % interval",
        "Wilson’s interval of a share. It covers the chance of drawing these queries, not the chance of another seed.",
    ),
    (
        "negatives per anchor",
        "How many other views repel each anchor in one step. More make chance harder and the loss larger, so "
        "losses of different batch sizes do not compare.",
    ),
)


def glossary_section(runs: Sequence[RunRecord]) -> Markup:
    """Explain the terms, and the sparsity threshold the runs used."""
    thresholds = {run.diagnosis.sparsity_threshold for run in runs if run.diagnosis}
    known = [number(threshold) for threshold in thresholds if threshold is not None]
    entries = [element("div", element("dt", term), element("dd", words)) for term, words in TERMS]
    if known:
        words = f"In size below {listing(sorted(known))}, an entry counts as zero."
        entries.append(element("div", element("dt", "sparsity threshold"), element("dd", words)))
    return element("dl", entries, class_="glossary")
