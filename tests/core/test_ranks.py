"""Ranks from the variables that torchrun and SLURM set; the values are as their manuals print them."""

from dataclasses import replace

import pytest

from counterpoint.core.errors import UsageError
from counterpoint.core.ranks import Ranks, WorkPart, first_host, part_of_ranks, read_ranks, tasks_on_node

TORCHRUN = {
    "RANK": "5",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "MASTER_ADDR": "10.0.0.7",
    "MASTER_PORT": "29400",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
SLURM = {
    "SLURM_JOB_ID": "1234567",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "5",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
    "SLURM_NODELIST": "gpu[007-008,011]",
}
ARRAY = {"SLURM_ARRAY_TASK_ID": "12", "SLURM_ARRAY_TASK_COUNT": "3", "SLURM_ARRAY_TASK_MIN": "10"}
RANK = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


def test_torchrun() -> None:
    expected = Ranks(5, 1, 8, 4, 1, "10.0.0.7", 29400, "torchrun", restarts=2)
    assert without_launch(read_ranks(TORCHRUN)) == expected
    assert without_launch(read_ranks({**SLURM, **TORCHRUN})) == expected  # torchrun inside a SLURM job
    assert read_ranks({**SLURM, **TORCHRUN, "SLURM_RESTART_COUNT": "3"}).restarts == 5


def test_srun() -> None:
    port = 15_000 + 1234567 % 20_000
    assert without_launch(read_ranks(SLURM)) == Ranks(3, 1, 5, 2, 1, "gpu007", port, "slurm")
    assert read_ranks({**SLURM, "SLURM_STEP_NODELIST": "gpu008"}).address == "gpu008"
    assert read_ranks({**SLURM, "MASTER_ADDR": "::1", "MASTER_PORT": "4000"}).port == 4000
    assert read_ranks({**SLURM, "SLURM_GPUS_PER_TASK": "1"}).has_own_gpus
    assert read_ranks({**SLURM, "SLURM_RESTART_COUNT": "1"}).restarts == 1


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "1"},
        {**SLURM, "SLURM_NTASKS": "1"},
        {key: value for key, value in SLURM.items() if key != "SLURM_STEP_ID"},  # a batch script
        {**SLURM, "SLURM_STEP_ID": "interactive"},
    ],
)
def test_one_process(environment: dict[str, str]) -> None:
    assert without_launch(read_ranks(environment)) == Ranks()


def test_a_restart_knows_its_own_launch() -> None:
    job = {"SLURM_JOB_ID": "17"}
    assert read_ranks({**job, "SLURM_RESTART_COUNT": "2"}).restarts == 2  # a requeued job of one process
    assert read_ranks(job).launch == read_ranks({**job, "SLURM_RESTART_COUNT": "2"}).launch != ""
    assert read_ranks(job).launch != read_ranks({"SLURM_JOB_ID": "18"}).launch
    assert read_ranks({}).launch == ""


def without_launch(ranks: Ranks) -> Ranks:
    return replace(ranks, launch="")


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({key: value for key, value in TORCHRUN.items() if key != "MASTER_PORT"}, ["MASTER_PORT", "torchrun"]),
        ({**TORCHRUN, "RANK": "8"}, ["RANK", "WORLD_SIZE (8)", "got 8"]),
        ({**TORCHRUN, "LOCAL_RANK": "4"}, ["LOCAL_RANK", "(4)", "got 4"]),
        ({**TORCHRUN, "WORLD_SIZE": "two"}, ["WORLD_SIZE", "'two'"]),
        ({**TORCHRUN, "RANK": "-1"}, ["RANK", "'-1'"]),
        ({**SLURM, "SLURM_NODELIST": ""}, ["SLURM_NODELIST", "MASTER_ADDR"]),
        ({**SLURM, "SLURM_TASKS_PER_NODE": "x"}, ["SLURM_TASKS_PER_NODE", "'x'"]),
        ({**SLURM, "SLURM_NODEID": "3"}, ["SLURM_TASKS_PER_NODE", "machine 3"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(environment: dict[str, str], words: list[str]) -> None:
    with pytest.raises(UsageError) as refusal:
        read_ranks(environment)
    assert "\n" not in str(refusal.value)
    assert all(word in str(refusal.value) for word in words), refusal.value


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[1,3]", "node1"),
        ("node[09-12]-ib0,other", "node09-ib0"),
        ("rack[1-2]node[03-04]", "rack1node03"),
        ("a.example.org", "a.example.org"),
    ],
)
def test_the_first_host(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


def test_tasks_on_a_node() -> None:
    assert [tasks_on_node("4", 0), tasks_on_node("1,2(x2)", 2), tasks_on_node("8(x100)", 99)] == [4, 2, 8]


def test_ranks_share_the_part_that_was_asked_for() -> None:
    assert part_of_ranks(None, {}) == WorkPart(1, 1)
    assert part_of_ranks(None, RANK) == WorkPart(2, 2)
    assert part_of_ranks("slurm", ARRAY) == WorkPart(3, 3)
    assert part_of_ranks("slurm", {**ARRAY, **RANK}) == WorkPart(6, 6)
    # An array of other jobs does not cut a table unasked.
    assert part_of_ranks(None, ARRAY) == WorkPart(1, 1)


def test_all_parts_of_all_ranks_are_different() -> None:
    found = [
        part_of_ranks(f"{number}/3", {**RANK, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for number in (1, 2, 3)
        for rank in (0, 1)
    ]
    assert found == [WorkPart(number, 6) for number in range(1, 7)]


@pytest.mark.parametrize("wrong", ["0/3", "4/3", "x", "3", "/", "-1/3", "1/0"])
def test_a_part_that_there_is_not_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="part must be NUMBER/TOTAL"):
        part_of_ranks(wrong, {})


def test_the_index_of_an_array_needs_an_array() -> None:
    with pytest.raises(UsageError, match="part slurm needs a SLURM array"):
        part_of_ranks("slurm", {"SLURM_JOB_ID": "7"})


def test_parts_have_all_items_once() -> None:
    assert sorted(item for number in range(1, 4) for item in WorkPart(number, 3).of(8)) == list(range(8))
    assert list(WorkPart(3, 3).of(2)) == []
