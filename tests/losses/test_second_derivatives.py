"""Two true derivatives of the losses, in settings that lead through other code; ``test_family`` has the family."""

# N samples per view, D features

import pytest
import torch
from family_cases import KINDS
from loss_checks import KERNELS, assert_true_second_derivatives, draw_views
from torch import Tensor

from counterpoint.losses import (
    DCLW,
    BarlowTwins,
    CrossModal,
    GeneralizedContrastive,
    HardNegatives,
    InfoNCE,
    Loss,
    MIOv1,
    MIOv2,
    MIOv3,
    MultiPositive,
    RDMReg,
    Regression,
    SigmoidPair,
    SIGReg,
    SpectralContrastive,
    SupCon,
    VICReg,
)

LABELS = torch.tensor([1, 0, 1, 1])
PAIRS: list[tuple[Loss, Tensor | None]] = [
    *((make(0.7, normalize), None) for make in (MIOv1, MIOv2, MIOv3) for normalize in (True, False)),
    *((CrossModal(0.5, nonnegative=nonnegative), None) for nonnegative in (False, True)),
    (DCLW(0.5, backpropagate_weights=True), None),
    *((SigmoidPair(*start), None) for start in ((10.0, -10.0), (1.5, 0.3))),
    *((HardNegatives(InfoNCE(0.7, 1.0, kind, unit), 1.5), None) for kind in KINDS for unit in (True, False)),
    *((make(0.7), labels) for make in (SupCon, MultiPositive) for labels in (None, LABELS)),
    *((GeneralizedContrastive(k, temperature=0.7), labels) for k in (None, 1, 7) for labels in (None, LABELS)),
    *((GeneralizedContrastive(k, True, temperature=0.7), LABELS) for k in (None, 1, 7)),
]
NO_PAIRS: list[Loss] = [
    BarlowTwins(),
    BarlowTwins(0.7, 0.1),
    VICReg(),
    VICReg(1.0, 2.0, 3.0, 0.1),
    Regression("cosine", detach_target=False),
    Regression("squared", detach_target=False),
    *(SpectralContrastive(mu) for mu in (None, 1.0, 2.5)),
    SIGReg(num_slices=5),
    SIGReg(0.7, num_slices=3, seed=4),
    RDMReg(num_slices=5),
    RDMReg(-0.7, 2, 2.0, 0.5, num_slices=3, seed=4),
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("loss", "labels"), PAIRS, ids=str)
@pytest.mark.sampled(12)
def test_both_derivatives_of_losses_of_pairs_are_true(loss: Loss, labels: Tensor | None, kernel: str) -> None:
    assert_true_second_derivatives(loss, *draw_views(4, 3, seed=1), labels, kernel=kernel)


@pytest.mark.parametrize(("n", "d"), [(4, 3), (8, 3), (3, 12)])
@pytest.mark.parametrize("loss", NO_PAIRS, ids=str)
@pytest.mark.sampled(6)
def test_both_derivatives_of_losses_without_pairs_are_true(loss: Loss, n: int, d: int) -> None:
    z0, z1 = draw_views(n, d, seed=1)
    assert_true_second_derivatives(loss, 0.7 * z0, 0.7 * z1)
