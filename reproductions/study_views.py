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
    """Tell whether a figure is a share, which is shown in per cent.

    >>> is_share("representation: knn-200"), is_share("embedding: effective_rank")
    (True, False)
    """
    if key == FINE_TUNED:
        return True
    name = key.partition(": ")[2]
    metric = described_metrics("diagnostics").get(name) or metric_under(described_metrics("evaluation"), name)
    return metric.unit == "share"


def table(study: Study, result: StudyResult) -> Table:
    """Table of what was measured of each arm: mean and deviation over seeds."""
    head = ["arm", *(f"{name}, %" if is_share(key) else name for name, key in study.columns.items())]
    rows = []
    for arm in study.arms:
        spreads = {key: Spread.of(result.of_arm(arm.name, key)) for key in study.columns.values()}
        rows.append([arm.says, *(spread.words(100.0 if is_share(key) else 1.0) for key, spread in spreads.items())])
    return head, rows


def printed_table(study: Study) -> Table:
    """Table of what the paper prints of each arm; without rows if it prints nothing."""
    names = list(dict.fromkeys(name for arm in study.arms for name in arm.printed))
    rows = [[arm.says, *(arm.printed.get(name, "") for name in names)] for arm in study.arms if arm.printed]
    return ["the paper prints", *names], rows


def claim_rows(study: Study, result: StudyResult) -> list[list[str]]:
    """A row for each claim: statement, source, difference with its interval, detectable difference, and verdict."""
    return [
        [claim.says, claim.source, *_difference(claim, judged), judged["verdict"]]
        for claim, judged in zip(study.claims, result.claims, strict=True)
    ]


CORRECTED = "with all of the paper (Holm)"
CLAIM_HEAD = ["claim", "source", "difference (interval)", "could tell", "verdict"]


def _difference(claim: StudyClaim, judged: Mapping[str, Any]) -> tuple[str, str]:
    """Write the difference with its interval and threshold, and the smallest difference that the seeds detect."""
    scale, unit = (100.0, " points") if is_share(claim.figure) else (1.0, "")
    ends = f"{_signed(judged['low'] * scale)} to {_signed(judged['high'] * scale)}"
    limit = {"greater": "> ", "smaller": "< ", "within": "within ±"}[claim.relation]
    threshold = f"; claimed {limit}{claim.than * scale:g}" if claim.than or claim.relation != "greater" else ""
    smallest = judged["smallest"]
    detectable = "-" if smallest is None else f"{smallest * scale:.3g}{unit}"
    return f"{_signed(judged['difference'] * scale)}{unit} ({ends}{threshold})", detectable


def _signed(value: float) -> str:
    """Write a number with a sign and three digits."""
    return f"{value:+.3g}" if abs(value) < 1000 else f"{value:+.0f}"


def as_text(study: Study, result: StudyResult) -> str:
    """Write table and verdicts for a terminal."""
    lines = [f"{study.title} ({study.paper}, {study.item}; {result.scale} scale: {result.data})"]
    for head, rows in (table(study, result), printed_table(study)):
        lines += ["", *TextTable(head, rows, "l" + "r" * (len(head) - 1)).lines] if rows else []
    for claim, row, judged in zip(study.claims, claim_rows(study, result), result.claims, strict=True):
        lines += ["", f"{row[4]}: {claim.says}"]
        told = f"difference {row[2]}; {judged['num_seeds']} seeds could tell {row[3]}. {claim.source}"
        lines += textwrap.wrap(told, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def as_reproduction(study: Study, result: StudyResult, pictures: Sequence[PictureGrid] = ()) -> Reproduction:
    """Convert a study's result to the record that pages are made from, with the pictures of its arms, if any."""
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
    """The table of our results, and that of the paper if it prints one."""
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
            DotPanel(name, {arm.says: values for arm in study.arms if (values := result.of_arm(arm.name, key))})
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
    """Mean of an arm's curve over its seeds; empty if it has none."""
    curves = [cell.curves[key] for cell in result.cells if cell.arm == arm and key in cell.curves]
    return [fmean(values) for values in zip(*curves, strict=False)]


def as_markdown(
    study: Study,
    result: StudyResult,
    corrected: Sequence[str],
    image: str = "",
    longer: tuple[Study, StudyResult] | None = None,
) -> str:
    """Write a section of a page: table, verdicts, what may explain them, and how it was made.

    Args:
        study: of the result.
        result: what was found.
        corrected: of each claim its verdict among all of the paper.
        image: its drawing, in Markdown; empty for none.
        longer: the study at its longer scale, and the result there.
    """
    tables = [(head, body) for head, body in (table(study, result), printed_table(study)) if body]
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
        *([] if longer is None else _with_more_training({row[0]: row[4] for row in rows}, *longer)),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part)


def _with_more_training(verdict_of: Mapping[str, str], study: Study, result: StudyResult) -> list[str]:
    """Write the section of the same arms at the longer scale: their table, and verdicts at both scales."""
    head, rows = table(study, result)
    claims = [[row[0], verdict_of[row[0]], row[2], row[4]] for row in claim_rows(study, result)]
    verdicts = ["claim", "verdict, small", "difference, longer", "verdict, longer"]
    return [
        f"### {study.item}, with more training",
        study.at("longer").note,
        TextTable(head, rows, "l" + "r" * (len(head) - 1)).to_markdown(is_markdown=True),
        TextTable(verdicts, claims, "llrl").to_markdown(is_markdown=True),
        _cells_words(result),
        f"```sh no-run it trains, on data sets that are not here\n"
        f"python -m reproductions {study.name} --data ROOT --scale longer\n```",
    ]


def seed_words(result: StudyResult) -> str:
    """Say how the number of seeds was set; empty if it was fixed beforehand."""
    if result.seed_rule == "fixed":
        return ""
    looks = ", ".join(f"{look} at {1 - level:.1%}" for look, level in LOOKS.items())
    return f" (added until a claim was told; intervals after {looks})"


def made_words(study: Study, result: StudyResult) -> str:
    """Say where a result was made, which commands make it again, and which hours the paper's scale would take."""
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
    """Say with which seeds, time, machine and commit a result was made."""
    seconds = result.made.seconds.values()
    return (
        f"{result.data}; seeds {', '.join(map(str, result.seeds))}{seed_words(result)}; {len(result.cells)} cells, "
        f"{sum(seconds):,.0f} s in all, {max(seconds):.0f} s at most, on {result.made.machine}; "
        f"commit {result.made.commit}, torch {result.made.torch}, {result.made.finished[:10]}."
    )


def _picture_words(study: Study, scale: str) -> list[str]:
    """Say where the pictures of a study are shown; empty if it has none."""
    plan = study.measures.pictures
    if plan is None:
        return []
    return [
        f"The page that this command writes, `{study.name}-{scale}.html`, shows the {plan.pictures} queries that "
        f"activate each of the first {plan.dimensions} dimensions most, arm beside arm; pictures are data of others, "
        "and none is kept here."
    ]


def hours_words(study: Study) -> list[str]:
    """Say which hours the paper's scale would take by ``paper_scale_hours``; empty without such an estimate."""
    if not HOURS.exists():
        return []
    estimate = read_json(HOURS)
    assert isinstance(estimate, dict)
    hours = estimate["studies"].get(study.name)
    if hours is None:
        return []
    rate = f"{estimate['gpu_rate'] / 1e12:g} TFLOP/s (assumed)"
    return [
        f"The paper's size: {hours['runs']} runs, some {hours['gpu_hours']:g} GPU hours at {rate}, or "
        f"{hours['core_hours']:,} hours of one core by a step timed on {estimate['machine']}; without evaluations."
    ]
