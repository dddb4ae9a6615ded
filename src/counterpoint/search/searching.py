"""Search a run: which samples of a collection are most like a query (a picture, a row, a name, an array), and why."""

# N rows, Q queries, D features, P pairs

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterpoint.core.array_layout import to_bytes, to_samples
from counterpoint.core.errors import DataError, UsageError, first_line, nearest
from counterpoint.core.numerics import unit_rows
from counterpoint.core.run import Run
from counterpoint.core.torch_state import usual_modes
from counterpoint.core.user_files import read_regular
from counterpoint.data.formats.image_files import MAX_ENCODED_BYTES, SUFFIXES, decode_square
from counterpoint.data.order import random_order
from counterpoint.evaluation.search_records import Hit, QueryHits, SearchAnswer, SharedConcept
from counterpoint.evaluation.subject import open_queries
from counterpoint.nn.layer_outputs import LayerReader
from counterpoint.search.duplicates import drawn_rows
from counterpoint.search.searched_samples import SearchedSamples, open_samples

MOST_QUERIES = 10_000  # in one call; more are a job for a table (`counterpoint embed`)
NUM_PAIRS = 20_000
NUM_ROWS = 4096  # from which pairs and names of dimensions are found
MOST_CONCEPTS = 3
ZEROS = 0.5  # share of entries from which a non-negative code has dimensions that are active on few samples
LEAST_SHARE = 0.05  # share of the similarity below which a dimension is not named
DENSE = (
    "No single dimension of this {layer} has a meaning (entries have both signs, or most are active), so no "
    "part of a similarity can be named; methods with --output.nonnegative (such as ncl) give such parts."
)
SPARSE = "why: dimensions that query and hit share, with their share of the cosine."
RANDOM = (
    "Of {num:,} random pairs of this collection the median cosine is {median:.3f}, and 1 % are above {high:.3f}; "
    "random below: the share of them that is less similar than the hit."
)


@dataclass(frozen=True)
class _Query:
    """A query: a row of the collection, which holds its sample, or a sample from elsewhere."""

    name: str
    vector_D: Tensor
    row: int | None = None
    sample: Tensor | None = None
    label: str | None = None


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
    """Find the samples most similar to each query, with the reason.

    Features come from the cache of features, or are computed and kept there.

    Args:
        run: the run or its folder.
        query: one query or several: a picture file, a folder, a row (a whole number, or its digits), a sample's name,
            an array file (``.npy``, ``.npz``); or an array of samples. A row is not among its own hits.
        to: other samples to search (anything ``train`` takes); None takes the run's own.
        k: number of hits per query.
        pictures: keep small pictures of queries and hits in the answer, for a page.
        quiet: show no progress.
        options: ``layer`` (auto: the embedding if its dimensions have a meaning or pairs were trained, else the
            representation), and those of ``embed``.

    Raises:
        UsageError: nothing of that name, a row that does not exist, too many queries, or k out of range.
        DataError: samples that cannot be used.
        RunError: the run is not trained; the text says why.
    """
    collection = open_samples(run, to, options, "search", quiet=quiet)
    words = [query] if isinstance(query, str | Path | int) or hasattr(query, "__array__") else list(query)
    if not words:
        raise UsageError("there is no query: give a picture, a folder, a row or the name of a sample")
    queries = [each for word in words for each in _queries_of(collection, word)]
    if len(queries) > MOST_QUERIES:
        raise UsageError(f"at most {MOST_QUERIES:,} queries are allowed in one call, got {len(queries):,}")
    in_collection = [each.row for each in queries if each.row is not None]
    most = len(collection) - bool(in_collection)
    if not isinstance(k, Integral) or not 1 <= k <= most:
        words = "the other samples" if in_collection else "the samples"
        raise UsageError(f"k must be between 1 and {most:,}, {words} of the collection, got {k!r}")
    # Rows of the collection are their own first hit.
    vectors_QD = unit_rows(torch.stack([each.vector_D for each in queries]).float())
    neighbours = collection.search(vectors_QD, min(k + bool(in_collection), len(collection)))
    rows_ND = collection.vectors(random_order(0, 4, len(collection))[:NUM_ROWS].sort().values)
    # Dimensions have a meaning if few of them are active at a time.
    has_concepts = bool((rows_ND >= 0).all()) and float((rows_ND == 0).double().mean()) >= ZEROS
    pairs_P = _random_pairs(rows_ND)
    below_QK = torch.searchsorted(pairs_P, neighbours.similarity_QK).double() / len(pairs_P)
    answers = []
    for place, each in enumerate(queries):
        columns = (neighbours.positions_QK[place], neighbours.similarity_QK[place], below_QK[place])
        others = [hit for hit in zip(*(column.tolist() for column in columns), strict=True) if hit[0] != each.row][:k]
        hits = []
        for row, cosine, below in others:
            own_D = collection.vectors(slice(row, row + 1))[0]
            concepts = shared_concepts(vectors_QD[place], own_D) if has_concepts else ()
            hits.append(Hit(row, collection.names[int(row)], collection.labels[row], cosine, below, concepts))
        answers.append(QueryHits(each.name, each.row, each.label, tuple(hits)))
    median, high = pairs_P.quantile(torch.tensor([0.5, 0.99], dtype=torch.float64)).tolist()
    random = RANDOM.format(num=len(pairs_P), median=median, high=high)
    reading = (random, SPARSE if has_concepts else DENSE.format(layer=collection.layer))
    drawn = _images(collection, queries, answers) if pictures else {}
    return SearchAnswer(collection.run, collection.facts(), reading, tuple(answers), pictures=drawn)


