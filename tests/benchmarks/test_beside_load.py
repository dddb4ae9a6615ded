"""Calls beside a load: fresh processes without variables for threads, a load that runs and ends, readable tables."""

import os
import subprocess
from pathlib import Path

import beside_load
import pytest
from beside_load import Calls, beside, calls_of, compare

SCRIPT = """
import json, os, sys
if sys.argv[1] == "broken":
    sys.exit("no such loss")
names = [name for name in os.environ if name.startswith(("OMP_", "MKL_", "GOMP_"))]
print(json.dumps({"seconds": [float(word) for word in sys.argv[1:]], "names": names}))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "calls.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_a_process_knows_no_variable_for_threads(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert calls_of(script, 5, 1, 9, 2) == Calls(5.0, 2.0, {"names": []})
    assert "OMP_WAIT_POLICY" in os.environ


def test_what_fails_is_named_and_the_others_are_shown(script: Path) -> None:
    rows = compare("A case", {"ours": (script, (0.2, 0.1)), "peer": (script, ("broken",))}, ["idle"]).splitlines()
    assert rows[0] == "### A case"
    assert [row for row in rows if row.startswith("| ours")] == ["| ours | 200, 100 | 1 | - |"]
    assert [row for row in rows if row.startswith("| peer")] == ["| peer | - | - | failed: no such loss |"]
    assert rows[-1] == "ours beside other work: at most 1 x idle (target 3)."


def test_the_load_runs_inside_the_block_only(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[str]] = []
    start = subprocess.Popen

    def watched(*words: object, **options: object) -> subprocess.Popen[str]:
        started.append(start(*words, **options))  # pyright: ignore
        return started[-1]

    monkeypatch.setattr(beside_load.subprocess, "Popen", watched)
    with beside("idle"):
        assert started == []
    with beside("one busy process"):
        assert started[0].poll() is None
    assert started[0].poll() is not None
