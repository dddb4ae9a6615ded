"""The regression of BYOL and SimSiam: a prediction from one view should point where the other view's target points."""

# N samples, D features

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from counterpoint.core.checks import check_choice
from counterpoint.losses.inputs import prepare_views
from counterpoint.losses.loss import Loss, LossCard, Part

Form = Literal["cosine", "squared"]
FORMS: Mapping[str, str] = {
    "cosine": "minus the cosine (SimSiam), from -1 to 1",
    "squared": "squared distance of the unit vectors (BYOL), 2 - 2 cos, from 0 to 4",
}


class Regression(Loss):
    r"""Negative cosine between predictions ``z0`` and targets ``z1``, or the squared distance of the unit vectors.

    .. math::
        L = -\frac{1}{n} \sum_i \cos(p_i, z_i') \quad\text{or}\quad
        L = \frac{1}{n} \sum_i \Big|\frac{p_i}{|p_i|} - \frac{z_i'}{|z_i'|}\Big|^2
          = \frac{1}{n} \sum_i (2 - 2 \cos(p_i, z_i'))

    One direction only: ``z0`` holds predictions and ``z1`` targets, which are not interchangeable. Who wants
    the symmetric loss calls it twice and takes the mean (SimSiam, Eq. 2) or the sum (BYOL): ``loss(p0, z1)`` and
    ``loss(p1, z0)``. "cosine" equals lightly's ``NegativeCosineSimilarity`` (which detaches nothing itself).

    Source: chen2021, Eq. 1 to 4 (cosine); grill2020, Eq. 2 (squared). The squared form is computed from
        differences, so that it keeps its digits when prediction and target nearly agree.

    Args:
        form: ``cosine`` or ``squared``.
        detach_target: give ``z1`` no gradient (stop-gradient), without which both methods collapse at once.

    Raises:
        ValueError: an unknown form.

    Unchanged by permuting samples, by rotating all vectors and by the length of any vector. A zero vector stays zero:
    cosine 0, squared distance 1 to a unit vector, no gradient. There are no negatives: vectors that are all alike reach
    the floor, so a low value alone says nothing; look at the spectrum. A mean over samples, so ``part`` is ignored:
    each process takes the whole batch.

    >>> import torch
    >>> p, z = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([[5.0, 0.0], [3.0, 0.0]])
    >>> float(Regression()(p, z)), float(Regression("squared")(p, z))
    (-0.5, 1.0)
    """

    card = LossCard(
        name="Regression",
        phi="-",
        psi="-",
        alpha="-",
        negatives="none",
        normalization="inputs to unit length; mean over samples",
        source="chen2021, Eq. 1 to 4; grill2020, Eq. 2",
        second_derivative="true",
        fused="no pairs",
    )

    why_no_class_level = "it has no negatives"

    def __init__(self, form: Form = "cosine", detach_target: bool = True) -> None:
        super().__init__()
        check_choice(form, "form", FORMS)
        self.form: Form = form
        self.detach_target = detach_target

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None, *, part: Part | None = None) -> Tensor:
        """Mean over samples; ``z0`` predictions, ``z1`` targets.

        See ``Loss.forward``; labels are only checked, ``part`` is ignored.
        """
        prediction_ND, target_ND = prepare_views(z0, z1, labels, normalize=True)
        if self.detach_target:
            target_ND = target_ND.detach()
        if self.form == "cosine":
            return -(prediction_ND * target_ND).sum(dim=1).mean()
        return (prediction_ND - target_ND).square().sum(dim=1).mean()

    def chance(self, n: int) -> float:
        """Loss when all vectors are alike: the floor, since nothing in this loss speaks against collapse."""
        return self.floor(n)

    def floor(self, n: int, *, nonnegative: bool = False) -> float:
        """Minus one (cosine) or zero (squared), by Cauchy-Schwarz; attained by equal directions of any sign."""
        return -1.0 if self.form == "cosine" else 0.0


CATALOGUE: Mapping[str, type[Regression]] = {"regression": Regression}
