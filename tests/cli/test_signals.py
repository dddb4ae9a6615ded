"""Ctrl-C on the real command: what is said, and that going on changes no bit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import counterpoint as cp
from counterpoint.cli.main import main

pytestmark = pytest.mark.thorough

EPOCHS = 12
TRAIN = ["train", "--data", "digits", "--method", "ncl", "--epochs", str(EPOCHS), "--batch-size", "256"]
TRAIN += ["--engine.checkpoint-every", "2"]


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    whole, run = cp.Run(tmp_path / "whole"), cp.Run(tmp_path / "run")
    assert main([*TRAIN, "--out", str(whole.path), "-q"]) == 0  # which nothing disturbs
    command = [sys.executable, "-m", "counterpoint", *TRAIN, "--out", str(run.path), "--engine.workers", "2"]
    pipes, said = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}, ""
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if line.startswith("epoch 1/"):
                os.killpg(process.pid, signal.SIGINT)  # a terminal, too, sends Ctrl-C to the workers as well
                break
        said += process.stderr.read()
        assert process.wait() == 130, said
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith("counterpoint train: stopped and saved at step ")
    assert last.endswith(f"continue with: counterpoint resume {run.path}")
    assert run.folder.read_status().status == "interrupted"
    assert not run.folder.weights.exists()
    assert main(["resume", str(run.path), "-q"]) == 0
    assert run.folder.read_status().status == "finished"
    assert run.folder.weights.read_bytes() == whole.folder.weights.read_bytes()
    assert [record["loss"] for record in run.metrics] == [record["loss"] for record in whole.metrics]
    assert [record["epoch"] for record in run.metrics] == list(range(1, EPOCHS + 1))


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
