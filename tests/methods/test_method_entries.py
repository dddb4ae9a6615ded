"""The catalogue of methods: widths of the papers, and no torch."""

import subprocess
import sys

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


def test_methods_with_a_second_encoder_say_how_it_follows() -> None:
    with_momentum = {name for name, entry in CATALOGUE.items() if entry.momentum is not None}
    assert with_momentum == {"moco", "byol"}
    assert {name for name, entry in CATALOGUE.items() if entry.queue_size is not None} == {"moco"}
    assert {name for name, entry in CATALOGUE.items() if entry.predictor_share is not None} == {"byol", "simsiam"}


def test_it_loads_without_torch() -> None:
    code = "import sys, counterpoint.methods.catalogue; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
