"""Checks for lost variance: of all samples, in some directions, within groups, each after the mean was taken away."""

from counterpoint.diagnostics import remedies
from counterpoint.diagnostics.evidence import EMBEDDING, REPRESENTATION, UNTRAINED, Evidence, Measurements
from counterpoint.diagnostics.finding import Finding, Level, plain
from counterpoint.diagnostics.gain import commonest

WITHIN = 0.35  # of the variance lies within classes, at most
ABOVE = 0.5  # of the way from the commonest class to 1, that kNN is above
# Participation ratio over the classes less one, at most: of digits MLPs it is 0.5 to 0.6. The effective rank counts
# also the little that is left around the class means: 19 to 41 for the same 9 directions.
DIRECTIONS = 1.5
OF_ALL = 0.5  # of the directions that there can be, at most: where classes are more than these, none need be lost
FEWEST_DIMS = 8  # of which one direction is not expected to carry most
COINCIDENT = 0.03  # spread around the mean: samples point the same way to within two degrees
OFFSET = 0.45  # spread around the mean: the mean is longer than twice what tells samples apart
COLD = 0.03  # temperatures up to here shrink the embedding until cosines fit them: a check of its own says that
UNEVEN = -0.8  # uniformity: as of samples whose mean squared distance is 0.4 instead of 2
CLIFF = 2.5  # decades of variance: a shorter fall is the end of a slope, as healthy runs have
NOTHING_LEFT = 8.0  # decades: no training leaves so little in a direction that the layers before it could fill
FEW, MANY = 0.1, 0.5  # of the resolved directions that have vanished; what a tenth held is small beside the rest
LOW_RANK_SHARE, VERY_LOW_RANK_SHARE = 0.25, 0.05
LOST_RANK_SHARE = 0.25
FIRST_SHARE, VERY_FIRST_SHARE = 0.5, 0.8  # of the variance of unit-length features, in one direction
RAW_FIRST_SHARE, VERY_RAW_FIRST_SHARE = 0.7, 0.9  # of raw ones, which differ in length, too
FEW_DIRECTIONS = 1.5  # participation ratio: one direction, and little of a second
SCALED, VERY_SCALED = 10.0, 5.0  # largest over smallest, and over median standard deviation of a dimension
BROUGHT_BACK = 0.5  # of the vanished directions, by one scale for all
EVENER = 3.0  # participation ratio of standardised features over that of raw ones
DEAD_SHARE = 0.5
IN_CLUMPS = 0.4


def is_neural_collapse(evidence: Evidence) -> bool:
    """Tell whether about (classes - 1) directions are left, and the classes are well separated."""
    classes, learned = evidence.classes, evidence.vote_of(REPRESENTATION)
    if classes is None or classes.within_share is None or learned is None or learned.low is None:
        return False
    embedding = evidence.places[EMBEDDING]
    ratio = embedding.figures.get("participation_ratio")  # missing in records of 0.1.0
    most = OF_ALL * embedding.rank_ceiling if embedding.num_dims >= FEWEST_DIMS else embedding.num_dims
    return (
        len(classes.rows) >= 2
        and classes.within_share <= WITHIN
        and ratio is not None
        and ratio <= min(DIRECTIONS * (len(classes.rows) - 1) + 1, most)
        and learned.low > commonest(learned) + ABOVE * (1 - commonest(learned))
    )


def check_neural_collapse(evidence: Evidence) -> Finding | None:
    """Has each class collapsed to a point because the classes are well separated?"""
    if not is_neural_collapse(evidence):
        return None
    embedding, classes = evidence.places[EMBEDDING], evidence.classes
    assert classes is not None
    return Finding(
        title=f"Neural collapse: {embedding.participation_ratio:.0f} directions for {len(classes.rows)} classes, which "
        "are told apart",
        measured=classes.within_share,
        reference=WITHIN,
        reference_name="share of the variance within classes",
        better="",
        text="A network that learned its labels well maps each class to one point, which leaves one direction fewer "
        "than there are classes (papyan2020). This is the aim of its training, and no fault for these classes.",
        confirm="evaluate with classes that were not learned: counterpoint evaluate RUN --data OTHER",
        remedy="for other tasks use an earlier layer, or train without labels",
        cannot_tell="how good the features are for classes that were not learned",
    )


def is_full_collapse(evidence: Evidence) -> bool:
    """Tell whether all samples point the same way, or are the same; False if only a constant was added to them."""
    embedding = evidence.places[EMBEDDING]
    return embedding.effective_rank < 1.0 or (embedding.spread < COINCIDENT and not is_offset(evidence))


