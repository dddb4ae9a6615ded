"""The JSON records of a run, each written and read through the same model; they load without torch.

What another version wrote and this one does not know is kept (``run.json``) or left aside (``metrics.jsonl``); what is
missing is None. Lists become tuples; any other wrong type is an error.
"""

from base64 import b64decode, urlsafe_b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from counterpoint.core.errors import RunError
from counterpoint.core.paired_shares import Difference, compare_hits


def _figure(value: Any) -> int | float | None:
    """A number as it is, whole or not."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):  # True is an int
        return value
    raise PydanticCustomError("figure", "must be a number or null")


BASELINES = ("pixels (PCA)", "input (PCA)", "untrained encoder", "raw input")  # features that training did not make
FEATURES = "features"  # what an evaluation calls the encoder of features that need none
Model = TypeVar("Model", bound="Record")
Listed = Strict(False)  # of a tuple: JSON has lists only
Figure = Annotated[float | None, PlainValidator(_figure)]
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]  # of a list
EXPECTED = {
    "string_type": "must be text",
    "int_type": "must be a whole number or null",
    "int_from_float": "must be a whole number or null",
    "float_type": "must be a number or null",
    "tuple_type": "must be a list",
    "model_type": "must hold named values",
    "dict_type": "must hold named values",
    "mapping_type": "must hold named values",
    "missing": "is missing",
}


class Record(BaseModel):
    """A record that is frozen and strict; ``verb`` is the command that writes its file again if it is damaged."""

    model_config = ConfigDict(frozen=True, strict=True)
    verb: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values of all fields, as JSON has them."""
        return self.model_dump(mode="json")

    def written(self) -> dict[str, Any]:
        """Plain values of the fields that are set: what a file does not have stays out of it and is not null."""
        return self.model_dump(exclude_unset=True)


class Named(Record):
    """A name and a remark about it."""

    name: str | None = None
    reason: str | None = None


class RunStatus(Record):
    """``run.json``: state of the run, and where, when and with what it was made; ``launch`` identifies a restart."""

    model_config = ConfigDict(extra="allow")

    format: int | None = None
    run_id: str | None = None
    status: str
    method: str | None = None
    data: str | None = None
    seed: int | None = None
    version: str | None = None
    torch: str | None = None
    python: str | None = None
    command: str | None = None
    data_fingerprint: str | None = None
    num_samples: int | None = None
    num_train: int | None = None
    class_counts: Annotated[tuple[int, ...], Listed] | None = None
    split_fingerprint: str | None = None
    skipped: Annotated[tuple[Named, ...], Listed] = ()
    device: str | None = None
    precision: str | None = None
    world_size: int | None = None
    launch: str | None = None
    num_threads: int | None = None
    thread_waiting: str | None = None
    products: str | None = None
    num_parameters: int | None = None
    negatives_per_anchor: int | None = None
    pair_kernels: Annotated[tuple[Named, ...], Listed] = ()
    width: int | None = None
    embedding_dims: int | None = None
    own_loss: Mapping[str, Any] = Field(default_factory=dict)
    own_views: Mapping[str, Any] = Field(default_factory=dict)
    init: Mapping[str, Any] = Field(default_factory=dict)
    started: str | None = None
    loader: Mapping[str, Any] = Field(default_factory=dict)
    num_epochs: int | None = None
    figures: Mapping[str, str] = Field(default_factory=dict)  # hashes of the two logs at the end
    seconds: float | None = None
    peak_memory_mb: float | None = None


class SeedsRecord(Record):
    """``seeds.json``: runs that differ in the seed alone, each in ``seed-<number>`` beside this file.

    ``settings`` are the user's, with the first seed: a seed that has not begun yet begins with them.
    """

    model_config = ConfigDict(extra="allow")

    format: int | None = None
    seeds: Annotated[tuple[int, ...], Listed]
    settings: Mapping[str, Any]
    data_fingerprint: str
    version: str | None = None
    command: str | None = None
    launch: str | None = None
    started: str | None = None


class EpochRecord(Record):
    """One epoch: a line of ``metrics.jsonl`` and a line of ``timings.jsonl``.

    Attributes:
        epoch: counted from 1.
        step: updates so far.
        loss: mean over the epoch's steps.
        chance: loss of an encoder that has learned nothing, or None.
        floor: loss that no embedding can go below, or None.
        learning_rate: learning rate of the last step.
        gradient_norm: mean over the steps, before clipping.
        skipped_updates: steps that float16's loss scale left out.
        measured: results of measurements, by name; written beside the others, and not read again.
        images_per_second: speed of this process or processes, since the epoch began or was resumed.
        seconds: time of its steps.
    """

    epoch: int | None = None
    step: int | None = None
    loss: float | None = None
    chance: float | None = None
    floor: float | None = None
    learning_rate: float | None = None
    gradient_norm: float | None = None
    skipped_updates: int | None = None
    measured: Mapping[str, float] = Field(default_factory=dict)
    images_per_second: float | None = None
    seconds: float | None = None

    def metrics(self) -> dict[str, Any]:
        """One line of ``metrics.jsonl``: nothing that depends on the clock."""
        return {**self.model_dump(exclude={"measured", "images_per_second", "seconds"}), **self.measured}

    def timings(self) -> dict[str, Any]:
        """One line of ``timings.jsonl``."""
        return self.model_dump(include={"epoch", "step", "images_per_second", "seconds"})


