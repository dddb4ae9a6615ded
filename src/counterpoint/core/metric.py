"""The record of a metric, beside the function that computes it: all that show the metric take their words from it.

A module of `diagnostics` or `evaluation` ends with the literal tuple ``METRICS``. Who computes imports these modules;
reports, lists and glossaries read the records as text, since importing them would load torch, which takes a second.
"""

import ast
import inspect
import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, Literal

from counterpoint.core.catalogues import held, loaded
from counterpoint.core.errors import CounterpointError

Unit = Literal["number", "share", "cosine"]
Needs = Literal["", "corruptions"]

# "linear probe under fog 3", "knn on sketches", "mAP@10 keeping 32 by variance": a metric, then when it was measured.
UNDER, ON, KEEPING = "under", "on", "keeping"
SHARES = re.compile("knn[ -](20|200)|(adam|sgd|lars) probe")  # names of earlier versions
CONDITION = re.compile(rf"(.+?) ((?:{UNDER}|{ON}|{KEEPING}) .+)")


def _not_loaded(subject: Any) -> Any:
    """Refuse to compute a metric whose record was read as text."""
    raise TypeError(f"this record only describes a metric; loaded_metrics has what measures {type(subject).__name__}")


@dataclass(frozen=True)
class Metric:
    """One figure of a representation.

    Attributes:
        name: its key in JSON and in Python.
        title: its name outside of sentences.
        short: its name in sentences and tables.
        definition: one or two sentences.
        source: key of the bibliography.
        measure: function that computes it: from ``diagnostics.measure.MeasuredFeatures`` a number, NaN if it does not
            exist; in evaluation from ``evaluation.metric_types.Labelled`` a ``Score``.
        low: its least value; None if there is none.
        high: its greatest value; None if there is none.
        unit: form in which it is written.
        reference: the metric that it is shown beside, such as the rank that is possible; empty for none.
        interval: method of its 95 % interval; empty without an interval.
        is_higher_better: true if a higher value is better; None if that depends.
        wording: sentence about the figure. In an evaluation ``{name}`` becomes a setting; a part in brackets is left
            out if its setting is missing.
        headline: the place whose figure is a headline number; empty for none.
        chance: value that features without information reach; empty if that depends on the data.
        leads: words for a run that is ahead in it.
        is_shown: true if reports show it.
        in_parts: true if it reads the bank part by part, so that it need not fit in memory.
        on_request: true if it is measured only when it is named, since it takes long or answers a question of few.
        needs: input that an evaluation must have for it beside features and classes; empty for nothing.
    """

    name: str
    title: str
    short: str
    definition: str
    source: str
    measure: Callable[[Any], Any] = _not_loaded
    low: float | None = None
    high: float | None = None
    unit: Unit = "number"
    reference: str = ""
    interval: str = ""
    is_higher_better: bool | None = None
    wording: str = ""
    headline: str = ""
    chance: str = ""
    leads: str = "has the highest"
    is_shown: bool = True
    in_parts: bool = False
    on_request: bool = False
    needs: Needs = ""

    def written(self, value: float) -> str:
        """The figure as a terminal shows it.

        >>> knn = Metric("knn", "kNN accuracy", "kNN", "Share of queries.", "wu2018", unit="share")
        >>> knn.written(0.9813)
        '98.1%'
        """
        return {"share": f"{value:.1%}", "cosine": f"{value:.2f}", "number": f"{value:.4g}"}[self.unit]


def accuracy_metric(**fields: Any) -> Metric:
    """The record of a metric that is a share of the queries that get their own class.

    Args:
        fields: fields of ``Metric``; those that all accuracies have alike may be left out.
    """
    interval = "95 % Wilson interval over the queries"
    chance = "the share of the commonest class"
    alike = {"low": 0.0, "high": 1.0, "unit": "share", "interval": interval, "is_higher_better": True}
    return Metric(**{**alike, "chance": chance, "leads": "is ahead", **fields})


