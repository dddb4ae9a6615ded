"""The records of metrics: read as text and loaded alike, and whole enough for every page that is written from them."""

import re
from dataclasses import fields

import pytest

from counterpoint.core import metric as metrics
from counterpoint.core.errors import CounterpointError
from counterpoint.core.metric import Metric, described_metrics, loaded_metrics

PACKAGES = ("diagnostics", "evaluation")
ALL = [metric for package in PACKAGES for metric in described_metrics(package).values()]
PLACES = {"", "representation", "embedding"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_record_reads_the_same_as_text_and_loaded(package: str) -> None:
    described, loaded = described_metrics(package), loaded_metrics(package)
    assert list(described) == list(loaded) != []
    for name, metric in loaded.items():
        for field in fields(Metric):
            if field.name != "measure":
                assert getattr(described[name], field.name) == getattr(metric, field.name), (name, field.name)


@pytest.mark.parametrize("metric", ALL, ids=[metric.name for metric in ALL])
def test_a_record_has_what_its_pages_need(metric: Metric) -> None:
    assert metric.definition.endswith(".")
    assert re.fullmatch(r"[a-z]+\d{4}", metric.source)
    assert metric.headline in PLACES
    assert metric.low is None or metric.high is None or metric.low < metric.high
    assert metric.unit != "share" or (metric.low, metric.high) == (0.0, 1.0)
    assert metric.reference in {"", *described_metrics("diagnostics")}
    outside = re.sub(r"\[.*?\]", "", metric.wording)
    assert "{" not in outside, "a setting that an old record may lack stands in brackets"


def test_a_described_metric_says_that_it_computes_nothing() -> None:
    with pytest.raises(TypeError, match="only describes a metric"):
        described_metrics("diagnostics")["sparsity"].measure([])


def test_two_metrics_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = 2 * metrics.loaded("diagnostics", "METRICS")
    monkeypatch.setattr(metrics, "loaded", lambda *_: twice)
    with pytest.raises(CounterpointError, match="two metrics of diagnostics are called"):
        loaded_metrics.__wrapped__("diagnostics")
