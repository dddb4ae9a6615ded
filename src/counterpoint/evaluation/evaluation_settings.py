"""The settings of an evaluation. Loads without torch."""

from typing import Annotated, Literal

from pydantic import Field, InstanceOf, Strict

from counterpoint.core.data_settings import LookSettings

Names = Annotated[tuple[str, ...], Strict(False)]  # a list will do
Encoders = Annotated[tuple[InstanceOf[str], ...], Strict(False)]  # kept as they are: see `core.own_parts.FlagText`


class EvaluationSettings(LookSettings):
    """What is measured, and how.

    Attributes:
        protocol: names of published tables, which say metrics, layers and more; empty for none.
        layers: of the encoder; empty for representation and embedding.
        out: JSON file to write; None chooses it.
        metrics: by name; empty for those that are not for request.
        k: neighbours that vote.
        temperature: of their votes.
        similarity: by which they are the nearest.
        weighting: of their votes.
        inverse_penalty: C of the linear probe.
        absent_classes: what happens to queries of classes that the bank lacks.
        same_classes: the name that a class of other data (queries, ``ood``) has in the bank, by its own.
        corruptions: that a frozen classifier is asked under, by name or kind.
        severities: of each corruption, such as 1-5.
        reference: whose errors divide in mCE.
        ood: other sources that the frozen classifier is asked about.
        selection: orders of the features for curves.
        selection_step: curves keep multiples of it; None for 1, 2, 4, ...
        baselines: encoders from elsewhere to compare with.
        baseline_weights: their files, in that order; encoders without a file have random weights.
        rank_on: data that the orders are made from; None for the bank.
    """

    protocol: Names = ()
    layers: Names = ()
    out: str | None = None
    metrics: Names = ()
    k: int = 20
    temperature: Annotated[float, Field(allow_inf_nan=True)] = 0.1  # `evaluate` says which are usable
    similarity: Literal["cosine", "euclidean"] = "cosine"
    weighting: Literal["exp", "uniform", "inverse"] = "exp"
    inverse_penalty: Annotated[float, Field(gt=0)] = 0.1
    absent_classes: Literal["refuse", "exclude"] = "refuse"
    same_classes: dict[str, str] = Field(default_factory=dict)
    corruptions: Names = ()
    severities: str = "1-5"
    reference: Literal["pixels", "untrained", "none"] = "pixels"
    ood: Names = ()
    selection: Names = ()
    selection_step: Annotated[int, Field(ge=1)] | None = None
    rank_on: str | None = None
    baselines: Encoders = ()
    baseline_weights: Names = ()
