"""Training goes on when nobody reads its progress any more."""

import os
import subprocess
import sys

PROGRAM = """
from counterpoint.engine.progress import Reporter
reporter = Reporter()
for number in range(100):
    reporter.say(f"line {number} " + "x" * 1000)
print("still here")
"""


def test_a_reader_that_leaves_does_not_end_the_run() -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=writing)
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert said == b"still here\n"
