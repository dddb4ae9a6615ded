"""Fixtures any test may use, and one Hypothesis profile: examples are fixed and nothing is timed."""

import os

# Before torch is imported. Tests that start processes would stall each other; of several workers each has one thread.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import itertools
import math
import zlib
from collections import defaultdict
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

from rank_processes import pool_of_ranks

NUMBERS = itertools.count()

settings.register_profile("counterpoint", deadline=None, derandomize=True)
settings.load_profile("counterpoint")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark cases of a test marked ``sampled(k)`` as thorough, but one in k, chosen by a hash of its name."""
    cases: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if mark := item.get_closest_marker("sampled"):
            cases[item.nodeid.split("[")[0], mark.args[0]].append(item)
    for (_, one_in), alike in cases.items():
        alike.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in alike[math.ceil(len(alike) / one_in) :]:
            item.add_marker(pytest.mark.thorough)


def pytest_configure(config: pytest.Config) -> None:
    """Start one pool of ranks for the whole run; workers of a parallel run find it in their environment."""
    if not hasattr(config, "workerinput"):
        pool = ExitStack()
        pool.enter_context(pool_of_ranks())
        config.add_cleanup(pool.close)


HAS_TRITON = find_spec("triton") is not None and find_spec("triton.knobs") is not None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Programs for a GPU cannot be imported without their compiler; tests of them say so themselves."""
    return True if collection_path.parent.name == "triton" and not HAS_TRITON else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not collected."""
    if not HAS_TRITON:
        terminalreporter.write_line("not collected: examples of kernels/triton, which need triton 3.4 or newer")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests of a test's data go to a folder of its own, made when needed, also from processes that it starts."""
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path_factory.getbasetemp() / f"cache-{next(NUMBERS)}"))


@pytest.fixture
def rng() -> np.random.Generator:
    """A NumPy generator, the same for every test."""
    return np.random.default_rng(20240607)


@pytest.fixture
def generator() -> torch.Generator:
    """A CPU torch generator, the same for every test."""
    return torch.Generator().manual_seed(20240607)
