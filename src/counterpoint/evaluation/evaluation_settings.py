"""The settings of an evaluation. Loads without torch."""

from typing import Annotated

from pydantic import Field, Strict

from counterpoint.core.data_settings import LookSettings

Names = Annotated[tuple[str, ...], Strict(False)]  # a list will do


class EvaluationSettings(LookSettings):
    """What is measured, and how; the descriptions are the help of ``counterpoint evaluate``."""

    metrics: Names = Field(default=(), description="of `counterpoint list metrics`, or all (default: the usual ones)")
    protocol: Names = Field(
        default=(),
        description="of `counterpoint list protocols`: metrics, layers and more as published tables have them; or all "
        "that apply",
    )
    k: int = Field(default=20, description="neighbours that vote in kNN")
    temperature: Annotated[float, Field(allow_inf_nan=True)] = Field(  # `evaluate` says which are usable
        default=0.1, description="of the kNN vote: small trusts only the nearest"
    )
    inverse_penalty: Annotated[float, Field(gt=0)] = Field(
        default=0.1, description="C of the linear probe's squared penalty"
    )
    layers: Names = Field(
        default=(),
        description="representation, embedding, projected (embedding before its output map), subvector, or modules of "
        "the backbone",
    )
    corruptions: Names = Field(
        default=(),
        description="ask a classifier fitted to clean samples about corrupted queries: all, noise, blur, weather, "
        "digital, or names of `counterpoint list corruptions`",
    )
    severities: str = Field(default="1-5", description="of the corruptions, such as 3 or 1-5")
    ood: Names = Field(
        default=(),
        description="ask the same classifier about other sources of the same classes, by name",
        json_schema_extra={"whole": True},  # a flag that is repeated; commas belong to the name
    )
    selection: Names = Field(
        default=(),
        description="measure with the first features of these orders: first, random, expected-activation, "
        "non-negative-expected-activation, variance, pca, or all",
    )
    selection_step: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="keep multiples of so many features (default: 1, 2, 4, ...)"
    )
    out: str | None = Field(default=None, description="where the record goes (.json; default: by what is evaluated)")
