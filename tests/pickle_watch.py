"""Watches what reading a file does: in this process, or in one in which nothing may be unpickled."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WATCH = """
import pickle, sys
import numpy as np, torch, torch._dynamo
import counterpoint as cp
from counterpoint.core.settings import SourceSettings
from counterpoint.data.sources import CATALOGUE, open_source
from counterpoint.engine.progress import Reporter

loaded = [getattr(cp, name) for name in cp.__all__]  # everything is imported before the watch begins
refused = []

def refuse(name):
    def call(*args, **options):
        refused.append(name)
        raise RuntimeError(f"called {name}")
    return call

def hook(event, args):
    if event.startswith("pickle."):
        refused.append(args)
        raise RuntimeError(f"unpickled {args}")

sys.addaudithook(hook)
dumped, originals = pickle.dumps(print), {name: getattr(pickle, name) for name in ("load", "loads", "Unpickler")}
for name in originals:
    setattr(pickle, name, refuse(f"pickle.{name}"))
torch.load = refuse("torch.load")
open_given = lambda data, **settings: open_source(data, SourceSettings(**settings), progress=Reporter(quiet=True).bar)
"""

PROVE_THE_WATCH = """
assert not refused, refused
for attempt in (pickle.loads, originals["loads"]):
    try:
        attempt(dumped)
    except RuntimeError:
        print("the watch works")
"""


def run_watched(code: str, folder: Path, *words: str) -> list[str]:
    command = [sys.executable, "-c", WATCH + code + PROVE_THE_WATCH, *words]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    *lines, first, second = finished.stdout.splitlines()
    assert (first, second) == ("the watch works", "the watch works")
    return lines


@contextmanager
def audit_events(beginnings: tuple[str, ...]) -> Iterator[list[str]]:
    """Names of the audit events of this process that begin so; hooks cannot be removed: this one sleeps afterwards."""
    seen: list[str] = []
    awake = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if awake[0] and event.startswith(beginnings):
            seen.append(event)

    sys.addaudithook(hook)
    try:
        yield seen
    finally:
        awake[0] = False
