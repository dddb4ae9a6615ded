"""Named methods as data: what each paper fixes in the one joint-embedding wiring. Loads without torch."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """What a method decides when the user leaves it to ``auto``.

    Attributes:
        summary: one line for help and reports.
        source: bibliography key.
        projector: none, linear or mlp.
        nonnegative: non-negative output map, or none.
        d0_share: share of the representation's dimensions that the loss sees; None for all.
        negatives: which vectors repel an anchor.
        temperature: similarity scale.
    """

    summary: str
    source: str
    projector: str
    nonnegative: str
    d0_share: float | None
    negatives: str
    temperature: float


CATALOGUE: Mapping[str, Method] = {
    "simclr": Method(
        summary="contrast two views through a projector",
        source="simclr2020",
        projector="mlp",
        nonnegative="none",
        d0_share=None,
        negatives="two-view",
        temperature=0.2,
    ),
    "ncl": Method(
        summary="SimCLR with non-negative embeddings, whose dimensions are sparse and can be read",
        source="ncl2024, section 4",
        projector="mlp",
        nonnegative="relu",  # the paper's; its CIFAR code has relu-gelu (compared in docs/architecture.md)
        d0_share=None,
        negatives="two-view",
        temperature=0.2,
    ),
    "directclr": Method(
        summary="no projector: the loss sees a sub-vector of the representation itself",
        source="directclr2022, section 6",
        projector="none",
        nonnegative="none",
        d0_share=360 / 2048,  # the authors' d0 for ResNet-50, from their code
        negatives="cross-view",
        temperature=0.1,
    ),
}
