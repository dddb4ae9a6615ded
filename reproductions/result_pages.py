"""Pages about what was reproduced here, written from the results that are kept: one for each paper, and a summary.

Results are the files ``reproductions/<bibkey>/results/*.json``: of studies, and of figures that a function computes.
Loads without torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.core.errors import RunError
from counterpoint.core.files import read_json
from counterpoint.core.paired_shares import LEVEL, holm
from counterpoint.core.terminal_text import TextTable
from reproductions.catalogue import CATALOGUE, DRAWINGS
from reproductions.panels import LinePanel, Panel, TablePanel
from reproductions.paper_items import item_rows
from reproductions.reproduction import panels_of
from reproductions.study import PAPERS, Scale, Study, studies
from reproductions.study_result import RESULTS, Compared, StudyResult, read_result, result_file
from reproductions.study_views import CORRECTED, as_markdown, claim_rows, drawn_panels
from reproductions.verdicts import FAILS, HOLDS, UNTOLD

TITLES: Mapping[str, str] = {
    "alphacl2022": "alpha-CL: pairwise importance",
    "mio2021": "MIO: mutual information by a binary classifier of pairs",
    "directclr2022": "DirectCLR: dimensional collapse",
    "ncl2024": "NCL: non-negative contrastive learning",
    "imbalanced2026": "Geometry of imbalanced classes",
}
OTHER_SEEDS = f"{RESULTS}/other-seeds"
AGAIN = "the same runs as above"
UNPRINTED = "nothing printed"  # of a figure: a quantity that the paper gives no value of
OF_FIGURE: Mapping[bool | None, str] = {True: HOLDS, False: FAILS, None: UNPRINTED}
READ = """\
Differences are paired: both sides use the same seeds, samples and queries. Intervals are Student's, of the paired
differences, at 95 %, of one comparison: in twenty comparisons without difference, expect one false verdict. The last
column corrects the verdicts of all studies of a paper together (Holm): the chance of one false verdict among them is at
most 5 %. A claim that compares the same runs by the same figure as one before it is marked so, and counted once. "Could
tell" is the smallest difference from the claimed one that this number of seeds, with this spread, detects with
probability 0.8. Results made with `--hours` say so: seeds were added to open claims after 3, 5 and 10 seeds, and the
four looks share the 5 % of one comparison. A claim holds if its whole interval agrees with it, does not hold if its
whole interval contradicts it, and cannot be told otherwise. Thresholds were set before the first run; each result has
their hash.

The small scale was raised once, for all studies together: five had been run with 2,000 pictures, 6 epochs and 1,000
queries, where most claims could not be decided. All of them were run again; claims and thresholds stayed. Later, with
the results at hand, two claims that the papers do not make left (directclr-section6, mio-fig6), one was turned to what
the paper says (alphacl-table1, r_s), and twenty of their sentences were added (alphacl-table1, mio-fig2, mio-table3,
ncl-table1, ncl-table4, ncl-table7, ncl-fig3, directclr-table1); where all seeds had one count, its rounding now gives
an interval. Last, Caltech-101 took the place of CIFAR-100 in six tables (alphacl-table2, alphacl-table3, mio-table2,
mio-table3, ncl-table3, ncl-table7), of STL-10 in alphacl-table1, and of ImageNet-100 under corruptions in ncl-table3:
28 claims that only the paper's scale had asked before. The one about corruptions is judged from runs that were there.

The claims are orderings at a small scale: a verdict says what holds in minutes on a CPU, not what holds at the paper's
scale. Figures that a function computes are compared with the printed ones for each seed: a claim holds if it holds for
all; where seeds disagree, the exact 95 % interval of the share of seeds that agree must lie above one half, or below
it. The figures whose claims had been open (directclr-fig5, alphacl-fig2) were made anew from other seeds for this rule;
alphacl-fig2 with 700, which 456 further seeds had said it takes."""


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on the claims of one table or figure.

    Attributes:
        name: as in ``python -m reproductions NAME``.
        rows: statement, difference or what was found, verdict, and the verdict among all of the paper.
    """

    name: str
    rows: Sequence[tuple[str, str, str, str]]


def results_of(paper: str, folder: str = RESULTS, scale: Scale = "small") -> list[tuple[Study, StudyResult]]:
    """The kept results of a paper's studies, in their order; in ``OTHER_SEEDS`` those that were run once more.

    Raises:
        RunError: a result that was made for other claims than its study has now.
    """
    files = [(study, result_file(study, scale, PAPERS / paper / folder)) for study in studies(scale).values()]
    return [(study, read_result(path, study)) for study, path in files if study.paper == paper and path.exists()]


