"""Losses by name: common settings, mistakes; the table of docs/losses-reference.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from counterpoint.core.errors import UsageError
from counterpoint.losses import CATALOGUE, Pairing, PairLoss
from counterpoint.losses.build import build_loss

TABLES = Path(__file__).parents[2] / "docs" / "tables.py"


def test_common_settings_reach_the_losses_that_take_them() -> None:
    common = {"temperature": 0.25, "epsilon": 0.0, "negatives": "cross-view"}
    infonce = build_loss("infonce", common, {})
    assert isinstance(infonce, PairLoss)
    assert (infonce.psi.scale, infonce.pairing, infonce.card.name) == (4.0, Pairing("cross-view"), "DCL")
    barlow = build_loss("barlow-twins", common, {})
    assert barlow.card == CATALOGUE["barlow-twins"]().card  # its own epsilon is another matter


@pytest.mark.parametrize(
    ("name", "options", "error", "sentence"),
    [
        ("infonec", {}, UsageError, "unknown loss 'infonec'; did you mean 'infonce'?"),
        ("triplet", {"margn": 1}, ValueError, "takes no margn; did you mean 'margin'?"),
        ("triplet", {"margin": float("inf")}, ValueError, "got inf"),
        ("infonce", {"temperature": -1}, ValueError, "got -1"),
        ("nonnegative-cross-entropy", {}, ValueError, "needs num_classes"),
        ("alpha-cl", {"rule": "sqare"}, UsageError, "unknown alpha rule 'sqare'; did you mean 'square'?"),
    ],
)
def test_mistakes_are_named_with_a_remedy(name: str, options: dict, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        build_loss(name, {}, options)


def test_the_table_of_losses_is_what_their_cards_say() -> None:
    done = subprocess.run([sys.executable, str(TABLES), "--check"], check=False)
    assert done.returncode == 0, "make docs writes the table"
