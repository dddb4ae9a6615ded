"""Counts of what was found for each fault: recall in the first two findings, right causes, and false alarms."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from calibration.cases import FIRST, Case
from calibration.feature_faults import FAULTS
from calibration.healthy_features import FAMILIES
from calibration.trained_faults import HEALTHY, TRAINED_FAULTS
from counterpoint.core.terminal_text import TextTable, in_markdown
from counterpoint.evaluation.evaluation_result import KNN, PROBE
from counterpoint.evaluation.metric_types import wilson


def feature_tables(cases: Sequence[Case]) -> str:
    """Faults of features by family, then healthy features by family."""
    done = [case for case in cases if case.evidence]
    parts = []
    if faults := _by_name(done, FAULTS):
        head = [
            "fault",
            "what is wrong",
            "named",
            "95 % interval",
            "right cause first",
            "by kind of data",
            "found first",
        ]
        rows = [_fault_row(name, FAULTS[name].summary, FAULTS[name].found_as, group) for name, group in faults.items()]
        named = [case.is_named(FAULTS[case.fault].found_as) for group in faults.values() for case in group]
        is_enough = [
            np.mean([case.is_named(FAULTS[name].found_as) for case in group]) >= 0.9 for name, group in faults.items()
        ]
        parts += [
            TextTable(head, rows, "llrlrll").to_markdown(),
            f"All faults: {_share(sum(named), len(named))} named in the first {FIRST} findings; "
            f"{sum(is_enough)} of {len(is_enough)} faults in at least 90 % of their cases.",
        ]
        parts += [f"- {name}: {FAULTS[name].unknowable}." for name in faults if FAULTS[name].unknowable]
    if healthy := _by_name(done, FAMILIES):
        head = ["healthy features", "what they are", "sets", "severe", "misleading warning", "what was said"]
        parts.append(
            TextTable(head, [_healthy_row(name, group) for name, group in healthy.items()], "llrrrl").to_markdown()
        )
        severe, misled = ([_alarms(case)[place] for group in healthy.values() for case in group] for place in (0, 1))
        parts.append(
            f"All healthy sets: severe verdicts {_share(sum(severe), len(severe))}; misleading warnings "
            f"{_share(sum(misled), len(misled))}."
        )
    return "\n\n".join([*parts, *_stopped(cases)])


def trained_tables(cases: Sequence[Case]) -> str:
    """Trainings by fault, with accuracies before and after the remedy; remedies by the finding that asks for them."""
    done = [case for case in cases if case.evidence]
    faults = _by_name(done, TRAINED_FAULTS)
    head = [
        "fault", "what is wrong", "named", "95 % interval", "right cause first", "found first", "remedy",
        "its figure improves", "kNN, %", "probe, %",
    ]  # fmt: skip
    rows = [_trained_row(name, group) for name, group in faults.items()]
    parts = [TextTable(head, rows, "llrlrllrll").to_markdown()]
    tried = [case for case in done if case.gain is not None]
    if tried:
        improved = [bool(case.is_improved) for case in tried]
        parts += [
            f"First remedies: {sum(improved)} of {len(improved)} improve their figure.",
            TextTable(
                ["finding", "helped", "points", "changes"],
                [_remedy_row(name, [case for case in tried if case.remedy == name]) for name in _remedies(tried)],
                "lrrl",
            ).to_markdown(),
            "Helped: the mean accuracy of kNN and linear probe on pictures that no training saw is higher after the "
            "remedy; points: by how much on average.",
        ]
    return "\n\n".join([*parts, *_stopped(cases)])


def _by_name(cases: Sequence[Case], catalogue: Mapping[str, object]) -> dict[str, list[Case]]:
    named = {name: [case for case in cases if case.fault == name] for name in catalogue}
    return {name: group for name, group in named.items() if group}


def _share(count: int, total: int) -> str:
    """A count with its interval."""
    interval = wilson(count, total)
    return f"{count:,} of {total:,} ({interval.low:.1%} to {interval.high:.1%})"


def _first_codes(cases: Sequence[Case]) -> str:
    """Codes of the first findings, the most frequent first."""
    counts = Counter(case.findings[0].name if case.findings else "none" for case in cases)
    return ", ".join(f"{name} {count}" for name, count in counts.most_common(3))


def _fault_row(name: str, summary: str, found_as: tuple[str, ...], cases: Sequence[Case]) -> list[str]:
    num_named = sum(case.is_named(found_as) for case in cases)
    interval = wilson(num_named, len(cases))
    kinds = sorted({case.kind for case in cases})
    by_kind = [[case.is_named(found_as) for case in cases if case.kind == kind] for kind in kinds]
    return [
        name,
        summary,
        f"{num_named} of {len(cases)}",
        f"{interval.low:.0%} to {interval.high:.0%}",
        f"{sum(case.is_named(found_as, 1) for case in cases)} of {len(cases)}",
        ", ".join(f"{kind} {sum(named)}/{len(named)}" for kind, named in zip(kinds, by_kind, strict=True)),
        _first_codes(cases),
    ]


def _alarms(case: Case) -> tuple[bool, bool]:
    """Tell whether a healthy set has a severe verdict, and whether a warning that is not right about it."""
    return case.has("severe"), case.has("warning", FAMILIES[case.fault].true_of_it)


def _healthy_row(name: str, cases: Sequence[Case]) -> list[str]:
    severe, misled = (sum(_alarms(case)[place] for case in cases) for place in (0, 1))
    counts = Counter(each.name for case in cases for each in case.findings if each.level in ("warning", "severe"))
    said = ", ".join(f"{code} {count}" for code, count in counts.most_common(3)) or "–"
    return [name, FAMILIES[name].summary, f"{len(cases)}", f"{severe}", f"{misled}", said]


def _trained_row(name: str, cases: Sequence[Case]) -> list[str]:
    row = _fault_row(name, TRAINED_FAULTS[name].summary, TRAINED_FAULTS[name].found_as, cases)
    if name == HEALTHY:
        num_fine = sum(not case.has("severe") for case in cases)
        interval = wilson(num_fine, len(cases))
        row[2:5] = [f"not severe: {num_fine} of {len(cases)}", f"{interval.low:.0%} to {interval.high:.0%}", "–"]
    tried = [case for case in cases if case.gain is not None]
    remedies = ", ".join(f"{code} {sum(case.remedy == code for case in tried)}" for code in _remedies(tried)) or "–"
    improved = f"{sum(bool(case.is_improved) for case in tried)} of {len(tried)}" if tried else "–"
    return [*row[:5], row[6], remedies, improved, *(_before_and_after(cases, tried, metric) for metric in (KNN, PROBE))]


def _before_and_after(cases: Sequence[Case], tried: Sequence[Case], metric: str) -> str:
    """Mean accuracy of all trainings; of those with a remedy, before and after it."""
    if not tried:
        return f"{100 * np.mean([case.scores[metric] for case in cases]):.1f}"
    before = 100 * np.mean([case.scores[metric] for case in tried])
    after = 100 * np.mean([case.remedied_scores[metric] for case in tried])
    return f"{before:.1f} → {after:.1f}"


def _remedies(tried: Sequence[Case]) -> list[str]:
    """Findings whose changes were tried, the most frequent first."""
    return [name for name, _ in Counter(case.remedy for case in tried).most_common()]


def _remedy_row(name: str, cases: Sequence[Case]) -> list[str]:
    gains = [case.gain or 0.0 for case in cases]
    changes = Counter(case.changes for case in cases).most_common(1)[0][0]
    return [name, f"{sum(gain > 0 for gain in gains)} of {len(gains)}", f"{100 * np.mean(gains):+.1f}", changes]


def _stopped(cases: Sequence[Case]) -> list[str]:
    """A sentence on the cases that stopped, if any; a second training that stopped is counted, too."""
    stopped = [case for case in cases if case.error]
    if not stopped:
        return []
    case = stopped[0]
    return [f"{len(stopped)} cases stopped: {case.fault}, seed {case.seed}: {in_markdown(case.error)}"]
