"""Contrastive losses. Each is called as ``loss(z0, z1, labels=None)`` and can say what it does to each pair.

``explain(loss)`` prints what a loss is; ``docs/losses-reference.md`` has them all in one table.
"""

from collections.abc import Callable, Mapping

from counterpoint.core.catalogues import loaded
from counterpoint.losses.alpha_rules import Direct, Entropy, FixedInverse, InversePower, OwnRule, Square
from counterpoint.losses.bimodal import CrossModal
from counterpoint.losses.binary import MIOv1, MIOv2, MIOv3
from counterpoint.losses.cross_entropy import CrossEntropy, NonNegativeCrossEntropy
from counterpoint.losses.distribution import RDMReg, SIGReg, VISReg
from counterpoint.losses.family import (
    MINE,
    LiftedStructured,
    LinearTriplet,
    ModifiedTriplet,
    NPlusOneTuplet,
    SoftTriplet,
    Triplet,
)
from counterpoint.losses.imbalanced import GeneralizedContrastive
from counterpoint.losses.importance import AlphaCL
from counterpoint.losses.infonce import DCL, DCLW, InfoNCE
from counterpoint.losses.loss import Loss, LossCard, Part, explain
from counterpoint.losses.noncontrastive import BarlowTwins, Regression, VICReg
from counterpoint.losses.pair_loss import Attention, PairLoss
from counterpoint.losses.pairs import Pairing, Phi, Psi
from counterpoint.losses.sigmoid_pair import SigmoidPair
from counterpoint.losses.spectral import CrossModalSpectral, SpectralContrastive
from counterpoint.losses.supervised import MultiPositive, SupCon
from counterpoint.losses.wrappers import HardNegatives, SparsityPenalty

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
    "RDMReg",
    "Regression",
    "SIGReg",
    "SigmoidPair",
    "SoftTriplet",
    "SparsityPenalty",
    "SpectralContrastive",
    "Square",
    "SupCon",
    "Triplet",
    "VICReg",
    "VISReg",
    "explain",
]

CATALOGUE: Mapping[str, Callable[..., Loss]] = {
    name: build for entries in loaded("losses", "CATALOGUE") for name, build in entries.items()
}


def __getattr__(name: str) -> Callable[..., Loss]:
    """Find a loss of the catalogue that this page does not name, by the name of its class or function."""
    for build in CATALOGUE.values():
        if getattr(build, "__name__", "") == name:
            return build
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
