"""Help teaches, and lists every setting."""

import subprocess
import sys
from pathlib import Path

import pytest

import counterpoint as cp
from counterpoint.cli.arguments import build_parser
from counterpoint.cli.main import main
from counterpoint.cli.parsers import VERBS, load_verb
from counterpoint.core.settings import TrainSettings
from counterpoint.core.validation import expectation, leaf_fields

NOT_SETTINGS = {
    "--set",
    "--help",
    "--config",
    "--resume",
    "--seeds",
    "--launch",
    "--nodes",
    "--per-node",
    "--minutes",
    "--overwrite",
    "--quiet",
    "--no-diagnosis",
    "--json",
}


def test_the_command_is_installed_and_the_module_runs(tmp_path: Path) -> None:
    outputs = []
    for command in ([str(Path(sys.executable).with_name("counterpoint"))], [sys.executable, "-m", "counterpoint"]):
        finished = subprocess.run([*command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr
        outputs.append(finished.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("usage: counterpoint VERB")
    missing = subprocess.run(
        [sys.executable, "-m", "counterpoint", "trian"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("counterpoint: error: unknown verb 'trian'; did you mean 'train'?")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], []], ids=str)
def test_the_overview_names_every_verb_and_what_to_start_with(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == (0 if words else 2)
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) < 80
    for name, summary in VERBS.items():
        assert f"  {name} " in said
        assert summary in said
    assert "\n  counterpoint demo\n" in said


@pytest.mark.parametrize("words", [["--version"], ["-V"]], ids=str)
def test_the_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out == f"counterpoint {cp.__version__}\n"


@pytest.mark.parametrize("name", VERBS)
def test_the_help_of_a_verb_explains_and_shows_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: counterpoint {name}")
    assert "example" in said
    assert f"\n  counterpoint {name}" in said
    for action in build_parser(name)._actions:
        assert action.help, action.option_strings


@pytest.mark.parametrize("name", VERBS)
def test_every_example_parses(name: str) -> None:
    """An example in a help text is a promise: its flags exist."""
    told = map(str.strip, str(load_verb(name).__doc__).splitlines())
    lines = [line for line in told if line.startswith("counterpoint ")]
    assert lines
    for line in lines:
        program, verb, *words = line.split()
        assert (program, verb) == ("counterpoint", name)
        build_parser(name).parse_strictly(words)


def test_flags_are_at_most_250_and_the_help_of_train_fits_two_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    flags = [action for name in VERBS for action in build_parser(name)._actions if action.option_strings]
    assert len([action for action in flags if action.dest != "help"]) <= 250
    assert len(build_parser("train").format_help().splitlines()) <= 120


def test_every_setting_of_training_can_be_set_and_those_at_the_top_have_a_flag() -> None:
    parser = build_parser("train")
    flags = {flag for action in parser._actions for flag in action.option_strings if flag[:2] == "--"}
    settings = {path: f"--{path.replace('_', '-')}" for path, _ in leaf_fields(TrainSettings)}
    assert set(parser.settable) == set(settings)
    assert flags - NOT_SETTINGS <= set(settings.values())
    assert flags >= NOT_SETTINGS | {flag for path, flag in settings.items() if "." not in path}


def test_the_list_of_settings_gives_meaning_and_range_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "settings"]) == 0
    said = "".join(capsys.readouterr().out.split())  # argparse breaks lines at blanks and hyphens
    for path, field in leaf_fields(TrainSettings):
        assert field.description, path
        assert "".join(field.description.split()) in said, path
        if field.annotation not in (str, str | None):
            assert "".join(expectation(field).split()) in said, path
