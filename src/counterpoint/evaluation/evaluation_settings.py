"""The settings of an evaluation. Loads without torch."""

from typing import Annotated, Any, Literal

from pydantic import Field, InstanceOf, Strict

from counterpoint.core.data_settings import LookSettings

Names = Annotated[tuple[str, ...], Strict(False)]  # a list will do
Encoders = Annotated[tuple[InstanceOf[str], ...], Strict(False)]  # kept as they are: see `core.user_objects.FlagText`


WHOLE: Any = {"whole": True}  # a flag that is repeated; commas belong to the name


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
    similarity: Literal["cosine", "euclidean"] = Field(default="cosine", description="by which neighbours are near")
    weighting: Literal["exp", "uniform", "inverse"] = Field(default="exp", description="of their votes")
    inverse_penalty: Annotated[float, Field(gt=0)] = Field(
        default=0.1, description="C of the linear probe's squared penalty"
    )
    absent_classes: Literal["refuse", "exclude"] = Field(
        default="refuse", description="what happens to queries of classes that the bank lacks"
    )
    same_classes: dict[str, str] = Field(
        default_factory=dict,
        description="what classes of --test-data and --ood are called in the bank, such as car=automobile,boat=ship",
    )
    layers: Names = Field(
        default=(),
        description="representation, embedding, projected (embedding before its output map), subvector, or modules of "
        "the backbone",
    )
    corruptions: Names = Field(
        default=(),
        description="ask a classifier fitted to clean samples about corrupted queries: all, or names of "
        "`counterpoint list corruptions`",
    )
    severities: str = Field(default="1-5", description="of the corruptions, such as 3 or 1-5")
    reference: Literal["pixels", "untrained", "none"] = Field(
        default="pixels", description="whose errors divide in mCE"
    )
    ood: Names = Field(
        default=(),
        description="ask the same classifier about other sources of the same classes, by name",
        json_schema_extra=WHOLE,
    )
    selection: Names = Field(
        default=(),
        description="measure with the first features of these orders: first, random, expected-activation, "
        "non-negative-expected-activation, variance, pca, or all",
    )
    selection_step: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="keep multiples of so many features (default: 1, 2, 4, ...)"
    )
    rank_on: str | None = Field(
        default=None, description="data that the orders are made from (default: the labelled samples)"
    )
    baselines: Encoders = Field(
        default=(),
        description="encoders from elsewhere to compare with, named as for --encoder",
        json_schema_extra={**WHOLE, "flag": "--baseline"},
    )
    baseline_weights: Names = Field(
        default=(),
        description="their weights, in the same order (default: random ones)",
        json_schema_extra=WHOLE,
    )
    out: str | None = Field(default=None, description="where the record goes (.json; default: by what is evaluated)")
