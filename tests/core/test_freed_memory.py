"""Freed memory stays with the process, as the count of page faults shows."""

import os
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from counterpoint.core.process_setup import at_work
def step():
    return float(torch.zeros(1 << 24).sum())  # 64 MiB: above what glibc would keep by itself
def faults():
    for _ in range(20):  # until the heap has found its shape
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() >> 20
at_rest = resident()
with at_work():
    print(faults(), resident() - at_rest)
print(resident() - at_rest)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
@pytest.mark.thorough
def test_steps_at_work_find_the_pages_of_those_before_and_give_them_back() -> None:
    kept, held, left = measured({})
    usual, _, _ = measured({"COUNTERPOINT_TUNE": "0"})
    assert kept * 20 < usual
    assert held >= 64
    assert left < 16


def measured(variables: dict[str, str]) -> tuple[int, ...]:
    """Page faults of steps at work, and MiB above those at rest at work and afterwards."""
    command = [sys.executable, "-c", FAULTS]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=True, text=True)
    return tuple(map(int, done.stdout.split()))
