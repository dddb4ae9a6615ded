"""The result of a study as people read it: table and verdicts as text, on a page and in Markdown. No torch."""

import textwrap
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from counterpoint.core.files import read_json
from counterpoint.core.metric import described_metrics, metric_under
from counterpoint.core.terminal_text import TextTable
from reproductions.panels import DotPanel, LinePanel, Panel, Series, TablePanel
from reproductions.reproduction import Claim, PictureGrid, Reproduction
from reproductions.study import PAPERS, Study, StudyClaim
from reproductions.study_result import Spread, StudyResult
from reproductions.verdicts import FAILS, HOLDS, LOOKS

Table = tuple[list[str], list[list[str]]]  # head and rows
AGREES: Mapping[str, bool | None] = {HOLDS: True, FAILS: False}
WIDTH = 110
HOURS = PAPERS / "paper_scale.json"
FINE_TUNED = "fine-tuned: classifier"


def is_share(key: str) -> bool:
    """Whether a figure is a share, which is shown in per cent.

    >>> is_share("representation: knn-200"), is_share("embedding: effective_rank")
    (True, False)
    """
    if key == FINE_TUNED:
        return True
    name = key.partition(": ")[2]
    metric = described_metrics("diagnostics").get(name) or metric_under(described_metrics("evaluation"), name)
    return metric.unit == "share"


def table(study: Study, result: StudyResult) -> Table:
    """What was measured of each arm: mean and deviation over seeds."""
    head = ["arm", *(f"{name}, %" if is_share(key) else name for name, key in study.columns.items())]
    rows = []
    for arm in study.arms:
        found = {key: Spread.of(result.of_arm(arm.name, key)) for key in study.columns.values()}
        rows.append([arm.says, *(each.words(100.0 if is_share(key) else 1.0) for key, each in found.items())])
    return head, rows


def printed_table(study: Study) -> Table:
    """What the paper prints of each arm; without rows where that is nothing."""
    names = list(dict.fromkeys(name for arm in study.arms for name in arm.printed))
    rows = [[arm.says, *(arm.printed.get(name, "") for name in names)] for arm in study.arms if arm.printed]
    return ["the paper prints", *names], rows


def claim_rows(study: Study, result: StudyResult) -> list[list[str]]:
    """Each claim: statement, source, difference with its interval, what could be told, verdict."""
    return [
        [claim.says, claim.source, *_difference(claim, judged), judged["verdict"]]
        for claim, judged in zip(study.claims, result.claims, strict=True)
    ]


CORRECTED = "with all of the paper (Holm)"
CLAIM_HEAD = ["claim", "source", "difference (interval)", "could tell", "verdict"]


def _difference(claim: StudyClaim, judged: Mapping[str, Any]) -> tuple[str, str]:
    """The difference with its interval and threshold, and the smallest that could have been told."""
    scale, unit = (100.0, " points") if is_share(claim.figure) else (1.0, "")
    ends = f"{_signed(judged['low'] * scale)} to {_signed(judged['high'] * scale)}"
    limit = {"greater": "> ", "smaller": "< ", "within": "within ±"}[claim.relation]
    asked = f"; claimed {limit}{claim.than * scale:g}" if claim.than or claim.relation != "greater" else ""
    smallest = judged["smallest"]
    told = "-" if smallest is None else f"{smallest * scale:.3g}{unit}"
    return f"{_signed(judged['difference'] * scale)}{unit} ({ends}{asked})", told


def _signed(value: float) -> str:
    """Three digits with a sign."""
    return f"{value:+.3g}" if abs(value) < 1000 else f"{value:+.0f}"


