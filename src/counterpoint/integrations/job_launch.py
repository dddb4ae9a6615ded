"""Hand a training to a queue (extra ``slurm``, submitit): torchrun on each machine, and again after each preemption.

A job that the queue stops, or whose time is over, saves at its next step, is queued again and continues as ``resume``
does: the weights are those of a run without the interruption. The one module that imports submitit.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from counterpoint.core.errors import UsageError, first_line
from counterpoint.core.settings import Count, Settings, TrainSettings, option
from counterpoint.core.validation import flat

PORTS = range(20_000, 40_000)  # the job number picks the port where its processes meet: jobs may share a machine
MOST_TIMES = 10_000  # how often a job is queued again at most
SAVING_SECONDS = 90  # the queue asks a job to stop so long before its end


class LaunchSettings(Settings):
    """Settings that hand a training to a queue: which one, on how many machines, and for how long."""

    launch: Literal["slurm", "local"] | None = option(
        "hand the training to SLURM, or to a process of this machine, and return (extra slurm)"
    )
    nodes: Count = option("with --launch: machines", 1)
    per_node: Count = option("with --launch: processes on each machine; with SLURM each has a GPU", 1)
    minutes: Count = option("with --launch: after so many it is queued again, and continues", 1440)


@dataclass
class TorchrunJob:
    """The work of a job on each machine; submitit calls ``checkpoint`` if the queue takes the machine away.

    Attributes:
        words: the words of the command line of ``counterpoint``.
        folder: the working directory.
        nodes: the number of machines.
        per_node: the number of processes on each machine.
    """

    words: tuple[str, ...]
    folder: str
    nodes: int
    per_node: int
    process: Any = field(default=None, repr=False)

    def __call__(self) -> None:
        """Run torchrun to its end.

        Raises:
            CalledProcessError: it failed.
        """
        import submitit  # deferred: an extra

        job = submitit.JobEnvironment()
        rendezvous = ["--standalone"]
        if self.nodes > 1:
            port = PORTS[int(job.job_id.partition("_")[0]) % len(PORTS)]
            rendezvous = ["--nnodes", str(self.nodes), "--rdzv-backend", "c10d", "--rdzv-id", job.job_id]
            rendezvous += ["--rdzv-endpoint", f"{job.hostnames[0]}:{port}"]
        words = [*rendezvous, "--nproc-per-node", str(self.per_node), "-m", "counterpoint", *self.words]
        self.process = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", *words], cwd=self.folder)
        if code := self.process.wait():
            raise subprocess.CalledProcessError(code, self.process.args)

    def checkpoint(self) -> Any:
        """Let the ranks save and stop, and return the job that is queued again."""
        import submitit  # deferred: an extra

        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)  # torchrun hands it on
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.process.pid, 0)  # not Popen.wait, whose lock is held where this interrupts it
        return submitit.helpers.DelayedSubmission(TorchrunJob(self.words, self.folder, self.nodes, self.per_node))


def launch(placement: LaunchSettings, settings: Mapping[str, Any], words: tuple[str, ...] = ()) -> Any:
    """Queue a training.

    Args:
        placement: machines and processes of the training; its ``launch`` is not None.
        settings: the settings of training that were given, nested; the folder of logs lies beside their ``out``.
        words: further flags of ``train``.

    Returns:
        The job, as submitit has it.

    Raises:
        UsageError: submitit is missing, no ``out``, several machines without SLURM, or a queue that takes no job.
    """
    try:
        import submitit  # deferred: an extra
    except ImportError:
        raise UsageError("--launch needs submitit; install it with: pip install submitit") from None
    if not settings.get("out"):
        raise UsageError("--launch needs --out RUN: a job that is queued again continues the run that is there")
    if placement.launch == "local" and placement.nodes > 1:
        raise UsageError(f"--launch local has one machine, got --nodes {placement.nodes}")
    flat_settings = flat(TrainSettings, settings).items()
    texts = [f"{path}={value if isinstance(value, str) else json.dumps(value)}" for path, value in flat_settings]
    command = ("train", "--resume", *words, *(word for text in texts for word in ("--set", text)))
    out = Path(settings["out"])
    how = {"name": out.name, "timeout_min": placement.minutes, "tasks_per_node": 1, "nodes": placement.nodes}
    if placement.launch == "slurm":
        how |= {"gpus_per_node": placement.per_node, "slurm_signal_delay_s": SAVING_SECONDS}
    logs = out.with_name(f"{out.name}-jobs")
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster=placement.launch, slurm_max_num_timeout=MOST_TIMES)
        executor.update_parameters(**how)
        return executor.submit(TorchrunJob(command, os.getcwd(), placement.nodes, placement.per_node))
    except (RuntimeError, OSError) as error:  # submitit raises these, too
        raise UsageError(f"{placement.launch} takes no job: {first_line(error)}") from None
