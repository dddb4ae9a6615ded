"""Losses by name: common settings, options, mistakes; explain and the table of docs/losses-reference.md."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from counterpoint.core.errors import UsageError
from counterpoint.losses import CATALOGUE, Pairing, PairLoss, explain
from counterpoint.losses.build import build_loss
from counterpoint.losses.importance import AlphaCL
from counterpoint.losses.loss import ROWS, Loss

TABLES = Path(__file__).parents[2] / "docs" / "tables.py"
OPTIONS = {
    "cross-entropy": {"num_classes": 3, "num_features": 4},
    "nonnegative-cross-entropy": {"num_classes": 3, "num_features": 4},
    "hard-negatives": {"loss": "infonce"},
    "sparsity-penalty": {"loss": "infonce"},
}
each_loss = pytest.mark.parametrize("name", CATALOGUE)


def build(name: str) -> Loss:
    return build_loss(name, {}, OPTIONS.get(name, {}))


def test_common_settings_reach_the_losses_that_take_them() -> None:
    common = {"temperature": 0.25, "epsilon": 0.0, "negatives": "cross-view"}
    infonce = build_loss("infonce", common, {})
    assert isinstance(infonce, PairLoss)
    assert (infonce.psi.scale, infonce.pairing, infonce.card.name) == (4.0, Pairing("cross-view"), "DCL")
    barlow = build_loss("barlow-twins", common, {})
    assert barlow.card == CATALOGUE["barlow-twins"]().card  # its own epsilon is another matter


def test_a_rule_goes_by_name() -> None:
    loss = build_loss("alpha-cl", {}, {"rule": "square"})
    assert isinstance(loss, AlphaCL)
    assert type(loss.rule).__name__ == "Square"


@pytest.mark.parametrize(
    ("name", "options", "error", "sentence"),
    [
        ("infonec", {}, UsageError, "unknown loss 'infonec'; did you mean 'infonce'?"),
        ("triplet", {"margn": 1}, ValueError, "takes no margn; did you mean 'margin'?"),
        ("triplet", {"margin": float("inf")}, ValueError, "margin must be a finite number, got inf"),
        ("infonce", {"temperature": -1}, ValueError, "temperature must be > 0, got -1"),
        ("nonnegative-cross-entropy", {}, ValueError, "needs num_classes"),
        ("alpha-cl", {"rule": "sqare"}, UsageError, "unknown alpha rule 'sqare'; did you mean 'square'?"),
    ],
)
def test_mistakes_are_named_with_a_remedy(name: str, options: dict, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        build_loss(name, {}, options)


@each_loss
def test_explain_says_all_a_card_holds(name: str) -> None:
    loss = build(name)
    lines = explain(loss).splitlines()
    assert lines[0] == loss.card.name
    assert [line.split("  ")[1] for line in lines[1:]] == list(ROWS.values())
    for field, line in zip(ROWS, lines[1:], strict=True):
        assert line.endswith(getattr(loss.card, field))
        assert getattr(loss.card, field)


def test_the_table_of_losses_is_what_their_cards_say() -> None:
    done = subprocess.run([sys.executable, str(TABLES), "--check"], check=False)
    assert done.returncode == 0, "make docs writes the table"
