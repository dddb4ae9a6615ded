"""Faults of values and rows, which distort other figures: outliers, copies, scales, ends, hubs, order, slices.

Limits were chosen on drawn features of 40 kinds without a fault and 30 with one; of slices by
``calibrate_diagnosis.py --set choosing`` (docs/diagnosis-reference.md).
"""

from counterpoint.diagnostics.checks.collapse_checks import is_full_collapse, is_neural_collapse, is_scaled
from counterpoint.diagnostics.evidence import EMBEDDING, Evidence, Measurements
from counterpoint.diagnostics.finding import Finding, Level

HEAVY_OUTLIERS = 0.1  # of the variance
SOME_COPIES, MANY_COPIES = 0.02, 0.2  # of the samples
MOSTLY_ZERO = 0.5  # of the entries, as in bags of words
COMPONENTS = -0.9  # rank correlation between the place of a dimension and its scale
HEAVY, VERY_HEAVY = 0.15, 0.4  # of the squared distances, that the most distant hundredth of the samples has
HEAVY_ENTRIES, VERY_HEAVY_ENTRIES = 0.4, 0.7  # the same of the entries of a dimension
BESIDE_OUTLIERS = 0.2  # the same where there are outliers, which are then the ends of such tails
FEW_VALUES = 20  # of a dimension
FEWEST_SAMPLES = 100  # of which that is few, and of which a hundredth is a sample
FEWEST_NEIGHBOURS = 200  # samples of which 10 are few
SOME_AT_END, MANY_AT_END = 0.05, 0.3  # of the entries
EVERYBODYS, MOST_PEOPLES = 0.25, 0.5  # of the samples have one and the same among their 10 nearest
ORDERED, DRIFTING = 0.05, 0.1  # of the variance tells blocks of rows apart
FAR, VERY_FAR = 0.02, 0.03  # distance of the worst slice; Laplace's law has 0.019, two points 0.11
TWO_GROUPS = 5 / 9  # of Sarle's coefficient, (skewness^2 + 1) / kurtosis: that of a uniform distribution
PEAKED, FLAT = 4.0, 2.5  # kurtosis


def _figure(embedding: Measurements, name: str) -> float:
    """Return a figure; 0 if it does not exist or an older record lacks it."""
    return embedding.figures.get(name) or 0.0


def check_outliers(evidence: Evidence) -> Finding | None:
    """Do a few samples lie far from all others?"""
    embedding = evidence.places[EMBEDDING]
    count = _figure(embedding, "outliers")
    if not count:
        return None
    share = _figure(embedding, "outlier_variance")
    pairs = {
        "effective rank": "effective_rank",
        "RankMe": "rankme",
        "participation ratio": "participation_ratio",
        "vanished directions": "vanished",
    }
    ranks = "; ".join(
        f"{words} {_figure(embedding, f'{name}_with_outliers'):.3g} with them, {_figure(embedding, name):.3g} without"
        for words, name in pairs.items()
    )
    return Finding(
        level="warning" if share >= HEAVY_OUTLIERS else "note",
        title=f"{count:.0f} of {embedding.num_samples:,} samples are outliers: they carry {share:.0%} of the variance",
        measured=share,
        reference=count / embedding.num_samples,
        reference_name="their share of the samples",
        text=f"They are far from the median, beyond a gap; all other figures leave them out. At unit length: {ranks}.",
        confirm="leave these rows out and diagnose again: this finding disappears, the others stay",
        remedy="look at these samples, and remove damaged ones before you scale, whiten or train",
        cannot_tell="whether they are damaged or a rare kind of sample",
        samples=evidence.suspects.get("outliers", ()),
    )


