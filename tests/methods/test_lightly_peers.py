"""The parts of MoCo, BYOL, SimSiam and Barlow Twins beside lightly's: heads, momentum, memory bank."""

import pytest
import torch
from lightly.loss import NTXentLoss
from lightly.models.modules import heads
from torch import Tensor, nn

from counterpoint.methods.catalogue import CATALOGUE
from counterpoint.methods.target_branch import QueueContrast
from counterpoint.nn.heads import ProjectorDetails, build_projector, perceptron
from tolerances import assert_close

WIDTH = 32


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def projector_of(name: str) -> nn.Module:
    entry, features = CATALOGUE[name], CATALOGUE[name].features_for(WIDTH)
    last = entry.projector_output_norm
    details = ProjectorDetails(
        entry.projector_layers, entry.projector_norm, last != "none", output_scale=last == "batch"
    )
    hidden = entry.hidden_for(WIDTH, features)
    return build_projector(entry.projector, WIDTH, hidden=hidden, features=features, details=details)


def predictor_of(name: str) -> nn.Module:
    hidden = CATALOGUE[name].predictor_hidden_for(WIDTH)
    assert hidden is not None
    features = CATALOGUE[name].features_for(WIDTH)
    return perceptron([features, hidden, features], norm="batch")


HEADS = {
    "moco": (lambda: projector_of("moco"), lambda: heads.MoCoProjectionHead(WIDTH, WIDTH, 128)),
    "byol": (lambda: projector_of("byol"), lambda: heads.BYOLProjectionHead(WIDTH, 2 * WIDTH, 256)),
    "byol's predictor": (lambda: predictor_of("byol"), lambda: heads.BYOLPredictionHead(256, 2 * WIDTH, 256)),
    "simsiam": (lambda: projector_of("simsiam"), lambda: heads.SimSiamProjectionHead(WIDTH, WIDTH, WIDTH)),
    "simsiam's predictor": (
        lambda: predictor_of("simsiam"),
        lambda: heads.SimSiamPredictionHead(WIDTH, WIDTH // 4, WIDTH),
    ),
    "barlow-twins": (
        lambda: projector_of("barlow-twins"),
        lambda: heads.BarlowTwinsProjectionHead(WIDTH, 4 * WIDTH, 4 * WIDTH),
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_heads_have_the_same_layers_and_outputs(name: str) -> None:
    ours, theirs = (make().double() for make in HEADS[name])
    weights = list(theirs.state_dict().values())
    assert [tuple(w.shape) for w in ours.state_dict().values()] == [tuple(w.shape) for w in weights]
    ours.load_state_dict(dict(zip(ours.state_dict(), weights, strict=True)))
    x = numbers(1, 8, next(iter(ours.parameters())).shape[1])
    assert_close(ours(x), theirs(x))


def test_the_queue_s_loss_is_that_of_the_memory_bank() -> None:
    ours, theirs = QueueContrast(16, 5, 0.2).double(), NTXentLoss(temperature=0.2, memory_bank_size=(16, 5))
    theirs.memory_bank.bank = ours.queue_KD.clone()
    key = numbers(2, 4, 5)
    query_here, query_there = (numbers(1, 4, 5).requires_grad_() for _ in range(2))
    value, expected = ours(query_here, key), theirs(query_there, key)
    assert_close(value, expected)
    assert_close(torch.autograd.grad(value, query_here)[0], torch.autograd.grad(expected, query_there)[0])
    ours.enqueue(key)
    assert_close(ours.queue_KD, theirs.memory_bank.bank)
