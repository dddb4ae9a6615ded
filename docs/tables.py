"""Writes the rows of losses.md from the losses' own cards: python docs/tables.py; --check writes nothing."""

import inspect
import sys
from pathlib import Path

from counterpoint.losses import CATALOGUE
from counterpoint.losses.build import build_loss

PAGE = Path(__file__).parent / "losses.md"
NEEDED = {"loss": "infonce", "num_classes": 3, "num_features": 4}  # what has no default


def row(name: str) -> str:
    """The row of one loss."""
    parameters = inspect.signature(CATALOGUE[name]).parameters.values()
    card = build_loss(
        name, {}, {each.name: NEEDED[each.name] for each in parameters if each.default is each.empty}
    ).card
    fields = (card.phi, card.psi, card.alpha, card.negatives, card.source, card.second_derivative, card.fused)
    return " | ".join([f"| `{name}`", card.name, *(field.replace("|", "\\|") for field in fields)]) + " |"


def page() -> str:
    """The page with the rows of today."""
    before, head, after = PAGE.read_text(encoding="utf-8").partition("|---|---|---|---|---|---|---|---|---|\n")
    rest = after.lstrip("\n").splitlines(keepends=True)
    while rest and rest[0].startswith("| "):
        del rest[0]
    return before + head + "".join(f"{row(name)}\n" for name in CATALOGUE) + "".join(rest)


if __name__ == "__main__":
    written = page()
    if "--check" not in sys.argv:
        PAGE.write_text(written, encoding="utf-8")
    sys.exit(int(PAGE.read_text(encoding="utf-8") != written))
