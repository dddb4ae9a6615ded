"""The settings of a search; their descriptions are the help of ``counterpoint search``. Loads without torch."""

from pydantic import Field

from counterpoint.core.data_settings import LookSettings


class SearchSettings(LookSettings):
    """What is searched, and how."""

    layer: str = Field(
        default="auto",
        description="auto (the embedding where its dimensions have a meaning or pairs were trained, else the "
        "representation), embedding, representation, or a module of the backbone",
    )
    rebuild: bool = Field(default=False, description="make the index again")
