"""`counterpoint runs`: what it prints."""

import json
from pathlib import Path

import pytest

from counterpoint.cli.main import main
from counterpoint.core.run_files import create_run


def test_the_table_and_its_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        create_run(Path("runs") / name, overwrite=False).update_status(status="finished", method="ncl")
    assert main(["runs"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [["one", "done"], ["two", "done"]]
    assert main(["runs", "--json"]) == 0
    assert [run["name"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["one", "two"]
