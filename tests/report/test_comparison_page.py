"""The page of a comparison: numbers, drawings, words; nothing injects, nothing else is replaced."""

from pathlib import Path

from page_scan import scan_without_script
from run_folders import ATTACK

from counterpoint.report.comparison_page import COMPARISON_PAGE, render_comparison
from counterpoint.report.document import write_page
from counterpoint.runs.comparison import compare
from evaluated_folders import REPRESENTATION, write_evaluated, write_evaluation
from hit_rows import hit_values
from oracles import paired_tests as oracle


def folders_of(place: Path, method: str, corrects: list[int]) -> list[Path]:
    """Seeds of a method."""
    return [
        write_evaluated(place / f"{method}-{seed}", {REPRESENTATION: range(correct)}, seed=seed, method=method)
        for seed, correct in enumerate(corrects)
    ]


def read(path: Path) -> str:
    page = scan_without_script(path.read_text(encoding="utf-8"))
    return " ".join(page.text.replace("\N{NARROW NO-BREAK SPACE}", " ").split())


def test_the_page_says_which_differences_are_real_and_how_large(tmp_path: Path) -> None:
    pair = [folders_of(tmp_path, "ncl", [90])[0], folders_of(tmp_path, "simclr", [70])[0]]
    text = read(write_page(COMPARISON_PAGE, tmp_path / "page.html", lambda: render_comparison(compare(pair))))
    low, high = (f"{100 * end:.1f}" for end in oracle.score_interval(20, 0, 100))
    assert "ncl-0 against simclr-0" in text
    assert "1 of 1 difference is beyond chance." in text
    assert "kNN of representation: ncl-0 has 20.0 points more than simclr-0; over queries 95 % interval " in text
    assert f"{low} to {high} points, p < 0.001." in text
    assert "another seed may give others" in text


def test_seeds_have_their_own_intervals_and_numbers(tmp_path: Path) -> None:
    runs = [*folders_of(tmp_path, "ncl", [90, 88, 91]), *folders_of(tmp_path, "simclr", [89, 89, 88])]
    target = write_page(COMPARISON_PAGE, tmp_path / "page.html", lambda: render_comparison(compare(runs)))
    text = read(target)
    assert "0 of 1 difference is beyond chance." in text
    assert "Circles: over samples. Squares: over seeds." in text
    assert "seeds needed" in text
    assert "ncl: ncl-0 (seed 0), ncl-1 (seed 1) and ncl-2 (seed 2)" in text
    assert target.read_text(encoding="utf-8").count('class="zero"') == 2  # wide and narrow
    assert target.read_text(encoding="utf-8").count("hollow") >= 4


def test_names_of_others_stay_text(tmp_path: Path) -> None:
    pair = folders_of(tmp_path, "ncl", [90]) + folders_of(tmp_path, "simclr", [70])
    for place, folder in enumerate(pair):
        rows = [hit_values(ATTACK, name, range(50 + place), 100) for name in ("knn", ATTACK)]
        write_evaluation(folder / "evaluation.json", rows)
    page = write_page(COMPARISON_PAGE, tmp_path / "page.html", lambda: render_comparison(compare(pair)))
    assert "<img" not in page.read_text(encoding="utf-8")
    assert "onerror=alert(1)" in read(page)
