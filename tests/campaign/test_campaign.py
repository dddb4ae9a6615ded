"""The campaign finds what is broken, keeps it, goes on where it was; and a few seconds of it find nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaign.__main__ import KINDS

TESTS = Path(__file__).parent.parent
# Half a minute each: all but one are for `make test-all`.
EACH = [kind if kind == "tensors" else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))
# What each kind must find: Python that breaks its promise, before the campaign begins.
BROKEN = {
    "kills": "from counterpoint.engine import loop; loop._restore = lambda job, reporter: (loop.LoopState())",
    "interleavings": "import contextlib; from counterpoint.runs import execution; "
    "execution.lock_run = lambda folder: contextlib.nullcontext()",
    "failing_calls": "from counterpoint.engine import loop; save = loop.save_checkpoint\n"
    "def save_checkpoint(*args, **options):\n"
    "    try:\n        return save(*args, **options)\n"
    "    except Exception:\n        raise SystemExit(0)\n"
    "loop.save_checkpoint = save_checkpoint",
    "run_files": "from counterpoint.cli import main; main.CounterpointError = OSError",
    "data_files": "from counterpoint.data import sources; sources.open_source = lambda *args, **options: 1 / 0",
    "flags": "from counterpoint.cli import main; main.UsageError = main.CounterpointError = OSError",
    "tensors": "from counterpoint.losses.loss import Loss; call = Loss.__call__\n"
    "Loss.__call__ = lambda self, *args, **options: call(self, *args, **options) * float('nan')",
    "growth": "from counterpoint.core import rundir; open_run, kept = rundir.open_run, []\n"
    "def leaking(path):\n    kept.append(b'x' * (1 << 20))\n    return open_run(path)\n"
    "rundir.open_run = leaking",
    "code_names": "import pkgutil, yaml; construct = yaml.constructor.SafeConstructor.construct_scalar\n"
    "def called(self, node):\n    value = construct(self, node)\n"
    "    if str(value).startswith(('os:', 'subprocess:')):\n        pkgutil.resolve_name(value)('true')\n"
    "    return value\nyaml.constructor.SafeConstructor.construct_scalar = called",
    "swapped_files": "from counterpoint.runs.verification import Verification; "
    "Verification.is_intact = property(lambda self: True)",
    "stale_data": "from counterpoint.data.source import Source; "
    "build = Source.__init__\n"
    "def same(self, *args, **options):\n    build(self, *args, **options)\n"
    "    object.__setattr__(self, 'fingerprint', 'same')\nSource.__init__ = same",
    "leftovers": "import shutil; from pathlib import Path; replace = Path.replace\n"
    "def leaving(self, target):\n    if self.is_file():\n        shutil.copy(self, f'{self}.tmp')\n"
    "    return replace(self, target)\nPath.replace = leaving",
    "limits": "from counterpoint.core import files; write = files.write_file\n"
    "def write_file(path, pieces):\n    try:\n        return write(path, pieces)\n"
    "    except OSError:\n        raise SystemExit(0)\n"
    "files.write_file = write_file",
    "markdown": "import re; from counterpoint.core import terminal_text; terminal_text._ACTIVE = re.compile('(?!)')",
}


def campaign(folder: Path, *words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the campaign in a process without threads, which it forks from."""
    program = f"{before}\nimport sys\nfrom campaign.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "--folder", str(folder), *words]
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, env=environment, cwd=folder.parent, capture_output=True, text=True, check=False)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", EACH)
def test_some_tries_of_each_kind_break_nothing(tmp_path: Path, kind: str) -> None:
    ended = campaign(tmp_path / "c", "--kinds", kind, "--tries", "2" if kind == "growth" else "12")
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("kind", EACH)
def test_a_promise_that_is_broken_on_purpose_is_found_and_found_again(tmp_path: Path, kind: str) -> None:
    folder, before = tmp_path / "c", BROKEN[kind]
    campaign(folder, "--kinds", kind, "--tries", "0")  # what is tried on is made by what is not broken
    ended = campaign(folder, "--kinds", kind, "--tries", "25", "--minutes", "2", before=before)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    case = next((folder / "findings").glob("*.json"))
    again = campaign(folder, "--replay", str(case), before=before)
    assert again.returncode == 1, again.stdout + again.stderr
    assert json.loads(case.read_text())["fault"] in again.stdout


@pytest.mark.thorough
def test_a_campaign_goes_on_where_it_was_with_the_same_cases(tmp_path: Path) -> None:
    words = ["--kinds", "tensors", "--seed", "3", "--tries"]
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    campaign(whole, *words, "6")
    campaign(halves, *words, "3")
    campaign(halves, *words, "6")
    for folder in (whole, halves):
        lines = [json.loads(line) for line in (folder / "record-3.jsonl").read_text().splitlines()]
        assert sorted(line["number"] for line in lines) == list(range(6))
    assert "| `tensors` | 6 |" in campaign(halves, *words, "6").stdout


@pytest.mark.slow
@pytest.mark.parametrize("case", FOUND, ids=lambda path: path.stem)
def test_what_was_found_once_is_no_fault_any_more(tmp_path: Path, case: Path) -> None:
    ended = campaign(tmp_path / "c", "--replay", str(case))
    assert ended.returncode == 0, ended.stdout + ended.stderr
