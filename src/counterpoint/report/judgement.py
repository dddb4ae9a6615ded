"""The verdict of a run from all that its folder holds now, in whichever order it was diagnosed and evaluated."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from counterpoint.diagnostics.evidence import Accuracy, Evidence, gain_accuracies
from counterpoint.diagnostics.findings import CATALOGUE, check_gain, unjudged, verdict_words
from counterpoint.report.charts.series_style import known_level, severity
from counterpoint.report.run_record import Diagnosis, Evaluation, EvaluationRow, Finding, Verdict

GAIN = next(name for name, check in CATALOGUE.items() if check is check_gain)  # what is drawn from the evaluation


def judged_anew(diagnosis: Diagnosis, evaluation: Evaluation | None) -> Diagnosis:
    """Draw the finding about the gain from the evaluation, and the verdict from all findings.

    Args:
        diagnosis: as it was written, perhaps before there was an evaluation, or from an earlier one.
        evaluation: of the same run.
    """
    learned, baseline = gain_accuracies(_knn_accuracies(evaluation.rows if evaluation else ()))
    gain = check_gain(Evidence({}, learned=learned, baseline=baseline))
    drawn = [Finding(**asdict(gain))] if gain is not None else []
    findings = sorted([*(each for each in diagnosis.findings if each.name != GAIN), *drawn], key=_place)
    level = known_level(findings[0].level) if findings else "good"
    titles = [finding.title for finding in findings if known_level(finding.level) == level]
    sentence = verdict_words(level, titles, unjudged(learned, baseline))
    return replace(diagnosis, verdict=Verdict(level, sentence), findings=tuple(findings))


def _knn_accuracies(rows: Sequence[EvaluationRow]) -> list[Accuracy]:
    """The rows of the kNN protocol that are whole."""
    known = [(row.features, row.value, row.low, row.high) for row in rows if row.protocol == "knn"]
    return [
        Accuracy(name, value, low, high)
        for name, value, low, high in known
        if value is not None and low is not None and high is not None
    ]


def _place(finding: Finding) -> tuple[int, int]:
    """Worst first, then as the catalogue has it."""
    order = list(CATALOGUE)
    return severity(finding.level), order.index(finding.name) if finding.name in order else len(order)
