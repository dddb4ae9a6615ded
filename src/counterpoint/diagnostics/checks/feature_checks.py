"""Checks of single dimensions, rare classes, held-out and altered samples: repetition, collapse, leakage, a shift."""

from counterpoint.core.errors import some
from counterpoint.diagnostics import remedies
from counterpoint.diagnostics.checks.collapse_checks import is_full_collapse, is_neural_collapse
from counterpoint.diagnostics.evidence import EMBEDDING, RAW_INPUT, Evidence
from counterpoint.diagnostics.finding import Finding, plain

# Chosen on drawn features, on runs on digits and on the first set of faults (docs/diagnosis-reference.md).
MANY_REPEATED = 0.25  # of the dimensions repeat an earlier one
MERGED = 0.8  # cosine between the centred means of rare classes, lower end of its interval
APART = 0.3  # of that cosine above what theory or the frequent classes have
FEW_TIMES = 3.0  # mean count of frequent classes over that of rare ones, below which classes are about balanced
WIDER = 0.05  # cosine of two views, that of training samples less that of held-out ones: lower end of its interval
SILENT, MANY_SILENT = 0.05, 0.2  # of the units; the released methods leave 0.8 (wen2025) and 0.2 (guo2026)
MUCH_APART = 0.7  # area under the curve, raw input
LEAKED, MUCH_LEAKED = 0.01, 0.1  # of the held-out samples are in the training part


def check_duplicate_dimensions(evidence: Evidence) -> Finding | None:
    """Do dimensions repeat others?"""
    embedding = evidence.places[EMBEDDING]
    count = embedding.figures.get("duplicate_dims")
    if not count or is_full_collapse(evidence):
        return None
    num_dims, is_few = embedding.num_dims, count < MANY_REPEATED * embedding.num_dims
    num_left = max(num_dims - round(count), 2)
    return Finding(
        level="note" if is_few or is_neural_collapse(evidence) else "warning",
        title=f"{count:.0f} of {num_dims} embedding dimensions repeat an earlier one",
        measured=count,
        reference_name="no correlation above 0.99",
        text="Their absolute correlation with another dimension is above 0.99, so they only add weight to it in every "
        "distance. With few classes or samples, many dimensions share few directions.",
        confirm="counterpoint evaluate RUN --selection all (accuracy must stay the same with fewer features)",
        **remedies.advice(
            evidence,
            remedies.Step(
                "features",
                f"fewer dimensions (--projector.features {num_left})",
                lambda _: {"projector.features": num_left},
            ),
            remedies.REPRESENTATION_INSTEAD,
            otherwise="leave the repeated dimensions out",
        ),
        cannot_tell="whether the remaining dimensions carry what a task needs",
    )


def check_sparse_code(evidence: Evidence) -> Finding | None:
    """Are the units of a sparse code in use, and do they give the features back?"""
    embedding, explained = evidence.places[EMBEDDING], evidence.reconstruction
    if explained is None:
        return None
    silent, num_units = embedding.dead_dims / embedding.num_dims, embedding.num_dims
    num_distinct = embedding.num_samples * (1 - embedding.duplicates)
    is_known = num_distinct * (1 - embedding.sparsity) >= 1
    is_bad = is_known and (silent > MANY_SILENT or explained <= 0)
    purity = evidence.consistency
    return Finding(
        level="warning" if is_bad else "good" if is_known and silent <= SILENT else "note",
        title=f"{silent:.1%} of {num_units:,} units are silent, and the code gives back {explained:.0%} of the "
        "features' variance",
        measured=silent,
        reference=SILENT,
        reference_name="a share that costs little",
        text="A silent unit is active on no sample and only takes space. "
        + (
            ""
            if purity is None
            else f"The samples of a unit are of one class to {purity.value:.0%} on average (95 % interval "
            f"{purity.low:.0%} to {purity.high:.0%}). "
        )
        + "The top samples of each unit, with the share of their commonest class, are in the report.",
        confirm="counterpoint report RUN (top samples of each unit)",
        remedy="fewer units (counterpoint sparsify --dims), more epochs, or features without outliers"
        if is_bad or not is_known or silent > SILENT
        else "",
        cannot_tell="how many units more samples would leave silent"
        if is_known
        else f"how many units are silent: {num_distinct:,.0f} different samples cannot use all of them",
    )


def check_minority_collapse(evidence: Evidence) -> Finding | None:
    """Have the means of rare classes merged while others have not?"""
    classes = evidence.classes
    if classes is None or classes.rare_cosine is None or classes.low is None or classes.imbalance < FEW_TIMES:
        return None
    expected, whose = _expected_cosine(evidence)
    if classes.low < MERGED or classes.rare_cosine - expected < APART or is_full_collapse(evidence):
        return None
    names = [row.name for row in classes.rows if row.is_rare]
    return Finding(
        level="warning",
        title=f"Rare classes have fallen together: {some(names, 4)}; the cosine between their means is "
        f"{plain(classes.rare_cosine)}, {plain(expected)} {whose}",
        measured=classes.rare_cosine,
        low=classes.low,
        high=classes.high,
        reference=expected,
        reference_name=whose,
        text=f"Frequent classes have {classes.imbalance:.0f} times as many samples, and as negatives push rare classes "
        "to one side, more so the more frequent they are (imbalanced2026; fang2021). Rare classes then share one mean, "
        "which cannot separate them.",
        confirm="counterpoint evaluate RUN --metrics 'balanced knn' (accuracy by class: rare ones are confused with "
        "each other)",
        cannot_tell="whether rare classes look alike by nature: two dog breeds among vehicles also share a mean",
    )


