"""The heads of MoCo, BYOL, SimSiam and Barlow Twins beside lightly's."""

import pytest
from lightly.models.modules import heads
from small_methods import numbers, projector_of
from torch import nn

from counterpoint.methods.catalogue import CATALOGUE
from counterpoint.nn.heads import perceptron
from tolerances import assert_close

WIDTH = 32


def predictor_of(name: str) -> nn.Module:
    hidden = CATALOGUE[name].predictor_hidden_for(WIDTH)
    assert hidden is not None
    features = CATALOGUE[name].features_for(WIDTH)
    return perceptron([features, hidden, features], norm="batch")


HEADS = {
    "moco": (lambda: projector_of("moco", WIDTH), lambda: heads.MoCoProjectionHead(WIDTH, WIDTH, 128)),
    "byol": (lambda: projector_of("byol", WIDTH), lambda: heads.BYOLProjectionHead(WIDTH, 2 * WIDTH, 256)),
    "byol's predictor": (lambda: predictor_of("byol"), lambda: heads.BYOLPredictionHead(256, 2 * WIDTH, 256)),
    "simsiam": (lambda: projector_of("simsiam", WIDTH), lambda: heads.SimSiamProjectionHead(WIDTH, WIDTH, WIDTH)),
    "simsiam's predictor": (
        lambda: predictor_of("simsiam"),
        lambda: heads.SimSiamPredictionHead(WIDTH, WIDTH // 4, WIDTH),
    ),
    "barlow-twins": (
        lambda: projector_of("barlow-twins", WIDTH),
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
