"""`counterpoint runs`: what it prints, and what it deletes only after a question."""

import io
import json
from pathlib import Path

import pytest

from counterpoint.cli.main import main
from counterpoint.core.run_files import create_run, create_seeds
from counterpoint.core.run_lock import lock_run
from counterpoint.core.run_records import SeedsRecord


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with two runs in ``runs``."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        create_run(Path("runs") / name, overwrite=False).update_status(status="finished", method="ncl")


def test_the_table_and_its_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [["one", "done"], ["two", "done"]]
    assert main(["runs", "--json", "--where", "name=o*", "status=done"]) == 0
    assert [run["name"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["one"]


@pytest.mark.parametrize(("answer", "is_gone"), [("yes\n", True), ("y\n", True), ("n\n", False), ("\n", False)])
def test_a_question_names_runs_and_size(
    answer: str, is_gone: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert main(["runs", "--delete", "one", "two"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Delete 2 runs, ")
    assert " B: runs/one, runs/two? [y/N]" in said
    assert Path("runs/one").exists() == Path("runs/two").exists() == (not is_gone)


def test_without_a_terminal_it_wants_yes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert main(["runs", "--delete", "one"]) == 2
    assert "there is no terminal to ask on: say so with --yes" in capsys.readouterr().err
    assert Path("runs/one").exists()
    assert main(["runs", "--delete", "one", "--yes"]) == 0
    assert not Path("runs/one").exists()


def refused(*names: str) -> None:
    assert main(["runs", "--delete", *names, "--yes"]) == 2
    assert Path("runs/two/run.json").exists()  # one that cannot go keeps all others


@pytest.mark.parametrize("name", ["../other", "none", "foreign", "link", "linked/two", "."])
def test_what_is_not_ours_or_elsewhere_stays(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (Path("other"), Path("runs/foreign")):
        folder.mkdir()
        (folder / "run.json").write_text('{"status": "finished"}', encoding="utf-8")
    create_run(Path("elsewhere/two"), overwrite=False)
    Path("runs/link").symlink_to(Path("elsewhere/two").resolve())
    Path("runs/linked").symlink_to(Path("elsewhere").resolve())
    refused("two", name)
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert Path("elsewhere/two/run.json").exists()
    assert Path("other/run.json").exists()
    assert Path("runs/foreign/run.json").exists()


def test_a_running_run_stays(capsys: pytest.CaptureFixture[str]) -> None:
    with lock_run(Path("runs/one")):
        refused("two", "one")
    assert "runs/one is in use by process" in capsys.readouterr().err


def test_files_that_no_run_wrote_stay_and_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs/one/notes.txt").write_text("mine", encoding="utf-8")
    (Path("runs/one/checkpoints") / "mine.pt").write_text("mine", encoding="utf-8")
    assert main(["runs", "--delete", "one", "--yes"]) == 0
    assert "not ours, so left there: checkpoints, notes.txt" in capsys.readouterr().out
    assert sorted(path.name for path in Path("runs/one").rglob("*")) == ["checkpoints", "mine.pt", "notes.txt"]
    refused("one")  # what is left is no run any more


def test_the_runs_of_several_seeds_go_together(capsys: pytest.CaptureFixture[str]) -> None:
    Path("runs/many").mkdir()
    create_seeds(Path("runs/many"), SeedsRecord(seeds=(0, 1), settings={}, data_fingerprint="x"), overwrite=False)
    for seed in (0, 1):
        create_run(Path(f"runs/many/seed-{seed}"), overwrite=False)
    with lock_run(Path("runs/many/seed-1")):
        refused("many")
    assert Path("runs/many/seed-0/run.json").exists()
    assert main(["runs", "--delete", "many", "--yes"]) == 0
    assert not Path("runs/many").exists()


def test_yes_alone_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--yes"]) == 2
    assert "--yes goes with --delete" in capsys.readouterr().err