def _images(
    collection: SearchedSamples, queries: Sequence[_Query], answers: Sequence[QueryHits]
) -> dict[str, np.ndarray]:
    rows = [hit.row for answer in answers for hit in answer.hits]
    rows += [each.row for each in queries if each.row is not None]
    drawn = drawn_rows(collection.subject.source, list(dict.fromkeys(rows)))
    for place, each in enumerate(queries):
        if each.row is not None and f"row-{each.row}" in drawn:
            drawn[f"query-{place}"] = drawn[f"row-{each.row}"]
        elif each.sample is not None and each.sample.ndim == 3:
            image = to_bytes(each.sample).permute(1, 2, 0).numpy()
            drawn[f"query-{place}"] = image[..., 0] if image.shape[2] == 1 else image
    return drawn


def _queries_of(collection: SearchedSamples, word: Any) -> list[_Query]:
    is_row = isinstance(word, Integral) and not isinstance(word, bool)
    if hasattr(word, "__array__") and not is_row:
        return _sample_queries(collection, to_samples(word, name="queries"), "query")
    if isinstance(word, str | Path) and os.path.exists(word):  # False for "" and for what is no path
        path = Path(word)
        if path.is_file() and path.suffix.lower() in SUFFIXES:
            return [_picture_query(collection, path)]
        source = open_queries(collection.subject.opens, str(path), None, part={}, reporter=collection.reporter)
        queries = _sample_queries(collection, source.store.fetch(list(range(min(len(source), MOST_QUERIES + 1)))), "")
        labels = source.classes() or [None] * len(queries)
        named = zip(queries, source.sample_names, labels, strict=False)
        return [replace(query, name=name, label=label) for query, name, label in named]
    text, names = str(word), collection.names
    if is_row or (isinstance(word, str) and word.isascii() and word.isdigit() and word not in names):
        row = int(text)
        if not 0 <= row < len(collection):
            raise UsageError(f"row must be between 0 and {len(collection) - 1:,}, got {row}")
    elif text in names:
        row = names.index(text)
    else:
        source = collection.subject.source.name
        raise UsageError(f"{text!r} is not a file, row or sample name of {source}{nearest(text, names)}")
    return [_Query(names[row], collection.vectors(torch.tensor([row]))[0], row, None, collection.labels[row])]


def _picture_query(collection: SearchedSamples, path: Path) -> _Query:
    subject = collection.subject
    if subject.source.kind != "images":
        raise DataError(
            f"{path} is a picture, and {subject.source.name} holds vectors; ask with an array file or a row"
        )
    try:
        # Pictures of a folder are read in the same way.
        sample = decode_square(read_regular(path, MAX_ENCODED_BYTES), int(subject.opens.image_size))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a readable picture: {first_line(error)}") from None
    if subject.encoder.card.in_shape[0] == 1:
        sample = sample.float().mean(dim=0, keepdim=True).round().to(torch.uint8)
    return replace(_sample_queries(collection, sample[None], "")[0], name=str(path))


def _sample_queries(collection: SearchedSamples, samples: Tensor, name: str) -> list[_Query]:
    subject = collection.subject
    has_pictures = subject.encoder.card.kind == "images"
    if has_pictures != (samples.ndim == 4):
        kinds = ("pictures", "vectors")
        raise DataError(
            f"queries of shape {tuple(samples.shape)} are {kinds[samples.ndim != 4]}, and this encoder takes "
            f"{kinds[not has_pictures]}"
        )
    layer = collection.layer
    with LayerReader(subject.encoder, [layer]) as reader, torch.no_grad():
        vectors_QD = torch.cat([reader(part)[layer].cpu() for part in samples.split(256)])
    if not bool(torch.isfinite(vectors_QD).all()):
        raise DataError("the encoder gives NaN or infinity for a query; its weights or the query are damaged")
    return [
        _Query(f"{name} {place}".strip(), vector_D, None, sample)
        for place, (vector_D, sample) in enumerate(zip(vectors_QD, samples, strict=True))
    ]


def shared_concepts(query_D: Tensor, hit_D: Tensor) -> tuple[SharedConcept, ...]:
    """The dimensions that contribute most to a cosine; of non-negative vectors their shares add up to 1.

    >>> print(*shared_concepts(torch.tensor([0.6, 0.0, 0.8]), torch.tensor([0.0, 0.0, 1.0])))
    d2 100%
    """
    product_D = (query_D * hit_D).double()
    total = float(product_D.sum())
    if total <= 0:
        return ()
    best = product_D.sort(descending=True, stable=True)
    largest = zip(best.indices[:MOST_CONCEPTS].tolist(), best.values[:MOST_CONCEPTS].tolist(), strict=True)
    shares = [(dim, value / total) for dim, value in largest]
    return tuple(SharedConcept(dim, share) for dim, share in shares if share >= LEAST_SHARE)


def _random_pairs(vectors_ND: Tensor) -> Tensor:
    """Cosines of random pairs of different rows at unit length, ascending, float64; all pairs if there are few."""
    num_rows = len(vectors_ND)
    if num_rows * (num_rows - 1) // 2 <= NUM_PAIRS:
        first, second = torch.triu_indices(num_rows, num_rows, 1)
    else:
        generator = torch.Generator().manual_seed(0)
        first = torch.randint(num_rows, (NUM_PAIRS,), generator=generator)
        second = (first + torch.randint(1, num_rows, (NUM_PAIRS,), generator=generator)) % num_rows
    return (vectors_ND[first].double() * vectors_ND[second].double()).sum(dim=1).sort().values
