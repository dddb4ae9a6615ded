"""Records that findings and reports are drawn from; they load without torch, so that a report can judge again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from counterpoint.core.errors import nearest
from counterpoint.core.schemas import BASELINES, EvaluationRow, Figure, Listed, Record, Text
from counterpoint.diagnostics.pair_record import PairRecord

# Things that a remedy may advise to change. Each names a setting or a step that only some runs have.
Lever = Literal[
    "learning rate", "temperature", "views", "colour", "kept colour", "preview", "epochs", "batch", "representation",
    "projector", "narrow", "features", "loss options", "relu-gelu", "directclr", "sampling", "no views",
    "raw rows",
]  # fmt: skip
REPRESENTATION, EMBEDDING, UNTRAINED = "representation", "embedding", "untrained representation"
GREY_INPUT = "raw input without colour"  # votes of pictures whose channels were averaged
RAW_INPUT = BASELINES[-1]
VIEWS = "views"
TRAINING, HELD_OUT = "training", "held out"  # parts of a run's samples
APART = 0.6  # area under the curve from which on parts are told apart; 0.5 by chance
ERRORS = 4.0  # standard deviations of shuffled parts
IMBALANCED = 2.0  # mean count of the frequent classes over that of the rare ones
Matrix = Annotated[tuple[Annotated[tuple[Figure, ...], Listed], ...], Listed]


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval; the ends are None without an interval."""

    value: float
    low: float | None = None
    high: float | None = None


class Measurements(Record):
    """Figures of one place (representation, embedding, untrained...), each also an attribute by its metric's name.

    A figure is None where something needed was not given, or where it does not exist.

    Attributes:
        num_samples: number of vectors.
        num_dims: number of dimensions of the vectors.
        intervals: both ends of the 95 % interval, by the names of the figures that have one.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Figure] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    num_samples: int = 0
    num_dims: int = 0
    intervals: Mapping[str, Annotated[tuple[float, float], Listed]] = Field(default_factory=dict)

    @property
    def figures(self) -> Mapping[str, Any]:
        """Figures by the names of their metrics."""
        return self.model_extra or {}

    def __getattr__(self, name: str) -> Any:
        """The figure of a metric."""
        if name.startswith("_"):
            raise AttributeError(name)  # of pydantic, perhaps before there are figures
        # Called only where there is no such field, so for figures.
        if name in self.figures:
            return self.figures[name]
        raise AttributeError(f"no metric is called {name!r}{nearest(name, self.figures)}")

    def interval(self, name: str) -> dict[str, Any]:
        """Both ends of a figure's interval as the fields of a finding; None without an interval."""
        low, high = self.intervals.get(name, (None, None))
        return {"low": low, "high": high}


class Concept(Record):
    """One dimension and the samples that activate it most. Its values are also items by their names.

    Attributes:
        dim: number of the dimension, from 0.
        fires: share of samples that activate it.
        mean_activation: mean value over those samples.
        expected_activation: mean absolute value over all samples.
        values: the largest values, descending.
        purity: share of the commonest class among the samples that activate it.
        top_class: name of that class; None if it is no more common there than chance allows.
        names: names of the samples with the largest values.
        top: positions of the samples with the largest values; not written.
    """

    dim: int = 0
    fires: Figure = None
    mean_activation: Figure = None
    expected_activation: Figure = None
    values: Annotated[tuple[Figure, ...], Listed] = ()
    purity: Figure = None
    top_class: str | None = None
    names: Annotated[tuple[Text, ...], Listed] = ()
    top: tuple[int, ...] = Field(default=(), exclude=True)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


class ColourShortcut(Record):
    """The test whether colours alone show which two views belong to one picture (see ``alignment.shortcut``).

    Attributes:
        overlap: share of cases in which two views of one picture have more similar colours than two pictures.
        followed: share of pictures whose closest other picture in the embedding is among the closest 5 % by colours.
        num_samples: number of pictures in the test.
    """

    overlap: Figure = None
    followed: Figure = None
    num_samples: int = 0


class ToldApart(Record):
    """Result of a linear classifier that tells held-out samples from as many training samples of the same classes.

    Attributes:
        auc: probability that it ranks a held-out sample above a training sample, each left out of its fit.
        chance: mean of this probability over parts that were shuffled within classes.
        error: standard deviation of this probability over the shuffled parts.
        num_samples: number of samples of both parts together.
        has_classes: whether the samples have labels, and both parts as many of each class.
    """

    auc: Figure = None
    chance: Figure = None
    error: Figure = None
    num_samples: int = 0
    has_classes: bool = False

    @property
    def is_apart(self) -> bool:
        """Tell whether the parts are told apart beyond chance, and by enough to matter."""
        if self.auc is None or self.chance is None or self.error is None:
            return False
        return self.auc >= APART and self.auc - self.chance >= ERRORS * self.error