def check_near_copies(evidence: Evidence) -> Finding | None:
    """Are samples near-copies of a few others?"""
    embedding = evidence.places[EMBEDDING]
    share = _figure(embedding, "near_copies")
    if share < SOME_COPIES or evidence.has_equal_codes or is_full_collapse(evidence):
        return None
    return Finding(
        level="note" if share < MANY_COPIES or evidence.is_supervised else "warning",
        title=f"{share:.0%} of the samples have near-copies: a few others are ten times as near as the next one",
        measured=share,
        reference_name="a smooth manifold of as many dimensions",
        text="Frames of a film, one picture in two sizes, or a row with added noise: there are fewer independent "
        "samples than rows. A random split puts copies on both sides, which raises every accuracy.",
        confirm="look at the named samples and their nearest neighbours: counterpoint search",
        remedy="keep one sample of each group before training and before the split is drawn",
        cannot_tell="whether they are copies or classes of two or three samples each",
        samples=evidence.suspects.get("near-copies", ()),
    )


def check_scales(evidence: Evidence) -> Finding | None:
    """Do dimensions have very different scales?"""
    embedding = evidence.places[EMBEDDING]
    if not is_scaled(embedding) or is_full_collapse(evidence):
        return None
    spread, order = _figure(embedding, "scale_spread"), _figure(embedding, "scale_order")
    back = embedding.vanished - min(_figure(embedding, "standard_vanished"), embedding.vanished)
    lost = f" {back:.0f} directions that seem to have vanished reappear after standardising." if back else ""
    # Counts have large numbers where a thing is common, which is what they say.
    is_counted = evidence.is_nonnegative and _figure(embedding, "sparsity") >= MOSTLY_ZERO
    # If few directions are left for few classes, dimensions have more or less of them.
    is_meant = order <= COMPONENTS or is_counted or (back and evidence.is_nonnegative) or is_neural_collapse(evidence)
    return Finding(
        level="note" if is_meant else "warning",
        title=f"Dimensions have very different scales: the largest is {spread:,.2g} times the smallest",
        measured=_figure(embedding, "raw_participation_ratio"),
        better="higher",
        reference=_figure(embedding, "standard_participation_ratio"),
        reference_name="participation ratio where every dimension has variance 1",
        text=f"The few dimensions with large numbers decide distances and cosines.{lost} Units of a table and "
        "principal components have such scales; no layer lost anything.",
        confirm="standardise and diagnose again: ((z - z.mean(0)) / z.std(0)); this finding disappears",
        remedy="standardise every dimension (subtract the mean, divide by the standard deviation) before you compare "
        "samples",
        cannot_tell="whether the small dimensions carry what a task needs, or noise that standardising would amplify",
    )


def check_heavy_tails(evidence: Evidence) -> Finding | None:
    """Do a few samples or entries carry most of the variance, even without the outliers?"""
    embedding = evidence.places[EMBEDDING]
    rows, entries = _figure(embedding, "tail_share"), _figure(embedding, "entry_tail_share")
    if embedding.num_samples < FEWEST_SAMPLES:
        return None
    outliers = check_outliers(evidence)
    least = BESIDE_OUTLIERS if outliers else HEAVY_ENTRIES
    if max(rows / HEAVY, entries / least) < 1 or is_full_collapse(evidence):
        return None
    of_rows = rows / HEAVY >= entries / least
    # Tails are as bad as the outliers that they end in.
    is_warning = rows >= VERY_HEAVY or entries >= VERY_HEAVY_ENTRIES or (outliers and outliers.level == "warning")
    share, carriers = (rows, "samples") if of_rows else (entries, "entries of a dimension")
    return Finding(
        level="warning" if is_warning else "note",
        title=f"Heavy tails: the most distant 1% of the {carriers} carry {share:.0%} of the variance",
        measured=share,
        reference=0.02 if of_rows else 0.08,
        reference_name="Gaussian features",
        text="Values decrease slowly, without a gap. Means, variances and correlations then depend on a few samples, "
        "and the largest numbers dominate distances.",
        confirm="diagnose two halves of the samples: figures that differ much depend on a few samples",
        remedy="scale samples to unit length, or take logarithms or ranks of each dimension, before you compare them",
        cannot_tell="whether the large values are errors or usual for such data",
    )


