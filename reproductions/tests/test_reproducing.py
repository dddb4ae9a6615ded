"""`python -m reproductions`: figures by name, a table, two files; bad input in one line with nothing written."""

import json
from pathlib import Path

import pytest
import torch

from counterpoint.core.errors import UsageError
from reproductions import catalogue
from reproductions.__main__ import alone, main
from reproductions.catalogue import CATALOGUE, Figure, listed, reproduce
from reproductions.figure_seeds import over_seeds
from reproductions.panels import LinePanel, Series
from reproductions.paper_items import ITEMS, item_rows, sets_of
from reproductions.reproduction import Claim, FigureRun, Reproduction
from reproductions.study import studies
from reproductions.study_data import SETS
from runs.folder_snapshot import snapshot

FAST = ("directclr-fig4", "alphacl-fig2")


def toy(run: FigureRun) -> Reproduction:
    """A figure that takes no time and tells what it was given."""
    run.progress("half way")
    claims = [Claim("sum of two and two", 4.0, 4.0, True), Claim("colour", "blue", "green", False, "the lamp is green")]
    panels = [LinePanel("Line", "x", "y", [Series("a", [0.0, 1.0], [1.0, 2.0])])]
    settings = {name: str(getattr(run, name)) for name in ("seed", "quick", "data", "encoder", "epochs")}
    return Reproduction("toy-fig1", "A toy", "mio2021, Fig. 1", claims, panels, settings=settings)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(
        catalogue.CATALOGUE, "toy-fig1", Figure("a toy", f"{__name__}:toy", ("data", "encoder", "epochs"))
    )  # type: ignore[index]
    return tmp_path