class AlteredInput(Record):
    """Pictures that differ from those of training by one change; undoing it restores the distribution of channels.

    Attributes:
        change: change of the pictures, in words; two changes if either explains the difference.
        distance: distance of the pictures from the statistics of training, in deviations of single pictures.
        undone: distance after the change was undone.
    """

    change: Text = ""
    distance: Figure = None
    undone: Figure = None

    @property
    def sentence(self) -> str:
        """The sentence that says how the pictures were changed."""
        return f"the pictures look like those of training, but {self.change}"


class HeldOutRecord(Record):
    """Training samples beside those that were held out of training.

    Attributes:
        parts: figures of the embedding by part, ``TRAINING`` and ``HELD_OUT``, of equally many samples, evenly spaced.
        gap: mean cosine of two views of a training sample minus that of a held-out sample; None without views.
        low: lower end of its 95 % interval (Welch).
        high: upper end.
        num_held_out: number of samples that were held out.
        num_copies: number of held-out samples whose content is that of a training sample, by its hash.
        num_same_features: number of held-out samples whose representation is that of a training sample to the last bit.
        copies_low: lower end of the 95 % interval (Wilson) of the share of held-out samples that ``num_either`` counts.
        copies_high: upper end.
        num_either: number of held-out samples that ``num_copies`` or ``num_same_features`` counts.
        told: results of a classifier that tells both parts apart, by its input, ``EMBEDDING`` or ``RAW_INPUT``.
    """

    parts: Mapping[str, Measurements] = Field(default_factory=dict)
    gap: Figure = None
    low: Figure = None
    high: Figure = None
    num_held_out: Figure = None
    num_copies: Figure = None
    num_same_features: Figure = None
    num_either: Figure = None
    copies_low: Figure = None
    copies_high: Figure = None
    told: Mapping[str, ToldApart] = Field(default_factory=dict)