def check_quantised(evidence: Evidence) -> Finding | None:
    """Do dimensions take only a few distinct values?"""
    embedding = evidence.places[EMBEDDING]
    count = embedding.figures.get("distinct_values")
    if count is None or count > FEW_VALUES or embedding.num_samples < FEWEST_SAMPLES or is_full_collapse(evidence):
        return None
    return Finding(
        title=f"Values are quantised: a dimension takes {count:.0f} different values",
        measured=count,
        better="higher",
        reference=min(embedding.num_samples, 2048),
        reference_name="samples examined",
        text="Features computed in floating point differ on nearly every sample. Rounding creates ties between "
        "different samples, and nearest neighbours then depend on the order of rows.",
        confirm="count the values of one dimension: numpy.unique(z[:, 0])",
        remedy="keep the features from before the rounding, or at least 8 bits per dimension",
        cannot_tell="whether they are categories, which take no other values",
    )


def check_saturated(evidence: Evidence) -> Finding | None:
    """Are values clipped at the ends of their dimension?"""
    embedding = evidence.places[EMBEDDING]
    share = _figure(embedding, "saturated")
    if share < SOME_AT_END or is_full_collapse(evidence):
        return None
    return Finding(
        level="note" if share < MANY_AT_END else "warning",
        title=f"Values are saturated: {share:.0%} of the entries are at the largest or least value of their dimension",
        measured=share,
        reference_name="values that are not cut off",
        text="Clipping, or a saturated function such as tanh, gives different samples the same value. Zeros of a "
        "rectified map do not count.",
        confirm="draw the histogram of one dimension: numpy.histogram(z[:, 0], 50)",
        remedy="take the features from before the clipping, or from the layer before the saturated function",
        cannot_tell="whether a binary code is wanted, as in hashing",
    )


def check_hubs(evidence: Evidence) -> Finding | None:
    """Is one sample a neighbour of most others?"""
    embedding = evidence.places[EMBEDDING]
    by_cosine, by_distance = (_figure(embedding, name) for name in ("largest_hub", "distance_hub"))
    share = max(by_cosine, by_distance)
    # Samples in the middle of many dimensions are hubs by distance, without any fault.
    if (
        (by_cosine < EVERYBODYS and by_distance < MOST_PEOPLES)
        or embedding.num_samples < FEWEST_NEIGHBOURS
        or is_full_collapse(evidence)
    ):
        return None
    return Finding(
        level="note" if by_cosine < MOST_PEOPLES else "warning",  # short rows are near to all
        title=f"Hubs: one sample is among the 10 nearest of {share:.0%} of the others",
        measured=share,
        reference=EVERYBODYS,
        reference_name="more than usual for features of many dimensions",
        text="A sample near the common mean is near to everything (radovanovic2010). It displaces "
        "true neighbours of samples that it has nothing to do with.",
        confirm="look at the named samples; leave them out and evaluate again",
        remedy="remove blank or averaged samples; subtract the mean before you compare cosines",
        cannot_tell="whether a hub is a damaged sample or a typical one",
        samples=evidence.suspects.get("hubs", ()),
    )


def check_row_order(evidence: Evidence) -> Finding | None:
    """Do features change along the order of the rows?"""
    embedding = evidence.places[EMBEDDING]
    within = embedding.figures.get("row_order_within")
    share = _figure(embedding, "row_order") if within is None else within
    if share < ORDERED or is_full_collapse(evidence):
        return None
    is_labelled = within is not None
    return Finding(
        level="warning" if is_labelled and share >= DRIFTING else "note",
        title=f"Features drift along the rows{' within classes' if is_labelled else ', or rows are sorted'}: "
        f"a tenth of the rows explains {share:.0%} of the variance",
        measured=share,
        reference_name="rows in random order",
        text="Ten blocks of consecutive rows differ by more than eight standard errors beyond rows in random order. "
        "The file is sorted, or the day, device or settings changed while features were computed. A split by "
        "position then compares different data.",
        confirm="shuffle the rows and diagnose again: this finding disappears",
        remedy="find out what changed along the rows (time, source, software), or shuffle sorted rows before the split "
        "is drawn",
        cannot_tell="whether rows were sorted by a property of the samples, such as class or time"
        if not is_labelled
        else "what changed: the samples themselves or how they were measured",
    )


