"""Findings: what the measurements mean, worst first, each with a reference, a mechanism and something to try."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import fill
from typing import Annotated, Any

from pydantic import Field

from counterpoint.core.schemas import EvaluationRow, Figure, Listed, Record, Text
from counterpoint.core.terminal_text import Printed
from counterpoint.diagnostics import remedies
from counterpoint.diagnostics.checks import (
    collapse_checks,
    feature_checks,
    label_checks,
    pair_checks,
    quality_checks,
    value_checks,
)
from counterpoint.diagnostics.checks.quality_checks import FEWEST_SAMPLES
from counterpoint.diagnostics.evidence import (
    EMBEDDING,
    VIEWS,
    ClassRecord,
    Concept,
    Evidence,
    HeldOutRecord,
    Lever,
    Measurements,
)
from counterpoint.diagnostics.finding import LEVELS, Check, Finding, Level
from counterpoint.diagnostics.gain import answer
from counterpoint.diagnostics.pair_record import PairRecord

GAIN, CLASSES = "gain", "classes"
ACCURACIES = (GAIN, CLASSES, "projector-hides")
OF_RUNS = ("report RUN", "embed RUN", "--checkpoint", "--pairs", "--batch-size", "--data")  # not of a file of features
WIDTH, INDENT = 100, " " * 11  # of what is printed
HANGING = INDENT + "  "
# Faults of samples, then of the training, then what follows from them: of one level the first is named first.
CATALOGUE: Mapping[str, Check] = {
    "not-finite": quality_checks.check_finite,
    "altered-input": feature_checks.check_altered_input,
    "outliers": value_checks.check_outliers,
    "label-leak": label_checks.check_label_leak,
    "label-noise": label_checks.check_label_noise,
    "imbalance": label_checks.check_imbalance,
    "duplicates": pair_checks.check_duplicates,
    "near-copies": value_checks.check_near_copies,
    "false-negatives": pair_checks.check_false_negatives,
    "leakage": feature_checks.check_leakage,
    "shift": feature_checks.check_shift,
    "heavy-tails": value_checks.check_heavy_tails,
    "scales": value_checks.check_scales,
    "saturated": value_checks.check_saturated,
    "quantised": value_checks.check_quantised,
    "hubs": value_checks.check_hubs,
    "row-order": value_checks.check_row_order,
    "untrained": quality_checks.check_moved,
    "rate-too-high": quality_checks.check_thrown,
    "full-collapse": collapse_checks.check_full_collapse,
    "few-negatives": pair_checks.check_few_negatives,
    "temperature-low": pair_checks.check_low_temperature,
    "temperature-high": pair_checks.check_high_temperature,
    "projector-hides": quality_checks.check_projector,
    "narrow-embedding": quality_checks.check_narrow_embedding,
    "shortcut": pair_checks.check_shortcut,
    "neural-collapse": collapse_checks.check_neural_collapse,
    "batch-effect": label_checks.check_hidden_modes,
    "shared-cluster": label_checks.check_shared_cluster,
    "parted-label": label_checks.check_parted_label,
    "minority-collapse": feature_checks.check_minority_collapse,
    "dimensional-collapse": collapse_checks.check_dimensional_collapse,
    "cluster-collapse": collapse_checks.check_clumps,
    "identical-views": pair_checks.check_identical_views,
    "stray-views": pair_checks.check_stray_views,
    "unrelated-views": pair_checks.check_related_views,
    "hiding-views": pair_checks.check_hiding_views,
    "loss-at-chance": quality_checks.check_loss,
    "non-uniformity": collapse_checks.check_uniformity,
    "offset": collapse_checks.check_offset,
    "representation-rank": collapse_checks.check_lost_rank,
    "held-out": feature_checks.check_held_out,
    "dead-dimensions": collapse_checks.check_dead_dimensions,
    "sparse-code": feature_checks.check_sparse_code,
    "uneven-spectrum": collapse_checks.check_uneven_spectrum,
    "duplicate-dimensions": feature_checks.check_duplicate_dimensions,
    "alignment": pair_checks.check_alignment,
    "gaussian-slices": value_checks.check_gaussian_slices,
    "gain": quality_checks.check_gain,
    "classes": quality_checks.check_classes,
    "little-evidence": quality_checks.check_evidence,
}


class Findings(Record, Printed):
    """A diagnosis: all findings with what they were drawn from.

    Attributes:
        answer: sentence that says whether the features are good (``gain.answer``).
        findings: the findings, worst first.
        places: measurements by place.
        concepts: dimensions with the samples that activate them most.
        settings: thresholds and sample counts that the figures depend on.
        unjudged: missing input that a verdict would use (see ``Evidence.not_looked_at``).
        levers: changes and steps that the run allows, for findings about accuracies that are drawn again.
        classes: figures of the classes of the embedding, beside the optimum of theory; None without labels.
        held_out: comparison of training samples with held-out ones; None except for a run's own samples.
        pairs: weights that the loss gives to negatives, and samples that are too close.
    """

    answer: str = ""
    findings: Annotated[tuple[Finding, ...], Listed] = ()
    places: Mapping[str, Measurements] = Field(default_factory=dict)
    concepts: Annotated[tuple[Concept, ...], Listed] = ()
    settings: Mapping[str, Figure] = Field(default_factory=dict)
    unjudged: Annotated[tuple[Text, ...], Listed] = ()
    levers: Annotated[tuple[Lever, ...], Listed] = ()
    classes: ClassRecord | None = None
    held_out: HeldOutRecord | None = None
    pairs: PairRecord | None = None

    @property
    def level(self) -> Level:
        """The worst level."""
        return self.findings[0].level if self.findings else "good"

    @property
    def verdict(self) -> str:
        """The answer: whether there is a fault, and whether the features are good."""
        for finding in self.findings:
            if finding.name == "little-evidence" and (finding.measured or 0) < FEWEST_SAMPLES:
                return f"{finding.title}."  # nothing can be judged
        # Called healthy only where the features were measured to be better than what training did not make.
        is_gain = any(finding.level == "good" for finding in self.findings if finding.name == GAIN)
        fine = "Healthy" if is_gain else "No fault found"
        opening = {
            "good": "Healthy: no fault found" if is_gain else fine,
            "note": f"{fine}, with notes",
            "warning": "With a warning",
            "severe": "With a serious fault",
        }[self.level]
        worst = [finding for finding in self.findings if finding.level == self.level in ("warning", "severe")]
        # A title that the answer contains anyway is not repeated.
        title = f": {worst[0].title}" if worst and worst[0].name not in (GAIN, CLASSES) else ""
        more = f" (and {len(worst) - 1} more)" if len(worst) > 1 else ""
        return f"{opening}{title}{more}. {self.answer[:1].upper()}{self.answer[1:]}{'.' if self.answer else ''}".strip()

    @property
    def limits(self) -> str:
        """One line on missing input; empty without missing input."""
        return f"Not checked, as input was missing or too little: {', '.join(self.unjudged)}." if self.unjudged else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``findings.json``."""
        verdict = {"level": self.level, "sentence": self.verdict}
        concepts = [concept.written() for concept in self.concepts]
        pairs = None if self.pairs is None else self.pairs.model_dump(mode="json")
        return {"verdict": verdict, **self.model_dump(), "concepts": concepts, "pairs": pairs}

    def __str__(self) -> str:
        lines = [self.verdict, *filter(None, [self.limits])]
        for finding in self.findings:
            lines.append(f"  {finding.level:<8} {finding.title}")
            prefixes = {"good": (), "note": ("try: ", "samples: ")}.get(finding.level, ("",))
            details = [line for line in finding.details if line.startswith(prefixes)]
            lines += [fill(line, WIDTH, initial_indent=INDENT, subsequent_indent=HANGING) for line in details]
        return "\n".join(lines)


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """Run every check of ``CATALOGUE``; worst findings first, otherwise in the catalogue's order.

    With too few samples this is the only finding.
    """
    is_refused = evidence.places[EMBEDDING].num_samples < FEWEST_SAMPLES
    return _worst_first(_run_checks(evidence, ["little-evidence"] if is_refused else CATALOGUE))


