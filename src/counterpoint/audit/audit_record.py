"""Records of an audit: written to JSON, printed, and read again by ``recommend``. They load without torch."""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from textwrap import fill
from typing import Annotated

from pydantic import Field

from counterpoint.core.errors import some
from counterpoint.core.files import write_json
from counterpoint.core.schemas import Figure, Listed, Record, Text
from counterpoint.core.settings import SourceSettings
from counterpoint.core.terminal_text import WIDTH
from counterpoint.diagnostics.finding import LEVELS, JudgedFact, Level

INDENT = " " * 11
NUM_NAMED = 5  # files that one line of the text names
MOST_NAMED = 1000  # files that the record of one observation names
FORMAT = 1
AGAINST = "against"  # name of the part that holds data to compare with
# Names of parts that are kept for tests, in lower case.
TEST_PARTS = frozenset({"test", "testing", "val", "valid", "validation", "dev", "eval", AGAINST})


class DuplicateGroup(Record):
    """Samples that are copies of each other: any number with equal content, or two that nearly show the same.

    Attributes:
        names: names of the samples, at most ``MOST_NAMED``.
        splits: part of each sample; empty if there are no parts.
        labels: label of each sample; empty if there are no labels.
        similarity: correlation of their detail; 1 for exact copies.
        is_equal: true if their pixels, upright, or their numbers are equal.
        turn: turn that makes one of two show the other.
    """

    names: Annotated[tuple[Text, ...], Listed] = ()
    splits: Annotated[tuple[Text, ...], Listed] = ()
    labels: Annotated[tuple[Text, ...], Listed] = ()
    similarity: Figure = None
    is_equal: bool = False
    turn: Text = ""


class Observation(JudgedFact):
    """One finding about the data.

    Attributes:
        code: name of the check that made it.
        count: number of samples or files concerned; it decides if no figure is measured.
        names: their names, at most ``MOST_NAMED``.
        beside: text beside each name; may be empty.
        groups: copies, the largest groups first.
    """

    code: str = ""
    count: Figure = None
    names: Annotated[tuple[Text, ...], Listed] = ()
    beside: Annotated[tuple[Text, ...], Listed] = ()
    groups: Annotated[tuple[DuplicateGroup, ...], Listed] = ()

    @property
    def said(self) -> tuple[tuple[str, str], ...]:
        """Each name with the text beside it."""
        return tuple(zip_longest(self.names, self.beside[: len(self.names)], fillvalue=""))

    @property
    def details(self) -> list[str]:
        """The printed lines below the title."""
        groups = [
            "group: " + few(group.names) + (f" ({group.turn})" if group.turn else "")
            for group in self.groups[:NUM_NAMED]
        ]
        more = len(self.groups) - NUM_NAMED
        named = tuple(f"{name} ({words})" if words else name for name, words in self.said)
        lines = {
            "measured": self.figure_words,
            "files": "" if self.groups else few(named, self.count),
            "why": self.text,
            "try": self.remedy,
        }
        remarks = [f"{name}: {words}" for name, words in lines.items() if words]
        return [*groups, *([f"and {more} more groups"] if more > 0 else []), *remarks]


class Cue(Record):
    """Accuracy with which a cue without content predicts the classes.

    Attributes:
        name: name of the cue.
        accuracy: accuracy on held-out samples, cross-validated.
        low: lower end of its 95 % interval.
        high: upper end.
        majority: share of the largest class among the same samples.
        num_samples: number of samples that were looked at.
    """

    name: str = ""
    accuracy: Figure = None
    low: Figure = None
    high: Figure = None
    majority: Figure = None
    num_samples: Figure = None

    @property
    def skill(self) -> float:
        """Accuracy rescaled: 0 is always naming the largest class, 1 is always right."""
        chance = self.majority or 0.0
        return ((self.accuracy or 0.0) - chance) / max(1 - chance, 1e-9)


class Passport(Record):
    """Counts of the content of the data.

    Attributes:
        num_found: samples or picture files that were found.
        num_good: those that can be read.
        num_bytes: size of the files; None for arrays in memory.
        formats: number of files by format.
        modes: number of pictures by colour mode.
        splits: number of samples by part, if there are several.
        bad: number of files that cannot be read, by part.
        classes: number of samples by class.
        num_unlabelled: samples without a label, if others have one.
        widths: least, lower quartile, median, upper quartile and largest width in pixels.
        heights: the same figures of the heights.
        shape: shape of a sample of an array.
        grey_share: share of pictures without colour; None of vectors.
        num_unique: samples that are left when every group of copies is one.
    """

    num_found: Figure = 0
    num_good: Figure = 0
    num_bytes: Figure = None
    formats: Mapping[str, int] = Field(default_factory=dict)
    modes: Mapping[str, int] = Field(default_factory=dict)
    splits: Mapping[str, int] = Field(default_factory=dict)
    bad: Mapping[str, int] = Field(default_factory=dict)
    classes: Mapping[str, int] = Field(default_factory=dict)
    num_unlabelled: Figure = None
    widths: Annotated[tuple[Figure, ...], Listed] = ()
    heights: Annotated[tuple[Figure, ...], Listed] = ()
    shape: Annotated[tuple[int, ...], Listed] = ()
    grey_share: Figure = None
    num_unique: Figure = None


