"""What is known of the classes of some features, in plain records that load without torch: for findings and reports."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from counterpoint.core.run_records import Figure, Listed, Record, Text

IMBALANCED = 2.0  # mean count of the frequent classes over that of the rare ones
Matrix = Annotated[tuple[Annotated[tuple[Figure, ...], Listed], ...], Listed]


class ClassRow(Record):
    """One class.

    Attributes:
        name: of the class.
        count: its samples.
        spread: mean squared distance of its unit-length samples from their mean: 0 collapsed, at most 1.
        is_rare: whether it is one of the rare classes (``class_geometry.rare_classes``).
    """

    name: Text = ""
    count: Figure = None
    spread: Figure = None
    is_rare: bool = False


class OptimumRecord(Record):
    """Cosines of class means beside those that the loss would have them at.

    Attributes:
        question: what the optimum is for, in words: loss, negatives, temperature...
        measured: cosines of class means, not centred, rows as those of the classes.
        optimum: the same at the optimum.
        distance: root mean square difference over pairs of classes.
        low: lower end of its 95 % interval over samples.
        high: upper end.
        held_out: the distance of held-out samples, where they have all classes.
        risk: class-level risk of the optimum.
        lower_bound: no unit class means have less.
        relative_gap: of both, as a share of the solver's scale.
        status: what is known of the optimum, in words.
        is_certified: the gap is within the tolerance.
        merged: names of classes that share one vector at the optimum.
        rare_cosine: mean cosine between the centred means of rare classes at the optimum.
        notes: what a reader must know.
    """

    question: Mapping[str, Text] = Field(default_factory=dict)
    measured: Matrix = ()
    optimum: Matrix = ()
    distance: Figure = None
    low: Figure = None
    high: Figure = None
    held_out: Figure = None
    risk: Figure = None
    lower_bound: Figure = None
    relative_gap: Figure = None
    status: str = ""
    is_certified: bool = False
    merged: Annotated[tuple[Annotated[tuple[Text, ...], Listed], ...], Listed] = ()
    rare_cosine: Figure = None
    notes: Annotated[tuple[Text, ...], Listed] = ()


class ClassRecord(Record):
    """The classes of an embedding.

    Attributes:
        rows: the classes, in the order of their numbers.
        num_unlabelled: samples without a class, which are left out.
        within_share: share of the variance that lies within classes; 0 at every optimum.
        rare_cosine: mean cosine between the centred means of rare classes; None without any.
        low: lower end of its 95 % interval over samples.
        high: upper end.
        frequent_cosine: the same of the other classes; None of fewer than two.
        optimum: the comparison with theory; None where there is none.
        why_no_optimum: the reason.
    """

    rows: Annotated[tuple[ClassRow, ...], Listed] = ()
    num_unlabelled: Figure = None
    within_share: Figure = None
    rare_cosine: Figure = None
    low: Figure = None
    high: Figure = None
    frequent_cosine: Figure = None
    optimum: OptimumRecord | None = None
    why_no_optimum: str = ""

    @property
    def imbalance(self) -> float:
        """Mean count of the frequent classes over that of the rare ones; 1 without rare classes.

        >>> rows = (ClassRow(count=90), ClassRow(count=5, is_rare=True), ClassRow(count=5, is_rare=True))
        >>> ClassRecord(rows=rows).imbalance
        18.0
        """
        counts = [[row.count or 0.0 for row in self.rows if row.is_rare == is_rare] for is_rare in (True, False)]
        rare, frequent = (sum(each) / max(len(each), 1) for each in counts)
        return frequent / rare if rare and frequent else 1.0

    @property
    def is_imbalanced(self) -> bool:
        """Whether frequent classes have at least twice as many samples, so that rare ones are worth a word."""
        return self.imbalance >= IMBALANCED