def _worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    rank = {name: place for place, name in enumerate(CATALOGUE)}
    return tuple(sorted(findings, key=lambda entry: (-LEVELS.index(entry.level), rank.get(entry.name, len(rank)))))


def _run_checks(evidence: Evidence, names: Iterable[str]) -> Iterator[Finding]:
    for name in names:
        if (finding := CATALOGUE[name](evidence)) is not None:
            steps, otherwise = remedies.REMEDIES.get(name, (None, ""))
            advised = {} if steps is None else remedies.advice(evidence, *steps, otherwise=otherwise)
            finding = finding.model_copy(update={"name": name, **advised})
            if not evidence.levers - {"raw rows"}:  # features without their run
                is_possible = not any(part in finding.confirm for part in OF_RUNS)
                finding = finding.model_copy(update={"confirm": finding.confirm.replace("RUN", "FILE") * is_possible})
            yield finding


def draw_findings(evidence: Evidence) -> Findings:
    """Draw the findings and the answer, and keep what both were drawn from."""
    return Findings(
        findings=find(evidence),
        answer=answer(evidence.votes, is_rows="raw rows" in evidence.levers),
        places=evidence.places,
        unjudged=evidence.not_looked_at,
        levers=tuple(sorted(evidence.levers)),
        classes=evidence.classes,
        held_out=evidence.held_out,
        pairs=evidence.pairs,
    )


def judged_anew(findings: Findings, rows: Sequence[EvaluationRow]) -> Findings:
    """Draw the findings about accuracies, and with them the verdict, from an evaluation of the same run.

    Args:
        findings: findings as they were written, perhaps before there was an evaluation, or from an earlier one.
        rows: rows of the evaluation; empty if there is none, and the findings stay as they are.
    """
    if not rows:  # the diagnosis has its own
        return findings
    # These checks look at no place.
    evidence = Evidence({}, votes=tuple(rows), levers=frozenset(findings.levers))
    redrawn = [finding for finding in findings.findings if finding.name not in ACCURACIES]
    redrawn += _run_checks(evidence, ACCURACIES)
    lacking = (*evidence.not_looked_at, *(name for name in findings.unjudged if name == VIEWS))
    updates = {
        "findings": _worst_first(redrawn),
        "answer": answer(rows, is_rows="raw rows" in findings.levers),
        "unjudged": lacking,
    }
    return findings.model_copy(update=updates)
