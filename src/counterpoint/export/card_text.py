"""Text from outside in Markdown: names of data and classes may hold anything, and end no table and begin no link."""

import re

from counterpoint.core.markup import printable
from counterpoint.core.metric import loaded_metrics, metric_under
from counterpoint.core.run_records import EvaluationRow
from counterpoint.core.shown import shown

_ACTIVE = re.compile(r"([\\`*_\[\]<>#])")  # a bar means something in tables alone, and `markdown_table` escapes it


def escaped(text: str) -> str:
    r"""Text as a reader sees it; absolute paths lose their folders.

    >>> print(escaped("a_b <img> [x](y)"))
    a\_b \<img\> \[x\](y)
    """
    return _ACTIVE.sub(r"\\\1", shown(printable(text)))


def code(text: str) -> str:
    """Text as code.

    >>> code("a`b")
    "`a'b`"
    """
    return f"`{shown(printable(text)).replace('`', chr(39))}`"


def share(row: EvaluationRow) -> str:
    """A figure with its interval."""
    metric = metric_under(loaded_metrics("evaluation"), row.protocol)
    is_share = metric.unit == "share" if metric else row.accuracy is not None

    def written(value: float) -> str:
        return f"{value:.1%}" if is_share else f"{value:.4g}"

    assert row.figure is not None
    ends = f" ({written(row.low)} to {written(row.high)})" if row.low is not None and row.high is not None else ""
    return f"{written(row.figure)}{ends}"
