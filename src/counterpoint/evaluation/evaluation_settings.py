"""The settings of an evaluation, and those of published tables by name. Loads without torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, Strict

from counterpoint.core.data_settings import LookSettings, option
from counterpoint.core.errors import UsageError, unknown_name

ALL = "all"  # protocols
FIXED = ("metrics", "layers", "k", "temperature")  # what a protocol says, and no user
Names = Annotated[tuple[str, ...], Strict(False)]  # a list will do


class EvaluationSettings(LookSettings):
    """What is measured, and how; the descriptions are the help of ``counterpoint evaluate``."""

    metrics: Names = option("of `counterpoint list metrics`, or all (default: the usual ones)", ())
    protocol: Names = option(
        "of `counterpoint list protocols`: metrics, layers and more as published tables have them; or all that apply",
        (),
    )
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
        "keep multiples of so many features (default: 1, 2, 4, ...)"
    )
    out: str | None = option("where the record goes (.json; default: by what is evaluated)")


@dataclass(frozen=True)
class Protocol:
    """How the figures of a published table were measured.

    Attributes:
        name: key of the bibliography and number of the table.
        table: the paper and its table.
        metrics: names of the catalogue.
        layers: of the encoder.
        settings: of ``EvaluationSettings``, where they are not the usual ones.
        remark: what the table has that this has not, or the other way round; empty for nothing.
    """

    name: str
    table: str
    metrics: tuple[str, ...]
    layers: tuple[str, ...] = ("representation",)
    settings: Mapping[str, Any] = field(default_factory=dict)
    remark: str = ""


PROTOCOLS = (
    Protocol(
        name="alphacl2022-table1",
        table="alpha-CL, Tables 1 to 4: a linear classifier trained by Adam for 50 epochs on standardised features",
        metrics=("adam probe",),
        remark="the paper prints the best test accuracy of the 50 epochs, this the last one",
    ),
    Protocol(
        name="mio2021-table2",
        table="MIO, Tables 2 and 3: votes of the 200 nearest neighbours, temperature 0.1",
        metrics=("knn-200",),
        remark="lightly's benchmark prints the best of all epochs of training, this is of the encoder given",
    ),
    Protocol(
        name="directclr2022-table1",
        table="DirectCLR, Table 1: a linear classifier trained by SGD for 100 epochs",
        metrics=("sgd probe",),
        remark="the paper prints the best epoch, with crops and flips of the training pictures",
    ),
    Protocol(
        name="ncl2024-table1",
        table="NCL, Table 1: probe and retrieval with 256 of 512 features, chosen at random and by expected activation",
        metrics=("linear probe", "mAP@10", "precision@10"),
        layers=("projected",),
        settings={"selection": ("random", "expected-activation", "non-negative-expected-activation")},
        remark="its mAP@10 is precision@10 in its code, of the test samples among themselves; transfer: --data and "
        "--test-data of another set",
    ),
    Protocol(
        name="ncl2024-table2",
        table="NCL, Table 2: separability of features, SEPIN@k",
        metrics=("sepin@1", "sepin@10", "sepin@100", "sepin"),
        layers=("embedding",),
        remark="the paper's formula lacks a sign, and its negatives, views and temperature are not said",
    ),
    Protocol(
        name="ncl2024-table3a",
        table="NCL, Table 3a, linear probing on CIFAR: a linear classifier trained by LARS for 50 epochs",
        metrics=("lars probe",),
        remark="its fine-tuning: counterpoint fine-tune; with crops and flips of the training pictures",
    ),
    Protocol(
        name="ncl2024-table3a-imagenet",
        table="NCL, Table 3a, linear probing on ImageNet-100: a linear classifier trained by SGD at the rate 1",
        metrics=("fast sgd probe",),
        remark="with crops and flips of the training pictures",
    ),
    Protocol(
        name="ncl2024-table3b",
        table="NCL, Table 3b: a classifier of clean samples asked about corrupted ones",
        metrics=("linear probe",),
        settings={"corruptions": ("all",)},
        remark="its stylised pictures and sketches: --ood DATA; the paper's classifier is that of Table 3a",
    ),
    Protocol(
        name="ncl2024-table4",
        table="NCL, Table 4: the classifier that was trained with the encoder, by CE or NCE",
        metrics=("classifier",),
        layers=("representation", "embedding"),
    ),
    Protocol(
        name="ncl2024-table6",
        table="NCL, Table 6: mutual information gap of features and factors on dSprites",
        metrics=("mig",),
        layers=("embedding",),
        remark="the paper trained for it with another code, whose latent size it does not say",
    ),
    Protocol(
        name="ncl2024-table7",
        table="NCL, Table 7: the linear probe of Table 3a on projector outputs, with and without their output map",
        metrics=("lars probe",),
        layers=("projected", "embedding"),
        remark="here the mapped outputs have unit length",
    ),
)
CATALOGUE: Mapping[str, Protocol] = {protocol.name: protocol for protocol in PROTOCOLS}


def chosen_protocols(names: Sequence[str]) -> tuple[Protocol, ...]:
    """The protocols of some names; ``all`` for all of them.

    Raises:
        UsageError: there is none of a name.

    >>> [protocol.metrics for protocol in chosen_protocols(["mio2021-table2"])]
    [('knn-200',)]
    """
    for name in names:
        if name not in CATALOGUE and name != ALL:
            raise unknown_name("protocol", name, [*CATALOGUE, ALL])
    return PROTOCOLS if ALL in names else tuple(CATALOGUE[name] for name in dict.fromkeys(names))


def with_protocols(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an evaluation with those that its protocols say.

    Args:
        asked: what a user gave, perhaps ``protocol``.

    Raises:
        UsageError: an unknown protocol, or a setting beside it that the protocol fixes.
    """
    protocols = chosen_protocols(asked.get("protocol", ()))
    if not protocols:
        return dict(asked)
    if given := [name for name in FIXED if name in asked]:
        raise UsageError(f"{given[0]} is what a protocol says; leave one of the two out")
    settings: dict[str, Any] = {}
    for protocol in protocols:
        settings |= protocol.settings
    names = dict.fromkeys(name for protocol in protocols for name in protocol.metrics)
    layers = dict.fromkeys(name for protocol in protocols for name in protocol.layers)
    # What a user gives besides goes before, such as fewer corruptions.
    return {**settings, **asked, "metrics": tuple(names), "layers": tuple(layers)}
