"""Names of files and classes reach no terminal as they are: what it would obey or hide is written out."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.core.terminal_text import shown, shown_lines
from data import picture_files as pictures

EVIL = "\x1b]0;owned\x07\x1b[31m\nred\u202e"
SHOWN = r"\x1b]0;owned\x07\x1b[31m\nred\u202e"
FORBIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def assert_harmless(text: str, num_lines: int | None = None) -> None:
    assert not FORBIDDEN.search(text), text
    assert num_lines is None or text.count("\n") == num_lines, text


@given(st.text(st.characters(codec=None, categories=("Cc", "Cf", "Cs", "Zl", "Zp", "L", "Zs"))))
def test_what_is_shown_is_one_harmless_line_and_stays_when_shown_again(text: str) -> None:
    assert_harmless(shown(text), 0)
    assert shown(shown(text)) == shown(text)
    assert_harmless(shown_lines(text), text.count("\n"))


@pytest.mark.parametrize("text", ["Grüße", "日本語", "naïve – “quoted”", "👩\u200d🔬", "a\u202fb\u00a0c", r"C:\new"])
def test_ordinary_text_stays(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize(
    "line",
    [
        "train --data {} --out new",
        "train --data images.npz --method {}",
        "train --data images.npz --{} 3",
        "train {}",
        "train --config {}",
        "evaluate {}",
        "diagnose {}",
        "embed {} --out x.csv",
        "embed run --out {}.txt",
        "report {}",
        "preview --data {}",
        "preview --data images.npz --out {}.jpg",
        "geometry {} 1",
        "geometry 1 1 --normalize --loss {}",
        "list {}",
        "{}",
    ],
)
@pytest.mark.parametrize("word", [EVIL, "a\x00b", "caf\udce9"], ids=["escapes", "NUL", "no UTF-8"])
@pytest.mark.sampled(6)
def test_an_error_shows_the_word_in_one_line(
    line: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "images.npz", images=np.zeros((40, 8, 8), np.uint8))
    (tmp_path / f"{EVIL}").mkdir()
    try:
        code = main([part.format(word) for part in line.split()])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert_harmless(said.err, 1)


@pytest.mark.thorough
def test_every_verb_shows_the_names_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pictures, classes, skipped files and the run folder itself have such names."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = [f"{kind}{EVIL}/{number}{EVIL}.png" for kind in "ab" for number in range(40)]
    pictures.save_plain(tmp_path / f"photos{EVIL}", names, rng, side=8)
    (tmp_path / f"photos{EVIL}" / f"broken{EVIL}.png").write_bytes(b"no picture")
    run, flags = f"run{EVIL}", ["--epochs", "1", "--batch-size", "8", "--source.max-bad", "0.5"]
    commands = {
        "train": ["train", "--data", f"photos{EVIL}", "--out", run, *flags],
        "evaluate": ["evaluate", run, "--k", "3"],
        "diagnose": ["diagnose", run],
        "verify": ["verify", run],
        "embed": ["embed", run, "--out", f"table{EVIL}.csv"],
        "report": ["report", run, "--out", f"page{EVIL}.html"],
        "preview": ["preview", "--data", f"photos{EVIL}", "--out", f"sheet{EVIL}.png", *flags[4:]],
        "resume": ["resume", run],
    }
    printed = {"train": 1, "embed": 1, "report": 1, "preview": 1, "resume": 1}
    for name, words in commands.items():
        assert main(words) == 0, capsys.readouterr().err
        said = capsys.readouterr()
        assert_harmless(said.out, printed.get(name))
        assert_harmless(said.err)
        assert SHOWN in said.out + said.err
    assert main(["evaluate", run, "--json", "-q", "--k", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["split"]["source"] == f"photos{EVIL}"


def test_errors_and_records_show_them_in_python_too() -> None:
    assert str(cp.DataError(f"{EVIL} is damaged")) == f"{SHOWN} is damaged"


@pytest.mark.thorough
def test_a_terminal_that_knows_ascii_only_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "日本").mkdir()
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    command = [sys.executable, "-c", "from counterpoint.cli.main import entry; entry()"]
    np.savez(tmp_path / "日本" / "a.npz", images=np.zeros((40, 8, 8), np.uint8))
    words = ["preview", "--data", "日本/a.npz", "--out", "日本/x.png"]
    made = subprocess.run([*command, *words], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith(b"\\")  # written out, as the terminal has no such letters
