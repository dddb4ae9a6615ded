"""The limits of a model card, each drawn from what was measured of an encoder and from what was not."""

from counterpoint.core.metric import is_apart
from counterpoint.core.run_records import EvaluationRecord, EvaluationRow, RunStatus
from counterpoint.core.written_tables import as_text
from counterpoint.diagnostics.findings import Findings
from counterpoint.nn.layer_outputs import REPRESENTATION
from counterpoint.nn.trained import EncoderCard

IMBALANCED = 3.0  # largest class over smallest
SEEDS = (
    "One training with one seed: how far another seed would differ was not measured (`counterpoint train --seeds 5`)."
)
FEW_QUERIES = 1000  # 95 % intervals of shares near 50 % are wider than 6 points below it


def limits(
    card: EncoderCard, status: RunStatus, evaluation: EvaluationRecord | None, findings: Findings | None
) -> list[str]:
    """Sentences, in Markdown; never empty."""
    found = [_size(card), _samples(status), _imbalance(status), SEEDS]
    found += _evaluated(evaluation)
    if findings is not None:
        found += [f"Not judged: {as_text(text)}." for text in findings.unjudged]
        found += [
            f"{as_text(finding.title)}: it is open {as_text(finding.cannot_tell)}."
            for finding in findings.findings
            if finding.level in ("warning", "severe") and finding.cannot_tell
        ]
    return [text for text in found if text]


def _size(card: EncoderCard) -> str:
    """What it takes."""
    if card.kind == "vectors":
        return f"It takes vectors of {card.in_shape[0]} features in the units of its training data, and nothing else."
    channels, height, width = card.in_shape
    colours = "grey levels" if channels == 1 else f"{channels} channels"
    return (
        f"It was trained at {width} x {height} pixels in {colours}. Larger pictures are shrunk to that, so that finer "
        "details are lost; what lies outside of the centred square is not seen."
    )


def _samples(status: RunStatus) -> str:
    """On what it was trained only."""
    if not status.num_train:
        return ""
    return f"It has seen {status.num_train:,} samples of one collection; of other collections nothing is claimed."


def _imbalance(status: RunStatus) -> str:
    """How unequal its classes were."""
    counts = [count for count in status.class_counts or () if count > 0]
    if len(counts) < 2:
        return ""
    ratio = max(counts) / min(counts)
    if ratio < IMBALANCED:
        return f"Its classes were about equal: the largest has {ratio:.2g} times the samples of the smallest."
    return (
        f"Its classes were unequal: the largest has {ratio:.3g} times the samples of the smallest ({min(counts)}); "
        "figures over all queries say little of the small ones."
    )


def _evaluated(evaluation: EvaluationRecord | None) -> list[str]:
    """What the evaluation leaves open."""
    if evaluation is None:
        return ["How well it tells classes apart was not measured, on any samples."]
    queries = int(evaluation.split.num_queries or 0)
    few = "; differences of a few points cannot be told" if queries < FEW_QUERIES else ""
    found = [f"It was judged on {queries:,} queries of one split{few}. It was not tested on other collections."]
    if not any(is_apart(row.protocol) for row in evaluation.rows):
        found.append("It was not tested under blur, noise, weather or compression (`evaluate --corruptions all` does).")
    found += [text for row in evaluation.rows if _is_judged(row) and (text := _beside_baseline(evaluation, row))]
    if evaluation.split.num_shared:
        found.append(f"{int(evaluation.split.num_shared):,} queries are in the bank, too, which favours every figure.")
    return found


def _is_judged(row: EvaluationRow) -> bool:
    """Whether a figure counts queries of the representation on clean samples."""
    return row.features == REPRESENTATION and row.accuracy is not None and not is_apart(row.protocol)


def _beside_baseline(evaluation: EvaluationRecord, own: EvaluationRow) -> str:
    """Whether the representation is measurably better than the best baseline, in pairs on the same queries."""
    rows = [row for row in evaluation.rows if row.protocol == own.protocol and row.is_baseline]
    rows = [row for row in rows if row.accuracy is not None]
    if not rows:
        return ""
    best = max(rows, key=lambda row: row.accuracy or 0.0)
    gain = own.minus(best)
    if gain is None or gain.low > 0:
        return ""
    ends = f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f} points"
    return (
        f"By {as_text(own.protocol)} it is not measurably better than {as_text(best.features)}, which training did not "
        f"make: {100 * gain.value:+.1f} points (95 % interval {ends})."
    )
