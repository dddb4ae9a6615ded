"""Writes pages that are made from records: tables of losses and metrics, pages about the papers' results, and drawings.

python docs/tables.py; --check writes nothing.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for `reproductions`, which is not installed

from counterpoint.core.metric import Metric, described_metrics
from counterpoint.losses import CATALOGUE
from counterpoint.losses.build import build_loss
from reproductions.result_pages import drawings, pages

HERE = Path(__file__).parent
NEEDED = {"loss": "infonce", "num_classes": 3, "num_features": 4}  # parameters without a default


def loss_rows() -> Iterable[str]:
    """A row for each loss, from its card."""
    for name in CATALOGUE:
        parameters = inspect.signature(CATALOGUE[name]).parameters.values()
        needed = {each.name: NEEDED[each.name] for each in parameters if each.default is each.empty}
        card = build_loss(name, {}, needed).card
        yield row(name, card.name, card.phi, card.psi, card.alpha, card.negatives, card.source, card.second_derivative,
                  card.fused)  # fmt: skip


def metric_rows() -> Iterable[str]:
    """A row for each metric of an evaluation, from its record."""
    for name, metric in described_metrics("evaluation").items():
        when = "on request" if metric.on_request else "always"
        yield row(name, metric.definition, span(metric), metric.interval or "none", metric.source, when)


def span(metric: Metric) -> str:
    """The values that a metric can take."""
    ends = ["" if end is None else f"{end:g}" for end in (metric.low, metric.high)]
    better = {True: ", higher is better", False: ", lower is better", None: ""}[metric.is_higher_better]
    return (" to ".join(ends) if all(ends) else f"from {ends[0]}" if ends[0] else "any") + better


def row(name: str, *fields: str) -> str:
    """A row of a table."""
    return " | ".join([f"| `{name}`", *(field.replace("|", "\\|") for field in fields)]) + " |\n"


def page(path: Path, rows: Iterable[str]) -> str:
    """A page with the rows of today in its first table."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(place for place, line in enumerate(lines) if line.startswith("|---")) + 1
    end = next((place for place in range(first, len(lines)) if not lines[place].startswith("|")), len(lines))
    return "".join([*lines[:first], *rows, *lines[end:]])


PAGES: Mapping[str, Callable[[], Iterable[str]]] = {
    "losses-reference.md": loss_rows,
    "evaluation-reference.md": metric_rows,
}

if __name__ == "__main__":
    made = {HERE / name: page(HERE / name, rows()) for name, rows in PAGES.items()}
    made |= {HERE / "papers" / name: text for name, text in pages().items()}
    made |= {HERE / "papers" / "figures" / name: text for name, text in drawings().items()}
    has_changed = False
    for path, written in made.items():
        has_changed |= not path.exists() or path.read_text(encoding="utf-8") != written
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(written, encoding="utf-8")
    sys.exit(int(has_changed and "--check" in sys.argv))