class ClassRow(Record):
    """Figures of one class.

    Attributes:
        name: name of the class.
        count: number of its samples.
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
        question: conditions of the optimum, in words, by name: loss, negatives, temperature...
        measured: measured cosines of the class means, not centred, rows in the order of the classes.
        optimum: cosines of the class means at the optimum.
        distance: root mean square difference over pairs of classes.
        low: lower end of its 95 % interval over samples.
        high: upper end.
        held_out: distance of the held-out samples; None if they lack a class, or nothing was held out.
        risk: class-level risk of the optimum.
        lower_bound: number that the risk of no unit class means is below.
        relative_gap: ``risk`` minus ``lower_bound``, as a share of the solver's scale.
        status: certainty of the optimum, in words.
        is_certified: whether the gap is within the tolerance.
        merged: groups of classes, by name, that share one vector at the optimum.
        rare_cosine: mean cosine between the centred means of rare classes at the optimum.
        notes: remarks that a reader must know.
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
        rows: figures of each class, in the order of the classes' numbers.
        num_unlabelled: number of samples without a class, which are left out.
        within_share: share of the variance that lies within classes; 0 at every optimum.
        rare_cosine: mean cosine between the centred means of rare classes; None without any.
        low: lower end of its 95 % interval over samples.
        high: upper end.
        frequent_cosine: mean cosine between the centred means of the other classes; None for fewer than two.
        optimum: the comparison with theory; None if there is none.
        why_no_optimum: reason why there is no comparison, in words; may be empty.
        shared: pairs of classes whose samples lie in one cluster.
        parted: classes whose samples lie in two far clusters.
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
    shared: Annotated[tuple[Annotated[tuple[Text, ...], Listed], ...], Listed] = ()
    parted: Annotated[tuple[Text, ...], Listed] = ()

    @property
    def imbalance(self) -> float:
        """Mean count of the frequent classes over that of the rare ones; 1 without rare classes.

        >>> rows = (ClassRow(count=90), ClassRow(count=5, is_rare=True), ClassRow(count=5, is_rare=True))
        >>> ClassRecord(rows=rows).imbalance
        18.0
        """
        counts = [[row.count or 0.0 for row in self.rows if row.is_rare == is_rare] for is_rare in (True, False)]
        rare, frequent = (sum(counts_of_kind) / max(len(counts_of_kind), 1) for counts_of_kind in counts)
        return frequent / rare if rare and frequent else 1.0

    @property
    def is_imbalanced(self) -> bool:
        """Tell whether frequent classes have at least twice as many samples, so that rare ones are worth a finding."""
        return self.imbalance >= IMBALANCED


SPARSE_CODE, FEW_COPIES = 0.9, 0.02  # of the entries are 0; of the samples have near-copies


@dataclass(frozen=True)
class Evidence:
    """All evidence for findings; a field is None if it is not known.

    Attributes:
        places: measurements by place; the embedding's are always there.
        loss: last training loss.
        chance: loss of an encoder that has learned nothing.
        floor: lowest possible loss.
        votes: kNN accuracies of representation, embedding and baselines, on the same queries.
        is_nonnegative: whether the embedding has no negative entries, so that silent dimensions and low ranks are part
            of the design.
        is_supervised: whether the encoder learned from labels, which draws the samples of a class together.
        weight_change: length of the change that training made to the encoder's weights, over their length before; None
            if that is not known.
        not_finite: names of the samples that were left out, as their features hold NaN or infinity.
        shortcut: test whether colours alone match the views of a picture.
        pairs: weights that the loss gives to negatives, and samples that are too close.
        levers: changes and steps that the run allows, by method and settings; few or none for features without a run.
        values: values of the run's settings, by path, with every ``auto`` filled in.
        classes: figures of the classes of the embedding; None without labels.
        held_out: comparison of training samples with held-out ones; None except for a run's own samples.
        suspects: names of the samples that a check is about, by the name of the check.
        altered: change of the pictures since training; None if none is known.
        gaussian_by: reason why the embedding should be Gaussian in every direction: its ``loss`` is the distance from
            that, or ``theory`` says that its loss leads there; empty if another shape is right, or nothing is known.
        reconstruction: share of the features' variance that a sparse code gives back; None for other embeddings.
        consistency: class consistency of the units of a sparse code; None without labels, and where no
            labelled sample activates one.
    """

    places: Mapping[str, Measurements]
    loss: float | None = None
    chance: float | None = None
    floor: float | None = None
    votes: tuple[EvaluationRow, ...] = ()
    is_nonnegative: bool = False
    is_supervised: bool = False
    weight_change: float | None = None
    not_finite: tuple[str, ...] = ()
    shortcut: ColourShortcut | None = None
    pairs: PairRecord | None = None
    levers: frozenset[Lever] = frozenset()
    values: Mapping[str, Any] = field(default_factory=dict)
    classes: ClassRecord | None = None
    held_out: HeldOutRecord | None = None
    suspects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    altered: AlteredInput | None = None
    gaussian_by: Literal["", "loss", "theory"] = ""
    reconstruction: float | None = None
    consistency: Interval | None = None

    @property
    def has_equal_codes(self) -> bool:
        """Tell whether samples lie close in a sparse code only: they share its few active units, and are no copies."""
        features = self.places.get(REPRESENTATION)
        copies = None if features is None else features.figures.get("near_copies")
        sparsity = self.places[EMBEDDING].figures.get("sparsity") or 0
        return self.is_nonnegative and sparsity >= SPARSE_CODE and copies is not None and copies < FEW_COPIES

    def vote_of(self, features: str) -> EvaluationRow | None:
        """Return the kNN accuracy of features; those that no run made have the name of the representation."""
        return next((row for row in self._knn_rows if row.features == features), None)

    @property
    def is_in_colour(self) -> bool:
        """Tell whether colours are known to separate classes: without them fewer queries are right by the raw input."""
        raw, grey = self.vote_of(RAW_INPUT), self.vote_of(GREY_INPUT)
        lost = raw.minus(grey) if raw and grey else None
        return lost is not None and lost.is_told_apart and lost.value > 0

    @property
    def not_looked_at(self) -> tuple[str, ...]:
        """Input that a verdict needs and that was missing."""
        embedding = self.places.get(EMBEDDING)
        lacking = {
            "labels": self.vote_of(REPRESENTATION) is None,
            "raw input": not any(row.features in BASELINES for row in self._knn_rows),
            VIEWS: embedding is not None and embedding.figures.get("overlap") is None,
            "whether slices are Gaussian": self.gaussian_by == "loss"
            and embedding is not None
            and embedding.figures.get("slice_worst") is None,
        }
        return tuple(name for name, is_lacking in lacking.items() if is_lacking)

    @property
    def _knn_rows(self) -> list[EvaluationRow]:
        return [row for row in self.votes if row.protocol == "knn" and row.accuracy is not None]