class EvaluationSplit(Record):
    """The division of the labelled samples of an evaluation into a bank and queries.

    ``absent_classes`` are in the bank and have no query; ``num_shared`` queries equal a sample of the bank.
    """

    source: str = ""
    num_unlabelled: Figure = None
    num_bank: Figure = None
    num_queries: Figure = None
    num_classes: Figure = None
    class_names: Annotated[tuple[Text, ...], Listed] = ()
    absent_classes: Annotated[tuple[Text, ...], Listed] = ()
    num_shared: Figure = None
    how: str = ""
    query_fingerprint: str | None = None
    data_fingerprint: str | None = None  # of all samples with their labels; None in records of earlier versions


class ClassShare(Record):
    """Number of right queries of one class, and of all its queries."""

    correct: int
    total: int


class EvaluationRow(Record):
    """One figure of an evaluation with its 95 % interval: ``accuracy`` and counts of queries, or another ``value``.

    ``hits`` are the queries that were right (``packed_hits``), ``classes`` counts those of each class by its name;
    missing in records of earlier versions and for other figures.
    """

    features: str = ""
    protocol: str = ""
    settings: Mapping[str, Any] = Field(default_factory=dict)
    accuracy: Figure = None
    value: Figure = None
    correct: Figure = None
    total: Figure = None
    low: Figure = None
    high: Figure = None
    hits: str | None = None
    classes: Mapping[str, ClassShare] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _hits_are_those_counted(self) -> Self:
        """Require that the bits agree with the counts, so that every reader may rely on them."""
        if self.hits is not None:
            size = (int(self.total or 0) + 7) // 8
            packed = _hit_bytes(self.hits)
            if len(packed) != size or int.from_bytes(packed).bit_count() != self.correct:
                raise PydanticCustomError("hits", "must have a bit for each query in hits, set where it was right")
        return self

    @property
    def is_baseline(self) -> bool:
        """True if the row is of features to compare with."""
        return self.features in BASELINES

    @property
    def figure(self) -> float | None:
        """The accuracy, or the other value."""
        return self.value if self.accuracy is None else self.accuracy

    def minus(self, other: "EvaluationRow") -> Difference | None:
        """Compare with the figure of the same queries in another row, or in another record with their fingerprint.

        Returns:
            The difference; None if it is not known which queries were right.
        """
        if self.hits is None or other.hits is None or not self.total or self.total != other.total:
            return None
        first, second = (int.from_bytes(_hit_bytes(hits)) for hits in (self.hits, other.hits))
        return compare_hits(first, second, int(self.total))


def corruption_means(rows: Iterable[EvaluationRow]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean over severities of accuracies under corruptions: by classifier, then corruption, then features."""
    accuracies = defaultdict[tuple[str, str, str], list[float]](list)
    for row in rows:
        corruption = row.settings.get("corruption")
        if isinstance(corruption, str) and row.accuracy is not None:
            # "linear probe under fog 3"
            classifier = row.protocol.partition(f" under {corruption}")[0]
            accuracies[classifier, corruption, row.features].append(row.accuracy)
    means: dict[str, dict[str, dict[str, float]]] = {}
    for (classifier, corruption, features), values in accuracies.items():
        means.setdefault(classifier, {}).setdefault(corruption, {})[features] = fmean(values)
    return means


class EvaluationRecord(Record):
    """``evaluation.json``, and each file of ``evaluations/``; ``encoder`` has the facts of one trained elsewhere."""

    encoder: Mapping[str, Any] = Field(default_factory=dict)
    split: EvaluationSplit = EvaluationSplit()
    rows: Annotated[tuple[EvaluationRow, ...], Listed] = ()

    def find_row(self, features: str, protocol: str) -> EvaluationRow | None:
        """Find the row of some features under some protocol; None if there is none."""
        return next((row for row in self.rows if (row.features, row.protocol) == (features, protocol)), None)


def packed_hits(is_hit_Q: Sequence[bool]) -> str:
    """Encode which queries were right as text: eight to a byte, the first one highest, in base64 of names of files.

    >>> packed_hits([True, False, False, False, False, False, False, True, True])
    'gYA='
    """
    num_bytes = (len(is_hit_Q) + 7) // 8
    digits = "".join("1" if is_hit else "0" for is_hit in is_hit_Q).ljust(8 * num_bytes, "0")
    return urlsafe_b64encode(int(digits or "0", base=2).to_bytes(num_bytes)).decode()


def unpacked_hits(hits: str, total: int) -> list[bool]:
    """Decode which of the queries were right from the text of ``packed_hits``.

    >>> unpacked_hits("gYA=", 9)
    [True, False, False, False, False, False, False, True, True]
    """
    return [byte >> (7 - bit) & 1 == 1 for byte in _hit_bytes(hits) for bit in range(8)][:total]


def _hit_bytes(hits: str) -> bytes:
    """The bytes of packed hits; none if the text is not base64."""
    try:
        return b64decode(hits, altchars=b"-_", validate=True)
    except ValueError:
        return b""


def read_record(kind: type[Model], value: Any, origin: str) -> Model:
    """Read plain JSON values into a record.

    Args:
        kind: the record.
        value: the values as JSON gave them.
        origin: the file, and the place in it if the values are not the whole file.

    Raises:
        RunError: the first mistake: file, field, what is expected there, and the value there.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]).removeprefix(".")
    expected = EXPECTED.get(first["type"], first["msg"])
    got = "" if first["type"] == "missing" else f", got {first['input']!r}"[:90]  # the value may be a whole list
    remedy = f"; `counterpoint {kind.verb}` writes it again" if kind.verb else ""
    raise RunError(f"{origin}: {place or 'it'} {expected}{got}{remedy}")