def is_offset(evidence: Evidence) -> bool:
    """Tell whether features of no run share a long offset, or a very long one beside which kNN tells classes apart."""
    spread, learned = evidence.places[EMBEDDING].spread, evidence.vote_of(REPRESENTATION)
    if spread >= COINCIDENT:
        return spread < OFFSET and not evidence.levers
    if learned is None or evidence.levers or evidence.values:  # of a run: its training let samples coincide
        return False
    return (learned.accuracy or 0.0) > commonest(learned) + ABOVE * (1 - commonest(learned))


def is_scaled(place: Measurements) -> bool:
    """Tell whether one scale for all dimensions would bring back vanished directions, or even out a spectrum."""
    names = ("largest_scale", "scale_spread", "standard_vanished", "standard_participation_ratio")
    values = [place.figures.get(name) for name in (*names, "raw_participation_ratio")]
    figures = [figure for figure in values if figure is not None]
    if len(figures) < len(values):
        return False  # of constant features, and in records of earlier versions
    largest, spread, vanished, evened, raw = figures
    back = place.vanished - vanished
    return (spread >= SCALED and back >= max(BROUGHT_BACK * place.vanished, 1)) or (
        largest >= VERY_SCALED and evened >= EVENER * raw
    )


def check_full_collapse(evidence: Evidence) -> Finding | None:
    """Do all samples have the same features?"""
    embedding = evidence.places[EMBEDDING]
    is_collapsed = is_full_collapse(evidence)
    if not is_collapsed and embedding.spread < COINCIDENT:
        return None  # ``check_offset`` says it
    mean = f"mean cosine between different samples is {plain(embedding.negative_cosine)}"
    return Finding(
        level="severe" if is_collapsed else "good",
        title="Embeddings of different samples coincide" if is_collapsed else f"No full collapse: the {mean}",
        measured=embedding.spread,
        **embedding.interval("spread"),
        better="higher",
        reference=COINCIDENT,
        reference_name="samples that point the same way to within two degrees",
        text=f"At unit length samples lie {embedding.spread:.2g} from their mean, and the {mean}. Below "
        f"{COINCIDENT:g} every sample looks the same to a loss of cosines.",
        confirm="subtract the mean and diagnose again: what was only added leaves (counterpoint embed RUN --out z.npz, "
        "then counterpoint diagnose CENTRED.npy)",
        cannot_tell="whether inputs, training or an added constant made them equal",
    )


def check_offset(evidence: Evidence) -> Finding | None:
    """Do samples share a large common part?"""
    embedding = evidence.places[EMBEDDING]
    if not is_offset(evidence):  # of a run, ``check_uniformity`` says it
        return None
    offset = (1 - embedding.spread**2) ** 0.5 / embedding.spread
    return Finding(
        # Cosines keep their order, as measured on healthy features whose mean is not zero.
        level="note" if embedding.spread >= COINCIDENT else "warning",
        title=f"Samples share an offset {float(f'{offset:.2g}'):g} times as long as their spread",
        measured=embedding.spread,
        **embedding.interval("spread"),
        better="higher",
        reference=OFFSET,
        reference_name="a mean twice as long as the spread",
        text=f"Cosines between different samples are {plain(embedding.negative_cosine)} because of the offset alone. "
        "Ranks and spectra here are of centred features, which it does not affect. Features after a ReLU and of "
        "untrained networks have an offset.",
        confirm="subtract the mean and diagnose again: this finding disappears, the ranks stay (counterpoint diagnose "
        "CENTRED.npy)",
        remedy="subtract the mean before you compare cosines, or use Euclidean distances",
        cannot_tell="whether the common part is an artefact of the network or a property of all samples",
    )


def check_uniformity(evidence: Evidence) -> Finding | None:
    """Has training left the samples on one side of the sphere?"""
    embedding = evidence.places[EMBEDDING]
    if not evidence.levers or embedding.uniformity <= UNEVEN or is_full_collapse(evidence):
        return None
    if evidence.pairs is not None and (evidence.pairs.temperature or COLD + 1) <= COLD:
        return None
    return Finding(
        level="note" if evidence.is_nonnegative or evidence.is_supervised else "warning",
        title=f"Samples are crowded on the sphere: uniformity {embedding.uniformity:.2f}",
        measured=embedding.uniformity,
        reference=-4 + 8 / embedding.num_dims,
        reference_name="directions spread evenly",
        text="Negatives should push samples apart until they fill the sphere; here they did not. Different "
        f"samples have cosine {plain(embedding.negative_cosine)} on average.",
        confirm="see how close pairs are: counterpoint report RUN, section Pairs",
        cannot_tell="whether neighbours are wrong: crowded samples may still be in the right order",
    )


