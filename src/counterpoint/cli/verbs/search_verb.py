"""`counterpoint search`."""

from pathlib import Path
from typing import Any

from pydantic import Field

from counterpoint.cli.arguments import CHOOSING, Json, RunFlags, given
from counterpoint.cli.outputs import page_writer, print_found
from counterpoint.core.data_settings import LookSettings
from counterpoint.core.errors import UsageError, gone
from counterpoint.core.rundir import open_run
from counterpoint.evaluation.evaluation_settings import Names

PLACE, SUMMARY = 53, "find the samples most like a picture, a row or a name, and why"
TEACH = """Find the samples of a collection that are most like a query: a picture file, a folder of pictures, an array
file, the number of a row, or the name of a sample. Each hit comes with the share of random pairs that are less similar
and, where dimensions have a meaning (non-negative embeddings, as of ncl), with those that it shares with the query. The
index is kept in the run folder; every sample is compared, but in very large collections.

examples:
  counterpoint search runs/photos holiday.jpg --out hits.html
  counterpoint search runs/photos 17 cats/4.jpg -k 5 --json
  counterpoint search runs/photos new.jpg --to other_photos/
  counterpoint search runs/photos --duplicates --out copies.html
  counterpoint search runs/photos 17 --dims 64"""
SETTINGS = CHOOSING


class SearchFlags(RunFlags, LookSettings):
    """What is asked, and where it is looked for."""

    queries: Names = Field(
        default=(), description="picture, folder, array file, row, or sample name", json_schema_extra={"place": "QUERY"}
    )
    k: int = Field(default=10, description="hits of each query", json_schema_extra={"flag": "-k"})
    to: str | None = Field(default=None, description="search in other samples (default: the run's own)")
    layer: str = Field(
        default="auto",
        description="auto (the embedding where its dimensions have a meaning or pairs were trained, else the "
        "representation), embedding, representation, or a module of the backbone",
    )
    dims: str | None = Field(default=None, description="keep so many dimensions, of the largest expected activation")
    second: bool = Field(default=False, description="queries are of the second kind of a cross-modal run")
    duplicates: bool = Field(default=False, description="instead of queries: groups of near-duplicates")
    threshold: float | None = Field(default=None, description="with --duplicates: least cosine of a pair")
    method: str = Field(default="auto", description="of an index that is built: auto, exact or hnsw")
    exact: bool = Field(default=False, description="compare every row, whatever the index")
    shards: str | None = Field(
        default=None, description="folder of what embed --shards wrote of these samples: the index is built of it"
    )
    rebuild: bool = Field(default=False, description="make the index again")
    out: str | None = Field(default=None, description="an HTML page with pictures")
    as_json: Json = False


FLAGS = SearchFlags


def run(flags: SearchFlags, settings: dict[str, Any]) -> int:
    """Answer, print, and draw the page."""
    open_run(Path(flags.run))  # before torch is loaded
    if flags.duplicates == bool(flags.queries):
        raise UsageError("--duplicates takes no QUERY" if flags.queries else "give at least one QUERY, or --duplicates")
    if flags.threshold is not None and not flags.duplicates:
        raise UsageError("--threshold goes with --duplicates")
    if flags.second and not flags.queries:
        raise UsageError("--second goes with a QUERY")
    if flags.dims is not None and not flags.dims.isdecimal():
        raise UsageError(gone(f"dims {flags.dims}") or f"--dims must be a whole number, got {flags.dims!r}")
    write = page_writer(flags.out, "search")
    from counterpoint.search.duplicates import duplicates  # deferred: loads torch
    from counterpoint.search.searching import search  # deferred: loads torch

    options = {**given(flags, LookSettings), **settings.get("source", {}), "quiet": flags.quiet, "to": flags.to}
    options |= {"layer": flags.layer, "method": flags.method, "rebuild": flags.rebuild}
    options |= {"dims": flags.dims and int(flags.dims), "shards": flags.shards and Path(flags.shards)}
    options |= {"pictures": flags.out is not None}
    if flags.duplicates:
        found = duplicates(flags.run, threshold=flags.threshold, **options)
    else:
        queries = list(flags.queries)
        found = search(flags.run, queries, k=flags.k, exact=flags.exact, second=flags.second, **options)
    print_found(found, as_json=flags.as_json, page=write(found))
    return 0
