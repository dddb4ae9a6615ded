"""The page of an evaluation: figures, company, seeds; nothing injects, nothing else is replaced."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from page_scan import scan_without_script
from run_folders import ATTACK

from counterpoint.core.run_records import EvaluationRecord, EvaluationSplit
from counterpoint.evaluation.evaluation_result import Evaluation
from counterpoint.evaluation.metric_types import IntervalEstimate, Proportion, Score, row_of, wilson
from counterpoint.report.document import write_page
from counterpoint.report.evaluation_page import EVALUATION_PAGE, render_evaluation
from counterpoint.runs.seed_evaluation import SeedEvaluation, SeedRow
from hit_rows import packed

SPLIT: dict[str, Any] = {
    "source": "digits",
    "how": "held out of training",
    "num_queries": 100,
    "num_bank": 400,
    "num_classes": 10,
    "num_unlabelled": 0,
}


def share(correct: int) -> Proportion:
    return replace(wilson(correct, 100), hits=packed(range(correct), 100))


def evaluation(name: str = "ncl", **known: Any) -> Evaluation:
    rows = (
        row_of("representation", "knn", Score(share(90), {"k": 20, "temperature": 0.1})),
        row_of("timm:resnet18", "knn", Score(share(70), {"k": 20, "temperature": 0.1, "baseline": "timm:resnet18"})),
        row_of("representation", "sepin", Score(IntervalEstimate(0.25, 0.2, 0.3), {})),
        row_of("representation", "linear probe under fog 3", Score(share(55), {"corruption": "fog", "severity": 3})),
    )
    record = {"rows": rows, "split": SPLIT, **known}
    return Evaluation(EvaluationRecord.model_validate(record), name=name)


def read(path: Path) -> str:
    page = scan_without_script(path.read_text(encoding="utf-8"))
    return " ".join(page.text.replace("\N{NARROW NO-BREAK SPACE}", " ").split())


def test_the_page_has_every_figure_and_what_stands_beside_it(tmp_path: Path) -> None:
    text = read(
        write_page(
            EVALUATION_PAGE,
            tmp_path / "page.html",
            lambda: render_evaluation(evaluation(protocol=("ncl2024-table2",))),
        )
    )
    low, high = (f"{100 * end:.1f}" for end in (share(90).low, share(90).high))
    assert "digits: 100 queries, 400 labelled samples, 10 classes" in text
    assert f"{low} to {high} %" in text
    assert "90 of 100" in text
    assert "0.25" in text
    assert "Under corruptions" in text


def test_seeds_have_a_table_of_their_own(tmp_path: Path) -> None:
    row = SeedRow("embedding", "knn", {}, (0.5, 0.75), 0.625, 0.177, 0.1, 0.9)
    found = SeedEvaluation("seeds", (3, 5), (row,), EvaluationSplit.model_validate(SPLIT))
    text = read(write_page(EVALUATION_PAGE, tmp_path / "page.html", lambda: render_evaluation(found)))
    assert "seeds, seeds 3, 5, on digits: 100 queries" in text
    own = ["62.5%", "17.7%", "10.0% to 90.0%", "50.0%", "75.0%"]
    assert "".join(["95 % interval", "seed 3", "seed 5", "kNN", "embedding", *own]) in text
    assert "What can it be compared with?" not in text


def test_names_of_others_stay_text(tmp_path: Path) -> None:
    rows = (row_of(ATTACK, "knn", Score(share(3), {ATTACK: ATTACK})),)
    page = write_page(
        EVALUATION_PAGE,
        tmp_path / "p.html",
        lambda: render_evaluation(evaluation(rows=rows, name=ATTACK, split={**SPLIT, "source": ATTACK})),
    )
    assert "<img" not in page.read_text(encoding="utf-8")
    assert "onerror=alert(1)" in read(page)
