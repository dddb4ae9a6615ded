"""The settings of an evaluation. Loads without torch."""

from typing import Annotated

from pydantic import Field, Strict

from counterpoint.core.settings import LookSettings, option

Names = Annotated[tuple[str, ...], Strict(False)]  # a list will do


class EvaluationSettings(LookSettings):
    """Settings of an evaluation; the descriptions are the help of ``counterpoint evaluate``."""

    metrics: Names = option("of `counterpoint list metrics`, or all (default: the usual ones)", ())
    k: int = option("neighbours that vote in kNN", 20)
    # `evaluate` says which are usable.
    temperature: Annotated[float, Field(allow_inf_nan=True)] = option(
        "of the kNN vote: small trusts only the nearest", 0.1
    )
    inverse_penalty: Annotated[float, Field(gt=0)] = option("C of the linear probe's squared penalty", 0.1)
    layers: Names = option(
        "representation, embedding, projected (embedding before its output map), subvector, or modules of the backbone",
        (),
    )
    corruptions: Names = option(
        "ask a classifier fitted to clean samples about corrupted queries: all, noise, blur, weather, "
        "digital, or names of `counterpoint list corruptions`",
        (),
    )
    severities: str = option("of the corruptions, such as 3 or 1-5", "1-5")
    ood: Names = option(  # a flag that is repeated; commas belong to the name
        "ask the same classifier about other sources of the same classes, by name", (), whole=True
    )
    selection: Names = option(
        "measure with the first features of these orders: first, random, expected-activation, "
        "non-negative-expected-activation, variance, pca, or all",
        (),
    )
    selection_step: Annotated[int, Field(ge=1)] | None = option(
        "keep multiples of this number of features (default: 1, 2, 4, ...)"
    )
    out: str | None = option("where the record goes (.json; default: by what is evaluated)")
