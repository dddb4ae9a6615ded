"""Protocols of published tables: they name what there is, and say all that they fix."""

import pytest

from counterpoint.core.errors import UsageError
from counterpoint.core.metric import described_metrics
from counterpoint.core.run_records import EvaluationRecord, EvaluationSplit
from counterpoint.core.validation import build
from counterpoint.evaluation.evaluation_result import Evaluation
from counterpoint.evaluation.evaluation_settings import ALL, CATALOGUE, EvaluationSettings, with_protocols
from counterpoint.evaluation.metric_types import IntervalEstimate, Score, row_of, wilson
from counterpoint.nn.layer_outputs import OUTPUTS

PAPERS = {"alphacl2022", "mio2021", "directclr2022", "ncl2024"}


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_protocol_is_settings_that_an_evaluation_takes(name: str) -> None:
    protocol = CATALOGUE[name]
    asked = build(EvaluationSettings, with_protocols({"protocol": (name,)}), "evaluate")
    assert asked.metrics == protocol.metrics
    assert set(asked.metrics) <= described_metrics("evaluation").keys()
    assert set(asked.layers) <= set(OUTPUTS)
    assert name.split("-", maxsplit=1)[0] in PAPERS


def test_settings_of_the_papers_are_those_of_their_code() -> None:
    """From the notes on the papers' code; the figures' own settings are in the metrics' tests."""
    assert CATALOGUE["mio2021-table2"].metrics == ("knn-200",)
    assert CATALOGUE["alphacl2022-table1"].layers == ("representation",)
    assert CATALOGUE["ncl2024-table7"].layers == ("projected", "embedding")


def test_all_of_them_are_one_evaluation() -> None:
    together = with_protocols({"protocol": (ALL,)})
    assert set(together["metrics"]) == {name for each in CATALOGUE.values() for name in each.metrics}
    assert together["corruptions"] == ("all",)


def test_what_a_user_gives_besides_goes_before() -> None:
    assert with_protocols({"protocol": ("ncl2024-table3b",), "corruptions": ("fog",)})["corruptions"] == ("fog",)
    assert with_protocols({"k": 5}) == {"k": 5}


@pytest.mark.parametrize("given", [{"metrics": ("knn",)}, {"layers": ("embedding",)}, {"k": 5}])
def test_what_a_protocol_fixes_is_not_for_the_user(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(given))} is what a protocol says"):
        with_protocols({"protocol": ("mio2021-table2",), **given})


def test_an_unknown_protocol_is_told_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown protocol 'mio2021-table1'.*mio2021-table2"):
        with_protocols({"protocol": ("mio2021-table1",)})


def test_long_names_and_small_figures_fit_a_hundred_columns() -> None:
    small, share = IntervalEstimate(0.000656, 0.0004, 0.0009), wilson(3893, 10_000)
    features = ["representation", "projected", "embedding", "untrained encoder", "timm:resnet18"]
    rows = [
        row_of(name, protocol, Score(outcome, {}))
        for protocol, outcome in (
            ("sepin@1", small), ("sepin@10", small), ("linear probe on silhouettes.npz", share), ("knn", share),
        )
        for name in features
    ]  # fmt: skip
    split = EvaluationSplit(source="train.npz", num_queries=9, num_bank=9, num_classes=2, num_unlabelled=0)
    lines = str(Evaluation(EvaluationRecord(split=split, rows=tuple(rows)))).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[-1].split() == ["timm:resnet18", "knn", "38.9%", "38.0%", "to", "39.9%"]
