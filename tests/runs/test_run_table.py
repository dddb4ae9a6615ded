"""The table of runs: what each line says, conditions, order, and what is no run."""

import json
import os
from pathlib import Path

import pytest

from counterpoint.cli.main import main
from counterpoint.core.errors import UsageError
from counterpoint.core.files import sealed_text, write_sealed, write_text
from counterpoint.core.run_lock import lock_run
from counterpoint.core.rundir import RunFolder, append_line
from counterpoint.core.schemas import SeedsRecord
from counterpoint.runs.run_files import create_run, create_seeds
from counterpoint.runs.run_table import list_runs, size_on_disk


def make(path: Path, *, status: str = "finished", epochs: int = 3, **facts: object) -> RunFolder:
    """A run as its small files have it."""
    folder = create_run(path, overwrite=False)
    known = {"method": "ncl", "data": "digits", "started": "2026-01-02T03:04:05+00:00", **facts}
    folder.update_status(status=status, **({"num_epochs": epochs} if status == "finished" else {}), **known)
    for epoch in range(1, epochs + 1):
        append_line(folder.metrics, {"epoch": epoch, "step": epoch, "loss": 1.0})
    write_text(folder.resolved, sealed_text("data: digits\nencoder: convnet\nepochs: 9\n"))
    return folder


def evaluate(folder: RunFolder, knn: float) -> None:
    row = {"features": "representation", "protocol": "knn", "accuracy": knn, "low": knn - 0.05, "high": knn + 0.05}
    other = {"features": "embedding", "protocol": "knn", "accuracy": 0.1}
    write_sealed(folder.evaluation, {"rows": [other, row]})


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs: evaluated ones of 0.9 and 0.8, the first one diagnosed, and one that was stopped."""
    top = tmp_path / "runs"
    top.mkdir()
    first, second = make(top / "a"), make(top / "b", method="simclr", epochs=12, started="2026-02-01T00:00:00+00:00")
    make(top / "deep" / "c", status="running", epochs=2)
    evaluate(first, 0.9)
    evaluate(second, 0.8)
    write_sealed(first.findings, {"findings": [{"level": "severe", "title": "Full collapse"}, {"level": "good"}]})
    return top


def names(top: Path, **how: object) -> list[str]:
    return [line.name for line in list_runs(top, **how).lines]  # pyright: ignore[reportArgumentType]


def test_a_narrow_terminal_gets_lines_that_fit(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list_runs(runs)
    monkeypatch.setenv("COLUMNS", "1000")
    wide = str(found).splitlines()
    monkeypatch.setenv("COLUMNS", "60")
    narrow = str(found).splitlines()
    assert max(map(len, wide)) > 60 >= max(map(len, narrow))
    told = " ".join(" ".join(narrow).split())
    assert all(line.name in told and (line.verdict or "") in told for line in found.lines)


def test_a_loss_of_the_users_keeps_its_name(tmp_path: Path) -> None:
    make(tmp_path / "runs" / "a", own_loss={"name": "MyLoss(w=2.0)"})
    assert "ncl by MyLoss(w=2.0)" in str(list_runs(tmp_path / "runs"))


def test_a_line_says_what_the_files_say(runs: Path) -> None:
    first, _, stopped = list_runs(runs).lines
    assert (first.name, first.status, first.method, first.data, first.encoder) == (
        "a",
        "done",
        "ncl",
        "digits",
        "convnet",
    )
    assert (first.epochs, first.knn, first.level, first.finding) == (3, 0.9, "severe", "Full collapse")
    assert (first.knn_low, first.knn_high) == pytest.approx((0.85, 0.95))
    assert (stopped.name, stopped.status, stopped.epochs, stopped.knn) == ("deep/c", "stopped", 2, None)
    expected = sum(file.stat().st_size for file in (runs / "a").rglob("*") if file.is_file())
    assert first.bytes == size_on_disk(runs / "a") == expected


def test_a_run_in_training_is_named_with_its_process(runs: Path) -> None:
    with lock_run(runs / "deep" / "c"):
        (line,) = (line for line in list_runs(runs).lines if line.status == "running")
    assert (line.name, line.pid) == ("deep/c", os.getpid())


def test_a_damaged_run_is_listed_as_such(runs: Path) -> None:
    (runs / "a" / "run.json").write_text("{", encoding="utf-8")
    (runs / "b" / "evaluation.json").write_text("no", encoding="utf-8")
    first, second, _ = list_runs(runs).lines
    assert (first.name, first.status) == ("a", "damaged")
    assert (second.status, second.knn) == ("done", None)


def test_links_and_other_folders_are_no_runs(runs: Path) -> None:
    (runs / "link").symlink_to(runs / "a")
    (runs / "photos" / "cats").mkdir(parents=True)
    assert names(runs) == ["a", "b", "deep/c"]


def test_runs_of_several_seeds_are_listed_one_by_one(runs: Path) -> None:
    (runs / "many").mkdir()
    create_seeds(runs / "many", SeedsRecord(seeds=(0, 1), settings={}, data_fingerprint="x"))
    make(runs / "many" / "seed-0")
    assert names(runs) == ["a", "b", "deep/c", "many/seed-0"]


def test_a_run_itself_is_a_table_of_one_line(runs: Path) -> None:
    assert names(runs / "a") == ["a"]


@pytest.mark.parametrize(
    ("sort", "reverse", "order"),
    [
        ("knn", False, ["b", "a", "deep/c"]),
        ("knn", True, ["a", "b", "deep/c"]),  # not known: last in either order
        ("epochs", False, ["deep/c", "a", "b"]),
        ("date", True, ["b", "a", "deep/c"]),
    ],
)
def test_order(runs: Path, sort: str, reverse: bool, order: list[str]) -> None:
    assert names(runs, sort=sort, reverse=reverse) == order


def test_an_unknown_column_is_told_with_the_nearest(runs: Path) -> None:
    with pytest.raises(UsageError, match="'knn'"):
        list_runs(runs, sort="kn")


def test_no_folder_and_no_runs(runs: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        list_runs(runs / "none")
    (runs / "empty").mkdir()
    assert str(list_runs(runs / "empty")) == f"no runs in {runs / 'empty'}"


def test_text_and_plain_values_have_every_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    found = list_runs(runs)
    assert [run["name"] for run in json.loads(json.dumps(found.to_dict()))["runs"]] == ["a", "b", "deep/c"]
    assert [run["knn"] for run in found.to_dict()["runs"]] == [0.9, 0.8, None]
    head, first, *_ = str(found).splitlines()
    assert head.split()[:3] == ["name", "status", "method"]
    assert "90.0 % (85.0 to 95.0)" in first
    assert "Full collapse" in first


def test_the_command_lists_the_folder_of_runs(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs.parent)
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == f"{list_runs(Path('runs'))}\n"
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == list_runs(Path("runs")).to_dict()
