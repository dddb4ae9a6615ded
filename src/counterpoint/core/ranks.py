"""Which of several processes this one is, as torchrun or SLURM says, and which share of some work it does."""

import hashlib
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from counterpoint.core.errors import UsageError

TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
FROM_SLURM = "slurm"  # instead of a part: the environment of a SLURM array says it
ARRAY = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN")
FIRST_PORT, NUM_PORTS = 15_000, 20_000  # SLURM: a port by job number, below those that systems hand out themselves


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together.

    Attributes:
        rank: 0 <= rank < world_size.
        local_rank: the same among the processes of this machine.
        world_size: number of processes.
        local_world_size: number of processes on this machine.
        node_rank: number of this machine.
        address: machine of rank 0; empty for one process.
        port: where rank 0 listens.
        launcher: torchrun, slurm or none.
        has_own_gpus: each process is shown its own GPUs only, so that its first is number 0.
        restarts: how often torchrun has started these processes anew, or SLURM their job.
        launch: hash of what a restart has in common with the start; empty where nothing restarts. Only rank 0's counts.
    """

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    node_rank: int = 0
    address: str = ""
    port: int = 0
    launcher: str = "none"
    has_own_gpus: bool = False
    restarts: int = 0
    launch: str = ""


@dataclass(frozen=True)
class WorkPart:
    """What this process does of numbered work: number ``number`` of ``total``, from 1."""

    number: int = 1
    total: int = 1

    def __post_init__(self) -> None:
        """Refuse a part that there is not."""
        if not 1 <= self.number <= self.total:
            raise UsageError(f"part must be NUMBER/TOTAL with 1 <= NUMBER <= TOTAL, got {self.number}/{self.total}")

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"

    def of(self, num_items: int) -> range:
        """Its own items of so many: every ``total``-th, from the ``number``-th on.

        >>> list(WorkPart(2, 3).of(7))
        [1, 4]
        """
        return range(self.number - 1, num_items, self.total)


def read_part(text: str) -> WorkPart:
    """A part as it is written.

    Raises:
        UsageError: no such part.

    >>> read_part("3/12")
    WorkPart(number=3, total=12)
    """
    number, _, total = text.partition("/")
    if not (number.isdecimal() and total.isdecimal()):
        raise UsageError(f"part must be NUMBER/TOTAL, such as 3/12, got {text!r}")
    return WorkPart(int(number), int(total))


def part_of_array(environment: Mapping[str, str]) -> WorkPart | None:
    """The part that the index of a SLURM array says; None where no array started this process.

    >>> part_of_array({"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "5", "SLURM_ARRAY_TASK_COUNT": "4"})
    WorkPart(number=3, total=4)
    """
    if not all(map(environment.get, ARRAY)):
        return None
    index, total, first = (_number(environment, name) for name in ARRAY)
    return WorkPart(index - first + 1, total)


def part_of_ranks(text: str | None, environment: Mapping[str, str] = os.environ) -> WorkPart:
    """Which part of a table this process makes: its rank's share of the part that was asked for.

    Args:
        text: ``3/64``; ``slurm`` takes the index of the SLURM array; None is all of the work, which the ranks of
            torchrun or srun share.
        environment: of the process.

    Raises:
        UsageError: no such part, or no array.

    >>> part_of_ranks("2/3", {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a",
    ...     "MASTER_PORT": "1"})
    WorkPart(number=4, total=6)
    """
    outer = WorkPart() if text is None else part_of_array(environment) if text == FROM_SLURM else read_part(text)
    if outer is None:
        raise UsageError("part slurm needs a SLURM array (sbatch --array 1-64), and none started this process")
    ranks = read_ranks(environment)
    return WorkPart((outer.number - 1) * ranks.world_size + ranks.rank + 1, outer.total * ranks.world_size)


def read_ranks(environment: Mapping[str, str]) -> Ranks:
    """Ranks that a launcher has written to the environment.

    torchrun counts first, as it may run inside a SLURM job. SLURM counts where ``srun`` started this very process as
    one of several tasks; ``salloc`` and ``sbatch`` by themselves start one process.

    Args:
        environment: such as ``os.environ``.

    Returns:
        The ranks; one process where no launcher speaks.

    Raises:
        UsageError: a launcher's variables are incomplete or contradict each other.

    >>> read_ranks({}).world_size
    1
    >>> read_ranks({"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4", "SLURM_NODEID": "1",
    ...     "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77", "SLURM_TASKS_PER_NODE": "2(x2)",
    ...     "SLURM_STEP_NODELIST": "gpu[07-08]"}).address
    'gpu07'
    """
    # RANK and LOCAL_RANK are set by other launchers, too; all of torchrun's are needed to meet the others.
    if "LOCAL_RANK" in environment and "WORLD_SIZE" in environment:
        return _checked(_from_torchrun(environment))
    if _is_task_of_several(environment):
        return _checked(_from_slurm(environment))
    return Ranks(restarts=_number(environment, "SLURM_RESTART_COUNT", 0), launch=_launch(environment))


def first_host(node_list: str) -> str:
    """First machine of a list as SLURM writes it.

    >>> [first_host(text) for text in ("gpu7", "a[003-005,9],b1", "login,a[1-2]", "r[1-2]n[4,6-7]-ib")]
    ['gpu7', 'a003', 'login', 'r1n4-ib']
    """
    # Up to the first comma that stands in no brackets; then the first number of every bracket.
    first = re.match(r"(?:[^\[,]|\[[^\]]*\])*", node_list)
    return re.sub(r"\[(\w+)[^\]]*\]", r"\1", first.group() if first else "")


def tasks_on_node(tasks_per_node: str, node: int) -> int:
    """Number of tasks on one machine, from SLURM's short form.

    >>> [tasks_on_node("2(x3),1", node) for node in range(4)]
    [2, 2, 2, 1]
    """
    counts: list[int] = []
    for part in tasks_per_node.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        # 2(x3): three machines with two tasks each.
        counts += [int(match[1])] * int(match[2] or 1) if match else []
    if node >= len(counts):
        raise UsageError(f"SLURM_TASKS_PER_NODE {tasks_per_node!r} says nothing of machine {node}; it reads 2(x3),1")
    return counts[node]


def _from_torchrun(environment: Mapping[str, str]) -> Ranks:
    """Ranks as torchrun gives them."""
    missing = [name for name in TORCHRUN if name not in environment]
    if missing:
        raise UsageError(
            f"WORLD_SIZE is {environment['WORLD_SIZE']}, but {', '.join(missing)} is not set; start with torchrun "
            "--nproc-per-node N -m counterpoint, or unset WORLD_SIZE and LOCAL_RANK"
        )
    world_size = _number(environment, "WORLD_SIZE")
    return Ranks(
        rank=_number(environment, "RANK"),
        local_rank=_number(environment, "LOCAL_RANK"),
        world_size=world_size,
        local_world_size=_number(environment, "LOCAL_WORLD_SIZE", world_size),
        node_rank=_number(environment, "GROUP_RANK", 0),
        address=environment["MASTER_ADDR"],
        port=_number(environment, "MASTER_PORT"),
        launcher="torchrun",
        restarts=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0) + _number(environment, "SLURM_RESTART_COUNT", 0),
        launch=_launch(environment),
    )


def _is_task_of_several(environment: Mapping[str, str]) -> bool:
    """Started by ``srun`` as one of several tasks; a batch script sees the job's variables but no step of its own."""
    has_step = environment.get("SLURM_STEP_ID", "").isdigit() and "SLURM_LOCALID" in environment
    return has_step and "SLURM_PROCID" in environment and _number(environment, "SLURM_NTASKS", 1) > 1


def _from_slurm(environment: Mapping[str, str]) -> Ranks:
    """Ranks as ``srun`` gives them; rank 0 listens on the first machine."""
    world_size, node = _number(environment, "SLURM_NTASKS"), _number(environment, "SLURM_NODEID", 0)
    # The step's own values first: a step may run on fewer machines than its job.
    per_node = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE", "")
    hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_NODELIST", "")
    address = environment.get("MASTER_ADDR") or first_host(hosts)
    if not address:
        raise UsageError("srun started several tasks, but neither SLURM_NODELIST nor MASTER_ADDR says where rank 0 is")
    job = _number(environment, "SLURM_JOB_ID", 0)
    return Ranks(
        rank=_number(environment, "SLURM_PROCID"),
        local_rank=_number(environment, "SLURM_LOCALID"),
        world_size=world_size,
        local_world_size=tasks_on_node(per_node, node) if per_node else world_size,
        node_rank=node,
        address=address,
        # Every task finds the same port without asking: from the number of the job.
        port=_number(environment, "MASTER_PORT", FIRST_PORT + job % NUM_PORTS),
        launcher="slurm",
        has_own_gpus="SLURM_GPUS_PER_TASK" in environment,  # srun then hides the others' GPUs
        restarts=_number(environment, "SLURM_RESTART_COUNT", 0),
        launch=_launch(environment),
    )


def _launch(environment: Mapping[str, str]) -> str:
    """A job keeps its number when SLURM starts it again; torchrun outlives the processes that it starts again."""
    if "SLURM_JOB_ID" in environment:
        what = f"slurm {environment['SLURM_JOB_ID']}"
    elif "TORCHELASTIC_RUN_ID" in environment:
        what = f"torchrun {environment['TORCHELASTIC_RUN_ID']} {socket.gethostname()} {os.getppid()}"
    else:
        return ""
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    """A whole number of the environment."""
    text = environment.get(name, "" if default is None else str(default))
    if not re.fullmatch(r"\d+", text.strip()):
        raise UsageError(f"the environment variable {name} must be a whole number >= 0, got {text!r}")
    return int(text)


def _checked(ranks: Ranks) -> Ranks:
    """Refuse numbers that contradict each other."""
    if not 0 <= ranks.rank < ranks.world_size:
        raise UsageError(f"RANK must be below WORLD_SIZE ({ranks.world_size}), got {ranks.rank}; start with torchrun")
    if not 0 <= ranks.local_rank < ranks.local_world_size:
        raise UsageError(
            f"LOCAL_RANK must be below LOCAL_WORLD_SIZE ({ranks.local_world_size}), got {ranks.local_rank}; start with "
            "torchrun"
        )
    return ranks