class Audit(Record):
    """The result of an audit of data.

    Attributes:
        format: version of the format of this record's file.
        name: the user's name of the data.
        against: name of the data that they were compared with; empty for nothing.
        kind: images or vectors.
        passport: counts of the content.
        observations: findings about the data, worst first.
        cues: cues that predict the classes, or identify the pictures, without their content.
        seconds: time that the audit took.
        pictures: thumbnails of samples that observations name, as addresses for a page; not written to the file.
    """

    format: int = FORMAT
    name: str = ""
    against: str = ""
    kind: str = "images"
    passport: Passport = Passport()
    observations: Annotated[tuple[Observation, ...], Listed] = ()
    cues: Annotated[tuple[Cue, ...], Listed] = ()
    seconds: Figure = None
    pictures: Mapping[str, str] = Field(default_factory=dict, exclude=True, repr=False)

    @property
    def level(self) -> Level:
        """The worst level of all findings."""
        return LEVELS[max((LEVELS.index(observation.level) for observation in self.observations), default=0)]

    def found(self, code: str) -> Observation | None:
        """The observation of a check, if it made one."""
        return next((observation for observation in self.observations if observation.code == code), None)

    @property
    def verdict(self) -> str:
        """The number of observations of each level, in one sentence."""
        counts = [(level, sum(each.level == level for each in self.observations)) for level in reversed(LEVELS)]
        levels = [f"{count} {level}" for level, count in counts if count and level != "good"]
        return f"{self.name}: {', '.join(levels) if levels else 'nothing to remark'}"

    def left_out(self, *, near_copies: bool = False) -> tuple[str, ...]:
        """Samples that training should leave out: all but one of those with equal content.

        Of copies across parts, all that are not kept for tests are left out, so that the test part stays complete.

        Args:
            near_copies: whether one of each pair of near copies is left out, too, unless the other is out already.
        """
        gone: dict[str, None] = {}
        for group in (group for observation in self.observations for group in observation.groups):
            is_needless = not near_copies or any(name in gone for name in group.names)
            if not group.is_equal and is_needless:
                continue
            trained = [
                name for name, part in zip(group.names, group.splits, strict=False) if part.lower() not in TEST_PARTS
            ]
            is_shared = 0 < len(trained) < len(group.splits)
            gone.update(dict.fromkeys(trained if is_shared else group.names[1:]))
        first = next(iter(self.passport.splits), None)  # of several parts, the one that training opens
        if first is None:
            return tuple(gone)
        return tuple(
            name for name in gone if (name.startswith(f"{first}/") if first else not name.startswith(f"{AGAINST}: "))
        )

    def save(self, path: str | Path) -> Path:
        """Write the record as JSON, which ``recommend`` reads."""
        write_json(Path(path), self.to_dict())
        return Path(path)

    def __str__(self) -> str:
        lines = [
            self.verdict,
            *(fill(line, WIDTH, initial_indent="  ", subsequent_indent="    ") for line in self.facts),
        ]
        for each in self.observations:
            lines.append(fill(f"{each.level:<8} {each.title}", WIDTH, initial_indent="  ", subsequent_indent=INDENT))
            details = each.details if each.level in ("warning", "severe") else each.details[:1]
            lines += [fill(line, WIDTH, initial_indent=INDENT, subsequent_indent=f"{INDENT}  ") for line in details]
        return "\n".join(lines)

    @property
    def facts(self) -> list[str]:
        """The content of the data, in lines."""
        data = self.passport
        noun = "pictures" if self.kind == "images" else "vectors"
        lines = [
            f"{amount(int(data.num_good or 0), noun)} that can be read, of {data.num_found:,}"
            + (f"; {(data.num_bytes or 0) / 1e6:,.1f} MB" if data.num_bytes else "")
        ]
        lines += [f"shape of a sample: {' x '.join(map(str, data.shape))}"] if data.shape else []
        for title, counts in (("formats", data.formats), ("colour modes", data.modes), ("parts", data.splits)):
            lines += [f"{title}: {counted(counts)}"] if counts else []
        if len(data.widths) == 5 and len(data.heights) == 5:
            wide, high = data.widths, data.heights
            lines.append(
                f"width x height: median {wide[2]:g} x {high[2]:g}; widths {wide[0]:g} to {wide[4]:g}, heights "
                f"{high[0]:g} to {high[4]:g}"
            )
        if data.classes:
            lines.append(f"{len(data.classes)} classes: {counted(data.classes)}")
        for cue in self.cues:
            lines.append(
                f"{cue.name}: {cue.accuracy:.1%} [{cue.low:.1%}, {cue.high:.1%}] right, by chance {cue.majority:.1%}"
            )
        return lines


def needed_max_bad(num_bad: float, number: float) -> float | None:
    """The ``source.max_bad`` with which training accepts this number of bad files; None if the default is enough.

    >>> needed_max_bad(1, 100), needed_max_bad(1, 30)
    (None, 0.04)
    """
    share = num_bad / number
    return None if share <= SourceSettings().max_bad else min(1.0, math.ceil(share * 100) / 100)


def few(names: tuple[str, ...], count: float | None = None) -> str:
    """Up to five names, and how many more there are.

    >>> few(("a", "b", "c", "d", "e", "f"), 9)
    'a, b, c, d, e and 4 more'
    """
    more = int(len(names) if count is None else count) - min(len(names), NUM_NAMED)
    listed = ", ".join(names[:NUM_NAMED])
    return f"{listed} and {more:,} more" if more > 0 and names else listed


def amount(number: int, noun: str) -> str:
    """A number of things, whose plural has an s.

    >>> amount(1, "picture"), amount(1200, "pictures")
    ('1 picture', '1,200 pictures')
    """
    singular = noun.removesuffix("s")
    return f"{number:,} {singular if number == 1 else singular + 's'}"


def counted(counts: Mapping[str, int], most: int = 6) -> str:
    """Counts in words, the largest first.

    >>> counted({"PNG": 2, "JPEG": 1200})
    'JPEG 1,200, PNG 2'
    """
    return some([f"{name} {count:,}" for name, count in Counter(counts).most_common()], most)
