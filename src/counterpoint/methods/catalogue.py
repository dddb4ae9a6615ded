"""Named methods as data: what each paper fixes in one of the wirings. Loads without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from counterpoint.core.errors import unknown_name

Wiring = Literal["joint", "queue", "predictive", "cross-modal", "classification"]
Option = bool | int | float | str | None

EMBEDDING_DIMS = 128
ENCODES_BOTH = ("joint", "classification")  # wirings in which both views may pass the encoder together


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """Settings that a method decides when the user leaves them to ``auto``.

    Widths that a paper gives for one encoder are kept as shares of that encoder's width, so that they fit others.

    Attributes:
        summary: one line for help and reports.
        source: bibliography key.
        wiring: way in which the parts are put together, one file of ``methods`` each.
        loss: name of the loss in the catalogue of losses.
        options: arguments of the loss; what the user gives takes precedence.
        projector: kind of the projector: none, linear or mlp.
        projector_layers: number of layers of an mlp.
        projector_norm: ``batch`` for BatchNorm after its hidden layers, ``batch-plain`` without scale and shift, or
            ``none``.
        projector_output_norm: norm after its last layer, by the same names, where its hidden layers have one.
        hidden_share: hidden width of an mlp over the encoder's; None is the larger of the mlp's two ends.
        features: dimensions of the embedding, unless a share is given.
        features_share: dimensions of the embedding over the encoder's width.
        nonnegative: name of the non-negative output map, or none.
        d0_share: share of the representation's dimensions that the loss sees; None for all.
        negatives: vectors that repel an anchor, where the loss leaves it open.
        temperature: similarity scale, where the loss takes one.
        momentum: share of the momentum encoder that an update keeps; None if there is no such encoder.
        queue_size: number of past keys that are kept; None if there is no queue.
        predictor_share: hidden width of the predictor over the encoder's; None if there is no predictor.
        needs_labels: whether the method learns from labels.
        published: settings of its paper's runs that are not the default here, and the recipe with them; empty where
            there is none.
    """

    summary: str
    source: str
    wiring: Wiring = "joint"
    loss: str = "infonce"
    options: Mapping[str, Option] = field(default_factory=dict)
    projector: str = "mlp"
    projector_layers: int = 2
    projector_norm: str = "none"
    projector_output_norm: str = "none"
    hidden_share: float | None = None
    features: int = EMBEDDING_DIMS
    features_share: float | None = None
    nonnegative: str = "none"
    d0_share: float | None = None
    negatives: str = "two-view"
    temperature: float = 0.2  # ncl2024's code, for SimCLR and NCL
    momentum: float | None = None
    queue_size: int | None = None
    predictor_share: float | None = None
    needs_labels: bool = False
    published: str = ""

    @property
    def sentence(self) -> str:
        """Its description, and where its paper trains it in another way."""
        return f"{self.summary}; the paper: {self.published}" if self.published else self.summary

    def features_for(self, width: int) -> int:
        """Dimensions of the embedding for an encoder of some width."""
        # At least 2: in one dimension unit vectors are signs.
        return self.features if self.features_share is None else max(2, round(self.features_share * width))

    def hidden_for(self, width: int, features: int) -> int:
        """Hidden width of the mlp for an encoder and an embedding."""
        return max(width, features) if self.hidden_share is None else max(2, round(self.hidden_share * width))

    def predictor_hidden_for(self, width: int) -> int | None:
        """Hidden width of the predictor; None without one."""
        return None if self.predictor_share is None else max(2, round(self.predictor_share * width))


CATALOGUE: Mapping[str, MethodEntry] = {
    "simclr": MethodEntry(
        summary="contrast two views through a projector",
        source="simclr2020",
    ),
    "ncl": MethodEntry(
        summary="SimCLR with non-negative embeddings, whose dimensions are sparse and can be read",
        source="ncl2024, section 4",
        nonnegative="relu",  # the paper's; its CIFAR code has relu-gelu (compared in docs/decisions.md)
        published="LARS, its own views and projector, --recipe ncl-cifar10-resnet18",
    ),
    "directclr": MethodEntry(
        summary="no projector: the loss sees a sub-vector of the representation itself",
        source="directclr2022, section 6",
        projector="none",
        d0_share=360 / 2048,  # the authors' d0 for ResNet-50, from their code
        negatives="cross-view",
        temperature=0.1,
        published="LARS, two kinds of views (--views.preset directclr), --recipe directclr-imagenet-resnet50",
    ),
    "alpha-cl": MethodEntry(
        summary="choose by a rule how much each pair counts, closest pairs most, and follow that",
        source="alphacl2022, section 6",
        loss="alpha-cl",
        options={"rule": "direct"},  # p = 4 and tau = 0.5, the paper's best
        projector_norm="batch",  # the released code's, there without scale and shift
        hidden_share=1.0,  # 512-512-128 for ResNet-18
        temperature=0.5,
        published="Adam, BatchNorm without scale, its own schedule, --recipe alphacl-cifar10-resnet18",
    ),
    "mio": MethodEntry(
        summary="mutual information by a binary classifier of pairs: no sum over negatives inside a logarithm",
        source="mio2021, section 3.2",
        loss="mio-v3",
        hidden_share=1.0,  # 512-512-128 for ResNet-18
        published="SGD, lightly's views, --recipe mio-cifar10-resnet18; --views.preset mio is of its older code",
    ),
    "spectral": MethodEntry(
        summary="positives similar, other pairs orthogonal: factors the matrix of co-occurring views",
        source="haochen2021; ncl2024, Eq. 2",
        loss="spectral",
        negatives="cross-view",
        published="SGD, its own views and projector, --recipe ncl-cifar10-resnet18-spectral",
    ),
    "moco": MethodEntry(
        summary="contrast each view with a queue of keys from a slowly moving encoder: many negatives, small batches",
        source="he2020; chen2020",
        wiring="queue",
        hidden_share=1.0,  # 2048-2048-128 for ResNet-50
        momentum=0.99,  # for CIFAR; 0.999 on ImageNet
        queue_size=4096,  # for CIFAR; 65536 on ImageNet
    ),
    "byol": MethodEntry(
        summary="predict the other view's embedding by a slowly moving encoder; no negatives",
        source="grill2020, section 3",
        wiring="predictive",
        loss="regression",
        options={"form": "squared"},
        projector_norm="batch",
        hidden_share=2.0,  # 2048-4096-256 for ResNet-50
        features=256,
        momentum=0.996,
        predictor_share=2.0,  # 256-4096-256
    ),
    "simsiam": MethodEntry(
        summary="predict the other view's embedding, which gets no gradient; no negatives, no second encoder",
        source="chen2021, section 3",
        wiring="predictive",
        loss="regression",
        options={"form": "cosine"},
        projector_layers=3,
        projector_norm="batch",
        projector_output_norm="batch-plain",
        hidden_share=1.0,  # 2048-2048-2048-2048 for ResNet-50
        features_share=1.0,
        predictor_share=0.25,  # 2048-512-2048
    ),
    "barlow-twins": MethodEntry(
        summary="features of two views correlate one to one, and different features do not correlate",
        source="zbontar2021",
        loss="barlow-twins",
        projector_layers=3,
        projector_norm="batch",
        hidden_share=4.0,  # 2048-8192-8192-8192 for ResNet-50
        features_share=4.0,
    ),
    "vicreg": MethodEntry(
        summary="views agree, every feature varies, and no two features are correlated",
        source="bardes2022",
        loss="vicreg",
        projector_layers=3,
        projector_norm="batch",
        hidden_share=4.0,  # 2048-8192-8192-8192 for ResNet-50
        features_share=4.0,
    ),
    "lejepa": MethodEntry(
        summary="views agree, and random slices of the embedding look standard normal; no teacher, no stop-gradient",
        source="balestriero2025, LeJEPA",
        loss="sigreg",
        projector_layers=3,
        projector_norm="batch",
        hidden_share=4.0,  # 512-2048-2048-128 for ResNet-18
        published="two global and six local views, --views.local-crops 6",
    ),
    "visreg": MethodEntry(
        summary="views agree, every feature varies, and random slices have the shape of a Gaussian",
        source="wu2026, VISReg",
        loss="visreg",
        projector_layers=3,
        projector_norm="batch",
        hidden_share=4.0,
    ),
    "rectified-lejepa": MethodEntry(
        summary="views agree, and random slices are those of a sparse, non-negative target",
        source="kuang2026, Rectified LpJEPA",
        loss="rdmreg",
        projector_layers=3,
        projector_norm="batch",
        hidden_share=4.0,
        features_share=1.0,
        nonnegative="relu",
    ),
    "supcon": MethodEntry(
        summary="SimCLR with labels: all samples of a class attract each other",
        source="khosla2020",
        loss="supcon",
        hidden_share=1.0,  # 2048-2048-128 for ResNet-50
        temperature=0.1,  # khosla2020's
        needs_labels=True,
    ),
    "cross-modal": MethodEntry(
        summary="two encoders for paired data, such as pictures and caption vectors, in one space",
        source="radford2021, section 2",
        wiring="cross-modal",
        loss="cross-modal",
        projector="linear",
        negatives="cross-view",
        temperature=0.07,  # learned from there
    ),
    # ncl2024, section 6 and G.6, trains both losses with and without a projector and calls neither the default. Both
    # have no head here: the classifier sees the representation, and the two losses are compared on one architecture.
    "supervised": MethodEntry(
        summary="cross-entropy with labels on both views, to compare with",
        source="ncl2024, section 6",
        wiring="classification",
        loss="cross-entropy",
        projector="none",
        needs_labels=True,
        published="SGD, crops and flips only, --recipe ncl-imagenet100-resnet18-supervised",
    ),
    "nonnegative-supervised": MethodEntry(
        summary="cross-entropy with non-negative features and class weights, whose dimensions can be read",
        source="ncl2024, section 6",
        wiring="classification",
        loss="nonnegative-cross-entropy",
        projector="none",
        nonnegative="relu",
        needs_labels=True,
        published="SGD, crops and flips only, --recipe ncl-imagenet100-resnet18-supervised-nce",
    ),
}


def method_named(name: str) -> MethodEntry:
    """The method of a name.

    Raises:
        UsageError: no such method; the message has the nearest name.
    """
    if name not in CATALOGUE:
        raise unknown_name("method", name, CATALOGUE)
    return CATALOGUE[name]


def chosen(value: Any, otherwise: Any) -> Any:
    """Return a setting, or what holds if it is left at ``auto``."""
    return otherwise if value == "auto" else value
