"""The page on search: its Python runs, and its commands have flags that exist."""

import re
import shlex
from pathlib import Path

import pytest

from counterpoint.cli.parsers import build_parser

PAGE = (Path(__file__).parents[2] / "docs" / "search.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks("python"):
        exec(compile(block, "docs/search.md", "exec"), {})
    assert capsys.readouterr().out == "[0, 1, 2]\n"


def test_its_commands_are_understood() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(lines) == 8
    for line in lines:
        program, verb, *words = shlex.split(line, comments=True)
        assert (program, verb) == ("counterpoint", "search")
        build_parser("search").parse_strictly(words)
