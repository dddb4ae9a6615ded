"""The settings of a search; their descriptions are the help of ``counterpoint search``. Loads without torch."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, Strict

from counterpoint.core.data_settings import Count, LookSettings


class SearchSettings(LookSettings):
    """What is searched, and how."""

    layer: str = Field(
        default="auto",
        description="auto (the embedding where its dimensions have a meaning or pairs were trained, else the "
        "representation), embedding, representation, or a module of the backbone",
    )
    method: Literal["auto", "exact", "hnsw"] = Field(default="auto", description="of an index that is built")
    exact: bool = Field(default=False, description="compare every row, whatever the method of the index")
    dims: Count | None = Field(
        default=None, description="keep so many dimensions, those of the largest expected activation"
    )
    second: bool = Field(default=False, description="queries are of the second kind of a cross-modal run")
    rebuild: bool = Field(default=False, description="make the index again")
    shards: Annotated[Path, Strict(False)] | None = Field(
        default=None, description="folder of what embed --shards wrote of these samples: the index is built of it"
    )
