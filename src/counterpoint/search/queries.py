"""What a user asks about: a picture, a folder, rows, names of samples, or arrays."""

# Q queries, D features

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterpoint.core.array_layout import to_samples
from counterpoint.core.errors import DataError, UsageError, first_line, nearest
from counterpoint.core.user_files import read_regular
from counterpoint.data.formats.image_files import MAX_ENCODED_BYTES, SUFFIXES, decode_square
from counterpoint.evaluation.subject import open_queries
from counterpoint.nn.layer_outputs import LayerReader
from counterpoint.search.run_index import RunIndex

MOST_QUERIES = 10_000  # of one call; more are a job for a table (`counterpoint embed`)


@dataclass(frozen=True)
class Query:
    """One thing that is asked about.

    Attributes:
        name: what it is called.
        vector_D: what is searched for.
        row: its place in the collection; None for what comes from elsewhere.
        sample: as ``data.stores`` give it, (c, h, w) or (d,); None for rows, which the collection holds.
        label: its class, or None.
    """

    name: str
    vector_D: Tensor
    row: int | None = None
    sample: Tensor | None = None
    label: str | None = None


def find_queries(known: RunIndex, asked: Any) -> list[Query]:
    """The queries that are meant, in order.

    Args:
        known: the collection and its encoder.
        asked: one or a list of: a row (a whole number, or its digits), the name of a sample, a picture file, a folder
            of pictures, an array file (``.npy``, ``.npz``); or an array of samples.

    Raises:
        UsageError: nothing of that name, a row that does not exist, or too many.
        DataError: samples that the encoder cannot take.
    """
    words = [asked] if isinstance(asked, str | Path | int) or hasattr(asked, "__array__") else list(asked)
    if not words:
        raise UsageError("nothing is asked about: give a picture, a folder, a row or the name of a sample")
    queries = [query for word in words for query in _queries_of(known, word)]
    if len(queries) > MOST_QUERIES:
        raise UsageError(f"at most {MOST_QUERIES:,} queries are answered in one call, got {len(queries):,}")
    return queries


def _queries_of(known: RunIndex, word: Any) -> list[Query]:
    """Those of one thing that is asked about."""
    if hasattr(word, "__array__"):
        return _of_samples(known, to_samples(word, name="queries"), "query")
    if isinstance(word, str | Path) and Path(word).exists():
        return _of_path(known, Path(word))
    row = _row(known, word)
    label = None if known.index.labels is None else known.index.labels[row]
    return [Query(known.index.names[row], known.index.vectors(torch.tensor([row]))[0], row, None, label)]


def _of_path(known: RunIndex, path: Path) -> list[Query]:
    """Samples of a file or a folder, as the encoder takes them."""
    subject = known.subject
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return [_of_picture(known, path)]
    source = open_queries(subject.opens, str(path), None, part={}, reporter=known.reporter)
    found = _of_samples(known, source.store.fetch(list(range(min(len(source), MOST_QUERIES + 1)))), "")
    labels = source.classes() or [None] * len(found)
    return [
        replace(query, name=name, label=label)
        for query, name, label in zip(found, source.sample_names, labels, strict=False)
    ]


def _of_picture(known: RunIndex, path: Path) -> Query:
    """One picture file."""
    subject = known.subject
    if subject.source.kind != "images":
        raise DataError(f"{path} is a picture, and {known.about.data} holds vectors; ask with an array file or a row")
    try:
        # The same way as pictures of a folder are read.
        sample = decode_square(read_regular(path, MAX_ENCODED_BYTES), int(subject.opens.image_size))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no picture that can be read: {first_line(error)}") from None
    if subject.encoder.card.in_shape[0] == 1:
        sample = sample.float().mean(dim=0, keepdim=True).round().to(torch.uint8)
    return replace(_of_samples(known, sample[None], "")[0], name=str(path))


def _of_samples(known: RunIndex, samples: Tensor, name: str) -> list[Query]:
    """Samples in memory."""
    subject = known.subject
    has_pictures = subject.encoder.card.kind == "images"
    if has_pictures != (samples.ndim == 4):
        kinds = ("pictures", "vectors")
        raise DataError(
            f"queries of shape {tuple(samples.shape)} are {kinds[samples.ndim != 4]}, and this encoder takes "
            f"{kinds[not has_pictures]}"
        )
    layer = known.about.layer
    with LayerReader(subject.encoder, [layer]) as reader, torch.no_grad():
        vectors_QD = torch.cat([reader(part)[layer].cpu() for part in samples.split(256)])
    if not bool(torch.isfinite(vectors_QD).all()):
        raise DataError("the encoder gives NaN or infinity for a query; its weights or the query are damaged")
    return [
        Query(f"{name} {place}".strip(), vector_D, None, sample)
        for place, (vector_D, sample) in enumerate(zip(vectors_QD, samples, strict=True))
    ]


def _row(known: RunIndex, word: Any) -> int:
    """The row of a number or a name."""
    text, names = str(word), known.index.names
    if isinstance(word, int) or (text.isascii() and text.isdigit() and text not in names):
        row = int(word)
        if not 0 <= row < len(known.index):
            raise UsageError(f"row must be between 0 and {len(known.index) - 1:,}, got {row}")
        return row
    if text in names:
        return names.index(text)
    raise UsageError(f"{text!r} is no file, row or name of a sample of {known.about.data}{nearest(text, names)}")