def unshown_metric(*, name: str, source: str, of: Any, at: str, unit: Unit = "number") -> Metric:
    """The record of a figure that checks read and no page shows; it has only a name.

    Args:
        name: its key.
        source: key of the bibliography.
        of: the function that computes it, or the record that holds it; its docstring says what the figure is.
        at: attributes of the subject that the function takes, separated by blanks, or the place in the record; if
            one is None, the figure does not exist.
        unit: form in which it is written.
    """
    docstring, ends = inspect.getdoc(of) or "", (0.0, 1.0) if unit == "share" else (None, None)
    # A field of a record has its line; all else is defined in the first line.
    field = re.search(rf"^    {at.partition('.')[2] or '-'}: (.)(.+(?:\n     .+)*)", docstring, re.MULTILINE)
    definition = " ".join(f"{field[1].upper()}{field[2]}".split()) if field else docstring.partition("\n")[0]
    return Metric(name, name, name, definition, source, partial(_measure_at, of, at), *ends, unit=unit, is_shown=False)


def _measure_at(of: Any, at: str, subject: Any) -> float:
    """The figure at a place of a subject: the middle of an interval, the number of positions."""
    values = []
    for path in at.split():
        value = subject
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        values.append(value)
    if any(value is None for value in values):
        return math.nan
    figure = values[0] if isinstance(of, type) else of(*(values[0] if isinstance(values[0], tuple) else values))
    return len(figure) if hasattr(figure, "__len__") else getattr(figure, "value", figure)


def in_condition(protocol: str) -> tuple[str, str]:
    """The metric of a protocol, and the condition that it was measured in; empty for none.

    >>> in_condition("linear probe under fog 3"), in_condition("knn")
    (('linear probe', 'under fog 3'), ('knn', ''))
    """
    parts = CONDITION.fullmatch(protocol)
    return (protocol, "") if parts is None else (parts[1], parts[2])


def is_apart(protocol: str) -> bool:
    """Tell whether a figure is one of many that have a table of their own: under a corruption, or on a curve.

    >>> is_apart("linear probe under fog 3"), is_apart("linear probe on sketches")
    (True, False)
    """
    return in_condition(protocol)[1].startswith((UNDER, KEEPING))


def metric_under(catalogue: Mapping[str, Metric], protocol: str) -> Metric:
    """The record of a protocol, which may be a metric's in a condition; for an unknown metric, a record of its name.

    Records of an earlier version may have figures of metrics that are no more; votes and probes among them are shares.

    >>> catalogue = {"knn": Metric("knn", "kNN accuracy", "kNN", "Share of queries.", "wu2018", unit="share")}
    >>> metric_under(catalogue, "knn under fog 3").short
    'kNN under fog 3'
    """
    if protocol in catalogue:
        return catalogue[protocol]
    name, condition = in_condition(protocol)
    unit: Unit = "share" if SHARES.search(name) else "number"
    metric = catalogue.get(name) or Metric(name, name, name, "", "", unit=unit)
    words = {"title": f"{metric.title} {condition}", "short": f"{metric.short} {condition}"}
    return replace(metric, name=protocol, **words, headline="", on_request=True)


@cache
def described_metrics(package: str) -> Mapping[str, Metric]:
    """The records of a package by name, without the functions that compute them and without importing anything.

    >>> described_metrics("diagnostics")["alignment"].source
    'wang2020'
    """
    metrics = (
        _from_code(call, catalogue.tree)
        for catalogue in held(package, "METRICS")
        if isinstance(catalogue.value, ast.Tuple)
        for call in catalogue.value.elts
    )
    return {metric.name: metric for metric in metrics}


@cache
def loaded_metrics(package: str) -> dict[str, Metric]:
    """The records of a package by name, with the functions that compute them.

    Raises:
        CounterpointError: two metrics have one name.
    """
    metrics: dict[str, Metric] = {}
    for metric in itertools.chain(*loaded(package, "METRICS")):
        if metric.name in metrics:
            raise CounterpointError(f"two metrics of {package} are called {metric.name!r}; choose another name")
        metrics[metric.name] = metric
    return metrics


def _from_code(call: ast.expr, tree: ast.Module) -> Metric:
    """Build a record from its code; all fields but the function that computes it are literals."""
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    code = {str(each.arg): each.value for each in call.keywords if each.arg != "measure"}
    of = ast.unparse(code.pop("of")) if "of" in code else ""
    fields = {name: ast.literal_eval(value) for name, value in code.items()}
    if call.func.id != unshown_metric.__name__:
        return {each.__name__: each for each in (Metric, accuracy_metric)}[call.func.id](**fields)
    documented = next(
        node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == of
    )
    described = SimpleNamespace(__doc__=ast.get_docstring(documented))
    return replace(unshown_metric(**fields, of=described), measure=_not_loaded)
