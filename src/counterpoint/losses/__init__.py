"""Contrastive losses. Each is called as ``loss(z0, z1, labels=None)`` and can say what it does to each pair.

``explain(loss)`` prints what a loss is; ``docs/losses.md`` has them all in one table.
"""

from collections.abc import Callable, Mapping

from counterpoint.losses import (
    bimodal,
    binary,
    decoupled,
    family,
    hard_negatives,
    imbalanced,
    importance,
    linear_classes,
    nonnegative_classes,
    redundancy,
    regression,
    sigmoid_pair,
    sparsity,
    spectral,
    supervised,
)
from counterpoint.losses.alpha_rules import Direct, Entropy, FixedInverse, InversePower, Square
from counterpoint.losses.attention import Attention
from counterpoint.losses.bimodal import CrossModal, CrossModalSpectral
from counterpoint.losses.binary import MIOv1, MIOv2, MIOv3
from counterpoint.losses.blocks import Pairing
from counterpoint.losses.decoupled import DCLW
from counterpoint.losses.explain import explain
from counterpoint.losses.family import (
    DCL,
    MINE,
    InfoNCE,
    LiftedStructured,
    LinearTriplet,
    ModifiedTriplet,
    NPlusOneTuplet,
    SoftTriplet,
    Triplet,
)
from counterpoint.losses.hard_negatives import HardNegatives
from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.losses.importance import AlphaCL
from counterpoint.losses.linear_classes import CrossEntropy
from counterpoint.losses.loss import Loss, LossCard, Part
from counterpoint.losses.nonnegative_classes import NonNegativeCrossEntropy
from counterpoint.losses.own_rule import OwnRule
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.losses.pairs import Phi, Psi
from counterpoint.losses.redundancy import BarlowTwins, VICReg
from counterpoint.losses.regression import Regression
from counterpoint.losses.sigmoid_pair import SigmoidPair
from counterpoint.losses.sparsity import SparsityPenalty
from counterpoint.losses.spectral import SpectralContrastive
from counterpoint.losses.supervised import MultiPositive, SupCon

__all__ = [
    "CATALOGUE",
    "DCL",
    "DCLW",
    "MINE",
    "AlphaCL",
    "Attention",
    "BarlowTwins",
    "CrossEntropy",
    "CrossModal",
    "CrossModalSpectral",
    "Direct",
    "Entropy",
    "FixedInverse",
    "GeneralizedContrastive",
    "HardNegatives",
    "InfoNCE",
    "InversePower",
    "LiftedStructured",
    "LinearTriplet",
    "Loss",
    "LossCard",
    "MIOv1",
    "MIOv2",
    "MIOv3",
    "ModifiedTriplet",
    "MultiPositive",
    "NPlusOneTuplet",
    "NonNegativeCrossEntropy",
    "OwnRule",
    "PairLoss",
    "Pairing",
    "Part",
    "Phi",
    "Psi",
    "Regression",
    "SigmoidPair",
    "SoftTriplet",
    "SparsityPenalty",
    "SpectralContrastive",
    "Square",
    "SupCon",
    "Triplet",
    "VICReg",
    "explain",
]

CATALOGUE: Mapping[str, Callable[..., Loss]] = {
    **family.CATALOGUE,
    **importance.CATALOGUE,
    **binary.CATALOGUE,
    **decoupled.CATALOGUE,
    **spectral.CATALOGUE,
    **sigmoid_pair.CATALOGUE,
    **supervised.CATALOGUE,
    **imbalanced.CATALOGUE,
    **bimodal.CATALOGUE,
    **redundancy.CATALOGUE,
    **regression.CATALOGUE,
    **linear_classes.CATALOGUE,
    **nonnegative_classes.CATALOGUE,
    **hard_negatives.CATALOGUE,
    **sparsity.CATALOGUE,
}


def __getattr__(name: str) -> Callable[..., Loss]:
    """Find a loss of the catalogue that this page does not name, by the name of its class or function."""
    for build in CATALOGUE.values():
        if getattr(build, "__name__", "") == name:
            return build
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