def check_dimensional_collapse(evidence: Evidence) -> Finding | None:
    """Have directions vanished?"""
    embedding, representation = evidence.places[EMBEDDING], evidence.places.get(REPRESENTATION)
    if is_full_collapse(evidence):
        return None
    # Silent dimensions of a non-negative map have a check of their own: neither alive nor lost.
    silent = embedding.dead_dims if evidence.is_nonnegative else 0
    alive, resolved = embedding.resolved - embedding.vanished, min(embedding.resolved, embedding.num_dims - silent)
    if is_scaled(embedding):  # small numbers are not lost directions, which ``check_scales`` says
        alive = max(alive, embedding.resolved - embedding.figures["standard_vanished"])
    is_long = embedding.spread < COINCIDENT  # at unit length the direction of such an offset is nearly nothing
    count = max(resolved - alive - is_long, 0)
    share = count / max(resolved, 1)
    step = embedding.figures.get("vanished_step")  # missing in records of earlier versions
    is_cliff = step is None or step >= CLIFF
    level: Level = "good" if count == 0 else "note" if share <= FEW else "warning" if share <= MANY else "severe"
    if not is_cliff:
        level = {"severe": "warning", "warning": "note"}.get(level, level)  # pyright: ignore[reportAssignmentType]
    # No views bring back directions that were never there.
    steps = (remedies.DIRECTCLR, remedies.WEAKER_VIEWS) if step is None or step < NOTHING_LEFT else ()
    if evidence.is_nonnegative and level == "warning":
        level = "note"  # clusters on few non-negative axes are what the map is for
    if (evidence.is_supervised or is_neural_collapse(evidence)) and level in ("warning", "severe"):
        level = "note"  # of C classes that are told apart C - 1 directions are left
    also = ""
    if representation is not None:
        lost, resolved_before = f"{representation.vanished:.0f}", f"{representation.resolved:.0f}"
        also = f" {lost} of the representation's {resolved_before} directions have vanished."
    return Finding(
        level=level,
        title=f"{count:.0f} of {resolved:.0f} directions of the embedding have vanished"
        + ": dimensional collapse" * (level != "note")
        if count
        else f"All {resolved:.0f} directions of the embedding are alive",
        measured=count,
        # It is of all samples and directions, copies and silent ones included.
        **(embedding.interval("vanished") if count == embedding.vanished and not embedding.duplicates else {}),
        reference_name="isotropic features of the same shape",
        text="A direction has vanished where its variance falls by a decade or more below the one before, against "
        "isotropic features: no sample differs from another along it. Effective rank: "
        f"{embedding.effective_rank:.0f} of {embedding.rank_ceiling:.0f}.{also} Often only the "
        "projector collapses (directclr2022).",
        confirm="see whether they are there before: `counterpoint embed RUN --layer NAME --out z.npz`, then "
        "`counterpoint diagnose z.npz`",
        **remedies.advice(
            evidence,
            remedies.WIDER_PROJECTOR,
            remedies.REPRESENTATION_INSTEAD,
            *steps,
            otherwise="a wider layer where they end, or features from before it",
        ),
        cannot_tell="whether the lost directions would have helped: a few classes need only a few",
    )


def check_uneven_spectrum(evidence: Evidence) -> Finding | None:
    """Do a few directions carry nearly all of the variance?"""
    embedding = evidence.places[EMBEDDING]
    if is_full_collapse(evidence):
        return None
    share = embedding.effective_rank / max(embedding.rank_ceiling, 1.0)  # few samples cannot fill all dimensions
    first, level = _weight_of_first(embedding)
    if share < LOW_RANK_SHARE and level != "warning":
        level = "warning" if share < VERY_LOW_RANK_SHARE else "note"
    if level is None:
        return None
    level = "note" if is_neural_collapse(evidence) else level
    is_first = first >= FIRST_SHARE
    rank = f"effective rank {embedding.effective_rank:.1f} of {embedding.rank_ceiling:.0f} possible"
    return Finding(
        level=level,
        title=f"One direction carries {first:.0%} of the variance: {rank}"
        if is_first
        else f"A few directions carry most of the variance: {rank}",
        measured=first if is_first else embedding.effective_rank,
        **({} if is_first else embedding.interval("effective_rank")),
        better="lower" if is_first else "higher",
        reference=1 / max(embedding.rank_ceiling, 1.0) if is_first else embedding.rank_ceiling,
        reference_name="isotropic Gaussian of the same shape",
        text="Effective rank counts dimensions by how evenly they carry variance; the share of the first direction, "
        "how much of a distance is one number. A few directions then decide distances, whether or not the others have "
        "vanished. A few well separated classes also look like this.",
        confirm="fit a linear classifier, which learns a weight for each direction: counterpoint evaluate RUN "
        "--metrics linear-probe",
        cannot_tell="whether the strong directions are those that matter",
    )


