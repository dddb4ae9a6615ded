"""Losses in the trainer of sentence-transformers: their values and gradients, and a training by that trainer."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from counterpoint.core.dist import own_rows
from counterpoint.core.errors import DataError, UsageError
from counterpoint.integrations.trainer_losses import SentenceLoss
from counterpoint.losses import (
    DCLW,
    AlphaCL,
    BarlowTwins,
    CrossModal,
    Direct,
    Entropy,
    HardNegatives,
    InfoNCE,
    OwnRule,
    Pairing,
    PairLoss,
    SupCon,
)
from counterpoint.nn.heads import OutputMap
from oracles import alpha_rules_oracle as oracle
from rank_processes import run_on_ranks
from tolerances import assert_close

TAU = 0.05


def columns(num_columns: int, n: int = 5, *, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, 4, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(num_columns)]


class Given(nn.Module):
    """What stands for a model: features are embeddings already."""

    def forward(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        features["sentence_embedding"] = features["attention_mask"]
        return features


def value_of(loss: SentenceLoss, embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
    return loss([{"attention_mask": column} for column in embeddings], labels)


def gradients(value: Tensor, embeddings: list[Tensor]) -> Tensor:
    return torch.cat(torch.autograd.grad(value, embeddings))


def gaps(embeddings: list[Tensor]) -> Tensor:
    """Cosine to each of the other candidates less that to the positive, (n, n - 1 + m), term by term."""
    unit = [[z / z.norm() for z in column] for column in embeddings]
    candidates = [key for column in unit[1:] for key in column]
    rows = []
    for i, anchor in enumerate(unit[0]):
        own = anchor @ candidates[i]
        rows.append(torch.stack([anchor @ key - own for j, key in enumerate(candidates) if j != i]))
    return torch.stack(rows)


# --- the values


@pytest.mark.parametrize("num_columns", [2, 3, 4])
def test_one_direction_with_columns_of_negatives_is_the_cross_entropy_of_the_positive(num_columns: int) -> None:
    given = columns(num_columns)
    expected = torch.log1p((gaps(given) / TAU).exp().sum(1)).mean()
    value = value_of(SentenceLoss(Given()), given)
    assert_close(value, expected)
    assert_close(gradients(value, given), gradients(expected, given))


@pytest.mark.parametrize("num_columns", [2, 4])
def test_hard_negatives_weigh_all_candidates(num_columns: int) -> None:
    given, beta = columns(num_columns), 1.5
    u = gaps(given) / 0.2
    weight = (beta * u).exp()
    mean = (weight * u.exp()).sum(1) / weight.sum(1)
    expected = torch.log1p(u.shape[1] * mean).mean()
    loss = SentenceLoss(Given(), HardNegatives(InfoNCE(0.2, negatives="cross-view", anchors="first"), beta))
    value = value_of(loss, given)
    assert_close(value, expected)
    assert_close(gradients(value, given), gradients(expected, given))


@pytest.mark.parametrize("num_columns", [2, 3])
@pytest.mark.parametrize(
    ("rule", "weights"),
    [
        (Entropy(0.3, 1.0), lambda costs, own: oracle.entropy(costs, own, 0.3, 1.0)),
        (Direct(0.4, 4), lambda costs, own: oracle.direct(costs, 0.4, 4)),
    ],
)
def test_alpha_cl_follows_the_energy_of_the_anchors(num_columns: int, rule: Any, weights: Any) -> None:
    given = columns(num_columns)
    loss = SentenceLoss(Given(), AlphaCL(rule, "cross-view", anchors="first"))
    gap = gaps(given)
    unit = [nn.functional.normalize(z) for z in given]
    own = 1 - (unit[0] * unit[1]).sum(1)
    # d_i^2 - d_ij^2 of unit vectors is the gap of cosines.
    alpha = torch.tensor([weights((o - g).tolist(), float(o)) for o, g in zip(own.detach(), gap.detach(), strict=True)])
    expected = (alpha.double() * gap).sum(1).mean()
    value = value_of(loss, given)
    assert_close(value, expected, dtype=torch.float32)
    assert_close(gradients(value, given), gradients(expected, given), dtype=torch.float32)


def test_first_anchors_of_alpha_cl_are_half_of_both() -> None:
    z0, z1 = columns(2)
    for streams in (True, False):
        for kind in ("two-view", "cross-view", "same-view"):
            halves = [
                AlphaCL(Direct(), kind, anchors="first", stream=streams)(*views) for views in ((z0, z1), (z1, z0))
            ]
            assert_close(torch.stack(halves).mean(), AlphaCL(Direct(), kind)(z0, z1))
    importance = AlphaCL(Direct(), anchors="first").importance(z0, z1)
    both = AlphaCL(Direct()).importance(z0, z1)
    assert torch.equal(importance[:5], both[:5])
    assert not importance[5:].any()


def test_any_loss_takes_pairs_and_labels_go_to_those_that_use_them() -> None:
    given, labels = columns(2), torch.tensor([0, 1, 0, 1, 2])
    for loss in (AlphaCL(), InfoNCE(0.2), BarlowTwins(), DCLW()):
        assert torch.equal(value_of(SentenceLoss(Given(), loss), given, torch.rand(3)), loss(*given))
    assert torch.equal(value_of(SentenceLoss(Given(), SupCon()), given, labels), SupCon()(*given, labels=labels))


def test_the_output_map_is_that_of_ncl() -> None:
    given, inner = columns(3), InfoNCE(0.2, negatives="cross-view", anchors="first")
    mapped = [z[:, :3].relu() for z in given]
    value = value_of(SentenceLoss(Given(), inner, output=OutputMap(d0=3, nonnegative="relu", normalize=False)), given)
    assert_close(value, value_of(SentenceLoss(Given(), inner), mapped))


def test_a_learned_scale_is_brought_back_into_its_range() -> None:
    loss = CrossModal(0.07, max_scale=20.0)
    loss.scale.log.data.fill_(9.0)  # pyright: ignore[reportOptionalMemberAccess]
    value_of(SentenceLoss(Given(), loss), columns(2))
    assert math.isclose(loss.scale.value, 20.0, rel_tol=1e-5)


def test_one_pair_with_a_negative_has_a_value() -> None:
    given = columns(3, n=1)
    assert_close(value_of(SentenceLoss(Given()), given), torch.log1p((gaps(given) / TAU).exp().sum(1)).mean())


def whole_batch() -> list[Tensor]:
    return columns(3, n=4)


def on_a_rank() -> dict[str, Tensor | str]:
    """This rank's value, and its share of the gradient as data-parallel training averages it."""
    own = [z.detach()[own_rows(2)].requires_grad_() for z in whole_batch()]
    value = value_of(SentenceLoss(Given(), gather_across_devices=True), own)
    return {"value": value.detach(), "gradient": gradients(value, own) / 2}


