"""`counterpoint spectrum` prints words or JSON, and writes the record."""

import json
from pathlib import Path

import pytest

import counterpoint as cp
from counterpoint.cli.main import main
from reproductions.mio2021.linear_rate import main as linear_rate_main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("spectrum") / "digits"
    asked = {"epochs": 1, "batch_size": 256, "projector": {"features": 8, "hidden": 8}}
    return cp.train("digits", out=str(out), quiet=True, **asked).path


FAST = ["--steps", "3", "--batch-size", "8"]


def test_it_prints_words_and_writes_the_record(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spectrum", str(run), *FAST]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Curvature of digits: ")
    assert max(map(len, shown.out.splitlines())) <= 100
    assert "Lanczos" in shown.err
    assert (run / "spectrum.json").is_file()


def test_json_is_printed_alone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spectrum", str(run), *FAST, "--json", "-q"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert json.loads(shown.out)["settings"]["steps"] == 3


def test_what_was_written_says_what_is_proven_of_a_linear_rate(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spectrum", str(run), *FAST, "--checkpoint", "all", "-q"]) == 0
    capsys.readouterr()
    assert linear_rate_main([str(run)]) == 0
    shown = capsys.readouterr().out
    assert "Linear rates (mio2021, section 2.5)" in shown
    assert max(map(len, shown.splitlines())) <= 100
