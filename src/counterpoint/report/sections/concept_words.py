"""What the concepts of a run amount to, in words."""

from statistics import median

from counterpoint.report.run_record import EMBEDDING, Concept, RunRecord
from counterpoint.report.wording import NO_BREAK, count, number, percent

PURE = 0.8
ALMOST_ALWAYS = 0.9


def concepts_of(run: RunRecord) -> tuple[Concept, ...]:
    """The dimensions that the diagnosis describes, the most useful first."""
    return run.diagnosis.concepts if run.diagnosis else ()


def pure_concepts(run: RunRecord) -> list[Concept]:
    """The described dimensions that stand for one class: pure, and purer than all samples are."""
    rated = [concept for concept in concepts_of(run) if concept.purity is not None and concept.top_class]
    return [concept for concept in rated if (concept.purity or 0.0) >= PURE]


def extent(run: RunRecord) -> str:
    """Say which dimensions the diagnosis describes: all, or the most useful ones.

    Returns:
        Words such as ``the 24 most useful of 128 dimensions`` or ``all 16 dimensions``.
    """
    described, place = len(concepts_of(run)), run.place(EMBEDDING)
    total = place.num_dims if place else None
    if total is None:
        return f"the {count(described, 'dimension')} described"
    if described < total:
        return f"the {described} most useful of {number(total)} dimensions"
    return f"all {count(described, 'dimension')}" if described > 1 else "the one dimension"


def concept_words(run: RunRecord) -> str:
    """Say how many dimensions stand for one class, how many classes they cover, and how often they are active."""
    fires = [concept.fires for concept in concepts_of(run) if concept.fires is not None]
    if not concepts_of(run):
        return ""
    often = f"The median one is active on {percent(median(fires))} of samples." if fires else ""
    if fires and median(fires) > ALMOST_ALWAYS:
        often += " A dimension that is almost always active is not a concept: its top samples are only its extremes."
    return f"{_purity_words(run)} {often}".strip()


def _purity_words(run: RunRecord) -> str:
    """Count the dimensions that stand for one class, and the classes they cover."""
    if all(concept.purity is None for concept in concepts_of(run)):
        return f"Shown are {extent(run)}, without labels to name them: judge by eye."
    pure = pure_concepts(run)
    classes = len({concept.top_class for concept in pure})
    known = run.evaluation.split.num_classes if run.evaluation else None
    covered = f"{classes} of {count(known, 'class', 'classes')}" if known else count(classes, "class", "classes")
    tail = f", and together they stand for {covered}" if pure else ""
    pure_ones = {0: "none is", 1: "1 is"}.get(len(pure), f"{len(pure)} are")
    nameless = sum(concept.purity is not None and not concept.top_class for concept in concepts_of(run))
    rest = f" In {count(nameless, 'dimension')} no class is more common than chance allows." if nameless else ""
    return f"Of {extent(run)}, {pure_ones} at least 80{NO_BREAK}% one class{tail}.{rest}"
