"""Shell completion: scripts know verbs and flags, and a shell that is not supported is one line."""

import subprocess

import pytest

from counterpoint.cli.main import main


def test_bash_completes_verbs_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", "bash"]) == 0
    script = capsys.readouterr().out
    ask = 'COMP_WORDS=({}); COMP_CWORD={}; _shtab_counterpoint; echo "${{COMPREPLY[@]}}"'
    answers = []
    for words, place in (("counterpoint eva", 1), ("counterpoint train --temp", 2)):
        shell = subprocess.run(
            ["bash", "-c", script + ask.format(words, place)], capture_output=True, text=True, check=True
        )
        answers.append(shell.stdout.split())
    assert answers == [["evaluate"], ["--temperature"]]


@pytest.mark.parametrize("words", [[], ["nushell"], ["bash", "zsh"]])
def test_no_shell_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
