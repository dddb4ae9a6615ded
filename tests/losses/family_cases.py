"""The members of the family with their oracles, and the settings they are tested in."""

# N samples per view, A anchors, K negatives per anchor, D features

import cmath
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from counterpoint.kernels.contract import SOFTPLUS
from counterpoint.losses import DCL, InfoNCE, family
from counterpoint.losses.pair_loss import PairLoss
from counterpoint.losses.pairs import Negatives, Pairing
from oracles import family_losses as oracle
from oracles.family_losses import PerAnchor, Setting


@dataclass(frozen=True)
class Case:
    """A member.

    Attributes:
        name: in test ids.
        make: the member, from negatives and normalize.
        of_gaps: an anchor's loss from its gaps, for the oracle.
        plain: the same in torch, from gaps (a, k), differentiable by autograd alone.
        is_smooth: has a second derivative everywhere.
        attains_floor: a simplex does.
    """

    name: str
    make: Callable[..., PairLoss]
    of_gaps: PerAnchor
    plain: Callable[[Tensor], Tensor]
    is_smooth: bool = True
    attains_floor: bool = True

    def __call__(self, setting: Setting) -> PairLoss:
        """The member in a setting."""
        loss = self.make(negatives=setting.negatives, normalize=setting.normalize)
        if setting.anchors == "both" and setting.reduction == "mean":
            return loss
        pairing = Pairing(setting.negatives, setting.anchors, setting.normalize)  # pyright: ignore[reportArgumentType]
        return PairLoss(loss.phi, loss.psi, pairing=pairing, reduction=setting.reduction)  # pyright: ignore[reportArgumentType]


def _user(phi: Any, psi: Any) -> Callable[..., PairLoss]:
    return lambda negatives, normalize: PairLoss(phi, psi, pairing=Pairing(negatives, normalize=normalize))


def _fixed(make: Callable[..., PairLoss], *args: float) -> Callable[..., PairLoss]:
    return lambda negatives, normalize: make(*args, negatives=negatives, normalize=normalize)


def _exp_and_more(u: Tensor) -> Tensor:
    return torch.exp(u / 2) + u


def _log_of_one_plus_exp(u: oracle.Number) -> oracle.Number:
    return oracle.log_of_sum([0.0, u])


CASES = [
    Case("infonce", _fixed(InfoNCE, 0.5), oracle.nce(0.5, 1.0), lambda g: F.softplus((g / 0.5).logsumexp(1))),
    Case(
        "infonce-eps0.3",
        _fixed(InfoNCE, 1.7, 0.3),
        oracle.nce(1.7, 0.3),
        lambda g: torch.log(0.3 + (g / 1.7).exp().sum(1)),
    ),
    Case("dcl", _fixed(DCL, 0.2), oracle.nce(0.2, 0.0), lambda g: (g / 0.2).logsumexp(1)),
    Case("mine", family.MINE, oracle.mine, lambda g: g.logsumexp(1)),
    Case(
        "triplet",
        _fixed(family.Triplet, 0.4),
        oracle.triplet(0.4),
        lambda g: (g + 0.4).relu().sum(1),
        is_smooth=False,
    ),
    Case(
        "soft-triplet",
        _fixed(family.SoftTriplet, 0.6, 0.3),
        oracle.soft_triplet(0.6, 0.3),
        lambda g: 0.6 * F.softplus((g / 0.6 + 0.3).logsumexp(1)),
    ),
    Case("n-plus-one-tuplet", family.NPlusOneTuplet, oracle.n_plus_one_tuplet, lambda g: F.softplus(g.logsumexp(1))),
    Case(
        "lifted-structured",
        _fixed(family.LiftedStructured, 1.0),
        oracle.lifted_structured(1.0),
        lambda g: (g + 1.0).logsumexp(1).relu().square(),
    ),
    Case(
        "lifted-structured-at-rest",
        _fixed(family.LiftedStructured, -0.7),
        oracle.lifted_structured(-0.7),
        lambda g: (g - 0.7).logsumexp(1).relu().square(),
        is_smooth=False,
    ),
    Case(
        "modified-triplet",
        _fixed(family.ModifiedTriplet, 1.8),
        oracle.modified_triplet(1.8),
        lambda g: (1.8 * g).sigmoid().sum(1),
        attains_floor=False,
    ),
    Case("linear-triplet", family.LinearTriplet, oracle.linear_triplet, lambda g: g.sum(1)),
    Case(
        "user",
        _user(torch.arctan, _exp_and_more),
        lambda gaps: cmath.atan(sum(cmath.exp(g / 2) + g for g in gaps)),
        lambda g: torch.arctan(_exp_and_more(g).sum(1)),
        attains_floor=False,
    ),
    Case(
        "user-exp",
        _user(torch.sqrt, torch.exp),
        lambda gaps: cmath.sqrt(sum(cmath.exp(g) for g in gaps)),
        lambda g: g.exp().sum(1).sqrt(),
        attains_floor=False,
    ),
    Case(
        "user-given-slopes",
        _user(torch.square, SOFTPLUS),
        lambda gaps: sum(_log_of_one_plus_exp(g) for g in gaps) ** 2,
        lambda g: F.softplus(g).sum(1).square(),
        attains_floor=False,
    ),
]
SMOOTH = [case for case in CASES if case.is_smooth]

