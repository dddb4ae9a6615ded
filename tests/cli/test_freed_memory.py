"""Freed memory stays with the process, as the count of page faults shows."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from counterpoint.cli.main import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
def step():
    return float(torch.zeros(1 << 24).sum())  # 64 MiB: above what glibc would keep by itself
for _ in range(20):  # until the heap has found its shape
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, check=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
@pytest.mark.thorough
def test_steps_find_the_pages_of_those_before() -> None:
    assert faults("kept") * 20 < faults("given back")