def _weight_of_first(embedding: Measurements) -> tuple[float, Level | None]:
    """Share of the strongest direction, at unit length or raw, and the level that it calls for."""
    shares = [embedding.figures.get(name) or 0.0 for name in ("first_share", "raw_first_share")]
    if embedding.num_dims < FEWEST_DIMS:
        return max(shares), None
    ratios = [embedding.figures.get(name) for name in ("participation_ratio", "raw_participation_ratio")]
    is_one = min(ratio for ratio in (*ratios, FEW_DIRECTIONS + 1) if ratio) < FEW_DIRECTIONS
    if shares[0] >= VERY_FIRST_SHARE or shares[1] >= VERY_RAW_FIRST_SHARE or is_one:
        return max(shares), "warning"
    return max(shares), "note" if shares[0] >= FIRST_SHARE or shares[1] >= RAW_FIRST_SHARE else None


def check_lost_rank(evidence: Evidence) -> Finding | None:
    """Has training narrowed the representation?"""
    trained, untrained = evidence.places.get(REPRESENTATION), evidence.places.get(UNTRAINED)
    if trained is None or untrained is None:
        return None
    is_lost = trained.effective_rank < LOST_RANK_SHARE * untrained.effective_rank  # data and architecture bound both
    return Finding(
        level="good" if not is_lost else "note" if is_neural_collapse(evidence) else "warning",
        title=f"The representation's effective rank is {trained.effective_rank:.0f}; untrained it was "
        f"{untrained.effective_rank:.0f}",
        measured=trained.effective_rank,
        **trained.interval("effective_rank"),
        better="higher",
        reference=untrained.effective_rank,
        reference_name="the same encoder before training",
        text="An untrained network spreads samples over many directions at random; training loses some when "
        "it forms groups. If less than a quarter is left, a dimensional collapse has reached the representation.",
        confirm="follow it over training: counterpoint diagnose RUN --checkpoint STEP",
        cannot_tell="whether accuracy suffers; counterpoint evaluate RUN measures that",
    )


def check_clumps(evidence: Evidence) -> Finding | None:
    """Have groups of samples collapsed to points?"""
    embedding = evidence.places[EMBEDDING]
    if embedding.clumps < IN_CLUMPS:
        return None
    return Finding(
        level="note" if evidence.is_supervised or is_neural_collapse(evidence) else "warning",
        title=f"{embedding.clumps:.0%} of the samples lie in clumps: within a group they hardly differ",
        measured=embedding.clumps,
        reference=IN_CLUMPS,
        reference_name="share of samples in clumps",
        text="Samples of a clump are nearer to each other than a tenth of the usual distance between two samples. "
        "Groups are separated, their members are not. Learning from labels does this by design.",
        confirm="look at the samples of a clump: counterpoint report RUN, section Map",
        cannot_tell="whether the groups are the classes you want",
    )


def check_dead_dimensions(evidence: Evidence) -> Finding | None:
    """Are dimensions zero for every sample?"""
    embedding = evidence.places[EMBEDDING]
    share = embedding.dead_dims / embedding.num_dims
    if share == 0 or evidence.reconstruction is not None:  # a check of sparse codes has both figures
        return None
    return Finding(
        level="note" if share < DEAD_SHARE or evidence.is_nonnegative else "warning",
        title=f"{embedding.dead_dims} of {embedding.num_dims} embedding dimensions are silent for every sample",
        measured=embedding.dead_dims,
        reference_name="none silent",
        text="A silent dimension is zero for every sample and can be dropped without changing any distance. With a "
        "ReLU output some become silent early and stay so.",
        confirm="leave them out and compare distances: they stay the same (counterpoint embed RUN --out z.npz)",
        cannot_tell="whether they are active on other samples",
    )