KINDS: list[Negatives] = ["two-view", "cross-view", "same-view"]
BOTH = [Setting(kind, normalize) for kind in KINDS for normalize in (True, False)]
SETTINGS = [
    *BOTH,
    *(Setting(kind, normalize, "first") for kind in KINDS for normalize in (True, False)),
    *(Setting(kind, reduction="sum") for kind in KINDS),
    Setting("same-view", normalize=False, anchors="first", reduction="sum"),
]


def _id(value: Any) -> str:
    if isinstance(value, Setting):
        units = "unit" if value.normalize else "raw"
        return f"{value.negatives}-{units}-{value.anchors}-{value.reduction}"
    return value.name if isinstance(value, Case) else str(value)


def sampled_cases(names: str, *axes: Sequence[Any], num: int = 0) -> pytest.MarkDecorator:
    """Parametrise by a fixed sample of the product of axes, in which each value of each axis occurs.

    Args:
        names: of the parameters, separated by commas.
        axes: the values of each.
        num: combinations, at least; 0 is as many as the longest axis has values.
    """
    draw, num = random.Random(0), max(num, *map(len, axes))
    # Each axis goes through all its values in an order of its own before one comes again.
    turns = [[value for _ in range(-(-num // len(axis))) for value in draw.sample(axis, len(axis))] for axis in axes]
    rows = list(zip(*(turn[:num] for turn in turns), strict=True))
    return pytest.mark.parametrize(names, rows, ids=_id)


each_case = pytest.mark.parametrize("case", CASES, ids=_id)


def plain_loss(case: Case, setting: Setting) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss as autograd alone would have it: all distances, one row per anchor."""

    def loss(z0: Tensor, z1: Tensor) -> Tensor:
        z = torch.cat([z0, z1])
        z = z / z.norm(dim=1, keepdim=True) if setting.normalize else z
        n = len(z0)
        rows = []
        for i in range(n if setting.anchors == "first" else 2 * n):
            others = torch.tensor(oracle.negatives_of(i, n, setting.negatives))
            own = (z[i] - z[(i + n) % (2 * n)]).square().sum() / 2
            rows.append(own - (z[i] - z[others]).square().sum(1) / 2)
        per_anchor = case.plain(torch.stack(rows))
        return per_anchor.mean() if setting.reduction == "mean" else per_anchor.sum()

    return loss


def as_rows(z0: Tensor, z1: Tensor) -> tuple[Any, Any]:
    return z0.tolist(), z1.tolist()
