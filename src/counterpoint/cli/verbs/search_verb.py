"""Find the samples of a collection that are most similar to a query: a picture file, a folder of pictures, an
array file, a row number, or the name of a sample. Each hit comes with the share of random pairs that are less similar
and, where dimensions have a meaning (non-negative embeddings, as in ncl), with those that it shares with the query.
Every sample is compared.

examples:
  counterpoint search runs/photos holiday.jpg --out hits.html
  counterpoint search runs/photos 17 cats/4.jpg -k 5 --json
  counterpoint search runs/photos new.jpg --to other_photos/
  counterpoint search runs/photos --duplicates --out copies.html
  counterpoint search runs/photos --duplicates --buckets 1000 --engine ray"""

from counterpoint.cli.arguments import EngineFlags, Names, RunFlags, chosen, engine_from, option
from counterpoint.cli.outputs import page_writer, print_found
from counterpoint.core.errors import UsageError
from counterpoint.search import SearchSettings

PLACE, SUMMARY = 53, "find the samples most like a picture, a row or a name, and why"


class SearchFlags(EngineFlags, RunFlags, SearchSettings):
    """Settings of ``search``: the queries, and the samples to search."""

    queries: Names = option("picture, folder, array file, row, or sample name", (), place="QUERY")
    k: int = option("hits per query", 10, flag="-k")
    to: str | None = option("samples to search (default: the run's own)")
    duplicates: bool = option("instead of queries: groups of near-duplicates", False)
    threshold: float | None = option("with --duplicates: least cosine of a pair")
    buckets: int | None = option(
        "with --duplicates: compare embeddings in so many k-means buckets, for rows too many to compare all"
    )
    out: str | None = option("an HTML page with pictures")


def run(flags: SearchFlags) -> None:
    """Answer the queries, print the answer, and draw the page."""
    if flags.duplicates == bool(flags.queries):
        raise UsageError("--duplicates takes no QUERY" if flags.queries else "give at least one QUERY, or --duplicates")
    for name in ("threshold", "buckets"):
        if getattr(flags, name) is not None and not flags.duplicates:
            raise UsageError(f"--{name} goes with --duplicates")
    engine = engine_from(flags)
    write = page_writer(flags.out, "search")
    from counterpoint.evaluation.features import encoded_by  # deferred: loads torch
    from counterpoint.search.duplicates import Buckets, duplicates  # deferred: loads torch
    from counterpoint.search.searching import search  # deferred: loads torch

    options = {"to": flags.to, "pictures": flags.out is not None, "quiet": flags.quiet, **chosen(flags, SearchSettings)}
    with encoded_by(engine):
        if flags.duplicates:
            buckets = None if flags.buckets is None else Buckets(flags.buckets, engine)
            result = duplicates(flags.run, threshold=flags.threshold, buckets=buckets, **options)
        else:
            result = search(flags.run, list(flags.queries), k=flags.k, **options)
    print_found(result, as_json=flags.as_json, page=write(result))
