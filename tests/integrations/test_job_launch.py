"""Training in a queue: a job that is taken away continues as `resume` does, and SLURM hears what was asked for."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import counterpoint as cp
from counterpoint.cli.main import main
from counterpoint.integrations.job_launch import LaunchSettings, launch

pytest.importorskip("submitit", reason="submitit (extra `slurm`) is not installed")
SETTINGS: dict[str, Any] = {
    "data": "digits", "epochs": 3, "batch_size": 128, "engine": {"device": "cpu", "checkpoint_steps": 1}
}  # fmt: skip
# What SLURM's commands answer; sbatch keeps the script that it is given.
SBATCH = '#!/bin/sh\nfor last; do :; done\ncp "$last" "$(dirname "$0")/script"\necho "Submitted batch job 71"\n'


def wait_for(happened: Any, job: Any) -> None:
    """Wait until something has happened, or the job has ended."""
    for _ in range(2400):
        if happened() or job.done():
            return
        time.sleep(0.05)
    raise TimeoutError(job.stderr())


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="the processes of a job are sought in /proc")
def test_a_preempted_job_continues_to_the_same_weights(tmp_path: Path) -> None:
    job = launch(LaunchSettings(launch="local", per_node=2), {**SETTINGS, "out": str(tmp_path / "run")}, ("-q",))
    wait_for(lambda: list((tmp_path / "run").glob("checkpoints/step-*")), job)
    controller = job._process.pid
    (task,) = Path(f"/proc/{controller}/task/{controller}/children").read_text(encoding="ascii").split()
    os.kill(int(task), signal.SIGUSR2)  # as SLURM does before it takes the machine away
    wait_for(lambda: False, job)
    assert "Requeued job" in job.stdout()
    settings = {**SETTINGS, "engine": {"device": "cpu"}, "out": str(tmp_path / "whole")}
    whole = launch(LaunchSettings(launch="local", per_node=2), settings, ("-q",))
    wait_for(lambda: False, whole)
    ours, theirs = (cp.load(tmp_path / name).state_dict() for name in ("run", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_slurm_hears_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, script in (("srun", "#!/bin/sh\n"), ("sbatch", SBATCH)):
        (tmp_path / name).write_text(script, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    words = ["--launch", "slurm", "--nodes", "4", "--per-node", "8", "--minutes", "90"]
    assert main(["train", "--data", "digits", "--seed", "3", "--out", str(tmp_path / "run"), *words]) == 0
    script = (tmp_path / "script").read_text(encoding="utf-8")
    for line in ("nodes=4", "ntasks-per-node=1", "gpus-per-node=8", "time=90"):
        assert f"#SBATCH --{line}\n" in script
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--launch", "slurm"], "--out"),
        (["--launch", "slurm", "--out", "run"], "slurm takes no job"),
        (["--launch", "local", "--nodes", "2", "--out", "run"], "one machine"),
        (["--launch", "local", "--overwrite", "--out", "run"], "never replaced"),
        (["--nodes", "2", "--out", "run"], "go with --launch"),
    ],
)
def test_what_cannot_be_launched_is_one_line(
    words: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["train", "--data", "digits", *words]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1
