"""The catalogue of methods: widths of the papers, and no torch."""

import pytest

from counterpoint.methods.catalogue import CATALOGUE

# Widths of the papers for a ResNet-50 (2048): mlp's hidden layers, embedding, predictor's hidden layer.
PAPERS = {
    "moco": (2048, 128, None),
    "byol": (4096, 256, 4096),
    "simsiam": (2048, 2048, 512),
    "barlow-twins": (8192, 8192, None),
    "vicreg": (8192, 8192, None),
    "supcon": (2048, 128, None),
}


@pytest.mark.parametrize("name", PAPERS)
def test_widths_are_those_of_the_paper_at_its_encoder(name: str) -> None:
    entry, (hidden, features, predictor) = CATALOGUE[name], PAPERS[name]
    assert entry.features_for(2048) == features
    assert entry.hidden_for(2048, features) == hidden
    assert entry.predictor_hidden_for(2048) == predictor


def test_widths_shrink_with_the_encoder() -> None:
    barlow = CATALOGUE["barlow-twins"]
    assert (barlow.features_for(512), barlow.hidden_for(512, 2048)) == (2048, 2048)
    assert CATALOGUE["byol"].hidden_for(512, 256) == 1024
    assert CATALOGUE["simsiam"].predictor_hidden_for(4) == 2
    assert CATALOGUE["simclr"].hidden_for(100, 128) == 128  # the larger of both ends
