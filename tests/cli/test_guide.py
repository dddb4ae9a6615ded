"""`counterpoint` alone: asks on a terminal, prints the same choices elsewhere, and names commands that exist."""

import builtins
import itertools
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from counterpoint.cli import guide
from counterpoint.cli import main as cli_main
from counterpoint.cli.guide import GOALS, HOLDINGS, Asked, decision, look, steps
from counterpoint.cli.main import main
from counterpoint.cli.parsers import VERBS, build_parser
from counterpoint.data.formats.image_files import SUFFIXES

PICTURES = {"pictures": "my photos", "table": "rows.npy", "encoder": "timm:resnet50", "nothing": ""}


def every_answer() -> Iterator[Asked]:
    for holding, goal, pictures in itertools.product(HOLDINGS, GOALS, ("", "photos")):
        yield Asked(holding, PICTURES[holding], goal, pictures)


def sit_down(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Answer questions as a person at a terminal would, who leaves with Ctrl-D at the end; returns the questions."""
    left, questions = list(answers), []

    def answer(question: str = "") -> str:
        questions.append(question)
        if not left:
            raise EOFError
        return left.pop(0)

    monkeypatch.setattr(builtins, "input", answer)
    monkeypatch.setattr(cli_main, "is_asked", lambda: True)
    return questions


def test_every_command_of_every_answer_parses() -> None:
    printed = [step for asked in every_answer() for step in steps(asked)]
    assert {step.words[0] for step in printed} <= set(VERBS)
    for step in printed:
        build_parser(step.words[0]).parse_strictly(step.words[1:])
        assert len(step.why) < 90


def test_every_answer_has_commands_and_what_trains_is_followed_by_what_uses_it() -> None:
    for asked in every_answer():
        verbs = [step.words[0] for step in steps(asked)]
        assert verbs
        if "train" in verbs:
            assert asked.holding in ("pictures", "table")
            assert verbs[-1] not in ("train", "audit", "recommend")


def test_verbs_that_are_not_there_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: verb for name, verb in VERBS.items() if name in ("train", "evaluate")}
    monkeypatch.setattr(guide, "VERBS", few)
    named = {step.words[0] for asked in every_answer() for step in steps(asked)}
    assert named == {"train", "evaluate"}


def test_with_a_recommendation_training_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guide, "VERBS", {**VERBS, "audit": VERBS["train"], "recommend": VERBS["train"]})
    first = [step.words for step in steps(Asked("pictures", "photos", "search"))][:3]
    assert [words[0] for words in first] == ["audit", "recommend", "train"]
    assert first[1][-1] == first[2][first[2].index("--config") + 1]  # the file that is written is the one that is read


def test_without_a_terminal_help_and_choices_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr().out
    assert said.startswith("usage: counterpoint VERB")
    assert decision() in said
    for choice in (*HOLDINGS.values(), *GOALS.values()):
        assert choice in said
    commands = re.findall(r"^ {4}counterpoint (\S+)", decision(), re.MULTILINE)
    assert len(commands) > 10
    assert set(commands) <= set(VERBS)


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with three pictures in two sub-folders, hidden ones, and another file."""
    for name in ("cats/a b.JPG", "cats/b.png", "dogs/ö.webp", "dogs/.hidden.png", "dogs/notes.txt", ".git/c.png"):
        path = tmp_path / "my photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return "my photos"


def test_a_folder_is_counted_and_its_commands_are_printed(
    photos: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = sit_down(monkeypatch, "7", "1", "", "nowhere", f"'{photos}'", "3", "n")
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "There is no nowhere." in said
    assert "3 pictures, 1 other file; 2 sub-folders, which are taken for labels (cats, dogs)." in said
    assert "  counterpoint train --data 'my photos' --method ncl --out runs/ncl\n" in said
    assert "  counterpoint compare runs/simclr runs/ncl\n" in said
    assert questions[0] == questions[1] == "1 to 4: "  # 7 is asked again
    assert questions[-1].endswith("[y/N] ")


def test_a_first_command_runs_after_a_yes_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(cli_main, "_run", lambda name, words: ran.append((name, *words)) or 0)
    for answer in ("n", "", "perhaps"):
        sit_down(monkeypatch, "4", answer)
        assert main([]) == 0
    assert not ran
    sit_down(monkeypatch, "nothing", "Y")
    assert main([]) == 0
    assert ran == [("demo",)]
    assert "counterpoint demo" in capsys.readouterr().out


def test_features_and_encoders_from_elsewhere(
    photos: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sit_down(monkeypatch, "3", "features.npz", "n")
    assert main([]) == 0
    assert "counterpoint diagnose features.npz" in capsys.readouterr().out
    sit_down(monkeypatch, "3", "", "timm:resnet50", photos, "n")
    assert main([]) == 0
    assert "counterpoint evaluate --encoder timm:resnet50 --data 'my photos'" in capsys.readouterr().out


@pytest.mark.parametrize("answers", [(), ("1",), ("1", "."), ("4",)], ids=str)
def test_the_end_of_input_ends_it(
    answers: tuple[str, ...], photos: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sit_down(monkeypatch, *answers)
    assert main([]) == 0
    assert capsys.readouterr().out.endswith("\n")


def test_control_c_ends_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken_off(question: str = "") -> str:
        raise KeyboardInterrupt

    sit_down(monkeypatch)
    monkeypatch.setattr(builtins, "input", broken_off)
    assert main([]) == 130
    captured = capsys.readouterr()
    assert captured.out.endswith("\n")
    assert captured.err == ""


def test_what_a_path_holds(tmp_path: Path) -> None:
    assert look(str(tmp_path / "none"))[0] == ""
    assert look(str(tmp_path)) == ("", f"There is no picture in {tmp_path}, 0 other files.")
    (tmp_path / "one.jpeg").write_bytes(b"")
    assert look(str(tmp_path)) == ("pictures", "1 picture; no labels, which training does not need.")
    (tmp_path / "rows.npy").write_bytes(b"12345")
    assert look(str(tmp_path / "rows.npy")) == ("table", "A file .npy of 5 bytes.")
    (tmp_path / "thesis.pdf").write_bytes(b"")
    assert "no file of a form that is known" in look(str(tmp_path / "thesis.pdf"))[1]
    os.mkfifo(tmp_path / "pipe.npy")
    assert look(str(tmp_path / "pipe.npy"))[0] == ""
    assert "\x1b" not in look("\x1b[31m")[1]


def test_the_ends_of_names_are_those_that_are_decoded() -> None:
    assert guide._picture_suffixes() == SUFFIXES


def test_a_path_that_begins_with_a_dash_is_no_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-photos").mkdir()
    (tmp_path / "-photos" / "a.png").write_bytes(b"")
    sit_down(monkeypatch, "1", "-photos", "3", "n")
    assert main([]) == 0
    assert "--data ./-photos" in capsys.readouterr().out


WITHOUT_TORCH = """
import sys
from counterpoint.cli.main import main
code = main([])
print("loaded:", *sorted({"torch", "numpy", "PIL", "sklearn"} & set(sys.modules)))
sys.exit(code)
"""


def test_at_a_real_terminal_without_torch(photos: str, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_TORCH], cwd=tmp_path, stdin=terminal, stdout=terminal, stderr=subprocess.STDOUT
    ) as process:
        os.close(terminal)
        os.write(controller, f"1\n{photos}\n1\nn\n".encode())
        said = b""
        try:
            while part := os.read(controller, 4096):
                said += part
        except OSError:  # the other end was closed
            pass
        assert process.wait(timeout=60) == 0, said.decode()
    os.close(controller)
    assert "These commands do it" in said.decode()
    assert "loaded:\r\n" in said.decode() or said.decode().rstrip().endswith("loaded:")