@pytest.mark.thorough
def test_the_mean_over_ranks_is_the_loss_of_the_whole_batch(tmp_path: Path) -> None:
    given = whole_batch()
    value = value_of(SentenceLoss(Given()), given)
    ranks = [result.tensors for result in run_on_ranks(on_a_rank, 2, tmp_path)]
    assert_close(torch.stack([rank["value"] for rank in ranks]).mean(), value)
    # Rows of a rank follow each other within each column.
    found = torch.stack([rank["gradient"].view(3, 2, -1) for rank in ranks], dim=1)
    assert_close(found.flatten(0, 2), gradients(value, given))


# --- what cannot be used


def refused(loss: Any, num_columns: int, n: int = 4) -> str:
    with pytest.raises(DataError) as error:
        value_of(SentenceLoss(Given(), loss), columns(num_columns, n))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "loss",
    [
        InfoNCE(0.1),
        InfoNCE(0.1, negatives="cross-view"),
        PairLoss(torch.log1p, torch.exp, pairing=Pairing("same-view", "first")),
        AlphaCL(OwnRule(Entropy()), "cross-view", anchors="first"),  # sees rows of vectors that are no anchors
        BarlowTwins(),
        CrossModal(),
    ],
    ids=lambda loss: loss.card.name,
)
def test_columns_of_negatives_are_refused_where_the_loss_has_no_place_for_them(loss: Any) -> None:
    assert "columns of negatives need a loss of pairs" in refused(loss, 3)


def test_bad_batches_are_refused_in_one_line() -> None:
    assert "got 1" in refused(None, 1)
    assert "a batch of 1 pair(s) has no negatives; set dataloader_drop_last=True" in refused(None, 2, n=1)
    assert "a batch of 0 pair(s)" in refused(None, 2, n=0)
    with pytest.raises(ValueError, match=r"labels .*\(5,\), got \(3,\)"):
        value_of(SentenceLoss(Given(), SupCon()), columns(2), torch.zeros(3, dtype=torch.long))
    with pytest.raises(UsageError, match="MSELoss"):
        SentenceLoss(Given(), nn.MSELoss())  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match=r"as a SentenceTransformer does, got Identity; pip install .*\[text\]"):
        value_of(SentenceLoss(nn.Identity()), columns(2))
