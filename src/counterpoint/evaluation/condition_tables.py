"""Figures under corruptions and along curves as lines of text, at most 100 places wide."""

from collections.abc import Sequence

from counterpoint.core.metric import in_condition
from counterpoint.core.run_records import EvaluationRow, corruption_means

NAME, CELL = 22, 19  # places of a column
MOST_FEATURES = 4
MOST_SIZES = 9


def corruption_lines(rows: Sequence[EvaluationRow]) -> list[str]:
    """A line for each corruption: mean accuracy over severities, features in columns."""
    lines: list[str] = []
    for classifier, by_corruption in corruption_means(rows).items():
        features = list(dict.fromkeys(name for each in by_corruption.values() for name in each))[:MOST_FEATURES]
        head = "".join(f"{name[: CELL - 2]:>{CELL}}" for name in features)
        lines += ["", f"{classifier} fitted to clean samples, under corruptions: accuracy, mean over severities"]
        lines.append(f"{'corruption':<{NAME}}{head}")
        for corruption, by_features in by_corruption.items():
            shares = (f"{by_features[name]:.1%}" if name in by_features else "" for name in features)
            lines.append(f"{corruption:<{NAME}}{''.join(f'{share:>{CELL}}' for share in shares)}".rstrip())
    return lines


def curve_lines(rows: Sequence[EvaluationRow]) -> list[str]:
    """A line for each order of the features: a metric with the first k of them, some k in columns."""
    curves: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for row in rows:
        kept, order = row.settings.get("kept"), row.settings.get("order")
        if isinstance(kept, int) and row.figure is not None:
            curve = curves.setdefault((in_condition(row.protocol)[0], row.features), {})
            curve.setdefault(str(order), {})[kept] = row.figure
    lines: list[str] = []
    for (metric, features), by_order in curves.items():
        sizes = sorted({size for curve in by_order.values() for size in curve})
        shown = [sizes[round(place * (len(sizes) - 1) / (MOST_SIZES - 1))] for place in range(MOST_SIZES)]
        columns = list(dict.fromkeys(shown)) if len(sizes) > MOST_SIZES else sizes
        lines += ["", f"{metric} of the {features}, with the first features of an order"]
        lines.append(f"{'features kept':<34}{''.join(f'{size:>7,}' for size in columns)}")
        for order, curve in by_order.items():
            lines.append(f"{order:<34}{''.join(f'{curve[size]:>7.3f}' for size in columns)}")
    return lines
