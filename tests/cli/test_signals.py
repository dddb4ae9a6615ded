"""Ctrl-C and SIGKILL on the real command: what is said, and that going on changes no bit."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import counterpoint as cp
from counterpoint.cli.main import main

pytestmark = pytest.mark.thorough

EPOCHS = 12
TRAIN = ["train", "--data", "digits", "--method", "ncl", "--epochs", str(EPOCHS), "--batch-size", "256"]
TRAIN += ["--engine.checkpoint-every", "2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> cp.Run:
    """The run that nothing disturbed."""
    path = tmp_path_factory.mktemp("whole") / "run"
    assert main([*TRAIN, "--out", str(path), "-q"]) == 0
    return cp.Run(path)


def stopped(path: Path, number: signal.Signals, after: str, *, more: Sequence[str] = ()) -> tuple[int, str]:
    """Start the command, send it a signal once it has said something, and wait: exit code and all that it said."""
    command = [sys.executable, "-m", "counterpoint", *TRAIN, "--out", str(path), *more]
    said = ""
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if line.startswith(after):
                os.killpg(process.pid, number)  # a terminal, too, sends Ctrl-C to the workers as well
                break
        said += process.stderr.read()
        return process.wait(), said


def assert_same_run(actual: cp.Run, expected: cp.Run) -> None:
    assert actual.folder.weights.read_bytes() == expected.folder.weights.read_bytes()
    assert [record["loss"] for record in actual.metrics] == [record["loss"] for record in expected.metrics]
    assert [record["epoch"] for record in actual.metrics] == list(range(1, EPOCHS + 1))


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path, whole: cp.Run) -> None:
    run = cp.Run(tmp_path / "run")
    exit_code, said = stopped(run.path, signal.SIGINT, "epoch 1/", more=["--engine.workers", "2"])
    assert exit_code == 130, said
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith("counterpoint train: stopped and saved at step ")
    assert last.endswith(f"continue with: counterpoint resume {run.path}")
    assert run.folder.read_status().status == "interrupted"
    assert not run.folder.weights.exists()
    assert main(["resume", str(run.path), "-q"]) == 0
    assert run.folder.read_status().status == "finished"
    assert_same_run(run, whole)


def test_a_killed_run_goes_on_as_well(tmp_path: Path, whole: cp.Run) -> None:
    run = cp.Run(tmp_path / "run")
    exit_code, _ = stopped(run.path, signal.SIGKILL, "epoch 3/")
    assert exit_code == -signal.SIGKILL
    assert run.folder.read_status().status == "running"
    assert not run.folder.weights.exists()
    assert main(["resume", str(run.path), "-q"]) == 0
    assert_same_run(run, whole)


def test_ctrl_c_before_the_first_step_leaves_no_traceback(tmp_path: Path) -> None:
    """While torch is loaded and data are read nothing can be saved; the line says so and the code is the shell's."""
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job inherits none\n"
        "from counterpoint.cli import arguments, main as entry\n"
        "def interrupted(*words): signal.raise_signal(signal.SIGINT)\n"
        "arguments.read_words = interrupted\n"
        "sys.exit(entry.main(['train', '--data', 'digits']))\n"
    )
    finished = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (130, "counterpoint train: interrupted\n")
    assert list(tmp_path.iterdir()) == []
