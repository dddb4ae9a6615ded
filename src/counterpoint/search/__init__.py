"""Search of a run's embeddings by picture, row or name, with the reason of every hit."""

from counterpoint.core.catalogues import call_as

call_as(__name__, "searching.search")