def test_without_a_figure_all_are_listed_with_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    items = listed()
    assert [line.split()[0] for line in lines] == [item.name for item in items]
    assert all(len(line.split()) > 4 for line in lines)
    assert len({line.index(item.summary) for line, item in zip(lines, items, strict=True)}) == 1
    assert main(["--list", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == [item.name for item in items]


# Captions of the five papers: how many tables and figures each has.
CAPTIONS = {"alphacl": (4, 4), "mio": (3, 6), "ncl": (7, 10), "directclr": (1, 10), "imbalanced": (0, 2)}


def test_the_list_names_every_table_and_figure_of_the_five_papers() -> None:
    names = [item.name for item in listed()]
    wanted = [
        f"{paper}-{kind}{number}"
        for paper, numbers in CAPTIONS.items()
        for kind, most in zip(("table", "fig"), numbers, strict=True)
        for number in range(1, most + 1)
    ]
    assert len(wanted) == 47
    assert set(wanted) <= set(names)
    assert len(names) == len(set(names))


def test_the_list_has_every_table_and_figure_and_nothing_else() -> None:
    assert {item.name for item in listed() if item.kind != "drawing"} == set(ITEMS)
    assert len(item_rows()) == len(listed())


@pytest.mark.parametrize("name", sorted(set(ITEMS) - set(CATALOGUE)))
def test_each_set_and_row_is_had_or_left_out_with_a_reason(name: str) -> None:
    item = ITEMS[name]
    assert set(item.data) <= set(SETS)
    sets = sets_of(name, "paper")
    assert set(item.data) - sets <= set(item.left_out)
    # A set that is had is left out of nothing: the list follows the studies when they grow.
    assert not sets & {part for part in item.left_out if part in SETS}, name
    study = next(study for study in studies().values() if name == study.name or name in study.also)
    printed_sets = {part for own_name in (study.name, *study.also) for part in ITEMS[own_name].data}
    assert sets <= printed_sets or set(item.data) <= set(item.left_out), name
    missing = set(item.left_out) - set(SETS)
    assert len(study.arms) >= item.rows - 2 * len(missing), name


def test_a_figure_prints_its_table_and_writes_numbers_and_page(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--seed 3 --quick --data digits --encoder convnet --epochs 7"
    assert main(["toy-fig1", *words.split()]) == 0
    captured = capsys.readouterr()
    assert "half way" in captured.err
    assert "the lamp is green" in captured.out
    assert captured.out.endswith("Drawn in runs/reproduce/toy-fig1-quick.html.\n")
    told = json.loads((folder / "runs/reproduce/toy-fig1-quick.json").read_text())
    options = {"seed": "3", "quick": "True", "data": "digits", "encoder": "convnet", "epochs": "7"}
    assert told["settings"] == {"size": "quick, reduced", **options}
    assert told["agrees"] is False
    assert "Settings: size quick, reduced, seed 3" in captured.out
    page = (folder / "runs/reproduce/toy-fig1-quick.html").read_text()
    for words in ("the lamp is green", "reproductions toy-fig1 · quick, reduced", "toy-fig1-quick.json beside"):
        assert words in page


def test_a_claim_of_a_figure_is_judged_with_every_seed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toy-fig1", "--seed", "4", "--seeds", "3", "--quiet"]) == 0
    told = json.loads((folder / "runs/reproduce/toy-fig1.json").read_text())
    assert told["settings"]["seed"] == "4 to 6"
    four, colour = told["claims"]
    assert (four["ours"], four["agrees"], colour["ours"], colour["agrees"]) == (4.0, True, "green", False)
    assert set(told["made"]) == {"commit", "machine", "seconds"}
    capsys.readouterr()
    assert main(["toy-fig1", "--seeds", "0"]) == 2
    assert "seeds must be a whole number >= 1, got 0" in capsys.readouterr().err


def test_seeds_of_two_minds_leave_a_claim_untold() -> None:
    records = [
        Reproduction("toy", "A toy", "mio2021, Fig. 1", [Claim("x", 1.0, ours, agrees, "within 0.1")], [])
        for ours, agrees in ((1.0, True), (2.0, False), (1.5, False))
    ]
    (claim,) = over_seeds(records, 0).claims
    assert (claim.ours, claim.agrees, claim.verdict) == ("1.5 (1 to 2)", None, "cannot be told")
    assert claim.note == "within 0.1; agrees with 1 of 3 seeds"
    (same,) = over_seeds(records[1:], 1).claims
    assert (same.ours, same.verdict, same.note) == ("1.75 (1.5 to 2)", "differs", "within 0.1")


@pytest.mark.parametrize(
    ("agreeing", "verdict"), [(5, "differs"), (6, "cannot be told"), (14, "cannot be told"), (15, "agrees")]
)
def test_a_sign_test_decides_where_seeds_disagree(agreeing: int, verdict: str) -> None:
    # clopper1934; of 20 seeds 15 or more tell a majority at the level 0.05: 2 P(X >= 15) = 0.0414, 2 P(X >= 14) = 0.115
    records = [
        Reproduction("toy", "A toy", "mio2021, Fig. 1", [Claim("x", 1.0, 1.0 * seed, seed < agreeing)], [])
        for seed in range(20)
    ]
    (claim,) = over_seeds(records, 0).claims
    assert claim.verdict == verdict
    assert claim.note == f"agrees with {agreeing} of 20 seeds"


def test_a_quick_result_never_replaces_a_full_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toy-fig1", "--quiet"]) == 0
    assert main(["toy-fig1", "--quiet"]) == 0  # replaces both
    assert capsys.readouterr().err == ""
    full = snapshot(folder)
    assert main(["toy-fig1", "--quiet", "--quick"]) == 0
    assert full.items() <= snapshot(folder).items()
    made = folder / "runs" / "reproduce"
    names = {f"toy-fig1{size}.{kind}" for size in ("", "-quick") for kind in ("json", "html")}
    assert {path.name for path in made.iterdir()} == names
    assert "quick, reduced" not in (made / "toy-fig1.html").read_text()


def test_json_for_scripts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toy-fig1", "--json", "-q", "--out", "deep/er"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "deep/er/toy-fig1.json").read_text())
    assert (folder / "deep/er/toy-fig1.html").exists()


BAD = {
    "unknown figure": ("directclr-fig77", ["unknown table or figure 'directclr-fig77'", "did you mean 'directclr-fig"]),
    "a name that leads elsewhere": ("../toy-fig1", ["unknown table or figure"]),
    "a drawing": ("directclr-fig8", ["directclr-fig8 has nothing to make again: a diagram of DirectCLR"]),
    "a study that is not there": ("mine.yaml", ["mine.yaml does not exist"]),
    "a study without its data": ("ncl-table1", ["cifar10 is needed", "--data ROOT"]),
    "one seed": ("ncl-table1 --data pages --seeds 1", ["seeds must be at least 2, got 1"]),
    "a flag of figures": ("ncl-table1 --data pages --quick", ["ncl-table1 is a study; --quick goes with computed"]),
    "seed in words": ("toy-fig1 --seed many", ["--seed", "'many'"]),
    "unknown flag": ("toy-fig1 --quik", ["unknown flag --quik", "'--quick'"]),
    "data that are not there": ("imbalanced-fig1 --quick --data nowhere", ["nowhere"]),
    "data of a figure that draws its own": ("alphacl-fig2 --data x", ["draws its own data; leave out --data"]),
    "an encoder of a figure that builds its own": (
        "ncl-fig6 --encoder convnet",
        ["ncl-fig6 builds its own networks; leave out --encoder, which goes with imbalanced-fig1 and imbalanced-fig2"],
    ),
    "an unknown encoder": ("imbalanced-fig1 --encoder resnet99", ["unknown encoder 'resnet99'", "'resnet9'"]),
    "a folder that takes no files": ("toy-fig1 --out /proc/foo", ["cannot write into /proc/foo", "--out"]),
    "out is a file": ("toy-fig1 --out notes.md", ["cannot write into notes.md: ", "--out"]),
    "another page there": ("toy-fig1 --out pages", ["pages/toy-fig1.html exists", "--out"]),
    "a damaged file there": ("toy-fig1 --out damaged", ["damaged/toy-fig1.json exists"]),
    "folders there": ("toy-fig1 --out folders", ["folders/toy-fig1.json exists"]),
}


@pytest.mark.parametrize(("words", "complaints"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_nothing_is_touched(
    folder: Path, words: str, complaints: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "notes.md").write_text("hello")
    for name, file, text in (("pages", "toy-fig1.html", "<p>mine"), ("damaged", "toy-fig1.json", "{")):
        (folder / name).mkdir()
        (folder / name / file).write_text(text)
    (folder / "folders" / "toy-fig1.json").mkdir(parents=True)
    before = snapshot(folder)
    try:
        code = main([*words.split(), "-q"])
    except SystemExit as stop:  # argparse leaves so
        code = stop.code
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("python -m reproductions: error: ")
    for complaint in complaints:
        assert complaint in captured.err
    assert snapshot(folder) == before


def test_the_function_refuses_an_unknown_figure(folder: Path) -> None:
    with pytest.raises(UsageError, match="unknown figure"):
        reproduce("toy", FigureRun(), out=folder)


MARKED = [pytest.param(n, marks=pytest.mark.thorough if n in FAST else pytest.mark.slow) for n in sorted(CATALOGUE)]


@pytest.mark.parametrize("name", MARKED)
def test_a_figure_is_sound_and_the_same_again(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command makes it at reduced size, and no claim differs without a word why."""
    out, lines = folder / "out", list[str]()
    assert main([name, "--quick", "--out", str(out), "-q"]) == 0
    printed = capsys.readouterr().out
    told = json.loads((out / f"{name}-quick.json").read_text())
    assert told["name"] == name
    assert told["claims"]
    assert told["panels"]
    assert told["source"].split(",")[0] in (Path(__file__).parents[2] / "docs" / "references.bib").read_text()
    for claim in told["claims"]:
        assert claim["what"].split()[0] in printed
        assert claim["agrees"] is not False or claim["note"], f"{claim['what']} differs; its note must say why"
    assert (out / f"{name}-quick.html").stat().st_size < 8_000_000
    state = torch.get_rng_state()
    reproduce(name, FigureRun(quick=True, progress=lines.append), out=out)
    again = json.loads((out / f"{name}-quick.json").read_text())
    assert json.dumps({**again, "made": ""}) == json.dumps({**told, "made": ""})
    assert lines
    assert torch.equal(torch.get_rng_state(), state)


def test_a_rank_trains_alone_on_its_own_gpu() -> None:
    environment = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "CUDA_VISIBLE_DEVICES": "4,7"}
    alone(environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "7"}
    alone(environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": "7"}
