"""Search a run: which samples of a collection are most like a query, and why."""

# Q queries, D features

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.array_layout import to_bytes
from counterpoint.core.errors import UsageError
from counterpoint.core.run import Run
from counterpoint.core.search_records import Asked, Hit, SearchAnswer, SharedConcept
from counterpoint.core.torch_state import usual_modes
from counterpoint.search.duplicates import (
    SAME_EMBEDDING,
    SAME_PIXELS,
    drawn_rows,
    keys_of_rows,
    likeness,
    picture_keys,
)
from counterpoint.search.hit_explanations import Background, background_of
from counterpoint.search.queries import Query, find_queries
from counterpoint.search.run_index import RunIndex, open_run_index


@usual_modes()
def search(
    run: Run | str | Path,
    query: Any,
    *,
    to: Any = None,
    k: int = 10,
    pictures: bool = False,
    quiet: bool = False,
    **options: Any,
) -> SearchAnswer:
    """Find the samples that are most like each query, with the reason.

    The index is kept in the run folder and built when it is first needed.

    Args:
        run: the run or its folder.
        query: one or several of: a picture file, a folder, a row number, the name of a sample, an array file; or an
            array of samples. A row is not among its own hits.
        to: other samples to search in (anything ``train`` takes); None takes the run's own.
        k: hits of each query.
        pictures: keep small pictures of queries and hits in the answer, for a page.
        quiet: show no progress.
        options: ``layer`` (auto: the embedding where its dimensions have a meaning or pairs were trained, else the
            representation), ``method`` (auto, exact or hnsw), ``exact`` (compare every row), ``dims`` (a number),
            ``second`` (queries of the second kind of a cross-modal run), ``rebuild``, ``shards`` (a folder of ``embed
            --shards`` with these very embeddings: an index is built of them), and those of ``embed``.

    Raises:
        UsageError: nothing of that name, a row that does not exist, or k out of range.
        DataError: samples that cannot be used.
        RunError: not a trained run, or an index that does not fit; the text says what does not.
    """
    known = open_run_index(run, to, options, "search", quiet=quiet)
    asked, index = known.asking.settings, known.index
    queries = find_queries(known, query, second=asked.second)
    in_collection = [each.row for each in queries if each.row is not None]
    most = len(index) - bool(in_collection)
    if not 1 <= k <= most:
        words = "the other samples" if in_collection else "the samples"
        raise UsageError(f"k must be between 1 and {most:,}, {words} of the collection, got {k}")
    # Rows of the collection have the dimensions of the index, and are their own first hit.
    vectors_QD = _query_rows(known, queries)
    found = index.search(vectors_QD, min(k + bool(in_collection), len(index)), exact=asked.exact)
    background = background_of(index, known.about)
    answers = []
    for place, each in enumerate(queries):
        rows = [
            (row, similarity)
            for row, similarity in zip(
                found.positions_QK[place].tolist(), found.similarity_QK[place].tolist(), strict=True
            )
            if row >= 0 and row != each.row
        ][:k]
        hits = _hits(known, background, each, vectors_QD[place], rows, compares=pictures)
        answers.append(Asked(each.name, each.row, each.label, hits))
    drawn = _pictures(known, queries, answers) if pictures else {}
    reading = (*background.reading(), *index.advice())
    if zero := index.card.num_zero:
        reading = (*reading, f"{zero:,} rows are all zeros: they are like nothing, and stand last with a cosine of 0.")
    return SearchAnswer(known.about.run, known.facts(exact=asked.exact), reading, tuple(answers), drawn)


def _query_rows(known: RunIndex, queries: Sequence[Query]) -> Tensor:
    """Vectors of the width of the index, at unit length."""
    fitting = [
        each.vector_D if each.row is not None else known.about.kept(each.vector_D[None].float())[0] for each in queries
    ]
    vectors_QD = torch.stack(fitting).float()
    return vectors_QD / vectors_QD.norm(dim=1, keepdim=True).clamp(min=1e-30)


def _hits(
    known: RunIndex,
    background: Background,
    query: Query,
    vector_D: Tensor,
    rows: Sequence[tuple[int, float]],
    *,
    compares: bool,
) -> tuple[Hit, ...]:
    """Hits of a query with their reasons."""
    index, dims = known.index, known.about.dims
    vectors_HD = index.vectors(torch.tensor([row for row, _ in rows], dtype=torch.int64))
    copies = _copies(known, query, [row for row, _ in rows]) if compares or query.sample is not None else {}
    hits = []
    for (row, similarity), hit_D in zip(rows, vectors_HD, strict=True):
        concepts = background.concepts(vector_D, hit_D)
        if dims:
            concepts = tuple(SharedConcept(dims[each.dim], each.share, each.name) for each in concepts)
        copy = copies.get(row) or ("embedding" if similarity >= SAME_EMBEDDING else "")
        label = None if index.labels is None else index.labels[row]
        hits.append(Hit(row, index.names[row], label, similarity, background.below(similarity), concepts, copy))
    return tuple(hits)


def _copies(known: RunIndex, query: Query, rows: Sequence[int]) -> dict[int, str]:
    """Hits whose pictures are nearly that of the query."""
    source = known.subject.source
    own = query.sample
    if source.kind != "images" or not rows or (own is None and query.row is None):
        return {}
    sample = source.store.fetch([query.row])[0] if own is None and query.row is not None else own
    assert sample is not None
    if sample.shape[0] != source.shape[0]:
        return {}
    keys = keys_of_rows(source, torch.tensor(rows))
    own_key = picture_keys(sample[None]).at(torch.zeros(len(rows), dtype=torch.int64))
    alike = likeness(own_key, keys) >= SAME_PIXELS
    return {row: "pixels" for row, is_copy in zip(rows, alike.tolist(), strict=True) if is_copy}


def _pictures(known: RunIndex, queries: Sequence[Query], answers: Sequence[Asked]) -> dict[str, np.ndarray]:
    """Small pictures of hits and queries."""
    rows = [hit.row for asked in answers for hit in asked.hits] + [each.row for each in queries if each.row is not None]
    drawn = drawn_rows(known.subject.source, list(dict.fromkeys(rows)))
    for place, each in enumerate(queries):
        if each.row is not None and f"row-{each.row}" in drawn:
            drawn[f"query-{place}"] = drawn[f"row-{each.row}"]
        elif each.sample is not None and each.sample.ndim == 3:
            image = to_bytes(each.sample).permute(1, 2, 0).numpy()
            drawn[f"query-{place}"] = image[..., 0] if image.shape[2] == 1 else image
    return drawn