def open_studies() -> list[Study]:
    """The studies whose kept results leave a claim open, by the seconds that a seed of all their arms took."""
    results = [pair for paper in TITLES for pair in results_of(paper)]
    open_results = [pair for pair in results if UNTOLD in [judged["verdict"] for judged in pair[1].claims]]
    open_results.sort(key=lambda pair: sum(pair[1].made.seconds.values()) / len(pair[1].seeds))
    return [study for study, _ in open_results]


def seeds_table() -> str:
    """Table of the studies that were run again with other seeds: how many of their verdicts are alike."""
    rows = []
    for paper in TITLES:
        results = {study.name: result for study, result in results_of(paper)}
        for study, other in results_of(paper, OTHER_SEEDS):
            pairs = [
                (first["verdict"], second["verdict"])
                for first, second in zip(results[study.name].claims, other.claims, strict=True)
            ]
            alike = sum(first == second for first, second in pairs)
            turned = sum({first, second} == {HOLDS, FAILS} for first, second in pairs)
            spans = [f"{result.seeds[0]} to {result.seeds[-1]}" for result in (results[study.name], other)]
            rows.append([f"`{study.name}`", " and ".join(spans), str(len(pairs)), str(alike), str(turned)])
    head = ["study", "seeds", "claims", "with one verdict", "turned around"]
    return TextTable(head, rows, "llrrr").to_markdown(is_markdown=True)


def figures_of(paper: str) -> list[dict[str, Any]]:
    """The kept results of a paper's computed figures."""
    paths = [PAPERS / paper / RESULTS / f"{name}.json" for name in CATALOGUE]
    contents = [read_json(path) for path in paths if path.exists()]
    return [figure for figure in contents if isinstance(figure, dict)]


def corrected_of(results: Sequence[tuple[Study, StudyResult]]) -> dict[str, list[str]]:
    """The verdicts of each study, all of a paper corrected together (holm1979); ``AGAIN`` of a repeated claim."""
    first_seen: dict[Compared, float] = {}
    tests = {}
    for study, result in results:
        cells = {(cell.arm, cell.seed): cell for cell in result.cells}
        tests[study.name] = [Compared.of(claim, cells, result.seed_rule) for claim in study.claims]
        for test in tests[study.name]:
            first_seen.setdefault(test, test.p_value)
    adjusted = dict(zip(first_seen, holm(list(first_seen.values())), strict=True))
    return {
        name: [
            AGAIN if (p := adjusted.pop(test, None)) is None else test.verdict.verdict if p <= LEVEL else UNTOLD
            for test in own
        ]
        for name, own in tests.items()
    }


def verdicts_of(paper: str) -> list[Verdicts]:
    """Every claim of a paper that was put to the test here."""
    results = results_of(paper)
    corrected = corrected_of(results)
    verdicts = []
    for study, result in results:
        rows = zip(claim_rows(study, result), corrected[study.name], strict=True)
        verdicts.append(Verdicts(study.name, [(row[0], row[2], row[4], other) for row, other in rows]))
    for figure in figures_of(paper):
        rows = [(claim["what"], _value_text(claim["ours"]), _figure_verdict(claim), "-") for claim in figure["claims"]]
        verdicts.append(Verdicts(str(figure["name"]), rows))
    return verdicts


def panels_by_name(paper: str) -> dict[str, Sequence[Panel]]:
    """Panels of each figure with axes and of each table with curves of a paper, by its name."""
    by_name: dict[str, Sequence[Panel]] = {}
    for study, result in results_of(paper):
        panels = drawn_panels(study, result)
        if study.item.startswith("Fig") or any(isinstance(panel, LinePanel) for panel in panels):
            by_name[study.name] = panels
    for figure in figures_of(paper):
        panels = [panel for panel in panels_of(figure) if not isinstance(panel, TablePanel)]
        by_name |= {str(figure["name"]): panels} if panels else {}
    return by_name


def drawings() -> Mapping[str, str]:
    """The drawings of all papers by the names of their files."""
    from reproductions.drawings import draw_panels  # deferred: loads matplotlib, which only drawings need

    by_name = {name: panels for paper in TITLES for name, panels in panels_by_name(paper).items()}
    return {f"{name}.svg": draw_panels(panels, name) for name, panels in by_name.items()}


def _figure_verdict(claim: Mapping[str, Any]) -> str:
    """The verdict of a figure's claim."""
    return str(claim.get("judged") or OF_FIGURE[claim["agrees"]])


