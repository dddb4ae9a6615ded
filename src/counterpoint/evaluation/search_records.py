"""Answers of a search: queries with their hits, each with its reason, as text and as JSON."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from counterpoint.core.terminal_text import WIDTH, Printed, TextTable, shown

NAME_WIDTH, LABEL_WIDTH = 32, 12
HEAD = ("rank", "row", "name", "label", "cosine", "random below", "why")
SIDES = "rrllrrl"


@dataclass(frozen=True)
class SharedConcept:
    """A dimension that both samples of a pair activate.

    Attributes:
        dim: number of the dimension.
        share: share of the similarity: product of the two values over the sum of all products.
    """

    dim: int
    share: float

    def __str__(self) -> str:
        return f"d{self.dim} {100 * self.share:.0f}%"


@dataclass(frozen=True)
class Hit:
    """One sample that was found.

    Attributes:
        row: position of the sample in the collection.
        name: name of the sample.
        label: class of the sample, or None.
        similarity: cosine with the query.
        random_below: share of random pairs of the collection that are less similar.
        concepts: dimensions that both activate, the largest share first; empty if dimensions have no meaning.
    """

    row: int
    name: str
    label: str | None
    similarity: float
    random_below: float
    concepts: tuple[SharedConcept, ...] = ()

    def cells(self, rank: int) -> list[str]:
        """Cells of the hit's row in the printed table."""
        why = ", ".join(map(str, self.concepts)) or "-"
        # A share that is not 1 never reads 100 %.
        below = "100%" if self.random_below >= 1 else f"{100 * self.random_below:.1f}%"
        figures = (f"{self.similarity:.4f}", ">99.9%" if 0.999 < self.random_below < 1 else below)
        return [str(rank), str(self.row), self.name, self.label or "-", *figures, why]


@dataclass(frozen=True)
class QueryHits:
    """A query with its hits, the most similar first.

    Attributes:
        name: name of the query.
        row: position of the query in the collection, which is then no hit; None for a sample from elsewhere.
        label: class of the query, or None.
        hits: the samples that were found.
    """

    name: str
    row: int | None
    label: str | None
    hits: tuple[Hit, ...]

    @property
    def title(self) -> str:
        """Name, row and class."""
        details = ", ".join(filter(None, [f"row {self.row}" if self.row is not None else "", self.label or ""]))
        return f"{self.name} ({details})" if details else self.name


@dataclass(frozen=True)
class SearchResult(Printed):
    """Result of any search of a collection.

    Attributes:
        run: name of the run.
        facts: the collection, the layer and the method of the search, by name.
        reading: sentences on how to read the result.
        pictures: small pictures (h, w) or (h, w, 3) by ``row-<number>`` and ``query-<number>``, if they were
            requested.
    """

    run: str
    facts: Mapping[str, str]
    reading: tuple[str, ...]
    pictures: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False, kw_only=True)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without the pictures."""
        values = asdict(replace(self, pictures={}))
        del values["pictures"]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


@dataclass(frozen=True)
class SearchAnswer(SearchResult):
    """Hits of all queries, in the order of the queries. Printed as tables of at most 100 columns."""

    queries: tuple[QueryHits, ...]

    def __str__(self) -> str:
        lines = _wrapped([f"{self.run}: {', '.join(self.facts.values())}"])
        for query in self.queries:
            lines += ["", f"query {_cut(shown(query.title), WIDTH - 6)}", *_table(query.hits)]
        return "\n".join([*lines, "", *_wrapped(self.reading)])


@dataclass(frozen=True)
class CopyGroup:
    """Samples that are nearly the same.

    Attributes:
        rows: positions of the samples in the collection, ascending.
        names: names of the samples.
        labels: class of each sample, or None.
        least_similarity: the smallest cosine of a pair that put them together.
        by: way of comparison: ``pixels`` (their pictures are nearly equal), or ``embedding``.
        crosses_split: whether some samples were trained on and others held out.
    """

    rows: tuple[int, ...]
    names: tuple[str, ...]
    labels: tuple[str | None, ...]
    least_similarity: float
    by: str
    crosses_split: bool = False


@dataclass(frozen=True)
class Copies(SearchResult):
    """Groups of near-duplicates of a collection, of two samples or more, the largest first."""

    groups: tuple[CopyGroup, ...]

    def __str__(self) -> str:
        total = sum(len(group.rows) for group in self.groups)
        lines = _wrapped([f"{self.run}: {', '.join(self.facts.values())}"])
        lines.append(f"{len(self.groups):,} groups of near-duplicates, {total:,} samples")
        for number, group in enumerate(self.groups, start=1):
            split = "; trained on and held out" if group.crosses_split else ""
            lines += ["", f"group {number}: cosine >= {group.least_similarity:.4f}, by {group.by}{split}"]
            lines += [f"  {row:>8}  {_cut(shown(name), 84)}" for row, name in zip(group.rows, group.names, strict=True)]
        return "\n".join([*lines, "", *_wrapped(self.reading)])


def _table(hits: Sequence[Hit]) -> list[str]:
    """Lines of at most ``WIDTH`` columns; an empty column is left out."""
    rows = [[shown(cell) for cell in hit.cells(rank)] for rank, hit in enumerate(hits, start=1)]
    used = [place for place in range(len(HEAD)) if any(row[place] != "-" for row in rows)]
    limits = {2: NAME_WIDTH, 3: LABEL_WIDTH}
    head, *cells = ([_cut(row[place], limits.get(place, WIDTH)) for place in used] for row in [list(HEAD), *rows])
    lines = TextTable(head, cells, "".join(SIDES[place] for place in used)).lines
    return [line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in (f"  {each}" for each in lines)]


def _wrapped(sentences: Sequence[str]) -> list[str]:
    return [line for sentence in sentences for line in textwrap.wrap(sentence, WIDTH)]


def _cut(text: str, width: int) -> str:
    """Shorten a long name to its end, which distinguishes files."""
    return text if len(text) <= width else "…" + text[1 - width :]