def check_gaussian_slices(evidence: Evidence) -> Finding | None:
    """Is the embedding Gaussian in random directions, principal ones and single dimensions, where its loss wants it?"""
    embedding = evidence.places[EMBEDDING]
    worst, limit = embedding.figures.get("slice_worst"), embedding.figures.get("slice_limit")
    # Sparse, non-negative and supervised features have another shape by design.
    if worst is None or limit is None or evidence.is_nonnegative or evidence.is_supervised:
        return None
    level = _slice_level(evidence, embedding, worst, limit)
    if level is None:
        return None
    is_fine, dim = level == "good", embedding.figures.get("slice_dim")
    return Finding(
        level=level,
        title=f"No slice is far from a Gaussian: of {embedding.slice_count:,.0f} the worst is at {worst:.2g}"
        if is_fine
        else "Not Gaussian in every direction: "
        + ("a direction " if dim is None else f"dimension {dim:.0f} ")
        + _slice_fault(embedding),
        measured=worst,
        reference=limit,
        reference_name="the worst slice of Gaussian features of this size, at most",
        text=f"Beyond chance are {embedding.slice_random:.0f} random slices, {embedding.slice_principal:.0f} principal "
        f"directions and {embedding.slice_dims:.0f} single dimensions, of {embedding.slice_count:,.0f} slices. "
        + {
            "loss": "The loss is the distance of such slices from a Gaussian: it has not been brought down.",
            "theory": "InfoNCE tends to a Gaussian in every direction once views agree and there are many dimensions "
            "(betser2026); classes that are learned well leave groups, one dimension that differs does not come of it.",
            "": "A dimension with a shape of its own decides many distances (timkey2021).",
        }[evidence.gaussian_by],
        confirm="look at the named samples, which lie at both ends of that slice",
        remedy=""
        if is_fine
        else "standardise the dimension or leave it out, and compare kNN"
        if dim is not None
        else "train longer, or give the term on slices more weight"
        if evidence.gaussian_by == "loss"
        else "remove damaged samples among the named ones; groups that are classes need nothing",
        cannot_tell="whether the shape is one of the data: random slices of many dimensions look Gaussian whatever the "
        "features are, and only the worst slice is shown",
        samples=evidence.suspects.get("gaussian-slices", ()),
    )


def _slice_level(evidence: Evidence, embedding: Measurements, worst: float, limit: float) -> Level | None:
    """Return how bad the worst slice is; None if there is nothing to report."""
    is_far, is_very_far = worst > max(limit, FAR), worst > max(limit, VERY_FAR)
    is_dimension = embedding.figures.get("slice_dim") is not None and embedding.slice_dims <= embedding.num_dims / 4
    if is_full_collapse(evidence):
        return None
    if evidence.gaussian_by == "loss":
        return "warning" if is_very_far else "note" if is_far else "good"
    if evidence.gaussian_by == "theory":
        return "warning" if is_very_far and is_dimension else "note" if is_far else "good"
    return "note" if is_very_far and is_dimension else None


def _slice_fault(embedding: Measurements) -> str:
    skewness, kurtosis = embedding.slice_skewness, embedding.slice_kurtosis
    if (skewness**2 + 1) / kurtosis > TWO_GROUPS:
        return "falls into groups"
    if kurtosis > PEAKED:
        return "has heavy tails"
    return "has short tails" if kurtosis < FLAT else "is lopsided" if abs(skewness) > 1 / 2 else "has another shape"
