"""Search of a run's embeddings by picture, row or name, with the reason of every hit."""

from counterpoint.core.catalogues import call_as
from counterpoint.core.settings import LookSettings, option


class SearchSettings(LookSettings):
    """Settings of a search; the descriptions are the help of ``counterpoint search``."""

    layer: str = option("auto, embedding, representation, or a module of the backbone", "auto")


call_as(__name__, "searching.search")
