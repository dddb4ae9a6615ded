"""Results that are kept, and the pages that are written from them."""

import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from counterpoint.core.errors import RunError
from reproductions import result_pages
from reproductions.result_pages import (
    OTHER_SEEDS,
    TITLES,
    UNPRINTED,
    open_studies,
    pages,
    panels_by_name,
    results_of,
    summary_page,
)
from reproductions.study import PAPERS, studies
from reproductions.study_result import RESULTS, StudyResult, judge_claims
from reproductions.verdicts import FAILS, HOLDS, UNTOLD

DOCS = Path(__file__).parents[2] / "docs" / "papers"
SVG = "http://www.w3.org/2000/svg"
KEPT = [(study.name, result) for paper in TITLES for study, result in results_of(paper)]


@pytest.mark.parametrize(("name", "result"), KEPT, ids=[name for name, _ in KEPT])
def test_a_kept_result_has_every_arm_with_three_seeds_and_the_verdicts_that_its_figures_give(
    name: str, result: StudyResult
) -> None:
    study = studies()[name]
    # Seeds that were added to open claims alone are not of every arm.
    of_all = result.seeds if result.seed_rule == "fixed" else range(3)
    assert {(cell.arm, cell.seed) for cell in result.cells} >= {
        (arm.name, seed) for arm in study.arms for seed in of_all
    }
    assert len(result.seeds) >= 3
    again = judge_claims(study, result.cells, result.seed_rule)
    for written, computed in zip(result.claims, again, strict=True):
        assert (written["says"], written["verdict"]) == (computed["says"], computed["verdict"])
        assert written["difference"] == pytest.approx(computed["difference"], abs=1e-12)
    for key in study.columns.values():
        assert any(result.of_arm(arm.name, key) for arm in study.arms), key


def test_no_verdict_turns_around_with_other_seeds() -> None:
    first_results, others = dict(KEPT), [pair for paper in TITLES for pair in results_of(paper, OTHER_SEEDS)]
    assert len(others) >= 3
    for study, other in others:
        assert not {*other.seeds} & {*first_results[study.name].seeds}
        again = [claim["verdict"] for claim in judge_claims(study, other.cells, other.seed_rule)]
        assert again == [claim["verdict"] for claim in other.claims]
        for claim, verdict in zip(first_results[study.name].claims, again, strict=True):
            assert {claim["verdict"], verdict} != {HOLDS, FAILS}, (study.name, claim["says"])


def test_open_studies_are_those_with_an_open_claim_cheapest_first() -> None:
    cost = {name: sum(result.made.seconds.values()) / len(result.seeds) for name, result in KEPT}
    names = [study.name for study in open_studies()]
    assert set(names) == {name for name, result in KEPT if any(c["verdict"] == UNTOLD for c in result.claims)}
    assert [cost[name] for name in names] == sorted(cost[name] for name in names)


def test_kept_results_name_no_folder_of_a_machine() -> None:
    paths = list(PAPERS.glob(f"*/{RESULTS}/*.json"))
    assert len(paths) >= len(KEPT) > 0
    for path in paths:
        assert '"/' not in path.read_text(encoding="utf-8"), path
        assert path.stat().st_size < 200_000


def test_the_pages_are_those_of_the_kept_results() -> None:
    made = pages()
    assert {path.name for path in DOCS.glob("*.md")} == set(made)
    assert [name for name, text in made.items() if (DOCS / name).read_text(encoding="utf-8") != text] == []


def test_every_figure_with_axes_is_drawn_and_its_page_shows_it() -> None:
    panels_of = {name: panels for paper in TITLES for name, panels in panels_by_name(paper).items()}
    assert {path.stem for path in (DOCS / "figures").iterdir()} == set(panels_of)
    # Figures that a function computes and those of studies; of what has no axes there are tables.
    figures = [name for name, _ in KEPT if "-fig" in name] + [
        path.stem for path in PAPERS.glob(f"*/{RESULTS}/*-fig?.json") if "panels" in path.read_text(encoding="utf-8")
    ]
    assert len(figures) > 10
    assert set(figures) <= set(panels_of)
    for name, panels in panels_of.items():
        text = (DOCS / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        words = {"".join(element.itertext()) for element in ElementTree.fromstring(text).iter(f"{{{SVG}}}text")}
        titles = {line for panel in panels for line in textwrap.wrap(panel.title, 56)}
        assert all(any(word.startswith(title) for word in words) for title in titles), name
        assert len(panels) == text.count('id="axes_'), name
        assert sum(f"figures/{name}.svg" in page for page in pages().values()) == 1, name


def test_the_summary_has_every_claim_with_one_of_three_verdicts() -> None:
    lines = [line for line in summary_page().splitlines() if line.count("|") == 7 and "`" in line]
    assert len(lines) >= sum(len(result.claims) for _, result in KEPT)
    assert all(line.split("|")[5].strip() in (HOLDS, FAILS, UNTOLD, UNPRINTED) for line in lines)


def test_a_result_of_no_study_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ncl2024" / RESULTS).mkdir(parents=True)
    (tmp_path / "ncl2024" / RESULTS / "ncl-table99-small.json").write_text("{}")
    monkeypatch.setattr(result_pages, "PAPERS", tmp_path)
    with pytest.raises(RunError, match=r"ncl-table99-small\.json is the result of no study"):
        pages()
