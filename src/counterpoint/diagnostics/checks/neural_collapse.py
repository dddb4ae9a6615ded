"""Whether features have collapsed to one point for each class, as a network that learned its labels well has."""

from counterpoint.diagnostics.evidence import EMBEDDING, Evidence
from counterpoint.diagnostics.finding import Finding
from counterpoint.diagnostics.gain import commonest

WITHIN = 0.35  # of the variance lies within classes, at most
ABOVE = 0.5  # of the way from the commonest class to 1, that kNN is above
# Participation ratio over the classes less one, at most: of digits MLPs it is 0.5 to 0.6. The effective rank counts
# also the little that is left around the class means: 19 to 41 for the same 9 directions.
DIRECTIONS = 1.5
OF_ALL = 0.5  # of the directions that there can be, at most: where classes are more than these, none need be lost
FEWEST_DIMS = 8  # of which one direction is not expected to carry most


def is_neural_collapse(evidence: Evidence) -> bool:
    """Whether about (classes - 1) directions are left, and the classes are well separated."""
    classes, learned = evidence.classes, evidence.learned
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