def as_text(study: Study, result: StudyResult) -> str:
    """Table and verdicts for a terminal."""
    lines = [f"{study.title} ({study.paper}, {study.item}; {result.scale} scale: {result.data})"]
    for head, rows in (table(study, result), printed_table(study)):
        lines += ["", *TextTable(head, rows, "l" + "r" * (len(head) - 1)).lines] if rows else []
    for claim, row, judged in zip(study.claims, claim_rows(study, result), result.claims, strict=True):
        lines += ["", f"{row[4]}: {claim.says}"]
        told = f"difference {row[2]}; {judged['num_seeds']} seeds could tell {row[3]}. {claim.source}"
        lines += textwrap.wrap(told, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def as_reproduction(study: Study, result: StudyResult, pictures: Sequence[PictureGrid] = ()) -> Reproduction:
    """As the record that pages are made from, with the pictures of each arm where there are any."""
    claims = []
    for claim, row, judged in zip(study.claims, claim_rows(study, result), result.claims, strict=True):
        note = f"{judged['num_seeds']} seeds could tell {row[3]}"
        claims.append(Claim(claim.says, claim.source, row[2], AGREES.get(row[4]), note, judged=row[4]))
    settings = {
        "scale": result.scale,
        "data": result.data,
        "seeds": ", ".join(map(str, result.seeds)),
        "commit": result.made.commit,
        "machine": result.made.machine,
        "claims": result.claims_hash,
    }
    return Reproduction(
        study.name,
        study.title,
        f"{study.paper}, {study.item}",
        claims,
        [*_table_panels(study, result), *drawn_panels(study, result)],
        remarks=[note for note in (study.at(result.scale).note, *study.remarks) if note],
        settings=settings,
        pictures=pictures,
    )


def _table_panels(study: Study, result: StudyResult) -> list[Panel]:
    """Ours, and the paper's."""
    made, printed = table(study, result), printed_table(study)
    panels: list[Panel] = [TablePanel("Mean and standard deviation over seeds", *made)]
    return [*panels, TablePanel("What the paper prints", *printed)] if printed[1] else panels


def drawn_panels(study: Study, result: StudyResult) -> list[Panel]:
    """A panel for each curve, with a line for each arm, the mean over seeds; without curves, one for each column."""
    keys: dict[object, str] = {}  # a curve that is the same of every cell is drawn once: of the last and only update
    for key in dict.fromkeys(key for cell in reversed(result.cells) for key in cell.curves):
        keys[tuple(cell.curves.get(key) for cell in result.cells)] = key
    if not keys:
        dots = [
            DotPanel(name, {arm.says: found for arm in study.arms if (found := result.of_arm(arm.name, key))})
            for name, key in study.columns.items()
        ]
        return [panel for panel in dots if panel.values]
    return [
        LinePanel(
            key[:1].upper() + key[1:].replace(": ", ", "),
            "rank, evenly spaced",
            key.partition(": ")[2],
            [
                Series(arm.says, range(len(line)), line)
                for arm in study.arms
                if (line := mean_curve(result, arm.name, key))
            ],
        )
        for key in keys.values()
    ]


def mean_curve(result: StudyResult, arm: str, key: str) -> list[float]:
    """Mean over the seeds of a curve of an arm; empty where it has none."""
    curves = [cell.curves[key] for cell in result.cells if cell.arm == arm and key in cell.curves]
    return [fmean(values) for values in zip(*curves, strict=False)]


def as_markdown(
    study: Study, result: StudyResult, corrected: Sequence[str], image: str = "", longer: StudyResult | None = None
) -> str:
    """A section of a page: table, verdicts, what may explain them, and how it was made.

    Args:
        study: of the result.
        result: what was found.
        corrected: of each claim its verdict among all of the paper.
        image: its drawing, in Markdown; empty for none.
        longer: what was found with more training.
    """
    tables = [found for found in (table(study, result), printed_table(study)) if found[1]]
    rows = [[*row, other] for row, other in zip(claim_rows(study, result), corrected, strict=True)]
    differing = zip(study.claims, rows, strict=True)
    parts = [
        f"## {study.item}: {study.title}",
        *(TextTable(head, rows, "l" + "r" * (len(head) - 1)).to_markdown(is_markdown=True) for head, rows in tables),
        image,
        TextTable([*CLAIM_HEAD, CORRECTED], rows, "lllrll").to_markdown(is_markdown=True),
        *(f"Why not, perhaps ({claim.says}): {claim.why}" for claim, row in differing if claim.why and row[4] != HOLDS),
        *(note for note in (study.at(result.scale).note, *study.remarks) if note),
        made_words(study, result),
        *([] if longer is None else _with_more_training(study, result, longer)),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part)


def _with_more_training(study: Study, result: StudyResult, longer: StudyResult) -> list[str]:
    """What the same arms give at the longer scale, and whether a verdict changes."""
    head, rows = table(study, longer)
    claims = [
        [short[0], short[4], long[2], long[4]]
        for short, long in zip(claim_rows(study, result), claim_rows(study, longer), strict=True)
    ]
    verdicts = ["claim", "verdict, small", "difference, longer", "verdict, longer"]
    return [
        f"### {study.item}, with more training",
        study.at("longer").note,
        TextTable(head, rows, "l" + "r" * (len(head) - 1)).to_markdown(is_markdown=True),
        TextTable(verdicts, claims, "llrl").to_markdown(is_markdown=True),
        _cells_words(longer),
        f"```sh no-run it trains, on data sets that are not here\n"
        f"python -m reproductions {study.name} --data ROOT --scale longer\n```",
    ]


def seed_words(result: StudyResult) -> str:
    """How the number of seeds came about, where it was not fixed beforehand."""
    if result.seed_rule == "fixed":
        return ""
    looks = ", ".join(f"{look} at {1 - level:.1%}" for look, level in LOOKS.items())
    return f" (added until a claim was told; intervals after {looks})"


def made_words(study: Study, result: StudyResult) -> str:
    """Where a result was made, what makes it again, and what the paper's scale would take."""
    return "\n\n".join(
        [
            _cells_words(result),
            f"```sh no-run it trains, on data sets that are not here\n"
            f"python -m reproductions {study.name} --data ROOT                 # this\n"
            f"python -m reproductions {study.name} --data ROOT --scale paper   # the paper's size\n```",
            *_picture_words(study, result.scale),
            *hours_words(study),
        ]
    )


def _cells_words(result: StudyResult) -> str:
    """Seeds, time, machine and commit."""
    seconds = result.made.seconds.values()
    return (
        f"{result.data}; seeds {', '.join(map(str, result.seeds))}{seed_words(result)}; {len(result.cells)} cells, "
        f"{sum(seconds):,.0f} s in all, {max(seconds):.0f} s at most, on {result.made.machine}; "
        f"commit {result.made.commit}, torch {result.made.torch}, {result.made.finished[:10]}."
    )


def _picture_words(study: Study, scale: str) -> list[str]:
    """Where the pictures of a study are to be seen."""
    plan = study.measures.pictures
    if plan is None:
        return []
    return [
        f"The page that this command writes, `{study.name}-{scale}.html`, shows the {plan.pictures} queries that "
        f"activate each of the first {plan.dimensions} dimensions most, arm beside arm; pictures are data of others, "
        "and none is kept here."
    ]


def hours_words(study: Study) -> list[str]:
    """What the paper's scale would take, as ``paper_scale_hours`` estimates it; nothing if it has not."""
    if not HOURS.exists():
        return []
    known = read_json(HOURS)
    assert isinstance(known, dict)
    hours = known["studies"].get(study.name)
    if hours is None:
        return []
    rate = f"{known['gpu_rate'] / 1e12:g} TFLOP/s (assumed)"
    return [
        f"The paper's size: {hours['runs']} runs, some {hours['gpu_hours']:g} GPU hours at {rate}, or "
        f"{hours['core_hours']:,} hours of one core by a step timed on {known['machine']}; without evaluations."
    ]
