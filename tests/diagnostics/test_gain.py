"""Whether features are better than what training did not make: by kNN and probe, in pairs, in one sentence."""

import numpy as np
import pytest

from counterpoint.core.paired_shares import mcnemar, queries_to_tell
from counterpoint.core.schemas import EvaluationRow
from counterpoint.diagnostics.checks.quality_checks import check_gain
from counterpoint.diagnostics.evidence import Evidence
from counterpoint.diagnostics.finding import Level
from counterpoint.diagnostics.gain import answer
from hit_rows import hit_row

RAW = ("pixels (PCA)", "input (PCA)", "raw input")
PIXELS = hit_row("pixels (PCA)", range(800), 1000)


def knn(correct: int) -> EvaluationRow:
    """Of 1,000 queries the first 100 are wrong, which pixels get right."""
    return hit_row("representation", range(100, 100 + correct), 1000)


def level_of(rows: tuple[EvaluationRow, ...]) -> Level:
    found = check_gain(Evidence({}, votes=rows))
    assert found is not None
    return found.level


def probe_rows(learned: int, pixels: int) -> tuple[EvaluationRow, ...]:
    """Rows of a linear probe with so many of 1,000 queries right."""
    known = {"representation": learned, "pixels (PCA)": pixels}
    return tuple(hit_row(name, range(num), 1000, "linear probe") for name, num in known.items())


@pytest.mark.parametrize(
    ("rows", "level", "words"),
    [
        (probe_rows(377, 190), "good", "better than raw input: yes by the probe (37.7% against 19.0%)"),
        ((*(knn(810), PIXELS), *probe_rows(900, 700)), "good", "yes by the probe (90.0% against 70.0%), not told"),
        ((knn(700), PIXELS, *probe_rows(900, 700)), "note", "yes by the probe (90.0% against 70.0%), no, worse by"),
        ((knn(700), PIXELS, *probe_rows(700, 700)), "warning", "no, worse by kNN (70.0% against 80.0%), not told"),
        ((knn(700), PIXELS, *probe_rows(300, 700)), "warning", "no, worse by kNN (70.0% against 80.0%) and the"),
        ((*(knn(810), PIXELS), *probe_rows(705, 700)), "note", "1,000 queries; about"),
    ],
    ids=["probe alone", "probe sees more", "they disagree", "kNN sees less", "both worse", "not told apart"],
)
def test_the_answer_is_drawn_from_knn_and_probe(rows: tuple[EvaluationRow, ...], level: Level, words: str) -> None:
    assert words in answer(rows)
    assert level_of(rows) == level


def test_the_raw_input_has_one_name_whoever_measured_it() -> None:
    """An evaluation and a diagnosis call it differently in their rows."""
    measured = [check_gain(Evidence({}, votes=(knn(900), hit_row(name, range(800), 1000)))) for name in RAW]
    assert [finding and finding.reference_name for finding in measured] == ["kNN on raw input"] * len(RAW)


def test_what_is_better_than_pixels_and_not_than_the_untrained_encoder_is_no_gain() -> None:
    untrained = hit_row("untrained encoder", range(900), 1000)
    rows = (knn(900), PIXELS, untrained)
    assert level_of(rows) == "note"
    assert "better than the untrained encoder: not told apart" in answer(rows)


def test_without_known_queries_no_gain_is_claimed() -> None:
    """Records of earlier versions: intervals that do not overlap are no reason to speak."""
    old = knn(900).model_copy(update={"hits": None})
    assert "not kept which queries were right" in answer((old, PIXELS))
    assert check_gain(Evidence({}, votes=(old, PIXELS))) is None


def test_the_queries_that_are_needed_tell_the_difference_as_often_as_is_said() -> None:
    """Connor's number, tried: of 2,000 draws of so many queries, McNemar's exact test tells about 80 %."""
    draws, size, apart = np.random.default_rng(0), 0.1, 0.3
    total = queries_to_tell(size, apart)
    only_first, only_second, _ = draws.multinomial(total, [0.2, 0.1, 0.7], size=2000).T
    told = np.mean([mcnemar(*each) <= 0.05 for each in zip(only_first.tolist(), only_second.tolist(), strict=True)])
    assert 0.74 < told < 0.84  # the exact test is on the safe side of the normal one