def _value_text(value: object) -> str:
    """Write a value of a figure's claim: numbers with four digits, texts as they are."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def paper_page(paper: str) -> str:
    """Write the page of one paper in Markdown."""
    results, drawn = results_of(paper), panels_by_name(paper)
    corrected = corrected_of(results)
    longer = {study.name: (study, result) for study, result in results_of(paper, scale="longer")}

    def image(name: str) -> str:
        titles = ", ".join(panel.title for panel in drawn.get(name, ()))
        return f"![{titles}](figures/{name}.svg)" if name in drawn else ""

    parts = [
        f"# {TITLES[paper]}",
        f"What was reproduced here of `{paper}`; what it claims and where it lives: "
        f"[README](../../reproductions/{paper}/README.md); what it prints and does not hold: "
        f"[errata](../errata.md#{paper}). Written by `make docs` from the results in "
        f"`reproductions/{paper}/results`; all papers: [summary](README.md).",
        READ,
        *(
            as_markdown(study, result, corrected[study.name], image(study.name), longer.get(study.name))
            for study, result in results
        ),
        *(_figure_section(figure, image(figure["name"])) for figure in figures_of(paper)),
        _not_run(paper, [study.name for study, _ in results]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _figure_section(figure: Mapping[str, Any], image: str) -> str:
    """Write the section of a computed figure: its claims, its drawing and its command."""
    rows = [
        [claim["what"], _value_text(claim["paper"]), _value_text(claim["ours"]), _figure_verdict(claim)]
        for claim in figure["claims"]
    ]
    table = TextTable(["claim", "paper", "ours", "verdict"], rows, "lllr").to_markdown(is_markdown=True)
    command = f"```sh\npython -m reproductions {figure['name']}\n```"
    settings = ", ".join(f"{name} {value}" for name, value in figure["settings"].items())
    made = f"{settings}; commit {figure['made']['commit']}."
    parts = [f"## {figure['source']}: {figure['title']}", table.rstrip(), image, made, command]
    return "\n\n".join(filter(None, parts))


def _not_run(paper: str, done: Sequence[str]) -> str:
    """Write the section of items that could be run and were not, and of those without a measurement."""
    open_ = [study.name for study in studies().values() if study.paper == paper and study.name not in done]
    made = [str(figure["name"]) for figure in figures_of(paper)]
    short = paper.rstrip("0123456789")
    open_ += [name for name in CATALOGUE if name.startswith(short) and name not in made]
    lines = [f"Not run here, but can be: {', '.join(f'`{name}`' for name in open_)}."] if open_ else []
    drawn = [name for name in DRAWINGS if name.startswith(short)]
    if drawn:
        lines.append(f"Nothing to make again, since they show no measurement: {', '.join(drawn)}.")
    return "\n\n".join(["## The others", *lines]) if lines else ""


def summary_page() -> str:
    """Write the page with every claim of every paper and its verdict."""
    parts = ["# What the papers claim, and what was found here", READ]
    counts: list[list[str]] = []
    rows: list[list[str]] = []
    for paper in TITLES:
        verdicts = verdicts_of(paper)
        words = [verdict for item in verdicts for *_, verdict, other in item.rows if other != AGAIN]
        counts.append([f"[{paper}]({paper}.md)", *(str(words.count(kind)) for kind in (HOLDS, FAILS, UNTOLD))])
        rows += [[paper, f"`{item.name}`", *row] for item in verdicts for row in item.rows]
    head = ["paper", "table or figure", "claim", "found", "verdict", CORRECTED]
    parts.append(TextTable(["paper", HOLDS, FAILS, UNTOLD], counts, "lrrr").to_markdown(is_markdown=True))
    parts.append(TextTable(head, rows, "llllll").to_markdown(is_markdown=True))
    parts += [
        "## Other seeds",
        "Studies that were run once more from another first seed (`python -m reproductions NAME --seed 100`). A "
        "verdict has turned around where one result says that a claim holds and the other that it does not.",
        seeds_table(),
        "## Every table and figure",
        "What is printed, what the studies have of it at the paper's scale and at the small one, where other sets "
        "stand in, and what is left out. What a study has without a result is named at the end of its paper's page.",
        TextTable(["item", "printed", "paper's scale", "small", "left out"], item_rows(), "lllll").to_markdown(
            is_markdown=True
        ),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def pages() -> Mapping[str, str]:
    """Write all pages; return them by the names of their files."""
    if unknown := sorted(path.name for path in PAPERS.glob(f"*/{RESULTS}/*.json") if not _has_source(path)):
        raise RunError(f"{unknown[0]} is the result of no study or figure of the papers")
    return {"README.md": summary_page(), **{f"{paper}.md": paper_page(paper) for paper in TITLES}}


def _has_source(path: Path) -> bool:
    """Tell whether a result's file is named after a study or a figure."""
    return path.stem in CATALOGUE or path.stem.rpartition("-")[0] in studies()