def _expected_cosine(evidence: Evidence) -> tuple[float, str]:
    classes = evidence.classes
    assert classes is not None
    # If theory has them merge, too, no training helps, but sampling does: the cosine of frequent classes counts then.
    if classes.optimum is not None and classes.optimum.rare_cosine is not None:
        by_theory = classes.optimum.rare_cosine
        if (classes.rare_cosine or 0.0) - by_theory >= APART:
            return by_theory, "at the optimum of this loss and these proportions"
    if classes.frequent_cosine is not None:
        return classes.frequent_cosine, "between frequent classes"
    return -1 / max(len(classes.rows) - 1, 1), "of classes that are equally far apart"


def check_held_out(evidence: Evidence) -> Finding | None:
    """Do views of training samples agree better than those of held-out ones?"""
    held_out = evidence.held_out
    if held_out is None or held_out.gap is None or held_out.low is None:
        return None
    if held_out.low < WIDER or is_full_collapse(evidence):
        return None
    return Finding(
        level="warning",
        title=f"Views of training samples agree better than those of held-out ones: by {plain(held_out.gap)} in cosine",
        measured=held_out.gap,
        low=held_out.low,
        high=held_out.high,
        reference_name="no difference",
        text="The encoder has memorised its training samples and matches their views by details of single samples. "
        "Figures on training samples are then too good.",
        **remedies.against_memory(evidence),
        cannot_tell="whether held-out samples differ in kind: a held-out part from another source also has such a gap",
    )


def check_leakage(evidence: Evidence) -> Finding | None:
    """Are held-out samples among the training samples?"""
    held_out = evidence.held_out
    if held_out is None or not held_out.num_either or not held_out.num_held_out:
        return None
    # Features that coincide as a whole are collapse, not copies: then contents alone count.
    is_collapsed = is_full_collapse(evidence)
    count = (held_out.num_copies if is_collapsed else held_out.num_either) or 0
    share = count / held_out.num_held_out
    if share < LEAKED:
        return None
    return Finding(
        level="warning" if share >= MUCH_LEAKED else "note",
        title=f"{count:,.0f} of {held_out.num_held_out:,.0f} held-out samples are among the training samples",
        measured=share,
        low=None if is_collapsed else held_out.copies_low,
        high=None if is_collapsed else held_out.copies_high,
        reference_name="no sample in both parts",
        text=f"{held_out.num_copies or 0:,.0f} equal a training sample byte by byte; "
        f"{held_out.num_same_features or 0:,.0f} have the same representation bit for bit. Such a sample finds "
        "itself as its nearest neighbour, which raises every accuracy.",
        confirm="counterpoint evaluate RUN (prints how many queries are also in the bank)",
        remedy="remove copies before the data are split, and evaluate again",
        cannot_tell="near copies: another crop, size or compression of one picture is not found",
    )


def check_shift(evidence: Evidence) -> Finding | None:
    """Do held-out samples differ from training samples, in raw input or only in the embedding?"""
    separations = evidence.held_out.told if evidence.held_out else {}
    embedding, raw = separations.get(EMBEDDING), separations.get(RAW_INPUT)
    if embedding is None or raw is None or not (embedding.is_apart or raw.is_apart):
        return None
    aucs = f"{raw.auc:.2f} by raw input, {embedding.auc:.2f} by the embedding"
    matched = (
        "equal numbers of each class were compared, so class proportions do not explain it"
        if raw.has_classes
        else "without labels, other class proportions would explain it, too"
    )
    if raw.is_apart:
        return Finding(
            level="warning" if (raw.auc or 0.0) >= MUCH_APART else "note",
            title="Held-out samples come from another distribution than training samples: a shift "
            f"(told apart with AUC {aucs})",
            measured=raw.auc,
            reference=raw.chance,
            reference_name="parts that were shuffled",
            text="A linear classifier separates them by raw input; " + matched + ". Figures on held-out samples then "
            "describe performance on other data.",
            confirm="look at samples of both parts side by side: light, size, source, date",
            remedy="draw the held-out part at random from all samples, or report both figures if it comes from "
            "another source on purpose",
            cannot_tell="in what they differ, and whether that matters for your task",
        )
    return Finding(
        title=f"The embedding knows which samples it was trained on: held-out ones are told apart with AUC {aucs}",
        measured=embedding.auc,
        reference=embedding.chance,
        reference_name="parts that were shuffled",
        text="The raw input of both parts does not differ, their embeddings do: the encoder has memorised its training "
        "samples; " + matched + ".",
        **remedies.against_memory(evidence),
        cannot_tell="whether the data differ in a way that needs a nonlinear boundary in pixels",
    )


def check_altered_input(evidence: Evidence) -> Finding | None:
    """Are these the training pictures after one change: another order of channels, inverted, scaled?"""
    altered = evidence.altered
    if altered is None:
        return None
    return Finding(
        level="warning",
        title=f"Altered input: {altered.sentence}",
        measured=altered.distance,
        reference=altered.undone,
        reference_name="after that is undone",
        text="Means and deviations of their channels differ from those recorded in the run (in standard deviations of "
        "single pictures), and agree once this change is undone. The encoder was never trained on such input.",
        confirm="look at some of them beside training pictures: counterpoint preview --data DATA",
        remedy="bring channels, light and scale to what they were in training, and diagnose again",
        cannot_tell="whether pictures of another source have such channels by nature",
    )
