"""Benchmarks are commands, not a package: their folder is on the path as it is when they run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
