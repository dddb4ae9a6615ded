"""What an evaluation prints: long names and small figures."""

from counterpoint.core.run_records import EvaluationRecord, EvaluationSplit
from counterpoint.diagnostics.evidence import Interval
from counterpoint.evaluation.evaluation_result import Evaluation
from counterpoint.evaluation.metric_types import Score, row_of, wilson


def test_long_names_and_small_figures_fit_a_hundred_columns() -> None:
    small, share = Interval(0.000656, 0.0004, 0.0009), wilson(3893, 10_000)
    features = ["representation", "projected", "embedding", "untrained encoder", "timm:resnet18"]
    rows = [
        row_of(name, protocol, Score(outcome, {}))
        for protocol, outcome in (
            ("sepin@1", small), ("sepin@10", small), ("adam probe", share),
            ("linear probe on silhouettes.npz", share), ("knn", share),
        )
        for name in features
    ]  # fmt: skip
    split = EvaluationSplit(source="train.npz", num_queries=9, num_bank=9, num_classes=2, num_unlabelled=0)
    lines = str(Evaluation(EvaluationRecord(split=split, rows=tuple(rows)))).splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.split()[:4] == ["embedding", "adam", "probe", "38.9%"] for line in lines)  # of 0.2.0
    assert lines[-1].split() == ["timm:resnet18", "knn", "38.9%", "38.0%", "to", "39.9%"]
